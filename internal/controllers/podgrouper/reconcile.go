package podgrouper

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/workload"
	"github.com/muster-scheduler/muster/internal/kube/links"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// warningReason is the reason of the events about what could not be grouped as written.
const warningReason = "PodGrouperWarning"

// conflictDelay is the wait after a write met an object that had changed.
const conflictDelay = 200 * time.Millisecond

// grouper works on one pod at a time. It is safe for concurrent use.
type grouper struct {
	options Options
	table   *workload.Table
	// cached reads what the process watches: pods, PodGroups, PriorityClasses, Namespaces. What it returns is shared.
	cached   client.Reader
	writer   client.Client
	kit      *write.Kit
	live     client.Reader
	owners   *owners
	pods     *owned
	memory   *memory
	defaults *defaults
	// definitions of further kinds.
	definitions *definitions
	event       func(obj client.Object, eventType, reason, message string)
	clock       clock.Clock
	counts      *counts
	links       *links.Links
}

// reconcile sees to it that a pod's group exists and that the pod names it.
func (g *grouper) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := g.cached.Get(ctx, req.NamespacedName, pod, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	again, err := g.group(ctx, pod)
	if err == nil {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	switch {
	case ctx.Err() != nil:
		return reconcile.Result{}, nil
	case errors.Is(err, errChanged):
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{}, nil
	case refused(err):
		if !errors.As(err, new(*told)) {
			g.warn(pod, err.Error())
		}
		return reconcile.Result{RequeueAfter: g.patience(pod)}, nil
	}
	g.warn(pod, err.Error())
	return reconcile.Result{}, fmt.Errorf("group pod %s: %w", req.NamespacedName, err)
}

// refused says that no retry helps before an object changes; not every change is seen.
func refused(err error) bool {
	if errors.As(err, new(*workload.Invalid)) {
		return true
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// patience is how long after a refusal the pod is looked at again: as long as it has waited already, within bounds.
func (g *grouper) patience(pod *corev1.Pod) time.Duration {
	if pod.CreationTimestamp.IsZero() {
		return g.options.MaxBackoff
	}
	return min(max(g.clock.Since(pod.CreationTimestamp.Time), g.options.MaxBackoff), g.options.Patience)
}

// told is an error of which another pod of the same owner has an event.
type told struct{ error }

// Unwrap lets the error be recognised for what it is.
func (t *told) Unwrap() error { return t.error }

func (g *grouper) warn(pod *corev1.Pod, message string) {
	g.counts.warnings.Inc()
	g.event(pod, corev1.EventTypeWarning, warningReason, message)
}

// group does the work for a pod, and says after what time to look again, if at all. A pod of which something is told counts as if it carried
// that.
func (g *grouper) group(ctx context.Context, seen *corev1.Pod) (again time.Duration, err error) {
	pod := g.links.With(seen)
	if !g.ours(pod) {
		return 0, nil
	}
	if yes, err := g.namespaceSelected(ctx, pod.Namespace); err != nil || !yes {
		return 0, err
	}
	if pod.Spec.SchedulingGroup != nil && g.owners.kinds.served(ctx, upstreamGroup) {
		return 0, nil // its gang is Kubernetes' own, which the scheduler reads
	}
	if workload.External(pod) {
		return g.external(ctx, pod)
	}
	if pod.Spec.SchedulingGroup != nil {
		return g.upstreams(pod), nil
	}
	in, again, err := g.groupFor(ctx, pod)
	if err != nil || in.name == "" {
		return again, err
	}
	if err := g.agrees(ctx, pod, in.name, in.queue); err != nil {
		return 0, err
	}
	var patch []byte
	if in.own != nil {
		again = g.untilVain(pod)
		if left := g.tell(ctx, seen, in.own); left > 0 {
			if again > 0 {
				left = min(again, left)
			}
			return left, nil
		}
		patch = g.ownPatch(seen, in.own)
	} else {
		subgroup, err := in.members.SubGroup(pod)
		if err != nil {
			return 0, err
		}
		if patch = workload.PodPatch(pod, in.name, subgroup); g.known(pod, in.name, in.queue, subgroup) {
			patch, again = nil, cmp.Or(again, g.untilVain(pod))
		}
	}
	if patch == nil {
		return again, nil
	}
	return again, g.patch(ctx, metadataOf(corev1.SchemeGroupVersion.WithKind("Pod"), pod), patch)
}

// externalGrace is how long after a pod that names its PodGroup itself the PodGroup may come.
const externalGrace = 3 * time.Second

// external tells the user of a pod that names its PodGroup itself when there is none of that name where the pod is.
func (g *grouper) external(ctx context.Context, pod *corev1.Pod) (again time.Duration, err error) {
	if pod.Spec.NodeName != "" {
		return 0, nil
	}
	name := pod.Annotations[keys.PodGroupAnnotation]
	err = g.cached.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, &v2alpha2.PodGroup{}, client.UnsafeDisableDeepCopy)
	if err == nil || !apierrors.IsNotFound(err) {
		return 0, err
	}
	if wait := pod.CreationTimestamp.Add(externalGrace).Sub(g.clock.Now()); wait > 0 {
		return wait, nil
	}
	g.warn(pod, fmt.Sprintf("annotation %s: there is no PodGroup %q in namespace %s, where the pod is; it waits for one",
		keys.PodGroupAnnotation, name, pod.Namespace))
	return g.patience(pod), nil
}

// upstreamGroup is the kind of Kubernetes' own groups that the scheduler reads.
var upstreamGroup = schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup")

// upstreams tells the user of a pod that is in a group of Kubernetes' own (scheduling.k8s.io) that it waits: the API server has no such groups in a version that is read,
// and another would be a gang that nobody asked for. A pod that names a PodGroup of ours as well is in that.
func (g *grouper) upstreams(pod *corev1.Pod) (again time.Duration) {
	if pod.Spec.NodeName != "" {
		return 0
	}
	g.warn(pod, fmt.Sprintf("spec.schedulingGroup: the API server does not serve PodGroups of scheduling.k8s.io/v1beta1, such as %q, and no other group is made for the pod: it waits",
		ptr.Deref(pod.Spec.SchedulingGroup.PodGroupName, "")))
	return g.patience(pod)
}

// ours says whether the pod is to be grouped at all, by what the pod alone shows.
func (g *grouper) ours(pod *corev1.Pod) bool {
	return slices.Contains(g.options.SchedulerNames, pod.Spec.SchedulerName) &&
		pod.DeletionTimestamp == nil &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed &&
		!workload.Opted(pod.Annotations) &&
		labels.SelectorFromValidatedSet(g.options.PodSelector).Matches(labels.Set(pod.Labels))
}

func (g *grouper) namespaceSelected(ctx context.Context, name string) (bool, error) {
	if len(g.options.NamespaceSelector) == 0 {
		return true, nil
	}
	namespace := &corev1.Namespace{}
	if err := g.cached.Get(ctx, types.NamespacedName{Name: name}, namespace, client.UnsafeDisableDeepCopy); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return labels.SelectorFromValidatedSet(g.options.NamespaceSelector).Matches(labels.Set(namespace.Labels)), nil
}

// agrees refuses a pod that names another queue than its gang, where queues are authorized: the author of the pod was judged for
// the queue that the pod names, and for no other. A gang that was moved keeps the pods of both queues: in its spec is the one
// that its mover was judged for, in its label the one that it was made with.
func (g *grouper) agrees(ctx context.Context, pod *corev1.Pod, group, made string) error {
	own := pod.Labels[g.options.QueueLabel]
	if !g.options.AuthorizeQueues || own == "" {
		return nil
	}
	existing := &v2alpha2.PodGroup{}
	err := g.cached.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: group}, existing, client.UnsafeDisableDeepCopy)
	switch {
	case err == nil:
		made = existing.Spec.Queue
		if own == existing.Labels[g.options.QueueLabel] {
			return nil
		}
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read PodGroup %s/%s: %w", pod.Namespace, group, err)
	}
	if own == made {
		return nil
	}
	return &workload.Invalid{
		Object: fmt.Sprintf("Pod %s/%s", pod.Namespace, pod.Name), Field: "label " + g.options.QueueLabel,
		Rule: fmt.Sprintf("must name the queue of the pod's gang, %q, where queues are authorized; names %q", made, own),
	}
}

// place is where a pod belongs.
type place struct {
	name    string // of its group; "" for a pod that is to be left alone
	queue   string // that a new group gets
	members workload.Members
	own     *v2alpha2.PodGroup // the group, if there is to be none and the pod is it by itself
}

func (d *derivation) place() place { return place{d.group.Name, d.queue, d.members, d.own} }

// groupFor makes sure of the pod's group and returns where the pod belongs.
func (g *grouper) groupFor(ctx context.Context, pod *corev1.Pod) (in place, again time.Duration, err error) {
	if len(pod.OwnerReferences) == 0 {
		d, err := g.derive(ctx, pod, nil)
		if err == nil {
			err = d.failed
		}
		if err != nil {
			return place{}, 0, err
		}
		return d.place(), 0, nil
	}
	derivedHere := false
	d, stale, err := g.memory.derive(ctx, g.keyOf(pod), g.clock.Now(), func() (*derivation, error) {
		derivedHere = true
		return g.derive(ctx, pod, nil)
	})
	if err == nil && (d.eachPod || d.anew || d.alone != "") && !derivedHere {
		former := d
		if d, err = g.derive(ctx, pod, former); err == nil && former.alone != "" && d.own == nil {
			g.memory.discard(former) // there is a group now, for whoever comes next, too
		}
	}
	if err == nil && d.failed != nil {
		if err = d.failed; !derivedHere {
			err = &told{err}
		}
	}
	if err != nil || d.left {
		return place{}, 0, err
	}
	if stale {
		again = conflictDelay
	}
	if d.podNamed && !d.eachPod && g.options.PodNamedGroups {
		old := workload.PodNamedGroup(pod, d.owner)
		exists, err := g.exists(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: old})
		if err != nil {
			return place{}, 0, err
		}
		if exists {
			return place{name: old, queue: d.queue}, again, nil
		}
	}
	return d.place(), again, nil
}

// keyOf is what a pod's derivation is remembered by.
func (g *grouper) keyOf(pod *corev1.Pod) types.UID {
	return memoryKey(pod.Namespace, pod.OwnerReferences[0].UID, g.table.Part(pod))
}

// derive reads the pod's owners, works out the group, and writes it if it is missing or differs. A workload that cannot be
// understood is a derivation, too, so that the many pods of one are not a burden. former is what was derived for another pod, or earlier
// for this one; nil for nothing that is known.
func (g *grouper) derive(ctx context.Context, pod *corev1.Pod, former *derivation) (*derivation, error) {
	d := &derivation{namespace: pod.Namespace}
	if len(pod.OwnerReferences) > 0 {
		d.owner, d.part = pod.OwnerReferences[0].UID, g.table.Part(pod)
		d.chain = []types.UID{d.owner}
	}
	err := g.deriveInto(ctx, d, pod, former)
	if refused(err) {
		if unknown := (*unserved)(nil); errors.As(err, &unknown) {
			d.lacks = unknown.kind
		}
		d.failed, d.expires = err, g.clock.Now().Add(g.patience(pod))
		err = nil
	}
	return d, err
}

func (g *grouper) deriveInto(ctx context.Context, d *derivation, pod *corev1.Pod, former *derivation) error {
	chain, watched, err := g.owners.chain(ctx, pod)
	if err != nil {
		return err
	}
	if !watched {
		d.expires = g.clock.Now().Add(g.options.Refresh)
	}
	for i := range chain {
		if i > 0 {
			d.chain = append(d.chain, chain[i].UID)
		}
		d.left = d.left || workload.Opted(chain[i].Annotations)
	}
	if d.left {
		return nil
	}
	define, err := g.definitions.get(ctx)
	if err != nil {
		return err
	}
	if err := g.owners.fill(ctx, pod, chain, define); err != nil {
		return err
	}
	grouping, err := g.grouping(ctx, pod, chain, define)
	if err != nil {
		return err
	}
	for _, w := range grouping.Warnings {
		g.warn(pod, w)
	}
	if err := g.flatten(ctx, grouping); err != nil {
		return err
	}
	d.eachPod, d.anew, d.podNamed, d.members = grouping.EachPod, grouping.Anew, grouping.PodNamed, grouping.Members
	d.group, d.queue = client.ObjectKeyFromObject(grouping.PodGroup), grouping.PodGroup.Spec.Queue
	if d.podNamed && g.options.PodNamedGroups {
		// An old group stands; writing the new one as well would leave it without pods.
		old, err := g.exists(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: workload.PodNamedGroup(pod, d.owner)})
		if err != nil || old {
			d.expires = g.clock.Now() // for this pod only
			return err
		}
	}
	switch own, err := g.own(ctx, pod, grouping, former); {
	case err != nil:
		return err
	case own:
		d.own, d.alone, d.queue = grouping.PodGroup, pod.UID, grouping.PodGroup.Spec.Queue
		return nil
	}
	return g.apply(ctx, grouping.PodGroup)
}

// grouping asks the dialect, with the settings of this moment.
func (g *grouper) grouping(
	ctx context.Context, pod *corev1.Pod, chain []workload.Object, define func(schema.GroupVersionKind) *workload.Definition,
) (*workload.Grouping, error) {
	var failed error
	kinds, err := g.defaults.get(ctx)
	if err != nil {
		return nil, err
	}
	settings := &workload.Settings{
		QueueLabel:    g.options.QueueLabel,
		NodePoolLabel: g.options.NodePoolLabel,
		Authorized:    g.options.AuthorizeQueues,
		Kinds:         kinds,
		Definition:    define,
		KnativePerPod: !g.options.KnativeGangs,
		Peers: func(namespace string, matches labels.Selector) []*corev1.Pod {
			list := &corev1.PodList{}
			err := g.cached.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: matches}, client.UnsafeDisableDeepCopy)
			if err != nil && failed == nil {
				failed = fmt.Errorf("list pods of a gang: %w", err)
			}
			out := make([]*corev1.Pod, len(list.Items))
			for i := range list.Items {
				out[i] = &list.Items[i]
			}
			return out
		},
		PriorityClassExists: func(name string) bool {
			class := &schedulingv1.PriorityClass{}
			err := g.cached.Get(ctx, types.NamespacedName{Name: name}, class, client.UnsafeDisableDeepCopy)
			if client.IgnoreNotFound(err) != nil && failed == nil {
				failed = fmt.Errorf("read PriorityClass %s: %w", name, err)
			}
			return err == nil
		},
	}
	grouping, err := g.table.Group(pod, chain, settings)
	if failed != nil {
		return nil, failed
	}
	return grouping, err
}

// flatten keeps a group without subgroups that was made when its kind had none.
func (g *grouper) flatten(ctx context.Context, grouping *workload.Grouping) error {
	if grouping.Flat == nil {
		return nil
	}
	existing := &v2alpha2.PodGroup{}
	key := client.ObjectKeyFromObject(grouping.PodGroup)
	if err := g.cached.Get(ctx, key, existing, client.UnsafeDisableDeepCopy); err != nil {
		return client.IgnoreNotFound(err)
	}
	grouping.Flatten(existing)
	return nil
}

func (g *grouper) exists(ctx context.Context, group types.NamespacedName) (bool, error) {
	err := g.cached.Get(ctx, group, &v2alpha2.PodGroup{}, client.UnsafeDisableDeepCopy)
	return err == nil, client.IgnoreNotFound(err)
}

// apply creates the PodGroup or patches the one that is there.
func (g *grouper) apply(ctx context.Context, wanted *v2alpha2.PodGroup) error {
	key := client.ObjectKeyFromObject(wanted)
	existing := &v2alpha2.PodGroup{}
	err := g.cached.Get(ctx, key, existing, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		g.counts.creates.Inc()
		err = g.writer.Create(ctx, wanted)
		if err == nil {
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create PodGroup %s: %w", key, err)
		}
		// It exists, and the watch has not shown it yet.
		existing = &v2alpha2.PodGroup{}
		err = g.live.Get(ctx, key, existing)
	}
	if err != nil {
		return fmt.Errorf("read PodGroup %s: %w", key, err)
	}
	if err := g.keepsQueue(existing, wanted); err != nil {
		return err
	}
	patch := workload.UpdatePatch(existing, wanted, g.options.NodePoolLabel)
	if patch == nil {
		return nil
	}
	if bytes.Contains(patch, []byte(`"spec":{`)) { // metadata alone makes no new generation
		g.memory.changing(key, existing.Generation)
	}
	err = g.patch(ctx, metadataOf(v2alpha2.GroupVersion.WithKind("PodGroup"), existing), patch)
	if err != nil {
		g.memory.own(key, existing.Generation+1) // there will be no such event of ours
	}
	return err
}

// keepsQueue refuses a derivation that would change, and join, a gang of another queue, where queues are authorized: labels of pods may
// name any PodGroup of their namespace. A gang of the same owner is the derivation's own, wherever it was moved; its label still says
// with which queue it was made, whatever the owner's has become, since pods of that queue are taken in by it.
func (g *grouper) keepsQueue(existing, wanted *v2alpha2.PodGroup) error {
	if !g.options.AuthorizeQueues {
		return nil
	}
	label := g.options.QueueLabel
	made, is, want := existing.Labels[label], cmp.Or(existing.Spec.Queue, keys.DefaultQueue), cmp.Or(wanted.Spec.Queue, keys.DefaultQueue)
	own := workload.SameOwners(existing, wanted) || slices.ContainsFunc(wanted.OwnerReferences, func(o metav1.OwnerReference) bool { // or by its name
		return o.UID != "" && strings.Contains(wanted.Name, string(o.UID))
	})
	if !own && want != is && want != made {
		return &workload.Invalid{
			Object: fmt.Sprintf("PodGroup %s/%s", existing.Namespace, existing.Name), Field: "spec.queue",
			Rule: fmt.Sprintf("must be the queue of the pods that name it where queues are authorized, %q; is %q", want, is),
		}
	}
	if wanted.Labels[label] != is {
		delete(wanted.Labels, label)
	}
	return nil
}

// errChanged says that a write met an object that is not what it was derived from.
var errChanged = errors.New("the object changed meanwhile")

// patch sends a merge patch; only metadata comes back, which is a fraction of the object. Nothing to group is no error.
func (g *grouper) patch(ctx context.Context, target *metav1.PartialObjectMetadata, patch []byte) error {
	result, err := g.kit.Merge(ctx, target, patch)
	switch {
	case anotherUID(err):
		return errChanged
	case err != nil:
		return err
	case result == write.Changed, result == write.Gone && target.Kind != "Pod":
		return errChanged
	}
	return nil
}

// anotherUID says whether a patch was refused because it names the UID of an object that is not there any more. The API
// server answers as to an attempt to change the UID.
func anotherUID(err error) bool {
	if !apierrors.IsInvalid(err) {
		return false
	}
	cause, found := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	return found && cause.Field == "metadata.uid"
}
