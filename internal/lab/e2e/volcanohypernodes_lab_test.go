//go:build lab

package e2e

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	vctopology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
)

// TestVolcanoHyperNodes: Jobs of Volcano's with a hard network topology run whole in one HyperNode each. One that no HyperNode has room for waits and says so, although the cluster
// has, and starts when a HyperNode comes to have more nodes.
func TestVolcanoHyperNodes(t *testing.T) {
	const ns = "network"
	hyper := func(name string, nodes ...string) *vctopology.HyperNode {
		h := &vctopology.HyperNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: vctopology.HyperNodeSpec{Tier: 1}}
		for _, n := range nodes {
			h.Spec.Members = append(h.Spec.Members, vctopology.MemberSpec{Type: vctopology.MemberTypeNode, Selector: vctopology.MemberSelector{ExactMatch: &vctopology.ExactMatch{Name: n}}})
		}
		return h
	}
	a := hyper("a", "n-0", "n-2")
	b := newFacesFixture(t, func(b *volcanoFixture) []string {
		b.create(t, a)
		b.create(t, hyper("b", "n-1", "n-3"))
		return nil
	})
	within := func(name string, size int32) {
		t.Helper()
		j := gpuJob(ns, name, size, "")
		j.Spec.NetworkTopology = &vcbatch.NetworkTopologySpec{Mode: vcscheduling.HardNetworkTopologyMode, HighestTierAllowed: ptr.To(1)}
		b.create(t, j)
	}
	nodes := func(name string) (out []string) {
		for i := range b.pods(ns) {
			if p := &b.pods(ns)[i]; p.Labels["volcano.sh/job-name"] == name && !slices.Contains(out, p.Spec.NodeName) {
				out = append(out, p.Spec.NodeName)
			}
		}
		slices.Sort(out)
		return out
	}
	b.namespace(t, ns)
	within("first", 12)
	b.must(t, guard, b.phase(ns, "first", vcbatch.Running, 12, 0))
	within("second", 12)
	b.must(t, guard, b.phase(ns, "second", vcbatch.Running, 12, 0))
	both := []string{fmt.Sprint(nodes("first")), fmt.Sprint(nodes("second"))}
	slices.Sort(both)
	if !slices.Equal(both, []string{"[n-0 n-2]", "[n-1 n-3]"}) {
		t.Errorf("the Jobs run on %v", both)
	}
	within("third", 6)
	b.must(t, guard, b.groupWaits(ns, "third", vcscheduling.PodGroupInqueue, vcscheduling.NotEnoughResourcesReason, "TopologyNoRoom"))

	more := &vctopology.HyperNode{}
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(a), more); err != nil {
		t.Fatal(err)
	}
	was := more.DeepCopy()
	more.Spec.Members = hyper("a", "n-0", "n-1", "n-2", "n-3").Spec.Members
	if err := b.client.Patch(t.Context(), more, client.MergeFrom(was)); err != nil {
		t.Fatal(err)
	}
	b.must(t, guard, b.phase(ns, "third", vcbatch.Running, 6, 0))
}
