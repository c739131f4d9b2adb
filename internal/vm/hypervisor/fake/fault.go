package fake

import (
	"errors"

	"github.com/muster-scheduler/muster/internal/vm"
)

// ErrCrashed is what a dead Client answers. Whoever was killed there reads no answers; a test unwinds by it.
var ErrCrashed = errors.New("the caller is dead")

// Call is a call that is about to be carried out.
type Call struct {
	// N counts the Client's calls from 1.
	N int
	// Verb is the method's name, UUID the machine's where the call names one.
	Verb, UUID string
}

// Fault is what goes wrong with a call. The zero value: nothing.
type Fault struct {
	// Before is the answer instead of carrying the call out.
	Before error
	// After is the answer when it was carried out.
	After error
	// Dead: with this call the Client's caller dies. All later calls answer ErrCrashed, and no events come.
	Dead bool
}

// Faults decides about each call; nil: none goes wrong.
type Faults func(Call) Fault

// FailAt has the n-th call fail as Unavailable, not carried out.
func FailAt(n int) Faults {
	return at(n, Fault{Before: vm.Errorf(vm.Unavailable, "fake: call %d fails", n)})
}

// LoseAt carries the n-th call out and loses its answer.
func LoseAt(n int) Faults {
	return at(n, Fault{After: vm.Errorf(vm.Unavailable, "fake: the answer of call %d is lost", n)})
}

// CrashAt kills the caller at the n-th call, after it was carried out or before.
func CrashAt(n int, after bool) Faults {
	if after {
		return at(n, Fault{After: ErrCrashed, Dead: true})
	}
	return at(n, Fault{Before: ErrCrashed, Dead: true})
}

func at(n int, f Fault) Faults {
	return func(c Call) Fault {
		if c.N == n {
			return f
		}
		return Fault{}
	}
}
