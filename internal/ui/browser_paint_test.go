//go:build browser

package ui

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	cdpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/see"
	"github.com/muster-scheduler/muster/internal/sim"
)

// firstPaint is when the browser first showed something of the page, in milliseconds from when it was asked to open it (https://www.w3.org/TR/paint-timing/, first-contentful-paint).
const firstPaint = `new Promise(done => new PerformanceObserver(list => {
  for (const e of list.getEntries()) if (e.name === "first-contentful-paint") done(e.startTime);
}).observe({type: "paint", buffered: true}))`

// BenchmarkFirstPaint is how long it takes from the opening of a page until the browser first shows something of it, the role's answer included, in a window of 1280 by 900, beside the city of TestBrowser: the median and the worst, by view. Nothing is held in a cache:
// each page is opened anew.
func BenchmarkFirstPaint(b *testing.B) {
	path := chromium(b)
	groups[sim.Key("").Face] = []string{groupWork}
	var clock atomic.Pointer[time.Time]
	j, err := journal.Open(journal.Options{Folder: b.TempDir(), Now: func() time.Time {
		if at := clock.Load(); at != nil {
			return *at
		}
		return time.Now()
	}})
	if err != nil {
		b.Fatal(err)
	}
	c := newCity(b, j, &clock)
	address := c.serve(j, &rights{have: []string{
		"ada get podgroups.scheduling.run.ai", "ada list queues.scheduling.run.ai", "ada list nodes.", "ada simulate queues.scheduling.run.ai",
	}})
	ctx := browse(b, path, &complaints{})
	signIn(b, ctx, address)
	s := &sight{t: b, ctx: ctx}
	for _, v := range []view{
		{name: "jobs", path: "/?namespace=sim"},
		{name: "job", path: "/job/sim/" + c.latest()},
		{name: "queues", path: "/queues"},
		{name: "gpus", path: "/gpus"},
		{name: "decisions", path: "/decisions?since=10m"},
		{name: "ledger", path: "/ledger?since=3h"},
		{name: "alerts", path: "/alerts"},
		{name: "what-if", path: "/what-if"},
	} {
		b.Run(v.name, func(b *testing.B) {
			var took []float64
			for b.Loop() {
				if err := chromedp.Do(ctx, chromedp.Navigate(address+v.path), chromedp.WaitReady(chromedp.CSS(`main h1`))); err != nil {
					b.Fatal(fmt.Errorf("%s: %w", v.name, err))
				}
				took = append(took, ask[float64](s, firstPaint))
			}
			report(b, "ms", took)
		})
	}
}

// signIn has ada sign in at an address, in a window of 1280 by 900.
func signIn(b *testing.B, ctx context.Context, address string) {
	b.Helper()
	if err := chromedp.Do(ctx, look(1280, 900, "light"), chromedp.Navigate(address+"/"), chromedp.WaitVisible(chromedp.CSS(`#token`)),
		chromedp.SendKeys(chromedp.CSS(`#token`), "ada"+kb.Enter), chromedp.WaitVisible(chromedp.CSS(`form[action="/logout"]`))); err != nil {
		b.Fatal(err)
	}
}

// report gives the median and the worst of times in milliseconds instead of what an iteration took, which is also what the browser is asked besides.
func report(b *testing.B, of string, took []float64) {
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took[len(took)/2], of+"-p50")
	b.ReportMetric(took[len(took)-1], of+"-worst")
}

// marked has every page say, once all of it is there, when that was painted: with a line of the test's own, of which the browser tells when it first showed it (https://wicg.github.io/element-timing/). It is shown with whatever else is new, so no earlier than the
// honeycomb. Milliseconds from when the page was asked for.
const marked = `document.addEventListener("DOMContentLoaded", () => {
  const p = document.createElement("p");
  p.textContent = "all of it is there";
  p.setAttribute("elementtiming", "opened");
  document.querySelector("header").append(p);
})`

const opened = `new Promise(done => new PerformanceObserver(list => {
  for (const e of list.getEntries()) if (e.identifier === "opened") done(e.renderTime);
}).observe({type: "element", buffered: true}))`

// renewed does what live.js does when a cycle has come, and says how long it takes from when the role's answer is there until it has been painted, in milliseconds.
const renewed = `(async () => {
  const text = await (await fetch(location.href)).text();
  const from = performance.now();
  const painted = new Promise(done => new PerformanceObserver(list => {
    for (const e of list.getEntries()) if (e.identifier === "renewed") done(e.renderTime - from);
  }).observe({type: "element"}));
  const next = new DOMParser().parseFromString(text, "text/html").getElementById("main");
  next.querySelector("h1").setAttribute("elementtiming", "renewed");
  document.getElementById("main").replaceWith(next);
  return painted;
})()`

// BenchmarkHoneycomb is how long the browser takes to draw GPUs, eight of a node, of ten queues: from the opening of the page until all of it is painted, the role's answer included, and from the arrival of a renewed page until that is painted; the median and the
// worst. The cluster stands still, and the role has decided on its cycle before.
func BenchmarkHoneycomb(b *testing.B) {
	path := chromium(b)
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprint(nodes*8), func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			config, _, err := Certificates("", "")
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			served := make(chan error, 1)
			go func() { served <- answerer(still{"": combs(nodes)}, usual()).Serve(ctx, l, config) }()
			defer func() { cancel(); <-served }()
			page := browse(b, path, &complaints{})
			address := "https://" + l.Addr().String()
			signIn(b, page, address)
			if _, err := chromedp.Call(page, cdpage.AddScriptToEvaluateOnNewDocument, cdpage.AddScriptToEvaluateOnNewDocumentParams{Source: marked}); err != nil {
				b.Fatal(err)
			}
			s := &sight{t: b, ctx: page}
			var open, anew []float64
			visit := func() {
				if err := chromedp.Do(page, chromedp.Navigate(address+"/gpus"), chromedp.WaitReady(chromedp.CSS(`main .comb`))); err != nil {
					b.Fatal(err)
				}
				open = append(open, ask[float64](s, opened))
				anew = append(anew, ask[float64](s, renewed))
			}
			visit() // the role decides on the cycle
			open, anew = nil, nil
			for b.Loop() {
				visit()
			}
			b.Logf("%d nodes are on the page", ask[int](s, `document.querySelectorAll(".comb > g").length`))
			report(b, "ms-opened", open)
			report(b, "ms-renewed", anew)
		})
	}
}

// combs is a cycle of so many nodes of eight GPUs: ten queues hold most of them, every ninth node has free ones, and every 97th takes no pods.
func combs(nodes int) *see.Cycle {
	store := cluster.NewStore(cluster.Options{})
	gpu := func(n int) []cluster.Quantity {
		return []cluster.Quantity{{Name: "gpu", Value: int64(n) * cluster.Whole}}
	}
	for q := range 10 {
		name := fmt.Sprintf("queue-%d", q)
		store.Apply(cluster.QueueState{Name: name, UID: name, Quota: gpu(nodes * 8 / 10)})
		store.Apply(cluster.GangState{Key: cluster.Key{Face: "kai", Namespace: "n", Name: name}, UID: name, Queue: name, Sets: cluster.FlatTree(1), Preemptible: true})
	}
	for i := range nodes {
		n := cluster.NodeState{Name: fmt.Sprintf("rack-%03d-node-%02d", i/20+1, i%20+1), Allocatable: append(gpu(8), cluster.Quantity{Name: "pods", Value: 110})}
		if n.UID = n.Name; i%97 == 50 {
			n.Problem = "Unschedulable"
		}
		store.Apply(n)
		for k := range 8 {
			if i%9 == 4 && k > 5 || n.Problem != "" && k > 3 {
				continue
			}
			pod := fmt.Sprintf("p-%d-%d", i, k)
			store.Apply(cluster.PodState{
				UID: pod, Namespace: "n", Name: pod, Gang: cluster.Key{Face: "kai", Namespace: "n", Name: fmt.Sprintf("queue-%d", (i/7+k/3)%10)}, Ours: true, Phase: cluster.Running, NodeName: n.Name, Requests: gpu(1),
			})
		}
	}
	return see.NewCycle(store.Snapshot(cluster.InstantOf(noon)), profile.BuiltIn(), builtin.Registry())
}
