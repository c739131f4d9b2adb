package upstream

import (
	"encoding/json"
	"flag"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/dialecttest"
)

var _ = flag.Bool("update", false, "rewrite the want sections of the golden files")

func value(class string) (int32, bool) { return 9, class == "high" }

// TestGolden translates everything a file holds, in a cluster with the PriorityClass high, worth 9, and no default one.
func TestGolden(t *testing.T) {
	t.Parallel()
	dialecttest.Golden(t, func(t *testing.T, objects []dialecttest.Object) string {
		var out strings.Builder
		for _, o := range objects {
			var pg schedulingv1beta1.PodGroup
			o.Into(t, &pg)
			out.WriteString(dialecttest.Text(t, "gang", Gang(&pg, Queue(pg.Labels, keys.QueueLabel), value)))
		}
		return out.String()
	})
}

// TestMembership: a pod is in the group that it names, and only in that.
func TestMembership(t *testing.T) {
	t.Parallel()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	empty, name := "", "g"
	for _, c := range []struct {
		of   *corev1.PodSchedulingGroup
		want cluster.Key
	}{{nil, cluster.Key{}}, {&corev1.PodSchedulingGroup{}, cluster.Key{}}, {&corev1.PodSchedulingGroup{PodGroupName: &empty}, cluster.Key{}}, {&corev1.PodSchedulingGroup{PodGroupName: &name}, GangKey("ns", "g")}} {
		p.Spec.SchedulingGroup = c.of
		if got := Membership(p); got != c.want {
			t.Errorf("%+v: %v, want %v", c.of, got, c.want)
		}
	}
}

// TestConditions: the scheduler's condition changes and no other; one that was true stays true; what says the same is not written again.
func TestConditions(t *testing.T) {
	t.Parallel()
	now, before := metav1.Unix(100, 0), metav1.Unix(50, 0)
	others := metav1.Condition{Type: schedulingv1beta1.DisruptionTarget, Status: metav1.ConditionTrue, Reason: "PreemptionByScheduler", LastTransitionTime: before}
	of := func(status metav1.ConditionStatus, reason, message string, at metav1.Time) metav1.Condition {
		return metav1.Condition{Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: status, Reason: reason, Message: message, ObservedGeneration: 2, LastTransitionTime: at}
	}
	waits, started := of(metav1.ConditionFalse, "Unschedulable", "no room", before), of(metav1.ConditionTrue, "Scheduled", "", before)
	for _, c := range []struct {
		what string
		have []metav1.Condition
		says Status
		want []metav1.Condition // nil for no change
	}{
		{"nothing to say", nil, Status{}, nil},
		{"waits", nil, Status{Message: "no room"}, []metav1.Condition{of(metav1.ConditionFalse, "Unschedulable", "no room", now)}},
		{"waits as before", []metav1.Condition{others, waits}, Status{Message: "no room"}, nil},
		{"waits for something else", []metav1.Condition{others, waits}, Status{Message: "no queue"}, []metav1.Condition{others, of(metav1.ConditionFalse, "Unschedulable", "no queue", before)}},
		{"starts", []metav1.Condition{waits, others}, Status{Started: true}, []metav1.Condition{of(metav1.ConditionTrue, "Scheduled", "", now), others}},
		{"has started", []metav1.Condition{started}, Status{Started: true}, nil},
		{"waits again", []metav1.Condition{started}, Status{Message: "no room"}, nil},
	} {
		was, _ := json.Marshal(c.have)
		got, changed := c.says.Over(c.have, 2, now)
		if !changed {
			got = nil
		}
		if d := cmp.Diff(c.want, got); d != "" || changed != (c.want != nil) {
			t.Errorf("%s: changed %v (-want +got):\n%s", c.what, changed, d)
		}
		if is, _ := json.Marshal(c.have); string(is) != string(was) {
			t.Errorf("%s: the object's own conditions became %s", c.what, is)
		}
	}
	if !meta.IsStatusConditionTrue([]metav1.Condition{started}, schedulingv1beta1.PodGroupInitiallyScheduled) {
		t.Error("the condition is not named as upstream's")
	}
}

// FuzzPodGroup hands in whatever an API server may store. Nothing panics, the answer depends on the object alone, what is said of it is short, and the tree is one in which each set is
// reached once from the root.
func FuzzPodGroup(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"namespace":"n","name":"g","labels":{"kai.scheduler/queue":"volcano:q"},"annotations":{"muster.dev/subgroups":"a=1,b=2"}},"spec":{"schedulingPolicy":{"gang":{"minCount":3}}}}`,
		`{"metadata":{"annotations":{"muster.dev/subgroups":"default=2147483647,default-=2147483647,=,"}},"spec":{"schedulingPolicy":{"basic":{}},"priority":-2147483648}}`,
		`{"spec":{"schedulingPolicy":{"gang":{"minCount":-1}},"schedulingConstraints":{"topology":[{"key":""}]},"disruptionMode":{"all":{}}}}`,
		`{"spec":{"parentCompositePodGroupName":"","resourceClaims":[{}],"preemptionPolicy":"Never"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		pg := &schedulingv1beta1.PodGroup{}
		if json.Unmarshal(text, pg) != nil {
			return
		}
		queue := Queue(pg.Labels, keys.QueueLabel)
		g := Gang(pg, queue, value)
		if d := cmp.Diff(g, Gang(pg.DeepCopy(), queue, value)); d != "" {
			t.Fatalf("the same group reads differently: %s", d)
		}
		if face, _ := cluster.SplitQueue(queue); face != "" && face != Face || queue == "" {
			t.Fatalf("queue %q", queue)
		}
		if most := 300 + len(pg.Namespace) + len(pg.Name); len(g.Invalid) > most {
			t.Fatalf("%d bytes are said of it: %s", len(g.Invalid), g.Invalid)
		}
		reached(t, &g)
	})
}

// TestComposite: what a tree of objects becomes: the root's word on what a gang has once, a set for each composite and group with its own constraint and whether it goes as one, and what is
// refused, by the object and its field.
func TestComposite(t *testing.T) {
	t.Parallel()
	composite := func(name string, change func(*schedulingv1alpha3.CompositePodGroupSpec)) *schedulingv1alpha3.CompositePodGroup {
		c := &schedulingv1alpha3.CompositePodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID("u-" + name)}}
		c.Spec.SchedulingPolicy.Gang = &schedulingv1alpha3.CompositeGangSchedulingPolicy{MinGroupCount: 1}
		if change != nil {
			change(&c.Spec)
		}
		return c
	}
	group := func(name string, change func(*schedulingv1beta1.PodGroup)) *schedulingv1beta1.PodGroup {
		g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID("u-" + name)}}
		g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}
		if change != nil {
			change(g)
		}
		return g
	}
	near := func(key string) []schedulingv1alpha3.TopologyConstraint {
		return []schedulingv1alpha3.TopologyConstraint{{Key: key}}
	}
	high, never := int32(200), schedulingv1alpha3.PreemptNever
	whole := &Branch{
		Of: composite("root", func(s *schedulingv1alpha3.CompositePodGroupSpec) {
			s.Priority, s.PreemptionPolicy, s.DisruptionMode = &high, &never, &schedulingv1alpha3.CompositeDisruptionMode{All: &schedulingv1alpha3.AllCompositeDisruptionMode{}}
			s.SchedulingPolicy.Gang.MinGroupCount = 2
		}),
		Groups: []*schedulingv1beta1.PodGroup{group("z", nil), group("sets", func(g *schedulingv1beta1.PodGroup) {
			g.Annotations = map[string]string{keys.SubgroupsAnnotation: "a=1"}
		})},
		Branches: []*Branch{{Of: composite("empty", nil)}, {
			Of: composite("inner", func(s *schedulingv1alpha3.CompositePodGroupSpec) {
				s.SchedulingPolicy = schedulingv1alpha3.CompositePodGroupSchedulingPolicy{Basic: &schedulingv1alpha3.CompositeBasicSchedulingPolicy{}}
				s.SchedulingConstraints = &schedulingv1alpha3.CompositePodGroupSchedulingConstraints{Topology: near("rack")}
			}),
			Groups: []*schedulingv1beta1.PodGroup{group("one", func(g *schedulingv1beta1.PodGroup) {
				g.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
				g.Spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: "host"}}}
			})},
		}},
	}
	want := cluster.GangState{
		Key: CompositeKey("n", "root"), UID: "u-root", Queue: "q", Priority: 200, Created: core.Nanoseconds(&metav1.Time{}), MarkUnschedulable: true, Whole: true,
		PreemptionDelay: neverTakes, StaleGrace: cluster.Maybe[time.Duration]{Set: true, Value: -1},
		Sets: []cluster.Set{
			{Parent: cluster.None, Children: []int32{1, 4, 5}, Min: 2},
			{Name: "sets", Parent: 0, Children: []int32{2, 3}, Min: 2, Pods: 2, UID: "u-sets"},
			{Name: "sets/a", Parent: 1, Leaf: true, Min: 1},
			{Name: "sets/default", Parent: 1, Leaf: true},
			{Name: "z", Parent: 0, Leaf: true, Min: 2, UID: "u-z"},
			{Name: "inner/", Parent: 0, Children: []int32{6}, Min: 1, Near: cluster.Constraint{Topology: "upstream:rack", Required: "rack"}},
			{Name: "one", Parent: 5, Leaf: true, Min: 2, Whole: true, UID: "u-one", Near: cluster.Constraint{Topology: "upstream:host", Required: "host"}},
		},
	}
	if d := cmp.Diff(want, Composite(whole, "q", value)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := whole.TopologyKeys(); !slices.Equal(got, []string{"host", "rack"}) {
		t.Errorf("it names the labels %q", got)
	}
	for _, c := range []struct {
		group, subgroup string
		going           bool
		want            string
	}{{"sets", "a", false, "sets/a"}, {"sets", "other", false, "sets/default"}, {"sets", "", false, "sets/default"}, {"z", "a", false, "z"}, {"z", "", true, "z (being deleted)"}} {
		i := slices.IndexFunc(whole.Groups, func(g *schedulingv1beta1.PodGroup) bool { return g.Name == c.group })
		if got := SetIn(whole.Groups[i], c.subgroup, c.going); got != c.want {
			t.Errorf("a pod of %s that says %q is in %q, want %q", c.group, c.subgroup, got, c.want)
		}
	}
	type spec = schedulingv1alpha3.CompositePodGroupSpec
	for _, c := range []struct {
		what   string
		root   func(*spec)
		change func(*schedulingv1beta1.PodGroup) // of the only group
		want   string
	}{
		{"fine", nil, nil, ""},
		{"policies", func(s *spec) { s.SchedulingPolicy.Basic = &schedulingv1alpha3.CompositeBasicSchedulingPolicy{} }, nil, "CompositePodGroup n/root: spec.schedulingPolicy has both gang and basic; only one is allowed"},
		{"no policy", func(s *spec) { s.SchedulingPolicy.Gang = nil }, nil, "CompositePodGroup n/root: spec.schedulingPolicy has neither gang nor basic, which are all that are known"},
		{"none needed", func(s *spec) { s.SchedulingPolicy.Gang.MinGroupCount = 0 }, nil, "CompositePodGroup n/root: spec.schedulingPolicy.gang.minGroupCount is 0; it must be at least 1"},
		{"too few", func(s *spec) { s.SchedulingPolicy.Gang.MinGroupCount = 2 }, nil, "CompositePodGroup n/root: spec.schedulingPolicy.gang.minGroupCount is 2, and of its children 1 are there so far; those without PodGroups are none"},
		{"topologies", func(s *spec) {
			s.SchedulingConstraints = &schedulingv1alpha3.CompositePodGroupSchedulingConstraints{Topology: append(near("a"), near("b")...)}
		}, nil, "CompositePodGroup n/root: spec.schedulingConstraints.topology has 2 entries; only one is allowed"},
		{"a group", nil, func(g *schedulingv1beta1.PodGroup) { g.Spec.SchedulingPolicy.Gang.MinCount = 0 }, "PodGroup n/g: spec.schedulingPolicy.gang.minCount is 0; it must be at least 1"},
	} {
		if got := Composite(&Branch{Of: composite("root", c.root), Groups: []*schedulingv1beta1.PodGroup{group("g", c.change)}}, "q", value).Invalid; got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	gone := composite("root", nil)
	gone.DeletionTimestamp = &metav1.Time{}
	if got := Composite(&Branch{Of: gone, Groups: []*schedulingv1beta1.PodGroup{group("g", nil)}}, "q", value).Invalid; got != "CompositePodGroup n/root: "+deleted {
		t.Errorf("being deleted: %q", got)
	}
	if got := Composite(&Branch{Of: composite("root", nil)}, "q", value).Invalid; got != "CompositePodGroup n/root: no PodGroup is below it, so it is no gang" {
		t.Errorf("empty: %q", got)
	}
	many := &Branch{Of: composite("root", nil)}
	for i := range cluster.MaxSets + 1 {
		many.Groups = append(many.Groups, group(strconv.Itoa(i), nil))
	}
	if got := Composite(many, "q", value); !strings.Contains(got.Invalid, "4097 groups are below it") || len(got.Sets) != 1 {
		t.Errorf("too many: %q", got.Invalid)
	}
}

// FuzzComposite hands in whatever an API server may store as a root, a composite below it, and a group below that. Nothing panics, what is said is short, and each set is reached once.
func FuzzComposite(f *testing.F) {
	f.Add([]byte(`{"spec":{"schedulingPolicy":{"gang":{"minGroupCount":1}}}}`), []byte(`{"spec":{"schedulingPolicy":{"basic":{}},"disruptionMode":{"all":{}}}}`), []byte(`{"metadata":{"annotations":{"muster.dev/subgroups":"a=1"}},"spec":{"schedulingPolicy":{"gang":{"minCount":3}}}}`))
	f.Add([]byte(`{"spec":{"schedulingPolicy":{"gang":{"minGroupCount":2147483647}}}}`), []byte(`{"spec":{"schedulingPolicy":{"gang":{"minGroupCount":-1}}}}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, root, inner, leaf []byte) {
		a, b, pg := &schedulingv1alpha3.CompositePodGroup{}, &schedulingv1alpha3.CompositePodGroup{}, &schedulingv1beta1.PodGroup{}
		if json.Unmarshal(root, a) != nil || json.Unmarshal(inner, b) != nil || json.Unmarshal(leaf, pg) != nil {
			return
		}
		tree := func() *Branch {
			return &Branch{Of: a, Groups: []*schedulingv1beta1.PodGroup{pg}, Branches: []*Branch{{Of: b, Groups: []*schedulingv1beta1.PodGroup{pg}}}}
		}
		g := Composite(tree(), "q", value)
		if d := cmp.Diff(g, Composite(tree(), "q", value)); d != "" {
			t.Fatalf("the same tree reads differently: %s", d)
		}
		longest := max(len(a.Namespace)+len(a.Name), len(b.Namespace)+len(b.Name), len(pg.Namespace)+len(pg.Name))
		if len(g.Invalid) > 300+longest {
			t.Fatalf("%d bytes are said of it: %s", len(g.Invalid), g.Invalid)
		}
		reached(t, &g)
	})
}

// reached fails unless each set is a child of one.
func reached(t *testing.T, g *cluster.GangState) {
	t.Helper()
	seen := make([]bool, len(g.Sets))
	for i := range g.Sets {
		for _, c := range g.Sets[i].Children {
			if c <= 0 || int(c) >= len(g.Sets) || seen[c] || g.Sets[c].Parent != int32(i) {
				t.Fatalf("set %d is a child of %d: %+v", c, i, g.Sets)
			}
			seen[c] = true
		}
		if s := &g.Sets[i]; s.Min < 0 || s.Pods < 0 || g.Invalid == "" && i > 0 && !seen[i] {
			t.Fatalf("set %d: %+v", i, g.Sets)
		}
	}
}
