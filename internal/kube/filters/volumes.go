package filters

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/component-helpers/storage/volume"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumerestrictions"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumezone"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// volumes asks upstream's VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone, in that order. A placement
// reserves the volumes that its claims would be bound to, through upstream's own Reserve and Unreserve.
type volumes struct {
	*instance
	restrictions *volumerestrictions.VolumeRestrictions
	limits       *nodevolumelimits.CSILimits
	binding      *volumebinding.VolumeBinding
	zone         *volumezone.VolumeZone
	storage      storagelisters.StorageClassLister
	classes      map[uint64]*mounting
	reasons      map[string]*policy.Reason
	spoken       map[string]struct{} // claims that a reservation has chosen a volume or node for, by "namespace/name"
	journal      []reservation       // of this run's placements, last one last
	sites        sites
}

// mounting is a pod, standing for its class, that is asked about.
type mounting struct {
	info   *podInfo
	state  fwk.CycleState
	asked  []fwk.FilterPlugin // those that have a say about nodes
	failed policy.Verdict
	inUse  policy.Verdict // what restrictions say, which is the same of every node
	read   int

	known []said // beforehand
	whole bool   // of no other node upstream has anything to say
	told  map[cluster.NodeID]policy.Verdict
}

// reservation is what one placement took; the zero value is nothing.
type reservation struct {
	claims []string // unbound ones that nobody had spoken for, by "namespace/name"
	pod    *v1.Pod  // the placed pod with these claims alone
	state  fwk.CycleState
	node   string
}

func volumeReasons() map[string]*policy.Reason {
	return map[string]*policy.Reason{
		volumerestrictions.ErrReasonReadWriteOncePodConflict: ReasonVolumeInUse,
		nodevolumelimits.ErrReasonMaxVolumeCountExceeded:     ReasonVolumeLimit,
		string(volumebinding.ErrReasonNodeConflict):          ReasonVolumeNodeConflict,
		string(volumebinding.ErrReasonBindConflict):          ReasonVolumeNone,
		volumebinding.ErrReasonNotEnoughSpace:                ReasonVolumeNoSpace,
		volumezone.ErrReasonConflict:                         ReasonVolumeNodeConflict,
	}
}

func (i *instance) volumes() *volumes {
	if i.disks != nil {
		return i.disks
	}
	h := newHandle(i.upstream(), i.options)
	v := &volumes{
		instance: i, storage: h.SharedInformerFactory().Storage().V1().StorageClasses().Lister(),
		reasons: volumeReasons(), classes: map[uint64]*mounting{}, spoken: map[string]struct{}{},
		sites: sites{volumes: map[string][]uint64{}, zones: map[string][]uint64{}, classes: map[string][]uint64{}, reaches: map[uint64]*reach{}, full: map[string]*full{}},
	}
	p, err := volumerestrictions.New(i.ctx, nil, h, features())
	v.restrictions = must[*volumerestrictions.VolumeRestrictions](p, err)
	p, err = nodevolumelimits.NewCSI(i.ctx, nil, h, features())
	v.limits = must[*nodevolumelimits.CSILimits](p, err)
	p, err = volumebinding.New(i.ctx, &config.VolumeBindingArgs{BindTimeoutSeconds: 600}, h, features())
	v.binding = must[*volumebinding.VolumeBinding](p, err)
	v.binding.Binder = newCapacities(v.binding.Binder, h.of(cluster.CSIStorageCapacities), v.seen)
	p, err = volumezone.New(i.ctx, nil, h, features())
	v.zone = must[*volumezone.VolumeZone](p, err)
	i.disks = v
	v.inherit()
	return v
}

// inherit reserves for the pods that earlier runs decided on and whose claims are not bound yet, node by node and pod by
// pod in the order of names.
func (v *volumes) inherit() {
	snap := v.seen.snap
	for _, id := range snap.NodeOrder {
		var pods []*pod
		for _, pid := range snap.Node(id).Pods {
			if p := snap.Pod(pid); len(p.Class.Claims) > 0 && p.Phase.Active() {
				pods = append(pods, p)
			}
		}
		slices.SortFunc(pods, func(a, b *pod) int { return strings.Compare(a.FullName(), b.FullName()) })
		for _, p := range pods {
			v.take(p, id)
		}
	}
}

// gate says whether every claim of a class is there and fit to be used by anybody.
func (v *volumes) gate(c *class, namespace string) policy.Verdict {
	for _, name := range c.Claims {
		key := namespace + "/" + name
		claim, _ := v.seen.snap.Object(cluster.PersistentVolumeClaims, key).(*v1.PersistentVolumeClaim)
		broken := policy.Verdict{Code: policy.No, Reason: ReasonVolumeClaimBroken, Object: key}
		switch {
		case claim == nil:
			return policy.Verdict{Code: policy.No, Reason: ReasonVolumeClaimMissing, Object: key}
		case claim.DeletionTimestamp != nil:
			broken.Detail = "is being deleted"
			return broken
		case claim.Status.Phase == v1.ClaimLost:
			broken.Detail = "has lost its volume " + claim.Spec.VolumeName
			return broken
		case claim.Spec.VolumeName != "":
			if v.seen.snap.Object(cluster.PersistentVolumes, claim.Spec.VolumeName) == nil {
				broken.Detail = "is bound to volume " + claim.Spec.VolumeName + ", which does not exist"
				return broken
			}
		default:
			later, err := volume.IsDelayBindingMode(claim, v.storage)
			name := volume.GetPersistentVolumeClaimClass(claim)
			switch {
			case err != nil:
				broken.Detail = "cannot be bound: " + err.Error()
				return broken
			case name != "" && v.seen.snap.Object(cluster.StorageClasses, name) == nil:
				broken.Detail = "asks for storage class " + name + ", which does not exist"
				return broken
			case !later:
				broken.Detail = "is not bound to a volume yet"
				return broken
			}
		}
	}
	info := &podInfo{spec: v.seen.spec(c)}
	info.pod.Namespace, info.pod.Spec = namespace, info.spec.pod
	return v.ask(info).failed
}

// ask lets upstream compute what it needs for a pod before it looks at nodes.
func (v *volumes) ask(info *podInfo) *mounting {
	m := &mounting{info: info, state: framework.NewCycleState(), read: len(v.log), told: map[cluster.NodeID]policy.Verdict{}}
	v.read = len(v.log)
	for _, p := range []interface {
		fwk.PreFilterPlugin
		fwk.FilterPlugin
	}{v.restrictions, v.limits, v.binding, v.zone} {
		_, s := p.PreFilter(v.ctx, m.state, &info.pod, v.seen.nodes)
		switch {
		case s.IsSkip():
		case s.IsSuccess():
			if p == v.restrictions { // claims are in use or not, wherever the node is
				if len(v.seen.nodes) > 0 {
					m.inUse = verdict(v.restrictions.Filter(v.ctx, m.state, &info.pod, v.seen.nodes[0]), v.reasons)
				}
				continue
			}
			m.asked = append(m.asked, p)
		default:
			m.failed = verdict(s, v.reasons)
			return m
		}
	}
	return m
}

func (v *volumes) check(p *pod, n *node) policy.Verdict {
	m := v.mounting(p)
	switch {
	case !m.failed.Yes():
		return m.failed
	case !m.inUse.Yes():
		return m.inUse
	}
	for _, k := range m.known {
		if holds(k.nodes, n.ID) {
			return *k.why
		}
	}
	said, ok := m.told[n.ID]
	if !ok {
		for _, f := range m.asked {
			if s := f.Filter(v.ctx, m.state, &m.info.pod, v.seen.byID[n.ID]); !s.IsSuccess() {
				said = verdict(s, v.reasons)
				break
			}
		}
		m.told[n.ID] = said
	}
	return said
}

// mounting returns a pod's class as things stand.
func (v *volumes) mounting(p *pod) *mounting {
	m := v.classes[p.Class.ID]
	if m == nil || v.stale(m) {
		m = v.ask(v.seen.info(p))
		v.classes[p.Class.ID] = m
		if m.failed.Yes() {
			v.know(m, p)
		}
	}
	return m
}

// stale says whether a pod with claims has come or gone.
func (v *volumes) stale(m *mounting) bool {
	return slices.ContainsFunc(v.news(&m.read), func(c change) bool { return len(c.pod.Class.Claims) > 0 })
}

// reserve takes what p's claims would be bound to on the node; release gives back what the last reserve took.
func (v *volumes) reserve(p *pod, n cluster.NodeID) { v.journal = append(v.journal, v.take(p, n)) }

func (v *volumes) take(p *pod, n cluster.NodeID) reservation {
	var names, claims []string
	for _, name := range p.Class.Claims {
		key := p.Namespace + "/" + name
		claim, _ := v.seen.snap.Object(cluster.PersistentVolumeClaims, key).(*v1.PersistentVolumeClaim)
		// A claim that an earlier placement has spoken for is left to it: upstream would give it back with the later one.
		if _, spoken := v.spoken[key]; !spoken && claim != nil && claim.Spec.VolumeName == "" {
			names, claims = append(names, name), append(claims, key)
		}
	}
	if len(names) == 0 {
		return reservation{}
	}
	on := v.seen.byID[n]
	r := reservation{claims: claims, pod: v.seen.info(p).pod.DeepCopy(), state: framework.NewCycleState(), node: on.node.Name}
	r.pod.Spec.Volumes = mounts(names)
	_, s := v.binding.PreFilter(v.ctx, r.state, r.pod, v.seen.nodes)
	if !s.IsSuccess() || !v.binding.Filter(v.ctx, r.state, r.pod, on).IsSuccess() || !v.binding.Reserve(v.ctx, r.state, r.pod, r.node).IsSuccess() {
		return reservation{} // placed by somebody who did not ask whether it can be: there is nothing to take
	}
	for _, key := range claims {
		v.spoken[key] = struct{}{}
	}
	return r
}

func (v *volumes) release() {
	last := len(v.journal) - 1
	r := v.journal[last]
	v.journal = v.journal[:last]
	if r.pod == nil {
		return
	}
	v.binding.Unreserve(v.ctx, r.state, r.pod, r.node)
	for _, key := range r.claims {
		delete(v.spoken, key)
	}
}
