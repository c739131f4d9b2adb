package apply

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/engine"
)

// TestEvents: a few pods are told, a flood of them is not.
func TestEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		pool := NewPool(nil)
		n := NewEvents(pool, "blue", 0, func(about client.Object, kind, reason, message string) {
			told = append(told, about.GetNamespace()+"/"+about.GetName()+" "+string(about.GetUID())+" "+kind+" "+reason+": "+message)
		})
		begin(t, pool)
		n.Scheduled(&engine.Bundle{Intents: []engine.Intent{
			{Verb: engine.Evict, Namespace: "a", Pod: "v", UID: "u-v", Node: "n1"},
			{Verb: engine.Bind, Namespace: "a", Pod: "p", UID: "u-p", Node: "n1"},
			{Verb: engine.Nominate, Namespace: "a", Pod: "q", UID: "u-q", Node: "n1"},
		}})
		if d := cmp.Diff([]string{"a/p u-p Normal Scheduled: node n1 was chosen for the pod, in node pool blue"}, told); d != "" {
			t.Error(d)
		}
		flood := &engine.Bundle{Intents: make([]engine.Intent, 1000)}
		for i := range flood.Intents {
			flood.Intents[i].Verb = engine.Bind
		}
		n.Scheduled(flood)
		if len(told) != chosenBurst {
			t.Errorf("%d told of a flood", len(told))
		}
		<-time.After(10 * time.Second)
		n.Scheduled(flood)
		if len(told) != 2*chosenBurst {
			t.Errorf("%d told ten seconds later", len(told))
		}
	})
}

// TestGangEvent: a gang is told in one event of its PodGroup, of whichever kind that is, where its first pods are, and how many there are.
func TestGangEvent(t *testing.T) {
	t.Parallel()
	var told []string
	n := NewEvents(NewPool(nil), "blue", 0, func(about client.Object, kind, reason, message string) {
		told = append(told, fmt.Sprintf("%T %s/%s %s %s: %s", about, about.GetNamespace(), about.GetName(), about.GetUID(), reason, message))
	})
	b := bundle("b1", "p", "q")
	n.BoundGang(&b)
	b.Gang.Face = volcano.Face
	for range toldPods {
		b.Intents = append(b.Intents, b.Intents[0])
	}
	b.Intents = append(b.Intents, engine.Intent{Verb: engine.Nominate})
	n.BoundGang(&b)
	if d := cmp.Diff([]string{
		"*v2alpha2.PodGroup a/g g Scheduled: 2 pods were bound, in node pool blue: p to n1, q to n1",
		"*v1beta1.PodGroup a/g g Scheduled: 10 pods were bound, in node pool blue: p to n1, q to n1, p to n1, p to n1, p to n1, p to n1, p to n1, p to n1, and 2 more",
	}, told); d != "" {
		t.Error(d)
	}
}
