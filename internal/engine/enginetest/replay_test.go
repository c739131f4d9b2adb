package enginetest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
)

// TestReplay is S7 through a file: whatever a Store has lived through, a snapshot that is written, read and decided on again
// gives the same plans, byte for byte, and the same reasons; and it is written as the same bytes again.
func TestReplay(t *testing.T) {
	t.Parallel()
	decided, assumed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		l, e := newLife(t), everything(t)
		if rapid.Bool().Draw(t, "usage") {
			u := map[string][]cluster.Quantity{}
			for _, q := range l.leaves {
				u[q] = []cluster.Quantity{{Name: "gpu", Value: rapid.SampledFrom([]int64{0, 1000, 300_000}).Draw(t, "used")}}
			}
			l.store.Apply(cluster.UsageState{Queues: u})
		}
		for range rapid.IntRange(0, 4).Draw(t, "rounds") {
			_, plans := l.decide(t, e)
			l.happen(t, plans)
		}
		if len(l.pods) > 0 && rapid.Bool().Draw(t, "postponed") {
			l.store.Postpone(l.pods[0], l.now.Add(5e9))
		}
		snap := l.store.Snapshot(l.now)
		snap.EachPod(func(p *cluster.Pod) {
			if p.Assumed() || p.Evicting() {
				assumed++
			}
		})
		c := &replay.Case{Version: "test", Profile: profile.BuiltIn(), Image: snap.Image(), Decided: true}
		e.Run(context.Background(), snap, func(p engine.Plan) { c.Plans = append(c.Plans, p) })
		decided += len(c.Plans)
		written := write(t, c)
		again, err := replay.Read(bytes.NewReader(written), replay.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		out, err := again.Run(context.Background(), builtin.Registry())
		if err != nil {
			t.Fatal(err)
		}
		if !out.Same {
			was, _ := json.MarshalIndent(c.Plans, "", " ")
			is, _ := json.MarshalIndent(out.Plans, "", " ")
			t.Fatalf("decided\n%s\nreplayed\n%s", was, is)
		}
		reloaded := again.Image.Store(cluster.Options{}).Snapshot(again.Image.Now)
		if was, is := said(t, e, snap), said(t, everything(t), reloaded); was != is {
			t.Fatalf("said\n%s\nreplayed\n%s", was, is)
		}
		for _, id := range snap.QueueOrder {
			q := snap.Queue(id)
			if r := reloaded.QueueByName(q.Name); !r.Usage.Equal(q.Usage) || !r.Allocated.Equal(q.Allocated) || !r.Requested.Equal(q.Requested) {
				t.Fatalf("queue %s: %+v, replayed %+v", q.Name, q, r)
			}
		}
		again.Image = reloaded.Image()
		if twice := write(t, again); !bytes.Equal(written, twice) {
			a, b := plain(t, written), plain(t, twice)
			t.Fatalf("written\n%s\nagain\n%s", a, b)
		}
	})
	t.Logf("%d plans, %d pods of which something was assumed", decided, assumed)
	if decided == 0 || assumed == 0 {
		t.Error("nothing was decided, or nothing assumed")
	}
}

func write(t *rapid.T, c *replay.Case) []byte {
	var b bytes.Buffer
	if err := replay.Write(&b, c); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// plain unpacks what was written.
func plain(t *rapid.T, packed []byte) []byte {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// replayed checks that a cycle of a scenario is decided the same when it has been through a file.
func replayed(snap *cluster.Snapshot, p engine.Profile, r engine.Registry, plans []engine.Plan) error {
	var b bytes.Buffer
	if err := replay.Write(&b, &replay.Case{Profile: p, Image: snap.Image(), Decided: true, Plans: plans}); err != nil {
		return err
	}
	c, err := replay.Read(&b, replay.DefaultLimits())
	if err != nil {
		return err
	}
	out, err := c.Run(context.Background(), r)
	if err == nil && !out.Same {
		err = fmt.Errorf("a replay decides otherwise: %+v, then %+v", plans, out.Plans)
	}
	return err
}
