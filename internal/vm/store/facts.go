package store

import (
	"errors"
	"fmt"
	"time"
)

// Facts are what Reconcile compares: the records, and what is there. A source that could not be asked is not Known, and then nothing is concluded from what is
// missing in it: what depends on it is left for the next time.
type Facts struct {
	// Now is used as the end of a machine that ended while nobody looked.
	Now time.Time

	Sandboxes  []Sandbox
	Containers []Container
	Intents    []Intent

	// Domains are libvirt's, foreign ones too.
	Domains      []Domain
	DomainsKnown bool
	// Networks are those of the network process.
	Networks      []Network
	NetworksKnown bool
	// Files are what lies in the runtime's own folders, by absolute path: of a folder that one container or sandbox owns, the folder alone; of any
	// other, what lies in it and not the folder.
	Files      []string
	FilesKnown bool

	// ExitCodes are what guests have written to their exit port, by container.
	ExitCodes map[string]int32
	// Adopted are the sandboxes and containers that this process serves already, by id.
	Adopted map[string]bool
}

// DomainState is what libvirt says of a domain.
type DomainState string

// The states of a domain. Blocked, "in shutdown" and paused by an error of a disk are live: QEMU is there, and holds disks.
const (
	// Live is a domain with a process.
	Live DomainState = "live"
	// Paused is a domain with a process that has not been let go on since it was started.
	Paused DomainState = "paused"
	// Off is one without; Reason says why.
	Off DomainState = "off"
)

// OffReason says why a domain is off.
type OffReason string

// The reasons of a domain that is off.
const (
	// NeverRan is a domain that is only defined, or whose start failed.
	NeverRan OffReason = "never ran"
	// ShutDown is a guest that powered off.
	ShutDown OffReason = "shut down"
	// Destroyed is one that was killed.
	Destroyed OffReason = "destroyed"
	// Crashed is one whose QEMU or kernel died.
	Crashed OffReason = "crashed"
	// Saved is one that was suspended to a file.
	Saved OffReason = "saved"
)

// Domain is a libvirt domain.
type Domain struct {
	UUID string
	// Container is the id in our metadata element; "" for a domain that is not ours, which is left alone.
	Container string
	State     DomainState
	Reason    OffReason
	// Files are the paths of the disks and other files that libvirt says it uses.
	Files []string
}

// Network is a pod's network.
type Network struct {
	// ID is the sandbox's.
	ID string
	// Whole says that it is ready, and its namespace is there: after a reboot it is not.
	Whole bool
}

// Verb says what an action is for.
type Verb string

// The verbs.
const (
	// Adopt serves what lives: the console is read, events are watched, DHCP goes on.
	Adopt Verb = "adopt"
	// Finish brings to its end what was begun, or writes down what has happened.
	Finish Verb = "finish"
	// Undo takes back what was begun and nobody was told of.
	Undo Verb = "undo"
	// Delete removes what no record owns.
	Delete Verb = "delete"
)

// Op is what is done to carry out an action. Each may be done again after it was done, with the same result.
type Op string

// The operations.
const (
	// OpServe serves a sandbox or container from now on.
	OpServe Op = "serve"
	// OpStop goes on with the stop of a container's live domain until Deadline, destroys it then, and writes the container down as Exited, without
	// its intent.
	OpStop Op = "stop"
	// OpEnd ends a domain's process, if it has one; the domain stays defined.
	OpEnd Op = "end"
	// OpUndefine ends a domain and takes it away.
	OpUndefine Op = "undefine"
	// OpRelease releases a network.
	OpRelease Op = "release"
	// OpUnlink removes a file or a folder with all that is in it, if it is there. Mounts below it are taken off first.
	OpUnlink Op = "unlink"
	// OpWrite makes one transaction: Record is put, the records of Drop go, the intent about the object ends.
	OpWrite Op = "write"
)

// Action is one thing to do. Actions are done in order, by Execute.
type Action struct {
	Verb Verb
	Op   Op
	Kind Kind
	// ID of the object: a domain's UUID, a file's path, else the CRI's id.
	ID string
	// Owner is the sandbox or container for whose sake it is done, "kind/id", and Pod the id of that sandbox, or of the container's. Both are "" for what
	// nobody owns.
	Owner, Pod string
	// Deadline is OpStop's.
	Deadline time.Time
	// Sandbox and Container are OpWrite's record; nil where nothing is put.
	Sandbox   *Sandbox
	Container *Container
	// Gone says that OpWrite takes the object's record away.
	Gone bool
	// Why is a sentence for the log.
	Why string
}

// String is the action in a line, as logs and diag have it.
func (a Action) String() string {
	text := fmt.Sprintf("%s: %s %s %s", a.Verb, a.Op, a.Kind, a.ID)
	switch {
	case a.Gone:
		text += " gone"
	case a.Container != nil && a.Container.State == Exited:
		text += fmt.Sprintf(" %s %d %s", a.Container.State, a.Container.ExitCode, a.Container.Reason)
	case a.Container != nil:
		text += " " + string(a.Container.State)
	case a.Sandbox != nil:
		text += " " + string(a.Sandbox.State)
	case a.Op == OpWrite:
		text += " as it is"
	case a.Op == OpStop && !a.Deadline.IsZero():
		text += " by " + a.Deadline.Format(time.TimeOnly)
	}
	return text + " (" + a.Why + ")"
}

// Execute has all actions done, in order. Where one fails, the later ones of its owner are left out, and those of the sandbox if the owner is a container: a record
// outlives what it owns, and a network the machines that use it. Where a domain that nobody owns cannot be ended, no file goes, because it may use it. The error
// has all that failed; what was left out is found by the next Reconcile.
func Execute(actions []Action, do func(Action) error) error {
	var errs []error
	failed, inUse := map[string]bool{}, false
	for _, a := range actions {
		if a.Owner != "" && failed[a.Owner] {
			continue
		}
		if !inUse || a.Op != OpUnlink {
			err := do(a)
			if err == nil {
				continue
			}
			errs = append(errs, fmt.Errorf("%s: %w", a, err))
		}
		inUse = inUse || a.Owner == "" && a.Op == OpUndefine
		failed[a.Owner] = true
		if a.Pod != "" {
			failed[ownerOf(KindSandbox, a.Pod)] = true
		}
	}
	return errors.Join(errs...)
}

// Apply makes the transaction of an OpWrite: the one step of an action that the store itself can do.
func (s *Store) Apply(a Action) error {
	if a.Op != OpWrite {
		return fmt.Errorf("store: %s is not for the store", a.Op)
	}
	return s.Update(func(tx *Tx) error {
		tx.End(a.Kind, a.ID)
		switch {
		case a.Gone && a.Kind == KindSandbox:
			tx.DeleteSandbox(a.ID)
		case a.Gone:
			tx.DeleteContainer(a.ID)
		case a.Sandbox != nil:
			return tx.PutSandbox(*a.Sandbox)
		case a.Container != nil:
			return tx.PutContainer(*a.Container)
		}
		return nil
	})
}

// Facts gives the records of one moment; the caller fills in the rest.
func (s *Store) Facts() Facts {
	now := s.read()
	return Facts{
		Sandboxes:  sorted(now.sandboxes, Sandbox.clone, func(Sandbox) bool { return true }),
		Containers: sorted(now.containers, Container.clone, func(Container) bool { return true }),
		Intents:    sorted(now.intents, Intent.clone, func(Intent) bool { return true }),
	}
}
