//go:build lab

package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// writes returns how many writes the API server has served so far, by verb and resource.
func (w *fixture) writes(t testing.TB) map[string]int {
	t.Helper()
	c, err := kubernetes.NewForConfig(w.lab.Config())
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") {
			continue
		}
		label := func(name string) string {
			_, rest, _ := strings.Cut(line, name+`="`)
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
		if verb := label("verb"); verb != "POST" && verb != "PUT" && verb != "PATCH" && verb != "APPLY" && verb != "DELETE" {
			continue
		}
		resource := label("resource")
		if resource == "leases" {
			continue
		}
		if sub := label("subresource"); sub != "" {
			resource += "/" + sub
		}
		var n float64
		if _, err := fmt.Sscanf(line[strings.LastIndexByte(line, ' ')+1:], "%g", &n); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out[label("verb")+" "+resource] += int(n)
	}
	return out
}

// sinceThen returns what was written since, once nothing of it has changed for so long.
func (w *fixture) sinceThen(t testing.TB, then map[string]int, quiet time.Duration) map[string]int {
	t.Helper()
	last := w.writes(t)
	for {
		timer := time.NewTimer(quiet)
		select {
		case <-timer.C:
		case <-t.Context().Done():
			t.Fatal("it never came to rest")
		}
		now := w.writes(t)
		if maps.Equal(now, last) {
			for k, n := range then {
				if now[k] -= n; now[k] == 0 {
					delete(now, k)
				}
			}
			return now
		}
		last = now
	}
}

func (w *fixture) tellWrites(t testing.TB, what string, n map[string]int) {
	for _, k := range slices.Sorted(maps.Keys(n)) {
		t.Logf("%s: %6d %s", what, n[k], k)
	}
}

// TestWrites counts the writes of a fill and of a reclaim, until everything about them has been written: 400 Jobs of a pod
// each on 50 nodes, and 12 gangs of 16 that take half of that back.
func TestWrites(t *testing.T) {
	w := newFixture(t, 50, lab.Options{})
	for name, quota := range map[string]float64{"greedy": 200, "owner": 200} {
		q := queue(name, "root")
		q.Spec.Resources.GPU.Quota = quota
		w.create(t, q)
	}
	muster := newProcess(t, "all", w.lab.Kubeconfig())
	muster.start()
	muster.awaitReady(t)
	w.namespace(t, "greedy")
	w.namespace(t, "owner")
	then := w.writes(t)
	for i := range 400 {
		j := gang("greedy", fmt.Sprintf("j%03d", i), 1, "")
		j.Labels[keys.QueueLabel], j.Spec.Template.Labels[keys.QueueLabel] = "greedy", "greedy"
		w.create(t, j)
	}
	filled := w.must(t, 2*time.Minute, w.allRunning("greedy", 400))
	w.tellWrites(t, "fill", w.sinceThen(t, then, 6*time.Second))
	then = w.writes(t)
	for i := range 12 {
		j := gang("owner", fmt.Sprintf("g%02d", i), 16, "")
		j.Labels[keys.QueueLabel], j.Spec.Template.Labels[keys.QueueLabel] = "owner", "owner"
		w.create(t, j)
	}
	took := w.must(t, 2*time.Minute, w.allRunning("owner", 192))
	w.tellWrites(t, "reclaim", w.sinceThen(t, then, 6*time.Second))
	t.Logf("filled after %v, taken back after %v", filled.Round(time.Millisecond), took.Round(time.Millisecond))
}
