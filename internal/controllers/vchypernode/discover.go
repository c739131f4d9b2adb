package vchypernode

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	topo "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/entry"
)

// Bounds of what is discovered.
const (
	mostHyperNodes = 10_000
	mostMembers    = 10_000 // of one, which an object has room for
)

// domain is what a HyperNode that is discovered stands for: a value of a label.
type domain struct {
	kind  string // the topology's name
	tier  int    // 1 for the lowest
	label string
	value string
}

// prefix begins the name of a domain's HyperNode; five letters follow.
func (d domain) prefix() string {
	return fmt.Sprintf("hypernode-%s-tier%d-", strings.ToLower(d.kind), d.tier)
}

// domains reads which domains there are off the labels of nodes, and what is in each: nodes, or domains of the tier below. A node's domains end below the first label that it
// lacks.
func domains(types []topology, nodes map[string]map[string]string) (members map[domain]map[string]bool, below map[domain]map[domain]bool) {
	members, below = map[domain]map[string]bool{}, map[domain]map[domain]bool{}
	for name, labels := range nodes { // order: sets
		for _, t := range types {
			var last domain
			for i, key := range t.labels {
				value := labels[key]
				if value == "" {
					break
				}
				d := domain{t.name, i + 1, key, value}
				if i == 0 {
					entry.Put(members, d, name, true)
				} else {
					entry.Put(below, d, last, true)
				}
				last = d
			}
		}
	}
	return members, below
}

// discovered are the HyperNodes that node labels ask for, by name. One that there is already for a domain keeps its name. It fails where there would be too many.
func discovered(types []topology, nodes map[string]map[string]string, have map[string]*topo.HyperNode) (map[string]*topo.HyperNode, error) {
	members, below := domains(types, nodes)
	all := slices.AppendSeq(slices.Collect(maps.Keys(members)), maps.Keys(below))
	if len(all) > mostHyperNodes {
		return nil, fmt.Errorf("the labels of nodes make %d HyperNodes, of at most %d", len(all), mostHyperNodes)
	}
	slices.SortFunc(all, func(x, y domain) int {
		return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.tier, y.tier), cmp.Compare(x.value, y.value))
	})
	names := named(all, have)
	out := map[string]*topo.HyperNode{}
	for _, d := range all {
		h := &topo.HyperNode{
			ObjectMeta: metav1.ObjectMeta{Name: names[d], Labels: map[string]string{keys.TopologySource: source, d.label: d.value}},
			Spec:       topo.HyperNodeSpec{Tier: d.tier, TierName: d.label},
		}
		of, kind := slices.Sorted(maps.Keys(members[d])), topo.MemberTypeNode
		if d.tier > 1 {
			kind = topo.MemberTypeHyperNode
			for b := range below[d] { // order: sorted below
				of = append(of, names[b])
			}
			slices.Sort(of)
		}
		if len(of) > mostMembers {
			return nil, fmt.Errorf("the HyperNode of %s=%s would have %d members, of at most %d", d.label, d.value, len(of), mostMembers)
		}
		for _, name := range of {
			h.Spec.Members = append(h.Spec.Members, topo.MemberSpec{Type: kind, Selector: topo.MemberSelector{ExactMatch: &topo.ExactMatch{Name: name}}})
		}
		out[h.Name] = h
	}
	return out, nil
}

// named gives each domain the name of a HyperNode: that which it has, or one made of what it stands for.
func named(all []domain, have map[string]*topo.HyperNode) map[domain]string {
	type sign struct{ prefix, label, value string }
	is := map[sign]string{}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		h := have[name]
		if h.Labels[keys.TopologySource] != source || len(name) <= letters {
			continue
		}
		s := sign{name[:len(name)-letters], h.Spec.TierName, h.Labels[h.Spec.TierName]}
		if is[s] == "" {
			is[s] = name
		}
	}
	names, taken := map[domain]string{}, map[string]bool{}
	for _, d := range all {
		if name := is[sign{d.prefix(), d.label, d.value}]; name != "" {
			names[d], taken[name] = name, true
		}
	}
	for _, d := range all {
		for salt := 0; names[d] == ""; salt++ {
			name := d.prefix() + suffix(fmt.Sprintf("%s/%d/%s=%s/%d", d.kind, d.tier, d.label, d.value, salt))
			if !taken[name] && have[name] == nil {
				names[d], taken[name] = name, true
			}
		}
	}
	return names
}

// letters is how many end a name.
const letters = 5

// suffix makes letters of a text, of those that make no words.
func suffix(text string) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	h := fnv.New64a()
	h.Write([]byte(text))
	out := make([]byte, letters)
	for n, i := h.Sum64(), 0; i < letters; i++ {
		out[i] = alphabet[n%uint64(len(alphabet))]
		n /= uint64(len(alphabet))
	}
	return string(out)
}
