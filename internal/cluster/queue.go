package cluster

import "strings"

// faceMark stands between the face and the name of a queue. No name of an API object has one.
const faceMark = ":"

// QueueName is the name in the model of the queue that objects of a face call name. The queues of one face are called as their objects are: its
// face is "". Of every other, the face goes before: "volcano:default". So two queues of one name are two queues.
func QueueName(face, name string) string {
	if face == "" {
		return name
	}
	return face + faceMark + name
}

// SplitQueue is the inverse of [QueueName].
func SplitQueue(queue string) (face, name string) {
	if face, name, ok := strings.Cut(queue, faceMark); ok {
		return face, name
	}
	return "", queue
}

// Queue is one node of the queue forest. It is immutable in a Snapshot.
type Queue struct {
	QueueState // as observed; amounts are in the fields below
	ID         QueueID
	// Quota, Limit, Weight and Guarantee over the dimensions. One beyond the tail has quota 0, no limit, weight 0, and guarantee 0.
	Quota     Resources
	Limit     Resources
	Weight    Resources
	Guarantee Resources
	// Allocated is what the queue's own gangs hold (active pods), AllocatedNonPreemptible the part of it held by
	// non-preemptible gangs, Requested is Allocated plus what their pending pods ask for, and gated ones that ask their queue. Children are not included.
	Allocated               Resources
	AllocatedNonPreemptible Resources
	Requested               Resources

	// Leaving is what pods that are being deleted still hold of the queue, besides Allocated; Stuck is the part of it held by pods
	// of which it is not known when they go. The limit is on what they hold too, or deleting pods that do not go would be a
	// way past it; the NonPreemptible ones are the parts that count for quota.
	Leaving               Resources
	LeavingNonPreemptible Resources
	Stuck                 Resources
	StuckNonPreemptible   Resources

	// Usage is the part of the cluster that the queue used lately, per dimension in millionths; nil without history.
	Usage Resources
	// ShareMoved is when its fair share last moved to stay; 0 for never in this Store's memory.
	ShareMoved Instant
	// Served is when the queue was last given room, as far as is known: by this Store's memory, and by when its gangs say
	// that they started. The zero Instant for never.
	Served Instant

	epoch uint64
}

// LimitAt returns the limit in dimension i; a dimension the queue does not name is unlimited.
func (q *Queue) LimitAt(i int) int64 {
	if i < len(q.Limit) {
		return q.Limit[i]
	}
	return Unlimited
}
