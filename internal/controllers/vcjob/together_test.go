package vcjob

import (
	"errors"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestSlowly: of many things the first is done by itself, and then more at once, each once and at most mostTogether; where one fails those of its group are done and no later one.
func TestSlowly(t *testing.T) {
	t.Parallel()
	for n, failing := range map[int]int{0: -1, 1: -1, 40: -1, 41: 0, 42: 5, 43: 42, 44: 20} { // order: each for itself
		var mu sync.Mutex
		done, now, most := map[int]int{}, 0, 0
		err := side{}.slowly(n, func(i int) error {
			mu.Lock()
			done[i]++
			now++
			most = max(most, now)
			mu.Unlock()
			defer func() { mu.Lock(); now--; mu.Unlock() }()
			if i == failing {
				return errors.New("no")
			}
			return nil
		})
		want := n
		switch failing {
		case 0:
			want = 1
		case 5:
			want = 1 + mostTogether
		case 20:
			want = 1 + 2*mostTogether
		}
		if (err != nil) != (failing >= 0) || len(done) != want || most > mostTogether {
			t.Errorf("%d, of which %d fails: %d done, at most %d at once: %v", n, failing, len(done), most, err)
		}
		for i, times := range done { // order: the same
			if times != 1 {
				t.Errorf("%d was done %d times", i, times)
			}
		}
	}
}

// TestAlike: pods of a higher priority are not made beside those of a lower one.
func TestAlike(t *testing.T) {
	t.Parallel()
	var pods []*corev1.Pod
	for _, class := range []string{"high", "high", "", "", "", "low"} {
		pods = append(pods, &corev1.Pod{Spec: corev1.PodSpec{PriorityClassName: class}})
	}
	var sizes []int
	for rest := pods; len(rest) > 0; rest = rest[sizes[len(sizes)-1]:] {
		sizes = append(sizes, alike(rest))
	}
	if !slices.Equal(sizes, []int{2, 3, 1}) {
		t.Errorf("made together: %v", sizes)
	}
}
