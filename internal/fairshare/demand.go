package fairshare

// AddUp adds to the request of every queue with children what its children can use of theirs: each its request, its own
// children's included, but no more than its limit, for what is beyond that would be divided for nobody. A queue is served when
// one of its children is. Before, Request is what each queue asks for itself, and Served when it was served itself. The slices
// of parents are replaced, none is written to. Sums saturate. A queue that a cycle of parents cuts off from the top is left
// alone. It takes time proportional to queues × dimensions plus sorting.
func (d *Divider) AddUp(queues []Queue) {
	d.tree.build(queues)
	for k := len(d.tree.walk) - 1; k >= 0; k-- { // children before parents
		i := d.tree.walk[k]
		group := d.tree.children(i)
		if len(group) == 0 {
			continue
		}
		dims := len(queues[i].Request)
		for _, c := range group {
			dims = max(dims, len(queues[c].Request))
			queues[i].Served = max(queues[i].Served, queues[c].Served)
		}
		sum := make([]int64, dims)
		for dim := range sum {
			sum[dim] = at(queues[i].Request, dim)
			for _, c := range group {
				sum[dim] = addSat(sum[dim], atMost(at(queues[c].Request, dim), limitAt(queues[c].Limit, dim)))
			}
		}
		queues[i].Request = sum
	}
}
