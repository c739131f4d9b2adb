package fairshare

// Excess says which bound a request breaks, and by how much.
type Excess struct {
	// Level is the index in the chain that was given: 0 is the leaf queue.
	Level int
	// Dim is the dimension.
	Dim int
	// Bound is the limit or quota of that queue, Used what counts towards it already, Asked what the request adds.
	// Used may exceed Bound on its own, for example after a limit was lowered.
	Bound, Used, Asked int64
}

// Have is what the queue still has room for: 0 if it is full or above its bound.
func (e Excess) Have() int64 { return max(0, e.Bound-e.Used) }

// OverLimit tells whether placing request would lift a queue of the chain (a leaf queue and its ancestors, leaf first)
// above its limit, once everything that is leaving and can be waited for has gone. Only dimensions that the request asks for
// count: a queue above its limit in memory still takes a request that needs none. The first excess is returned, from the leaf
// upwards, in order of dimension.
func OverLimit(chain []*State, request []int64) (Excess, bool) {
	return first(chain, func(s *State) (Excess, bool) {
		return exceeds(limitAt, s.Limit, s.Allocated, s.Stuck, request, nil)
	})
}

// OverQuota tells whether placing request as non-preemptible work would lift the non-preemptible part of a queue of the
// chain above its quota in a dimension that queues share (see [Input]). Otherwise it is like [OverLimit].
func OverQuota(chain []*State, request []int64, shared []bool) (Excess, bool) {
	return first(chain, func(s *State) (Excess, bool) {
		return exceeds(quotaAt, s.Quota, s.NonPreemptible, s.StuckNonPreemptible, request, shared)
	})
}

// OverLimitNow is [OverLimit] for a request that is placed at once, beside all that has not gone yet.
func OverLimitNow(chain []*State, request []int64) (Excess, bool) {
	return first(chain, func(s *State) (Excess, bool) {
		return exceeds(limitAt, s.Limit, s.Holding, nil, request, nil)
	})
}

// OverQuotaNow is [OverQuota] for a request that is placed at once, beside all that has not gone yet.
func OverQuotaNow(chain []*State, request []int64, shared []bool) (Excess, bool) {
	return first(chain, func(s *State) (Excess, bool) {
		return exceeds(quotaAt, s.Quota, s.HoldingNonPreemptible, nil, request, shared)
	})
}

func first(chain []*State, over func(*State) (Excess, bool)) (Excess, bool) {
	for level, s := range chain {
		if e, is := over(s); is {
			e.Level = level
			return e, true
		}
	}
	return Excess{}, false
}

func exceeds(read func([]int64, int) int64, bounds, used, besides, request []int64, shared []bool) (Excess, bool) {
	for dim := range request {
		if !sharesDim(shared, dim) {
			continue
		}
		// Of what is used both are sums, of which two can be added.
		e := Excess{Dim: dim, Bound: read(bounds, dim), Used: at(used, dim) + at(besides, dim), Asked: at(request, dim)}
		// All three are non-negative, so the difference cannot overflow; the sum could.
		if e.Bound != Unlimited && e.Asked > 0 && e.Asked > e.Bound-e.Used {
			return e, true
		}
	}
	return Excess{}, false
}
