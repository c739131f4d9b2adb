// Package tally adds Kubernetes resource lists up, exactly and reversibly.
//
// A controller that reports the sum of many objects must not sum all of them again whenever one changes. A Sum takes
// what an object contributes, and gives it back when the object changes or goes:
//
//	sum.Sub(before); sum.Add(after)        // cost: the resources of that one object
//	patch := tally.Diff(observed, sum.List())
//
// Invariant: a Sum depends only on what is in it, not on the order or number of steps that led there. Quantities are
// therefore kept exact, nothing is rounded or saturated on the way; only List caps what the API server could not store.
//
// Callers are the status controllers. The scheduler's own arithmetic is cluster.Resources, which trades exactness for
// speed; the two never meet.
package tally
