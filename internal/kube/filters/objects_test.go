package filters

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// plant is a cluster of API objects, and the store that is made of them as the feed would.
type plant struct {
	store *cluster.Store
	nodes []*v1.Node
	pods  []*v1.Pod
	rest  []metav1.Object
}

func newPlant(objects ...metav1.Object) *plant {
	p := &plant{store: cluster.NewStore(cluster.Options{})}
	p.store.Apply(cluster.QueueState{Name: "q", UID: "q", Quota: unlimited(), Limit: unlimited(), Weight: unlimited()})
	for _, o := range objects {
		p.add(o)
	}
	return p
}

func unlimited() []cluster.Quantity {
	return []cluster.Quantity{{Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}, {Name: "gpu", Value: cluster.Unlimited}}
}

// add takes an object in; pods that name no gang get one of their own.
func (p *plant) add(o metav1.Object) {
	key := o.GetName()
	if o.GetNamespace() != "" {
		key = o.GetNamespace() + "/" + key
	}
	carry := func(kind cluster.ObjectKind) {
		p.rest = append(p.rest, o)
		p.store.Apply(cluster.ObjectState{Kind: kind, Key: key, Object: o})
	}
	switch o := o.(type) {
	case *v1.Node:
		p.nodes = append(p.nodes, o)
		p.store.Apply(core.Node(o))
	case *v1.Pod:
		p.pods = append(p.pods, o)
		st := core.Pod(o)
		st.Ours, st.Gang = true, cluster.Key{Face: "kai", Namespace: o.Namespace, Name: gangOf(o)}
		if p.store.Snapshot(cluster.UnixNano(1)).GangByKey(st.Gang) == nil {
			p.gang(st.Gang, 1)
		}
		p.store.Apply(st)
	case *v1.Namespace:
		carry(cluster.Namespaces)
	case *v1.PersistentVolume:
		carry(cluster.PersistentVolumes)
	case *v1.PersistentVolumeClaim:
		carry(cluster.PersistentVolumeClaims)
	case *storagev1.StorageClass:
		carry(cluster.StorageClasses)
	case *storagev1.CSINode:
		carry(cluster.CSINodes)
	case *storagev1.CSIDriver:
		carry(cluster.CSIDrivers)
	case *storagev1.CSIStorageCapacity:
		carry(cluster.CSIStorageCapacities)
	default:
		panic(fmt.Sprintf("no such kind: %T", o))
	}
}

func (p *plant) gang(key cluster.Key, least int32) {
	p.store.Apply(cluster.GangState{Key: key, UID: key.Name, Queue: "q", Preemptible: true, Sets: cluster.FlatTree(least)})
}

const gangLabel = "test/gang"

func gangOf(o *v1.Pod) string {
	if g := o.Labels[gangLabel]; g != "" {
		return g
	}
	return "g-" + o.Name
}

// actionFunc is a test's own action.
type actionFunc func(*engine.Session)

// Run implements engine.Action.
func (f actionFunc) Run(s *engine.Session) { f(s) }

// run opens a session on the plant, with the filters alone, and hands it to f.
func (p *plant) run(tb fataler, o Options, f func(*engine.Session, *instance)) {
	tb.Helper()
	var opened *instance
	ran := false
	e, err := engine.New(engine.Profile{Actions: []string{"test"}, Tiers: [][]engine.PluginUse{{{Name: "filters"}}}}, engine.Registry{
		Actions: map[string]func() engine.Action{"test": func() engine.Action {
			return actionFunc(func(s *engine.Session) {
				ran = true
				f(s, opened)
			})
		}},
		Plugins: map[string][]policy.Factory{"filters": {policy.Opens(func(v *policy.View) *instance {
			opened = newInstance(v, o)
			return opened
		})}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	e.Run(context.Background(), p.store.Snapshot(cluster.UnixNano(1)), func(engine.Plan) {})
	if !ran {
		tb.Fatal("the action did not run")
	}
}

// judge is what the engine would do: gates, then filters.
func judge(i *instance, p *pod, n *node) policy.Verdict {
	if v := i.CheckPod(p.Class, p.Namespace); !v.Yes() {
		return v
	}
	if !i.Wants(p.Class) {
		return policy.Verdict{}
	}
	return i.CheckNode(p, n)
}

// verdicts judges every pod that waits, or was evicted in the run, on every node.
func verdicts(s *engine.Session, i *instance) map[string]policy.Verdict {
	out := map[string]policy.Verdict{}
	s.Snap.EachPod(func(p *pod) {
		if p.Phase != cluster.Pending && !(p.Phase.Active() && i.view.NodeOf(p) == cluster.None) {
			return
		}
		for _, id := range s.Snap.NodeOrder {
			n := s.Snap.Node(id)
			out[p.Name+" on "+n.Name] = judge(i, p, n)
		}
	})
	return out
}

func podNamed(s *cluster.Snapshot, name string) *pod {
	var found *pod
	s.EachPod(func(p *pod) {
		if p.Name == name {
			found = p
		}
	})
	return found
}

// The objects of tests.

const zoneKey, hostKey = v1.LabelTopologyZone, v1.LabelHostname

func aNode(name, zone string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{hostKey: name}}}
	if zone != "" {
		n.Labels[zoneKey] = zone
	}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	n.Status.Allocatable = v1.ResourceList{"cpu": resource.MustParse("100"), "memory": resource.MustParse("100Gi"), "pods": resource.MustParse("100")}
	return n
}

// aPod is a pod with one label, app, on a node or on none.
func aPod(name, app, on string, with ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{"app": app}}}
	p.Spec.NodeName = on
	p.Spec.Containers = []v1.Container{{Name: "c"}}
	p.Status.Phase = v1.PodPending
	if on != "" {
		p.Status.Phase = v1.PodRunning
	}
	for _, f := range with {
		f(p)
	}
	return p
}

func term(app, key string) v1.PodAffinityTerm {
	return v1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
}

func near(t v1.PodAffinityTerm) func(*v1.Pod) {
	return func(p *v1.Pod) {
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &v1.Affinity{}
		}
		if p.Spec.Affinity.PodAffinity == nil {
			p.Spec.Affinity.PodAffinity = &v1.PodAffinity{}
		}
		a := p.Spec.Affinity.PodAffinity
		a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, t)
	}
}

func apart(t v1.PodAffinityTerm) func(*v1.Pod) {
	return func(p *v1.Pod) {
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &v1.Affinity{}
		}
		if p.Spec.Affinity.PodAntiAffinity == nil {
			p.Spec.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{}
		}
		a := p.Spec.Affinity.PodAntiAffinity
		a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, t)
	}
}

func prefers(weight int32, avoids bool, x v1.PodAffinityTerm) func(*v1.Pod) {
	return func(p *v1.Pod) {
		w := v1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: x}
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &v1.Affinity{}
		}
		switch a := p.Spec.Affinity; {
		case avoids && a.PodAntiAffinity == nil:
			a.PodAntiAffinity = &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{w}}
		case avoids:
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, w)
		case a.PodAffinity == nil:
			a.PodAffinity = &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{w}}
		default:
			a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, w)
		}
	}
}

func spreadOver(key, app string, skew int32, with ...func(*v1.TopologySpreadConstraint)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		c := v1.TopologySpreadConstraint{
			TopologyKey: key, MaxSkew: skew, WhenUnsatisfiable: v1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}
		for _, f := range with {
			f(&c)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

func inNamespace(ns string) func(*v1.Pod) { return func(p *v1.Pod) { p.Namespace = ns } }

func ofGang(name string) func(*v1.Pod) { return func(p *v1.Pod) { p.Labels[gangLabel] = name } }

func mountingOne(claim string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Volumes = append(p.Spec.Volumes, mounts([]string{claim})...) }
}

func aNamespace(name, team string) *v1.Namespace {
	return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}}
}

// aClaim is of storage class "wait" unless with says otherwise.
func aClaim(name, size string, with ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	class := "wait"
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("claim-" + name), ResourceVersion: "1"}}
	c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	c.Spec.StorageClassName = &class
	c.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
	c.Status.Phase = v1.ClaimPending
	for _, f := range with {
		f(c)
	}
	return c
}

func boundTo(volume string) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status.Phase = volume, v1.ClaimBound
		c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	}
}

func ofClass(name string) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) { c.Spec.StorageClassName = &name }
}

func exclusive(c *v1.PersistentVolumeClaim) {
	c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
}

// aVolume is a CSI volume of storage class "wait" that the nodes whose label key is value can reach; key "" for all.
func aVolume(name, size, key, value string, with ...func(*v1.PersistentVolume)) *v1.PersistentVolume {
	p := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("volume-" + name), ResourceVersion: "1"}}
	p.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
	p.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadWriteOncePod}
	p.Spec.StorageClassName = "wait"
	p.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: name}
	if key != "" {
		p.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}}},
		}}}}
	}
	p.Status.Phase = v1.VolumeAvailable
	for _, f := range with {
		f(p)
	}
	return p
}

func heldBy(claim string) func(*v1.PersistentVolume) {
	return func(p *v1.PersistentVolume) {
		p.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: claim, UID: types.UID("claim-" + claim)}
		p.Status.Phase = v1.VolumeBound
	}
}

// aStorageClass binds when the first pod comes, or at once.
func aStorageClass(name, provisioner string, wait bool, zones ...string) *storagev1.StorageClass {
	mode := storagev1.VolumeBindingImmediate
	if wait {
		mode = storagev1.VolumeBindingWaitForFirstConsumer
	}
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode}
	if len(zones) > 0 {
		c.AllowedTopologies = []v1.TopologySelectorTerm{{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: zoneKey, Values: zones}}}}
	}
	return c
}

// fataler is a *testing.T, a *testing.B or a *rapid.T.
type fataler interface {
	Helper()
	Fatal(...any)
}

func quantity(s string) resource.Quantity { return resource.MustParse(s) }
