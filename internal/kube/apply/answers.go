package apply

import (
	"context"
	"sync"

	"golang.org/x/time/rate"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// answerRate is how many answers are written a second in all.
const answerRate = 5

// Answers writes into gangs' objects why they wait and when they start, as annotations that others word. Set may be called by anyone; the pool writes.
type Answers struct {
	kit         *write.Kit
	why, starts string
	work        *Queue[object] // of gangs

	mu    sync.Mutex
	gangs map[string]told // by gang UID; to be written
}

// told is what a gang is to be told; "" takes it away.
type told struct {
	key         cluster.Key
	why, starts string
}

// NewAnswers returns a writer of two annotations, which pool runs.
func NewAnswers(pool *Pool, kit *write.Kit, why, starts string) *Answers {
	a := &Answers{kit: kit, why: why, starts: starts, gangs: map[string]told{}}
	limit := rate.NewLimiter(answerRate, 1)
	a.work = NewQueue(pool, answerWork, Job[object]{
		Tenant: object.tenant, About: a.about, Try: a.serve,
		Pace: func(ctx context.Context, _ object) error { return limit.Wait(ctx) },
	})
	return a
}

// Set asks that the gang of this key and UID carry the texts; "" for none. The last word counts.
func (a *Answers) Set(key cluster.Key, uid, why, starts string) {
	if key.Remnant() { // there is no object that says it
		return
	}
	a.mu.Lock()
	a.gangs[uid] = told{key, why, starts}
	a.mu.Unlock()
	a.work.Put(0, object{key.Namespace, uid})
}

// Waits says whether something is still to be written of a gang.
func (a *Answers) Waits(uid string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, waits := a.gangs[uid]
	return waits
}

// about is the PodGroup of an item; without a name once nothing is to be written of it.
func (a *Answers) about(gang object) any {
	a.mu.Lock()
	defer a.mu.Unlock()
	return kai.PodGroup(a.gangs[gang.uid].key, gang.uid)
}

func (a *Answers) serve(ctx context.Context, gang object) error {
	a.mu.Lock()
	g, ok := a.gangs[gang.uid]
	a.mu.Unlock()
	if !ok {
		return nil
	}
	notes := map[string]any{a.why: nil, a.starts: nil} // null takes it away
	if g.why != "" {
		notes[a.why] = g.why
	}
	if g.starts != "" {
		notes[a.starts] = g.starts
	}
	body := write.Body(map[string]any{"metadata": map[string]any{"uid": gang.uid, "annotations": notes}})
	if _, err := a.kit.Merge(ctx, kai.PodGroup(g.key, gang.uid), body); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gangs[gang.uid] == g { // nothing else was said since
		delete(a.gangs, gang.uid)
	}
	return nil
}
