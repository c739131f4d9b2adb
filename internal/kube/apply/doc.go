// Package apply carries decisions to the API server: plans become BindRequests, traces become conditions and events.
//
// It answers "did the bundle get there whole" and "does everybody who waits know why". It refuses to decide, and to
// touch anything but BindRequests, the scheduling conditions of PodGroups, the PodScheduled condition of pods, and events.
//
//	engine.Plan  ──► Binds.Submit ──► BindRequests, a bundle at a time ──► Failure ──► the loop forgets what failed
//	engine.Trace ──► Reports.Publish ──► what changed, after it has settled ──► conditions, events
//
// Invariants: a bundle whose requests cannot all be created is withdrawn whole; a BindRequest of an earlier pod of the
// same name is never taken for ours; a condition is written when its reason changed, and when only a number in it did, at
// most once a minute; a gang that runs has no condition, whatever some of its pods wait for; a gang that gives up after
// its first failure is not marked before something was tried.
package apply
