// Package vcqueue is the queue controller of Volcano's face: it opens and closes Volcano's Queues (scheduling.volcano.sh) as Commands ask, and
// those below them along with them.
//
//	Queue, PodGroup, Command ──► book ──decide──► plan ──Write──► annotation, parent, state, Command deleted
//
// A Command is deleted once it is obeyed: a controller that dies in between obeys it again, which changes nothing. The cascades need no Command: that a queue is open below one
// that is not, or was closed by a parent that is open again, is read off the queues, whoever was away meanwhile.
//
// Beside that, Holdings says in status.allocated what the pods of a queue, and of those below it, hold, and counts its PodGroups:
//
//	Queue, PodGroup, Pod ──► ledger ──queues whose sums changed, a second later──► merge patch of status.allocated
//
// The queues root and default are made where there are none, also after somebody deleted them. Of those that there are, nothing is changed but what is changed of any queue.
package vcqueue
