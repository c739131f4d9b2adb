// Package apply carries decisions to the API server: plans become BindRequests and evictions, traces become conditions and
// events, held room becomes nominated nodes.
//
// It answers "did the bundle get there whole" and "does everybody who waits know why". It refuses to decide, and to
// touch anything but BindRequests, Bindings of pods that need no preparing, the records of gangs, the annotations and conditions of PodGroups that
// the scheduler owns, the nominated node and the conditions PodScheduled, RoomHeld and DisruptionTarget of pods, the scheduling gate of pods that is their queue's, and events; it evicts the pods that a plan names.
//
//	engine.Plan  ──► Binds.Submit ──► BindRequests, a bundle at a time ──► Failure ──► the loop forgets what failed
//	                             └──► a Binding, of a pod that is alone in its bundle and needs no binder (ADR 18) ──► Events, later
//	                             └──► a gang's record, its Bindings, the record's delete, if none of it needs the binder ──► an event of the gang
//	             ──► Evictions.Submit ──► evictions, each after a look at what it is for ──► Outcome ──► the loop spares the rest
//	engine.Trace ──► Statuses.Publish ──► what changed, after it has settled ──► conditions, events
//	Snapshot.Astray ──► Strays.Publish ──► whose PodGroup is not there, after it has settled ──► conditions
//	Trace.Lifted ──► Gates.Publish ──► a queue's gate is taken off
//	Store.Hold   ──► Nominations.Publish ──► status.nominatedNodeName, after it has settled ──► the next process
//
// All of them write through one Pool: a table of kinds of work says how many workers each has, what an item is, how it is tried again, when it is
// given up and who is told (pool.go). A kind's workers are its own, so that nothing that is told ever delays what is done.
//
// A pod is evicted only while everything stands that it goes for: the gang, its pods, still waiting, and the nodes they are
// to run on, with room for them. When the world has changed, the rest of the bundle is spared. A victim that is gone already is no failure. An
// eviction that the Store does not count on any more is not carried out any more.
//
// A BindRequest is written only while there is room for its pod. Whether there is says the latest that the scheduler's Store knows, in
// which what was decided holds its room: plans carry the generation of what they were decided on, and only what is newer can
// have taken the room. ErrNoRoom is the verdict then; the bundle fails whole, and its gang is decided on anew.
//
// A bundle names those that it counts on: who frees its room, and what was decided for its gang before. Nobody is evicted for it
// before they are settled, and it is not carried out when one of them is not (ErrUndone).
//
// What dies with the process: held room that had not settled (a second), room held for the successor of a pod that was
// moved, and what is known of displacements. What is left of a half-evicted bundle is decided anew: the room that has come
// free is used first.
//
// Invariants: a bundle whose requests cannot all be created is withdrawn whole; a BindRequest of an earlier pod of the
// same name is never taken for ours; a condition is written when its reason changed, and when only a number in it did, at
// most once a minute; a gang that runs has no condition, whatever some of its pods wait for; a gang that gives up after
// its first failure is not marked before something was tried.
package apply
