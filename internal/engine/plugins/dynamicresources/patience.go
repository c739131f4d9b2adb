package dynamicresources

import (
	"context"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// The allocator's search is exhaustive, and claims can be written for which it would not end in a lifetime. Who asks long questions
// pays for them: each queue has an account of its own, and what it was told in a hurry is told to nobody else.
const (
	// patience is how many steps the allocator may take in a run for the pods of one queue.
	patience = 200_000
	// together is how many it may take for all queues; beyond that, each is left with its equal part of patience. So one queue takes
	// nothing from any other, and many take nothing from who asks no more than his part, however many they are.
	together = 2 * patience
	// hurry is how many each question may take that is asked after that.
	hurry = 1000
	// stepsToMatch is as many as it costs to look at each device once.
	stepsToMatch = 4
	// A search's step is about two microseconds. So many of them are an expression that is compiled, a question without its devices,
	// and each device of it; a step of the allocator is one for each four devices.
	stepsToCompile, stepsToAsk, stepsPerDevice, devicesPerStep = 100, 16, 2, 4
)

// accounts is what the allocator spent in one run.
type accounts struct {
	spent  map[string]int  // by queue
	all    int             // of all queues, each up to its patience: who is in a hurry takes nothing from others
	queues map[string]bool // those there are whose pods wait for devices
}

// took counts steps of a queue.
func (a *accounts) took(queue string, steps int) {
	a.all += min(steps, max(0, patience-a.spent[queue]))
	a.spent[queue] += steps
}

// allowed is how many steps the allocator may take for the next question of a queue.
func (a *accounts) allowed(queue string) int {
	spent := a.spent[queue]
	left := max(together-a.all, patience/max(1, len(a.queues))-spent)
	return max(hurry, min(patience-spent, left))
}

// queueOf is the queue that a pod is charged to.
func (l *claimLedger) queueOf(p *cluster.Pod) string {
	if g := l.snap.Gang(p.Gang); g != nil {
		return g.Queue
	}
	return ""
}

// whose is the queue to which an answer belongs; "" for all.
func (l *claimLedger) whose(p *cluster.Pod, a answer) string {
	if a.hurried {
		return l.queueOf(p)
	}
	return ""
}

// spend counts what an answer to a pod cost.
func (l *claimLedger) spend(p *cluster.Pod, a answer) {
	l.took(l.queueOf(p), a.cost)
	n := 1
	if a.devices > 0 {
		n += stepsToAsk + a.devices*stepsPerDevice + a.cost*a.devices/devicesPerStep
	}
	if a.compiled {
		l.compile(l.catalog.wishOf(p.Class, l.cache))
	}
	for range n {
		l.step()
	}
}

// compile counts that the expressions of a wish are compiled, once a run: that they may have been in another is luck.
func (l *claimLedger) compile(w *wish) {
	if !l.compiled[w] {
		l.compiled[w] = true
		for range stepsToCompile {
			l.step()
		}
	}
}

// bounded is a context that ends after so many looks at it. The allocator looks once a step.
type bounded struct {
	context.Context
	left int
}

// Err implements context.Context.
func (b *bounded) Err() error {
	if b.left--; b.left < 0 {
		b.left = 0
		return context.Canceled
	}
	return nil
}
