package volcano

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ours "github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// bare is a pod of a Job in queue q.
func bare(edit func(*corev1.Pod)) *corev1.Pod {
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: "p", UID: "u-p", Annotations: map[string]string{keys.QueueName: "q"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "u-j", Controller: &yes}},
		},
		Spec: corev1.PodSpec{PriorityClassName: "high", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}}}}},
	}
	if edit != nil {
		edit(p)
	}
	return p
}

// TestSaysAll: the PodGroup of a pod follows from the pod alone where it names its queue, asks for no topology, and its controller neither says how many start together nor anything that goes to the PodGroup.
func TestSaysAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit  func(*corev1.Pod)
		owner map[string]string
		want  bool
	}{
		"a Job":                      {nil, nil, true},
		"nobody's":                   {func(p *corev1.Pod) { p.OwnerReferences = nil }, nil, true},
		"one of it":                  {nil, map[string]string{keys.GroupMinMember: "1", "theirs": "x", keys.QueueName: "r"}, true},
		"no number":                  {nil, map[string]string{keys.GroupMinMember: "x"}, true},
		"two of it":                  {nil, map[string]string{keys.GroupMinMember: "2"}, false},
		"none of it":                 {nil, map[string]string{keys.GroupMinMember: "0"}, false},
		"what is inherited":          {nil, map[string]string{keys.SLAWaitingTime: "1h"}, false},
		"no queue":                   {func(p *corev1.Pod) { delete(p.Annotations, keys.QueueName) }, nil, false},
		"what a namespace may name":  {func(p *corev1.Pod) { p.Annotations[keys.QueueName] = keys.DefaultQueue }, nil, false},
		"topology":                   {func(p *corev1.Pod) { p.Annotations[keys.NetworkTopologyMode] = "soft" }, nil, false},
		"no object of an API server": {func(p *corev1.Pod) { p.UID = "" }, nil, false},
	} {
		p := bare(c.edit)
		if got := SaysAll(p, c.owner); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if d := cmp.Diff(GroupOf(p, nil, true), GroupOf(p, c.owner, true)); c.want && d != "" {
			t.Errorf("%s: the controller adds something to the PodGroup:\n%s", name, d)
		}
	}
}

// TestOwn: a pod that was told so does without a PodGroup that is made as the controller makes it; a text of another pod, or with another PodGroup's name beside it, is nothing.
func TestOwn(t *testing.T) {
	t.Parallel()
	told := func(edit func(*corev1.Pod)) *corev1.Pod {
		return bare(func(p *corev1.Pod) {
			p.Annotations[ours.OwnGangAnnotation] = OwnText(p)
			if edit != nil {
				edit(p)
			}
		})
	}
	for name, edit := range map[string]func(*corev1.Pod){
		"told": nil, "and named": func(p *corev1.Pod) { p.Annotations[keys.GroupName] = "podgroup-u-j" }, "bound": func(p *corev1.Pod) { p.Spec.NodeName = "n" },
	} {
		p := told(edit)
		want := GroupOf(p, nil, true)
		want.UID = "u-j"
		if d := cmp.Diff(want, Own(p)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	for name, edit := range map[string]func(*corev1.Pod){
		"another pod's":      func(p *corev1.Pod) { p.UID = "u-q" },
		"another PodGroup's": func(p *corev1.Pod) { p.Annotations[keys.GroupName] = "g" },
		"no text":            func(p *corev1.Pod) { delete(p.Annotations, ours.OwnGangAnnotation) },
		"KAI's text": func(p *corev1.Pod) {
			p.Annotations[ours.OwnGangAnnotation] = `{"pod":"u-p","name":"g","spec":{"queue":"q"}}`
		},
		"no queue": func(p *corev1.Pod) { delete(p.Annotations, keys.QueueName) },
	} {
		if got := Own(told(edit)); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if SaysOwn(nil) {
		t.Error("no pod says something")
	}
}

// TestFresh: whoever makes an object with a status leaves nothing to be changed to that status.
func TestFresh(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(time.Unix(1e9, 0))
	for _, s := range []Status{
		{Phase: v1beta1.PodGroupRunning, Running: 1, Placed: true},
		{Phase: v1beta1.PodGroupCompleted, Succeeded: 1, Placed: true, Settled: true},
		{Phase: v1beta1.PodGroupPending, Reason: "r", Message: "m"},
	} {
		fresh := s.Fresh(now)
		if patch, changed := s.Over(&fresh, now); changed {
			t.Errorf("%+v: %v is left", s, patch)
		}
		if fresh.Phase != s.Phase || len(fresh.Conditions) != 1 {
			t.Errorf("%+v became %+v", s, fresh)
		}
	}
}
