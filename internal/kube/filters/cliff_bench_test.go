package filters

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/profile"
)

// others is a thousand nodes, on each of which some pods run, and n gangs of one pod, of which a function says what they say of
// other pods and which labels they have. There is room for all.
func others(n, running int, spec func(i int) (cluster.ClassSpec, map[string]string)) []cluster.Event {
	at := cluster.UnixNano(int64(1_000_000) * 1e9)
	var out []cluster.Event
	for i := range 1000 {
		name := fmt.Sprintf("node-%05d", i)
		out = append(out, cluster.NodeState{
			Name: name, UID: name, Labels: map[string]string{hostKey: name, zoneKey: fmt.Sprint("z", i%4)},
			Allocatable: []cluster.Quantity{{Name: "cpu", Value: 128000}, {Name: "memory", Value: 1 << 40}, {Name: "gpu", Value: 8000}, {Name: "pods", Value: 110}},
		})
	}
	free := []cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}
	out = append(out, cluster.QueueState{Name: "team", UID: "team", Quota: free, Limit: free})
	pod := func(name string, i int, node string) {
		s, labels := spec(i)
		s.Namespace, s.Labels = "ns", labels
		key := cluster.Key{Face: "kai", Namespace: "ns", Name: name}
		p := cluster.PodState{
			UID: name, Namespace: "ns", Name: name, Gang: key, Ours: true, Labels: labels, Spec: &s, Created: at.Add(-1e9),
			Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "memory", Value: 1 << 30}, {Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}},
		}
		if node != "" {
			p.Phase, p.NodeName, p.Spec = cluster.Running, node, nil
		}
		out = append(out, cluster.GangState{Key: key, UID: name, Queue: "team", Priority: 50, Preemptible: true, Created: at.Add(-1e9), Sets: cluster.FlatTree(1)}, p)
	}
	for i := range 1000 * running {
		pod(fmt.Sprintf("running-%06d", i), i%n, fmt.Sprintf("node-%05d", i%1000))
	}
	for i := range n {
		pod(fmt.Sprintf("waiting-%06d", i), i, "")
	}
	return out
}

func keyed(key, value, topology string) []v1.PodAffinityTerm {
	return []v1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}, TopologyKey: topology}}
}

// BenchmarkCliffs are clusters in which the work of a cycle is a product of gangs and nodes because of what the gangs say of other
// pods. What is measured is processor time, garbage collection included, of the worst cycle, and of all cycles until every question
// has its answer.
func BenchmarkCliffs(b *testing.B) {
	near := func(key func(i int) (string, string), topology string) func(i int) (cluster.ClassSpec, map[string]string) {
		return func(i int) (cluster.ClassSpec, map[string]string) {
			k, v := key(i)
			return cluster.ClassSpec{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: keyed(k, v, topology)}}, map[string]string{"app": fmt.Sprint("app-", i), "all": "yes"}
		}
	}
	apart := func(key func(i int) (string, string), topology string) func(i int) (cluster.ClassSpec, map[string]string) {
		return func(i int) (cluster.ClassSpec, map[string]string) {
			k, v := key(i)
			return cluster.ClassSpec{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: keyed(k, v, topology)}}, map[string]string{"app": fmt.Sprint("app-", i), "all": "yes"}
		}
	}
	even := func(topology string) func(i int) (cluster.ClassSpec, map[string]string) {
		return func(i int) (cluster.ClassSpec, map[string]string) {
			labels := map[string]string{"app": fmt.Sprint("app-", i), "all": "yes"}
			return cluster.ClassSpec{Spread: []v1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: topology, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": labels["app"]}},
			}}}, labels
		}
	}
	own := func(i int) (string, string) { return "app", fmt.Sprint("app-", i) }
	nobody := func(i int) (string, string) { return "nobody", fmt.Sprint("none-", i) }
	everybody := func(int) (string, string) { return "all", "yes" }
	for _, c := range []struct {
		name    string
		running int
		spec    func(i int) (cluster.ClassSpec, map[string]string)
		bound   int
	}{
		{"near/own/host", 4, near(own, hostKey), 1500},
		{"near/own/zone", 4, near(own, zoneKey), 1500},
		{"near/nobody/host", 4, near(nobody, hostKey), 0},
		{"near/nobody/zone", 4, near(nobody, zoneKey), 0},
		{"apart/own/host", 4, apart(own, hostKey), 1500},
		{"apart/own/zone", 0, apart(own, zoneKey), 1500},
		{"apart/everybody/host", 4, apart(everybody, hostKey), 0},
		{"apart/everybody/zone", 4, apart(everybody, zoneKey), 0},
		{"spread/own/host", 4, even(hostKey), -1},
		{"spread/own/zone", 4, even(zoneKey), -1},
	} {
		b.Run(c.name, func(b *testing.B) {
			worst, total, cycles, steps, open := int64(0), int64(0), 0, 0, true
			for b.Loop() {
				b.StopTimer()
				e, err := engine.New(profile.BuiltIn(), Register(builtin.Registry(), Options{}))
				if err != nil {
					b.Fatal(err)
				}
				st := cluster.NewStore(cluster.Options{})
				st.Apply(others(1500, c.running, c.spec)...)
				st.Snapshot(cluster.UnixNano(1_000_000 * 1e9))
				d := engine.NewDriver(e, st)
				runtime.GC()
				b.StartTimer()
				worst, total, cycles, steps = 0, 0, 0, 0
				bound := 0
				open = true
				for now := cluster.UnixNano(1_000_000 * 1e9); (open || cycles < 4) && cycles < mostCycles; now = now.Add(100_000_000) {
					began := processorTime(b)
					_, plans, r := d.Cycle(context.Background(), now)
					for i := range plans {
						bound += plans[i].Binds()
					}
					took := processorTime(b) - began
					worst = max(worst, took)
					cycles++
					if open {
						total += took
						steps += r.Stats.Steps
					}
					open = slices.ContainsFunc(r.Trace.Gangs, func(g recorder.GangTrace) bool {
						return slices.ContainsFunc(g.Tried, func(a recorder.Attempt) bool { return a.Verdict.Reason == policy.ReasonNextCycle })
					})
				}
				if bound != c.bound && c.bound >= 0 {
					b.Fatalf("bound %d, want %d", bound, c.bound)
				}
			}
			b.ReportMetric(float64(worst)/1e6, "worst-ms")
			b.ReportMetric(float64(total)/1e6, "total-ms")
			b.ReportMetric(float64(cycles), "cycles")
			b.ReportMetric(float64(steps), "steps")
			if open {
				b.ReportMetric(1, "unfinished")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// mostCycles is where it is given up to wait for the last answer, which is reported: the total is a part of all there would be then.
const mostCycles = 200

// processorTime is what this process has used, in nanoseconds.
func processorTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
