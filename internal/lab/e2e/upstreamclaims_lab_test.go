//go:build lab

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestUpstreamsClaims: a claim that Kubernetes makes for a PodGroup is used by all four of its pods, on the node of its devices; of three such groups two have room, and the third says what
// it lacks, and starts when one of them has gone.
func TestUpstreamsClaims(t *testing.T) {
	w := newFixture(t, 1, lab.Options{
		FeatureGates:  "GenericWorkload=true,DRAWorkloadResourceClaims=true",
		APIServerArgs: []string{"--runtime-config=scheduling.k8s.io/v1beta1=true"},
	})
	pool := lab.Pool{Name: "d", Count: 2, Devices: []lab.Devices{{Driver: claimDriver, Class: claimClass, Count: 1, Attributes: map[string]string{"model": "GB200"}}}}
	if err := w.lab.AddNodes(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	muster := newProcess(t, "all", w.lab.Kubeconfig())
	muster.start()
	muster.awaitReady(t)

	const ns = "shared"
	w.namespace(t, ns)
	w.create(t, claimTemplate(ns))
	template := "single"
	group := func(name string) {
		w.create(t, &schedulingv1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{keys.QueueLabel: "team"}},
			Spec: schedulingv1beta1.PodGroupSpec{
				SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 4}},
				ResourceClaims:   []schedulingv1beta1.PodGroupResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}},
			},
		})
		for i := range 4 {
			p := claimants(ns, 1).Spec.Template
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
			if p.Labels == nil {
				p.Labels = map[string]string{}
			}
			p.Labels["group"] = name
			w.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name + "-" + strconv.Itoa(i), Labels: p.Labels}, Spec: p.Spec})
		}
	}
	of := func(name string) (nodes map[string]bool, running int) {
		nodes = map[string]bool{}
		for _, p := range w.pods(ns) {
			if p.Labels["group"] == name && p.Status.Phase == corev1.PodRunning {
				nodes[p.Spec.NodeName] = true
				running++
			}
		}
		return nodes, running
	}
	runs := func(name string) func() string {
		return func() string {
			if nodes, n := of(name); n != 4 || len(nodes) != 1 {
				return fmt.Sprintf("of group %s %d of 4 pods run, on %d nodes", name, n, len(nodes))
			}
			return ""
		}
	}
	for _, name := range []string{"first", "second"} {
		group(name)
		w.must(t, upstreamLimit, runs(name))
	}
	group("third")
	w.must(t, upstreamLimit, func() string {
		if reason := w.why(ns); !strings.Contains(reason, "insufficient free devices for its claims") {
			return "nobody says that devices are lacking, but: " + reason
		}
		return ""
	})
	if _, n := of("third"); n != 0 {
		t.Fatalf("%d pods of the third group run without a device", n)
	}
	allocated := 0
	for _, c := range list(w, &resourcev1.ResourceClaimList{}, client.InNamespace(ns)).Items {
		if c.Status.Allocation == nil {
			continue
		}
		allocated++
		if o := metav1.GetControllerOf(&c); o == nil || o.Kind != "PodGroup" || len(c.Status.ReservedFor) != 4 {
			t.Errorf("claim %s of %v is reserved for %v; four pods of one group use it", c.Name, o, c.Status.ReservedFor)
		}
	}
	if allocated != 2 {
		t.Errorf("%d claims have devices, of two that the groups have", allocated)
	}
	if err := w.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(ns), client.MatchingLabels{"group": "first"}); err != nil {
		t.Fatal(err)
	}
	w.must(t, upstreamLimit, runs("third"))
}
