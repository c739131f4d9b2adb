package policy

import (
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// Source is a VictimSource of a face's own, with the pods that it names.
type Source struct {
	VictimSource
	Pods []*cluster.Pod
}

// SourcesEvery is the shortest time that one of a face's victim sources has between two evictions; 0 without any source.
func (ps *Plugins) SourcesEvery(face string) (least time.Duration) {
	for _, tier := range ps.Faces[face] {
		for _, p := range tier.sources {
			if every := p.Every(); least == 0 || every < least {
				least = every
			}
		}
	}
	return least
}

// Sources asks a face's tiers which of its pods are not to stay where they are: those sources answer that name somebody, of the first tier in which one does. It costs what they do.
func (ps *Plugins) Sources(face string, snap *cluster.Snapshot) (out []Source) {
	others := func(p *cluster.Pod) bool {
		g := snap.Gang(p.Gang)
		return g == nil || g.Key.Face != face
	}
	for _, tier := range ps.Faces[face] {
		for _, p := range tier.sources {
			pods := slices.DeleteFunc(p.Victims(), others)
			if len(pods) > 0 {
				out = append(out, Source{p, pods})
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// Keeps says whether somebody of a face's tiers has a unit stay that a source names.
func (ps *Plugins) Keeps(face string, u *ledger.VictimUnit) bool {
	return slices.ContainsFunc(ps.Faces[face], func(tier *Plugins) bool {
		return slices.ContainsFunc(tier.keepers, func(k VictimKeeper) bool { return k.Keeps(u) })
	})
}
