package podgrouper

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/dialect/workload"
)

// maxOwners is the longest chain of owners that is followed.
const maxOwners = 16

// owners reads the objects that own a pod.
type owners struct {
	table *workload.Table
	// cached answers for kinds that follow says yes to, live for the others. follow may start a watch and report false
	// until it can be trusted.
	cached, live client.Reader
	follow       func(ctx context.Context, gvk schema.GroupVersionKind) bool
	counts       *counts
	kinds        *kinds
	contents     contents
}

// contents are the whole objects that were read last, by UID: the many Jobs of a JobSet ask for one.
type contents struct {
	mu   sync.Mutex
	last map[types.UID]content
}

type content struct {
	generation int64
	object     map[string]any
}

// maxContents bounds the objects that are kept. They may be a megabyte each, though most are a few kilobytes.
const maxContents = 32

func (c *contents) get(uid types.UID, generation int64) map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is, ok := c.last[uid]; ok && generation != 0 && is.generation == generation {
		return is.object
	}
	return nil
}

func (c *contents) put(uid types.UID, generation int64, object map[string]any) {
	if generation == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.last) >= maxContents || c.last == nil {
		c.last = map[types.UID]content{}
	}
	c.last[uid] = content{generation, object}
}

// chain returns the owners of the pod, nearest first, and after them the object that the pod names as its gang's, if its kind
// does; and whether all of them are watched. An owner that may not be read
// ends the chain before it. Errors are *workload.Invalid for a chain that is broken as it stands, else those of the API.
func (o *owners) chain(ctx context.Context, pod *corev1.Pod) (chain []workload.Object, watched bool, err error) {
	self := workload.FromPod(pod)
	watched = true
	below := &self
	for refs := pod.OwnerReferences; len(refs) > 0; refs = below.Owners {
		// The pod itself may have several owners, of which the first counts; further up that would be a guess.
		if len(chain) > 0 && len(refs) > 1 {
			return nil, false, broken(below, "must have one owner at most, has %d", len(refs))
		}
		ref := refs[0]
		if ref.UID == pod.UID {
			return nil, false, broken(below, "must not lead back to the pod that it owns")
		}
		for i := range chain {
			if chain[i].UID == ref.UID {
				return nil, false, broken(below, "must not lead in a circle, comes back to %s", &chain[i])
			}
		}
		if len(chain) == maxOwners {
			return nil, false, broken(&self, "must lead to the top owner in at most %d steps", maxOwners)
		}
		owner, followed, err := o.get(ctx, below, pod.Namespace, ref)
		if apierrors.IsForbidden(err) {
			return chain, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		watched = watched && followed
		chain = append(chain, owner)
		below = &chain[len(chain)-1]
	}
	return o.named(ctx, pod, chain, watched)
}

// named adds the object that a label of the pod names.
func (o *owners) named(ctx context.Context, pod *corev1.Pod, chain []workload.Object, watched bool) ([]workload.Object, bool, error) {
	gvk, name, ok, err := o.table.Named(pod, chain)
	if !ok || err != nil {
		return chain, watched, err
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: name}
	if !o.kinds.served(ctx, gvk) {
		return nil, false, &unserved{&workload.Invalid{
			Object: fmt.Sprintf("Pod %s/%s", pod.Namespace, pod.Name), Field: "metadata.labels",
			Rule: fmt.Sprintf("must name an object of a kind that the cluster knows, %s is none", gvk.GroupKind()),
		}, gvk}
	}
	followed := o.table.Watched(gvk) && o.follow(ctx, gvk)
	var m metav1.PartialObjectMetadata
	m.SetGroupVersionKind(gvk)
	if followed && o.cached.Get(ctx, key, &m, client.UnsafeDisableDeepCopy) == nil {
		o.counts.ownerReads.WithLabelValues("watch").Inc()
		return append(chain, workload.FromMeta(gvk, &m, nil)), watched, nil
	}
	o.counts.ownerReads.WithLabelValues("request").Inc()
	m = metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(gvk)
	if err := o.live.Get(ctx, key, &m); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, false, &workload.Invalid{
				Object: fmt.Sprintf("Pod %s/%s", pod.Namespace, pod.Name), Field: "metadata.labels",
				Rule: fmt.Sprintf("must name a %s that exists, %q does not", gvk.Kind, name),
			}
		}
		return nil, false, fmt.Errorf("read %s %s, which a pod names: %w", gvk.Kind, key, err)
	}
	return append(chain, workload.FromMeta(gvk, &m, nil)), watched && followed, nil
}

// get reads the metadata of one owner.
func (o *owners) get(ctx context.Context, of *workload.Object, namespace string, ref metav1.OwnerReference) (workload.Object, bool, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || ref.Kind == "" {
		return workload.Object{}, false, broken(of, "must name an API version and kind, names %q and %q", ref.APIVersion, ref.Kind)
	}
	gvk := gv.WithKind(ref.Kind)
	key := types.NamespacedName{Namespace: namespace, Name: ref.Name}
	if gvk == corev1.SchemeGroupVersion.WithKind("Pod") {
		// Pods are in the cache already; a leader or driver that came a moment ago may not be.
		owner := &corev1.Pod{}
		if err := o.cached.Get(ctx, key, owner, client.UnsafeDisableDeepCopy); err == nil && owner.UID == ref.UID {
			o.counts.ownerReads.WithLabelValues("watch").Inc()
			return workload.FromPod(owner), true, nil
		}
	}
	if !o.kinds.served(ctx, gvk) {
		return workload.Object{}, false, &unserved{broken(of, "must name a kind that the cluster knows, %s of %s is none", ref.Kind, ref.APIVersion), gvk}
	}
	followed := o.table.Watched(gvk) && o.follow(ctx, gvk)
	if followed {
		var m metav1.PartialObjectMetadata
		m.SetGroupVersionKind(gvk)
		err := o.cached.Get(ctx, key, &m, client.UnsafeDisableDeepCopy)
		if err == nil && m.UID == ref.UID {
			o.counts.ownerReads.WithLabelValues("watch").Inc()
			return workload.FromMeta(gvk, &m, nil), true, nil
		}
		// The watch may lag behind the pod's; the API server knows.
	}
	var m metav1.PartialObjectMetadata
	m.SetGroupVersionKind(gvk)
	o.counts.ownerReads.WithLabelValues("request").Inc()
	err = o.live.Get(ctx, key, &m)
	if apierrors.IsNotFound(err) || err == nil && m.UID != ref.UID {
		// The author of the reference may not be allowed to read what it names, so nothing is said of another object of that name.
		return workload.Object{}, false, broken(of, "must name an object that exists, %s %s with UID %s does not", ref.Kind, ref.Name, ref.UID)
	}
	if err != nil {
		return workload.Object{}, false, fmt.Errorf("read %s %s, an owner of %s: %w", ref.Kind, key, of, err)
	}
	return workload.FromMeta(gvk, &m, nil), followed, nil
}

// fill reads the whole of the object whose fields the rule needs, from the API server unless its spec is as it was read last.
func (o *owners) fill(ctx context.Context, pod *corev1.Pod, chain []workload.Object, define func(schema.GroupVersionKind) *workload.Definition) error {
	i := o.table.Content(pod, chain, define)
	if i < 0 {
		return nil
	}
	owner := &chain[i]
	if owner.Content = o.contents.get(owner.UID, owner.Generation); owner.Content != nil {
		return nil
	}
	var u unstructured.Unstructured
	u.SetGroupVersionKind(owner.GVK)
	o.counts.ownerReads.WithLabelValues("request").Inc()
	if err := o.live.Get(ctx, types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}, &u); err != nil {
		return fmt.Errorf("read %s: %w", owner, err)
	}
	if u.GetUID() != owner.UID {
		return broken(owner, "the object was replaced by another of its name")
	}
	*owner = workload.FromMeta(owner.GVK, &u, u.Object)
	if o.table.Read(owner.GVK) { // what a Karta defines may depend on more than the spec
		o.contents.put(owner.UID, owner.Generation, u.Object)
	}
	return nil
}

func broken(o *workload.Object, rule string, args ...any) error {
	return &workload.Invalid{Object: o.String(), Field: "metadata.ownerReferences", Rule: fmt.Sprintf(rule, args...)}
}
