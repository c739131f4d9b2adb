package dynamicresources

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// poolKey names a pool of devices.
type poolKey struct{ driver, name string }

// pool is where a pool's devices can be used: on one node, or on several.
type pool struct {
	slices []*resourceapi.ResourceSlice
	node   string // "" for several
	// counters says that devices are parts of something: giving one away may make others unavailable.
	counters bool
}

// catalog is what devices there are, by node. It costs one look at each slice.
type catalog struct {
	slicesSeen, classesSeen map[string]any // those of the snapshot it was made of; held, so that no other map can be taken for them

	pools   map[poolKey]*pool
	byNode  map[string][]*resourceapi.ResourceSlice // the slices of pools that are on one node
	shared  []*resourceapi.ResourceSlice            // those of all other pools
	classes classes
	memory  *memory
	age     int              // of the memory
	names   map[string]bool  // the attributes that devices have, with their domains; nil until asked for
	sights  map[string]*seen // by what is seen
	seenBy  map[*wish]string
	places  map[string]*where // by attribute
	few     map[*wish]few
}

// sameMap says whether two maps are one: the Store replaces a map that a snapshot refers to before it writes.
func sameMap(a, b map[string]any) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

func (c *catalog) current(snap *cluster.Snapshot) bool {
	return sameMap(c.slicesSeen, snap.Objects(cluster.ResourceSlices)) && sameMap(c.classesSeen, snap.Objects(cluster.DeviceClasses))
}

func newCatalog(snap *cluster.Snapshot, m *memory) *catalog {
	c := &catalog{
		slicesSeen: snap.Objects(cluster.ResourceSlices), classesSeen: snap.Objects(cluster.DeviceClasses),
		memory: m, age: m.age, sights: map[string]*seen{}, seenBy: map[*wish]string{}, places: map[string]*where{}, few: map[*wish]few{}, pools: map[poolKey]*pool{}, byNode: map[string][]*resourceapi.ResourceSlice{}, classes: classes(snap.Objects(cluster.DeviceClasses)),
	}
	if len(m.slices) > 2*len(c.slicesSeen) { // most have been replaced
		m.slices = map[*resourceapi.ResourceSlice]*described{}
	}
	var order []poolKey
	for _, name := range slices.Sorted(maps.Keys(c.slicesSeen)) {
		s, ok := c.slicesSeen[name].(*resourceapi.ResourceSlice)
		if !ok {
			continue
		}
		key, node := poolKey{s.Spec.Driver, s.Spec.Pool.Name}, nodeOf(s)
		p := c.pools[key]
		if p == nil {
			p = &pool{node: node}
			c.pools[key] = p
			order = append(order, key)
		} else if p.node != node {
			p.node = ""
		}
		p.slices = append(p.slices, s)
		p.counters = p.counters || len(s.Spec.SharedCounters) > 0
	}
	for _, key := range order {
		if p := c.pools[key]; p.node != "" {
			c.byNode[p.node] = append(c.byNode[p.node], p.slices...)
		} else {
			c.shared = append(c.shared, p.slices...)
		}
	}
	return c
}

// nodeOf returns the one node on which a slice's devices can be used; "" if there may be several.
func nodeOf(s *resourceapi.ResourceSlice) string {
	if s.Spec.NodeName == nil {
		return ""
	}
	return *s.Spec.NodeName
}

// on returns the slices whose devices may be usable on a node, always whole pools.
func (c *catalog) on(node string) []*resourceapi.ResourceSlice {
	if len(c.shared) == 0 {
		return c.byNode[node]
	}
	return slices.Concat(c.byNode[node], c.shared)
}

// nodeOfPool returns the one node on which a pool's devices can be used; "" if there may be several, or it is not known.
func (c *catalog) nodeOfPool(driver, name string) string {
	if p := c.pools[poolKey{driver, name}]; p != nil {
		return p.node
	}
	return ""
}

// classes are the DeviceClasses, as the allocator asks for them.
type classes map[string]any

// List returns all classes by name.
func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	out := make([]*resourceapi.DeviceClass, 0, len(c))
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if class, ok := c[name].(*resourceapi.DeviceClass); ok {
			out = append(out, class)
		}
	}
	return out, nil
}

// Get returns one class; one that does not exist is an error.
func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, ok := c[name].(*resourceapi.DeviceClass); ok {
		return class, nil
	}
	return nil, fmt.Errorf("DeviceClass %s does not exist", name)
}

// site is what the allocator looks at of a node.
type site struct{ *v1.Node }

func newSite(name string, labels map[string]string) site {
	return site{&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}}
}
