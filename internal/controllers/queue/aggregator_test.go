package queue

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/api/kai/keys"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/tally"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func makeQueue(name, parent string, edits ...func(*v2.Queue)) *v2.Queue {
	unlimited := v2.QueueResource{Quota: v2.Unlimited, Limit: v2.Unlimited}
	q := &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v2.QueueSpec{
		ParentQueue: parent, Resources: &v2.QueueResources{GPU: unlimited, CPU: unlimited, Memory: unlimited},
	}}
	for _, edit := range edits {
		edit(q)
	}
	return q
}

// makeGroup is a gang that asks for twice the GPUs it holds, half of which are non-preemptible.
func makeGroup(name, queue string, gpus int64) *v2alpha2.PodGroup {
	return &v2alpha2.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       v2alpha2.PodGroupSpec{Queue: queue},
		Status: v2alpha2.PodGroupStatus{ResourcesStatus: v2alpha2.PodGroupResourcesStatus{
			Requested:               list("nvidia.com/gpu", fmt.Sprint(2*gpus)),
			Allocated:               list("nvidia.com/gpu", fmt.Sprint(gpus)),
			AllocatedNonPreemptible: list("nvidia.com/gpu", fmt.Sprintf("%dm", gpus*500)),
		}},
	}
}

// cluster plays the API server and the work queue for a aggregator, without time.
type cluster struct {
	t interface {
		Fatal(...any)
		Fatalf(string, ...any)
	}
	aggregator *aggregator
	queues     map[string]*v2.Queue
	dirty      map[string]bool
	writes     int
}

func newCluster(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
},
) *cluster {
	return &cluster{t: t, aggregator: newAggregator(), queues: map[string]*v2.Queue{}, dirty: map[string]bool{}}
}

func (c *cluster) note(names []string) {
	for _, name := range names {
		c.dirty[name] = true
	}
}

// put creates or replaces the spec of a queue.
func (c *cluster) put(q *v2.Queue) {
	if old := c.queues[q.Name]; old != nil {
		q.Status = old.Status
	}
	c.queues[q.Name] = q
	c.note(c.aggregator.queueChanged(q))
}

func (c *cluster) drop(name string) {
	delete(c.queues, name)
	c.note(c.aggregator.queueGone(name))
}

// write does for one name what the controller does.
func (c *cluster) write(name string) {
	delete(c.dirty, name)
	body, _, more := c.aggregator.take(name, noon)
	c.note(more)
	if body == nil {
		return
	}
	old := c.queues[name]
	if old == nil {
		c.t.Fatalf("a write to queue %q, which does not exist", name)
	}
	c.writes++
	q := old.DeepCopy()
	merge(c.t, &q.Status, body)
	c.queues[name] = q
	c.note(c.aggregator.queueChanged(q))
}

// settle writes until nothing is left to be written.
func (c *cluster) settle() {
	for range 100 {
		if len(c.dirty) == 0 {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(c.dirty)) {
			c.write(name)
		}
	}
	c.t.Fatalf("never settles: %v", c.dirty)
}

// merge does to a status what the API server does with a merge patch.
func merge(t interface{ Fatal(...any) }, s *v2.QueueStatus, body []byte) {
	var p struct {
		Status map[string]json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatal(err)
	}
	decode := func(raw json.RawMessage, into any) {
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
	}
	lists := map[string]*corev1.ResourceList{
		"allocated": &s.Allocated, "allocatedNonPreemptible": &s.AllocatedNonPreemptible, "requested": &s.Requested,
	}
	for field, raw := range p.Status {
		switch field {
		case "childQueues":
			s.ChildQueues = nil
			decode(raw, &s.ChildQueues)
		case "conditions":
			s.Conditions = nil
			decode(raw, &s.Conditions)
		default:
			var amounts map[string]*string
			decode(raw, &amounts)
			l := lists[field]
			for name, amount := range amounts {
				if amount == nil {
					delete(*l, corev1.ResourceName(name))
					continue
				}
				if *l == nil {
					*l = corev1.ResourceList{}
				}
				maps.Copy(*l, list(name, *amount))
			}
		}
	}
}

// show draws the statuses, one line per queue.
func (c *cluster) show() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.queues)) {
		s := c.queues[name].Status
		gpu := func(l corev1.ResourceList) string { q := l["nvidia.com/gpu"]; return q.String() }
		fmt.Fprintf(&b, "%s: %s of %s, %s fixed", name, gpu(s.Allocated), gpu(s.Requested), gpu(s.AllocatedNonPreemptible))
		if s.ChildQueues != nil {
			fmt.Fprintf(&b, ", over %s", strings.Join(s.ChildQueues, " "))
		}
		for _, cond := range s.Conditions {
			fmt.Fprintf(&b, ", %s=%s %s", cond.Type, cond.Status, cond.Reason)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestTreeIsAddedUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	steps := []struct {
		name   string
		do     func()
		want   string
		writes int // at most; below it, the aggregator wrote what it need not
	}{
		{"a gang before its queue", func() { c.note(c.aggregator.groupChanged(makeGroup("g1", "team", 4))) }, ``, 0},
		{"its queue, an orphan", func() { c.put(makeQueue("team", "dept")) }, `
team: 4 of 8, 2 fixed, Orphan=True ParentNotFound
`, 1},
		{"the queues above, in one go", func() { c.put(makeQueue("org", "")); c.put(makeQueue("dept", "org")) }, `
dept: 4 of 8, 2 fixed, over team
org: 4 of 8, 2 fixed, over dept
team: 4 of 8, 2 fixed, Orphan=False ParentFound
`, 3},
		{"a sibling with a gang: all levels are written once", func() {
			c.put(makeQueue("side", "dept"))
			c.note(c.aggregator.groupChanged(makeGroup("g2", "side", 2)))
		}, `
dept: 6 of 12, 3 fixed, over side team
org: 6 of 12, 3 fixed, over dept
side: 2 of 4, 1 fixed
team: 4 of 8, 2 fixed, Orphan=False ParentFound
`, 3},
		{"a gang in an inner queue", func() { c.note(c.aggregator.groupChanged(makeGroup("g3", "dept", 1))) }, `
dept: 7 of 14, 3500m fixed, over side team
org: 7 of 14, 3500m fixed, over dept
side: 2 of 4, 1 fixed
team: 4 of 8, 2 fixed, Orphan=False ParentFound
`, 2},
		{"a gang moves within the department, which need not know", func() { c.note(c.aggregator.groupChanged(makeGroup("g1", "side", 4))) }, `
dept: 7 of 14, 3500m fixed, over side team
org: 7 of 14, 3500m fixed, over dept
side: 6 of 12, 3 fixed
team: 0 of 0, 0 fixed, Orphan=False ParentFound
`, 2},
		{"a queue moves with all it has", func() { c.put(makeQueue("side", "")) }, `
dept: 1 of 2, 500m fixed, over team
org: 1 of 2, 500m fixed, over dept
side: 6 of 12, 3 fixed
team: 0 of 0, 0 fixed, Orphan=False ParentFound
`, 2},
		{"gangs end", func() {
			for _, g := range []string{"g1", "g2", "g3", "never-was"} {
				c.note(c.aggregator.groupGone(types.NamespacedName{Namespace: "ns", Name: g}))
			}
		}, `
dept: 0 of 0, 0 fixed, over team
org: 0 of 0, 0 fixed, over dept
side: 0 of 0, 0 fixed
team: 0 of 0, 0 fixed, Orphan=False ParentFound
`, 3},
		{"queues go, bottom up", func() { c.drop("team"); c.drop("dept"); c.drop("side"); c.drop("never-was") }, `
org: 0 of 0, 0 fixed
`, 1},
	}
	for _, s := range steps {
		before := c.writes
		s.do()
		c.settle()
		if d := cmp.Diff(strings.TrimLeft(s.want, "\n"), c.show()); d != "" {
			t.Fatalf("%s: %s", s.name, d)
		}
		if n := c.writes - before; n > s.writes {
			t.Errorf("%s: %d writes, %d suffice", s.name, n, s.writes)
		}
	}
	c.drop("org")
	c.settle()
	if len(c.aggregator.nodes) != 0 || len(c.aggregator.gangs) != 0 {
		t.Errorf("left over: %d queues, %d gangs", len(c.aggregator.nodes), len(c.aggregator.gangs))
	}
}

func TestCircleOfParents(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	// c → a → b → c, d hangs below a, s is its own parent.
	for name, parent := range map[string]string{"a": "b", "b": "c", "c": "a", "d": "a", "s": "s"} {
		c.put(makeQueue(name, parent))
	}
	for i, name := range []string{"a", "b", "c", "d", "s"} {
		c.note(c.aggregator.groupChanged(makeGroup("g"+name, name, 1<<i)))
	}
	c.settle()
	want := `
a: 9 of 18, 4500m fixed, over c d, Orphan=True ParentCycle
b: 2 of 4, 1 fixed, over a, Orphan=True ParentCycle
c: 4 of 8, 2 fixed, over b, Orphan=True ParentCycle
d: 8 of 16, 4 fixed
s: 16 of 32, 8 fixed, over s, Orphan=True ParentCycle
`[1:]
	if d := cmp.Diff(want, c.show()); d != "" {
		t.Error(d)
	}
	message := "spec.parentQueue: the queue is its own ancestor: a → b → c → a. Nothing of it or below it is scheduled until one of these queues gets another parent"
	if d := cmp.Diff(message, c.queues["c"].Status.Conditions[0].Message); d != "" {
		t.Error(d)
	}
	c.put(makeQueue("a", "")) // opens it
	c.drop("s")
	c.settle()
	want = `
a: 15 of 30, 7500m fixed, over c d, Orphan=False ParentFound
b: 2 of 4, 1 fixed, Orphan=False ParentFound
c: 6 of 12, 3 fixed, over b, Orphan=False ParentFound
d: 8 of 16, 4 fixed
`[1:]
	if d := cmp.Diff(want, c.show()); d != "" {
		t.Error(d)
	}
}

func TestLongCircleHasAShortMessage(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const n = 10000
	for i := range n {
		c.put(makeQueue(fmt.Sprintf("q%05d", i), fmt.Sprintf("q%05d", (i+1)%n)))
	}
	c.settle()
	if c.writes != n {
		t.Errorf("%d writes for %d queues", c.writes, n)
	}
	if m := c.queues["q05000"].Status.Conditions[0].Message; len(m) > 400 || !strings.Contains(m, "(10000 queues)") {
		t.Errorf("message of %d bytes: %.500s", len(m), m)
	}
}

func TestOverQuota(t *testing.T) {
	t.Parallel()
	quota := func(gpu, cpu, memory float64) func(*v2.Queue) {
		return func(q *v2.Queue) {
			q.Spec.Resources = &v2.QueueResources{GPU: v2.QueueResource{Quota: gpu}, CPU: v2.QueueResource{Quota: cpu}, Memory: v2.QueueResource{Quota: memory}}
		}
	}
	group := func(pairs ...string) *v2alpha2.PodGroup {
		pg := makeGroup("g", "q", 0)
		pg.Status.ResourcesStatus = v2alpha2.PodGroupResourcesStatus{Allocated: list(pairs...)}
		return pg
	}
	tests := map[string]struct {
		queue *v2.Queue
		group *v2alpha2.PodGroup
		want  string // the message; empty: no condition
	}{
		"within":              {makeQueue("q", "", quota(2, 1500, 1000)), group("nvidia.com/gpu", "2", "cpu", "1500m", "memory", "1G"), ""},
		"above, all":          {makeQueue("q", "", quota(2, 1500, 1000)), group("nvidia.com/gpu", "2500m", "cpu", "2", "memory", "1Gi"), "allocated of quota: gpu: 2.5 of 2, cpu cores: 2 of 1.5, memory bytes: 1073741824 of 1000000000"},
		"without bound":       {makeQueue("q", "", quota(-1, -1, -1)), group("nvidia.com/gpu", "8E", "cpu", "8E", "memory", "8E"), ""},
		"no resources":        {makeQueue("q", "", func(q *v2.Queue) { q.Spec.Resources = nil }), group("cpu", "1"), "allocated of quota: cpu cores: 1 of 0"},
		"GPUs of all kinds":   {makeQueue("q", "", quota(2, -1, -1)), group("nvidia.com/gpu", "2", "amd.com/gpu", "1", "nvidia.com/mig-1g.5gb", "7", "gpu.example.com", "2"), "allocated of quota: gpu: 12 of 2"},
		"negative allocation": {makeQueue("q", "", quota(0, 0, 0)), group("nvidia.com/gpu", "-2"), ""},
		"extended": {makeQueue("q", "", func(q *v2.Queue) {
			q.Spec.Resources.Extended = map[string]v2.QueueResource{"rdma/hca": {Quota: 1}, "b/c": {Quota: 1}}
		}), group("rdma/hca", "2", "b/c", "3"), "allocated of quota: b/c: 3 of 1, rdma/hca: 2 of 1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			foreign := v2.QueueCondition{Type: "Foreign", Status: corev1.ConditionTrue, Message: "stays"}
			tc.queue.Status.Conditions = []v2.QueueCondition{foreign}
			c.put(tc.queue)
			c.note(c.aggregator.groupChanged(tc.group))
			c.settle()
			want := []v2.QueueCondition{foreign}
			if tc.want != "" {
				at := metav1.NewTime(noon)
				want = append(want, v2.QueueCondition{Type: v2.QueueOverQuota, Status: corev1.ConditionTrue, Reason: "AllocatedAboveQuota", Message: tc.want, LastProbeTime: at, LastTransitionTime: at})
			}
			if d := cmp.Diff(want, c.queues["q"].Status.Conditions); d != "" {
				t.Error(d)
			}
			// The end of it.
			c.note(c.aggregator.groupGone(types.NamespacedName{Namespace: "ns", Name: "g"}))
			c.settle()
			if conditions := c.queues["q"].Status.Conditions; tc.want != "" && conditions[1].Status != corev1.ConditionFalse {
				t.Errorf("afterwards: %+v", conditions)
			}
		})
	}
}

// A condition that only changes its numbers keeps the time since when it holds.
func TestTransitionTimeIsOfTheStatus(t *testing.T) {
	t.Parallel()
	before := metav1.NewTime(noon.Add(-time.Hour))
	n := &node{name: "q", exists: true, spec: v2.QueueSpec{ParentQueue: "new"}, observed: v2.QueueStatus{Conditions: []v2.QueueCondition{
		{Type: v2.QueueOrphan, Status: corev1.ConditionTrue, Reason: reasonParentNotFound, Message: "of the old parent", LastProbeTime: before, LastTransitionTime: before},
	}}}
	got, changed := n.conditions(noon)
	if !changed || !got[0].LastTransitionTime.Equal(&before) || !got[0].LastProbeTime.Time.Equal(noon) || !strings.Contains(got[0].Message, `"new"`) {
		t.Errorf("changed %t: %+v", changed, got)
	}
	if n.observed.Conditions[0].Message != "of the old parent" {
		t.Error("the observed object was written to")
	}
}

// Whatever happened, in whatever order, every status is what one would get by adding up what is there now.
func TestFoldedEqualsRecomputed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		groups := map[string]*v2alpha2.PodGroup{}
		names := []string{"a", "b", "c", "d", "e"}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "event") {
			case 0, 1:
				c.put(makeQueue(rapid.SampledFrom(names).Draw(t, "queue"), rapid.SampledFrom(append(names, "", "")).Draw(t, "parent")))
			case 2:
				c.drop(rapid.SampledFrom(names).Draw(t, "queue"))
			case 3, 4, 5:
				name := rapid.SampledFrom([]string{"g", "h", "i"}).Draw(t, "gang")
				groups[name] = makeGroup(name, rapid.SampledFrom(append(names, "")).Draw(t, "queue"), rapid.Int64Range(0, 8).Draw(t, "gpus"))
				c.note(c.aggregator.groupChanged(groups[name]))
			case 6:
				name := rapid.SampledFrom([]string{"g", "h", "i"}).Draw(t, "gang")
				delete(groups, name)
				c.note(c.aggregator.groupGone(types.NamespacedName{Namespace: "ns", Name: name}))
			}
			if len(c.dirty) > 0 && rapid.Bool().Draw(t, "write") {
				c.write(slices.Min(slices.Collect(maps.Keys(c.dirty))))
			}
		}
		c.settle()

		// Slowly: from each queue, climb to the top; who meets himself is in a circle.
		parent := func(name string) string {
			if q := c.queues[name]; q != nil && c.queues[q.Spec.ParentQueue] != nil {
				return q.Spec.ParentQueue
			}
			return ""
		}
		circular := func(name string) bool {
			at := parent(name)
			for range names {
				if at == name {
					return true
				}
				at = parent(at)
			}
			return false
		}
		sums := map[string]*amounts{}
		for name := range c.queues {
			sums[name] = &amounts{}
		}
		for _, g := range groups {
			for at := g.Spec.Queue; c.queues[at] != nil; at = parent(at) {
				r := g.Status.ResourcesStatus
				sums[at].add(lists{r.Requested, r.Allocated, r.AllocatedNonPreemptible})
				if circular(at) {
					break
				}
			}
		}
		for name, q := range c.queues {
			for field, got := range map[string]struct {
				observed corev1.ResourceList
				want     *tally.Sum
			}{
				"requested": {q.Status.Requested, &sums[name].requested},
				"allocated": {q.Status.Allocated, &sums[name].allocated},
				"fixed":     {q.Status.AllocatedNonPreemptible, &sums[name].allocatedNonPreemptible},
			} {
				if !tally.Equal(got.observed, got.want.List()) {
					t.Fatalf("queue %s, %s: got %v, want %v\n%s", name, field, got.observed, got.want.List(), c.show())
				}
			}
			orphan := circular(name) || q.Spec.ParentQueue != "" && parent(name) == ""
			is := slices.ContainsFunc(q.Status.Conditions, func(k v2.QueueCondition) bool {
				return k.Type == v2.QueueOrphan && k.Status == corev1.ConditionTrue
			})
			if orphan != is {
				t.Fatalf("queue %s: orphan %t, said to be %t\n%s", name, orphan, is, c.show())
			}
		}
	})
}

func BenchmarkGangEvents(b *testing.B) {
	f := newAggregator()
	f.queueChanged(makeQueue("org", ""))
	f.queueChanged(makeQueue("dept", "org"))
	f.queueChanged(makeQueue("team", "dept"))
	f.take(structure, noon)
	one, two := makeGroup("g", "team", 1), makeGroup("g", "team", 2)
	b.ReportAllocs()
	for b.Loop() {
		f.groupChanged(one)
		f.groupChanged(two)
	}
}

func BenchmarkRebuild(b *testing.B) {
	f := newAggregator()
	for i := range 10000 {
		name := fmt.Sprintf("q%d", i)
		f.queueChanged(makeQueue(name, fmt.Sprintf("q%d", i/10-1)))
		f.groupChanged(makeGroup("g"+name, name, 1))
	}
	b.ReportAllocs()
	for b.Loop() {
		rebuild(f.nodes)
	}
}

// The annotation follows the field, outlives it, and goes when the field says that there is nothing.
func TestExtendedResourcesAreRepeated(t *testing.T) {
	t.Parallel()
	const four = `{"rdma/hca":{"quota":4,"overQuotaWeight":1,"limit":8}}`
	nic := map[string]v2.QueueResource{"rdma/hca": {Quota: 4, OverQuotaWeight: 1, Limit: 8}}
	patch := func(value string) string {
		return `{"metadata":{"annotations":{"muster.dev/extended-resources":` + value + `}}}`
	}
	for _, test := range []struct {
		name  string
		field map[string]v2.QueueResource
		bare  bool // no spec.resources
		copy  string
		want  string // the patch
	}{
		{name: "a new field", field: nic, want: patch(strconv.Quote(four))},
		{name: "a field that has its copy", field: nic, copy: four},
		{name: "a field that has changed", field: nic, copy: "{}", want: patch(strconv.Quote(four))},
		{name: "a field that was dropped", copy: four},
		{name: "resources that were dropped", bare: true, copy: four},
		{name: "no further resources any more", field: map[string]v2.QueueResource{}, copy: four, want: patch("null")},
		{name: "none, and no copy", field: map[string]v2.QueueResource{}},
		{name: "a field without a JSON form", field: map[string]v2.QueueResource{"x/y": {Limit: math.Inf(1)}}, copy: four},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			q := makeQueue("q", "", func(q *v2.Queue) {
				q.Spec.Resources.Extended = test.field
				if test.bare {
					q.Spec.Resources = nil
				}
				if test.copy != "" {
					q.Annotations = map[string]string{keys.ExtendedResourcesAnnotation: test.copy}
				}
			})
			f := newAggregator()
			f.queueChanged(q)
			f.take(structure, noon)
			_, got, _ := f.take("q", noon)
			if string(got) != test.want {
				t.Errorf("patch %s, want %s", got, test.want)
			}
		})
	}
}

// What is over quota is known from the copy too.
func TestOverQuotaByTheCopy(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	q := makeQueue("q", "", func(q *v2.Queue) {
		q.Annotations = map[string]string{keys.ExtendedResourcesAnnotation: `{"nvidia.com/gpu":{"quota":1}}`}
	})
	c.put(q)
	c.note(c.aggregator.groupChanged(makeGroup("g", "q", 2)))
	c.settle()
	if got := c.queues["q"].Status.Conditions; len(got) != 1 || !strings.Contains(got[0].Message, "nvidia.com/gpu: 2 of 1") {
		t.Errorf("conditions %+v", got)
	}
}

// TestRemnantsCount: what no PodGroup's status has counts by the queue's annotation, here and above, and only once.
func TestRemnantsCount(t *testing.T) {
	t.Parallel()
	f := newAggregator()
	make := func(name, parent, remnants string) *v2.Queue {
		return &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{keys.RemnantsAnnotation: remnants}}, Spec: v2.QueueSpec{ParentQueue: parent}}
	}
	f.queueChanged(make("top", "", ""))
	f.queueChanged(make("leaf", "top", `{"allocated":{"nvidia.com/gpu":"2"}}`))
	f.groupChanged(&v2alpha2.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g"}, Spec: v2alpha2.PodGroupSpec{Queue: "leaf"},
		Status: v2alpha2.PodGroupStatus{ResourcesStatus: v2alpha2.PodGroupResourcesStatus{Allocated: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}},
	})
	f.refresh()
	for _, step := range []struct {
		remnants string
		want     int64
	}{
		{`{"allocated":{"nvidia.com/gpu":"2"}}`, 3},
		{`{"allocated":{"nvidia.com/gpu":"5"},"requested":{"nvidia.com/gpu":"5"}}`, 6},
		{`{"allocated":{"nvidia.com/gpu":"-5"}}`, 1},
		{`[1,2`, 1},
		{`{"allocated":{"nvidia.com/gpu":"2"}}`, 3},
		{"", 1},
	} {
		f.queueChanged(make("leaf", "top", step.remnants))
		for _, name := range []string{"leaf", "top"} {
			got := f.nodes[name].total.allocated.List()["nvidia.com/gpu"]
			if got.Value() != step.want {
				t.Errorf("%s with %q: %s GPUs, want %d", name, step.remnants, got.String(), step.want)
			}
		}
	}
	f.queueChanged(make("leaf", "top", `{"allocated":{"nvidia.com/gpu":"2"}}`))
	f.queueGone("leaf")
	f.refresh()
	if got := f.nodes["leaf"].own.allocated.List()["nvidia.com/gpu"]; got.Value() != 1 {
		t.Errorf("the Queue is gone, and %s GPUs are left of it", got.String())
	}
}
