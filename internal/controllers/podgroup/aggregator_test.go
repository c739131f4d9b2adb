package podgroup

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/api/kai/keys"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/tally"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

var gangKey = types.NamespacedName{Namespace: "ns", Name: "gang"}

func makeGroup(name string, edits ...func(*v2alpha2.PodGroup)) *v2alpha2.PodGroup {
	pg := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	for _, edit := range edits {
		edit(pg)
	}
	return pg
}

func makeClass(name string, value int32, isDefault bool) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: isDefault}
}

func classed(name string) func(*v2alpha2.PodGroup) {
	return func(pg *v2alpha2.PodGroup) { pg.Spec.PriorityClassName = name }
}

func says(p v2alpha2.Preemptibility) func(*v2alpha2.PodGroup) {
	return func(pg *v2alpha2.PodGroup) { pg.Spec.Preemptibility = p }
}

func observed(s v2alpha2.PodGroupResourcesStatus) func(*v2alpha2.PodGroup) {
	return func(pg *v2alpha2.PodGroup) { pg.Status.ResourcesStatus = s }
}

// apply does to a status what the API server does with a merge patch of resourcesStatus.
func apply(t interface{ Fatal(...any) }, s v2alpha2.PodGroupResourcesStatus, body []byte) v2alpha2.PodGroupResourcesStatus {
	if body == nil {
		return s
	}
	var p struct {
		Status struct {
			ResourcesStatus map[string]map[string]*string `json:"resourcesStatus"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatal(err)
	}
	s = *s.DeepCopy()
	for field, list := range map[string]*corev1.ResourceList{
		"allocated": &s.Allocated, "allocatedNonPreemptible": &s.AllocatedNonPreemptible, "requested": &s.Requested,
	} {
		for name, amount := range p.Status.ResourcesStatus[field] {
			if amount == nil {
				delete(*list, corev1.ResourceName(name))
				continue
			}
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			maps.Copy(*list, tallyOf(name, *amount))
		}
	}
	return s
}

func tallyOf(name, amount string) corev1.ResourceList { return list(name, amount) }

func must(t testing.TB) func([]change, error) []change {
	return func(c []change, err error) []change {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(c)
	}
}

func TestGangIsReportedOnceAndByUrgency(t *testing.T) {
	t.Parallel()
	f := newAggregator([]string{"kai-scheduler"}, keys.QueueLabel)
	steps := []struct {
		name string
		do   func() []change
		want []change
	}{
		{"a pod before its gang waits", func() []change { return must(t)(f.podChanged(makePod("a"))) }, nil},
		{"the gang arrives and lacks requests", func() []change { return f.groupChanged(makeGroup("gang")) }, []change{{gangKey, relaxed}}},
		{"another pod asks", func() []change { return must(t)(f.podChanged(makePod("b"))) }, nil},
		{"a pod is bound: more urgent", func() []change { return must(t)(f.podChanged(makePod("a", on("n1")))) }, []change{{gangKey, soon}}},
		{"and the other, too", func() []change { return must(t)(f.podChanged(makePod("b", on("n1")))) }, nil},
		{"a pod of no gang is nobody's", func() []change {
			return must(t)(f.podChanged(makePod("c", func(p *corev1.Pod) { p.Annotations = nil })))
		}, nil},
		{"a pod of another scheduler is not ours", func() []change {
			return must(t)(f.podChanged(makePod("d", func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" })))
		}, nil},
		{"written", func() []change { f.take(gangKey); return nil }, nil},
		{"running changes no sum", func() []change { return must(t)(f.podChanged(makePod("a", on("n1"), phase(corev1.PodRunning)))) }, nil},
		{"nor does the same pod again", func() []change { return must(t)(f.podChanged(makePod("a", on("n1"), phase(corev1.PodRunning)))) }, nil},
		{"our own write comes back", func() []change {
			return f.groupChanged(makeGroup("gang", observed(v2alpha2.PodGroupResourcesStatus{
				Requested: list("cpu", "2", "nvidia.com/gpu", "2"), Allocated: list("cpu", "2000m", "nvidia.com/gpu", "2"),
			})))
		}, nil},
		{"somebody else's does", func() []change {
			return f.groupChanged(makeGroup("gang", observed(v2alpha2.PodGroupResourcesStatus{Requested: list("cpu", "2", "nvidia.com/gpu", "2")})))
		}, []change{{gangKey, soon}}},
		{"an end is urgent", func() []change {
			f.take(gangKey)
			return must(t)(f.podChanged(makePod("a", on("n1"), phase(corev1.PodSucceeded))))
		}, []change{{gangKey, soon}}},
		{"its deletion then says nothing new", func() []change { f.take(gangKey); return slices.Clone(f.podGone("uid-a")) }, nil},
		{"a pod that moves to another gang leaves this one", func() []change {
			return must(t)(f.podChanged(makePod("b", on("n1"), annotated(kai.PodGroupAnnotation, "other"))))
		}, []change{{gangKey, soon}}},
	}
	for _, s := range steps {
		var want, got []change = s.want, s.do()
		if d := cmp.Diff(want, got, cmp.AllowUnexported(change{}), cmp.Transformer("none", func(c []change) []change {
			return append([]change{}, c...)
		})); d != "" {
			t.Fatalf("%s: %s", s.name, d)
		}
	}
	if body := f.take(gangKey); body == nil {
		t.Fatal("nothing to write")
	}
	f.groupGone(gangKey)
	f.podGone("uid-b")
	if len(f.gangs) != 0 || len(f.pods) != 0 || len(f.nodes) != 0 {
		t.Errorf("left over: %d gangs, %d pods, %d nodes", len(f.gangs), len(f.pods), len(f.nodes))
	}
}

func TestNonPreemptibleFollowsWordClassAndDefault(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		group   *v2alpha2.PodGroup
		classes []*schedulingv1.PriorityClass
		want    bool
	}{
		"nothing known: 50":            {group: makeGroup("gang")},
		"class of 100":                 {group: makeGroup("gang", classed("build")), classes: []*schedulingv1.PriorityClass{makeClass("build", 100, false)}, want: true},
		"class of 99":                  {group: makeGroup("gang", classed("train")), classes: []*schedulingv1.PriorityClass{makeClass("train", 99, false)}},
		"missing class, default 125":   {group: makeGroup("gang", classed("nope")), classes: []*schedulingv1.PriorityClass{makeClass("inference", 125, true)}, want: true},
		"the lowest of two defaults":   {group: makeGroup("gang"), classes: []*schedulingv1.PriorityClass{makeClass("a", 125, true), makeClass("b", 1, true)}},
		"its word beats its class":     {group: makeGroup("gang", classed("build"), says(v2alpha2.Preemptible)), classes: []*schedulingv1.PriorityClass{makeClass("build", 100, false)}},
		"its word beats no class":      {group: makeGroup("gang", says(v2alpha2.NonPreemptible)), want: true},
		"an unknown word says nothing": {group: makeGroup("gang", says("whatever"))},
	}
	for name, tc := range tests {
		for _, classesFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, classes first %t", name, classesFirst), func(t *testing.T) {
				t.Parallel()
				f := newAggregator([]string{"kai-scheduler"}, keys.QueueLabel)
				if !classesFirst {
					f.groupChanged(tc.group)
				}
				for _, c := range tc.classes {
					f.classChanged(c)
				}
				if classesFirst {
					f.groupChanged(tc.group)
				}
				must(t)(f.podChanged(makePod("a", on("n1"))))
				s := apply(t, v2alpha2.PodGroupResourcesStatus{}, f.take(gangKey))
				if got := len(s.AllocatedNonPreemptible) > 0; got != tc.want {
					t.Errorf("non-preemptible %t, want %t", got, tc.want)
				}
			})
		}
	}
}

// KAI leaves the old value standing when a gang becomes preemptible, which charges its queue's quota for ever.
func TestNonPreemptibleIsTakenBack(t *testing.T) {
	t.Parallel()
	f := newAggregator([]string{"kai-scheduler"}, keys.QueueLabel)
	f.classChanged(makeClass("build", 100, false))
	f.groupChanged(makeGroup("gang", classed("build")))
	must(t)(f.podChanged(makePod("a", on("n1"))))
	s := apply(t, v2alpha2.PodGroupResourcesStatus{}, f.take(gangKey))
	if len(s.AllocatedNonPreemptible) == 0 {
		t.Fatal("the gang should be non-preemptible first")
	}
	if got := f.groupChanged(makeGroup("gang", classed("build"), says(v2alpha2.Preemptible), observed(s))); len(got) != 1 {
		t.Fatalf("changes %v", got)
	}
	want := `{"status":{"resourcesStatus":{"allocatedNonPreemptible":{"cpu":null,"nvidia.com/gpu":null}}}}`
	if d := cmp.Diff(want, string(f.take(gangKey))); d != "" {
		t.Error(d)
	}
	// By the class, when that goes.
	f.groupChanged(makeGroup("gang", classed("build"), observed(s)))
	f.take(gangKey)
	if got := f.classGone("build"); len(got) != 1 {
		t.Fatalf("changes %v", got)
	}
	if d := cmp.Diff(want, string(f.take(gangKey))); d != "" {
		t.Error(d)
	}
}

func TestPortionByMemoryFollowsTheNode(t *testing.T) {
	t.Parallel()
	f := newAggregator([]string{"kai-scheduler"}, keys.QueueLabel)
	f.groupChanged(makeGroup("gang"))
	pod := makePod("a", containers(container("cpu", "1")), on("n1"), annotated(kai.MemoryAnnotation, "10000"), annotated(annotationReceived, receivedFraction))
	if _, err := f.podChanged(pod); err == nil {
		t.Error("the node is unknown, which should be said")
	}
	held := func() string {
		q := f.gangs[gangKey].desired().Allocated["nvidia.com/gpu"]
		return q.String()
	}
	for _, step := range []struct {
		labels map[string]string
		exists bool
		want   string
	}{
		{map[string]string{core.GPUMemoryLabel: "40000"}, true, "250m"},
		{map[string]string{core.GPUMemoryLabel: "20000"}, true, "500m"},
		{map[string]string{core.GPUMemoryLabel: "x"}, true, "0"},
		{map[string]string{core.GPUMemoryLabel: "5000"}, true, "1"},
		{nil, false, "0"},
	} {
		f.nodeChanged("n1", step.labels, step.exists)
		if d := cmp.Diff(step.want, held()); d != "" {
			t.Errorf("%v: %s", step.labels, d)
		}
	}
	f.podGone(pod.UID)
	if len(f.nodes) != 0 {
		t.Errorf("nodes left over: %d", len(f.nodes))
	}
}

// makeClaim is a claim of namespace ns.
func makeClaim(name string, requests ...resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	c.Spec.Devices.Requests = requests
	return c
}

func exactly(class string, count int64) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
	}}
}

// uses makes a pod use claims of these names.
func uses(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for i, name := range names {
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: fmt.Sprint(i), ResourceClaimName: &name})
		}
	}
}

// Claims and pods come in any order, and a claim made from a template is known by the pod's status only.
func TestGPUsByClaimAreCounted(t *testing.T) {
	t.Parallel()
	f := newAggregator([]string{"kai-scheduler"}, keys.QueueLabel)
	f.groupChanged(makeGroup("gang", says(v2alpha2.NonPreemptible)))
	template := makePod("b", on("n1"), containers(container("cpu", "1")), func(p *corev1.Pod) {
		name := "t"
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: &name}}
	})
	made := template.DeepCopy()
	name := "b-c"
	made.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "c", ResourceClaimName: &name}}
	several := makeClaim("k", exactly("gpu.nvidia.com", 2), exactly("nic", 5), resourcev1.DeviceRequest{Name: "all", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "big-GPU", AllocationMode: resourcev1.DeviceAllocationModeAll,
	}}, resourcev1.DeviceRequest{Name: "first", FirstAvailable: []resourcev1.DeviceSubRequest{{DeviceClassName: "gpu.nvidia.com", Count: 4}, {DeviceClassName: "gpu.nvidia.com", Count: 8}}})
	pending := makePod("a", uses("k"), containers(container("cpu", "1")))
	steps := []struct {
		what                 string
		do                   func()
		requested, allocated map[string]string
	}{
		{"pods first", func() {
			must(t)(f.podChanged(pending))
			must(t)(f.podChanged(template))
		}, map[string]string{"cpu": "2"}, map[string]string{"cpu": "1"}},
		{
			"the claim", func() { f.claimChanged(keyOfClaim("k"), claimList(several)) },
			map[string]string{"cpu": "2", "gpu.nvidia.com": "6", "big-GPU": "1"},
			map[string]string{"cpu": "1"},
		},
		{"of the template", func() {
			f.claimChanged(keyOfClaim("b-c"), claimList(makeClaim("b-c", exactly("gpu.nvidia.com", 0))))
			must(t)(f.podChanged(made))
		}, map[string]string{"cpu": "2", "gpu.nvidia.com": "7", "big-GPU": "1"}, map[string]string{"cpu": "1", "gpu.nvidia.com": "1"}},
		{
			"the pod is bound", func() { must(t)(f.podChanged(makePod("a", uses("k"), on("n1"), containers(container("cpu", "1"))))) },
			map[string]string{"cpu": "2", "gpu.nvidia.com": "7", "big-GPU": "1"},
			map[string]string{"cpu": "2", "gpu.nvidia.com": "7", "big-GPU": "1"},
		},
		{
			"the claim is gone", func() { f.claimChanged(keyOfClaim("k"), nil) },
			map[string]string{"cpu": "2", "gpu.nvidia.com": "1"},
			map[string]string{"cpu": "2", "gpu.nvidia.com": "1"},
		},
		{"the pods are gone", func() {
			f.podGone("uid-a")
			f.podGone("uid-b")
			f.claimChanged(keyOfClaim("b-c"), nil)
		}, map[string]string{}, map[string]string{}},
	}
	for _, step := range steps {
		step.do()
		d := f.gangs[gangKey].desired()
		if diff := cmp.Diff(step.requested, shown(d.Requested)); diff != "" {
			t.Errorf("%s: requested: %s", step.what, diff)
		}
		if diff := cmp.Diff(step.allocated, shown(d.Allocated)); diff != "" {
			t.Errorf("%s: allocated: %s", step.what, diff)
		}
		if diff := cmp.Diff(step.allocated, shown(d.AllocatedNonPreemptible)); diff != "" {
			t.Errorf("%s: of it non-preemptible: %s", step.what, diff)
		}
	}
	if len(f.claims) != 0 {
		t.Errorf("claims left over: %d", len(f.claims))
	}
}

func keyOfClaim(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// Whatever happened, in whatever order, the status is what one would get by summing up what is there now; and once it
// is written, there is nothing more to write.
func TestFoldedEqualsRecomputed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := newAggregator([]string{"kai-scheduler", "muster"}, keys.QueueLabel)
		pods := map[string]*corev1.Pod{}
		groups := map[string]*v2alpha2.PodGroup{}
		classes := map[string]*schedulingv1.PriorityClass{}
		nodes := map[string]map[string]string{}
		claims := map[string]*resourcev1.ResourceClaim{}
		statuses := map[string]v2alpha2.PodGroupResourcesStatus{}
		pending := map[string]bool{}
		note := func(changes []change) {
			for _, c := range changes {
				pending[c.gang.Name] = true
			}
		}
		write := func(name string) {
			body := f.take(types.NamespacedName{Namespace: "ns", Name: name})
			delete(pending, name)
			if groups[name] == nil {
				if body != nil {
					t.Fatalf("a write to %s, which does not exist", name)
				}
				return
			}
			statuses[name] = apply(t, statuses[name], body)
			note(f.groupChanged(groups[name].DeepCopy()))
			groups[name].Status.ResourcesStatus = statuses[name]
			note(f.groupChanged(groups[name].DeepCopy()))
		}
		names := []string{"a", "b", "c"}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 8).Draw(t, "event") {
			case 0, 1, 2:
				name := rapid.SampledFrom([]string{"p", "q", "r", "s"}).Draw(t, "pod")
				p := makePod(name,
					annotated(kai.PodGroupAnnotation, rapid.SampledFrom(append(names, "")).Draw(t, "gang")),
					annotated(kai.FractionAnnotation, rapid.SampledFrom([]string{"", "", "0.3", "junk"}).Draw(t, "fraction")),
					annotated(kai.MemoryAnnotation, rapid.SampledFrom([]string{"", "", "777"}).Draw(t, "memory")),
					annotated(annotationReceived, rapid.SampledFrom([]string{"", receivedFraction}).Draw(t, "received")),
					containers(container("cpu", rapid.SampledFrom([]string{"0", "1", "100m", "1n", "8E"}).Draw(t, "cpu"))),
					annotated(keys.ChargedAnnotation, rapid.SampledFrom([]string{"", "", "x/a", "y/a", "x/b/set", "junk"}).Draw(t, "charged")),
					annotated(keys.ChargedAsAnnotation, rapid.SampledFrom([]string{"", keys.ChargedFixed}).Draw(t, "as")),
					on(rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node")),
					phase(rapid.SampledFrom([]corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded}).Draw(t, "phase")),
					uses(rapid.SliceOfN(rapid.SampledFrom([]string{"k", "l"}), 0, 2).Draw(t, "claims")...),
					func(p *corev1.Pod) {
						p.Spec.SchedulerName = rapid.SampledFrom([]string{"kai-scheduler", "muster", "other"}).Draw(t, "scheduler")
					})
				pods[name] = p
				changes, _ := f.podChanged(p)
				note(changes)
			case 3:
				name := rapid.SampledFrom([]string{"p", "q", "r", "s"}).Draw(t, "pod")
				delete(pods, name)
				note(f.podGone(types.UID("uid-" + name)))
			case 4:
				name := rapid.SampledFrom(names).Draw(t, "group")
				pg := makeGroup(name, classed(rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "class")),
					says(rapid.SampledFrom([]v2alpha2.Preemptibility{"", v2alpha2.Preemptible, v2alpha2.NonPreemptible}).Draw(t, "word")),
					observed(statuses[name]))
				pg.Spec.Queue = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "queue")
				groups[name] = pg
				note(f.groupChanged(pg.DeepCopy()))
			case 5:
				name := rapid.SampledFrom(names).Draw(t, "group")
				delete(groups, name)
				delete(statuses, name)
				f.groupGone(types.NamespacedName{Namespace: "ns", Name: name})
				delete(pending, name)
			case 6:
				name := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "class")
				if rapid.Bool().Draw(t, "gone") {
					delete(classes, name)
					note(f.classGone(name))
					break
				}
				c := makeClass(name, rapid.SampledFrom([]int32{-5, 99, 100}).Draw(t, "value"), rapid.Bool().Draw(t, "default"))
				classes[name] = c
				note(f.classChanged(c))
			case 7:
				name := rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node")
				labels := map[string]string{core.GPUMemoryLabel: rapid.SampledFrom([]string{"1000", "3000", "junk"}).Draw(t, "mib")}
				exists := rapid.Bool().Draw(t, "exists")
				if exists {
					nodes[name] = labels
				} else {
					delete(nodes, name)
					labels = nil
				}
				changes, _ := f.nodeChanged(name, labels, exists)
				note(changes)
			case 8:
				name := rapid.SampledFrom([]string{"k", "l"}).Draw(t, "claim")
				delete(claims, name)
				var list corev1.ResourceList
				if rapid.Bool().Draw(t, "exists") {
					claims[name] = makeClaim(name, exactly(rapid.SampledFrom([]string{"gpu.x", "GPU", "nic"}).Draw(t, "class"), rapid.Int64Range(0, 3).Draw(t, "count")))
					list = claimList(claims[name])
				}
				changes, _ := f.claimChanged(types.NamespacedName{Namespace: "ns", Name: name}, list)
				note(changes)
			}
			if len(pending) > 0 && rapid.Bool().Draw(t, "write") {
				write(slices.Min(slices.Collect(maps.Keys(pending))))
			}
		}
		for range 10 {
			for _, name := range slices.Sorted(maps.Keys(pending)) {
				write(name)
			}
		}
		if len(pending) > 0 {
			t.Fatalf("never settles: %v", pending)
		}

		// From the objects alone.
		fresh := newAggregator([]string{"muster", "kai-scheduler"}, keys.QueueLabel)
		for name, labels := range nodes {
			fresh.nodeChanged(name, labels, true)
		}
		for name, c := range claims {
			fresh.claimChanged(types.NamespacedName{Namespace: "ns", Name: name}, claimList(c))
		}
		for _, c := range classes {
			fresh.classChanged(c)
		}
		for _, pg := range groups {
			fresh.groupChanged(pg)
		}
		// What each pod holds is in one place: the status of its PodGroup, or the rest of the queue that is charged.
		type place struct{ group, queue string }
		sums := map[place]*[3]tally.Sum{}
		for _, p := range pods { // order: sums
			if p.Spec.SchedulerName == "other" {
				continue
			}
			group, queue := p.Annotations[kai.PodGroupAnnotation], ""
			if at := strings.Split(p.Annotations[keys.ChargedAnnotation], "/"); p.Spec.NodeName != "" && len(at) > 1 {
				queue, group = at[0], at[1]
			}
			pg := groups[group]
			fixed := queue != "" && p.Annotations[keys.ChargedAsAnnotation] != ""
			if pg != nil {
				fixed = fixed || fresh.gangs[types.NamespacedName{Namespace: "ns", Name: group}].fixed
			}
			at := place{group: group}
			if queue != "" && (pg == nil || pg.Spec.Queue != queue) {
				at = place{queue: queue}
			}
			if sums[at] == nil {
				sums[at] = &[3]tally.Sum{}
			}
			s, _ := shareOf(p, fresh)
			sums[at][0].Add(s.requested.List())
			sums[at][1].Add(s.allocated.List())
			if fixed {
				sums[at][2].Add(s.allocated.List())
			}
		}
		want := func(at place) v2alpha2.PodGroupResourcesStatus {
			s := sums[at]
			if s == nil {
				s = &[3]tally.Sum{}
			}
			return v2alpha2.PodGroupResourcesStatus{Requested: s[0].List(), Allocated: s[1].List(), AllocatedNonPreemptible: s[2].List()}
		}
		for name := range groups {
			if body := patch(statuses[name], want(place{group: name})); body != nil {
				t.Fatalf("gang %s: written %+v, should be %+v", name, statuses[name], want(place{group: name}))
			}
		}
		for _, queue := range []string{"x", "y"} {
			if got, want := f.rest(queue).desired(), kai.WriteRemnants(want(place{queue: queue})); got != want {
				t.Fatalf("the rest of queue %s is %s, should be %s", queue, got, want)
			}
		}
	})
}

// TestRemnantsAreTheQueues: what is charged to a queue other than the PodGroup's is in the queue's annotation, and goes with the pod.
func TestRemnantsAreTheQueues(t *testing.T) {
	t.Parallel()
	f := newAggregator([]string{"kai-scheduler"}, keys.QueueLabel)
	in := func(queue string) func(*v2alpha2.PodGroup) {
		return func(pg *v2alpha2.PodGroup) { pg.Spec.Queue = queue }
	}
	q := &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "old"}}
	fixed := `"allocatedNonPreemptible":{"cpu":"1","nvidia.com/gpu":"1"},`
	status := func(n, fixed string) string {
		return fmt.Sprintf(`{"allocated":{"cpu":"%[1]s","nvidia.com/gpu":"%[1]s"},%[2]s"requested":{"cpu":"%[1]s","nvidia.com/gpu":"%[1]s"}}`, n, fixed)
	}
	f.queueChanged(q)
	pods := []*corev1.Pod{
		makePod("a", on("n1"), annotated(keys.ChargedAnnotation, "old/gang"), annotated(keys.ChargedAsAnnotation, keys.ChargedFixed)),
		makePod("b", on("n1"), annotated(keys.ChargedAnnotation, "old/gang/set"), annotated(kai.PodGroupAnnotation, "nothing")),
	}
	for _, step := range []struct {
		name        string
		do          func() []change
		group, rest string // the status of the PodGroup, and the annotation
	}{
		{"all is as it was bound", func() []change {
			f.groupChanged(makeGroup("gang", in("old")))
			must(t)(f.podChanged(pods[0]))
			must(t)(f.podChanged(pods[1]))
			return nil
		}, status("2", fixed), ""},
		{"the PodGroup moves", func() []change { return f.groupChanged(makeGroup("gang", in("new"))) }, "{}", status("2", fixed)},
		{"and says that it may not be preempted", func() []change {
			return f.groupChanged(makeGroup("gang", in("new"), says(v2alpha2.NonPreemptible)))
		}, "{}", status("2", strings.ReplaceAll(fixed, `"1"`, `"2"`))},
		{"it is deleted", func() []change { return f.groupGone(gangKey) }, "{}", status("2", fixed)},
		{"one is made anew", func() []change { return f.groupChanged(makeGroup("gang", in("old"))) }, status("2", fixed), ""},
		{"and deleted, too", func() []change { return f.groupGone(gangKey) }, "{}", status("2", fixed)},
		{"a pod goes", func() []change { return f.podGone(pods[0].UID) }, "{}", status("1", "")},
		{"and the other", func() []change { return f.podGone(pods[1].UID) }, "{}", ""},
	} {
		changes := step.do()
		rest := q.Annotations[keys.RemnantsAnnotation]
		if told := slices.Contains(changes, change{types.NamespacedName{Name: "old"}, soon}); told != (rest != step.rest) {
			t.Errorf("%s: changes %v", step.name, changes)
		}
		if body := f.takeRest("old"); body != nil {
			var patch struct{ Metadata metav1.ObjectMeta }
			if err := json.Unmarshal(body, &patch); err != nil {
				t.Fatal(err)
			}
			q = q.DeepCopy()
			q.Annotations = patch.Metadata.Annotations
			f.queueChanged(q)
		}
		var got v2alpha2.PodGroupResourcesStatus
		if g := f.gangs[gangKey]; g != nil {
			got = g.desired()
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{step.group, step.rest}, []string{string(text), q.Annotations[keys.RemnantsAnnotation]}); d != "" {
			t.Errorf("%s: %s", step.name, d)
		}
	}
	f.queueGone("old")
	if len(f.queues)+len(f.gangs) > 0 {
		t.Errorf("left over: %v, %v", f.queues, f.gangs)
	}
}

// TestUpstreamsAreTheQueues: what a pod of a group of Kubernetes' own holds is counted in its queue, and not in a PodGroup of KAI's of the same name.
func TestUpstreamsAreTheQueues(t *testing.T) {
	t.Parallel()
	f := newAggregator([]string{"kai-scheduler"}, keys.QueueLabel)
	q := &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "old"}}
	f.queueChanged(q)
	f.groupChanged(makeGroup("gang", func(pg *v2alpha2.PodGroup) { pg.Spec.Queue = "old" }))
	must(t)(f.podChanged(makePod("a", on("n1"), annotated(keys.ChargedAnnotation, "old/upstream:gang"))))
	if body := string(f.takeRest("old")); !strings.Contains(body, `allocated`) {
		t.Errorf("the queue is told %q", body)
	}
	if g := f.gangs[gangKey]; g != nil {
		if got := g.desired(); len(got.Allocated)+len(got.Requested) > 0 {
			t.Errorf("KAI's PodGroup of the name is told %+v", got)
		}
	}
}

// TestUpstreamsAskInTheirQueues: what a pod of a group of Kubernetes' own asks for while it waits is counted in the queue that its label names, the default one without a label, and where
// it was bound once it is. One that names a PodGroup of KAI's besides is counted there.
func TestUpstreamsAskInTheirQueues(t *testing.T) {
	t.Parallel()
	group := "gang"
	pod := func(label string, more ...func(*corev1.Pod)) *corev1.Pod {
		p := makePod("a", more...)
		if delete(p.Annotations, kai.PodGroupAnnotation); label != "" {
			p.Labels = map[string]string{"team": label}
		}
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
		return p
	}
	const asks, holds = `{"requested":{"cpu":"1","nvidia.com/gpu":"1"}}`, `{"allocated":{"cpu":"1","nvidia.com/gpu":"1"},"requested":{"cpu":"1","nvidia.com/gpu":"1"}}`
	both := pod("q")
	both.Annotations[kai.PodGroupAnnotation] = "kais"
	foreign := pod("q")
	foreign.Spec.SchedulerName = "default-scheduler"
	f := newAggregator([]string{"kai-scheduler"}, "team")
	for _, q := range []string{"q", "r", keys.DefaultQueue} {
		f.queueChanged(&v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: q}})
	}
	for _, step := range []struct {
		what string
		pod  *corev1.Pod
		want map[string]string
	}{
		{"waits", pod("q"), map[string]string{"q": asks}},
		{"is another queue's", pod("r"), map[string]string{"r": asks}},
		{"has no label", pod(""), map[string]string{keys.DefaultQueue: asks}},
		{"is bound in a tree", pod("q", on("n1"), annotated(keys.ChargedAnnotation, "r/composite:root/set")), map[string]string{"r": holds}},
		{"names KAI's besides", both, nil},
		{"is another scheduler's", foreign, nil},
	} {
		must(t)(f.podChanged(step.pod))
		for _, q := range []string{"q", "r", keys.DefaultQueue} {
			if got := f.queues[q].desired(); got != step.want[q] {
				t.Errorf("%s: queue %s is told %q, want %q", step.what, q, got, step.want[q])
			}
		}
	}
}

// TestOwnGangIsTheQueues: what a pod that is a gang by itself asks for and holds is in the annotation of its queue, while there is no PodGroup.
func TestOwnGangIsTheQueues(t *testing.T) {
	t.Parallel()
	f := newAggregator([]string{"kai-scheduler"}, keys.QueueLabel)
	f.queueChanged(&v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}})
	p := makePod("a")
	delete(p.Annotations, kai.PodGroupAnnotation)
	group := makeGroup("gang", func(pg *v2alpha2.PodGroup) { pg.Spec.Queue = "q" })
	p.Annotations[keys.OwnGangAnnotation] = kai.WriteOwnGang(p, group, "")
	bound := makePod("a", on("n1"), annotated(keys.OwnGangAnnotation, p.Annotations[keys.OwnGangAnnotation]), annotated(keys.ChargedAnnotation, "q/gang"))
	delete(bound.Annotations, kai.PodGroupAnnotation)
	for _, step := range []struct {
		name string
		do   func() []change
		rest string
	}{
		{"it waits", func() []change { return must(t)(f.podChanged(p)) }, `{"requested":{"cpu":"1","nvidia.com/gpu":"1"}}`},
		{"it is bound", func() []change { return must(t)(f.podChanged(bound)) }, `{"allocated":{"cpu":"1","nvidia.com/gpu":"1"},"requested":{"cpu":"1","nvidia.com/gpu":"1"}}`},
		{"it gets a PodGroup", func() []change { return f.groupChanged(group) }, ""},
		{"which is deleted", func() []change { return f.groupGone(gangKey) }, `{"allocated":{"cpu":"1","nvidia.com/gpu":"1"},"requested":{"cpu":"1","nvidia.com/gpu":"1"}}`},
		{"it goes", func() []change { return f.podGone(p.UID) }, ""},
	} {
		step.do()
		if got := f.rest("q").desired(); got != step.rest {
			t.Errorf("%s: %s, want %s", step.name, got, step.rest)
		}
	}
}

func BenchmarkPodEvents(b *testing.B) {
	f := newAggregator([]string{"kai-scheduler"}, keys.QueueLabel)
	pending, bound := makePod("a"), makePod("a", on("n1"))
	f.groupChanged(makeGroup("gang"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.podChanged(pending); err != nil {
			b.Fatal(err)
		}
		if _, err := f.podChanged(bound); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLonePods is what is kept of 4,000 pods that are gangs by themselves, and what is made and thrown away when one waits and is bound.
func BenchmarkLonePods(b *testing.B) {
	const n = 4000
	waiting, bound := make([]*corev1.Pod, n), make([]*corev1.Pod, n)
	for i := range n {
		name := fmt.Sprintf("fill-%d", i)
		group := makeGroup("pg-"+name+"-5d5c9f7e-0a2b-4c3d-8e9f-aabbccddeeff", func(pg *v2alpha2.PodGroup) { pg.Spec.Queue = "q" })
		waiting[i] = makePod(name)
		delete(waiting[i].Annotations, kai.PodGroupAnnotation)
		waiting[i].Annotations[keys.OwnGangAnnotation] = kai.WriteOwnGang(waiting[i], group, "")
		bound[i] = waiting[i].DeepCopy()
		bound[i].Spec.NodeName = "n1"
		bound[i].Annotations[keys.ChargedAnnotation] = "q/" + group.Name
	}
	b.ReportAllocs()
	for b.Loop() {
		before := kubetest.Held()
		f := newAggregator([]string{"kai-scheduler"}, keys.QueueLabel)
		f.queueChanged(&v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}})
		for _, pods := range [][]*corev1.Pod{waiting, bound} {
			for _, p := range pods {
				must(b)(f.podChanged(p))
			}
		}
		b.ReportMetric((kubetest.Held()-before)/n, "held-B/pod")
		runtime.KeepAlive(f)
	}
}
