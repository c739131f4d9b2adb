package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Follower puts the cycles of a stream together again, entry by entry. It is not safe for concurrent use; what Case returns is.
type Follower struct {
	head       Case // without an image
	cluster    string
	cycle      uint64
	missed     uint64
	there      bool // a keyframe has come, and no gap after it
	now        cluster.Instant
	dims       []string
	memory     cluster.Memory
	nodes      map[string]cluster.NodeState
	topologies map[string]cluster.TopologyState
	queues     map[string]cluster.QueueState
	usage      map[string][]cluster.Quantity
	gangs      map[cluster.Key]cluster.GangState
	pods       map[string]cluster.PodState
	objects    map[objectKey]cluster.ObjectState
	since      *touched // what is another than in the cycle that was condensed last; nil while there is none
}

// touched names what has changed or gone.
type touched struct {
	cycle                           uint64
	nodes, topologies, queues, pods map[string]bool
	gangs                           map[cluster.Key]bool
	objects                         map[objectKey]bool
}

func newTouched(cycle uint64) *touched {
	return &touched{cycle, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[cluster.Key]bool{}, map[objectKey]bool{}}
}

type objectKey struct {
	kind cluster.ObjectKind
	key  string
}

// Take takes in an entry, a line of a stream, and says what it is. An entry of another format, one that does not follow, or one that says what no
// scheduler would say is an error; what was there before holds, and the stream is to be opened anew. Cost: what the entry says.
func (f *Follower) Take(text []byte) (EntryKind, error) {
	var head struct {
		Kind   EntryKind `json:"kind"`
		Format string    `json:"format"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return "", fmt.Errorf("read a cycle: %w", err)
	}
	if head.Kind == Keyframe && head.Format != StreamFormat {
		return "", fmt.Errorf("read a cycle: the stream's format is %q; this version of muster reads %q", shown(head.Format), StreamFormat)
	}
	var e entry
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&e); err != nil {
		return "", fmt.Errorf("read a cycle: %w", err)
	}
	switch e.Kind {
	case Still:
		return Still, nil
	case Gap:
		f.missed, f.there = f.missed+e.Missed, false
		return Gap, nil
	case Keyframe, Change:
	default:
		return "", fmt.Errorf("read a cycle: an entry of kind %q is not known", shown(string(e.Kind)))
	}
	if e.Kind == Change && (!f.there || e.After == 0 && e.Cycle != f.cycle+1 || e.After != 0 && (e.After != f.cycle || e.Cycle < e.After)) {
		return "", fmt.Errorf("read a cycle: cycle %d does not follow on %d", e.Cycle, f.cycle)
	}
	if e.File == nil {
		return "", errors.New("read a cycle: an entry without a case")
	}
	c, err := unpack(e.File)
	if err != nil {
		return "", err
	}
	if e.Kind == Keyframe {
		f.empty()
		f.head, f.cluster, f.there = Case{Version: c.Version, Profile: c.Profile, StorageCapacity: c.StorageCapacity}, e.Cluster, true
	}
	f.cycle, f.now, f.dims, f.memory = e.Cycle, c.Image.Now, c.Image.Dims, c.Image.Memory
	f.head.Profile, f.head.Decided, f.head.Plans = c.Profile, c.Decided, c.Plans // each cycle says by what it was decided
	f.touch(e.Gone, c.Image.Events)
	if e.Gone != nil {
		f.forget(e.Gone)
	}
	f.learn(c.Image.Events)
	return e.Kind, nil
}

func (f *Follower) empty() {
	f.nodes, f.topologies, f.queues, f.usage = map[string]cluster.NodeState{}, map[string]cluster.TopologyState{}, map[string]cluster.QueueState{}, nil
	f.gangs, f.pods, f.objects = map[cluster.Key]cluster.GangState{}, map[string]cluster.PodState{}, map[objectKey]cluster.ObjectState{}
	f.since = nil
}

// touch notes what an entry is about.
func (f *Follower) touch(g *gone, events []cluster.Event) {
	t := f.since
	if t == nil {
		return
	}
	if g != nil {
		for _, list := range []struct {
			names []string
			of    map[string]bool
		}{{g.Nodes, t.nodes}, {g.Topologies, t.topologies}, {g.Queues, t.queues}, {g.Pods, t.pods}} {
			for _, name := range list.names {
				list.of[name] = true
			}
		}
		for _, key := range g.Gangs {
			t.gangs[key] = true
		}
		for _, o := range g.Objects {
			t.objects[objectKey{o.Kind, o.Key}] = true
		}
	}
	for _, e := range events {
		switch e := e.(type) {
		case cluster.NodeState:
			t.nodes[e.Name] = true
		case cluster.TopologyState:
			t.topologies[e.Name] = true
		case cluster.QueueState:
			t.queues[e.Name] = true
		case cluster.GangState:
			t.gangs[e.Key] = true
		case cluster.PodState:
			t.pods[e.UID] = true
		case cluster.ObjectState:
			t.objects[objectKey{e.Kind, e.Key}] = true
		}
	}
}

func (f *Follower) forget(g *gone) {
	for _, name := range g.Nodes {
		delete(f.nodes, name)
	}
	for _, name := range g.Topologies {
		delete(f.topologies, name)
	}
	for _, name := range g.Queues {
		delete(f.queues, name)
	}
	for _, key := range g.Gangs {
		delete(f.gangs, key)
	}
	for _, uid := range g.Pods {
		delete(f.pods, uid)
	}
	for _, o := range g.Objects {
		delete(f.objects, objectKey{o.Kind, o.Key})
	}
}

func (f *Follower) learn(events []cluster.Event) {
	f.usage = nil // it is told whole, or there is none
	for _, e := range events {
		switch e := e.(type) {
		case cluster.NodeState:
			f.nodes[e.Name] = e
		case cluster.TopologyState:
			f.topologies[e.Name] = e
		case cluster.QueueState:
			f.queues[e.Name] = e
		case cluster.UsageState:
			f.usage = e.Queues
		case cluster.GangState:
			f.gangs[e.Key] = e
		case cluster.PodState:
			f.pods[e.UID] = e
		case cluster.ObjectState:
			f.objects[objectKey{e.Kind, e.Key}] = e
		}
	}
}

// Cycle is the number of the cycle that Case returns, 0 for none. Missed is how many cycles gaps have left out so far.
func (f *Follower) Cycle() (number, missed uint64) { return f.cycle, f.missed }

// Cluster is the UID of the namespace kube-system, as the last keyframe says; see [Cluster].
func (f *Follower) Cluster() string { return f.cluster }

// Case is the latest cycle as the scheduler had it; nil while there is none, and after a gap until it has ended. O(objects).
func (f *Follower) Case() *Case {
	if !f.there {
		return nil
	}
	c := f.head
	im := &c.Image
	im.Now, im.Dims, im.Memory = f.now, f.dims, f.memory
	events(im, f.nodes, cmp.Compare[string])
	events(im, f.topologies, cmp.Compare[string])
	events(im, f.queues, cmp.Compare[string])
	if len(f.usage) > 0 {
		im.Events = append(im.Events, cluster.UsageState{Queues: f.usage})
	}
	events(im, f.gangs, compareKeys)
	events(im, f.pods, func(a, b string) int {
		p, q := f.pods[a], f.pods[b]
		return cmp.Or(cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(p.Name, q.Name), cmp.Compare(a, b))
	})
	events(im, f.objects, compareObjects)
	return &c
}

// events adds what a map has to an image, in an order of its keys.
func events[K comparable, E cluster.Event](im *cluster.Image, of map[K]E, order func(a, b K) int) {
	for _, k := range slices.SortedFunc(maps.Keys(of), order) {
		im.Events = append(im.Events, of[k])
	}
}
