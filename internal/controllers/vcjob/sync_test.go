package vcjob

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// TestDependsOn: whose pods may be made, by what runs of the tasks that it depends on. Task x has two pods, of which one is enough; y one.
func TestDependsOn(t *testing.T) {
	t.Parallel()
	one := int32(1)
	for _, c := range []struct {
		on        []string
		iteration batch.Iteration
		pods      string // running ones, and those that have succeeded, with ! or that are not ready, with ?
		want      bool
	}{
		{nil, "", "", true},
		{[]string{"x"}, "", "", false},
		{[]string{"x"}, "", "x", true},
		{[]string{"x"}, "", "x!", true},
		{[]string{"x"}, "", "x?", false},
		{[]string{"x"}, "", "x? x", true},
		{[]string{"x", "y"}, "", "x", false},
		{[]string{"x", "y"}, "", "x y", true},
		{[]string{"x", "y"}, batch.IterationAll, "y", false},
		{[]string{"x", "y"}, batch.IterationAny, "y", true},
		{[]string{"x", "y"}, batch.IterationAny, "", false},
		{[]string{"x"}, batch.IterationAny, "", false},
		{[]string{"x"}, batch.IterationAny, "x", true},
		{[]string{"free"}, "", "", true}, // says no minimum
		{[]string{"nobody"}, "", "x y", false},
		{[]string{"nobody", "x"}, batch.IterationAny, "x", true},
	} {
		j := &batch.Job{Spec: batch.JobSpec{Tasks: []batch.TaskSpec{
			{Name: "x", Replicas: 2, MinAvailable: &one},
			{Name: "y", Replicas: 1, MinAvailable: &one},
			{Name: "free", Replicas: 1},
			{Name: "t", DependsOn: &batch.DependsOn{Name: c.on, Iteration: c.iteration}},
		}}}
		var own []*member
		for i, word := range strings.Fields(c.pods) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}, Status: corev1.PodStatus{
				Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Ready: !strings.HasSuffix(word, "?")}},
			}}
			if strings.HasSuffix(word, "!") {
				p.Status.Phase = corev1.PodSucceeded
			}
			own = append(own, &member{pod: p, task: word[:1]})
		}
		if got := ready(j, &j.Spec.Tasks[3], own); got != c.want {
			t.Errorf("on %v (%s), with %q: %v", c.on, c.iteration, c.pods, got)
		}
	}
}

// list reads "cpu=1 memory=2Gi".
func list(text string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, word := range strings.Fields(text) {
		name, q, _ := strings.Cut(word, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

// TestMinResources: the sums, for two tasks whose pods request 1 and 10 CPUs; the second is of a higher priority where it says so.
func TestMinResources(t *testing.T) {
	t.Parallel()
	two := int32(2)
	for _, c := range []struct {
		what   string
		least  int32
		edit   func(*batch.JobSpec)
		cpu    string
		number string
	}{
		{"all", 5, nil, "32", "5"},
		{"fewer than the sum: as many pods, in the order of the tasks", 3, nil, "12", "3"},
		{"the important first", 3, func(j *batch.JobSpec) { j.Tasks[1].Template.Spec.PriorityClassName = "high" }, "30", "3"},
		{"a task's minimum, and then more", 4, func(j *batch.JobSpec) { j.Tasks[0].MinAvailable, j.Tasks[1].MinAvailable = &two, &two }, "22", "4"},
		{"beyond the minimums: of the first that has more", 5, func(j *batch.JobSpec) { j.Tasks[1].MinAvailable = &two }, "32", "5"},
		{"no minimum", 0, nil, "", ""},
	} {
		b := newBook()
		b.classSeen(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 7}, false)
		j := &batch.JobSpec{MinAvailable: c.least, Tasks: []batch.TaskSpec{{Name: "a", Replicas: 2, Template: template()}, {Name: "b", Replicas: 3, Template: template()}}}
		j.Tasks[0].Template.Spec.Containers[0].Resources.Requests = list("cpu=1")
		j.Tasks[1].Template.Spec.Containers[0].Resources.Requests = list("cpu=10")
		if c.edit != nil {
			c.edit(j)
		}
		want := corev1.ResourceList{}
		if c.cpu != "" {
			want = list("cpu=" + c.cpu + " requests.cpu=" + c.cpu + " pods=" + c.number + " count/pods=" + c.number)
		}
		if d := cmp.Diff(want, b.minResources(j)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, d)
		}
	}
}

// TestGroup: what a PodGroup takes from its Job when it is made, and what of it follows the Job later.
func TestGroup(t *testing.T) {
	t.Parallel()
	tier := 2
	j := job(func(j *batch.Job) {
		j.UID, j.Labels, j.Annotations = "u", map[string]string{"l": "1"}, map[string]string{"a": "1"}
		j.Spec.PriorityClassName = "high"
		j.Spec.NetworkTopology = &batch.NetworkTopologySpec{Mode: "hard", HighestTierAllowed: &tier, HighestTierName: "rack"}
		j.Spec.Tasks[1].PartitionPolicy = &batch.PartitionPolicySpec{
			TotalPartitions: 2, PartitionSize: 1, MinPartitions: 1, NetworkTopology: &batch.NetworkTopologySpec{Mode: "soft", HighestTierName: "host"},
		}
	})
	b := newBook()
	g := b.groupFor(j, nil).group
	one := int32(1)
	want := &scheduling.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j-u", Labels: j.Labels, Annotations: j.Annotations, OwnerReferences: ownedBy(j)},
		Spec: scheduling.PodGroupSpec{
			MinMember: 3, MinTaskMember: map[string]int32{"ps": 1, "w": 1}, Queue: "default", PriorityClassName: "high", MinResources: g.Spec.MinResources,
			NetworkTopology: &scheduling.NetworkTopologySpec{Mode: "hard", HighestTierAllowed: &tier},
			SubGroupPolicy: []scheduling.SubGroupPolicySpec{{
				Name: "w", SubGroupSize: &one, MinSubGroups: &one, NetworkTopology: &scheduling.NetworkTopologySpec{Mode: "soft", HighestTierName: "host"},
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"volcano.sh/task-spec": "w"}}, MatchLabelKeys: []string{"volcano.sh/partition-id"},
			}},
		},
	}
	if d := cmp.Diff(want, g); d != "" {
		t.Errorf("made (-want +got):\n%s", d)
	}
	g.UID = "g"
	if w := b.groupFor(j, g); w != nil {
		t.Errorf("it is up to date, and %s is written", w.patch)
	}
	for what, c := range map[string]struct {
		edit func(*batch.Job)
		want string // in the patch; empty: nothing is written
	}{
		"the minimum":      {func(j *batch.Job) { j.Spec.MinAvailable = 2 }, `"minMember":2`},
		"the priority":     {func(j *batch.Job) { j.Spec.PriorityClassName = "low" }, `"priorityClassName":"low"`},
		"a task":           {func(j *batch.Job) { j.Spec.Tasks[0].Replicas = 4 }, `"minTaskMember":{"ps":4}`},
		"a partition":      {func(j *batch.Job) { j.Spec.Tasks[1].PartitionPolicy.PartitionSize = 2 }, `"subGroupSize":2`},
		"the queue":        {func(j *batch.Job) { j.Spec.Queue = "other" }, ""},
		"the topology":     {func(j *batch.Job) { j.Spec.NetworkTopology = nil }, ""},
		"labels":           {func(j *batch.Job) { j.Labels = nil }, ""},
		"a task that went": {func(j *batch.Job) { j.Spec.Tasks[0].Name = "new" }, `"minTaskMember":{"new":1}`},
	} {
		other := j.DeepCopy()
		c.edit(other)
		w := b.groupFor(other, g)
		switch {
		case c.want == "" && w != nil:
			t.Errorf("%s: %s is written", what, w.patch)
		case c.want != "" && (w == nil || !strings.Contains(string(w.patch), c.want) || !strings.Contains(string(w.patch), `"uid":"g"`)):
			t.Errorf("%s: %+v, want %s", what, w, c.want)
		}
	}
}

// TestPodCarries: what a pod has from its Job besides what every pod has.
func TestPodCarries(t *testing.T) {
	t.Parallel()
	j := job(func(j *batch.Job) {
		j.Spec.PriorityClassName = "high"
		j.Annotations = map[string]string{
			keys.Preemptable: "true", keys.CooldownTime: "5m", keys.RevocableZone: "*", keys.JDBMinAvailable: "1", keys.JDBMaxUnavailable: "2", "other": "no",
		}
		j.Labels = map[string]string{keys.Preemptable: "false", "other": "no"}
		j.Spec.Tasks[1].PartitionPolicy = &batch.PartitionPolicySpec{TotalPartitions: 2, PartitionSize: 2}
		j.Spec.Tasks[1].TopologyPolicy = "best-effort"
		j.Spec.Tasks[1].Template.Annotations = map[string]string{"mine": "1"}
		j.Status.Version, j.Status.RetryCount = 4, 2
	})
	p := podOf(j, &j.Spec.Tasks[1], 5, jobPlugins{}, "g", rules{})
	if p.Spec.PriorityClassName != "high" || p.Spec.SchedulerName != "volcano" || p.Name != "j-w-5" {
		t.Errorf("%s: %s, %s", p.Name, p.Spec.PriorityClassName, p.Spec.SchedulerName)
	}
	if d := cmp.Diff(map[string]string{
		"mine": "1", "volcano.sh/preemptable": "true", "volcano.sh/cooldown-time": "5m", "volcano.sh/revocable-zone": "*", "volcano.sh/jdb-min-available": "1",
		"volcano.sh/numa-topology-policy": "best-effort", "volcano.sh/task-index": "5", "volcano.sh/task-spec": "w", "scheduling.k8s.io/group-name": "g",
		"volcano.sh/job-name": "j", "volcano.sh/queue-name": "default", "volcano.sh/job-version": "4", "volcano.sh/template-uid": "j-w", "volcano.sh/job-retry-count": "2",
	}, p.Annotations); d != "" {
		t.Errorf("annotations (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]string{
		"volcano.sh/preemptable": "false", "volcano.sh/task-index": "5", "volcano.sh/task-spec": "w", "volcano.sh/job-name": "j", "volcano.sh/job-namespace": "default",
		"volcano.sh/queue-name": "default", "volcano.sh/partition-id": "2",
	}, p.Labels); d != "" {
		t.Errorf("labels (-want +got):\n%s", d)
	}
}

// TestScale: pods follow the number that the Job asks for, down and up, and what the plugin svc tells of them does.
func TestScale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.start()
		j := job(func(j *batch.Job) { j.Spec.MinAvailable, j.Spec.Plugins = 1, map[string][]string{"svc": nil} })
		w.up(j)
		hosts := func(want string) {
			t.Helper()
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j-svc"}}
			if w.Get(m); m.Data["VC_W_HOSTS"] != want {
				t.Errorf("hosts %q, want %q", m.Data["VC_W_HOSTS"], want)
			}
		}
		hosts("j-w-0.j,j-w-1.j")
		scale := func(n int32) {
			kubetest.Edit(w.Server, w.job(), func(j *batch.Job) { j.Spec.Tasks[1].Replicas = n })
			pass(time.Second)
			w.gone()
		}
		scale(1)
		if got := pods(w.Server); got != "ps-0@0 w-0@0" {
			t.Errorf("down: %s", got)
		}
		hosts("j-w-0.j")
		scale(2)
		if got := pods(w.Server); got != "ps-0@0 w-0@0 w-1@0" {
			t.Errorf("up: %s", got)
		}
		hosts("j-w-0.j,j-w-1.j")
		if is := w.is(batch.Running).Status; is.RetryCount != 0 || is.Version != 0 {
			t.Errorf("%+v", is)
		}
		w.Writes()
		if pass(time.Hour); w.wrote() != "" {
			t.Error("something is written at rest")
		}
	})
}

// TestStrangers: a ConfigMap and a pod of somebody else, by the names that the Job's would have, are left alone.
func TestStrangers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j-svc"}, Data: map[string]string{"mine": "1"}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j-w-0"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}}
		w.Put(theirs, pod)
		w.start()
		j := job(func(j *batch.Job) { j.Spec.Plugins = map[string][]string{"svc": nil} })
		w.Put(j)
		pass(time.Second)
		admit(w.Server, j)
		pass(time.Minute)
		w.Get(theirs)
		w.Get(pod)
		if len(theirs.Data) != 1 || len(pod.OwnerReferences) != 0 || pod.Annotations != nil {
			t.Errorf("they are changed: %v, %+v", theirs.Data, pod.ObjectMeta)
		}
		if is := w.is(batch.Pending).Status; is.Pending != 2 || is.Failed != 0 {
			t.Errorf("%+v", is)
		}
	})
}
