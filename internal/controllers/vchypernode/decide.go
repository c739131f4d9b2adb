package vchypernode

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	topo "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/hypernodes"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// plan is what a look at all HyperNodes has written, in this order: what is below comes before what is above, and what goes, last.
type plan struct {
	create []*topo.HyperNode
	change []change
	remove []*topo.HyperNode
	// counts are the HyperNodes whose status is to say another number of nodes.
	counts []count
	// config is the configuration, and bad what is wrong with it, or with what it makes; nil: nothing.
	config *corev1.ConfigMap
	bad    *control.Note
	// wrong is what is wrong with each HyperNode; nil: nothing.
	wrong map[string]*control.Note
	about map[string]*topo.HyperNode
}

type change struct {
	hyper *topo.HyperNode
	patch []byte
}

type count struct {
	hyper *topo.HyperNode
	nodes int64
}

// decide says what is to be written.
func (b *book) decide() (p plan) {
	p.config, p.bad = b.config, b.bad
	p.wrong, p.about = map[string]*control.Note{}, maps.Clone(b.Hypers)
	if b.on {
		b.discover(&p)
	}
	b.count(&p)
	return p
}

// discover plans what node labels ask for.
func (b *book) discover(p *plan) {
	want, err := discovered(b.types, b.Nodes, b.Hypers)
	if err != nil {
		p.bad = cmp.Or(p.bad, &control.Note{Warning: true, Reason: "TooManyHyperNodes", Message: err.Error()})
		return
	}
	for _, h := range hypernodes.Ascending(want) {
		have := b.Hypers[h.Name]
		switch {
		case have == nil:
			p.create = append(p.create, h)
		case have.DeletionTimestamp == nil && !equality.Semantic.DeepEqual(have.Spec, h.Spec):
			body := write.Body(map[string]any{"metadata": map[string]any{"uid": have.UID}, "spec": h.Spec})
			p.change = append(p.change, change{have, body})
		}
	}
	for _, h := range slices.Backward(hypernodes.Ascending(b.Hypers)) {
		if h.Labels[keys.TopologySource] == source && want[h.Name] == nil && h.DeletionTimestamp == nil {
			p.remove = append(p.remove, h)
		}
	}
}

// count counts the nodes of each HyperNode, each once.
func (b *book) count(p *plan) {
	nodes, wrong := b.Members()
	for _, h := range hypernodes.Ascending(b.Hypers) {
		if text := wrong[h.Name]; text != "" {
			p.wrong[h.Name] = &control.Note{Warning: true, Reason: "InvalidMember", Message: text}
		}
		if n := int64(len(nodes[h.Name])); n != h.Status.NodeCount && h.DeletionTimestamp == nil {
			p.counts = append(p.counts, count{h, n})
		}
	}
}
