package apply

import (
	"fmt"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/engine"
)

// How often pods are told that a node was chosen for them: so many a second, after a first burst. Whoever starts a few pods
// reads it of each; when thousands start at once, the binder's event of each must do.
const (
	newsRate  = 5
	newsBurst = 50
)

// News tells pods, in events, which node was chosen for them.
type News struct {
	pool  string
	event func(about client.Object, kind, reason, message string)
	pace  *rate.Limiter
}

// NewNews returns a teller for the shard called pool. event must not block.
func NewNews(pool string, event func(about client.Object, kind, reason, message string)) *News {
	return &News{pool: pool, event: event, pace: rate.NewLimiter(newsRate, newsBurst)}
}

// Scheduled tells the pods that a bundle binds. It does not block, is safe for concurrent use, and tells nobody when too many
// have been told lately.
func (n *News) Scheduled(b *engine.Bundle) {
	for i := range b.Intents {
		in := &b.Intents[i]
		if in.Verb != engine.Bind {
			continue
		}
		if !n.pace.Allow() {
			return
		}
		about := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: in.Namespace, Name: in.Pod, UID: types.UID(in.UID)}}
		n.event(about, v1.EventTypeNormal, keys.EventScheduled, fmt.Sprintf("node %s was chosen for the pod, in node pool %s", in.Node, n.pool))
	}
}
