package cluster

// Queue is one node of the queue forest. It is immutable in a Snapshot.
type Queue struct {
	ID       QueueID
	Name     string
	UID      string
	Display  string
	Parent   string // "" for a top-level queue
	Priority int32
	Created  int64 // Unix nanoseconds
	// Quota (deserved), Limit and Weight (over-quota weight, in thousandths) per dimension. Unlimited is allowed for Quota
	// and Limit. A dimension beyond the tail has quota 0, no limit, and weight 0.
	Quota  Resources
	Limit  Resources
	Weight Resources
	// Allocated is what the queue's own gangs hold (active pods), AllocatedNonPreemptible the part of it held by
	// non-preemptible gangs, Requested is Allocated plus what their pending pods ask for. Children are not included.
	Allocated               Resources
	AllocatedNonPreemptible Resources
	Requested               Resources

	epoch uint64
}

// LimitAt returns the limit in dimension i; a dimension the queue does not name is unlimited.
func (q *Queue) LimitAt(i int) int64 {
	if i < len(q.Limit) {
		return q.Limit[i]
	}
	return Unlimited
}
