// Package usagetest holds what tests of usage share: a made-up past with the definition of usage read aloud over it, and
// a real Prometheus server to put it into.
package usagetest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/usage"
)

// Moment is a sample and its time.
type Moment struct {
	At     time.Time
	Sample usage.Sample
}

// Past is what was sampled, in order.
type Past []Moment

// GPUs returns a past of evenly spaced samples, after start, of a cluster that has so many GPUs; held says how many
// each queue held in a step.
func GPUs(start time.Time, step time.Duration, steps int, had int64, held func(step int) map[string]int64) Past {
	var p Past
	for i := range steps {
		s := usage.Sample{Had: cluster.Resources{0, 0, had * 1000}, Held: map[string]cluster.Resources{}}
		for queue, n := range held(i) {
			s.Held[queue] = cluster.Resources{0, 0, n * 1000}
		}
		p = append(p, Moment{start.Add(time.Duration(i+1) * step), s})
	}
	return p
}

// Random returns a past of five queues in a growing cluster. With gaps, queues come and go, and there are times without
// samples; without, such a queue holds nothing.
func Random(start time.Time, step time.Duration, steps int, gaps bool) Past {
	rng := rand.New(rand.NewPCG(7, 11))
	var p Past
	for i := range steps {
		if gaps && i%400 > 380 {
			continue
		}
		s := usage.Sample{Had: cluster.Resources{64_000, 1 << 38, 8000 + 8000*int64(i/1000)}, Held: map[string]cluster.Resources{}}
		for q := range 5 {
			name := fmt.Sprintf("q%d", q)
			switch {
			case (i/300+q)%4 != 0:
				s.Held[name] = cluster.Resources{rng.Int64N(12_000), rng.Int64N(1 << 35), rng.Int64N(1600)}
			case !gaps:
				s.Held[name] = cluster.Resources{}
			}
		}
		p = append(p, Moment{start.Add(time.Duration(i+1) * step), s})
	}
	return p
}

// Shares is the definition of usage, read aloud: the slow obvious sums that every source must come to.
func (p Past) Shares(c *usage.Config, now time.Time) usage.Shares {
	out := usage.Shares{}
	start := c.Window.Start(now)
	for dim, name := range map[int]string{cluster.GPU: "gpu", cluster.CPU: "cpu", cluster.RAM: "memory"} {
		had, held := 0.0, map[string]float64{}
		for _, m := range p {
			if !m.At.After(start) || m.At.After(now) {
				continue
			}
			decay := 1.0
			if c.HalfLife > 0 {
				decay = math.Exp2(-now.Sub(m.At).Seconds() / c.HalfLife.Seconds())
			}
			had += float64(m.Sample.Had.At(dim)) * decay
			for q, r := range m.Sample.Held {
				held[q] += float64(r.At(dim)) * decay
			}
		}
		for q, sum := range held {
			if part := int64(math.Round(sum / had * usage.One)); had > 0 && part > 0 {
				if out[q] == nil {
					out[q] = map[string]int64{}
				}
				out[q][name] = part
			}
		}
	}
	return out
}

// OpenMetrics writes the past in the format that promtool takes, as the queue role and kube-state-metrics export it.
func (p Past) OpenMetrics() []byte {
	var b bytes.Buffer
	series := func(name, labels string, value func(usage.Sample) (float64, bool)) {
		for _, m := range p {
			if v, ok := value(m.Sample); ok {
				fmt.Fprintf(&b, "%s{%s} %v %v\n", name, labels, v, float64(m.At.UnixMilli())/1000)
			}
		}
	}
	type dimension struct {
		dim             int
		held, labels    string
		baseUnitsPerOne float64
	}
	dims := []dimension{
		{cluster.GPU, "kai_queue_allocated_gpus", `resource="nvidia_com_gpu",unit="integer"`, 1000},
		{cluster.CPU, "kai_queue_allocated_cpu_cores", `resource="cpu",unit="core"`, 1000},
		{cluster.RAM, "kai_queue_allocated_memory_bytes", `resource="memory",unit="byte"`, 1},
	}
	var queues []string
	for _, m := range p {
		for q := range m.Sample.Held {
			if !slices.Contains(queues, q) {
				queues = append(queues, q)
			}
		}
	}
	slices.Sort(queues)
	fmt.Fprintln(&b, "# TYPE kube_node_status_capacity gauge")
	for _, d := range dims {
		for _, node := range []string{"n1", "n2"} { // two halves of the cluster: the query adds them up
			series("kube_node_status_capacity", fmt.Sprintf(`node=%q,%s`, node, d.labels), func(s usage.Sample) (float64, bool) {
				return float64(s.Had.At(d.dim)) / d.baseUnitsPerOne / 2, true
			})
		}
	}
	for _, d := range dims {
		fmt.Fprintf(&b, "# TYPE %s gauge\n", d.held)
		for _, q := range queues {
			series(d.held, fmt.Sprintf(`queue_name=%q,queue_metadata_name=%q,queue_display_name=""`, q, q), func(s usage.Sample) (float64, bool) {
				r, ok := s.Held[q]
				return float64(r.At(d.dim)) / d.baseUnitsPerOne, ok
			})
		}
	}
	fmt.Fprintln(&b, "# EOF")
	return b.Bytes()
}

// Near fails the test unless the shares are equal up to a millionth: sums added in another order differ by that.
func Near(t testing.TB, what string, got, want usage.Shares) {
	t.Helper()
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b int64) bool { return a-b <= 1 && b-a <= 1 })); d != "" {
		t.Errorf("%s: usage is another than the sums say (-want +got):\n%s", what, d)
	}
}

// Parse reads a configuration of a test.
func Parse(t testing.TB, text string) usage.Config {
	t.Helper()
	c, err := usage.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
