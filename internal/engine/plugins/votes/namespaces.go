package votes

import (
	"maps"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// NamespaceQuota is the name of the plugin that bounds what is admitted by the ResourceQuotas of namespaces.
const NamespaceQuota = "resourcequota"

// NamespaceQuotaFactory declares it: a gang is rejected if what its minimum asks for, what is used of a ResourceQuota of its namespace, and what gangs of the namespace were admitted for in this run, is
// more than the quota's hard amount. Otherwise it has no vote.
var NamespaceQuotaFactory = policy.Opens(func(v *policy.View) *spaceVote {
	if len(v.Snapshot().Objects(cluster.ResourceQuotas)) == 0 {
		return nil
	}
	return &spaceVote{view: v}
}, ReasonNamespaceFull)

type spaceVote struct {
	view    *policy.View
	of      map[string][]string // the keys of the quotas of a namespace, sorted; nil until asked for
	pending map[string]cluster.Resources
	read    int // how many that were admitted in the run are in pending
}

// VoteAdmission implements policy.AdmissionVote.
func (s *spaceVote) VoteAdmission(g *ledger.GangState, asks cluster.Resources) (policy.Vote, policy.Verdict) {
	s.follow()
	snap := s.view.Snapshot()
	minimum, _ := g.Minimum()
	pending := s.pending[g.Key.Namespace]
	for _, key := range s.of[g.Key.Namespace] {
		q, ok := snap.Object(cluster.ResourceQuotas, key).(*cluster.SpaceQuota)
		if !ok {
			continue
		}
		for _, b := range q.Bounds {
			dim, known := snap.Dims.Index(b.Dim)
			ask := asks.At(dim)
			if dim == cluster.Slots { // which are no part of what is asked for
				ask = minimum.At(dim)
			}
			if known && ask > 0 && ask > b.Hard-b.Used-pending.At(dim) {
				return policy.Reject, policy.Verdict{
					Code: policy.No, Reason: ReasonNamespaceFull, Object: key, Dim: b.Dim, Need: ask, Have: max(0, b.Hard-b.Used-pending.At(dim)),
				}
			}
		}
	}
	return policy.Abstain, policy.Verdict{}
}

// follow adds up what was admitted since it was asked last.
func (s *spaceVote) follow() {
	snap := s.view.Snapshot()
	if s.of == nil {
		s.of, s.pending = map[string][]string{}, map[string]cluster.Resources{}
		for _, key := range slices.Sorted(maps.Keys(snap.Objects(cluster.ResourceQuotas))) {
			space, _, _ := strings.Cut(key, "/")
			s.of[space] = append(s.of[space], key)
		}
	}
	now := s.view.AdmittedNow()
	for ; s.read < len(now); s.read++ {
		space := now[s.read].Namespace
		if s.of[space] == nil { // nobody asks what it was admitted for
			continue
		}
		if g := snap.GangByKey(now[s.read]); g != nil {
			sum := s.pending[space]
			least, _ := g.Minimum()
			sum.AddCapped(least)
			s.pending[space] = sum
		}
	}
}
