package journal

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/see"
)

const (
	// maxQueued and maxQueuedBytes bound what waits for a keeper, the latter as text: a change holds its line as well as what that says, most of which is shared with who offers it.
	maxQueued, maxQueuedBytes = 1024, 64 << 20
	// maxReasons bounds the reasons in one entry, longestReason each of their texts.
	maxReasons, longestReason = 1000, 512
	// useEvery is the time between two entries of use, useAgain that after which one is written again that says the same.
	useEvery, useAgain = time.Minute, time.Hour
)

// Keeper has the journal keep those cycles of one scheduler that bind, evict, or change a reason. Make one with its first fields set.
//
// To know reasons it decides on cycles again, in a tenth of the time, and in a fortieth while cycles bind or evict: then the scheduler's processors are wanted, and the decisions
// say most of what changes. In between, cycles that bind or evict are kept as they come.
type Keeper struct {
	Shard   string
	Journal *Journal
	// Decide decides on a cycle again; what it returns has been looked at. An error is of that cycle, and told by the callee.
	Decide func(ctx context.Context, c *replay.Case, cluster string) (*see.Cycle, error)
	// Rest is how many times as long as it took to decide again passes before it is done again; 0 is 9, or 39 where the latest cycle binds or evicts, and less than 0 none.
	Rest int
	// Log is told of what cannot be kept, once for each cause.
	Log logr.Logger

	mu     sync.Mutex
	queue  []*replay.Entry
	bytes  int
	lost   uint64        // cycles that found no room
	news   chan struct{} // holds one, when something is queued
	begun  sync.Once
	missed uint64
	// working says that the keeper is at a line.
	working bool

	follower replay.Follower
	reasons  map[cluster.Key]string // of the last look
	use      []QueueUse
	usedAt   cluster.Instant
	wrote    time.Time // the use, last
	looked   uint64    // the cycle that was looked at last
	acts     bool      // the latest cycle binds or evicts
	rested   time.Time
	said     string
}

func (k *Keeper) init() { k.begun.Do(func() { k.news = make(chan struct{}, 1) }) }

// Offer takes an entry of the scheduler's stream in, without waiting: where there is no room, it and all that waits is left out, and a gap will say so; once there is room again, whole
// makes the keyframe to go on from. It is cycles.Client's Entry.
func (k *Keeper) Offer(e *replay.Entry, whole func() (*replay.Entry, error)) {
	k.init()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.lost == 0 && len(k.queue) < maxQueued && k.bytes+e.Size() <= maxQueuedBytes:
	case k.lost == 0:
		k.lost = uint64(len(k.queue)) + 1
		k.queue, k.bytes = nil, 0
		return
	case k.working: // there is no room before it has done what it is at
		k.lost++
		return
	default:
		all, err := whole()
		if err != nil {
			k.lost++
			return
		}
		k.missed, k.lost, e = k.missed+k.lost, 0, all
	}
	k.queue = append(k.queue, e)
	k.bytes += e.Size()
	select {
	case k.news <- struct{}{}:
	default:
	}
}

// next is the next entry that waits, and how many were left out before it.
func (k *Keeper) next() (e *replay.Entry, missed uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.working = len(k.queue) > 0; !k.working {
		return nil, 0
	}
	e, k.queue[0] = k.queue[0], nil // what it says is not held by those behind it
	k.queue = k.queue[1:]
	k.bytes -= e.Size()
	missed, k.missed = k.missed, 0
	return e, missed
}

// Run keeps what is offered until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	k.init()
	for ctx.Err() == nil {
		if e, missed := k.next(); e != nil {
			if missed > 0 {
				k.gap(Slow, missed)
			}
			k.add(ctx, e)
			continue
		}
		var look <-chan time.Time
		var timer *time.Timer
		if n, _ := k.follower.Cycle(); n != k.looked {
			timer = time.NewTimer(max(0, time.Until(k.rested)))
			look = timer.C
		}
		select {
		case <-ctx.Done():
		case <-k.news:
		case <-look:
			k.keep(ctx, false)
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// Take takes a line in, and keeps the cycle if it is to be kept. It is for who has all lines at hand.
func (k *Keeper) Take(ctx context.Context, line []byte) {
	e, err := replay.ReadEntry(line)
	if err != nil {
		k.unreadable(err)
		return
	}
	k.add(ctx, e)
}

// unreadable says that an entry cannot be read, or does not follow, and asks for a keyframe.
func (k *Keeper) unreadable(err error) {
	k.gap(Unreadable, 0)
	k.complain(err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost += uint64(len(k.queue))
	k.queue, k.bytes, k.lost = nil, 0, k.lost+1
}

// add takes an entry in, and keeps the cycle if it is to be kept.
func (k *Keeper) add(ctx context.Context, e *replay.Entry) {
	_, before := k.follower.Cycle()
	kind, err := k.follower.Add(e)
	if err != nil {
		k.unreadable(err)
		return
	}
	switch kind {
	case replay.Gap:
		_, missed := k.follower.Cycle()
		k.gap(Behind, missed-before)
	case replay.Keyframe, replay.Change:
		k.keep(ctx, true)
	case replay.Still: // that it is as it was is told too, now and then: who reads the last days finds it there
		if now := k.Journal.o.Now(); k.use != nil && now.Sub(k.wrote) >= useAgain {
			k.writeUse(now)
		}
	}
}

func (k *Keeper) gap(why Why, n uint64) {
	_, err := k.Journal.Append(&Entry{At: k.Journal.o.Now(), Shard: k.Shard, Kind: Gap, Missing: &Missing{Why: why, Count: n}}, nil)
	k.complain(err)
}

func (k *Keeper) complain(err error) {
	said := ""
	if err != nil {
		if said = err.Error(); said != k.said {
			k.Log.Error(err, "the journal lacks something", "shard", k.Shard)
		}
	}
	k.said = said
}

// keep looks at the latest cycle, if it is time to, and appends what is to be kept of it. A new one is told with its decisions, another one was told of already.
func (k *Keeper) keep(ctx context.Context, isNew bool) {
	number, _ := k.follower.Cycle()
	e := &Entry{At: k.follower.At().Time().UTC(), Shard: k.Shard, Kind: Cycle}
	if isNew {
		e.Decisions = k.decisions(k.follower.Plans())
		k.acts = len(e.Decisions) > 0
	}
	var c *see.Cycle
	if now := time.Now(); number != k.looked && !now.Before(k.rested) {
		k.looked = number
		var err error
		if now := k.follower.Case(); now != nil {
			c, err = k.Decide(ctx, now, k.follower.Cluster())
		}
		took, rest := time.Since(now), 9
		if k.acts {
			rest = 39
		}
		k.rested = now.Add(took + time.Duration(cmp.Or(max(k.Rest, -1), rest))*took)
		if k.Rest < 0 {
			k.rested = now
		}
		if err != nil {
			if ctx.Err() == nil {
				k.gap(Other, 0)
				k.complain(err)
			}
			c = nil
		}
	}
	if c != nil {
		run, err := c.Look(ctx) // which it has been
		if err == nil {
			e.Reasons = k.fresh(run.Trace(), run.Snapshot())
			k.used(run.Trace())
		}
	}
	if len(e.Decisions) == 0 && len(e.Reasons) == 0 {
		return
	}
	e.Names = k.names(c, e)
	_, err := k.Journal.Append(e, k.follower.Condensed)
	k.complain(err)
}

// decisions are the bundles that bind or evict, or promise room that others leave.
func (k *Keeper) decisions(plans []engine.Plan) (out []Decision) {
	acts := false
	for i := range plans {
		for j := range plans[i].Bundles {
			b := &plans[i].Bundles[j]
			d := Decision{Action: plans[i].Action, Bundle: b.ID, Gang: b.Gang, Queue: k.follower.QueueOf(b.Gang), Starts: b.Starts, Cause: b.Eviction}
			for n := range b.Intents {
				switch b.Intents[n].Verb {
				case engine.Bind:
					d.Binds++
				case engine.Evict:
					d.Evicts++
				case engine.Nominate:
					d.Promises++
				}
			}
			acts = acts || d.Binds+d.Evicts > 0
			out = append(out, d)
		}
	}
	if !acts { // promises are made again in each cycle
		return nil
	}
	return out
}

// fresh are the reasons that are other ones than at the last look.
func (k *Keeper) fresh(t *engine.Trace, snap *cluster.Snapshot) (out []Reason) {
	now := make(map[cluster.Key]string, len(t.Gangs))
	for i := range t.Gangs {
		g := &t.Gangs[i]
		if g.Diagnosis == nil {
			continue
		}
		r := Reason{Gang: g.Gang, Queue: k.follower.QueueOf(g.Gang), Reason: g.Diagnosis.Verdict.Reason.Key, Before: k.reasons[g.Gang]}
		if now[g.Gang] = r.Reason; r.Reason != r.Before && len(out) < maxReasons {
			r.Text = g.Diagnosis.Verdict.String()
			if len(r.Text) > longestReason {
				r.Text = strings.ToValidUTF8(r.Text[:longestReason], "") + "…"
			}
			out = append(out, r)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(k.reasons), compareKeys) {
		if _, waits := now[key]; !waits && snap.GangByKey(key) != nil && len(out) < maxReasons {
			out = append(out, Reason{Gang: key, Queue: k.follower.QueueOf(key), Before: k.reasons[key]})
		}
	}
	k.reasons = now
	return out
}

func compareKeys(a, b cluster.Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Face, b.Face))
}

// used appends what queues use and are owed, once a minute, if it is another than before.
func (k *Keeper) used(t *engine.Trace) {
	now := k.follower.At()
	if d := now.Sub(k.usedAt); !k.usedAt.IsZero() && d >= 0 && d < useEvery {
		return
	}
	var out []QueueUse
	for i := range t.Queues {
		q := &t.Queues[i]
		u := QueueUse{Queue: q.Name, Parent: q.Parent, Quota: q.Quota.At(cluster.GPU), FairShare: q.FairShare.At(cluster.GPU), Used: q.Allocated.At(cluster.GPU), Requested: q.Requested.At(cluster.GPU)}
		if u.FairShare != 0 || u.Used != 0 || u.Requested != 0 {
			out = append(out, u)
		}
	}
	if k.usedAt = now; k.use != nil && slices.Equal(out, k.use) {
		return
	}
	if k.use = append([]QueueUse{}, out...); !k.writeUse(now.Time()) {
		k.use = nil
	}
}

func (k *Keeper) writeUse(at time.Time) bool {
	_, err := k.Journal.Append(&Entry{At: at.UTC(), Shard: k.Shard, Kind: Use, Queues: k.use}, nil)
	k.complain(err)
	k.wrote = k.Journal.o.Now()
	return err == nil
}

// names are those that the texts of an entry have in them.
func (k *Keeper) names(c *see.Cycle, e *Entry) map[string]string {
	var texts []string
	for i := range e.Reasons {
		texts = append(texts, e.Reasons[i].Text)
	}
	for i := range e.Decisions {
		if cause := e.Decisions[i].Cause; cause != nil {
			for v := range cause.Victims {
				texts = append(texts, cause.Victims[v].Rule)
			}
		}
	}
	if !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, "/") }) {
		return nil
	}
	if c == nil {
		c = &see.Cycle{Case: k.follower.Case()}
	}
	return c.Scope(nil).Names(texts)
}
