package filters

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/storage/volume"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// What upstream's volume filters say of a node follows mostly from objects that stay as they are for the run: the node affinity and the
// zones of the volumes that claims are bound to, and, for claims that are not bound, the volumes that there are and the topologies that
// a storage class allows. That is found here by the labels of nodes, once for all volumes that say the same.

// reach is what the claims of a class say of nodes for the whole run. Nodes are bits by ID.
type reach struct {
	conflict []uint64 // a bound volume cannot be used there
	none     []uint64 // an unbound claim would get no volume there; if there is no conflict
	whole    bool     // binding and zones have nothing to say of other nodes
}

// sites knows nodes by what volumes and storage classes say of them.
type sites struct {
	volumes map[string][]uint64 // nodes that a volume's node affinity forbids
	zones   map[string][]uint64 // nodes that a volume's zone labels forbid
	classes map[string][]uint64 // nodes for which a storage class makes no volumes
	open    map[string][]uint64 // nodes that no unclaimed volume of a storage class may be used on
	held    map[string][]*v1.PersistentVolume
	reaches map[uint64]*reach // by class
	caps    []capped          // nodes that can attach only so many volumes
	tight   map[int][]uint64  // those that may have too many with so many claims more
	read    int               // how much of the log is in tight
	handles map[string]int    // how many volumes are the same one to their driver, and how many claims name one; nil until asked for
	full    map[string]*full  // by the drivers of a pod's claims
}

// full is the nodes that cannot attach volumes of some drivers any more, which nobody there has.
type full struct {
	nodes []uint64
	odd   bool // upstream has something else to say
	read  int  // how much of the log is in it
}

// capped is a node of which some CSI driver says how many volumes it can attach.
type capped struct {
	node *nodeInfo
	most int // the least that a driver says
}

// everywhere returns every node.
func (w *upstreamSnapshot) everywhere() []uint64 {
	if w.all == nil {
		w.all = w.those(func(*nodeInfo) bool { return true })
	}
	return w.all
}

// those returns the nodes for which ok says yes.
func (w *upstreamSnapshot) those(ok func(*nodeInfo) bool) []uint64 {
	out := make([]uint64, (w.snap.MaxNodeID()+63)/64)
	for _, id := range w.snap.NodeOrder {
		if ok(w.byID[id]) {
			out[id>>6] |= 1 << (id & 63)
		}
	}
	return out
}

// except returns all nodes but those for which ok says yes, of some.
func (w *upstreamSnapshot) except(some []cluster.NodeID, ok func(*nodeInfo) bool) []uint64 {
	out := slices.Clone(w.everywhere())
	for _, id := range some {
		if ok(w.byID[id]) {
			out[id>>6] &^= 1 << (id & 63)
		}
	}
	return out
}

// reach returns what is known of a class with claims that the gate lets pass.
func (v *volumes) reach(p *pod) *reach {
	r := v.sites.reaches[p.Class.ID]
	if r == nil {
		r = v.makeReach(p)
		v.sites.reaches[p.Class.ID] = r
	}
	return r
}

func (v *volumes) makeReach(p *pod) *reach {
	r := &reach{whole: true}
	var zoned []uint64
	var open []*v1.PersistentVolumeClaim
	for _, name := range p.Class.Claims {
		claim, _ := v.seen.snap.Object(cluster.PersistentVolumeClaims, p.Namespace+"/"+name).(*v1.PersistentVolumeClaim)
		switch {
		case claim == nil:
			return &reach{}
		case claim.Spec.VolumeName == "":
			open = append(open, claim)
			continue
		}
		pv, _ := v.seen.snap.Object(cluster.PersistentVolumes, claim.Spec.VolumeName).(*v1.PersistentVolume)
		if pv == nil || !metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted) || migrated(pv) {
			r.whole = false
			continue
		}
		r.conflict = union(r.conflict, v.forbidden(pv))
		zoned = union(zoned, v.outOfZone(pv, p.Namespace, name))
	}
	if len(open) > 0 {
		r.whole = false
		r.none = v.without(open)
	} else if r.whole {
		r.conflict = union(r.conflict, zoned)
	}
	return r
}

// migrated says whether upstream reads a volume as one of a CSI driver if the node says so.
func migrated(pv *v1.PersistentVolume) bool {
	s := &pv.Spec.PersistentVolumeSource
	return s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.AzureDisk != nil || s.AzureFile != nil || s.Cinder != nil ||
		s.PortworxVolume != nil || s.VsphereVolume != nil
}

// forbidden returns the nodes that a volume's node affinity forbids: upstream is asked about those that have a label it names.
func (v *volumes) forbidden(pv *v1.PersistentVolume) []uint64 {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	terms := pv.Spec.NodeAffinity.Required.NodeSelectorTerms
	key := fmt.Sprintf("%q", terms)
	bits, ok := v.sites.volumes[key]
	if !ok {
		bits = v.seen.except(v.seen.selected(wanted(terms)), func(n *nodeInfo) bool { return volume.CheckNodeAffinity(pv, n.node.Labels) == nil })
		v.sites.volumes[key] = bits
	}
	return bits
}

// oneOf is a label that a node must have, and the values that will do.
type oneOf struct {
	key    string
	values []string
}

// wanted returns, for each term, which labels with given values it demands.
func wanted(terms []v1.NodeSelectorTerm) [][]oneOf {
	out := make([][]oneOf, len(terms))
	for i := range terms {
		for _, e := range terms[i].MatchExpressions {
			if e.Operator == v1.NodeSelectorOpIn {
				out[i] = append(out[i], oneOf{e.Key, e.Values})
			}
		}
	}
	return out
}

// selected returns nodes among which all are that have what some term demands.
func (w *upstreamSnapshot) selected(terms [][]oneOf) []cluster.NodeID {
	var out []cluster.NodeID
	for _, term := range terms {
		var of []cluster.NodeID
		for i, label := range term {
			var some []cluster.NodeID
			for _, value := range label.values {
				some = append(some, w.inDomain(label.key, value)...)
			}
			if i == 0 || len(some) < len(of) {
				of = some
			}
		}
		if len(term) == 0 {
			return w.snap.NodeOrder
		}
		out = append(out, of...)
	}
	return out
}

// outOfZone returns the nodes that a claim's volume forbids by its zone labels, for which upstream is asked about each node.
func (v *volumes) outOfZone(pv *v1.PersistentVolume, namespace, claim string) []uint64 {
	var said []string
	for _, key := range [...]string{v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion, v1.LabelTopologyZone, v1.LabelTopologyRegion} {
		if value, ok := pv.Labels[key]; ok {
			said = append(said, key, value)
		}
	}
	if len(said) == 0 {
		return nil
	}
	key := fmt.Sprintf("%q", said)
	bits, ok := v.sites.zones[key]
	if !ok {
		pod, state := &v1.Pod{}, framework.NewCycleState()
		pod.Namespace, pod.Spec.Volumes = namespace, mounts([]string{claim})
		if _, s := v.zone.PreFilter(v.ctx, state, pod, v.seen.nodes); s.IsSuccess() {
			bits = v.seen.except(v.seen.snap.NodeOrder, func(n *nodeInfo) bool { return v.zone.Filter(v.ctx, state, pod, n).IsSuccess() })
		}
		v.sites.zones[key] = bits
	}
	return bits
}

// without returns nodes on which some of the unbound claims of a pod would get no volume, neither one that is there nor one that is
// made.
func (v *volumes) without(claims []*v1.PersistentVolumeClaim) []uint64 {
	var out []uint64
	for _, claim := range claims {
		if claim.Spec.Selector != nil { // upstream gives up at one it cannot read
			if _, err := metav1.LabelSelectorAsSelector(claim.Spec.Selector); err != nil {
				return nil
			}
		}
	}
	for _, claim := range claims {
		if name, ok := claim.Annotations[volume.AnnSelectedNode]; ok {
			var chosen []cluster.NodeID
			if n := v.seen.snap.NodeByName(name); n != nil {
				chosen = append(chosen, n.ID)
			}
			out = union(out, v.seen.except(chosen, func(*nodeInfo) bool { return true }))
			continue
		}
		if v.options.StorageCapacity && len(claims) > 1 { // upstream may first find too little capacity for another
			continue
		}
		class := volume.GetPersistentVolumeClaimClass(claim)
		none := v.unmade(class)
		if none == nil {
			continue
		}
		some, own := v.unclaimed(class, claim)
		if none = intersection(none, some); own != nil {
			none = intersection(none, own)
		}
		out = union(out, none)
	}
	return out
}

// unmade returns the nodes for which a storage class makes no volumes; nil for none.
func (v *volumes) unmade(name string) []uint64 {
	bits, ok := v.sites.classes[name]
	if ok {
		return bits
	}
	class, _ := v.seen.snap.Object(cluster.StorageClasses, name).(*storagev1.StorageClass)
	switch {
	case class == nil:
	case class.Provisioner == "" || class.Provisioner == volume.NotSupportedProvisioner:
		bits = v.seen.everywhere()
	case len(class.AllowedTopologies) > 0:
		bits = v.seen.except(v.seen.snap.NodeOrder, func(n *nodeInfo) bool {
			return helper.MatchTopologySelectorTerms(class.AllowedTopologies, labels.Set(n.node.Labels))
		})
	}
	v.sites.classes[name] = bits
	return bits
}

// unclaimed returns the nodes on which no volume of a storage class may be used that nobody has claimed, and those on which none may that
// waits for the claim.
func (v *volumes) unclaimed(class string, claim *v1.PersistentVolumeClaim) (some, own []uint64) {
	if v.sites.held == nil {
		v.sites.held, v.sites.open = map[string][]*v1.PersistentVolume{}, map[string][]uint64{}
		all := v.seen.snap.Objects(cluster.PersistentVolumes)
		for _, key := range slices.Sorted(maps.Keys(all)) {
			pv := all[key].(*v1.PersistentVolume)
			if of := pv.Spec.ClaimRef; of != nil {
				v.sites.held[of.Namespace+"/"+of.Name] = append(v.sites.held[of.Namespace+"/"+of.Name], pv)
				continue
			}
			if pv.Status.Phase == v1.VolumeAvailable {
				name := volume.GetPersistentVolumeClass(pv)
				if _, ok := v.sites.open[name]; !ok {
					v.sites.open[name] = slices.Clone(v.seen.everywhere())
				}
				narrow(v.sites.open[name], v.forbidden(pv))
			}
		}
	}
	some, ok := v.sites.open[class]
	if !ok {
		some = v.seen.everywhere()
	}
	for _, pv := range v.sites.held[claim.Namespace+"/"+claim.Name] {
		if own == nil {
			own = slices.Clone(v.seen.everywhere())
		}
		narrow(own, v.forbidden(pv))
	}
	return some, own
}

// crowded returns the nodes that may have to attach more volumes than they can if so many more are mounted there.
func (v *volumes) crowded(more int) []uint64 {
	x := &v.sites
	if x.tight == nil {
		for _, o := range v.seen.snap.Objects(cluster.CSINodes) { // order: a set
			csi := o.(*storagev1.CSINode)
			most, n := -1, v.seen.snap.NodeByName(csi.Name)
			for i := range csi.Spec.Drivers {
				if a := csi.Spec.Drivers[i].Allocatable; a != nil && a.Count != nil && (most < 0 || int(*a.Count) < most) {
					most = int(*a.Count)
				}
			}
			if n != nil && most >= 0 {
				x.caps = append(x.caps, capped{v.seen.byID[n.ID], most})
			}
		}
		x.tight = map[int][]uint64{}
		v.news(&x.read)
	}
	if len(x.caps) == 0 {
		return nil
	}
	if slices.ContainsFunc(v.news(&x.read), func(c change) bool { return len(c.pod.Class.Claims) > 0 }) {
		clear(x.tight)
	}
	bits, ok := x.tight[more]
	if !ok {
		for _, c := range x.caps {
			if c.node.mounted+more > c.most {
				if bits == nil {
					bits = make([]uint64, len(v.seen.everywhere()))
				}
				bits[c.node.model.ID>>6] |= 1 << (c.node.model.ID & 63)
			}
		}
		x.tight[more] = bits
	}
	return bits
}

// drivers returns which drivers attach the volumes of a pod; false if that is not all that counts: the claims must be nobody else's,
// and theirs the volumes.
func (v *volumes) drivers(p *pod) (string, bool) {
	x := &v.sites
	if x.handles == nil {
		x.handles = map[string]int{}
		for _, o := range v.seen.snap.Objects(cluster.PersistentVolumes) { // order: a sum
			if csi := o.(*v1.PersistentVolume).Spec.CSI; csi != nil {
				x.handles[csi.Driver+"/"+csi.VolumeHandle]++
			}
		}
		for _, o := range v.seen.snap.Objects(cluster.PersistentVolumeClaims) { // order: a sum
			x.handles[o.(*v1.PersistentVolumeClaim).Spec.VolumeName]++ // no driver is in a volume's name
		}
	}
	var out []string
	for _, name := range p.Class.Claims {
		key := p.Namespace + "/" + name
		claim, _ := v.seen.snap.Object(cluster.PersistentVolumeClaims, key).(*v1.PersistentVolumeClaim)
		if claim == nil || v.seen.used[key] > 0 {
			return "", false
		}
		if claim.Spec.VolumeName == "" {
			class, _ := v.seen.snap.Object(cluster.StorageClasses, volume.GetPersistentVolumeClaimClass(claim)).(*storagev1.StorageClass)
			if class == nil || strings.HasPrefix(class.Provisioner, "kubernetes.io/") {
				return "", false
			}
			out = append(out, class.Provisioner)
			continue
		}
		pv, _ := v.seen.snap.Object(cluster.PersistentVolumes, claim.Spec.VolumeName).(*v1.PersistentVolume)
		if pv == nil || pv.Spec.CSI == nil || x.handles[pv.Spec.CSI.Driver+"/"+pv.Spec.CSI.VolumeHandle] > 1 || x.handles[pv.Name] > 1 {
			return "", false
		}
		out = append(out, pv.Spec.CSI.Driver)
	}
	slices.Sort(out)
	return strings.Join(out, "\x00"), true
}

// filled returns the nodes that cannot attach the volumes of a pod, if that is known. Upstream is asked once for all pods that differ in
// nothing that counts, and again about nodes where claims came or went.
func (v *volumes) filled(m *mounting, p *pod, crowded []uint64) ([]uint64, bool) {
	drivers, ok := v.drivers(p)
	if !ok {
		return nil, false
	}
	x := v.sites.full[drivers]
	ask := func(n *nodeInfo) {
		said := verdict(v.limits.Filter(v.ctx, m.state, &m.info.pod, n), v.reasons)
		x.odd = x.odd || !said.Yes() && said != *no(ReasonVolumeLimit)
		x.nodes[n.model.ID>>6] &^= 1 << (n.model.ID & 63)
		if !said.Yes() {
			x.nodes[n.model.ID>>6] |= 1 << (n.model.ID & 63)
		}
	}
	if x == nil {
		x = &full{nodes: make([]uint64, len(v.seen.everywhere()))}
		v.sites.full[drivers] = x
		v.news(&x.read)
		for _, c := range v.sites.caps {
			if holds(crowded, c.node.model.ID) {
				ask(c.node)
			}
		}
	}
	for _, c := range v.news(&x.read) {
		if len(c.pod.Class.Claims) > 0 {
			ask(v.seen.byID[c.node])
		}
	}
	return x.nodes, !x.odd
}

// know notes what is known of a class before nodes are asked about.
func (v *volumes) know(m *mounting, p *pod) {
	r, crowded := v.reach(p), v.crowded(len(p.Class.Claims))
	full, known := []uint64(nil), true
	if crowded != nil {
		if full, known = v.filled(m, p, crowded); !known { // attaching may fail there before anything else does
			full = crowded
		}
	}
	if empty(full) {
		full = nil
	}
	conflict := minus(r.conflict, full)
	m.known = []said{{conflict, no(ReasonVolumeNodeConflict)}, {minus(minus(r.none, full), conflict), no(ReasonVolumeNone)}}
	m.whole = r.whole && known
	if known {
		m.known = append(m.known, said{full, no(ReasonVolumeLimit)})
		m.asked = slices.DeleteFunc(m.asked, func(f fwk.FilterPlugin) bool { return f == v.limits })
	}
}

// said is nodes and what they are known to say.
type said struct {
	nodes []uint64
	why   *policy.Verdict
}

// refuses returns nodes that refuse p because of its volumes.
func (v *volumes) refuses(p *pod) refusal {
	m := v.mounting(p)
	switch {
	case !m.failed.Yes():
		return refusal{v.seen.everywhere(), &m.failed, true}
	case !m.inUse.Yes():
		return refusal{v.seen.everywhere(), &m.inUse, true}
	}
	out := refusal{whole: true}
	for _, k := range m.known { // no node says two things
		out = out.and(refusal{k.nodes, k.why, true})
	}
	out.whole = m.whole
	return out
}

// refusal is nodes that refuse a pod.
type refusal struct {
	nodes []uint64
	why   *policy.Verdict // nil if they have several reasons
	whole bool            // no other node refuses it for what the refusal is about
}

// and returns what two refusals say of which the first is heard first.
func (r refusal) and(o refusal) refusal {
	switch {
	case empty(o.nodes):
		return refusal{r.nodes, r.why, r.whole && o.whole}
	case empty(r.nodes) && r.whole:
		return o
	}
	return refusal{union(r.nodes, o.nodes), nil, r.whole && o.whole}
}

// Nodes are sets of bits by ID; nil is none of them.

func holds(set []uint64, id cluster.NodeID) bool { return set != nil && set[id>>6]&(1<<(id&63)) != 0 }

func empty(set []uint64) bool {
	return !slices.ContainsFunc(set, func(word uint64) bool { return word != 0 })
}

func union(a, b []uint64) []uint64 {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	out := slices.Clone(a)
	for i := range out {
		out[i] |= b[i]
	}
	return out
}

func intersection(a, b []uint64) []uint64 {
	out := slices.Clone(a)
	narrow(out, b)
	return out
}

// narrow takes out of a set what is not in another.
func narrow(set, to []uint64) {
	if to == nil {
		clear(set)
	}
	for i := range to {
		set[i] &= to[i]
	}
}

func minus(a, b []uint64) []uint64 {
	if a == nil || b == nil {
		return a
	}
	out := slices.Clone(a)
	for i := range out {
		out[i] &^= b[i]
	}
	return out
}
