// Package vcsharding is the controller that divides nodes between schedulers: it keeps the NodeShards of Volcano's that a ConfigMap names.
//
//	Node, Pod, NodeShard, ConfigMap ──► book ──decide──► plan ──write──► NodeShards made, changed and gone
//
// All is one key. Each scheduler has policies of which nodes it should have: those of which a certain part of the CPU is asked for, those that are warm, so many at least and at
// most. A node is in one NodeShard at a time: it is given to one only when no other names it, as the API server says. What pods ask for is looked at once in a period, so
// that nodes move no more often; what nodes and NodeShards there are, at once where the ConfigMap says so. The plan follows from what there is alone, so that a controller that dies
// ends where it would have ended.
package vcsharding
