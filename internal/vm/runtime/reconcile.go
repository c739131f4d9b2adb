package runtime

import (
	"slices"
)

// Known is what there is: the records, and what each part has. Nil for a part says that it could not be asked, and then nothing is decided
// that depends on it.
//
// The parts have to be asked before the records are read: what a part has, and no record owns, is then nobody's, because a record is there before
// what it records, and for longer.
type Known struct {
	Sandboxes  []*Sandbox
	Containers []*Container
	Machines   []Machine
	// Networks, Volumes and Folders are ids of sandboxes, of containers and of containers.
	Networks, Volumes, Folders []string
}

// Verb is what to do about one thing.
type Verb string

// The verbs.
const (
	// DropSandbox takes away a sandbox that was never finished, RemoveSandbox goes on with a removal, StopSandbox with a stop.
	DropSandbox   Verb = "drop sandbox"
	RemoveSandbox Verb = "remove sandbox"
	StopSandbox   Verb = "stop sandbox"
	// RemoveContainer goes on with a removal, or takes away what was never finished.
	RemoveContainer Verb = "remove container"
	// Settle finds out whether a start came to its end.
	Settle Verb = "settle"
	// Finish records the end of a machine; Keep goes on with the log of one that runs.
	Finish Verb = "finish"
	Keep   Verb = "keep"
	// Forget undefines the machine of a container that has ended.
	Forget Verb = "forget"
	// The rest is nobody's: Kill a machine by UUID; Release a network, Teardown volumes, Clear a folder by id.
	Kill     Verb = "kill"
	Release  Verb = "release"
	Teardown Verb = "teardown"
	Clear    Verb = "clear"
)

// Step is one thing to do. Steps of different ids depend on each other only in that those of a sandbox are in order.
type Step struct {
	Verb Verb
	ID   string
	// SandboxID is whose lock is needed; "" for what is nobody's.
	SandboxID string
}

// Reconcile says what to do so that records and things agree. It is pure. A machine that ran runs on, whatever else is decided; doing the
// steps again, or only some of them, does no harm.
func Reconcile(k Known) []Step {
	var out []Step
	machine := map[string]Machine{}
	for _, m := range k.Machines {
		machine[m.ContainerID] = m
	}
	boxes, containers := map[string]bool{}, map[string]bool{}
	for _, c := range k.Containers {
		containers[c.ID] = true
		m, there := machine[c.ID]
		verb := Verb("")
		switch {
		case c.Phase == Creating || c.Phase == Removing:
			verb = RemoveContainer
		case k.Machines == nil:
		case c.Phase == Starting:
			verb = Settle
		case c.ran() && (!there || m.State == Off):
			verb = Finish
		case c.ran():
			verb = Keep
		case c.Phase == Exited && c.Defined:
			verb = Forget
		}
		if verb != "" {
			out = append(out, Step{verb, c.ID, c.SandboxID})
		}
	}
	for _, b := range k.Sandboxes {
		boxes[b.ID] = true
		verb := Verb("")
		switch {
		case b.Phase == Creating:
			verb = DropSandbox
		case b.Phase == Removing:
			verb = RemoveSandbox
		case b.Phase == Stopping:
			verb = StopSandbox
		case b.Phase == Ready && k.Networks != nil && !slices.Contains(k.Networks, b.ID):
			verb = StopSandbox // the node was started anew: what its guest had is gone
		}
		if verb != "" {
			out = append(out, Step{verb, b.ID, b.ID})
		}
	}
	for _, m := range k.Machines {
		if !containers[m.ContainerID] {
			out = append(out, Step{Kill, m.UUID, ""})
		}
	}
	for _, list := range []struct {
		verb  Verb
		ids   []string
		owned map[string]bool
	}{{Release, k.Networks, boxes}, {Teardown, k.Volumes, containers}, {Clear, k.Folders, containers}} {
		for _, id := range list.ids {
			if !list.owned[id] {
				out = append(out, Step{list.verb, id, ""})
			}
		}
	}
	return out
}
