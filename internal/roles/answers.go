package roles

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/apply"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/see"
)

// How much of the time of the scheduler's process goes into explaining: a round ends after answerFor, and a rest of answerRest times as long as it took, of
// answerGap at least, follows.
const (
	answerFor  = time.Second
	answerRest = 9
	answerGap  = 2 * time.Second
)

// asked is a gang that may be told why it waits, and what it is told already.
type asked struct {
	key       cluster.Key
	uid, have string
}

// answering has gangs' own objects say why they wait, and what would change it, for those who may read no more (keys.WhyAnnotation). It looks at the
// latest cycle, beside the scheduler's loop, which waits for none of it.
type answering struct {
	registry engine.Registry
	guard    *aside.Guard
	latest   func() (*cluster.Snapshot, engine.Profile) // of the latest cycle, and by what it was decided; nil before the first
	gangs    func(context.Context) ([]asked, error)
	set      func(key cluster.Key, uid, text string)
	waits    func(uid string) bool // something is still to be written of it
	now      func() time.Time

	seen  uint64      // generation of the cycle of the last round
	after cluster.Key // the last gang that a round came to; the next round begins behind it
	whole bool        // the last round came to all
}

// newAnswering returns what answers, and writes by the pool.
func (p *process) newAnswering(a *apply.Answers, guard *aside.Guard) *answering {
	return &answering{
		registry: p.actions(), guard: guard, latest: p.recorder.LatestBy, set: a.Set, waits: a.Waits, now: time.Now,
		gangs: func(ctx context.Context) ([]asked, error) {
			var list v2alpha2.PodGroupList
			if err := p.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
				return nil, fmt.Errorf("list PodGroups: %w", err)
			}
			out := make([]asked, 0, len(list.Items))
			for i := range list.Items {
				g := &list.Items[i]
				out = append(out, asked{kai.GangKey(g.Namespace, g.Name), string(g.UID), g.Annotations[keys.WhyAnnotation]})
			}
			return out, nil
		},
	}
}

// Run answers until ctx ends.
func (a *answering) Run(ctx context.Context) error {
	for {
		began := time.Now()
		if err := a.guard.Catch("why gangs wait", "a cycle", func() error { return a.round(ctx) }); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "gangs' objects are not told why they wait")
		}
		rest := time.NewTimer(max(answerGap, answerRest*time.Since(began)))
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
			return nil
		}
	}
}

// round looks at as many gangs of the latest cycle as there is time for. A cycle that all have been told of is not looked at again.
func (a *answering) round(ctx context.Context) error {
	snap, prof := a.latest()
	if snap == nil || a.whole && snap.Generation == a.seen {
		return nil
	}
	gangs, err := a.gangs(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(gangs, func(x, y asked) int { return order(x.key, y.key) })
	from, _ := slices.BinarySearchFunc(gangs, a.after, func(g asked, k cluster.Key) int {
		if order(g.key, k) <= 0 {
			return -1
		}
		return 1
	})
	cycle, end := see.NewCycle(snap, prof, a.registry), a.now().Add(answerFor)
	run, err := cycle.Look(ctx)
	if err != nil {
		return err
	}
	uids := map[cluster.Key]string{}
	run.Snapshot().EachGang(func(g *cluster.Gang) { uids[g.Key] = g.UID })
	a.seen, a.whole = snap.Generation, true
	for i := range gangs {
		g := &gangs[(from+i)%len(gangs)]
		if uids[g.key] != g.uid || a.waits(g.uid) { // of another shard, or newer than the cycle
			continue
		}
		if a.now().After(end) {
			a.whole = false
			return nil
		}
		a.after = g.key
		e, err := see.Explain(ctx, cycle, g.key)
		if err != nil {
			return err
		}
		note, err := cycle.BriefOf(e)
		if err != nil {
			return err
		}
		now := a.now()
		if !note.News(g.have, now) {
			a.whole = a.whole && (note == nil || !note.News(g.have, now.Add(see.BriefEvery))) // too soon is not done
			continue
		}
		text := ""
		if note != nil {
			note.At = now.UTC().Truncate(time.Second)
			text = note.Text()
		}
		a.set(g.key, g.uid, text)
	}
	return nil
}

func order(a, b cluster.Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Face, b.Face))
}
