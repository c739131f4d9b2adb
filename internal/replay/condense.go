package replay

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// errNothing says that there is no cycle to speak of.
var errNothing = errors.New("write a cycle: none has come, or a gap has not ended")

// Whole is the latest cycle as a keyframe. An error says that there is none. O(objects), of which it makes no copies.
func (f *Follower) Whole() (*Entry, error) {
	c := f.Case()
	if c == nil {
		return nil, errNothing
	}
	return &Entry{printed: printed{Kind: Keyframe, Format: StreamFormat, Cluster: f.cluster, Cycle: f.cycle}, of: c}, nil
}

// Condensed writes the latest cycle as a line of a stream that leaves out those which it is not asked for: a keyframe if that is wanted, or where there is nothing that it could differ
// from; else a change, of what is another than in the cycle that it was last asked for. A Follower that takes these lines in has the same cases. What was asked for is taken to be
// kept: who loses a line asks for a keyframe next. The cost of a change is that of what has changed; from the first call on, taking entries in remembers the names of what they change.
func (f *Follower) Condensed(w io.Writer, whole bool) (isWhole bool, err error) {
	if !f.there {
		return false, errNothing
	}
	switch {
	case whole || f.since == 0:
		err = wholeLine(w, f.cycle, f.cluster, f.Case())
		isWhole = true
	case f.line != nil: // the scheduler has said it
		_, err = w.Write(f.line)
	default:
		err = f.part(w)
	}
	f.condensed(err == nil)
	return isWhole, err
}

// condensed says whether the latest cycle is the one that was condensed last.
func (f *Follower) condensed(yes bool) {
	f.since = 0
	if yes {
		f.since = f.cycle
	}
	f.nodes.condensed(yes)
	f.topologies.condensed(yes)
	f.queues.condensed(yes)
	f.gangs.condensed(yes)
	f.pods.condensed(yes)
	f.objects.condensed(yes)
	f.memory.condensed(yes)
}

// part is what differs from the cycle that was condensed last.
func (f *Follower) part(w io.Writer) error {
	e := printed{Kind: Change, Cycle: f.cycle, After: f.since, Gone: &gone{}}
	c := f.head
	c.Image = cluster.Image{Now: f.now, Dims: f.dims}
	c.Image.Memory, e.Again = f.partOfMemory()
	im := &c.Image
	e.Gone.Nodes = differ(im, &f.nodes, cmp.Compare[string])
	e.Gone.Topologies = differ(im, &f.topologies, cmp.Compare[string])
	e.Gone.Queues = differ(im, &f.queues, cmp.Compare[string])
	if len(f.usage) > 0 {
		im.Events = append(im.Events, cluster.UsageState{Queues: f.usage})
	}
	e.Gone.Gangs = differ(im, &f.gangs, compareKeys)
	e.Gone.Pods = differ(im, &f.pods, cmp.Compare[string])
	for _, k := range differ(im, &f.objects, compareObjects) {
		e.Gone.Objects = append(e.Gone.Objects, cluster.ObjectGone{Kind: k.kind, Key: k.key})
	}
	var err error
	if e.File, err = pack(&c); err != nil {
		return err
	}
	return e.print(w)
}

// differ adds to an image those touched that are there, and returns those that are not.
func differ[K comparable, E cluster.Event](im *cluster.Image, k *kept[K, E], order func(a, b K) int) (gone []K) {
	for _, key := range slices.SortedFunc(maps.Keys(k.touched), order) {
		if e, ok := k.all[key]; ok {
			im.Events = append(im.Events, e)
		} else {
			gone = append(gone, key)
		}
	}
	return gone
}

func compareKeys(a, b cluster.Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Face, b.Face))
}

func compareObjects(a, b objectKey) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.key, b.key))
}

// Plans are what was decided in the latest cycle. They must not be changed.
func (f *Follower) Plans() []engine.Plan { return f.head.Plans }

// At is the moment of the latest cycle.
func (f *Follower) At() cluster.Instant { return f.now }

// QueueOf is the queue of a gang of the latest cycle, "" for one that is not there.
func (f *Follower) QueueOf(gang cluster.Key) string { return f.gangs.get(gang).Queue }
