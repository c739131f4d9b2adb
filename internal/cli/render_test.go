package cli

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/see"
)

var update = flag.Bool("update", false, "write the golden files")

var now = cluster.UnixNano(1_700_000_000_000_000_000)

// fixed is a cluster with something of everything that a table shows.
func fixed(t *testing.T) *view {
	t.Helper()
	store := cluster.NewStore(cluster.Options{})
	size := []cluster.Quantity{{Name: "cpu", Value: 64000}, {Name: "memory", Value: 256 << 30}, {Name: "gpu", Value: 8000}, {Name: "pods", Value: 110}}
	for i := range 4 {
		n := cluster.NodeState{Name: fmt.Sprintf("n%d", i+1), Allocatable: size}
		switch i {
		case 2:
			n.Taints = []v1.Taint{{Key: "team", Value: "vision", Effect: v1.TaintEffectNoSchedule}}
		case 3:
			n.Problem = "Unschedulable"
		}
		store.Apply(n)
	}
	gpus := func(n int64) []cluster.Quantity { return []cluster.Quantity{{Name: "gpu", Value: n * 1000}} }
	store.Apply(
		cluster.QueueState{Name: "research", Quota: gpus(16), Weight: gpus(1)},
		cluster.QueueState{Name: "language", Parent: "research", Quota: gpus(8), Weight: gpus(1)},
		cluster.QueueState{Name: "vision", Parent: "research", Quota: gpus(8), Limit: gpus(12), Weight: gpus(1)},
		cluster.QueueState{Name: "orphan", Parent: "gone", Quota: gpus(1)},
	)
	gang := func(name, queue string, pods, running int, gpu int64, edit func(*cluster.GangState, *cluster.PodState)) {
		g := cluster.GangState{
			Key: cluster.Key{Face: "kai", Namespace: "team", Name: name}, UID: name, Queue: queue, Priority: 50, Preemptible: true,
			Created: now.Add(-3600e9), Sets: cluster.FlatTree(int32(pods)),
		}
		for i := range pods {
			p := cluster.PodState{
				UID: fmt.Sprintf("%s-%d", name, i), Namespace: "team", Name: fmt.Sprintf("%s-%d", name, i), Ours: true, Gang: g.Key,
				Requests: []cluster.Quantity{{Name: "cpu", Value: 8000}, {Name: "memory", Value: 32 << 30}, {Name: "gpu", Value: gpu * 1000}, {Name: "pods", Value: 1}},
			}
			if i < running {
				p.Phase, p.NodeName = cluster.Running, fmt.Sprintf("n%d", i%2+1)
			}
			if edit != nil {
				edit(&g, &p)
			}
			store.Apply(p)
		}
		store.Apply(g)
	}
	gang("bert", "language", 4, 4, 1, nil)
	gang("elastic", "language", 3, 1, 6, func(g *cluster.GangState, _ *cluster.PodState) { g.Sets = cluster.FlatTree(1) })
	gang("train", "vision", 2, 0, 8, nil)
	gang("wide", "language", 3, 0, 8, nil)
	gang("gated", "vision", 2, 0, 1, func(_ *cluster.GangState, p *cluster.PodState) { p.Phase = cluster.Gated })
	gang("nowhere-in-particular-but-with-a-very-long-name-indeed-1234567890", "no-such-queue", 1, 0, 1, nil)
	gang("done", "vision", 1, 0, 1, func(_ *cluster.GangState, p *cluster.PodState) { p.Phase = cluster.Succeeded })
	gang("next", "vision", 1, 0, 0, nil)
	store.Apply(cluster.PodState{UID: "stranger", Namespace: "team", Name: "stranger", Ours: false},
		cluster.PodState{UID: "lone", Namespace: "team", Name: "lone", Ours: true},
		cluster.PodState{UID: "lost", Namespace: "team", Name: "lost", Ours: true, Gang: cluster.Key{Face: "kai", Namespace: "team", Name: "away"}})
	v, err := newView(context.Background(), see.NewCycle(store.Snapshot(now), profile.BuiltIn(), builtin.Registry()))
	if err != nil {
		t.Fatal(err)
	}
	v.pod = func(namespace, name string) (*v1.Pod, error) {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		p.Spec.SchedulerName = "kai-scheduler"
		if name == "stranger" {
			p.Spec.SchedulerName = "default-scheduler"
		}
		return p, nil
	}
	return v
}

func TestGolden(t *testing.T) {
	t.Parallel()
	v := fixed(t)
	ctx := context.Background()
	text := func(what func(context.Context, string, string) (fmt.Stringer, error), name string) string {
		s, err := what(ctx, "team", name)
		if err != nil {
			return "error: " + err.Error() + "\n"
		}
		return s.String()
	}
	gang := func(ctx context.Context, ns, name string) (fmt.Stringer, error) {
		e, err := v.explainGang(ctx, ns, name)
		if err != nil {
			return nil, err
		}
		return plain(e.text(form.Width)), nil
	}
	pod := func(ctx context.Context, ns, name string) (fmt.Stringer, error) {
		e, err := v.explainPod(ctx, ns, name)
		if err != nil {
			return nil, err
		}
		return plain(e.text(form.Width)), nil
	}
	asYAML := func(x any) string {
		b, err := yaml.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var gangs strings.Builder
	for _, name := range []string{"bert", "elastic", "train", "wide", "gated", "nowhere-in-particular-but-with-a-very-long-name-indeed-1234567890", "done", "next", "trian", "nowhe…", "ne", "n"} {
		fmt.Fprintf(&gangs, "--- %s\n%s", name, text(gang, name))
	}
	var pods strings.Builder
	for _, name := range []string{"train-0", "bert-1", "stranger", "lone", "lost", "train-9"} {
		fmt.Fprintf(&pods, "--- %s\n%s", name, text(pod, name))
	}
	e, err := v.explainGang(ctx, "team", "train")
	if err != nil {
		t.Fatal(err)
	}
	idle, err := v.now(ctx)
	if err != nil {
		t.Fatal(err)
	}
	e.Cycle.AgeSeconds = 0
	for name, got := range map[string]string{
		"status.txt": drawStatus(v.status(idle), "gpu"), "status.yaml": asYAML(v.status(idle)), "queues.txt": drawQueues(see.QueueLines(v.snap, idle), "gpu"),
		"gangs.txt": drawGangs(v.gangs(), true), "gangs.yaml": asYAML(v.gangs()[:3]), "explain-gang.txt": gangs.String(), "explain-pod.txt": pods.String(),
		"explain.yaml": asYAML(e.Explanation),
	} {
		file := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s (-want +got), go test -update rewrites it:\n%s", file, d)
		}
		if filepath.Ext(name) == ".txt" && !strings.HasPrefix(name, "explain-pod") {
			for _, line := range strings.Split(got, "\n") {
				if n := utf8.RuneCountInString(line); n > form.Width && !strings.HasPrefix(line, "error: ") {
					t.Errorf("%s: a line of %d columns: %s", name, n, line)
				}
			}
		}
	}
}

// plain is a text.
type plain string

func (p plain) String() string { return string(p) }
