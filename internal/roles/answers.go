package roles

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
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
	outlook  func() *see.Outlook // the latest one that is to be believed; nil for none
	set      func(key cluster.Key, uid, why, starts string)
	waits    func(uid string) bool // something is still to be written of it
	now      func() time.Time

	seen  uint64       // generation of the cycle of the last round
	told  *see.Outlook // of the last round
	after cluster.Key  // the last gang that a round came to; the next round begins behind it
	whole bool         // the last round came to all
}

// outlookFor is how long a forecast is believed after its cycle: three of the times that usually lie between two.
const outlookFor = 30 * time.Minute

// forecasts has what was last forecast of this scheduler's gangs, by whoever may say so. Nothing is decided by it.
type forecasts struct {
	now    func() time.Time
	latest atomic.Pointer[see.Outlook]
}

// take reads a forecast. What is none, or of another time, is an error that says what it must be.
func (f *forecasts) take(text []byte) error {
	o, err := see.ReadOutlook(text)
	if err != nil {
		return err
	}
	if age := f.now().Sub(o.At); age < -time.Minute || age >= outlookFor {
		return &see.Refusal{Field: "at", Rule: fmt.Sprintf("is %s, %s ago; it must be within the last %s", o.At.UTC().Format(time.RFC3339), age.Round(time.Second), outlookFor)}
	}
	f.latest.Store(o)
	return nil
}

// Latest is the latest forecast, nil for none that is still to be believed.
func (f *forecasts) Latest() *see.Outlook {
	o := f.latest.Load()
	if o == nil || f.now().Sub(o.At) >= outlookFor {
		return nil
	}
	return o
}

// newAnswering returns what answers, and writes by the pool.
func (p *process) newAnswering(a *apply.Answers, guard *aside.Guard) *answering {
	return &answering{
		registry: p.actions(), guard: guard, latest: p.recorder.LatestBy, outlook: p.forecasts.Latest, set: a.Set, waits: a.Waits, now: time.Now,
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
	outlook := a.outlook()
	if snap == nil || a.whole && snap.Generation == a.seen && outlook == a.told {
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
	own := "" // the namespace of the gang whose turn it is: no name of another one is told
	scope := cycle.Scope(func(namespace string) bool { return namespace == own })
	a.seen, a.told, a.whole = snap.Generation, outlook, true
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
		own = g.key.Namespace
		if outlook != nil {
			if start := outlook.Expect(g.key, scope); start != nil && start.UID == g.uid {
				e.Start = start
			}
		}
		note, err := see.BriefOf(e, scope)
		if err != nil {
			return err
		}
		now := a.now()
		if !note.News(g.have, now) {
			a.whole = a.whole && (note == nil || !note.News(g.have, now.Add(see.BriefEvery))) // too soon is not done
			continue
		}
		why, starts := "", ""
		if note != nil {
			note.At = now.UTC().Truncate(time.Second)
			why = note.Text()
			if note.Starts != nil {
				starts = note.Starts.Band
			}
		}
		a.set(g.key, g.uid, why, starts)
	}
	return nil
}

func order(a, b cluster.Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Face, b.Face))
}
