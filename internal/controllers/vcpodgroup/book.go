package vcpodgroup

import (
	"slices"
	"time"

	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
)

// key names a PodGroup.
type key = types.NamespacedName

// book is what the controller knows.
type book struct {
	schedulers []string
	inherit    bool
	nameAfter  time.Duration // see Options
	gangs      map[key]*gang
	of         map[key]key // by the pod's name, its gang
	owners     map[types.UID]*owner
	bound      time.Time     // when a pod was last seen to get its node
	pace       *rate.Limiter // of PodGroups that are made all the same while pods get theirs
}

// gang is the bare pods of one controller, or one that has none, and their PodGroup.
type gang struct {
	pods  map[string]*corev1.Pod // by name: those that have not ended, and those that were bound without a PodGroup
	group *scheduling.PodGroup   // nil: there is none
	made  time.Time              // when a PodGroup was made that was not seen yet
	had   bool                   // there was one
}

// owner is what is read of a controller of pods.
type owner struct {
	annotations map[string]string
	replicas    *int32 // of ReplicaSets and StatefulSets; nil: nobody says
	revision    string // to which the pods of a StatefulSet are brought
}

// notes are the annotations of a controller; of nil nil.
func (o *owner) notes() map[string]string {
	if o == nil {
		return nil
	}
	return o.annotations
}

func newBook(o Options) *book {
	return &book{schedulers: o.SchedulerNames, inherit: o.InheritAnnotations, nameAfter: o.NameAfter, gangs: map[key]*gang{}, of: map[key]key{}, owners: map[types.UID]*owner{}, pace: rate.NewLimiter(trailBusy, trailBusy)}
}

func (b *book) gang(k key) *gang {
	g := b.gangs[k]
	if g == nil {
		g = &gang{pods: map[string]*corev1.Pod{}}
		b.gangs[k] = g
	}
	return g
}

// tidy forgets a gang of which nothing is left.
func (b *book) tidy(k key) {
	if g := b.gangs[k]; g != nil && len(g.pods) == 0 && g.group == nil {
		delete(b.gangs, k)
	}
}

// gangOf names the gang of a bare pod.
func gangOf(p *corev1.Pod) key {
	return key{Namespace: p.Namespace, Name: volcano.GroupOfOwner(p)}
}

// bare says whether a pod is this controller's to group: it names the scheduler, has not ended unless it was bound without its PodGroup, and names no other.
func (b *book) bare(p *corev1.Pod) bool {
	named := p.Annotations[keys.GroupName]
	return slices.Contains(b.schedulers, p.Spec.SchedulerName) && p.DeletionTimestamp == nil && (!ended(p) || owed(p)) && (named == "" || named == gangOf(p).Name)
}

// ended says whether a pod has.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// owed says whether a pod was bound by what its PodGroup would be (volcano.Own): that is made all the same, however soon the pod ends.
func owed(p *corev1.Pod) bool { return p.Spec.NodeName != "" && volcano.SaysOwn(p) }

// podSeen takes in a pod, and returns the gangs to look at.
func (b *book) podSeen(p *corev1.Pod, gone bool, now time.Time) (due []key) {
	name := client.ObjectKeyFromObject(p)
	if g := b.gangs[b.of[name]]; g != nil && !gone && p.Spec.NodeName != "" && g.pods[p.Name] != nil && g.pods[p.Name].Spec.NodeName == "" {
		b.bound = now
	}
	if was, had := b.of[name]; had && (gone || !b.bare(p) || was != gangOf(p)) {
		delete(b.of, name)
		delete(b.gangs[was].pods, p.Name)
		b.tidy(was)
		due = append(due, was)
	}
	if !gone && b.bare(p) {
		k := gangOf(p)
		b.of[name] = k
		b.gang(k).pods[p.Name] = p
		due = append(due, k)
	}
	return due
}

// podWritten takes in the API server's answer to a write of a pod, before its event comes, unless the pod is gone meanwhile.
func (b *book) podWritten(p *corev1.Pod, now time.Time) {
	if g := b.gangs[b.of[client.ObjectKeyFromObject(p)]]; g != nil && g.pods[p.Name] != nil && g.pods[p.Name].UID == p.UID {
		b.podSeen(p, false, now)
	}
}

// groupSeen takes in a PodGroup, and returns the gangs to look at.
func (b *book) groupSeen(pg *scheduling.PodGroup, gone bool) []key {
	k := client.ObjectKeyFromObject(pg)
	g := b.gangs[k]
	if g == nil && gone {
		return nil
	}
	g = b.gang(k)
	g.group, g.made, g.had = pg, time.Time{}, true
	if gone {
		g.group = nil
	}
	b.tidy(k)
	return []key{k}
}

// ownerSeen takes in a controller of pods, and returns the gangs to look at.
func (b *book) ownerSeen(o client.Object, gone bool) []key {
	if gone {
		delete(b.owners, o.GetUID())
		return nil
	}
	is := &owner{annotations: o.GetAnnotations()}
	switch o := o.(type) {
	case *appsv1.ReplicaSet:
		is.replicas = o.Spec.Replicas
	case *appsv1.StatefulSet:
		is.replicas, is.revision = o.Spec.Replicas, o.Status.UpdateRevision
	}
	b.owners[o.GetUID()] = is
	k := key{Namespace: o.GetNamespace(), Name: volcano.GroupPrefix + string(o.GetUID())}
	if b.gangs[k] == nil {
		return nil
	}
	return []key{k}
}
