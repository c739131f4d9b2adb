package feed

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
)

// BenchmarkInbox is what one event costs the informer's goroutine, a drain after every thousand.
func BenchmarkInbox(b *testing.B) {
	in := newInbox()
	var objects [1000]*v1.Pod
	var keys [1000]types.NamespacedName
	for i := range objects {
		objects[i] = pod(fmt.Sprint("p", i), fmt.Sprint("u", i), 1)
		keys[i] = types.NamespacedName{Namespace: "a", Name: objects[i].Name}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		in.put(dialect.Pods, keys[i%1000], objects[i%1000], false)
		if i%1000 == 999 {
			in.take()
		}
	}
}

// BenchmarkFirstDrain is a start: 5,000 nodes and 40,000 running pods with their BindRequests.
func BenchmarkFirstDrain(b *testing.B) {
	in := newInbox()
	fill := func() [dialect.Kinds]box {
		for i := range 5000 {
			n := node(fmt.Sprint("n", i))
			in.put(dialect.Nodes, types.NamespacedName{Name: n.Name}, n, true)
		}
		for i := range 40_000 {
			p := pod(fmt.Sprint("p", i), fmt.Sprint("u", i), 1)
			p.Spec.NodeName, p.Status.Phase = fmt.Sprint("n", i%5000), v1.PodRunning
			key := types.NamespacedName{Namespace: "a", Name: p.Name}
			in.put(dialect.Pods, key, p, true)
			in.put(dialect.BindRequests, key, bind(p, p.Spec.NodeName, 2), true)
		}
		boxes, _, _ := in.take()
		return boxes
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		boxes := fill()
		d, store := newTranslator(Options{}), cluster.NewStore(cluster.Options{})
		b.StartTimer()
		d.work(&boxes, nil, store)
	}
}
