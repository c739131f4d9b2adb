package cluster

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// DomainID is a domain's index within its Topology. It says nothing about order.
type DomainID int32

// RootDomain is the domain of all nodes that belong to a topology.
const RootDomain DomainID = 0

// Constraint asks that the pods of a set, and of all sets below it, be near each other. The zero value asks nothing.
type Constraint struct {
	// Topology names the layout. Required and Preferred name levels of it, as LevelByName knows them; "" for none.
	Topology, Required, Preferred string
}

// Level is one level of a topology: the nodes with one value of Label, among those that agree on all wider levels, are a
// domain. Alias is another name for it, "" for none.
type Level struct {
	Label, Alias string
	// Tier is, in a declared topology, how wide the level is: more for a wider one.
	Tier int `json:",omitzero"`
}

// Narrowest names the narrowest level of a declared topology.
const Narrowest = "narrowest"

const tierPrefix = "tier "

// TierLevel names the widest level of a declared topology that is of no higher tier than that.
func TierLevel(tier int) string { return tierPrefix + strconv.Itoa(tier) }

// Name is what people call the level.
func (l Level) Name() string {
	if l.Alias != "" {
		return l.Alias
	}
	return l.Label
}

// Topology is one way in which the nodes nest: a tree of domains, kept up to date from node labels, or declared. By labels a node
// belongs to it only if it has those of all levels; of a declared one every node is in the widest domain. It is immutable in a Snapshot.
type Topology struct {
	TopologyState

	domains []*Domain // by ID; nil for IDs that are free
	free    []DomainID
	of      []DomainID // by NodeID: the narrowest domain it is in; None for nodes that do not belong
	epoch   uint64
}

// Domain is some nodes that are near each other.
type Domain struct {
	ID     DomainID
	Parent DomainID // None for the root
	Level  int      // index of Topology.Levels; -1 for the root
	Value  string   // of the level's label; "" for the root
	// Children are the domains of the next level, by value. Nodes are those that are in no narrower domain, by name.
	Children []DomainID
	Nodes    []NodeID

	epoch uint64
}

// TopologyState is a topology as observed: the event that creates or updates it.
type TopologyState struct {
	Name   string
	UID    string
	Levels []Level // widest first
	// Declared, unless it is nil, says where nodes are instead of their labels: by name, the values for Levels[1:], widest first. It may stop
	// before the narrowest level. Levels[0] is one domain, of all nodes.
	Declared map[string][]string `json:",omitzero"`
}

// everyNode is the value of the domain that has all nodes of a declared topology.
const everyNode = "all nodes"

// TopologyGone removes a topology. Gangs that refer to it wait for it.
type TopologyGone struct{ Name string }

// LevelByName returns the index of the level of that label or alias, and whether there is one. A declared topology knows its levels by
// [TierLevel] and [Narrowest].
func (t *Topology) LevelByName(name string) (int, bool) {
	if t.Declared != nil {
		return t.levelByTier(name)
	}
	for i, l := range t.Levels {
		if l.Label == name {
			return i, true
		}
	}
	for i, l := range t.Levels {
		if l.Alias == name && name != "" {
			return i, true
		}
	}
	return None, false
}

func (t *Topology) levelByTier(name string) (int, bool) {
	if name == Narrowest {
		return len(t.Levels) - 1, len(t.Levels) > 0
	}
	text, isTier := strings.CutPrefix(name, tierPrefix)
	tier, err := strconv.Atoi(text)
	if !isTier || err != nil {
		return None, false
	}
	i := slices.IndexFunc(t.Levels, func(l Level) bool { return l.Tier <= tier })
	return i, i >= 0
}

// Narrowest returns the narrowest domain that a node is in; None for a node that does not belong to the topology.
func (t *Topology) Narrowest(n NodeID) DomainID {
	if int(n) >= len(t.of) || n < 0 {
		return None
	}
	return t.of[n]
}

// Domain returns a domain by ID; nil for None.
func (t *Topology) Domain(id DomainID) *Domain {
	if id < 0 || int(id) >= len(t.domains) {
		return nil
	}
	return t.domains[id]
}

// MaxDomainID bounds the IDs in use: every ID is below.
func (t *Topology) MaxDomainID() int { return len(t.domains) }

// DomainOf returns the domain of a level that a node is in; None for a node that does not belong to the topology, or to any domain of the
// level. Level -1 is the root's.
func (t *Topology) DomainOf(n NodeID, level int) DomainID {
	return t.Above(t.Narrowest(n), level)
}

// Above returns the domain of a level that d is in, or is; None when d is wider.
func (t *Topology) Above(d DomainID, level int) DomainID {
	for d != None && t.domains[d].Level > level {
		d = t.domains[d].Parent
	}
	if d != None && t.domains[d].Level != level {
		return None
	}
	return d
}

// Path names a domain by the values from the widest level down: "zone-a/rack-3"; "" for the root. In a declared topology that of all nodes is
// above all, and a value that stands for several levels is said once.
func (t *Topology) Path(d DomainID) string {
	var values []string
	for ; d != None && d != RootDomain; d = t.domains[d].Parent {
		v := t.domains[d].Value
		if t.Declared != nil && len(values) > 0 && (t.domains[d].Level == 0 || v == values[len(values)-1]) {
			continue
		}
		values = append(values, v)
	}
	slices.Reverse(values)
	return strings.Join(values, "/")
}

// Topology returns a topology by name; nil when there is none.
func (s *Snapshot) Topology(name string) *Topology { return s.topologies[name] }

func (e TopologyState) apply(s *Store) bool {
	if old := s.topologies[e.Name]; old != nil {
		if old.TopologyState.equal(&e) {
			return false
		}
		if old.sameDeclared(&e) && slices.EqualFunc(old.Levels, e.Levels, func(a, b Level) bool { return a.Label == b.Label && a.Tier == b.Tier }) {
			t := s.topology(e.Name) // the tree stays
			t.TopologyState = e
			s.news = s.now
			return true
		}
	}
	t := &Topology{TopologyState: e, epoch: s.epoch}
	t.domains = []*Domain{{Parent: None, Level: -1, epoch: s.epoch}}
	s.writableTopologies()[e.Name] = t
	for name := range s.nodeIDs { // order: children and nodes are kept sorted
		s.enter(t, s.nodes.get(int32(s.nodeIDs[name])))
	}
	s.news = s.now
	return true
}

func (e TopologyGone) apply(s *Store) bool {
	if s.topologies[e.Name] == nil {
		return false
	}
	delete(s.writableTopologies(), e.Name)
	s.news = s.now
	return true
}

// writableTopologies returns the map to be written to; snapshots keep the one they have.
func (s *Store) writableTopologies() map[string]*Topology {
	if s.topologiesShared {
		s.topologies = maps.Clone(s.topologies)
		s.topologiesShared = false
	}
	return s.topologies
}

// topology returns the topology to be written to. The first write after a Snapshot copies its tables, not its domains.
func (s *Store) topology(name string) *Topology {
	t := s.topologies[name]
	if t.epoch != s.epoch {
		c := *t
		c.epoch = s.epoch
		c.domains, c.free, c.of = slices.Clone(t.domains), slices.Clone(t.free), slices.Clone(t.of)
		t = &c
		s.writableTopologies()[name] = t
	}
	return t
}

func (s *Store) domain(t *Topology, id DomainID) *Domain {
	d := t.domains[id]
	if d.epoch != s.epoch {
		c := *d
		c.epoch = s.epoch
		c.Children, c.Nodes = slices.Clone(d.Children), slices.Clone(d.Nodes)
		d = &c
		t.domains[id] = d
	}
	return d
}

// relabel moves a node within all topologies after its labels changed; nil are those of a node that was not there, or is
// not any more, which there says.
func (s *Store) relabel(n *Node, before, after map[string]string, there bool) {
	for name, t := range s.topologies { // order: each on its own
		if t.Declared != nil {
			switch in := t.Narrowest(n.ID) != None; {
			case there && !in:
				s.enter(s.topology(name), n)
			case in && !there:
				s.leave(s.topology(name), n.ID)
			}
			continue
		}
		if !slices.ContainsFunc(t.Levels, func(l Level) bool {
			was, had := before[l.Label]
			is, has := after[l.Label]
			return had != has || was != is
		}) {
			continue
		}
		t = s.topology(name)
		s.leave(t, n.ID)
		if after != nil {
			s.enter(t, n)
		}
	}
}

// enter puts a node that is in no domain into the one its labels, or what is declared, say: O(levels · log siblings), domains made as needed.
func (s *Store) enter(t *Topology, n *Node) {
	for len(t.of) <= int(n.ID) {
		t.of = append(t.of, None)
	}
	at := RootDomain
	if t.Declared == nil {
		for _, l := range t.Levels {
			if _, ok := n.Labels[l.Label]; !ok {
				return
			}
		}
		for i, l := range t.Levels {
			at = s.child(t, at, i, n.Labels[l.Label])
		}
	} else if len(t.Levels) > 0 {
		at = s.child(t, at, 0, everyNode)
		values := t.Declared[n.Name]
		for i, v := range values[:min(len(values), len(t.Levels)-1)] {
			at = s.child(t, at, i+1, v)
		}
	}
	d := s.domain(t, at)
	k, _ := slices.BinarySearchFunc(d.Nodes, n.Name, func(id NodeID, name string) int {
		return strings.Compare(s.nodes.get(int32(id)).Name, name)
	})
	d.Nodes = slices.Insert(d.Nodes, k, n.ID)
	t.of[n.ID] = at
}

// child returns the child of a domain with that value, made if need be.
func (s *Store) child(t *Topology, parent DomainID, level int, value string) DomainID {
	find := func(id DomainID, v string) int { return strings.Compare(t.domains[id].Value, v) }
	k, ok := slices.BinarySearchFunc(t.domains[parent].Children, value, find)
	if ok {
		return t.domains[parent].Children[k]
	}
	id := DomainID(len(t.domains))
	if n := len(t.free); n > 0 {
		id, t.free = t.free[n-1], t.free[:n-1]
	} else {
		t.domains = append(t.domains, nil)
	}
	t.domains[id] = &Domain{ID: id, Parent: parent, Level: level, Value: value, epoch: s.epoch}
	p := s.domain(t, parent)
	p.Children = slices.Insert(p.Children, k, id)
	return id
}

// leave takes a node out of its domain, and removes the domains that are empty then.
func (s *Store) leave(t *Topology, n NodeID) {
	if int(n) >= len(t.of) || t.of[n] == None {
		return
	}
	at := t.of[n]
	t.of[n] = None
	d := s.domain(t, at)
	d.Nodes = slices.DeleteFunc(d.Nodes, func(id NodeID) bool { return id == n })
	for at != RootDomain && len(t.domains[at].Nodes) == 0 && len(t.domains[at].Children) == 0 {
		up := s.domain(t, t.domains[at].Parent)
		up.Children = slices.DeleteFunc(up.Children, func(id DomainID) bool { return id == at })
		t.domains[at] = nil
		t.free = append(t.free, at)
		at = up.ID
	}
}
