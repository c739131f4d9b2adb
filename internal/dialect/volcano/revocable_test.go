package volcano

import (
	"fmt"
	"testing"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// TestBudget: what a PodGroup says of how many of its pods may be taken, and whether it makes way: its annotation before its label.
func TestBudget(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ most, least, want string }{
		{"-", "-", "none"},
		{"2", "-", "{2 false false}"},
		{"50%", "1", "{50 true false}"},
		{"-", "3", "{3 false true}"},
		{"-", "100%", "{100 true true}"},
		{"0", "-", "{0 false false}"},
		{"", "1", `metadata.annotations[volcano.sh/jdb-max-unavailable] is ""; it must be a number from 0 up, or a percentage up to 100%: it is overlooked, and one pod may be taken at a time`},
		{"-", "101%", `metadata.annotations[volcano.sh/jdb-min-available] is "101%"; it must be a number from 0 up, or a percentage up to 100%: it is overlooked, and one pod may be taken at a time`},
		{"-1", "-", `metadata.annotations[volcano.sh/jdb-max-unavailable] is "-1"; it must be a number from 0 up, or a percentage up to 100%: it is overlooked, and one pod may be taken at a time`},
	} {
		pg := &v1beta1.PodGroup{}
		pg.Annotations = map[string]string{}
		if c.most != "-" {
			pg.Annotations[keys.JDBMaxUnavailable] = c.most
		}
		if c.least != "-" {
			pg.Annotations[keys.JDBMinAvailable] = c.least
		}
		got := "none"
		if b, err := budget(pg); err != nil {
			got = err.Error()
		} else if b != nil {
			got = fmt.Sprint(*b)
		}
		if got != c.want {
			t.Errorf("%q and %q: %s, want %s", c.most, c.least, got, c.want)
		}
	}
	for _, c := range []struct {
		annotation, label string
		want              bool
	}{{"-", "-", false}, {"true", "false", true}, {"false", "true", false}, {"-", "true", true}, {"maybe", "true", false}} {
		pg := &v1beta1.PodGroup{}
		pg.Annotations, pg.Labels = map[string]string{}, map[string]string{}
		if c.annotation != "-" {
			pg.Annotations[keys.Preemptable] = c.annotation
		}
		if c.label != "-" {
			pg.Labels[keys.Preemptable] = c.label
		}
		if yields(pg) != c.want {
			t.Errorf("annotation %q, label %q: %v", c.annotation, c.label, !c.want)
		}
	}
}
