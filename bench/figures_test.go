package main

import (
	"slices"
	"testing"
	"time"
)

// at is a moment so many seconds after the tests' beginning.
func at(s float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second)))
}

func TestMeasure(t *testing.T) {
	var pods []pod
	for i := range 8 { // made each second, bound two seconds after that
		pods = append(pods, pod{group: "j", made: at(float64(i)), bound: at(float64(i) + 2)})
	}
	got, err := measure(pods, at(1))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"all_bound_s": 8, "first_bound_s": 1, "last_made_to_bound_s": 2, "middle_per_s": 1}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %v, want %v", k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("figures %v", got)
	}
	if got, err := measure(pods, at(8)); err != nil || len(got) != 3 {
		t.Errorf("all made before: %v, %v", got, err)
	}
	if got, err := measure(pods[:1], at(0)); err != nil || got["middle_per_s"] != 0 {
		t.Errorf("one pod: %v, %v", got, err)
	}
	if _, err := measure(append(pods, pod{group: "late", made: at(3)}), at(0)); err == nil {
		t.Error("a pod without a node was no error")
	}
	if _, err := measure(nil, at(0)); err == nil {
		t.Error("no pods were no error")
	}
}

func TestRoomToBind(t *testing.T) {
	gang := func(name string, made, bound, ended float64) (out []pod) {
		for range 2 {
			p := pod{group: name, made: at(made), bound: at(bound)}
			if ended > 0 {
				p.ended = at(ended)
			}
			out = append(out, p)
		}
		return out
	}
	// Four nodes. a and b find room at once; c waits until a goes at 10; d has the room that b leaves at 12, for c has the other by then.
	pods := slices.Concat(gang("a", 0, 1, 10), gang("b", 0, 2, 12), gang("c", 5, 10.5, 0), gang("d", 6, 15, 0), []pod{{group: "e", made: at(7)}})
	want := []time.Duration{time.Second / 2, time.Second, 2 * time.Second, 3 * time.Second}
	if got := roomToBind(pods, 4); !slices.Equal(got, want) {
		t.Errorf("waits %v, want %v", got, want)
	}
	// d's part of the room does not count while c, which was complete before it, waits: there is room for both only at 12.
	pods = slices.Concat(gang("a", 0, 1, 10), gang("b", 0, 2, 12), gang("c", 5, 13, 0), gang("d", 6, 14, 0))
	want = []time.Duration{time.Second, 2 * time.Second, 2 * time.Second, 3 * time.Second}
	if got := roomToBind(pods, 4); !slices.Equal(got, want) {
		t.Errorf("waits %v, want %v", got, want)
	}
}

func TestQuantile(t *testing.T) {
	all := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for part, want := range map[float64]int{0: 1, 0.5: 5, 0.99: 10, 1: 10} {
		if got := quantile(all, part); got != want {
			t.Errorf("quantile %v is %d, want %d", part, got, want)
		}
	}
}

func TestGrowth(t *testing.T) {
	if got := growth([]float64{900, 900, 100, 200, 300, 300, 300, 300, 250, 150}); got != 25 {
		t.Errorf("growth %v, want 25", got)
	}
	if got := growth([]float64{1, 2}); got != 0 {
		t.Errorf("growth of two samples is %v", got)
	}
}
