package engine

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// past is what a run has decided so far, for later bundles that count on it.
type past struct {
	bundles []pastBundle
	indexed int                 // how many of bundles are in byGang
	byGang  map[string][]string // IDs of bundles by the UID of whom they are for
	frees   map[string][]string // IDs of bundles that evict, by node
}

type pastBundle struct{ id, gang string }

// add names in a bundle those that it counts on, and adds it to them. While a run evicts nobody this costs next to nothing: a bind takes
// room that is free, whatever becomes of others.
func (p *past) add(b *Bundle) {
	if b.Eviction != nil || len(p.frees) > 0 {
		p.name(b)
	}
	p.bundles = append(p.bundles, pastBundle{b.ID, b.UID})
	for i := range b.Intents {
		in := &b.Intents[i]
		if in.Verb != ledger.Evict {
			continue
		}
		if p.frees == nil {
			p.frees = map[string][]string{}
		}
		if ids := p.frees[in.Node]; len(ids) == 0 || ids[len(ids)-1] != b.ID {
			p.frees[in.Node] = append(ids, b.ID)
		}
	}
}

func (p *past) name(b *Bundle) {
	if p.byGang == nil {
		p.byGang = map[string][]string{}
	}
	for _, old := range p.bundles[p.indexed:] {
		p.byGang[old.gang] = append(p.byGang[old.gang], old.id)
	}
	p.indexed = len(p.bundles)
	b.DependsOn = slices.Clone(p.byGang[b.UID])
	for i := range b.Intents {
		in := &b.Intents[i]
		node := in.To
		if in.Verb == ledger.Nominate {
			node = in.Node
		}
		for _, id := range p.frees[node] {
			if !slices.Contains(b.DependsOn, id) {
				b.DependsOn = append(b.DependsOn, id)
			}
		}
	}
}
