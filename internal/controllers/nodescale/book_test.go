package nodescale

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/engine/builtin"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// sharerPod is a pod of gang ns/gang that shares half a GPU and has been marked as unschedulable.
func sharerPod(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name),
			Annotations: map[string]string{keys.GPUFractionAnnotation: "0.5", keys.PodGroupAnnotation: "gang"},
		},
		Spec: corev1.PodSpec{SchedulerName: keys.SchedulerName, Containers: []corev1.Container{{
			Name: "c", Image: "any", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		}}},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

func scheduled(status corev1.ConditionStatus, reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Conditions[0].Status, p.Status.Conditions[0].Reason = status, reason }
}

// groupThat is PodGroup ns/gang that waits for the reasons given, the last being the latest.
func groupThat(reasons ...v2alpha2.UnschedulableReason) *v2alpha2.PodGroup {
	pg := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang"}}
	for i, r := range reasons {
		pg.Status.SchedulingConditions = append(pg.Status.SchedulingConditions, v2alpha2.SchedulingCondition{
			Type: v2alpha2.UnschedulableOnNodePool, Status: corev1.ConditionTrue, NodePool: string(rune('a' + i)), TransitionID: string(rune('1' + i)),
			Reasons: v2alpha2.UnschedulableExplanations{{Reason: r}},
		})
	}
	return pg
}

// TestWhoIsAskedFor: a node is what the pod waits for, as far as anybody has said.
func TestWhoIsAskedFor(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	tests := map[string]struct {
		pod     *corev1.Pod
		group   *v2alpha2.PodGroup
		binding bool
		want    standing
	}{
		"marked":                  {pod: sharerPod("p"), want: waiting},
		"no room":                 {pod: sharerPod("p"), group: groupThat("GangNoRoom"), want: waiting},
		"in its delay":            {pod: sharerPod("p"), group: groupThat("GangNoRoom", v2alpha2.ReasonPreemptionDelayNotElapsed), want: waiting},
		"a reason of others":      {pod: sharerPod("p"), group: groupThat("SomethingElse"), want: waiting},
		"over its limit":          {pod: sharerPod("p"), group: groupThat(v2alpha2.ReasonOverLimit), want: blocked},
		"over quota":              {pod: sharerPod("p"), group: groupThat(v2alpha2.ReasonNonPreemptibleOverQuota), want: blocked},
		"without a queue":         {pod: sharerPod("p"), group: groupThat(v2alpha2.ReasonQueueDoesNotExist), want: blocked},
		"blocked in another pool": {pod: sharerPod("p"), group: groupThat(v2alpha2.ReasonOverLimit, "GangNoRoom"), want: waiting},
		"marked as blocked":       {pod: sharerPod("p", scheduled(corev1.ConditionFalse, "OverLimit")), want: blocked},
		"not marked yet":          {pod: sharerPod("p", func(p *corev1.Pod) { p.Status.Conditions = nil }), want: blocked},
		"gated":                   {pod: sharerPod("p", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }), want: blocked},
		"going":                   {pod: sharerPod("p", func(p *corev1.Pod) { p.DeletionTimestamp = &now }), want: blocked},
		"bound":                   {pod: sharerPod("p", scheduled(corev1.ConditionTrue, ""), func(p *corev1.Pod) { p.Spec.NodeName = "n" }), want: placed},
		"room is promised":        {pod: sharerPod("p", func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }), want: placed},
		"being bound":             {pod: sharerPod("p"), binding: true, want: placed},
		"ended":                   {pod: sharerPod("p", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), want: absent},
		"of another scheduler":    {pod: sharerPod("p", func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }), want: absent},
		"whole GPUs":              {pod: sharerPod("p", func(p *corev1.Pod) { delete(p.Annotations, keys.GPUFractionAnnotation) }), want: absent},
		"no such share":           {pod: sharerPod("p", annotated(keys.GPUFractionAnnotation, "NaN")), want: absent},
		"absurd devices":          {pod: sharerPod("p", annotated(keys.GPUFractionDevicesAnnotation, "99999999999")), want: absent},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBook(DefaultOptions(), builtin.Registry().NodesHelp())
			if tc.group != nil {
				b.groupSeen(tc.group, false)
			}
			if tc.binding {
				b.requestSeen("ns", "p", "r", false)
			}
			b.podSeen(tc.pod)
			if got := b.look(named("p")); got != tc.want {
				t.Errorf("standing %d, want %d", got, tc.want)
			}
			if d, _ := b.state(); (len(d) == 1) != (tc.want == waiting) {
				t.Errorf("demands %+v", d)
			}
		})
	}
}

// TestBookForgets: what is gone leaves nothing, and only news is news.
func TestBookForgets(t *testing.T) {
	t.Parallel()
	b := newBook(DefaultOptions(), builtin.Registry().NodesHelp())
	pod, pg := sharerPod("p"), groupThat(v2alpha2.ReasonOverLimit)
	o := DefaultOptions()
	scaling := o.newPod(pod, 1, true)
	for _, step := range []struct {
		what string
		do   func() bool
		news bool
	}{
		{"a pod", func() bool { return b.podSeen(pod) }, true},
		{"the same", func() bool { return b.podSeen(sharerPod("p")) }, false},
		{"another share", func() bool { return b.podSeen(sharerPod("p", annotated(keys.GPUFractionAnnotation, "0.6"))) }, true},
		{"a gang", func() bool { return b.groupSeen(pg, false) }, true},
		{"again", func() bool { return b.groupSeen(pg, false) }, false},
		{"it is gone", func() bool { return b.groupSeen(pg, true) }, true},
		{"a request", func() bool { return b.requestSeen("ns", "p", "1", false) }, true},
		{"a newer one", func() bool { return b.requestSeen("ns", "p", "2", false) }, false},
		{"the older is gone", func() bool { return b.requestSeen("ns", "p", "1", true) }, false},
		{"the newer, too", func() bool { return b.requestSeen("ns", "p", "2", true) }, true},
		{"a scaling pod", func() bool { return b.podSeen(scaling) }, true},
		{"the same", func() bool { return b.podSeen(scaling.DeepCopy()) }, false},
		{"it is gone", func() bool { return b.podGone(scaling) }, true},
		{"of somebody else", func() bool { return b.podSeen(sharerPod("q", func(p *corev1.Pod) { p.Spec.SchedulerName = "x" })) }, false},
		{"the pod ends", func() bool {
			return b.podSeen(sharerPod("p", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
		}, true},
		{"and is gone", func() bool { return b.podGone(pod) }, false},
	} {
		if got := step.do(); got != step.news {
			t.Errorf("%s: news %v", step.what, got)
		}
	}
	if n := len(b.sharers) + len(b.blocked) + len(b.binding) + len(b.asks); n != 0 {
		t.Errorf("%d things are left", n)
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

// TestGoldenPod: a scaling pod of Muster's own image is testdata/pod.yaml, whose command line is run against the image itself (make
// test-image). -update writes it anew.
func TestGoldenPod(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.Image = "registry.example/muster/muster:v1"
	p := o.newPod(sharerPod("p"), 1, true)
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	got, err := yaml.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/pod.yaml"
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs (-file +now); if it is right, run with -update\n%s", file, d)
	}
}

// TestScalingPod: what a scaling pod is made of, and that it is read back as what it is.
func TestScalingPod(t *testing.T) {
	t.Parallel()
	term := func() corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
	}
	o := DefaultOptions()
	o.Namespace, o.App, o.ServiceAccount, o.Image, o.NodePoolLabel = "scale", "app", "sa", "image:tag", "pool"
	source := sharerPod("p", annotated(keys.GPUFractionDevicesAnnotation, "3"), func(p *corev1.Pod) {
		p.Labels = map[string]string{"pool": "blue"}
		p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		p.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term()}}}
	})
	before := source.DeepCopy()
	p := o.newPod(source, 3, true)
	if d := cmp.Diff(before, source); d != "" {
		t.Errorf("the source was changed: %s", d)
	}
	if p.Namespace != "scale" || p.Name != "ns-p" || p.Spec.ServiceAccountName != "sa" || p.Spec.Containers[0].Image != "image:tag" ||
		p.Spec.SchedulerName != "" || p.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		t.Errorf("%+v", p)
	}
	if d := cmp.Diff(map[string]string{"app": "app", "shared-gpu-pod-name": "p", "shared-gpu-pod-namespace": "ns"}, p.Labels); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{"disk": "ssd", "pool": "blue"}, p.Spec.NodeSelector); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"ns"}, p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].Namespaces); d != "" {
		t.Error(d)
	}
	want := corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"), "nvidia.com/gpu": resource.MustParse("3")}
	if d := cmp.Diff(want, p.Spec.Containers[0].Resources.Requests); d != "" {
		t.Error(d)
	}
	b := newBook(o, builtin.Registry().NodesHelp())
	b.podSeen(source)
	demands, _ := b.state()
	a := askOf(p)
	if !o.ours(p) || a.source != named("p") || a.devices != 3 || len(demands) != 1 || a.shape != demands[0].shape || a.ended || a.going {
		t.Errorf("read back as %+v, of %+v", a, demands)
	}

	long := sharerPod(strings.Repeat("x", 253))
	q := o.newPod(long, 1, true)
	if len(q.Name) > 253 || q.Labels[keys.ScalingPodSourceLabel] != "" || askOf(q).source.Name != long.Name {
		t.Errorf("a long name: %q stands for %q", q.Name, askOf(q).source.Name)
	}
	if podName(named("p"), true) == podName(named("p"), false) {
		t.Error("the two names are one")
	}
	kais := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "scale", Name: "ns-p", Labels: p.Labels}}
	if got := askOf(kais); got.source != named("p") {
		t.Errorf("KAI's stands for %v", got.source)
	}
}

func TestMemoryRatio(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.MemoryRatio = 0.25
	b := newBook(o, builtin.Registry().NodesHelp())
	b.podSeen(sharerPod("p", func(p *corev1.Pod) {
		delete(p.Annotations, keys.GPUFractionAnnotation)
		p.Annotations[keys.GPUMemoryAnnotation] = "4096"
	}))
	if demands, _ := b.state(); len(demands) != 1 || demands[0].portion != 250_000 {
		t.Errorf("%+v", demands)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	if err := DefaultOptions().Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Options){
		"scheduler-name":               func(o *Options) { o.SchedulerNames = nil },
		"scale-adjust-namespace":       func(o *Options) { o.Namespace = "A_b" },
		"scaling-pod-app-label":        func(o *Options) { o.App = "a b" },
		"scaling-pod-service-account":  func(o *Options) { o.ServiceAccount = "" },
		"scaling-pod-image":            func(o *Options) { o.Image = " " },
		"gpu-memory-to-fraction-ratio": func(o *Options) { o.MemoryRatio = 0 },
	} {
		o := DefaultOptions()
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestForgedScalingPodIsNone: a pod that looks like a scaling pod in every word, and is not where they are, stands for nobody: it takes no
// other's place, is not deleted for us, and is no reason to ask for nothing.
func TestForgedScalingPodIsNone(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	b := newBook(o, builtin.Registry().NodesHelp())
	b.podSeen(sharerPod("a"))
	forged := o.newPod(sharerPod("a"), 1, true)
	forged.Namespace, forged.UID, forged.Status.Phase = "eve", "forged", corev1.PodSucceeded
	b.podSeen(forged)
	demands, asks := b.state()
	if len(demands) != 1 || len(asks) != 0 {
		t.Errorf("%d demands, scaling pods %+v", len(demands), asks)
	}
	real := o.newPod(sharerPod("a"), 1, true)
	b.podSeen(real)
	b.podGone(forged) // of the same name
	if _, asks = b.state(); len(asks) != 1 {
		t.Errorf("scaling pods %+v", asks)
	}
}
