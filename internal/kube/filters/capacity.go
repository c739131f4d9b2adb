package filters

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"
)

// capacities is upstream's binder of volumes with a ledger of the capacity that drivers publish. Upstream looks at each
// claim for itself, and at nothing but what was published: two claims of a pod, two members of a gang, or two gangs of one
// run would be promised the same room. Here a volume that is to be made takes its size from the object that has room for
// it, so that whoever asks next sees what is left, and gives it back when the placement is undone.
//
// Objects are taken for what they say: a pool that two classes or two overlapping topologies draw from counts for each.
type capacities struct {
	volumebinding.SchedulerVolumeBinder
	upstream *upstreamSnapshot
	objects  *objects
	plain    map[string]*storagev1.CSIStorageCapacity // as published, of those that something was taken from
	spent    map[string]int64                         // bytes, by object
	taken    map[string]debit                         // by claim
}

// debit is what a claim took, of which object, in bytes.
type debit struct {
	object string
	size   int64
}

// wish is a volume that is to be made where there is capacity for it.
type wish struct {
	claim, class string
	size         int64
}

func newCapacities(binder volumebinding.SchedulerVolumeBinder, o *objects, w *upstreamSnapshot) *capacities {
	return &capacities{
		SchedulerVolumeBinder: binder, objects: o, upstream: w,
		plain: map[string]*storagev1.CSIStorageCapacity{}, spent: map[string]int64{}, taken: map[string]debit{},
	}
}

// FindPodVolumes implements upstream's binder: the claims of a pod are looked at together, and what they took before is
// theirs.
func (c *capacities) FindPodVolumes(log klog.Logger, pod *v1.Pod, claims *volumebinding.PodVolumeClaims, node *v1.Node) (*volumebinding.PodVolumes, volumebinding.ConflictReasons, error) {
	own := map[string]debit{}
	for i := range pod.Spec.Volumes {
		if from := pod.Spec.Volumes[i].PersistentVolumeClaim; from != nil {
			key := pod.Namespace + "/" + from.ClaimName
			if d, has := c.taken[key]; has {
				own[key] = d
				c.give(key)
			}
		}
	}
	found, reasons, err := c.SchedulerVolumeBinder.FindPodVolumes(log, pod, claims, node)
	for claim, d := range own { // order: sums
		c.take(claim, d)
	}
	if err != nil || len(reasons) > 0 {
		return found, reasons, err
	}
	fresh := slices.DeleteFunc(wishesOf(found), func(w wish) bool { _, has := own[w.claim]; return has })
	if len(fresh) > 1 || len(fresh) == 1 && len(own) > 0 {
		took, enough := c.draw(fresh, node)
		for _, claim := range took {
			c.give(claim)
		}
		if !enough {
			reasons = append(reasons, volumebinding.ErrReasonNotEnoughSpace)
		}
	}
	return found, reasons, nil
}

// AssumePodVolumes implements upstream's binder, and takes the capacity.
func (c *capacities) AssumePodVolumes(log klog.Logger, pod *v1.Pod, name string, found *volumebinding.PodVolumes) (bool, error) {
	ws := wishesOf(found) // what upstream leaves in found says nothing of capacity
	bound, err := c.SchedulerVolumeBinder.AssumePodVolumes(log, pod, name, found)
	if n := c.upstream.snap.NodeByName(name); err == nil && n != nil {
		c.draw(ws, &c.upstream.byID[n.ID].node)
	}
	return bound, err
}

// RevertAssumedPodVolumes implements upstream's binder, and gives back the capacity.
func (c *capacities) RevertAssumedPodVolumes(found *volumebinding.PodVolumes) {
	c.SchedulerVolumeBinder.RevertAssumedPodVolumes(found)
	for _, p := range found.DynamicProvisions {
		c.give(p.PVC.Namespace + "/" + p.PVC.Name)
	}
}

// draw takes room on the node for the wishes, the largest first, and says which claims got it, and whether all did.
func (c *capacities) draw(ws []wish, node *v1.Node) (took []string, enough bool) {
	enough = true
	slices.SortFunc(ws, func(a, b wish) int { return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.claim, b.claim)) })
	for _, w := range ws {
		object := c.roomFor(w, node)
		if object == "" {
			enough = false
			continue
		}
		c.take(w.claim, debit{object, w.size})
		took = append(took, w.claim)
	}
	return took, enough
}

// roomFor returns the object that has room for a wish on the node, "" for none. It is the one upstream chooses.
func (c *capacities) roomFor(w wish, node *v1.Node) string {
	for _, x := range c.objects.List() {
		object := x.(*storagev1.CSIStorageCapacity)
		if object.StorageClassName != w.class || object.NodeTopology == nil {
			continue
		}
		limit := object.Capacity
		if object.MaximumVolumeSize != nil {
			limit = object.MaximumVolumeSize
		}
		if limit == nil || limit.Value() < w.size {
			continue
		}
		if s, err := metav1.LabelSelectorAsSelector(object.NodeTopology); err == nil && s.Matches(labels.Set(node.Labels)) {
			return object.Namespace + "/" + object.Name
		}
	}
	return ""
}

// take and give move what is left of an object.
func (c *capacities) take(claim string, d debit) {
	c.taken[claim] = d
	c.spend(d.object, d.size)
}

func (c *capacities) give(claim string) {
	if d, has := c.taken[claim]; has {
		delete(c.taken, claim)
		c.spend(d.object, -d.size)
	}
}

func (c *capacities) spend(key string, size int64) {
	plain := c.plain[key]
	if plain == nil {
		plain = c.objects.all[key].(*storagev1.CSIStorageCapacity)
		c.plain[key] = plain
	}
	c.spent[key] += size
	if c.spent[key] == 0 || plain.Capacity == nil { // how large a volume may be says nothing about how many there may be
		c.objects.put(key, plain)
		return
	}
	left := *plain // a shallow copy: what differs is replaced
	rest := resource.NewQuantity(max(0, plain.Capacity.Value()-c.spent[key]), resource.BinarySI)
	left.Capacity = rest
	if most := plain.MaximumVolumeSize; most != nil && most.Cmp(*rest) > 0 {
		left.MaximumVolumeSize = rest
	}
	c.objects.put(key, &left)
}

// wishesOf returns what is to be made where capacity counts.
func wishesOf(found *volumebinding.PodVolumes) []wish {
	var out []wish
	for _, p := range found.DynamicProvisions {
		if p.NodeCapacity == nil {
			continue
		}
		size := p.PVC.Spec.Resources.Requests[v1.ResourceStorage]
		out = append(out, wish{claim: p.PVC.Namespace + "/" + p.PVC.Name, class: p.NodeCapacity.StorageClassName, size: size.Value()})
	}
	return out
}
