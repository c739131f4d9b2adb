package devices

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/entry"
)

// Index remembers the objects that events of pods and nodes depend on. One goroutine works with it. The zero Index is not
// ready; NewBook makes one.
type Index struct {
	queueLabel string // on shared claims

	claims map[string]claim                    // by "namespace/name"
	users  map[string]map[string]struct{}      // by claim: pods, by "namespace/name"
	wants  map[string][]want                   // by pod: what it is a user of
	now    []want                              // of the pod that is being completed
	slices map[string]*slice                   // by name
	nodes  map[string]map[string]*slice        // by node: its slices by name
	class  map[string]*resourceapi.DeviceClass // by extended resource
	all    map[string]*resourceapi.DeviceClass // by name
	asks   map[string]map[string]struct{}      // by extended resource: pods that ask for it
	off    bool                                // see Extended

	dirtyPods, dirtyNodes map[string]struct{}
}

// want is something that a pod's event depends on: a claim, by "namespace/name", or an extended resource.
type want struct {
	resource bool
	what     string
}

// claim is what a claim means to pods.
type claim struct {
	spec  string
	queue string
	gpus  int64
	group string // the PodGroup that it was made for; "" for none
}

// slice is what a slice means to its node.
type slice struct {
	node    string
	driver  string
	devices int64
}

// NewIndex returns an empty index. queueLabel is the key of the label that says to which queue a shared claim belongs.
func NewIndex(queueLabel string) *Index {
	return &Index{
		queueLabel: queueLabel, claims: map[string]claim{}, users: map[string]map[string]struct{}{}, wants: map[string][]want{},
		slices: map[string]*slice{}, nodes: map[string]map[string]*slice{}, class: map[string]*resourceapi.DeviceClass{},
		all: map[string]*resourceapi.DeviceClass{}, asks: map[string]map[string]struct{}{},
		dirtyPods: map[string]struct{}{}, dirtyNodes: map[string]struct{}{},
	}
}

// Claim takes in the latest state of a claim; nil means it is gone.
func (b *Index) Claim(key string, c *resourceapi.ResourceClaim) {
	before, known := b.claims[key]
	if c == nil {
		delete(b.claims, key)
	} else {
		now := claim{spec: specText(&c.Spec), queue: c.Labels[b.queueLabel], gpus: GPUs(&c.Spec), group: groupOf(c)}
		if known && now == before {
			return
		}
		b.claims[key] = now
	}
	for pod := range b.users[key] { // order: a set
		b.dirtyPods[pod] = struct{}{}
	}
}

// Slice takes in the latest state of a slice; nil means it is gone.
func (b *Index) Slice(name string, s *resourceapi.ResourceSlice) {
	before := b.slices[name]
	var now *slice
	if s != nil && s.Spec.NodeName != nil {
		now = &slice{node: *s.Spec.NodeName, driver: s.Spec.Driver, devices: int64(len(s.Spec.Devices))}
	}
	if before != nil && now != nil && *before == *now {
		return
	}
	if before != nil {
		delete(b.slices, name)
		delete(b.nodes[before.node], name)
		b.dirtyNodes[before.node] = struct{}{}
	}
	if now != nil {
		b.slices[name] = now
		entry.Put(b.nodes, now.node, name, now)
		b.dirtyNodes[now.node] = struct{}{}
	}
}

// Class takes in the latest state of a DeviceClass; nil means it is gone. Should several stand for one extended resource,
// the youngest counts, and of those the first by name, as upstream.
func (b *Index) Class(name string, c *resourceapi.DeviceClass) {
	before := b.all[name]
	if c == nil {
		delete(b.all, name)
	} else {
		b.all[name] = c
	}
	if extendedName(before) == extendedName(c) && implicitName(before) == implicitName(c) {
		return
	}
	b.reclass()
}

// Extended says whether the API server lets pods have extended resources as devices; at first it does. One that does not would drop a
// class's extendedResourceName, so that a class that has one shows that it does all the same.
func (b *Index) Extended(on bool) {
	if b.off == on {
		b.off = !on
		b.reclass()
	}
}

// reclass finds out anew which class stands for which extended resource.
func (b *Index) reclass() {
	old := b.class
	b.class = map[string]*resourceapi.DeviceClass{}
	off := b.off
	for _, c := range b.all { // order: any will do
		off = off && extendedName(c) == ""
	}
	for _, c := range b.all { // order: the best of each resource
		if off {
			break
		}
		for _, resource := range [...]string{extendedName(c), implicitName(c)} {
			if best := b.class[resource]; resource != "" && (best == nil || younger(c, best)) {
				b.class[resource] = c
			}
		}
	}
	for _, m := range [...]map[string]*resourceapi.DeviceClass{old, b.class} {
		for resource := range m { // order: a set
			if (old[resource] == nil) == (b.class[resource] == nil) && (old[resource] == nil || old[resource].Name == b.class[resource].Name) {
				continue
			}
			for pod := range b.asks[resource] { // order: a set
				b.dirtyPods[pod] = struct{}{}
			}
			for node := range b.nodes { // order: a set
				b.dirtyNodes[node] = struct{}{}
			}
		}
	}
}

func younger(a, b *resourceapi.DeviceClass) bool {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c > 0
	}
	return a.Name < b.Name
}

func extendedName(c *resourceapi.DeviceClass) string {
	if c == nil || c.Spec.ExtendedResourceName == nil {
		return ""
	}
	return *c.Spec.ExtendedResourceName
}

// implicitName is the extended resource that every class stands for.
func implicitName(c *resourceapi.DeviceClass) string {
	if c == nil {
		return ""
	}
	return resourceapi.ResourceDeviceClassPrefix + c.Name
}

// Dirty returns the pods ("namespace/name") and nodes whose events have to be made anew, and forgets that. The orders mean
// nothing to the model.
func (b *Index) Dirty() (pods, nodes []string) {
	if len(b.dirtyPods)+len(b.dirtyNodes) == 0 {
		return nil, nil
	}
	pods, nodes = slices.Sorted(maps.Keys(b.dirtyPods)), slices.Sorted(maps.Keys(b.dirtyNodes))
	clear(b.dirtyPods)
	clear(b.dirtyNodes)
	return pods, nodes
}

// Forget forgets a pod that is gone.
func (b *Index) Forget(pod string) {
	for _, w := range b.wants[pod] {
		index := b.index(w)
		if delete(index[w.what], pod); len(index[w.what]) == 0 {
			delete(index, w.what)
		}
	}
	delete(b.wants, pod)
	delete(b.dirtyPods, pod)
}

// Node completes a node's event: the GPUs that are claimed there, and the extended resources that are given as devices.
func (b *Index) Node(st *cluster.NodeState) {
	here := b.nodes[st.Name]
	if len(here) == 0 {
		return
	}
	all, gpus := int64(0), int64(0)
	for _, s := range here { // order: sums
		all += s.devices
		if IsGPU(s.driver) {
			gpus += s.devices
		}
	}
	st.ClaimGPUs = gpus * 1000
	for _, resource := range slices.Sorted(maps.Keys(b.class)) {
		dim := core.Dimension(v1.ResourceName(resource))
		if slices.ContainsFunc(st.Allocatable, func(q cluster.Quantity) bool { return q.Name == dim && q.Value > 0 }) {
			continue
		}
		st.ByClaim = append(st.ByClaim, resource)
	}
	given := map[string]bool{}
	for _, resource := range st.ByClaim {
		q := cluster.Quantity{Name: core.Dimension(v1.ResourceName(resource)), Value: all}
		if given[q.Name] {
			continue
		}
		given[q.Name] = true
		if q.Name == gpuDimension {
			q.Value, st.ClaimGPUs = 1000*cmp.Or(gpus, all), 0 // counted in Allocatable
		}
		st.Allocatable = append(slices.DeleteFunc(slices.Clone(st.Allocatable), func(o cluster.Quantity) bool { return o.Name == q.Name }), q)
	}
}

const gpuDimension = "gpu"

// IsGPU is KAI's rule of which drivers and device classes are of GPUs: by their name.
func IsGPU(name string) bool { return strings.Contains(strings.ToLower(name), "gpu") }
