package filters

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// upstreamSnapshot is the snapshot and the run's placements and evictions in the form upstream reads: nodes with pods on them. Pods of
// a node are made when somebody asks for them. To open one costs a look at the class of every pod that holds room.
//
// A pod that the run evicts is not there any more; one that was leaving before is, until it has left.
type upstreamSnapshot struct {
	snap  *cluster.Snapshot
	nodes []fwk.NodeInfo // by name
	byID  []*nodeInfo    // by node ID
	specs map[uint64]*spec
	infos map[cluster.PodID]*podInfo // of the pods that came or went
	used  map[string]int             // pods that hold room and mount the claim, by "namespace/name"
	anti  map[label][]*spec          // classes with required anti-affinity, by a label that all have whom a term means; label{} for no such one
	asks  *v1.Pod                    // whom upstream is asked about; nil for nobody in particular

	all      []uint64                               // every node, as bits by ID; nil until asked for
	labelled map[label][]int                        // positions of nodes where pods with a label are or were; nil until asked for
	domains  map[string]map[string][]cluster.NodeID // nodes by label key and value, of the keys that were asked for
}

// spec is what all pods of a class have in common.
type spec struct {
	class          *class
	pod            v1.PodSpec
	affinity, anti []fwk.AffinityTerm // required ones; none when they cannot be parsed, as upstream has it
	broken         bool               // some term cannot be parsed
	sits           map[int]int        // pods on nodes, by position, counted for classes with anti-affinity only
	away           []*keptAway        // by term of anti-affinity; nil until asked for
}

// podInfo is a pod as upstream reads it. Upstream's filters call the methods below and no others.
type podInfo struct {
	fwk.PodInfo
	pod  v1.Pod
	spec *spec
}

// GetPod implements fwk.PodInfo.
func (p *podInfo) GetPod() *v1.Pod { return &p.pod }

// GetRequiredAffinityTerms implements fwk.PodInfo.
func (p *podInfo) GetRequiredAffinityTerms() []fwk.AffinityTerm { return p.spec.affinity }

// GetRequiredAntiAffinityTerms implements fwk.PodInfo.
func (p *podInfo) GetRequiredAntiAffinityTerms() []fwk.AffinityTerm { return p.spec.anti }

// nodeInfo is a node as upstream reads it. Upstream's filters call the methods below and no others.
type nodeInfo struct {
	fwk.NodeInfo
	upstream *upstreamSnapshot
	model    *node
	node     v1.Node
	at       int                        // position among its nodes
	placed   []*pod                     // that came in this run, spared ones too, last one last
	away     map[cluster.PodID]struct{} // pods of the snapshot that left
	pods     []fwk.PodInfo              // all
	anti     []fwk.PodInfo              // those of pods with required anti-affinity
	hold     int                        // how many have required anti-affinity, known before they are made
	filled   bool

	mounted int // claims that pods on it mount, each as often as it is
}

func newUpstreamSnapshot(snap *cluster.Snapshot) *upstreamSnapshot {
	w := &upstreamSnapshot{
		snap: snap, nodes: make([]fwk.NodeInfo, len(snap.NodeOrder)), byID: make([]*nodeInfo, snap.MaxNodeID()),
		specs: map[uint64]*spec{}, infos: map[cluster.PodID]*podInfo{}, used: map[string]int{}, domains: map[string]map[string][]cluster.NodeID{},
		anti: map[label][]*spec{},
	}
	slab := make([]nodeInfo, len(snap.NodeOrder))
	for i, id := range snap.NodeOrder {
		n, model := &slab[i], snap.Node(id)
		n.upstream, n.model, n.at = w, model, i
		n.node.Name, n.node.Labels, n.node.Spec.Taints = model.Name, model.Labels, model.Taints
		for _, pid := range model.Pods {
			w.count(n, snap.Pod(pid), 1)
		}
		w.nodes[i], w.byID[id] = n, n
	}
	return w
}

// apply follows one change.
func (w *upstreamSnapshot) apply(c *change) {
	n := w.byID[c.node]
	w.count(n, c.pod, c.by)
	if c.by > 0 {
		n.come(c.pod)
	} else {
		n.leave(c.pod)
	}
}

func (n *nodeInfo) come(p *pod) {
	n.placed = append(n.placed, p)
	if n.upstream.labelled != nil {
		n.upstream.label(n.at, p.Labels)
	}
	if n.filled {
		n.add(n.upstream.info(p))
	}
}

// leave lets a pod go: one that came in this run, or else one of the snapshot.
func (n *nodeInfo) leave(p *pod) {
	if i := lastIndex(n.placed, p); i >= 0 {
		n.placed = slices.Delete(n.placed, i, i+1)
	} else {
		if n.away == nil {
			n.away = map[cluster.PodID]struct{}{}
		}
		n.away[p.ID] = struct{}{}
	}
	if n.filled {
		n.pods, n.anti = without(n.pods, p), without(n.anti, p)
	}
}

// lastIndex looks for the pod from the end, because what came last goes first.
func lastIndex(pods []*pod, p *pod) int {
	for i, q := range slices.Backward(pods) {
		if q == p {
			return i
		}
	}
	return -1
}

func without(pods []fwk.PodInfo, p *pod) []fwk.PodInfo {
	for i, q := range slices.Backward(pods) {
		if q.(*podInfo).pod.UID == types.UID(p.UID) {
			return slices.Delete(pods, i, i+1)
		}
	}
	return pods
}

// count keeps the sums that are read without making pods.
func (w *upstreamSnapshot) count(n *nodeInfo, p *pod, by int) {
	for _, claim := range p.Class.Claims {
		w.used[p.Namespace+"/"+claim] += by
	}
	n.mounted += by * len(p.Class.Claims)
	if requiresDistance(p.Class) {
		s := w.spec(p.Class)
		if s.sits == nil {
			s.sits = map[int]int{}
		}
		if s.sits[n.at] += by; s.sits[n.at] == 0 {
			delete(s.sits, n.at)
		}
		n.hold += by
	}
}

func (w *upstreamSnapshot) spec(c *class) *spec {
	s := w.specs[c.ID]
	if s != nil {
		return s
	}
	s = &spec{class: c, pod: podSpec(c)}
	// Terms speak of namespaces and nothing else of the pod they are on. Those of a term that cannot be parsed hold
	// nobody back; the pod itself is turned away when its turn comes.
	on := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace}}
	if c.PodAffinity != nil || c.PodAntiAffinity != nil {
		if info, err := framework.NewPodInfo(&v1.Pod{ObjectMeta: on.ObjectMeta, Spec: s.pod}); err == nil {
			s.affinity, s.anti = info.GetRequiredAffinityTerms(), info.GetRequiredAntiAffinityTerms()
		} else {
			s.broken = true
			s.affinity, _ = fwk.GetAffinityTerms(on, fwk.GetPodAffinityTerms(s.pod.Affinity))
			s.anti, _ = fwk.GetAffinityTerms(on, fwk.GetPodAntiAffinityTerms(s.pod.Affinity))
		}
	}
	w.specs[c.ID] = s
	if len(s.anti) > 0 {
		_, apart := terms(c)
		for i := range apart {
			l, _ := named(&apart[i])
			if of := w.anti[l]; len(of) == 0 || of[len(of)-1] != s {
				w.anti[l] = append(of, s)
			}
		}
	}
	return s
}

// wary yields the classes that are on nodes and of which some term of anti-affinity may mean a pod with these labels, some of them twice.
func (w *upstreamSnapshot) wary(of map[string]string) iter.Seq[*spec] {
	return func(yield func(*spec) bool) {
		each := func(some []*spec) bool {
			return !slices.ContainsFunc(some, func(s *spec) bool { return len(s.sits) > 0 && !yield(s) })
		}
		if !each(w.anti[label{}]) {
			return
		}
		for k, v := range of { // order: a set
			if !each(w.anti[label{k, v}]) {
				return
			}
		}
	}
}

// podSpec returns of a class what the filters read.
func podSpec(c *class) v1.PodSpec {
	s := v1.PodSpec{NodeSelector: c.NodeSelector, Tolerations: c.Tolerations, TopologySpreadConstraints: c.Spread}
	if c.NodeAffinity != nil || c.PodAffinity != nil || c.PodAntiAffinity != nil {
		s.Affinity = &v1.Affinity{NodeAffinity: c.NodeAffinity, PodAffinity: c.PodAffinity, PodAntiAffinity: c.PodAntiAffinity}
	}
	s.Volumes = mounts(c.Claims)
	return s
}

func mounts(claims []string) []v1.Volume {
	out := make([]v1.Volume, len(claims))
	for i, name := range claims {
		out[i] = v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	return out
}

// info returns a pod that came, went, or is asked about; it is made once.
func (w *upstreamSnapshot) info(p *pod) *podInfo {
	i := w.infos[p.ID]
	if i == nil {
		i = &podInfo{}
		w.fill(i, p)
		w.infos[p.ID] = i
	}
	return i
}

func (w *upstreamSnapshot) fill(i *podInfo, p *pod) {
	i.spec = w.spec(p.Class)
	i.pod.Namespace, i.pod.Name, i.pod.UID, i.pod.Labels, i.pod.Spec = p.Namespace, p.Name, types.UID(p.UID), p.Labels, i.spec.pod
	if p.Phase == cluster.Releasing || p.Phase == cluster.StuckReleasing {
		i.pod.DeletionTimestamp = &metav1.Time{Time: w.snap.Now.Time()} // that it is set is all that is read
	}
}

// Node implements fwk.NodeInfo.
func (n *nodeInfo) Node() *v1.Node { return &n.node }

// GetPods implements fwk.NodeInfo.
func (n *nodeInfo) GetPods() []fwk.PodInfo {
	n.fill()
	return n.pods
}

// GetPodsWithRequiredAntiAffinity implements fwk.NodeInfo.
func (n *nodeInfo) GetPodsWithRequiredAntiAffinity() []fwk.PodInfo {
	if n.hold == 0 {
		return nil
	}
	n.fill()
	return n.anti
}

func (n *nodeInfo) fill() {
	if n.filled {
		return
	}
	n.filled = true
	slab := make([]podInfo, len(n.model.Pods))
	n.pods = make([]fwk.PodInfo, 0, len(slab)+len(n.placed)+4)
	for i, id := range n.model.Pods {
		if _, left := n.away[id]; !left {
			n.upstream.fill(&slab[i], n.upstream.snap.Pod(id))
			n.add(&slab[i])
		}
	}
	for _, p := range n.placed {
		n.add(n.upstream.info(p))
	}
}

func (n *nodeInfo) add(p *podInfo) {
	n.pods = append(n.pods, p)
	if len(p.spec.anti) > 0 {
		n.anti = append(n.anti, p)
	}
}

// NodeInfos implements fwk.SharedLister.
func (w *upstreamSnapshot) NodeInfos() fwk.NodeInfoLister { return nodeLister{w} }

// StorageInfos implements fwk.SharedLister.
func (w *upstreamSnapshot) StorageInfos() fwk.StorageInfoLister { return storageLister{w} }

// PodGroupStates implements fwk.SharedLister, as do those below: upstream's gangs are not ours, and no filter asks.
func (w *upstreamSnapshot) PodGroupStates() fwk.PodGroupStateLister { return nil }

// PodGroups is of fwk.SharedLister.
func (w *upstreamSnapshot) PodGroups() fwk.PodGroupLister { return nil }

// CompositePodGroupStates is of fwk.SharedLister.
func (w *upstreamSnapshot) CompositePodGroupStates() fwk.CompositePodGroupStateLister { return nil }

// CompositePodGroups is of fwk.SharedLister.
func (w *upstreamSnapshot) CompositePodGroups() fwk.CompositePodGroupLister { return nil }

type nodeLister struct{ w *upstreamSnapshot }

// List implements fwk.NodeInfoLister.
func (l nodeLister) List() ([]fwk.NodeInfo, error) { return l.w.nodes, nil }

// HavePodsWithAffinityList implements fwk.NodeInfoLister. Only scores read it; every node is a right answer.
func (l nodeLister) HavePodsWithAffinityList() ([]fwk.NodeInfo, error) { return l.w.nodes, nil }

// HavePodsWithRequiredAntiAffinityList implements fwk.NodeInfoLister: for whom upstream is asked about, nodes on which somebody may mean
// that one.
func (l nodeLister) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) {
	var out []fwk.NodeInfo
	if l.w.asks == nil {
		for _, n := range l.w.nodes {
			if n.(*nodeInfo).hold > 0 {
				out = append(out, n)
			}
		}
		return out, nil
	}
	var at []int
	for s := range l.w.wary(l.w.asks.Labels) {
		at = slices.AppendSeq(at, maps.Keys(s.sits)) // order: sorted below
	}
	slices.Sort(at)
	for _, k := range slices.Compact(at) {
		out = append(out, l.w.nodes[k])
	}
	return out, nil
}

// HavePodsWithRequiredNonHostScopedAntiAffinityList implements fwk.NodeInfoLister: none, as long as features has
// EnableInterPodAffinityHostnameFastPath off.
func (l nodeLister) HavePodsWithRequiredNonHostScopedAntiAffinityList() ([]fwk.NodeInfo, error) {
	return nil, nil
}

// Get implements fwk.NodeInfoLister.
func (l nodeLister) Get(name string) (fwk.NodeInfo, error) {
	if n := l.w.snap.NodeByName(name); n != nil {
		return l.w.byID[n.ID], nil
	}
	return nil, fmt.Errorf("node %q is not in the snapshot", name)
}

type storageLister struct{ w *upstreamSnapshot }

// IsPVCUsedByPods implements fwk.StorageInfoLister.
func (l storageLister) IsPVCUsedByPods(key string) bool { return l.w.used[key] > 0 }
