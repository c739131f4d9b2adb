package enginetest

import (
	"fmt"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// racks puts the nodes into racks of a size, and those, ten by ten, into blocks.
func (s *situation) racks(of int) {
	for i := range s.nodes {
		node := s.nodes[i].(cluster.NodeState)
		node.Labels = map[string]string{"block": fmt.Sprint(i / of / 10), "rack": fmt.Sprint(i / of)}
		s.nodes[i] = node
	}
	s.nodes = append(s.nodes, cluster.TopologyState{Name: "dc", Levels: []cluster.Level{{Label: "block"}, {Label: "rack"}}})
}

// near is n waiting gangs of as many shapes that have to be together.
func (s *situation) near(n, pods int, gpu int64, where cluster.Constraint) {
	for i := range n {
		from := len(s.rest)
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "taker", pods: pods, gpu: gpu, age: 1, priority: 50, preemptible: true}, int64(1000+i))
		g := s.rest[from].(cluster.GangState)
		g.Sets[0].Near = where
		s.rest[from] = g
	}
}

var (
	oneRack  = cluster.Constraint{Topology: "dc", Required: "rack"}
	oneBlock = cluster.Constraint{Topology: "dc", Required: "block"}
)

// racked is a thousand nodes in racks of twenty that are full of gangs of one GPU, those of which that a function names need
// not go, and n gangs that ask for whole nodes in one domain.
func racked(n, pods int, where cluster.Constraint, pinned func(i int) bool) *situation {
	s := &situation{}
	s.rest = append(s.rest, queue("victims", "", 0), queue("taker", "", 8_000_000))
	s.victims(1000, func(i int) crew {
		return crew{queue: "victims", priority: 50, preemptible: !pinned(i), startSeconds: benchNow - 5}
	})
	s.racks(20)
	s.near(n, pods, 8, where)
	return s
}

func nobody(int) bool            { return false }
func each(of int) func(int) bool { return func(i int) bool { return i%of == 0 } }

// pieces is n gangs of a whole node each, where on every node some are free and nobody who is there fits elsewhere.
func pieces(n int) *situation {
	s := &situation{}
	s.plant(1000)
	s.rest = append(s.rest, queue("team", "", cluster.Unlimited))
	for i := range 1000 {
		s.crew(crew{name: fmt.Sprintf("running-%06d", i), queue: "team", pods: 1, gpu: 5, node: nodeName(i), age: int64(10 + i), priority: 50, preemptible: true})
	}
	for i := range n {
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "team", pods: 1, gpu: 8, age: 1, priority: 50, preemptible: true}, int64(1000+i))
	}
	return s
}

// levels is n gangs of sets of whole nodes, each set in a rack and all of them in a block, where on one node of each rack somebody
// need not go.
func levels(n, sets, pods int) *situation {
	s := racked(0, 0, oneRack, each(8*20))
	for i := range n {
		from := len(s.rest)
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "taker", pods: sets * pods, gpu: 8, age: 1, priority: 50, preemptible: true}, int64(1000+i))
		g := s.rest[from].(cluster.GangState)
		g.Sets = []cluster.Set{{Parent: cluster.None, Min: int32(sets), Near: oneBlock}}
		for k := range sets {
			g.Sets[0].Children = append(g.Sets[0].Children, int32(k+1))
			g.Sets = append(g.Sets, cluster.Set{Name: fmt.Sprint("s", k), Parent: 0, Leaf: true, Min: int32(pods), Near: oneRack})
		}
		s.rest[from] = g
		for j := range sets * pods {
			p := s.rest[from+1+j].(cluster.PodState)
			p.SetName = fmt.Sprint("s", j/pods)
			s.rest[from+1+j] = p
		}
	}
	return s
}

// piecesIn is pieces in racks, of which the gangs require one.
func piecesIn(n int) *situation {
	s := pieces(0)
	s.racks(20)
	s.rest = append(s.rest, queue("taker", "", cluster.Unlimited))
	s.near(n, 1, 8, oneRack)
	return s
}

// domainCliffs are those of domains, and of nodes that others have to be moved away from.
func domainCliffs() []cliff {
	return []cliff{
		{"racks/too-small", func() *situation { return racked(300, 22, oneRack, nobody) }, nil, idly},
		{"racks/pinned-racks", func() *situation { return racked(300, 20, oneRack, each(8*20)) }, nil, idly},
		{"racks/started", func() *situation { return racked(300, 20, oneRack, nobody) }, []func(*engine.Profile){minimum("60s")}, idly},
		{"blocks/pinned", func() *situation { return racked(300, 200, oneBlock, each(8*200)) }, nil, idly},
		{"levels/too-small", func() *situation { return levels(300, 2, 20) }, nil, idly},
		{"levels/too-many", func() *situation { return levels(300, 12, 15) }, nil, idly},
		{"pieces=300/racks", func() *situation { return piecesIn(300) }, nil, idly},
		{"pieces=300", func() *situation { return pieces(300) }, nil, idly},
	}
}
