// Package workload answers one question: which gang does a pod belong to, given the objects that own it?
//
// A Job, a PyTorchJob or a Deployment says nothing of gangs. This package reads what it does say (replica counts, an
// elastic minimum, labels, annotations) and writes down the PodGroup that should exist and what the pod must carry to
// belong to it:
//
//	pod + owners (nearest first) + settings ──Table.Group──▶ Grouping
//	                                                          ├─ PodGroup   what should exist
//	                                                          ├─ Members    which subgroup a pod is in
//	                                                          └─ Warnings   what the user wrote and is ignored
//	existing PodGroup + wanted one          ──UpdatePatch──▶  merge patch, or nil
//	pod + group name + subgroup             ──PodPatch──────▶ merge patch, or nil
//
// Kinds are rows of a Table (see Rule and Kinds): a further kind is data, not code, except where subgroups follow no list that
// data could describe (Ray, JobSet, LeaderWorkerSet, Grove). A kind without a row may be described by a Karta object (see
// Definition), in a part of jq that is bounded in time (see query); any other gets the default row, a group per top owner with
// a minimum of one. What the role may read follows from the rows (see Accesses).
//
// The package is pure: no client, no clock, no logging, and equal input gives equal output. It refuses what it cannot
// understand with an Invalid error that names object, field and rule; it ignores optional hints that are malformed, with
// a warning of the same form. It never panics on an object that an API server accepts.
//
// Caller: the podgrouper role, which finds the owners and does the writes.
package workload
