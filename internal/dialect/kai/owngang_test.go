package kai

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestOwnGang: what a pod is by itself is what its PodGroup would be, and nothing that anybody else could have meant.
func TestOwnGang(t *testing.T) {
	t.Parallel()
	one, two := int32(1), int32(2)
	wanted := &v2alpha2.PodGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "pg-p-u", Labels: map[string]string{DefaultNodePoolKey: "gold", "other": "x"},
			OwnerReferences: []metav1.OwnerReference{{UID: "job"}},
		},
		Spec: v2alpha2.PodGroupSpec{MinMember: &one, Queue: "q", PriorityClassName: "train", PreemptionDelay: &metav1.Duration{Duration: time.Minute}},
	}
	made := metav1.NewTime(time.Unix(1e9, 0))
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", CreationTimestamp: made, Annotations: map[string]string{keys.DecidedAnnotation: "2026-11-25T22:00:00.5Z"}}}
	p.Annotations[keys.OwnGangAnnotation] = WriteOwnGang(p, wanted, DefaultNodePoolKey)
	want := wanted.DeepCopy()
	want.UID, want.CreationTimestamp, want.OwnerReferences = "job", made, nil
	delete(want.Labels, "other")
	if d := cmp.Diff(want, OwnGang(p)); d != "" {
		t.Error(d)
	}
	p.Spec.NodeName = "n" // now the annotation is the scheduler's
	if got, want := Gang(OwnGang(p), &Priorities{}, "").LastStart, cluster.InstantOf(time.Date(2026, 11, 25, 22, 0, 0, 5e8, time.UTC)); got != want {
		t.Errorf("it started at %d, want %d", got.UnixNano(), want.UnixNano())
	}
	for name, change := range map[string]func(p *v1.Pod){
		"it names a PodGroup": func(p *v1.Pod) { p.Annotations[PodGroupAnnotation] = "g" },
		"it is another pod":   func(p *v1.Pod) { p.UID = "v" },
		"no JSON":             func(p *v1.Pod) { p.Annotations[keys.OwnGangAnnotation] = "{" },
		"cut off":             func(p *v1.Pod) { p.Annotations[keys.OwnGangAnnotation] = p.Annotations[keys.OwnGangAnnotation][:40] },
		"without a queue":     func(p *v1.Pod) { p.Annotations[keys.OwnGangAnnotation] = `{"pod":"u","name":"g"}` },
		"without a name":      func(p *v1.Pod) { p.Annotations[keys.OwnGangAnnotation] = `{"pod":"u","spec":{"queue":"q"}}` },
	} {
		p := p.DeepCopy()
		if change(p); OwnGang(p) != nil {
			t.Errorf("%s: %+v", name, OwnGang(p))
		}
	}
	for name, change := range map[string]func(pg *v2alpha2.PodGroup){
		"two pods":     func(pg *v2alpha2.PodGroup) { pg.Spec.MinMember = &two },
		"subgroups":    func(pg *v2alpha2.PodGroup) { pg.Spec.SubGroups = make([]v2alpha2.SubGroup, 1) },
		"of subgroups": func(pg *v2alpha2.PodGroup) { pg.Spec.MinSubGroup = &one },
		"no queue":     func(pg *v2alpha2.PodGroup) { pg.Spec.Queue = "" },
		"too long":     func(pg *v2alpha2.PodGroup) { pg.Spec.PriorityClassName = strings.Repeat("x", maxOwnGang) },
	} {
		pg := wanted.DeepCopy()
		if change(pg); WriteOwnGang(p, pg, DefaultNodePoolKey) != "" {
			t.Errorf("%s: it is said", name)
		}
	}
}

// TestOwnGangs: who asks again is answered as who asks first, whatever changed of the pod, and of which pod was asked before.
func TestOwnGangs(t *testing.T) {
	t.Parallel()
	wanted := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g"}, Spec: v2alpha2.PodGroupSpec{Queue: "q"}}
	first := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Annotations: map[string]string{}}}
	first.Annotations[keys.OwnGangAnnotation] = WriteOwnGang(first, wanted, DefaultNodePoolKey)
	pods := []*v1.Pod{first, {}}
	for _, change := range []func(p *v1.Pod){
		func(p *v1.Pod) {},
		func(p *v1.Pod) { p.Namespace = "other" },
		func(p *v1.Pod) { p.UID = "v" },
		func(p *v1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Unix(1e9, 0)) },
		func(p *v1.Pod) { p.Spec.NodeName = "n" },
		func(p *v1.Pod) {
			p.Spec.NodeName, p.Annotations[keys.DecidedAnnotation] = "n", "2026-11-25T22:00:00.5Z"
		},
		func(p *v1.Pod) { p.Annotations[PodGroupAnnotation] = "g" },
		func(p *v1.Pod) {
			p.Spec.NodeName, p.Annotations[PodGroupAnnotation], p.Annotations[keys.ChargedAnnotation] = "n", "x", "q/g"
		},
		func(p *v1.Pod) {
			p.Spec.NodeName, p.Annotations[PodGroupAnnotation], p.Annotations[keys.ChargedAnnotation] = "n", "x", "q/x"
		},
		func(p *v1.Pod) { p.Annotations[keys.OwnGangAnnotation] = "{" },
		func(p *v1.Pod) { p.Annotations[keys.OwnGangAnnotation] = `{"pod":"u","name":"g","spec":{"queue":7}}` },
		func(p *v1.Pod) { p.Annotations[keys.OwnGangAnnotation] = `{"pod":"u","name":"h","spec":{"queue":"r"}}` },
	} {
		p := first.DeepCopy()
		change(p)
		pods = append(pods, p)
	}
	var g OwnGangs
	for i, before := range pods {
		for j, p := range pods {
			g.Of(before)
			if d := cmp.Diff(OwnGang(p), g.Of(p)); d != "" {
				t.Errorf("pod %d after pod %d: %s", j, i, d)
			}
		}
	}
	if g.Of(first) != g.Of(first.DeepCopy()) {
		t.Error("the same is read twice")
	}
}
