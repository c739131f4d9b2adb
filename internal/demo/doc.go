// Package demo shows Muster at work to somebody who has just cloned it: `muster demo`.
//
// It starts a lab and Muster as two child processes, applies the manifests of its folder manifests as a user would, and
// tells a story in which every sentence is asserted on the cluster before it is printed:
//
//	the cluster    queues of two departments and four teams, priority classes, two pods that say hello
//	1  a gang      a PyTorchJob starts whole
//	2  no room     a gang that is too large stays whole and pending, with its reason, and a smaller one passes it
//	3  succession  a gang that waits in a full cluster takes the room of one that is deleted
//	4  reclaim     a team takes back what it lent, and two teams hold what their quotas and weights entitle them to
//	5  preempt     a more important gang takes the room of another one of its team
//	6  consolidate a pod moves, so that scattered room comes together
//
// Of the last three, the record of who had to go and why is printed and checked.
//
// A sentence that does not come true in time ends the demo with an error that says what was seen instead and where the
// logs are. At a terminal the cluster stays up afterwards until Ctrl-C.
//
//	muster demo ──► muster-lab up    on a leash: it ends when the demo's process does, however that ends
//	            ──► muster run all   its log flows through the demo, so it does not outlive it either
//
// Nothing has a fixed port or folder, so demos run side by side. The package knows the lab only as a command and by
// labels on objects: `muster` links none of Kubernetes' servers.
package demo
