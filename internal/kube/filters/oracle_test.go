package filters

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumerestrictions"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumezone"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// upstream is kube-scheduler's filters on kube-scheduler's own snapshot and informers, with nothing of ours between.
type upstream struct {
	fwk.Handle
	snapshot *cache.Snapshot
	factory  informers.SharedInformerFactory
}

func (u *upstream) SnapshotSharedLister() fwk.SharedLister                 { return u.snapshot }
func (u *upstream) SharedInformerFactory() informers.SharedInformerFactory { return u.factory }
func (u *upstream) Parallelizer() fwk.Parallelizer                         { return inline{} }
func (u *upstream) ClientSet() kubernetes.Interface                        { return nil }
func (u *upstream) SharedCSIManager() fwk.CSIManager {
	return nodevolumelimits.NewCSIManager(u.factory.Storage().V1().CSINodes().Lister())
}

type judgeOfPods interface {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
}

// judge returns, pod by pod and node by node, what upstream says to the waiting pods, and those that are gone from their nodes. A pod
// that upstream refuses before it looks at nodes is told policy.NoForever by all of them, whatever the reason.
func (u *upstream) judge(t interface{ Fatal(...any) }, p *plant, gone map[string]bool) map[string]policy.Verdict {
	reasons := maps.Clone(volumeReasons())
	maps.Copy(reasons, affinityReasons())
	reasons[podtopologyspread.ErrReasonConstraintsNotMatch] = ReasonTopologySpread
	reasons[podtopologyspread.ErrReasonNodeLabelNotMatch] = ReasonTopologySpread
	var placed, there []*v1.Pod
	for _, o := range p.pods {
		if o.Spec.NodeName != "" {
			placed = append(placed, o)
			if !gone[o.Name] {
				there = append(there, o)
			}
		}
	}
	u.snapshot, u.factory = cache.NewSnapshot(there, p.nodes), informers.NewSharedInformerFactory(nil, 0)
	put := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range p.rest {
		switch o := o.(type) {
		case *v1.Namespace:
			put(u.factory.Core().V1().Namespaces().Informer().GetIndexer().Add(o))
		case *v1.PersistentVolume:
			put(u.factory.Core().V1().PersistentVolumes().Informer().GetIndexer().Add(o))
		case *v1.PersistentVolumeClaim:
			put(u.factory.Core().V1().PersistentVolumeClaims().Informer().GetIndexer().Add(o))
		case *storagev1.StorageClass:
			put(u.factory.Storage().V1().StorageClasses().Informer().GetIndexer().Add(o))
		case *storagev1.CSINode:
			put(u.factory.Storage().V1().CSINodes().Informer().GetIndexer().Add(o))
		case *storagev1.CSIDriver:
			put(u.factory.Storage().V1().CSIDrivers().Informer().GetIndexer().Add(o))
		case *storagev1.CSIStorageCapacity:
			put(u.factory.Storage().V1().CSIStorageCapacities().Informer().GetIndexer().Add(o))
		}
	}
	ctx := context.Background()
	var plugins []judgeOfPods
	use := func(p fwk.Plugin, err error) {
		put(err)
		plugins = append(plugins, p.(judgeOfPods))
	}
	use(volumerestrictions.New(ctx, nil, u, features()))
	use(nodevolumelimits.NewCSI(ctx, nil, u, features()))
	use(volumebinding.New(ctx, &config.VolumeBindingArgs{BindTimeoutSeconds: 600}, u, features()))
	binding := plugins[len(plugins)-1].(*volumebinding.VolumeBinding)
	use(volumezone.New(ctx, nil, u, features()))
	use(podtopologyspread.New(ctx, &config.PodTopologySpreadArgs{DefaultingType: config.ListDefaulting}, u, features()))
	use(interpodaffinity.New(ctx, &config.InterPodAffinityArgs{}, u, features()))
	nodes, err := u.snapshot.NodeInfos().List()
	put(err)
	// A pod that was decided on and whose claims are not bound yet has its volumes reserved, and its claims keep them.
	slices.SortStableFunc(placed, func(a, b *v1.Pod) int {
		return strings.Compare(a.Spec.NodeName+" "+a.Namespace+"/"+a.Name, b.Spec.NodeName+" "+b.Namespace+"/"+b.Name)
	})
	for _, o := range placed {
		if n, err := u.snapshot.Get(o.Spec.NodeName); err == nil && o.DeletionTimestamp == nil {
			state := framework.NewCycleState()
			if _, s := binding.PreFilter(ctx, state, o, nodes); s.IsSuccess() && binding.Filter(ctx, state, o, n).IsSuccess() {
				put(binding.Reserve(ctx, state, o, o.Spec.NodeName).AsError())
			}
		}
	}
	out := map[string]policy.Verdict{}
	for _, o := range p.pods {
		if o.Spec.NodeName != "" && !gone[o.Name] {
			continue
		}
		state := framework.NewCycleState()
		var asked []judgeOfPods
		ok := true
		for _, pl := range plugins {
			_, s := pl.PreFilter(ctx, state, o, nodes)
			ok = ok && (s.IsSuccess() || s.IsSkip())
			if s.IsSuccess() {
				asked = append(asked, pl)
			}
		}
		for _, n := range nodes {
			v := policy.Verdict{}
			if !ok {
				v.Code = policy.NoForever
			}
			for _, pl := range asked {
				if v.Yes() {
					v = verdict(pl.Filter(ctx, state, o, n), reasons)
				}
			}
			out[o.Name+" on "+n.Node().Name] = v
		}
	}
	return out
}

// draw makes a random cluster of every feature that the filters judge.
func draw(t *rapid.T, storage bool) *plant {
	p := newPlant(aNamespace("ns", "red"), aNamespace("other", "blue"), aStorageClass("wait", "disk.example.com", true, "a", "b"),
		aStorageClass("now", "disk.example.com", false), aStorageClass("static", "kubernetes.io/no-provisioner", true))
	pick := func(what string, from ...string) string { return rapid.SampledFrom(from).Draw(t, what) }
	n := rapid.IntRange(1, 6).Draw(t, "nodes")
	names := []string{}
	for i := range n {
		node := aNode(fmt.Sprintf("n%d", i), pick("zone", "a", "a", "b", "c", ""))
		if rapid.IntRange(0, 4).Draw(t, "tainted") == 0 {
			node.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
		}
		names = append(names, node.Name)
		p.add(node)
		if storage && rapid.Bool().Draw(t, "csi node") {
			most := rapid.Int32Range(0, 3).Draw(t, "attach limit")
			p.add(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
				Name: "disk.example.com", NodeID: node.Name, Allocatable: &storagev1.VolumeNodeResources{Count: &most},
			}}}})
		}
	}
	claims := []string{}
	if storage {
		for i := range rapid.IntRange(0, 5).Draw(t, "volumes") {
			// Sizes differ because upstream's choice among equals is random.
			v := aVolume(fmt.Sprintf("v%d", i), fmt.Sprintf("%dGi", i+1), pick("reach", "", zoneKey, hostKey), pick("reached", "a", "b", "n0", "n1"))
			v.Spec.StorageClassName = pick("volume class", "wait", "static")
			if rapid.IntRange(0, 3).Draw(t, "zoned") == 0 {
				v.Labels = map[string]string{zoneKey: pick("volume zone", "a", "b")}
			}
			if terms := v.Spec.NodeAffinity; terms != nil && rapid.IntRange(0, 3).Draw(t, "more terms") == 0 {
				of := &terms.Required.NodeSelectorTerms
				*of = append(*of, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
					{Key: zoneKey, Operator: v1.NodeSelectorOperator(pick("operator", "In", "NotIn")), Values: []string{"a", "c"}},
					{Key: hostKey, Operator: v1.NodeSelectorOpIn, Values: []string{"n0", "n2", "n4"}},
				}})
				if rapid.Bool().Draw(t, "vague") {
					*of = append(*of, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: zoneKey, Operator: v1.NodeSelectorOpDoesNotExist}}})
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "held") == 0 {
				heldBy(fmt.Sprintf("c%d", rapid.IntRange(0, 4).Draw(t, "by")))(v)
			}
			p.add(v)
		}
		for i := range rapid.IntRange(1, 5).Draw(t, "claims") {
			c := aClaim(fmt.Sprintf("c%d", i), pick("claim size", "1Gi", "2Gi", "3Gi"), ofClass(pick("class", "wait", "wait", "static", "now", "none")))
			if rapid.IntRange(0, 3).Draw(t, "exclusive") == 0 {
				exclusive(c)
			}
			if rapid.Bool().Draw(t, "bound") {
				boundTo(fmt.Sprintf("v%d", rapid.IntRange(0, 5).Draw(t, "to")))(c)
			}
			if c.Spec.VolumeName == "" && rapid.IntRange(0, 5).Draw(t, "chosen") == 0 {
				c.Annotations = map[string]string{"volume.kubernetes.io/selected-node": pick("chosen node", "n0", "n1")}
			}
			if rapid.IntRange(0, 8).Draw(t, "lost") == 0 {
				c.Status.Phase = v1.ClaimLost
			}
			claims = append(claims, c.Name)
			p.add(c)
		}
		claims = append(claims, "missing")
	}
	policy := func(what string) *v1.NodeInclusionPolicy {
		switch pick(what, "", "Honor", "Ignore") {
		case "Honor":
			x := v1.NodeInclusionPolicyHonor
			return &x
		case "Ignore":
			x := v1.NodeInclusionPolicyIgnore
			return &x
		}
		return nil
	}
	for i := range rapid.IntRange(1, 14).Draw(t, "pods") {
		o := aPod(fmt.Sprintf("p%d", i), pick("app", "x", "y", "z"), "", inNamespace(pick("namespace", "ns", "ns", "other")))
		if i > 0 && rapid.Bool().Draw(t, "placed") {
			o.Spec.NodeName, o.Status.Phase = rapid.SampledFrom(names).Draw(t, "node"), v1.PodRunning
			if rapid.IntRange(0, 4).Draw(t, "leaving") == 0 {
				o.DeletionTimestamp = &metav1.Time{}
			}
		}
		randomTerm := func() v1.PodAffinityTerm {
			x := term(pick("of", "x", "y"), pick("key", zoneKey, hostKey))
			switch pick("where", "own", "own", "named", "team", "any") {
			case "named":
				x.Namespaces = []string{"other"}
			case "team":
				x.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
			case "any":
				x.NamespaceSelector = &metav1.LabelSelector{}
			}
			return x
		}
		if rapid.IntRange(0, 2).Draw(t, "apart") == 0 {
			apart(randomTerm())(o)
		}
		if rapid.IntRange(0, 3).Draw(t, "near") == 0 {
			near(randomTerm())(o)
		}
		for rapid.IntRange(0, 2).Draw(t, "prefers") == 0 {
			prefers(rapid.Int32Range(1, 100).Draw(t, "weight"), rapid.Bool().Draw(t, "avoids"), randomTerm())(o)
		}
		if rapid.IntRange(0, 2).Draw(t, "spread") == 0 {
			spreadOver(pick("over", zoneKey, hostKey), pick("spread of", "x", "y"), rapid.Int32Range(1, 2).Draw(t, "skew"), func(c *v1.TopologySpreadConstraint) {
				c.NodeAffinityPolicy, c.NodeTaintsPolicy = policy("affinity policy"), policy("taint policy")
				if rapid.Bool().Draw(t, "keyed") {
					c.MatchLabelKeys = []string{"app"}
				}
				if rapid.IntRange(0, 3).Draw(t, "at least") == 0 {
					least := int32(3)
					c.MinDomains = &least
				}
			})(o)
		}
		if rapid.IntRange(0, 2).Draw(t, "tolerates") == 0 {
			o.Spec.Tolerations = []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists}}
		}
		if rapid.IntRange(0, 3).Draw(t, "selects") == 0 {
			o.Spec.NodeSelector = map[string]string{zoneKey: "a"}
		}
		if storage && o.Namespace == "ns" && rapid.Bool().Draw(t, "mounts") {
			first, second := rapid.SampledFrom(claims).Draw(t, "claim"), rapid.SampledFrom(claims).Draw(t, "claim")
			// Two placed pods do not share a claim: which of them it goes with is open while it is not bound.
			if o.Spec.NodeName == "" || !slices.ContainsFunc(p.pods, func(other *v1.Pod) bool {
				return other.Spec.NodeName != "" && len(other.Spec.Volumes) > 0 && other.Spec.Volumes[0].Name == first
			}) {
				mountingOne(first)(o)
			}
			if second != first && o.Spec.NodeName == "" {
				mountingOne(second)(o)
			}
		}
		p.add(o)
	}
	return p
}

// known fails unless upstream refuses each pod the nodes of which it is known beforehand that they refuse it, for the reason that is
// known; and all nodes if it is known that whoever goes will not help.
func known(t interface{ Fatalf(string, ...any) }, s *engine.Session, i *instance, want map[string]policy.Verdict) {
	s.Snap.EachPod(func(p *pod) {
		if _, asked := want[p.Name+" on "+s.Snap.Node(s.Snap.NodeOrder[0]).Name]; !asked || !i.CheckPod(p.Class, p.Namespace).Yes() || !i.Wants(p.Class) {
			return
		}
		nodes, why := i.Refuses(p)
		none := i.RefusesAll(p)
		for _, id := range s.Snap.NodeOrder {
			n := s.Snap.Node(id)
			switch v := want[p.Name+" on "+n.Name]; {
			case none && v.Yes():
				t.Fatalf("%s is said to go nowhere, and upstream lets it go to %s", p.Name, n.Name)
			case !holds(nodes, id):
			case v.Yes():
				t.Fatalf("%s is known to refuse %s (%v), and upstream lets it", n.Name, p.Name, why)
			case why != nil && v.Code != policy.NoForever && v != *why:
				t.Fatalf("%s is known to refuse %s: %v; upstream says %v", n.Name, p.Name, why, v)
			}
		}
	})
}

// TestUpstreamAgrees gives random clusters to kube-scheduler's filters directly and through the snapshot: as they are, with
// some pods evicted, and as they were.
func TestUpstreamAgrees(t *testing.T) {
	for _, storage := range []bool{false, true} {
		t.Run(fmt.Sprintf("storage=%t", storage), rapid.MakeCheck(func(t *rapid.T) {
			p := draw(t, storage)
			gone := map[string]bool{}
			for _, o := range p.pods {
				if o.Spec.NodeName != "" && o.DeletionTimestamp == nil && rapid.Bool().Draw(t, "evicted") {
					gone[o.Name] = true
				}
			}
			agree := func(s *engine.Session, i *instance, when string, gone map[string]bool) {
				got, want := verdicts(s, i), (&upstream{}).judge(t, p, gone)
				known(t, s, i, want)
				for k, v := range want { // order: each on its own
					if v.Code == policy.NoForever && !got[k].Yes() { // gates have words of their own
						want[k] = got[k]
					}
				}
				if d := cmp.Diff(want, got); d != "" {
					for _, k := range slices.Sorted(maps.Keys(got)) {
						t.Log(k, got[k])
					}
					t.Fatalf("%s, upstream and we disagree (-upstream +ours):\n%s", when, d)
				}
			}
			p.run(t, Options{StorageCapacity: true}, func(s *engine.Session, i *instance) {
				if rapid.Bool().Draw(t, "warm") {
					agree(s, i, "at first", nil)
				}
				st := s.Ledger.Begin()
				for _, o := range p.pods {
					if gone[o.Name] {
						st.Evict(podNamed(s.Snap, o.Name))
					}
				}
				agree(s, i, "after evictions", gone)
				st.Discard()
				agree(s, i, "after they were undone", nil)
			})
		}))
	}
}
