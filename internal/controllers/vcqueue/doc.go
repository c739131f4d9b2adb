// Package vcqueue is the queue controller of Volcano's face: it opens and closes Volcano's Queues (scheduling.volcano.sh) as Commands ask, and
// those below them along with them.
//
//	Queue, PodGroup, Command ──► book ──decide──► plan ──Write──► Command deleted, annotation, parent, state
//
// A Command is deleted before it is obeyed, so that it is obeyed at most once. The cascades need no Command: that a queue is open below one
// that is not, or was closed by a parent that is open again, is read off the queues, whoever was away meanwhile.
package vcqueue
