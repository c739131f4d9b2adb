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
	memory     remembered
	nodes      kept[string, cluster.NodeState]
	topologies kept[string, cluster.TopologyState]
	queues     kept[string, cluster.QueueState]
	usage      map[string][]cluster.Quantity
	gangs      kept[cluster.Key, cluster.GangState]
	pods       kept[string, cluster.PodState]
	objects    kept[objectKey, cluster.ObjectState]
	since      uint64 // the cycle that was condensed last; 0 while there is none
	line       []byte // of the latest cycle, if it was read and differs from the one that was condensed last
}

// kept are the objects of a kind, each as the event that said so: an image has the same, and so do all Followers that were given the same Entry. Nobody writes to them.
type kept[K comparable, E cluster.Event] struct {
	all map[K]cluster.Event
	// touched are those that have changed or gone since the cycle that was condensed last; nil while there is none.
	touched map[K]bool
}

// get is an object as it was last said to be, the zero value for one that is not there.
func (k *kept[K, E]) get(key K) (e E) {
	e, _ = k.all[key].(E)
	return e
}

func (k *kept[K, E]) put(key K, e cluster.Event) {
	k.all[key] = e
	k.touch(key)
}

func (k *kept[K, E]) drop(keys ...K) {
	for _, key := range keys {
		delete(k.all, key)
		k.touch(key)
	}
}

func (k *kept[K, E]) touch(key K) {
	if k.touched != nil {
		k.touched[key] = true
	}
}

// empty forgets all, and that anything was condensed.
func (k *kept[K, E]) empty() { k.all, k.touched = map[K]cluster.Event{}, nil }

// condensed says whether what is touched from now on is to be remembered.
func (k *kept[K, E]) condensed(yes bool) {
	k.touched = nil
	if yes {
		k.touched = map[K]bool{}
	}
}

type objectKey struct {
	kind cluster.ObjectKind
	key  string
}

// Entry is a line of a stream that was read. It is not written to: several Followers may be given it, and share what it says.
type Entry struct {
	printed
	of   *Case  // of a keyframe and a change
	line []byte // of a change
	size int
}

// Size is how many bytes the line had, 0 for an entry that was not read.
func (e *Entry) Size() int { return e.size }

// FormatError says that a stream is of a format which this version does not read: its scheduler, or who wrote the journal, is of another version.
type FormatError struct{ Format string }

// Error names the format, and what is read.
func (e *FormatError) Error() string {
	return fmt.Sprintf("the stream's format is %q; this version of muster reads %q and %q", shown(e.Format), StreamFormat, firstFormat)
}

// ReadEntry reads a line of a stream, which is not written to after that. One of another format, which is a FormatError, or that says what no scheduler would say, is an error. Cost: what it says.
func ReadEntry(text []byte) (*Entry, error) {
	if !bytes.HasPrefix(text, []byte(`{"kind":"cycle",`)) { // which have no format, and come thousands of times
		var head struct {
			Kind   EntryKind `json:"kind"`
			Format string    `json:"format"`
		}
		if err := json.Unmarshal(text, &head); err != nil {
			return nil, fmt.Errorf("read a cycle: %w", err)
		}
		if head.Kind == Keyframe && head.Format != StreamFormat && head.Format != firstFormat {
			return nil, fmt.Errorf("read a cycle: %w", &FormatError{head.Format})
		}
	}
	var e printed
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&e); err != nil {
		return nil, fmt.Errorf("read a cycle: %w", err)
	}
	if rest := bytes.TrimSpace(text[strict.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("read a cycle: after the entry comes %q", shown(string(rest)))
	}
	switch e.Kind {
	case Still, Gap:
		return &Entry{printed: e, size: len(text)}, nil
	case Change:
	case Keyframe:
		if e.Format != StreamFormat && e.Format != firstFormat {
			return nil, fmt.Errorf("read a cycle: the keyframe's format is %q", shown(e.Format))
		}
	default:
		return nil, fmt.Errorf("read a cycle: an entry of kind %q is not known", shown(string(e.Kind)))
	}
	if e.File == nil {
		return nil, errors.New("read a cycle: an entry without a case")
	}
	c, err := unpack(e.File)
	if err != nil {
		return nil, err
	}
	e.File = nil // the case has it
	if e.Kind == Keyframe {
		return &Entry{printed: e, of: c, size: len(text)}, nil
	}
	return &Entry{e, c, text, len(text)}, nil
}

// Take takes in a line of a stream, and says what it is: [ReadEntry], and then [Follower.Add].
func (f *Follower) Take(text []byte) (EntryKind, error) {
	e, err := ReadEntry(text)
	if err != nil {
		return "", err
	}
	return f.Add(e)
}

// Add takes in an entry, and says what it is. One that does not follow is an error; what was there before holds, and the stream is to be opened anew. Cost: what the entry says.
func (f *Follower) Add(e *Entry) (EntryKind, error) {
	switch e.Kind {
	case Still:
		return Still, nil
	case Gap:
		f.missed, f.there = f.missed+e.Missed, false
		return Gap, nil
	}
	if e.Kind == Change && (!f.there || e.After == 0 && e.Cycle != f.cycle+1 || e.After != 0 && (e.After != f.cycle || e.Cycle < e.After)) {
		return "", fmt.Errorf("read a cycle: cycle %d does not follow on %d", e.Cycle, f.cycle)
	}
	c := e.of
	f.line = nil
	if e.Kind == Change && e.After == 0 && f.since == f.cycle {
		f.line = e.line
	}
	if e.Kind == Keyframe {
		f.empty()
		f.head, f.cluster, f.there = Case{Version: c.Version, Profile: c.Profile, StorageCapacity: c.StorageCapacity}, e.Cluster, true
	}
	f.cycle, f.now, f.dims = e.Cycle, c.Image.Now, c.Image.Dims
	if e.Kind == Keyframe || e.Again == nil {
		f.memory.set(&c.Image.Memory)
	} else {
		f.memory.add(&c.Image.Memory, c.Image.Events, e.Gone, e.Again)
	}
	f.head.Profile, f.head.Decided, f.head.Plans = c.Profile, c.Decided, c.Plans // each cycle says by what it was decided
	if e.Gone != nil {
		f.forget(e.Gone)
	}
	f.learn(c.Image.Events)
	return e.Kind, nil
}

func (f *Follower) empty() {
	f.usage, f.since = nil, 0
	f.nodes.empty()
	f.topologies.empty()
	f.queues.empty()
	f.gangs.empty()
	f.pods.empty()
	f.objects.empty()
}

func (f *Follower) forget(g *gone) {
	f.nodes.drop(g.Nodes...)
	f.topologies.drop(g.Topologies...)
	f.queues.drop(g.Queues...)
	f.gangs.drop(g.Gangs...)
	f.pods.drop(g.Pods...)
	for _, o := range g.Objects {
		f.objects.drop(objectKey{o.Kind, o.Key})
	}
}

func (f *Follower) learn(events []cluster.Event) {
	f.usage = nil // it is told whole, or there is none
	for _, event := range events {
		switch e := event.(type) {
		case cluster.NodeState:
			f.nodes.put(e.Name, event)
		case cluster.TopologyState:
			f.topologies.put(e.Name, event)
		case cluster.QueueState:
			f.queues.put(e.Name, event)
		case cluster.UsageState:
			f.usage = e.Queues
		case cluster.GangState:
			f.gangs.put(e.Key, event)
		case cluster.PodState:
			f.pods.put(e.UID, event)
		case cluster.ObjectState:
			f.objects.put(objectKey{e.Kind, e.Key}, event)
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
	im.Now, im.Dims, im.Memory = f.now, f.dims, f.memory.memory(f.now)
	usage := 0
	if len(f.usage) > 0 {
		usage = 1
	}
	im.Events = make([]cluster.Event, 0, len(f.nodes.all)+len(f.topologies.all)+len(f.queues.all)+usage+len(f.gangs.all)+len(f.pods.all)+len(f.objects.all))
	events(im, f.nodes.all, cmp.Compare[string])
	events(im, f.topologies.all, cmp.Compare[string])
	events(im, f.queues.all, cmp.Compare[string])
	if usage > 0 {
		im.Events = append(im.Events, cluster.UsageState{Queues: f.usage})
	}
	events(im, f.gangs.all, compareKeys)
	first := len(im.Events)
	for _, e := range f.pods.all { // order: they are sorted
		im.Events = append(im.Events, e)
	}
	slices.SortFunc(im.Events[first:], comparePods)
	events(im, f.objects.all, compareObjects)
	return &c
}

// comparePods orders pods by namespace, name and UID.
func comparePods(a, b cluster.Event) int {
	p, _ := a.(cluster.PodState)
	q, _ := b.(cluster.PodState)
	return cmp.Or(cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(p.Name, q.Name), cmp.Compare(p.UID, q.UID))
}

// events adds what a map has to an image, in an order of its keys.
func events[K comparable](im *cluster.Image, of map[K]cluster.Event, order func(a, b K) int) {
	for _, k := range slices.SortedFunc(maps.Keys(of), order) {
		im.Events = append(im.Events, of[k])
	}
}
