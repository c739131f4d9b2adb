package filters

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// zones is two zones of two nodes each.
func zones() []metav1.Object {
	return []metav1.Object{aNode("a1", "a"), aNode("a2", "a"), aNode("b1", "b"), aNode("b2", "b")}
}

// answer is the reason each node gives for one pod; nodes that take it are left out.
type answer = map[string]*policy.Reason

func all(r *policy.Reason) answer { return answer{"a1": r, "a2": r, "b1": r, "b2": r} }

func TestVerdicts(t *testing.T) {
	t.Parallel()
	wait := aStorageClass("wait", "disk.example.com", true)
	yes := true
	for name, c := range map[string]struct {
		given   []metav1.Object
		pod     *v1.Pod
		options Options
		want    answer
		about   string // the verdict's object
		detail  string
	}{
		"a pod that says nothing": {pod: aPod("p", "x", "")},
		"anti-affinity by host": {
			given: []metav1.Object{aPod("q", "x", "a1")}, pod: aPod("p", "y", "", apart(term("x", hostKey))),
			want: answer{"a1": ReasonPodAntiAffinity},
		},
		"anti-affinity by zone": {
			given: []metav1.Object{aPod("q", "x", "a1")}, pod: aPod("p", "y", "", apart(term("x", zoneKey))),
			want: answer{"a1": ReasonPodAntiAffinity, "a2": ReasonPodAntiAffinity},
		},
		"anti-affinity of a pod that is there": {
			given: []metav1.Object{aPod("q", "x", "b1", apart(term("y", zoneKey)))}, pod: aPod("p", "y", ""),
			want: answer{"b1": ReasonPodAntiAffinity, "b2": ReasonPodAntiAffinity},
		},
		"anti-affinity means pods of other labels":      {given: []metav1.Object{aPod("q", "x", "b1", apart(term("z", zoneKey)))}, pod: aPod("p", "y", "")},
		"anti-affinity means pods of its own namespace": {given: []metav1.Object{aPod("q", "x", "b1", apart(term("y", zoneKey)))}, pod: aPod("p", "y", "", inNamespace("other"))},
		"anti-affinity to namespaces by label": {
			given: []metav1.Object{
				aNamespace("other", "red"), aNamespace("ns", "blue"),
				aPod("q", "x", "b1", apart(v1.PodAffinityTerm{TopologyKey: hostKey, LabelSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}})),
			},
			pod: aPod("p", "y", "", inNamespace("other")), want: answer{"b1": ReasonPodAntiAffinity},
		},
		"affinity by zone": {
			given: []metav1.Object{aPod("q", "x", "a1")}, pod: aPod("p", "y", "", near(term("x", zoneKey))),
			want: answer{"b1": ReasonPodAffinity, "b2": ReasonPodAffinity},
		},
		"affinity to nobody":                        {pod: aPod("p", "y", "", near(term("x", zoneKey))), want: all(ReasonPodAffinity)},
		"affinity to its like, and it is the first": {pod: aPod("p", "x", "", near(term("x", zoneKey)))},
		"affinity on a label no node has":           {pod: aPod("p", "x", "", near(term("x", "rack"))), want: all(ReasonPodAffinity)},
		"spread over zones": {
			given: []metav1.Object{aPod("q", "x", "a1")}, pod: aPod("p", "x", "", spreadOver(zoneKey, "x", 1)),
			want: answer{"a1": ReasonTopologySpread, "a2": ReasonTopologySpread},
		},
		"spread leaves out pods that go": {
			given: []metav1.Object{aPod("q", "x", "a1", func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} })},
			pod:   aPod("p", "x", "", spreadOver(zoneKey, "x", 1)),
		},
		"spread where possible": {
			given: []metav1.Object{aPod("q", "x", "a1")},
			pod:   aPod("p", "x", "", spreadOver(zoneKey, "x", 1, func(c *v1.TopologySpreadConstraint) { c.WhenUnsatisfiable = v1.ScheduleAnyway })),
		},
		"spread heeds a taint that is tolerated": {given: tainted(), pod: aPod("p", "x", "", spreadOver(zoneKey, "x", 1, heedTaints), func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists}}
		}), want: all(ReasonTopologySpread)},
		"spread leaves out a taint that is not": {given: tainted(), pod: aPod("p", "x", "", spreadOver(zoneKey, "x", 1, heedTaints))},
		"spread over a label no node has":       {pod: aPod("p", "x", "", spreadOver("rack", "x", 1)), want: all(ReasonTopologySpread)},
		"no claim":                              {pod: aPod("p", "x", "", mountingOne("c")), want: all(ReasonVolumeClaimMissing), about: "ns/c"},
		"a claim that waits": {
			given: []metav1.Object{aStorageClass("now", "disk.example.com", false), aClaim("c", "1Gi", ofClass("now"))},
			pod:   aPod("p", "x", "", mountingOne("c")), want: all(ReasonVolumeClaimBroken), about: "ns/c", detail: "is not bound to a volume yet",
		},
		"a claim of no class": {
			given: []metav1.Object{aClaim("c", "1Gi", ofClass("gone"))}, pod: aPod("p", "x", "", mountingOne("c")),
			want: all(ReasonVolumeClaimBroken), about: "ns/c", detail: "asks for storage class gone, which does not exist",
		},
		"a claim that is lost": {
			given: []metav1.Object{aClaim("c", "1Gi", boundTo("v"), func(c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimLost })},
			pod:   aPod("p", "x", "", mountingOne("c")), want: all(ReasonVolumeClaimBroken), about: "ns/c", detail: "has lost its volume v",
		},
		"a claim that goes": {
			given: []metav1.Object{wait, aClaim("c", "1Gi", func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} })},
			pod:   aPod("p", "x", "", mountingOne("c")), want: all(ReasonVolumeClaimBroken), about: "ns/c", detail: "is being deleted",
		},
		"a volume that is gone": {
			given: []metav1.Object{aClaim("c", "1Gi", boundTo("v"))}, pod: aPod("p", "x", "", mountingOne("c")),
			want: all(ReasonVolumeClaimBroken), about: "ns/c", detail: "is bound to volume v, which does not exist",
		},
		"a volume of one zone": {
			given: []metav1.Object{aClaim("c", "1Gi", boundTo("v")), aVolume("v", "1Gi", zoneKey, "a", heldBy("c"))},
			pod:   aPod("p", "x", "", mountingOne("c")), want: answer{"b1": ReasonVolumeNodeConflict, "b2": ReasonVolumeNodeConflict},
		},
		"a volume of one zone, by label": {
			given: []metav1.Object{
				aClaim("c", "1Gi", boundTo("v")),
				aVolume("v", "1Gi", "", "", heldBy("c"), func(p *v1.PersistentVolume) { p.Labels = map[string]string{zoneKey: "b"} }),
			},
			pod: aPod("p", "x", "", mountingOne("c")), want: answer{"a1": ReasonVolumeNodeConflict, "a2": ReasonVolumeNodeConflict},
		},
		"a volume can be made": {given: []metav1.Object{wait, aClaim("c", "1Gi")}, pod: aPod("p", "x", "", mountingOne("c"))},
		"a volume can be made in zone a": {
			given: []metav1.Object{aStorageClass("wait", "disk.example.com", true, "a"), aClaim("c", "1Gi")},
			pod:   aPod("p", "x", "", mountingOne("c")), want: answer{"b1": ReasonVolumeNone, "b2": ReasonVolumeNone},
		},
		"a volume can only be found": {
			given: []metav1.Object{aStorageClass("wait", "kubernetes.io/no-provisioner", true), aClaim("c", "1Gi"), aVolume("v", "1Gi", hostKey, "a2")},
			pod:   aPod("p", "x", "", mountingOne("c")), want: answer{"a1": ReasonVolumeNone, "b1": ReasonVolumeNone, "b2": ReasonVolumeNone},
		},
		"a volume for one pod, in use": {
			given: []metav1.Object{aClaim("c", "1Gi", boundTo("v"), exclusive), aVolume("v", "1Gi", "", "", heldBy("c")), aPod("q", "x", "b2", mountingOne("c"))},
			pod:   aPod("p", "x", "", mountingOne("c")), want: all(ReasonVolumeInUse),
		},
		"a node that can attach no more": {
			given: []metav1.Object{
				wait, aClaim("c", "1Gi", boundTo("v")), aVolume("v", "1Gi", "", "", heldBy("c")),
				aClaim("d", "1Gi"), aPod("q", "x", "a1", mountingOne("c")), csiNode("a1", 1), csiNode("a2", 1),
			},
			pod: aPod("p", "x", "", mountingOne("d")), want: answer{"a1": ReasonVolumeLimit},
		},
		"published capacity": {
			given: []metav1.Object{wait, aClaim("c", "2Gi"), csiDriver(&yes), capacity("one", "1Gi", "a"), capacity("two", "2Gi", "b")},
			pod:   aPod("p", "x", "", mountingOne("c")), options: Options{StorageCapacity: true},
			want: answer{"a1": ReasonVolumeNoSpace, "a2": ReasonVolumeNoSpace},
		},
		"published capacity is not looked at": {
			given: []metav1.Object{wait, aClaim("c", "2Gi"), csiDriver(&yes), capacity("one", "1Gi", "a")},
			pod:   aPod("p", "x", "", mountingOne("c")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlant(append(zones(), c.given...)...)
			p.add(c.pod)
			p.run(t, c.options, func(s *engine.Session, i *instance) {
				got := answer{}
				for on, v := range maps.All(verdicts(s, i)) {
					if v.Yes() {
						continue
					}
					got[on[len("p on "):]] = v.Reason
					if v.Object != c.about || v.Detail != c.detail {
						t.Errorf("%s: about %q, %q; want %q, %q", on, v.Object, v.Detail, c.about, c.detail)
					}
				}
				if c.want == nil {
					c.want = answer{}
				}
				if d := cmp.Diff(c.want, got); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			})
		})
	}
}

// tainted is a third zone behind a taint, empty, and one pod in each of the others.
func tainted() []metav1.Object {
	n := aNode("c1", "c")
	n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
	return []metav1.Object{n, aPod("q", "x", "a1"), aPod("r", "x", "b1")}
}

func heedTaints(c *v1.TopologySpreadConstraint) {
	honor := v1.NodeInclusionPolicyHonor
	c.NodeTaintsPolicy = &honor
}

func csiNode(name string, most int32) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
		Name: "disk.example.com", NodeID: name, Allocatable: &storagev1.VolumeNodeResources{Count: &most},
	}}}}
}

func csiDriver(publishes *bool) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disk.example.com"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: publishes}}
}

func capacity(name, size, zone string) *storagev1.CSIStorageCapacity {
	free := resource.MustParse(size)
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name}, StorageClassName: "wait", Capacity: &free,
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{zoneKey: zone}},
	}
}

// TestWants says which pods pay.
func TestWants(t *testing.T) {
	t.Parallel()
	preferred := func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term("x", zoneKey)}}}}
	}
	for name, c := range map[string]struct {
		with  func(*v1.Pod)
		given []metav1.Object
		want  bool
	}{
		"plain":                    {with: func(*v1.Pod) {}},
		"prefers":                  {with: preferred},
		"requires":                 {with: near(term("x", zoneKey)), want: true},
		"keeps away":               {with: apart(term("x", zoneKey)), want: true},
		"spreads":                  {with: spreadOver(zoneKey, "x", 1), want: true},
		"mounts":                   {with: mountingOne("c"), want: true},
		"somebody else keeps away": {with: func(*v1.Pod) {}, given: []metav1.Object{aPod("q", "y", "a1", apart(term("z", zoneKey)))}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlant(append(zones(), c.given...)...)
			p.add(aPod("p", "x", "", c.with))
			p.run(t, Options{}, func(s *engine.Session, i *instance) {
				if got := i.Wants(podNamed(s.Snap, "p").Class); got != c.want {
					t.Errorf("Wants is %t, want %t", got, c.want)
				}
				if i.seen != nil {
					t.Error("the upstream snapshot was opened, and nothing had been asked")
				}
			})
		})
	}
}
