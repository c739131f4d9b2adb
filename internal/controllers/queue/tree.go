package queue

import "slices"

// rebuild decides for every node whose total its own is part of, and adds the totals up from the nodes' own amounts.
// Each queue names at most one parent, so what a user can write is a set of trees and of circles with trees hanging
// from them; a circle is opened at each of its members. Cost: the number of nodes times the resources they hold.
//
// No result depends on the order in which the map yields: sums are exact, and circles begin with their smallest name.
func rebuild(nodes map[string]*node) {
	raw := func(n *node) *node {
		if !n.exists || n.spec.ParentQueue == "" {
			return nil
		}
		if p := nodes[n.spec.ParentQueue]; p != nil && p.exists {
			return p
		}
		return nil
	}
	for _, n := range nodes {
		n.parent, n.cycle, n.total = nil, nil, amounts{}
	}

	// Each walk towards the top stops at a node that some walk has seen; when that was this walk, it found a circle.
	seen := make(map[*node]int, len(nodes))
	walk := 0
	for _, start := range nodes {
		walk++
		n := start
		for n != nil && seen[n] == 0 {
			seen[n] = walk
			n = raw(n)
		}
		if n != nil && seen[n] == walk {
			encircle(n, raw)
		}
	}

	waiting := make(map[*node]int, len(nodes)) // children not yet added
	for _, n := range nodes {
		if n.cycle == nil {
			n.parent = raw(n)
		}
		if n.parent != nil {
			waiting[n.parent]++
		}
	}
	ready := make([]*node, 0, len(nodes))
	for _, n := range nodes {
		if waiting[n] == 0 {
			ready = append(ready, n)
		}
	}
	for len(ready) > 0 {
		n := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		n.total.addAll(&n.own)
		p := n.parent
		if p == nil {
			continue
		}
		p.total.addAll(&n.total)
		if waiting[p]--; waiting[p] == 0 {
			ready = append(ready, p)
		}
	}
}

// encircle tells all members of a circle the way around it.
func encircle(member *node, parent func(*node) *node) {
	var circle []string
	for n := member; len(circle) == 0 || n != member; n = parent(n) {
		circle = append(circle, n.name)
	}
	first := slices.Index(circle, slices.Min(circle))
	circle = slices.Concat(circle[first:], circle[:first])
	for n := member; n.cycle == nil; n = parent(n) {
		n.cycle = circle
	}
}
