package apply

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// Gates takes the scheduling gate that is its queue's off pods that are let in. Publish is called by the loop; the pool writes. Who is let in is named in each cycle until the pod
// shows it, so that nothing is kept: what a process that dies did not write, the next one does.
type Gates struct {
	kit  *write.Kit
	work *Queue[gated]
}

// gated is a pod that is let in.
type gated struct{ namespace, name, uid string }

func (g gated) pod() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: g.name, UID: types.UID(g.uid)}}
}

// NewGates returns a writer of gates, which pool runs.
func NewGates(pool *Pool, kit *write.Kit) *Gates {
	g := &Gates{kit: kit}
	g.work = NewQueue(pool, gateWork, Job[gated]{
		Tenant: func(p gated) string { return p.namespace }, About: func(p gated) any { return p.pod() }, Try: g.serve,
	})
	return g
}

// Publish takes in who is let in.
func (g *Gates) Publish(lifted []recorder.Lift) {
	for _, l := range lifted {
		g.work.Put(0, gated{l.Namespace, l.Pod, l.UID})
	}
}

// serve takes the gate off one pod, if it is that pod still; a pod without the gate stays as it is.
func (g *Gates) serve(ctx context.Context, p gated) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.uid},
		"spec":     map[string]any{"schedulingGates": []any{map[string]any{"$patch": "delete", "name": keys.QueueAllocationGate}}},
	})
	if err != nil {
		return fmt.Errorf("encode the gate of pod %s/%s: %w", p.namespace, p.name, err)
	}
	_, err = g.kit.Strategic(ctx, p.pod(), body)
	return err
}
