//go:build browser

package ui

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	imagedraw "image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	cdproto "github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/sim"
)

//go:embed testdata/axe/axe.min.js
var axe string

// ofBrowser is how long the whole test may take: a guard against a browser that hangs.
const ofBrowser = 25 * time.Minute

// chromium is the browser of this machine; without one the test is skipped, and says what is not checked.
func chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{os.Getenv("MUSTER_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	t.Skip("NOT CHECKED: pages in a browser; there is no Chromium here (Debian: chromium)")
	return ""
}

// complaints are what the browser holds against pages.
type complaints struct {
	mu   sync.Mutex
	said []string
}

func (c *complaints) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, fmt.Sprintf(format, args...))
}

// take are those since it was last asked.
func (c *complaints) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.said
	c.said = nil
	return out
}

// heed hears what the browser says of pages: errors and warnings of the console, exceptions, what could not be loaded, and its own audits, reports of the policy (CSP) among them.
func (c *complaints) heed(event any) {
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if slices.Contains([]string{"error", "warning", "assert"}, string(e.Type)) {
			c.add("the console has %s: %s", e.Type, mustJSON(e.Args))
		}
	case *runtime.EventExceptionThrown:
		c.add("an exception: %s", mustJSON(e.ExceptionDetails))
	case *log.EventEntryAdded:
		if slices.Contains([]string{"error", "warning"}, string(e.Entry.Level)) {
			c.add("the log has %s of %s: %s %s", e.Entry.Level, e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *audits.EventIssueAdded:
		c.add("an issue: %s", mustJSON(e.Issue))
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			c.add("%s answers %d", e.Response.URL, e.Response.Status)
		}
	}
}

func mustJSON(x any) string {
	text, err := json.Marshal(x)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// view is a page that is looked at.
type view struct {
	name, path string
	do         []chromedp.Action[chromedp.Void] // what is done on it once it is there
	plain      bool                             // it is not drawn
	has        string                           // words that it must show, by |
}

// TestBrowser looks at every view of the role in a real browser, while the cluster behind it changes each second: light, dark and narrow. No view may have the browser complain (console, exceptions,
// reports of the policy, audits), break a rule of axe-core (WCAG 2.2 A and AA, and its best practices), be wider than its window, or have a control that Tab does not reach or that does not show that it has
// the focus. With MUSTER_SCREENSHOTS, the folder for them, it draws each view light and dark.
func TestBrowser(t *testing.T) {
	path := chromium(t)
	groups[sim.Key("").Face] = []string{groupWork} // the simulator's gangs are of a face of their own; here they are read as KAI's are
	var clock atomic.Pointer[time.Time]
	j, err := journal.Open(journal.Options{Folder: t.TempDir(), Now: func() time.Time {
		if at := clock.Load(); at != nil {
			return *at
		}
		return time.Now()
	}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c := newCity(t, j, &clock)
	who := &rights{have: []string{
		"ada get podgroups.scheduling.run.ai", "ada list queues.scheduling.run.ai", "ada list nodes.", "ada simulate queues.scheduling.run.ai",
	}}
	address := c.serve(j, who)
	t.Logf("a city of %d nodes has lived for %s, in %s", cityNodes, cityPast, time.Since(began).Round(time.Second))

	said := &complaints{}
	ctx := browse(t, path, said)

	// Who is not known signs in.
	if err := chromedp.Do(ctx, look(1280, 900, "light"), chromedp.Navigate(address+"/"), chromedp.WaitVisible(chromedp.CSS(`#token`))); err != nil {
		t.Fatal(err)
	}
	for _, x := range said.take() {
		if !strings.Contains(x, "401") {
			t.Errorf("sign in: %s", x)
		}
	}
	s := &sight{t: t, ctx: ctx, said: said, shots: os.Getenv("MUSTER_SCREENSHOTS")}
	s.examine(&view{name: "sign-in", plain: true}, "light")
	if err := chromedp.Do(ctx, chromedp.SendKeys(chromedp.CSS(`#token`), "ada"+kb.Enter), chromedp.WaitVisible(chromedp.CSS(`form[action="/logout"]`))); err != nil {
		t.Fatal(err)
	}
	var cycle string
	for _, e := range decisions(t, j) {
		if len(e.Decisions) > 2 {
			cycle = fmt.Sprint(e.Number)
		}
	}
	whatIf := []chromedp.Action[chromedp.Void]{
		chromedp.SendKeys(chromedp.CSS(`#quota`), "vision:gpu=1600"), chromedp.SendKeys(chromedp.CSS(`#addNodes`), "20"), chromedp.SendKeys(chromedp.CSS(`#like`), "rack-01-node-01"), chromedp.SendKeys(chromedp.CSS(`#cycles`), "20"),
		chromedp.Click(chromedp.CSS(`main form button`)), chromedp.WaitVisible(chromedp.CSS(`main h2`)),
	}
	views := []view{
		{name: "jobs", path: "/?namespace=sim", has: "bert-pretrain|never|in line|runs"},
		{name: "job", path: "/job/sim/" + c.latest(), has: "Why|What would change it|Timeline|Starts between"},
		{name: "never", plain: true, path: "/job/sim/urgent-serving-1?inLine=true", has: "never|OverLimit"},
		{name: "queues", path: "/queues", has: "language|Fair share"},
		{name: "gpus", path: "/gpus", has: "GPUs are held"},
		{name: "decisions", path: "/decisions?since=10m", has: "bound"},
		{name: "cycle", plain: true, path: "/cycle/" + cycle, has: "byte for byte"},
		{name: "step", path: "/cycle/" + cycle + "?step=1", has: "What queues hold after it"},
		{name: "ledger", path: "/ledger?since=3h", has: "GPU hours"},
		{name: "alerts", path: "/alerts", has: "MusterQueueStarving"},
		{name: "what-if", path: "/what-if", do: whatIf, has: "What would become of it|starts"},
		{name: "refusal", plain: true, path: "/job/sim/nothing-of-that-name", has: "no gang"},
	}
	before := c.live.Load()
	s.renews(address + "/queues")
	for i := range views {
		for _, scheme := range []string{"light", "dark", "narrow"} {
			s.visit(address, &views[i], scheme)
		}
	}
	if n := c.live.Load() - before; n == 0 {
		t.Error("nothing has changed while pages were looked at")
	} else {
		t.Logf("%d cycles came meanwhile", n)
	}
}

// browse starts the browser, which says what it has against pages. It ends with the test.
func browse(t testing.TB, path string, said *complaints) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ofBrowser)
	t.Cleanup(cancel)
	flags := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("ignore-certificate-errors", true),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("font-render-hinting", "none"), chromedp.WSURLReadTimeout(5*time.Minute))
	ctx, cancel = chromedp.NewExecAllocator(ctx, flags...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Listen(ctx, said.heed); err != nil {
		t.Skipf("NOT CHECKED: pages in a browser; %s does not start here: %v", path, err)
	}
	for _, enable := range []cdproto.Command[cdproto.Empty, cdproto.Empty]{log.Enable, audits.Enable, runtime.Enable} {
		if _, err := chromedp.Call(ctx, enable, cdproto.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// look is how pages are shown: how large, and in which scheme.
func look(width, height int64, scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Steps(chromedp.EmulateViewport(width, height), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdproto.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
}

// sight is who looks.
type sight struct {
	t     testing.TB
	ctx   context.Context
	said  *complaints
	shots string
}

// ask has the page say something, or what a promise comes to.
func ask[T any](s *sight, expression string) T {
	s.t.Helper()
	out, err := chromedp.Run(s.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		s.t.Fatalf("%.60s: %v", expression, err)
	}
	return out
}

// visit opens a view and examines it.
func (s *sight) visit(address string, v *view, scheme string) {
	s.t.Helper()
	width, mode := int64(1280), scheme
	if scheme == "narrow" {
		width, mode = 390, "light"
	}
	actions := append([]chromedp.Action[chromedp.Void]{look(width, 900, mode), chromedp.Navigate(address + v.path), chromedp.WaitReady(chromedp.CSS(`main h1`))}, v.do...)
	if err := chromedp.Do(s.ctx, actions...); err != nil {
		s.t.Fatalf("%s, %s: %v", v.name, scheme, err)
	}
	text := ask[string](s, `document.querySelector("main").textContent`)
	for _, word := range strings.Split(v.has, "|") {
		if !strings.Contains(text, word) {
			s.t.Errorf("%s, %s: it does not show %q", v.name, scheme, word)
		}
	}
	s.examine(v, scheme)
}

// renews waits until a page has renewed itself, with the focus where it was.
func (s *sight) renews(address string) {
	s.t.Helper()
	if err := chromedp.Do(s.ctx, chromedp.Navigate(address), chromedp.WaitReady(chromedp.CSS(`header > button[aria-pressed="false"]`)), chromedp.Focus(chromedp.CSS(`main .wide`))); err != nil {
		s.t.Fatal(err)
	}
	const at = `document.querySelector("main time").dateTime`
	first := ask[string](s, `globalThis.before = document.getElementById("main"); `+at)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for ask[bool](s, `globalThis.before === document.getElementById("main")`) {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatal("the page does not renew itself")
		}
	}
	if now := ask[string](s, at); now <= first {
		s.t.Errorf("it was of %s and is of %s", first, now)
	}
	if !ask[bool](s, `document.activeElement.matches("main .wide")`) {
		s.t.Error("it has lost the focus")
	}
}

// finding is a rule of axe-core that a page breaks.
type finding struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

// examine looks for what is wrong with the page that is shown.
func (s *sight) examine(v *view, scheme string) {
	t := s.t
	t.Helper()
	wrong := func(format string, args ...any) {
		t.Errorf("%s, %s: %s", v.name, scheme, fmt.Sprintf(format, args...))
	}
	for _, x := range s.said.take() {
		if v.name == "refusal" && strings.Contains(x, "404") {
			continue
		}
		wrong("%s", x)
	}
	if s.shots != "" && !v.plain && scheme != "narrow" {
		s.draw(v, scheme)
	}
	ask[bool](s, `document.querySelector("header > button[aria-pressed]")?.click(), true`) // it holds still while it is examined
	wide := ask[struct{ Page, Window int }](s, `({Page: document.documentElement.scrollWidth, Window: innerWidth})`)
	if wide.Page > wide.Window {
		wrong("the page is %d wide in a window of %d", wide.Page, wide.Window)
	}
	ask[int](s, axe+";0")
	found := ask[[]finding](s, `axe.run({resultTypes: ["violations"]}).then(r => r.violations.map(v => ({ID: v.id, Impact: v.impact, Help: v.help,
		Nodes: v.nodes.slice(0, 3).map(n => ({HTML: n.html.slice(0, 200), FailureSummary: n.failureSummary}))})))`)
	for _, f := range found {
		wrong("axe: %s (%s): %s: %+v", f.ID, f.Impact, f.Help, f.Nodes)
	}
	if scheme == "light" {
		s.tab(v, wrong)
	}
	for _, x := range s.said.take() {
		if !strings.Contains(x, "axe") {
			wrong("%s", x)
		}
	}
}

// controls numbers what can be operated on the page, and says how many there are.
const controls = `(() => { let n = 0;
  for (const e of document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]")) if (e.checkVisibility() && e.tabIndex >= 0) e.dataset.n = n++;
  document.activeElement.blur(); getSelection().removeAllRanges(); return n; })()`

// focused is the number of the control that has the focus, or -1, and whether it shows that.
const focused = `(() => { const e = document.activeElement; if (!e || e.dataset.n === undefined) return {N: -1, Shown: true};
  const c = getComputedStyle(e); return {N: +e.dataset.n, Shown: c.outlineStyle !== "none" && parseFloat(c.outlineWidth) >= 2}; })()`

// mostTabs bounds how many controls of a page are gone through: rows of long lists are alike.
const mostTabs = 120

// tab goes through the page by its keyboard.
func (s *sight) tab(v *view, wrong func(string, ...any)) {
	n := ask[int](s, controls)
	seen := map[int]bool{}
	last := -1
	for range min(n+5, mostTabs) {
		if err := chromedp.Do(s.ctx, chromedp.KeyEvent(kb.Tab)); err != nil {
			s.t.Fatal(err)
		}
		at := ask[struct {
			N     int
			Shown bool
		}](s, focused)
		if at.N < 0 {
			continue // the page's end, or a region that scrolls
		}
		if !at.Shown {
			wrong("control %d has the focus and does not show it", at.N)
		}
		if at.N < last && !seen[at.N] {
			wrong("control %d comes after control %d", at.N, last)
		}
		last, seen[at.N] = at.N, true
	}
	for i := range min(n, mostTabs-5) {
		if !seen[i] {
			wrong("Tab does not reach control %d of %d", i, n)
		}
	}
}

// draw keeps what is shown as a picture.
func (s *sight) draw(v *view, scheme string) {
	shot, err := chromedp.Run(s.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		s.t.Fatal(err)
	}
	whole, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		s.t.Fatal(err)
	}
	// The 256 most frequent colours make a file a third as large.
	count := map[color.Color]int{}
	for y := range whole.Bounds().Dy() {
		for x := range whole.Bounds().Dx() {
			count[whole.At(x, y)]++
		}
	}
	colours := color.Palette(slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int {
		return cmp.Or(count[b]-count[a], cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	}))
	few := image.NewPaletted(whole.Bounds(), colours[:min(len(colours), 256)])
	imagedraw.Draw(few, few.Bounds(), whole, image.Point{}, imagedraw.Src)
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, few); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.shots, v.name+"-"+scheme+".png"), b.Bytes(), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// decisions are what the journal has of cycles that decided something.
func decisions(t testing.TB, j *journal.Journal) (out []*journal.Entry) {
	t.Helper()
	if err := j.Each(t.Context(), time.Time{}, func(e *journal.Entry) bool {
		if e.Kind == journal.Cycle && len(e.Decisions) > 0 {
			out = append(out, e)
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return out
}
