package kai

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestQueueNumbers is the table of numbers that YAML cannot carry but a client library can.
func TestQueueNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in        float64
		quota     int64
		weight    int64
		complains bool
	}{
		{0, 0, 0, false},
		{-1, cluster.Unlimited, 0, true}, // as a weight it is negative
		{1, 1000, 1000, false},
		{0.5, 500, 500, false},
		{0.333, 330, 333, false},
		{0.337, 340, 337, false},
		{-2, 0, 0, true},
		{-0.5, 0, 0, true},
		{math.NaN(), 0, 0, true},
		{math.Inf(1), 0, 0, true},
		{math.Inf(-1), 0, 0, true},
		{1e300, cluster.MaxQuantity, maxWeight, true},
		{math.MaxFloat64, cluster.MaxQuantity, maxWeight, true},
		{math.SmallestNonzeroFloat64, 0, 0, false},
	} {
		q := &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: v2.QueueSpec{Resources: &v2.QueueResources{
			GPU: v2.QueueResource{Quota: c.in, Limit: c.in, OverQuotaWeight: c.in},
		}}}
		st, problem := Queue(q)
		if st.Quota[2].Value != c.quota || st.Limit[2].Value != c.quota || st.Weight[2].Value != c.weight {
			t.Errorf("%v: quota %v limit %v weight %v", c.in, st.Quota[2], st.Limit[2], st.Weight[2])
		}
		if (problem != "") != c.complains {
			t.Errorf("%v: problem %q", c.in, problem)
		}
		if c.complains && !strings.Contains(problem, "Queue q: spec.resources.gpu.") {
			t.Errorf("%v: the problem names neither object nor field: %q", c.in, problem)
		}
	}
}

func TestPriorities(t *testing.T) {
	t.Parallel()
	class := func(name string, value int32, global bool) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: global}
	}
	var p Priorities
	check := func(name string, want int32) {
		t.Helper()
		if got := p.Of(name); got != want {
			t.Errorf("Of(%q) = %d, want %d", name, got, want)
		}
	}
	check("train", DefaultPriority)
	if !p.Set(class("train", 70, false)) || p.Set(class("train", 70, false)) {
		t.Error("Set reports wrongly whether it changed anything")
	}
	check("train", 70)
	check("other", DefaultPriority)
	p.Set(class("usual", 7, true))
	p.Set(class("usual2", 9, true))
	check("other", 7)
	check("", 7)
	if !p.Set(class("usual", 7, false)) {
		t.Error("giving up to be the default is a change")
	}
	check("", 9)
	if !p.Remove("usual2") || p.Remove("usual2") {
		t.Error("Remove reports wrongly whether it changed anything")
	}
	check("", DefaultPriority)
}

func TestPartition(t *testing.T) {
	t.Parallel()
	const key = DefaultNodePoolKey
	for _, c := range []struct {
		p      Partition
		labels map[string]string
		want   bool
	}{
		{Partition{}, nil, true},
		{Partition{}, map[string]string{key: "x"}, true},
		{Partition{Key: key}, nil, true},
		{Partition{Key: key}, map[string]string{key: ""}, false},
		{Partition{Key: key}, map[string]string{key: "x"}, false},
		{Partition{Key: key, Value: "x"}, map[string]string{key: "x"}, true},
		{Partition{Key: key, Value: "x"}, map[string]string{key: "y"}, false},
		{Partition{Key: key, Value: "x"}, nil, false},
		{Partition{Key: "example.com/pool", Value: "x"}, map[string]string{"example.com/pool": "x"}, true},
		{Partition{Key: "example.com/pool", Value: "x"}, map[string]string{key: "x"}, false},
	} {
		if got := c.p.Includes(c.labels); got != c.want {
			t.Errorf("%+v includes %v: %v", c.p, c.labels, got)
		}
	}
}

// TestMarked: which scheduling conditions are a failed attempt on record in our pool.
func TestMarked(t *testing.T) {
	t.Parallel()
	const unschedulable = v2alpha2.UnschedulableOnNodePool
	for _, c := range []struct {
		condition v2alpha2.SchedulingCondition
		pool      string
		want      bool
	}{
		{v2alpha2.SchedulingCondition{Type: unschedulable, NodePool: "gold", Status: "True"}, "gold", true},
		{v2alpha2.SchedulingCondition{Type: unschedulable, NodePool: "gold"}, "gold", true},
		{v2alpha2.SchedulingCondition{Type: unschedulable, NodePool: "gold", Status: "False"}, "gold", false},
		{v2alpha2.SchedulingCondition{Type: "Other", NodePool: "gold", Status: "True"}, "gold", false},
		{v2alpha2.SchedulingCondition{Type: unschedulable, NodePool: "default", Status: "True"}, DefaultPool, true},
		{v2alpha2.SchedulingCondition{Type: unschedulable, NodePool: "", Status: "True"}, DefaultPool, true},
		{v2alpha2.SchedulingCondition{Type: unschedulable, NodePool: "", Status: "True"}, "gold", false},
	} {
		if got := marked([]v2alpha2.SchedulingCondition{c.condition}, c.pool); got != c.want {
			t.Errorf("%+v in pool %q: %v", c.condition, c.pool, got)
		}
	}
}

// TestTenThousandSubgroups: a gang beyond the limit says so, quickly, and a chain as deep as allowed is a tree.
func TestTenThousandSubgroups(t *testing.T) {
	t.Parallel()
	pg := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "g"}}
	for i := range 10_000 {
		pg.Spec.SubGroups = append(pg.Spec.SubGroups, v2alpha2.SubGroup{Name: fmt.Sprint("s", i), MinMember: ptr.To(int32(1))})
	}
	g := Gang(pg, &Priorities{}, DefaultPool)
	if want := "PodGroup a/g: spec.subGroups has 10000 entries; at most 4096 are allowed"; g.Invalid != want {
		t.Errorf("got %q", g.Invalid)
	}
	pg.Spec.SubGroups = pg.Spec.SubGroups[:cluster.MaxSets]
	for i := range pg.Spec.SubGroups {
		pg.Spec.SubGroups[i].MinMember = nil
		if i > 0 {
			pg.Spec.SubGroups[i].Parent = ptr.To(fmt.Sprint("s", i-1))
		}
	}
	if g := Gang(pg, &Priorities{}, DefaultPool); g.Invalid != "" || len(g.Sets) != cluster.MaxSets+1 {
		t.Errorf("a chain of %d: %q", cluster.MaxSets, g.Invalid)
	}
	pg.Spec.SubGroups[0].Parent = ptr.To(fmt.Sprint("s", cluster.MaxSets-1))
	if g := Gang(pg, &Priorities{}, DefaultPool); !strings.Contains(g.Invalid, "cycle") {
		t.Errorf("a ring of %d: %q", cluster.MaxSets, g.Invalid)
	}
}

// TestTreeIsSound draws subgroup lists, sound and broken, and checks what every reader of a gang relies upon.
func TestTreeIsSound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		num := func(label string) *int32 {
			if rapid.IntRange(0, 2).Draw(t, label+"?") > 0 {
				return nil
			}
			return ptr.To(rapid.Int32Range(-1, 3).Draw(t, label))
		}
		spec := &v2alpha2.PodGroupSpec{MinMember: num("min"), MinSubGroup: num("sub")}
		names := []string{"a", "b", "c", "d", "e", "f", "g"}
		for i := range rapid.IntRange(0, len(names)).Draw(t, "n") {
			sg := v2alpha2.SubGroup{Name: names[i], MinMember: num("min"), MinSubGroup: num("sub")}
			if rapid.Bool().Draw(t, "parent?") {
				sg.Parent = ptr.To(rapid.SampledFrom([]string{"a", "B", "c", "x", ""}).Draw(t, "parent"))
			}
			spec.SubGroups = append(spec.SubGroups, sg)
		}
		sets, problem := tree(spec)
		if len(sets) == 0 || sets[0].Parent != cluster.None {
			t.Fatalf("no root: %+v", sets)
		}
		if problem != "" {
			if len(sets) != 1 || !strings.HasPrefix(problem, "spec") {
				t.Fatalf("broken tree with %d sets: %s", len(sets), problem)
			}
			return
		}
		seen := 0
		var walk func(i, depth int32)
		walk = func(i, depth int32) {
			if seen++; depth > int32(len(sets)) {
				t.Fatal("a cycle was let through")
			}
			s := sets[i]
			if s.Leaf != (len(s.Children) == 0) || s.Min < 0 || !s.Leaf && int(s.Min) > len(s.Children) {
				t.Fatalf("set %d: %+v", i, s)
			}
			for _, c := range s.Children {
				if sets[c].Parent != i {
					t.Fatalf("set %d does not know its parent %d", c, i)
				}
				walk(c, depth+1)
			}
		}
		walk(0, 0)
		if seen != len(sets) {
			t.Fatalf("%d of %d sets hang in the tree", seen, len(sets))
		}
	})
}

func TestIntentRoundTrip(t *testing.T) {
	t.Parallel()
	in := Intent{Namespace: "a", Pod: "p-0", PodUID: "u-1", Node: "n1", GPU: 2000, Bundle: "7", Size: 64, Partition: Partition{Key: DefaultNodePoolKey, Value: "gold"}}
	br := in.BindRequest()
	want := &v1alpha2.BindRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "scheduling.run.ai/v1alpha2", Kind: "BindRequest"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: "p-0",
			Labels:          map[string]string{"selected-node": "n1", "muster.dev/bundle": "7", "muster.dev/bundle-size": "64", "kai.scheduler/node-pool": "gold"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p-0", UID: "u-1"}},
		},
		Spec: v1alpha2.BindRequestSpec{
			PodName: "p-0", SelectedNode: "n1", ReceivedResourceType: "Regular",
			ReceivedGPU: &v1alpha2.ReceivedGPU{Count: 2, Portion: "1.00"},
		},
	}
	if diff := cmp.Diff(want, br); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got := Read(br)
	if diff := cmp.Diff(Binding{Namespace: "a", Name: "p-0", Pod: "p-0", PodUID: "u-1", Node: "n1", Bundle: "7", Size: 64}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if p := (&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p-0", UID: "u-1"}}); !got.Meant(p) {
		t.Error("the request is not meant for its own pod")
	} else if p.UID = "u-2"; got.Meant(p) {
		t.Error("the request is meant for a later pod of that name")
	}
	long := Intent{Namespace: "a", Pod: "p", PodUID: "u", Node: strings.Repeat("n", 200)}
	if _, ok := long.BindRequest().Labels[SelectedNodeLabel]; ok {
		t.Error("a node name too long for a label was made one")
	}
}

// TestOwnerMustBeThePod: only an owner that is a core Pod of the name in spec.podName counts.
func TestOwnerMustBeThePod(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		owner metav1.OwnerReference
		want  bool
	}{
		{metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}, true},
		{metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "q", UID: "u"}, false},
		{metav1.OwnerReference{APIVersion: "x/v1", Kind: "Pod", Name: "p", UID: "u"}, false},
		{metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "p", UID: "u"}, false},
		{metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: ""}, false},
	} {
		b := Read(&v1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", OwnerReferences: []metav1.OwnerReference{c.owner}}})
		if got := b.Meant(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "u"}}); got != c.want {
			t.Errorf("%+v: %v", c.owner, got)
		}
	}
}

func FuzzTimestamp(f *testing.F) {
	for _, s := range []string{"2026-11-20T13:58:58Z", "2026-11-20T13:58:58+02:00", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := timestamp(s); got.Before(cluster.Instant{}.Add(-24 * time.Hour)) {
			t.Fatalf("%q became %d", s, got.UnixNano())
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add("p", "Failed", "64", int32(1), int32(0))
	f.Add("", "", "-1", int32(-1), int32(9))
	f.Fuzz(func(t *testing.T, pod, phase, size string, backoff, failed int32) {
		br := &v1alpha2.BindRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{BundleSizeLabel: size}},
			Spec:       v1alpha2.BindRequestSpec{PodName: pod, BackoffLimit: &backoff},
		}
		br.Status.Phase, br.Status.FailedAttempts = v1alpha2.BindRequestPhase(phase), failed
		if b := Read(br); b.Size < 0 || b.Pod == "" || b.Failed && b.Succeeded {
			t.Fatalf("%+v", b)
		}
	})
}

func BenchmarkGang(b *testing.B) {
	pg := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "g"}, Spec: v2alpha2.PodGroupSpec{Queue: "q", MinMember: ptr.To(int32(8))}}
	var p Priorities
	b.ReportAllocs()
	for b.Loop() {
		_ = Gang(pg, &p, DefaultPool)
	}
}

// FuzzObjects: whatever JSON the API server might store, its translation ends and stays in range.
func FuzzObjects(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"x"},"spec":{"minMember":-1,"subGroups":[{"name":"a","parent":"a"}],"resources":{"gpu":{"quota":1e300}}}}`))
	f.Add([]byte(`{"metadata":{"annotations":{"kai.scheduler/stale-podgroup-timestamp":"1969-12-31T23:59:59Z","muster.dev/disruption-budgets":"x"}},"spec":{"preemptionDelay":"-1h","stalenessGracePeriod":"-1ns","preemptMinRuntime":"-1h"}}`))
	f.Add([]byte(`{"spec":{"minSubGroup":2147483647,"resources":{"extended":{"a/b":{"limit":-1}}},"priority":-99999999999}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var pg v2alpha2.PodGroup
		if json.Unmarshal(data, &pg) == nil {
			g := Gang(&pg, &Priorities{}, DefaultPool)
			if len(g.Sets) == 0 || g.Sets[0].Parent != cluster.None || g.PreemptionDelay < 0 || cluster.Earliest(cluster.Earliest(g.LastStart, g.LastEviction), g.StaleSince).Before(cluster.Instant{}.Add(-24*time.Hour)) {
				t.Fatalf("%s: %+v", data, g)
			}
		}
		var q v2.Queue
		if json.Unmarshal(data, &q) == nil {
			st, _ := Queue(&q)
			if st.PreemptMinRuntime.Value < 0 || st.ReclaimMinRuntime.Value < 0 {
				t.Fatalf("%s: %+v", data, st)
			}
			for _, list := range [3][]cluster.Quantity{st.Quota, st.Limit, st.Weight} {
				for _, x := range list {
					if x.Value < cluster.Unlimited || x.Value > cluster.MaxQuantity {
						t.Fatalf("%s: %+v", data, x)
					}
				}
			}
		}
		var p v1.Pod
		if json.Unmarshal(data, &p) == nil {
			Membership(&p)
			Unsupported(&p)
		}
	})
}

// TestSlicesOfOthers: an annotation on a pod of another scheduler takes no slice of a GPU from anybody, nor keeps its node from those who ask by name.
func TestSlicesOfOthers(t *testing.T) {
	t.Parallel()
	roles := Roles{SchedulerNames: []string{"kai-scheduler"}}
	for name, want := range map[string]bool{"kai-scheduler": true, "default-scheduler": false} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"nvidia.com/mig-1g.10gb": "7"}}, Spec: v1.PodSpec{SchedulerName: name, NodeName: "n"}}
		st := roles.Pod(p, nil)
		took := false
		for _, q := range st.Requests {
			took = took || q.Name == "nvidia.com/mig-1g.10gb"
		}
		if took != want || st.Spec.LegacySlices != want {
			t.Errorf("%s: takes slices %t, marks its node %t, want %t", name, took, st.Spec.LegacySlices, want)
		}
	}
}
