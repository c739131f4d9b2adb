package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// What is told after the fact must not keep the API server from what is done: at most so many writes of a kind a second,
// after a first burst. A thousand gangs that start at once are told of within half a minute.
const (
	tellRate  = 40
	tellBurst = 40
)

// annotationSettle is how long a gang's annotations are gathered before they are written together.
const annotationSettle = 200 * time.Millisecond

func pace() func(context.Context, object) error {
	l := rate.NewLimiter(tellRate, tellBurst)
	return func(ctx context.Context, _ object) error { return l.Wait(ctx) }
}

// Annotations writes to gangs what became of them: when, as annotations with RFC 3339 times in UTC, and that evictions for them are
// frozen, as a condition. Set and Frozen are called by the loop; the pool writes.
type Annotations struct {
	kit     *write.Kit
	grouped func(cluster.Key) bool
	work    *Queue[object] // of gangs

	mu     sync.Mutex
	gangs  map[string]*gangAnnotations // by gang UID; to be written
	frozen map[string]freeze           // by gang UID
}

// freeze is until when a gang says that evictions for it are frozen.
type freeze struct {
	key   cluster.Key
	until time.Time
}

type gangAnnotations struct {
	key   cluster.Key
	notes map[string]any // annotation to text; nil takes it away
	// frozen, if set, is the text of the condition; "" takes it back.
	frozen *string
}

// NewAnnotations returns a writer of annotations, which pool runs. grouped says of a gang whether it has a PodGroup: a pod that is a gang by
// itself has none that could be told. Nil: all have.
func NewAnnotations(pool *Pool, kit *write.Kit, grouped func(cluster.Key) bool) *Annotations {
	if grouped == nil {
		grouped = func(cluster.Key) bool { return true }
	}
	m := &Annotations{kit: kit, grouped: grouped, gangs: map[string]*gangAnnotations{}, frozen: map[string]freeze{}}
	m.work = NewQueue(pool, annotationWork, Job[object]{Tenant: object.tenant, About: m.about, Pace: pace(), Try: m.serve})
	return m
}

// Set asks that the gang of this key and UID carry the time as an annotation, or not carry it when the time is 0 (Unix
// nanoseconds). The last word counts.
func (m *Annotations) Set(key cluster.Key, uid, annotation string, at cluster.Instant) {
	var text any
	if !at.IsZero() {
		text = at.Time().UTC().Format(time.RFC3339)
	}
	m.change(key, uid, func(g *gangAnnotations) { g.notes[annotation] = text })
}

// Frozen asks that the gang say, for so long, that certain pods are not evicted for it. Should this process end before, the
// condition stays; its text says until when it holds.
func (m *Annotations) Frozen(key cluster.Key, uid, text string, lasts time.Duration) {
	if !m.change(key, uid, func(g *gangAnnotations) { g.frozen = &text }) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frozen[uid] = freeze{key, time.Now().Add(lasts)}
	// When it lapses is queued once this has been written: the queue keeps the earlier of two times.
}

// change has a gang told more, unless there is no object that could say it.
func (m *Annotations) change(key cluster.Key, uid string, change func(*gangAnnotations)) bool {
	if key.Face != kai.Face || !m.grouped(key) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.gangs[uid]
	if g == nil {
		g = &gangAnnotations{key: key, notes: map[string]any{}}
		m.gangs[uid] = g
	}
	change(g)
	m.work.Put(annotationSettle, object{key.Namespace, uid})
	return true
}

func (m *Annotations) serve(ctx context.Context, gang object) error {
	uid := gang.uid
	m.mu.Lock()
	g := m.gangs[uid]
	delete(m.gangs, uid)
	if f, ok := m.frozen[uid]; ok {
		if left := time.Until(f.until); left > 0 {
			m.work.Put(left, gang)
		} else {
			delete(m.frozen, uid)
			if g == nil {
				g = &gangAnnotations{key: f.key}
			}
			g.frozen = new(string)
		}
	}
	m.mu.Unlock()
	if g == nil {
		return nil
	}
	err := m.write(ctx, uid, g)
	if err == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if later := m.gangs[uid]; later != nil { // said since, and so the last word
		if g.notes == nil {
			g.notes = map[string]any{}
		}
		maps.Copy(g.notes, later.notes)
		g.frozen = cmp.Or(later.frozen, g.frozen)
	}
	m.gangs[uid] = g
	return err
}

// about is the PodGroup of an item; without a name once nothing is to be written of it.
func (m *Annotations) about(gang object) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.gangs[gang.uid]; g != nil {
		return kai.PodGroup(g.key, gang.uid)
	}
	return kai.PodGroup(cluster.Key{}, gang.uid)
}

func (m *Annotations) write(ctx context.Context, uid string, g *gangAnnotations) error {
	pg := kai.PodGroup(g.key, uid)
	if len(g.notes) > 0 {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": g.notes}})
		if err != nil {
			return fmt.Errorf("encode the annotations of PodGroup %s: %w", g.key, err)
		}
		if result, err := m.kit.Merge(ctx, pg, body); err != nil || result != write.Written {
			return err
		}
	}
	if g.frozen == nil {
		return nil
	}
	conditions := []v2alpha2.PodGroupCondition{} // the list is ours
	if *g.frozen != "" {
		conditions = append(conditions, v2alpha2.PodGroupCondition{
			Type: keys.FrozenCondition, Status: v1.ConditionTrue, Reason: keys.ReasonRepeated, Message: *g.frozen, LastTransitionTime: metav1.Now(),
		})
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": map[string]any{"conditions": conditions}})
	if err != nil {
		return fmt.Errorf("encode the conditions of PodGroup %s: %w", g.key, err)
	}
	_, err = m.kit.MergeStatus(ctx, pg, body)
	return err
}
