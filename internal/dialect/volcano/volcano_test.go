package volcano

import (
	"flag"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	nodeinfo "github.com/muster-scheduler/muster/api/volcano/nodeinfo/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/dialecttest"
)

var _ = flag.Bool("update", false, "rewrite the want sections of the golden files")

// TestGolden translates everything a file holds, in a cluster with the PriorityClass high, worth 9, and no default one.
func TestGolden(t *testing.T) {
	t.Parallel()
	dialecttest.Golden(t, func(t *testing.T, objects []dialecttest.Object) string {
		var out strings.Builder
		for _, o := range objects {
			switch o.Kind {
			case "PodGroup":
				var pg v1beta1.PodGroup
				o.Into(t, &pg)
				tier := func(name string) (int, bool) { return 3, name == "rack" }
				subgroups, pods := SubgroupsOf(&pg), &Pods{Tasks: map[string]bool{}}
				for _, i := range []string{"0", "1"} {
					if g, ok := subgroups.Of(map[string]string{"part": i, keys.TaskSpec: "worker"}); ok {
						pods.Subgroups, pods.Tasks["worker"] = append(pods.Subgroups, g), true
					}
				}
				st := Gang(&pg, func(class string) (int32, bool) { return 9, class == "high" }, tier, pods)
				st.Generation = 0 // see TestAsks
				out.WriteString(dialecttest.Text(t, "gang", st))
				if text := Unheeded(&pg, tier, pods); text != "" {
					out.WriteString("unheeded: " + text + "\n")
				}
			case "Queue":
				var q v1beta1.Queue
				o.Into(t, &q)
				st, problem := Queue(&q)
				out.WriteString(dialecttest.Text(t, "queue", st))
				if problem != "" {
					out.WriteString("problem: " + problem + "\n")
				}
			case "Pod":
				var p corev1.Pod
				o.Into(t, &p)
				st := cluster.PodState{Gang: cluster.Key{Face: "kai", Namespace: p.Namespace, Name: "forged"}, SetName: "forged"}
				if len(p.Spec.Containers) > 0 {
					st.Spec = &cluster.ClassSpec{}
				}
				problem := Member(&st, &p)
				out.WriteString(dialecttest.Text(t, "pod", st))
				if problem != "" {
					out.WriteString("problem: " + problem + "\n")
				}
			case "Numatopology":
				var n nodeinfo.Numatopology
				o.Into(t, &n)
				z, problem := Zones(&n)
				out.WriteString(dialecttest.Text(t, n.Name, z))
				if problem != "" {
					out.WriteString("problem: " + problem + "\n")
				}
			default:
				t.Fatalf("unknown kind %q", o.Kind)
			}
		}
		return out.String()
	})
}

// TestAsks: what stands for the generation moves with the spec, and with nothing else: a PodGroup's status is written without a subresource.
func TestAsks(t *testing.T) {
	t.Parallel()
	none := func(string) (int32, bool) { return 0, false }
	pg := &v1beta1.PodGroup{Spec: v1beta1.PodGroupSpec{MinMember: 2}}
	tier := func(string) (int, bool) { return 0, false }
	was := Gang(pg, none, tier, &Pods{}).Generation
	pg.Generation, pg.Status.Phase, pg.Annotations = 7, v1beta1.PodGroupRunning, map[string]string{"a": "b"}
	if is := Gang(pg, none, tier, &Pods{}).Generation; is != was {
		t.Errorf("%d with another status, %d before", is, was)
	}
	pg.Spec.MinResources = &corev1.ResourceList{}
	if is := Gang(pg, none, tier, &Pods{}).Generation; is == was || is < 0 {
		t.Errorf("%d with another spec, %d before", is, was)
	}
}

// TestFaces: two queues of one name in two faces are two, and what the model calls them says which.
func TestFaces(t *testing.T) {
	t.Parallel()
	if QueueName("a") == "a" || QueueName("") != QueueName("default") {
		t.Errorf("queues %s, %s", QueueName("a"), QueueName(""))
	}
	if face, name := cluster.SplitQueue(QueueName("a")); face != Face || name != "a" {
		t.Errorf("%s of face %s", name, face)
	}
	if face, name := cluster.SplitQueue("a"); face != "" || name != "a" {
		t.Errorf("%s of face %s", name, face)
	}
}

// FuzzGang: whatever a PodGroup asks for becomes one tree below its root, or a gang that says what is wrong.
func FuzzGang(f *testing.F) {
	f.Add(int32(3), "ps", int32(1), "worker", int32(2))
	f.Add(int32(0), "default", int32(0), "default-", int32(0))
	f.Add(int32(-1), "", int32(1<<31-1), "\xff", int32(1<<31-1))
	f.Fuzz(func(t *testing.T, least int32, a string, ofA int32, b string, ofB int32) {
		pg := &v1beta1.PodGroup{Spec: v1beta1.PodGroupSpec{MinMember: least, MinTaskMember: map[string]int32{a: ofA, b: ofB}}}
		g := Gang(pg, func(string) (int32, bool) { return 0, false }, func(string) (int, bool) { return 0, false }, &Pods{})
		if g.Invalid != "" {
			if len(g.Sets) != 1 {
				t.Errorf("invalid, with %d sets", len(g.Sets))
			}
			return
		}
		names, rest, sum := map[string]bool{}, 0, int64(0)
		for i, s := range g.Sets[1:] {
			if s.Parent != 0 || !s.Leaf || g.Sets[0].Children[i] != int32(i+1) || names[s.Name] || s.Min < 0 {
				t.Errorf("set %+v of %+v", s, g.Sets)
			}
			names[s.Name] = true
			sum += int64(s.Min)
			if s.Rest {
				rest++
			}
		}
		if rest != 1 || max(sum, int64(g.Sets[0].Pods)) != int64(least) || int(g.Sets[0].Min) != len(g.Sets)-1 {
			t.Errorf("minimum %d, sets %+v", least, g.Sets)
		}
	})
}

// FuzzSubgroups: whatever policies a PodGroup has and its pods say, its tree is one, a pod is in at most one of its leaves, and a gang that cannot be says what is wrong.
func FuzzSubgroups(f *testing.F) {
	f.Add(int32(4), int32(2), int32(1), "part", "0", "1", int32(2))
	f.Add(int32(0), int32(1), int32(0), "", "", "x", int32(0))
	f.Add(int32(-1), int32(0), int32(5000), "a", "a-b", "b", int32(-3))
	f.Add(int32(9), int32(1<<31-1), int32(3), "default", "default", "(to come: 0)", int32(1<<31-1))
	f.Fuzz(func(t *testing.T, least, size, groups int32, name, one, two string, task int32) {
		pg := &v1beta1.PodGroup{Spec: v1beta1.PodGroupSpec{MinMember: least, MinTaskMember: map[string]int32{name: task, one: 1}, SubGroupPolicy: []v1beta1.SubGroupPolicySpec{
			{Name: name, SubGroupSize: &size, MinSubGroups: &groups, MatchLabelKeys: []string{"part"}}, {Name: one, MatchLabelKeys: []string{"other", "part"}},
		}}}
		s, pods := SubgroupsOf(pg), &Pods{Tasks: map[string]bool{one: true}}
		for _, v := range []string{one, two} {
			if g, ok := s.Of(map[string]string{"part": v}); ok && !slices.Contains(pods.Subgroups, g) {
				pods.Subgroups = append(pods.Subgroups, g)
			} else if ok != (v != "") && !ok {
				t.Errorf("a pod with the value %q is in no subgroup", v)
			}
		}
		g := Gang(pg, func(string) (int32, bool) { return 0, false }, func(string) (int, bool) { return 0, false }, pods)
		if g.Invalid != "" {
			if len(g.Sets) != 1 {
				t.Errorf("invalid, with %d sets", len(g.Sets))
			}
			return
		}
		rest := 0
		for i, set := range g.Sets {
			if set.Min < 0 || set.Pods < 0 || set.Leaf && len(set.Children) > 0 || i > 0 && !slices.Contains(g.Sets[set.Parent].Children, int32(i)) {
				t.Errorf("set %+v of %+v", set, g.Sets)
			}
			if set.Rest {
				rest++
			}
		}
		if rest != 1 || len(g.Sets) > cluster.MaxSets {
			t.Errorf("%d leaves for the rest, of %d sets", rest, len(g.Sets))
		}
	})
}
