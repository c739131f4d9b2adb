package ui

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/see"
)

// TestComb: GPUs of a node that look alike are one outline, each at its place with its queue's letter; rows are drawn in strips, and each node once.
func TestComb(t *testing.T) {
	t.Parallel()
	held := func(q string) see.DeviceLine { return see.DeviceLine{Queue: q, UsedMilli: 1000} }
	n := see.NodeLine{Name: "n", Devices: []see.DeviceLine{held("a"), held("b"), held("a"), {}, {Queue: "b", UsedMilli: 250, Shared: true}, {UsedMilli: 1000, Foreign: true}, {}, {}, held("a")}}
	c := draw(&see.NodeList{Items: []see.NodeLine{n}}, 0)
	want := []hexes{
		{"q0", "M18.7 5" + around + "M53.3 5" + around + "M27.4 20" + around, []letter{{"10 44.6 18.7", "0 0 15", "AAA"}}},
		{"q1", "M36 5" + around, []letter{{"27.3", "0", "B"}}},
		{"free", "M70.7 5" + around + "M122.6 5" + around + "M139.9 5" + around, nil},
		{"q1 part", "M88 5" + around, []letter{{"79.3", "0", "B"}}},
		{"foreign", "M105.3 5" + around, nil},
	}
	if d := cmp.Diff(want, c.Strips[0].Cells[0].Groups); d != "" {
		t.Error(d)
	}
	if want := "n: 3 free; 1 held by others; 3 of queue a; 1 of queue b; 1 shared, 25% taken, of queue b"; c.Strips[0].Cells[0].Title != want {
		t.Errorf("it is called %q", c.Strips[0].Cells[0].Title)
	}
	g := &hexes{}
	g.mark("1", "2", "B1")
	g.mark("3", "4", "B1")
	if d := cmp.Diff([]letter{{"1", "2", "B1"}, {"3", "4", "B1"}}, g.Marks); d != "" {
		t.Error(d)
	}
	many := &see.NodeList{Items: make([]see.NodeLine, combNodes+1)}
	for i := range many.Items {
		many.Items[i].Name = fmt.Sprint(i)
	}
	seen, pages := 0, 0
	for page, again := 0, true; again; page++ {
		c := draw(many, page)
		again = c.More == page+1
		pages++
		for _, s := range c.Strips {
			for i := range s.Cells {
				if x := &s.Cells[i]; x.Name != fmt.Sprint(seen) || x.X >= s.Width || x.Y >= s.Height || i == 0 && x.Name != s.First || i == len(s.Cells)-1 && x.Name != s.Last {
					t.Fatalf("at %d: %+v of %s to %s", seen, x, s.First, s.Last)
				}
				seen++
			}
		}
	}
	if seen != len(many.Items) || pages != 2 {
		t.Errorf("%d of %d nodes are drawn, on %d pages", seen, len(many.Items), pages)
	}
	many.Items[7].Devices = make([]see.DeviceLine, 1024)
	if c := draw(many, 0); len(c.Strips) != (fewNodes+combRow*stripRows-1)/(combRow*stripRows) || c.More != 1 {
		t.Errorf("beside a node that says it has 1,024 GPUs there are %d strips", len(c.Strips))
	}
}
