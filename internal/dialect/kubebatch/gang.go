package kubebatch

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/muster-scheduler/muster/api/kubebatch/keys"
	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
)

// Face is the name of this API family in cluster.Key, and in the names of queues.
const Face = "kubebatch"

// QueueName is what the model calls the queue of that name.
func QueueName(name string) string { return cluster.QueueName(Face, name) }

// First is a PodGroup of the second API group as one of the first, which has the same fields; nil for nil.
func First(pg *v1alpha2.PodGroup) *v1alpha1.PodGroup {
	if pg == nil {
		return nil
	}
	return &v1alpha1.PodGroup{ObjectMeta: pg.ObjectMeta, Spec: pg.Spec, Status: pg.Status}
}

// FirstQueue is the same of a queue.
func FirstQueue(q *v1alpha2.Queue) *v1alpha1.Queue {
	if q == nil {
		return nil
	}
	return &v1alpha1.Queue{ObjectMeta: q.ObjectMeta, Spec: q.Spec, Status: q.Status}
}

// GangKey returns the key of the gang that the PodGroup of that namespace and name is, of either API group.
func GangKey(namespace, name string) cluster.Key {
	return cluster.Key{Face: Face, Namespace: namespace, Name: name}
}

// shadowMark begins the names of gangs without a PodGroup. No PodGroup can have such a name.
const shadowMark = "shadow_"

// ShadowKey returns the key of the gang that pods of one controller are which name no PodGroup, or that such a pod without a controller is by itself. There is no object of it.
func ShadowKey(namespace string, owner types.UID) cluster.Key {
	return GangKey(namespace, shadowMark+string(owner))
}

// Shadow says whether a gang of this face has no PodGroup, and returns what its name stands for: the UID of a controller, or of a pod.
func Shadow(key cluster.Key) (owner string, ok bool) { return strings.CutPrefix(key.Name, shadowMark) }

// Owner is the controller of a pod, or, of one that has none, the pod itself.
func Owner(p *corev1.Pod) types.UID {
	if o := metav1.GetControllerOfNoCopy(p); o != nil {
		return o.UID
	}
	return p.UID
}

// Membership returns the gang that p is in: that of the PodGroup that it names, which has to be of its namespace, or, if it names none, that of its owner. It is the zero Key, and problem
// says why, of one that names what no object can be called.
func Membership(p *corev1.Pod) (gang cluster.Key, problem string) {
	name := p.Annotations[keys.GroupName]
	switch {
	case name == "":
		return ShadowKey(p.Namespace, Owner(p)), ""
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return cluster.Key{}, fmt.Sprintf("Pod %s/%s: metadata.annotations[%s] is %q, which no PodGroup can be called: the pod is in none, and waits", p.Namespace, p.Name, keys.GroupName, core.Brief(name))
	}
	return GangKey(p.Namespace, name), ""
}

// defaultPriority is the own priority of a pod that says none.
const defaultPriority = 1

// Member adds to the event of p what a pod of kube-batch's has: that it is ours, its gang, and its own priority (of its spec, or 1). It returns what is wrong with its annotations, "" for nothing.
func Member(st *cluster.PodState, p *corev1.Pod) (problem string) {
	st.Ours, st.SetName, st.Priority = true, "", defaultPriority
	if p.Spec.Priority != nil {
		st.Priority = *p.Spec.Priority
	}
	st.Gang, problem = Membership(p)
	if _, shadow := Shadow(st.Gang); shadow {
		_, problem = MinMember(p)
	}
	return problem
}

// MinMember is how many pods of its owner a pod that names no PodGroup says start together; 1 if it does not say so, or, as problem says, not in a way that can be read.
func MinMember(p *corev1.Pod) (least int32, problem string) {
	text, said := p.Annotations[keys.GroupMinMember]
	if !said {
		return 1, ""
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 1, fmt.Sprintf("Pod %s/%s: metadata.annotations[%s] is %q; it must be an integer from 0 to %d: it counts as 1", p.Namespace, p.Name, keys.GroupMinMember, core.Brief(text), math.MaxInt32)
	}
	return int32(n), ""
}

// Budget says whether a PodDisruptionBudget is the word on the gang of a controller's pods: it has that controller itself, and a minAvailable that is an integer, which is the gang's minimum. problem says
// why one that has such a controller counts for nothing.
func Budget(b *policyv1.PodDisruptionBudget) (owner types.UID, least int32, problem string) {
	o, available := metav1.GetControllerOfNoCopy(b), b.Spec.MinAvailable
	switch {
	case o == nil || available == nil:
		return "", 0, ""
	case available.Type != intstr.Int:
		return o.UID, 0, fmt.Sprintf("PodDisruptionBudget %s/%s: spec.minAvailable is %q; only a number is the minimum of a gang: it is overlooked as one", b.Namespace, b.Name, core.Brief(available.StrVal))
	case available.IntVal < 0:
		return o.UID, 0, fmt.Sprintf("PodDisruptionBudget %s/%s: spec.minAvailable is %d; it must not be negative: it is overlooked as the minimum of a gang", b.Namespace, b.Name, available.IntVal)
	}
	return o.UID, available.IntVal, ""
}

// Gang returns the event that makes the model know pg as it is. value is what a PriorityClass is worth; of "" it is asked for the cluster's default one. queue is that of a PodGroup that names none.
//
// The status is not read: who may write it is no part that only the scheduler may.
func Gang(pg *v1alpha1.PodGroup, value func(class string) (priority int32, known bool), queue string) cluster.GangState {
	of := &v1beta1.PodGroup{Spec: v1beta1.PodGroupSpec{MinMember: pg.Spec.MinMember, Queue: pg.Spec.Queue, PriorityClassName: pg.Spec.PriorityClassName}}
	of.Namespace, of.Name, of.UID, of.CreationTimestamp = pg.Namespace, pg.Name, pg.UID, pg.CreationTimestamp
	g := volcano.Gang(of, value, func(string) (int, bool) { return 0, false }, &volcano.Pods{})
	g.Key, g.Queue, g.BeforePods = GangKey(pg.Namespace, pg.Name), QueueName(cmp.Or(pg.Spec.Queue, queue)), false
	return g
}

// ShadowGang returns the event of the gang that pods are without a PodGroup, the eldest of which is p: of p's age, in that queue, with that minimum.
func ShadowGang(p *corev1.Pod, least int32, value func(class string) (priority int32, known bool), queue string) cluster.GangState {
	pg := &v1alpha1.PodGroup{Spec: v1alpha1.PodGroupSpec{MinMember: least}}
	pg.Namespace, pg.UID, pg.CreationTimestamp = p.Namespace, Owner(p), p.CreationTimestamp
	g := Gang(pg, value, queue)
	g.Key = ShadowKey(p.Namespace, pg.UID)
	return g
}

// PodGroup names the object that a gang of that key and UID is, of the first API group, and says nothing else of it: for patches and events. A gang without one is called by what its name stands for.
func PodGroup(key cluster.Key, uid string) *v1alpha1.PodGroup {
	name := key.Name
	if owner, shadow := Shadow(key); shadow {
		name = owner
	}
	return &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name, UID: types.UID(uid)}}
}

// topPriority is that of the queues, beside which are those of other faces: as theirs that say none.
const topPriority = 100

// Queue returns the event that makes the model know q as it is, and what is wrong with its numbers ("" for nothing). Its weight is its weight over quota in every dimension; kube-batch's queues have no
// quota, no bound and no parents.
func Queue(q *v1alpha1.Queue) (cluster.QueueState, string) {
	st, problem := volcano.Queue(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: q.Name, UID: q.UID, CreationTimestamp: q.CreationTimestamp}, Spec: v1beta1.QueueSpec{Weight: q.Spec.Weight}})
	st.Name, st.Parent, st.Priority = QueueName(q.Name), "", topPriority
	return st, problem
}
