package feed

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

func zonesOf(name, policy string) *topologyv1alpha2.NodeResourceTopology {
	four := resource.MustParse("4")
	return &topologyv1alpha2.NodeResourceTopology{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Attributes: topologyv1alpha2.AttributeList{{Name: "topologyManagerPolicy", Value: policy}},
		Zones: topologyv1alpha2.ZoneList{{Name: "node-0", Type: "Node", Resources: topologyv1alpha2.ResourceInfoList{{Name: "cpu", Capacity: four, Allocatable: four, Available: four}}}},
	}
}

// TestZones: what nodes say of their zones, and what is on record for pods, reaches the store.
func TestZones(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{Zones: true})
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "p", Annotations: map[string]string{
		keys.NUMAObservedAnnotation: `[{"zone":"node-0","amount":{"cpu":"2"}}]`,
	}}}
	two := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1")}
	p.Spec = v1.PodSpec{SchedulerName: kai.DefaultSchedulerName, NodeName: "n", Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: two, Limits: two}}}}
	p.Status.Phase = v1.PodRunning
	s.say(zonesOf("n", "restricted"), p)
	s.drain()
	snap := s.store.Snapshot(cluster.UnixNano(1))
	z, _ := snap.Object(cluster.NodeResourceTopologies, "n").(*cluster.NodeZones)
	if z == nil || z.Policy != cluster.ZonesRestricted || len(z.Zones) != 1 {
		t.Errorf("zones %+v", z)
	}
	snap.EachPod(func(p *cluster.Pod) {
		if d := cmp.Diff([]cluster.ZoneShare{{Zone: "node-0", Amounts: []cluster.Quantity{{Name: "cpu", Value: 2000}}}}, p.Zones); d != "" || len(p.Class.Align) != 1 {
			t.Errorf("%s, needs %v", d, p.Class.Align)
		}
	})
	s.say(zonesOf("n", "strict"))
	s.drain()
	if got := s.feed.Problems()["NodeResourceTopology n"]; got == "" {
		t.Error("a policy that is not known is no problem")
	}
	s.end(zonesOf("n", "strict"))
	s.drain()
	if s.store.Snapshot(cluster.UnixNano(2)).Object(cluster.NodeResourceTopologies, "n") != nil || len(s.feed.Problems()) != 0 {
		t.Error("zones outlive their object")
	}
}

// laterKind is a source whose cluster does not know NodeResourceTopologies until told.
type laterKind struct {
	known   atomic.Bool
	watched atomic.Int32
}

func (s *laterKind) Watch(_ context.Context, example client.Object, _ toolscache.ResourceEventHandler) (<-chan struct{}, error) {
	if _, zones := example.(*topologyv1alpha2.NodeResourceTopology); zones {
		if !s.known.Load() {
			return nil, &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "topology.node.k8s.io", Kind: "NodeResourceTopology"}}
		}
		s.watched.Add(1)
	}
	synced := make(chan struct{})
	close(synced)
	return synced, nil
}

// TestAbsentKind: a cluster that knows no NodeResourceTopologies is no reason not to start, and they are watched once it
// does.
func TestAbsentKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &laterKind{}
		f := New(source, Options{Zones: true})
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		<-f.Changed()
		if !f.Synced() || source.watched.Load() != 0 {
			t.Errorf("synced %v, watched %d", f.Synced(), source.watched.Load())
		}
		source.known.Store(true)
		after, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		<-after.Done() // fake time
		synctest.Wait()
		if got := source.watched.Load(); got != 1 {
			t.Errorf("watched %d times, want once", got)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
