package tenants

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// stage is a cluster of one node of eight GPUs, with the queues mean (quota 2, limit 4) and good (quota 4).
type stage struct {
	*Auditor
	now time.Time
}

func newStage() *stage {
	s := &stage{NewAuditor(Audit{Tenants: map[string][]string{"eve": {"mean"}}, Honest: []string{"fair"}, Enforce: true, Authorize: true, Charge: "charge"}), time.Unix(1e9, 0)}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Status.Allocatable = corev1.ResourceList{keys.GPUResource: resource.MustParse("8"), "cpu": resource.MustParse("64"), "memory": resource.MustParse("1Ti"), "pods": resource.MustParse("100")}
	s.Seen(node, false, s.now)
	for name, n := range map[string][2]float64{"mean": {2, 4}, "good": {4, -1}} {
		q := &queuev2.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}
		q.Spec.Resources = &queuev2.QueueResources{GPU: queuev2.QueueResource{Quota: n[0], Limit: n[1]}}
		s.Seen(q, false, s.now)
	}
	return s
}

// gang makes a PodGroup known, as it was for a minute.
func (s *stage) gang(ns, name, queue string, least int32, p v2alpha2.Preemptibility) {
	g := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	g.Spec = v2alpha2.PodGroupSpec{Queue: queue, MinMember: ptr.To(least), Preemptibility: p}
	s.Seen(g, false, s.now)
	s.now = s.now.Add(time.Minute)
}

// pod is one of the gang, of so many GPUs, on the node.
func (s *stage) pod(ns, name, gang, gpus string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(ns + name), Labels: map[string]string{}, Annotations: map[string]string{keys.PodGroupAnnotation: gang}}}
	p.Spec.SchedulerName = keys.SchedulerName
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{keys.GPUResource: resource.MustParse(gpus)}}}}
	return p
}

// byItself is a pod of so many GPUs that is a gang by itself.
func (s *stage) byItself(ns, name, queue, gpus string) *corev1.Pod {
	p := s.pod(ns, name, "", gpus)
	delete(p.Annotations, keys.PodGroupAnnotation)
	p.Annotations[keys.OwnGangAnnotation] = `{"pod":"` + ns + name + `","name":"pg-` + name + `","uid":"u","spec":{"queue":"` + queue + `"}}`
	p.Annotations["charge"] = queue + "/pg-" + name
	s.Seen(p.DeepCopy(), false, s.now)
	s.now = s.now.Add(time.Minute)
	return p
}

// binds lets us decide for the pod, and bind it.
func (s *stage) binds(p *corev1.Pod) *corev1.Pod {
	s.Seen(p.DeepCopy(), false, s.now)
	r := &v1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: "r" + p.UID, OwnerReferences: []metav1.OwnerReference{{UID: p.UID}}}}
	r.Spec.SelectedNode = "n"
	s.Seen(r, false, s.now)
	return s.appears(p)
}

// appears shows the pod on the node.
func (s *stage) appears(p *corev1.Pod) *corev1.Pod {
	p.Spec.NodeName = "n"
	s.Seen(p.DeepCopy(), false, s.now)
	return p
}

// wants fails the test unless exactly violations of these kinds are found, a minute later.
func (s *stage) wants(t *testing.T, kinds ...string) {
	t.Helper()
	s.Check(s.now)
	s.now = s.now.Add(time.Minute)
	s.Check(s.now)
	var got []string
	for _, v := range s.Violations() {
		got = append(got, v.Kind())
	}
	if strings.Join(got, "\n") != strings.Join(kinds, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(kinds, "\n"))
	}
}

// status says what a queue's status says.
func (s *stage) status(queue, gpus string) {
	q := s.queues[queue].DeepCopy()
	q.Status.Allocated = corev1.ResourceList{keys.GPUResource: resource.MustParse(gpus)}
	s.Seen(q, false, s.now)
}

// TestAuditor breaks each promise, and keeps it just so. An audit that none of its histories brings out fails it.
func TestAuditor(t *testing.T) {
	var stages []*stage
	newStage := func() *stage {
		s := newStage()
		stages = append(stages, s)
		return s
	}
	t.Run("all is well", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		s.binds(s.pod("eve", "a", "g", "4"))
		s.status("mean", "4")
		s.wants(t)
	})
	t.Run("beyond a limit", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		first := s.binds(s.pod("eve", "a", "g", "4"))
		first.Annotations[keys.PodGroupAnnotation] = "nothing" // what became of it afterwards does not count
		s.Seen(first, false, s.now)
		s.binds(s.pod("eve", "b", "g", "1"))
		s.status("mean", "5")
		s.wants(t, "S4: bound beyond a limit: queue")
	})
	for _, c := range []struct {
		name, was string // the gang that it says last before it is bound for g
		ago       time.Duration
		want      []string
	}{
		{"decided before it went to another gang", "h", time.Second, nil},
		{"charged to a gang that it left long ago", "h", time.Minute, []string{"charge: bound for one queue, charged"}},
		{"charged to a gang that it never said", "g", time.Minute, []string{"charge: bound for one queue, charged"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage()
			s.o.Authorize = false
			s.gang("eve", "g", "mean", 1, "")
			s.gang("eve", "h", "good", 1, "")
			p := s.pod("eve", "a", c.was, "1")
			s.Seen(p.DeepCopy(), false, s.now)
			p.Annotations[keys.PodGroupAnnotation] = "g"
			s.Seen(p.DeepCopy(), false, s.now)
			s.now = s.now.Add(c.ago)
			p.Annotations["charge"] = "good/h"
			s.binds(p)
			if s.pods[p.UID].queue == "good" {
				s.status("good", "1")
			} else {
				s.status("mean", "1")
			}
			s.wants(t, c.want...)
		})
	}
	t.Run("beyond a limit because of one that leaves", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		first := s.binds(s.pod("eve", "a", "g", "4"))
		first.DeletionTimestamp = &metav1.Time{Time: s.now.Add(time.Second)}
		s.Seen(first, false, s.now)
		s.binds(s.pod("eve", "b", "g", "1"))
		s.status("mean", "5")
		s.wants(t)
		first.DeletionTimestamp = &metav1.Time{Time: s.now.Add(time.Hour)}
		s.Seen(first, false, s.now)
		s.binds(s.pod("eve", "c", "g", "1"))
		s.status("mean", "6")
		s.wants(t, "S4, by pods that are leaving: bound beyond a limit: queue")
	})
	t.Run("beyond a limit until the victim has gone", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		first := s.binds(s.pod("eve", "a", "g", "4"))
		s.binds(s.pod("eve", "b", "g", "1"))
		s.Seen(first, true, s.now.Add(time.Second))
		s.status("mean", "1")
		s.wants(t)
	})
	t.Run("beyond a quota as non-preemptible", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, v2alpha2.NonPreemptible)
		s.binds(s.pod("eve", "a", "g", "3"))
		s.status("mean", "3")
		s.wants(t, "S4: bound beyond a quota as", "S6: running pods became non-preemptible beyond")
	})
	t.Run("beyond a quota as non-preemptible, beside one that ends", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, v2alpha2.NonPreemptible)
		first := s.binds(s.pod("eve", "a", "g", "2"))
		s.now = s.now.Add(time.Minute)
		s.binds(s.pod("eve", "b", "g", "1"))
		s.Seen(first, true, s.now.Add(time.Second))
		s.status("mean", "1")
		s.wants(t, "S4: bound beyond a quota as")
	})
	t.Run("beyond a quota, non-preemptible until a moment before", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, v2alpha2.NonPreemptible)
		s.binds(s.pod("eve", "a", "g", "3"))
		s.gang("eve", "g", "mean", 1, "") // the watch of PodGroups tells it after that of pods
		s.status("mean", "3")
		s.wants(t)
	})
	t.Run("a node that is full", func(t *testing.T) {
		s := newStage()
		s.gang("fair", "g", "good", 1, "")
		s.binds(s.pod("fair", "a", "g", "8"))
		s.binds(s.pod("fair", "b", "g", "1"))
		s.status("good", "9")
		s.wants(t, "S3: bound where there is too")
	})
	t.Run("somebody else took the room", func(t *testing.T) {
		s := newStage()
		s.gang("fair", "g", "good", 1, "")
		other := s.pod("eve", "x", "", "8")
		other.Spec.SchedulerName = ""
		s.appears(other)
		s.binds(s.pod("fair", "b", "g", "1"))
		s.status("good", "1")
		s.wants(t)
	})
	t.Run("nobody decided", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		p := s.pod("eve", "a", "g", "1")
		s.Seen(p.DeepCopy(), false, s.now)
		s.appears(p)
		s.status("mean", "1")
		s.wants(t, "S1: it was bound to n,")
	})
	t.Run("it stands alone", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		p := s.pod("eve", "a", "g", "1")
		s.Seen(p.DeepCopy(), false, s.now)
		p.Annotations[keys.BundleLabel] = "b"
		s.appears(p)
		s.status("mean", "1")
		s.wants(t)
	})
	t.Run("a bundle that it called itself", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		p := s.pod("eve", "a", "g", "1")
		p.Annotations[keys.BundleLabel] = "b"
		s.Seen(p.DeepCopy(), false, s.now)
		s.appears(p)
		s.status("mean", "1")
		s.wants(t, "S1: it was bound to n,")
	})
	t.Run("one bundle for two, and nobody was asked", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		for _, name := range []string{"a", "b"} {
			p := s.pod("eve", name, "g", "1")
			s.Seen(p.DeepCopy(), false, s.now)
			p.Annotations[keys.BundleLabel] = "b"
			s.appears(p)
		}
		s.status("mean", "2")
		s.wants(t, "S1: it was bound to n,", "S1: it was bound to n,")
	})
	t.Run("a forged decision", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		p := s.pod("eve", "a", "g", "1")
		s.Forged("rforged", string(p.UID))
		s.Seen(p.DeepCopy(), false, s.now)
		s.appears(p)
		s.wants(t, "S8: it was bound by a")
	})
	t.Run("another's queue", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "good", 1, "")
		s.binds(s.pod("eve", "a", "g", "1"))
		s.status("good", "1")
		s.wants(t, "S8: bound in a queue that")
	})
	t.Run("a forged mark", func(t *testing.T) {
		s := newStage()
		p := s.pod("eve", "a", "", "0")
		p.Labels[keys.GPUGroupLabelPrefix+"forged"] = "forged"
		s.Seen(p, false, s.now)
		s.wants(t, "S8: it carries a forged runai-gpu-group/forged")
	})
	t.Run("a charge that changes", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		p := s.pod("eve", "a", "g", "1")
		p.Annotations["charge"] = "mean/g"
		s.binds(p)
		p.Annotations["charge"] = "good/g"
		s.Seen(p, false, s.now)
		s.status("mean", "1")
		s.wants(t, "S8: what says to whom it")
	})
	t.Run("a gang in part", func(t *testing.T) {
		s := newStage()
		s.gang("fair", "a-name-that-is-longer-than-what-is-shown-of-it", "good", 2, "")
		s.binds(s.pod("fair", "a", "a-name-that-is-longer-than-what-is-shown-of-it", "1"))
		s.status("good", "1")
		s.wants(t, "S2: 1 of at least 2")
	})
	t.Run("the status is behind", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		s.binds(s.pod("eve", "a", "g", "1"))
		s.wants(t, "charge: its status is not the")
		if what := s.Equal(); !strings.HasPrefix(what, "mean: its status is not the truth: it says 0 GPUs, pods bound for it hold 1") {
			t.Error(what)
		}
	})
	t.Run("the status is behind, of a gang by itself", func(t *testing.T) {
		s := newStage()
		p := s.binds(s.byItself("eve", "a", "mean", "1"))
		p.Annotations[keys.PodGroupAnnotation] = "nothing" // what it says afterwards does not count
		s.Seen(p, false, s.now)
		s.wants(t, "charge: its status is not the")
		if what := s.Equal(); !strings.HasPrefix(what, "mean: its status is not the truth: it says 0 GPUs, pods bound for it hold 1") {
			t.Error(what)
		}
	})
	t.Run("a gang by itself that says so with its node", func(t *testing.T) {
		for gpus, wants := range map[string][]string{"1": nil, "5": {"S4: bound beyond a limit: queue"}} {
			s := newStage()
			said := s.byItself("eve", "a", "mean", gpus)
			s = newStage()
			silent := said.DeepCopy()
			silent.Annotations, silent.Labels[keys.QueueLabel] = nil, "mean"
			s.Seen(silent, false, s.now)
			if why, _ := s.Owed("mean", 1); !strings.HasPrefix(why, "tenants") {
				t.Errorf("owed, and a tenant waits for the same room: %q", why)
			}
			r := &v1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "eve", Name: "a", UID: "r", OwnerReferences: []metav1.OwnerReference{{UID: said.UID}}}}
			r.Spec.SelectedNode = "n"
			s.Seen(r, false, s.now)
			s.appears(said)
			s.status("mean", gpus)
			s.wants(t, wants...)
		}
	})
	t.Run("a gang by itself beyond a limit", func(t *testing.T) {
		s := newStage()
		s.binds(s.byItself("eve", "a", "mean", "5"))
		s.status("mean", "5")
		s.wants(t, "S4: bound beyond a limit: queue")
	})
	t.Run("a gang by itself in another's queue", func(t *testing.T) {
		s := newStage()
		s.binds(s.byItself("eve", "a", "good", "1"))
		s.status("good", "1")
		s.wants(t, "S8: bound in a queue that")
	})
	t.Run("a gang by itself that is charged to another queue", func(t *testing.T) {
		s := newStage()
		p := s.byItself("eve", "a", "mean", "1")
		p.Annotations["charge"] = "good/pg-a"
		s.binds(p)
		s.status("mean", "1")
		s.wants(t, "charge: bound for one queue, charged")
	})
	t.Run("a PodGroup of its name counts", func(t *testing.T) {
		s := newStage()
		s.gang("fair", "pg-a", "good", 1, "")
		p := s.byItself("fair", "a", "mean", "1") // there is a PodGroup of that name
		p.Annotations["charge"] = "good/pg-a"
		s.binds(p)
		s.status("good", "1")
		s.wants(t)
	})
	t.Run("a gang in part whose pods are not told", func(t *testing.T) {
		s := newStage()
		s.gang("fair", "pg-job-u", "good", 2, "")
		p := s.pod("fair", "a", "", "1")
		delete(p.Annotations, keys.PodGroupAnnotation)
		p.OwnerReferences = []metav1.OwnerReference{{Name: "job", UID: "u", Controller: ptr.To(true)}}
		s.binds(p)
		s.status("good", "1")
		s.wants(t, "S2: 1 of at least 2")
	})
	t.Run("an honest pod is evicted", func(t *testing.T) {
		s := newStage()
		s.gang("fair", "g", "good", 1, "")
		p := s.binds(s.pod("fair", "a", "g", "1"))
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		s.Seen(p, false, s.now)
		s.status("good", "1")
		s.wants(t, "S6: a pod within its quota")
	})
	t.Run("an honest pod is moved", func(t *testing.T) {
		s := newStage()
		s.gang("fair", "g", "good", 1, "")
		p := s.binds(s.pod("fair", "a", "g", "1"))
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		s.Seen(p, false, s.now)
		s.Seen(&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Annotations: map[string]string{keys.EvictorActionAnnotation: "consolidation"}},
			InvolvedObject: corev1.ObjectReference{Kind: "PodGroup", Namespace: "fair", Name: "g"}, Reason: keys.EventEvict,
		}, false, s.now)
		s.status("good", "1")
		s.wants(t)
	})
	t.Run("in no subgroup", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		p := s.binds(s.pod("eve", "a", "g", "1"))
		p.Labels[keys.SubGroupLabel] = "nonsense"
		s.Seen(p, false, s.now)
		s.status("mean", "1")
		s.wants(t, "S6: it runs in no subgroup")
	})
	t.Run("non-preemptible afterwards", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		s.binds(s.pod("eve", "a", "g", "3"))
		s.gang("eve", "g", "mean", 1, v2alpha2.NonPreemptible)
		s.status("mean", "3")
		s.wants(t, "S6: running pods became non-preemptible beyond")
	})
	t.Run("a tenant binds", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		p := s.pod("eve", "a", "g", "1")
		s.Seen(p.DeepCopy(), false, s.now)
		s.Bound(p.UID, "eve/a", true)
		s.appears(p)
		s.wants(t, "S8: a tenant bound a pod")
	})
	t.Run("a tenant binds what is not ours", func(t *testing.T) {
		s := newStage()
		p := s.pod("eve", "a", "", "1")
		p.Spec.SchedulerName = "default-scheduler"
		s.Bound(p.UID, "eve/a", false)
		s.appears(p)
		s.wants(t)
	})
	t.Run("a tenant speaks for the node", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		p := s.pod("eve", "a", "g", "1")
		s.Said(p, "phase") // while it waits it may
		s.binds(p)
		s.status("mean", "1")
		s.wants(t)
		s.Said(p, "phase")
		s.wants(t, "S8: a tenant said of a")
	})
	t.Run("made on a node", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		s.appears(s.pod("eve", "a", "g", "1"))
		s.wants(t, "S8: a pod of ours was")
	})
	for name, lied := range map[string]bool{"its kubelet turns it away": false, "its kubelet turns it away because of a lie": true} {
		t.Run(name, func(t *testing.T) {
			s := newStage()
			s.gang("fair", "g", "good", 1, "")
			p := s.binds(s.pod("fair", "a", "g", "1"))
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "OutOfnvidia.com/gpu"
			s.Seen(p, false, s.now)
			s.status("good", "0")
			want := []string{"S3: its kubelet turned it away:"}
			if lied {
				other := s.pod("eve", "x", "", "8")
				other.Spec.SchedulerName = ""
				s.appears(other)
				s.Disturbed(other.UID)
				want = nil
			}
			s.wants(t, want...)
		})
	}
	t.Run("starved", func(t *testing.T) {
		s := newStage()
		s.Starved("fair/g", time.Minute, "nothing", s.now)
		s.wants(t, "S5: it is owed room and")
	})
	for name, kind := range map[string]string{"beyond one's rights": "beyond: patch nodes", "within one's rights": "patch pods"} {
		t.Run(name, func(t *testing.T) {
			s := newStage()
			f := New(Options{Rate: 1e9, Auditor: s.Auditor})
			u := &turn{Fuzzer: f, ctx: t.Context(), Tenant: &Tenant{Name: "eve"}}
			refused := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", nil)
			_ = u.write(kind, "n", "", func(context.Context) error { return refused })
			s.wants(t)
			_ = u.write(kind, "n", "", func(context.Context) error { return nil })
			if strings.HasPrefix(kind, "beyond") {
				s.wants(t, "S8: a write beyond the rights")
			} else {
				s.wants(t)
			}
		})
	}
	t.Run("owed", func(t *testing.T) {
		s := newStage()
		s.gang("eve", "g", "mean", 1, "")
		s.binds(s.pod("eve", "a", "g", "4"))
		s.binds(s.pod("eve", "b", "g", "4"))
		if why, over := s.Owed("good", 6); why != "" || over != 6000 {
			t.Errorf("6 are owed, where others hold 8 with a quota of 2: %q, %d", why, over)
		}
		if why, _ := s.Owed("good", 7); why == "" {
			t.Error("7 are not")
		}
		if on := s.OwedNode("good"); on != "" {
			t.Errorf("the whole node is not: %q", on)
		}
	})
	t.Run("owed a node", func(t *testing.T) {
		for p, want := range map[v2alpha2.Preemptibility]string{"": "n", v2alpha2.NonPreemptible: ""} {
			s := newStage()
			q := &queuev2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "idle"}}
			q.Spec.Resources = &queuev2.QueueResources{GPU: queuev2.QueueResource{Limit: -1}}
			s.Seen(q, false, s.now)
			s.gang("eve", "g", "idle", 1, "")
			s.gang("eve", "h", "idle", 1, p)
			s.binds(s.pod("eve", "a", "g", "4"))
			s.binds(s.pod("eve", "b", "h", "1"))
			if on := s.OwedNode("good"); on != want {
				t.Errorf("with work that is %q: %q, want %q", p, on, want)
			}
		}
	})

	for _, what := range audits(t) {
		if !slices.ContainsFunc(stages, func(s *stage) bool {
			return slices.ContainsFunc(s.Violations(), func(v *Violation) bool { return what.MatchString(v.What) })
		}) {
			t.Errorf("no history above brings out what this audit says: %s", what)
		}
	}
}

// audits are what the audits of this package say of violations, as they are written there.
func audits(t *testing.T) (out []*regexp.Regexp) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	verb := regexp.MustCompile(`%[+.0-9]*[a-z]`)
	says := map[string]int{"note": 3, "blame": 3, "suspect": 1} // which argument says what happened
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			var text ast.Expr
			switch n := n.(type) {
			case *ast.CallExpr:
				name := ""
				switch f := n.Fun.(type) {
				case *ast.SelectorExpr:
					name = f.Sel.Name
				case *ast.Ident:
					name = f.Name
				}
				if at, ok := says[name]; ok && len(n.Args) > at {
					text = n.Args[at]
				}
			case *ast.KeyValueExpr:
				if k, ok := n.Key.(*ast.Ident); ok && k.Name == "what" {
					text = n.Value
				}
			}
			if sum, ok := text.(*ast.BinaryExpr); ok {
				text = sum.X
			}
			if lit, ok := text.(*ast.BasicLit); ok {
				said, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				if said = verb.ReplaceAllString(regexp.QuoteMeta(verb.ReplaceAllString(said, "%s")), `(?s:.*)`); said != `(?s:.*)` {
					out = append(out, regexp.MustCompile("^"+said))
				}
			}
			return true
		})
	}
	if len(out) < 18 {
		t.Errorf("only %d audits were found in the code", len(out))
	}
	return out
}
