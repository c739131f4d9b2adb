// Package nodescale lets a cluster autoscaler see the demand for shared GPUs.
//
// An autoscaler reads what pods request. A pod that shares a GPU requests none: what it wants is in its annotations. For
// such pods that wait for a node, this role keeps scaling pods, which request whole GPUs, under the same constraints, and
// are left to the default scheduler. The autoscaler adds a node for them; there they end at once, are removed, and the
// pods they stood for find the room.
//
//	pods, podgroups, bindrequests ──events──► book ──waiting pods, scaling pods──► decide ──► create, remove
//
// decide is pure. Pods with equal constraints that fit on the devices of one scaling pod share it: each scaling pod stands
// for as many devices of one node, and the waiting pods are packed onto them, large ones first.
//
// It asks for a pod only if a node is what the pod waits for: the scheduler has marked it Unschedulable (which it does only
// where a node may help), its PodGroup names no reason that a node does not lift, no room is promised to it, and no
// BindRequest is under way. A gang within its preemption delay is asked for at once: the delay is the time in which nodes
// may come before others have to go.
//
// When room came, nothing more is asked for under the same constraints for a minute: those who wait look at the new room
// first. That other pods with such constraints end meanwhile prolongs this, to five minutes at most.
//
// Invariants: never more devices are asked for than waiting pods ask for; no two scaling pods stand for one pod; a second
// look without news changes nothing. A crash between two writes leaves a scaling pod without its condition, which the
// default scheduler supplies; all else is derived from the objects anew. Only pods in the scaling namespace with the app
// label are ever written.
//
// What it reads, and an informer's transform must keep: of pods metadata, scheduling constraints, requests, gates, phase,
// conditions and the nominated node; of PodGroups status.schedulingConditions; of BindRequests spec.podName.
package nodescale
