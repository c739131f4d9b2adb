package ui

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/see"
)

// TestDrawn: lists begin with what wants somebody's eye, and bars show what is used within the quota, beyond it, and the fair share; of what has no numbers nothing is drawn.
func TestDrawn(t *testing.T) {
	t.Parallel()
	list := []see.GangLine{{Gang: "a"}, {Gang: "b", Word: explain.InLine}, {Gang: "c", Unasked: true}, {Gang: "d", Word: explain.Never}, {Gang: "e", Word: explain.InLine}}
	var order string
	for _, g := range urgent(list) {
		order += g.Gang
	}
	if order != "dbeca" {
		t.Errorf("the order is %s", order)
	}
	if d := cmp.Diff([]counted{{"never", 1}, {"in line", 2}, {"waits", 1}, {"runs", 1}}, count(list)); d != "" {
		t.Error(d)
	}
	gpu := func(x string) map[string]string { return map[string]string{"gpu": x} }
	for _, c := range []struct {
		quota, fair, used string
		want              *bar
	}{
		{"100", "50", "75", &bar{Within: 126, LentAt: 127, Quota: 168, Fair: 85}},
		{"50", "100", "100", &bar{Within: 84, Lent: 84, LentAt: 85, Quota: 84, Fair: 168}},
		{"unlimited", "0", "8", &bar{Lent: 168, LentAt: 1, Fair: 1}},
		{"0", "0", "0", nil},
		{"unlimited", "", "", nil},
	} {
		if d := cmp.Diff(c.want, barOf(see.QueueLine{Quota: gpu(c.quota), FairShare: gpu(c.fair), Used: gpu(c.used)}, "gpu")); d != "" {
			t.Errorf("%+v: %s", c, d)
		}
	}
	for _, c := range []struct {
		binds, promises, evicts int
		want                    string
	}{{0, 0, 0, "nothing to bind"}, {2, 0, 0, "2 bound"}, {0, 2, 13, "2 promised, 13 evicted"}} {
		if got := moves(c.binds, c.promises, c.evicts); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
