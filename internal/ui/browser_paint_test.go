//go:build browser

package ui

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/muster-scheduler/muster/internal/journal"
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
	if err := chromedp.Do(ctx, look(1280, 900, "light"), chromedp.Navigate(address+"/"), chromedp.WaitVisible(chromedp.CSS(`#token`)),
		chromedp.SendKeys(chromedp.CSS(`#token`), "ada"+kb.Enter), chromedp.WaitVisible(chromedp.CSS(`form[action="/logout"]`))); err != nil {
		b.Fatal(err)
	}
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
			slices.Sort(took)
			b.ReportMetric(0, "ns/op") // the browser's own, and what is asked of it besides
			b.ReportMetric(took[len(took)/2], "ms-p50")
			b.ReportMetric(took[len(took)-1], "ms-worst")
		})
	}
}
