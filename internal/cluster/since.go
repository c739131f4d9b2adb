package cluster

// Since returns the events that lead from an older snapshot of the same Store to this one: what came, changed or went, each as it stands now. They
// make of the older one's Image.Events this one's; what is remembered besides (Memory) is not among them: see MemorySince. False: the snapshots are not of one Store.
// Cost: the pages that changed, and all that is carried for filters.
func (s *Snapshot) Since(old *Snapshot) ([]Event, bool) {
	if old.Origin != s.Origin {
		return nil, false
	}
	var out []Event
	differ(s.NodeOrder, old.NodeOrder, s.Node, old.Node, func(n *Node) string { return n.Name },
		func(n *Node) { out = append(out, n.State(s.Dims)) }, func(n *Node) { out = append(out, NodeGone{n.Name}) })
	for name, t := range s.topologies { // order: whoever reads them sorts, or keeps them by name
		if old.topologies[name] != t {
			out = append(out, t.TopologyState)
		}
	}
	for name := range old.topologies { // order: likewise
		if s.topologies[name] == nil {
			out = append(out, TopologyGone{name})
		}
	}
	differ(s.QueueOrder, old.QueueOrder, s.Queue, old.Queue, func(q *Queue) string { return q.Name },
		func(q *Queue) { out = append(out, q.State(s.Dims)) }, func(q *Queue) { out = append(out, QueueGone{q.Name}) })
	if usage := s.usage(); len(usage) > 0 || len(old.usage()) > 0 {
		out = append(out, UsageState{Queues: usage})
	}
	changed(&s.gangs, &old.gangs, func(g *Gang) Key { return g.Key },
		func(g *Gang) {
			if !g.Key.Remnant() {
				out = append(out, g.GangState)
			}
		}, func(k Key) {
			if !k.Remnant() {
				out = append(out, GangGone{k})
			}
		})
	changed(&s.pods, &old.pods, func(p *Pod) string { return p.UID },
		func(p *Pod) { out = append(out, p.State(s.Dims)) }, func(uid string) { out = append(out, PodGone{uid}) })
	return append(out, s.objectsSince(old)...), true
}

// objectsSince are the events of what is carried for filters.
func (s *Snapshot) objectsSince(old *Snapshot) (out []Event) {
	for kind, of := range s.objects { // order: as in Since
		was := old.objects[kind]
		for key, object := range of { // order: likewise
			if before, there := was[key]; !there || !same(before, object) {
				out = append(out, ObjectState{Kind: kind, Key: key, Object: object})
			}
		}
	}
	for kind, was := range old.objects { // order: likewise
		for key := range was { // order: likewise
			if _, there := s.objects[kind][key]; !there {
				out = append(out, ObjectGone{Kind: kind, Key: key})
			}
		}
	}
	return out
}

// differ walks two lists that are sorted by name.
func differ[ID any, T any](ids, olds []ID, get, was func(ID) *T, name func(*T) string, is, gone func(*T)) {
	for len(ids) > 0 || len(olds) > 0 {
		switch {
		case len(olds) == 0 || len(ids) > 0 && name(get(ids[0])) < name(was(olds[0])):
			is(get(ids[0]))
			ids = ids[1:]
		case len(ids) == 0 || name(get(ids[0])) > name(was(olds[0])):
			gone(was(olds[0]))
			olds = olds[1:]
		default:
			if get(ids[0]) != was(olds[0]) {
				is(get(ids[0]))
			}
			ids, olds = ids[1:], olds[1:]
		}
	}
}

// changed compares two states of a table, page by page. What has moved to another ID is not gone.
func changed[T any, K comparable](now, old *table[T], key func(*T) K, is func(*T), gone func(K)) {
	went, here := []K(nil), map[K]bool{}
	eachChanged(now, old, func(x, y *T) {
		if x != nil {
			is(x)
			here[key(x)] = true
		}
		if y != nil && (x == nil || key(x) != key(y)) {
			went = append(went, key(y))
		}
	})
	for _, k := range went {
		if !here[k] {
			gone(k)
		}
	}
}

// eachChanged calls f with what an ID stands for now and stood for before, nil for nothing, where that is not the same. Cost: the pages that changed.
func eachChanged[T any](now, old *table[T], f func(now, old *T)) {
	for i := range max(len(now.pages), len(old.pages)) {
		var a, b *page[T]
		if i < len(now.pages) {
			a = now.pages[i]
		}
		if i < len(old.pages) {
			b = old.pages[i]
		}
		if a == b {
			continue
		}
		for k := range 1 << pageBits {
			var x, y *T
			if a != nil {
				x = a.entries[k]
			}
			if b != nil {
				y = b.entries[k]
			}
			if x != y {
				f(x, y)
			}
		}
	}
}

// usage is what is known of the past of queues.
func (s *Snapshot) usage() map[string][]Quantity {
	usage := map[string][]Quantity{}
	for _, id := range s.QueueOrder {
		if q := s.Queue(id); q.Usage != nil {
			usage[q.Name] = s.Dims.some(q.Usage)
		}
	}
	return usage
}
