package replay

import (
	"bytes"
	"io"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// StreamFormat names the format of a stream of cycles and its version. A stream is a sequence of entries, each an object of JSON on a line of its
// own: a keyframe, and then cycles; a gap says that cycles were left out, and a keyframe follows it.
//
// firstFormat, which journals may have, is the one before: each entry says all that is remembered. It is read as well.
const StreamFormat, firstFormat = "muster.cycles/v2", "muster.cycles/v1"

// EntryKind is what an entry of a stream is.
type EntryKind string

// The kinds of entries.
const (
	Keyframe EntryKind = "keyframe" // a whole cycle: what it depended on, and what was decided
	Change   EntryKind = "cycle"    // the next cycle, by what differs from the one before
	Gap      EntryKind = "gap"      // cycles that are left out, because the reader was too slow for them
	Still    EntryKind = "still"    // nothing has happened: the scheduler is there
)

// printed is an entry as it is printed, a line of a stream.
type printed struct {
	Kind EntryKind `json:"kind"`
	// Format and Cluster come with keyframes.
	Format  string `json:"format,omitzero"`
	Cluster string `json:"cluster,omitzero"`
	// Cycle is the cycle's number, from 1 on in each process; of a gap, that of the last one that is left out; of still, that of the latest.
	Cycle uint64 `json:"cycle,omitzero"`
	// Missed is how many cycles a gap leaves out.
	Missed uint64 `json:"missed,omitzero"`
	// After is the cycle that a change differs from, where that is not the one before it: cycles between were left out on purpose (see [Follower.Condensed]).
	After uint64 `json:"after,omitzero"`
	// File is the case; of a change, only what is another than before, but for the memory and what was decided.
	File *file `json:"file,omitzero"`
	Gone *gone `json:"gone,omitzero"`
	// Again says that the file's memory is a part, and of what beside that which File and Gone name; see cluster.Snapshot.MemorySince. Nil: it is the whole of it.
	Again *cluster.Again `json:"again,omitzero"`
}

// gone names what is there no more.
type gone struct {
	Nodes      []string             `json:"nodes,omitzero"`
	Topologies []string             `json:"topologies,omitzero"`
	Queues     []string             `json:"queues,omitzero"`
	Gangs      []cluster.Key        `json:"gangs,omitzero"`
	Pods       []string             `json:"pods,omitzero"` // by UID
	Objects    []cluster.ObjectGone `json:"objects,omitzero"`
}

// add takes in an event that says that something is gone; false for any other.
func (g *gone) add(e cluster.Event) bool {
	switch e := e.(type) {
	case cluster.NodeGone:
		g.Nodes = append(g.Nodes, e.Name)
	case cluster.TopologyGone:
		g.Topologies = append(g.Topologies, e.Name)
	case cluster.QueueGone:
		g.Queues = append(g.Queues, e.Name)
	case cluster.GangGone:
		g.Gangs = append(g.Gangs, e.Key)
	case cluster.PodGone:
		g.Pods = append(g.Pods, e.UID)
	case cluster.ObjectGone:
		g.Objects = append(g.Objects, e)
	default:
		return false
	}
	return true
}

// line prints an entry.
func line(e *printed) ([]byte, error) {
	var b bytes.Buffer
	if err := e.print(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// wholeLine prints a whole cycle.
func wholeLine(w io.Writer, cycle uint64, id string, c *Case) error {
	f, err := pack(c)
	if err != nil {
		return err
	}
	return (&printed{Kind: Keyframe, Format: StreamFormat, Cluster: id, Cycle: cycle, File: f}).print(w)
}

// partLine prints a cycle by what is another than in the one before it, which is of the same Store.
func partLine(cycle uint64, snap, before *cluster.Snapshot, events []cluster.Event, c *Case) ([]byte, error) {
	memory, again := snap.MemorySince(before)
	e := printed{Kind: Change, Cycle: cycle, Gone: &gone{}, Again: &again}
	part := *c
	part.Image = cluster.Image{Now: snap.Now, Memory: memory}
	for i := range snap.Dims.Len() {
		part.Image.Dims = append(part.Image.Dims, snap.Dims.Name(i))
	}
	for _, event := range events {
		if !e.Gone.add(event) {
			part.Image.Events = append(part.Image.Events, event)
		}
	}
	var err error
	if e.File, err = pack(&part); err != nil {
		return nil, err
	}
	return line(&e)
}
