package roles

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/see"
)

// TestAnswering: gangs that wait are told why, with what would change it and without a foreign name; one that runs is told nothing, and what it was told before is
// taken back; of a cluster at rest nothing is written; another reason is told after a minute and not before; a round that runs out of time goes on where it was.
func TestAnswering(t *testing.T) {
	t.Parallel()
	store, now := cluster.NewStore(cluster.Options{}), time.Unix(1_700_000_000, 0)
	gpus := func(n int64) []cluster.Quantity { return []cluster.Quantity{{Name: "gpu", Value: n * 1000}} }
	var names []string
	notes, starts := map[string]string{}, map[string]string{}
	var outlook *see.Outlook
	gang := func(namespace, name string, gpu int64, node string) {
		key := cluster.Key{Face: "kai", Namespace: namespace, Name: name}
		pod := cluster.PodState{UID: name, Namespace: namespace, Name: name, Ours: true, Gang: key, Requests: gpus(gpu), NodeName: node}
		if node != "" {
			pod.Phase = cluster.Running
		}
		store.Apply(cluster.GangState{Key: key, UID: name, Queue: "q", Sets: cluster.FlatTree(1), Preemptible: true}, pod)
		names = append(names, namespace+"/"+name)
	}
	store.Apply(cluster.NodeState{Name: "n1", Allocatable: append(gpus(8), cluster.Quantity{Name: "pods", Value: 110})}, cluster.QueueState{Name: "q", Quota: gpus(8), Limit: gpus(8)})
	gang("sesame", "sesame", 8, "n1")
	gang("ours", "train", 8, "")
	gang("ours", "wide", 16, "")
	notes["sesame"] = "hello"
	step := time.Duration(0) // that a look at the clock takes
	written := map[string]int{}
	a := &answering{
		registry: builtin.Registry(), now: func() time.Time { now = now.Add(step); return now },
		latest: func() (*cluster.Snapshot, engine.Profile) {
			return store.Snapshot(cluster.InstantOf(now)), profile.BuiltIn()
		},
		gangs: func(context.Context) (out []asked, _ error) {
			for _, n := range names {
				namespace, name, _ := strings.Cut(n, "/")
				out = append(out, asked{cluster.Key{Face: "kai", Namespace: namespace, Name: name}, name, notes[name]})
			}
			return append(out, asked{cluster.Key{Face: "kai", Namespace: "abroad", Name: "x"}, "x", ""}), nil
		},
		outlook: func() *see.Outlook { return outlook },
		set:     func(_ cluster.Key, uid, why, start string) { written[uid]++; notes[uid], starts[uid] = why, start },
		waits:   func(string) bool { return false },
	}
	round := func(want string) {
		t.Helper()
		clear(written)
		if err := a.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(written); got != want {
			t.Fatalf("written %s, want %s", got, want)
		}
	}
	round("map[sesame:1 train:1 wide:1]")
	if notes["sesame"] != "" {
		t.Errorf("one that runs says %s", notes["sesame"])
	}
	n, err := see.ReadBrief(notes["train"])
	if err != nil || n.Word != explain.Blocked || n.Reason == "" || len(n.Remedies) == 0 || strings.Contains(notes["train"], "sesame") {
		t.Errorf("%v: %s", err, notes["train"])
	}
	round("map[]")
	store.Apply(cluster.QueueState{Name: "q", Quota: gpus(8), Limit: gpus(64)})
	now = now.Add(time.Second)
	round("map[]") // too soon
	now = now.Add(time.Minute)
	round("map[train:1 wide:1]")
	// It is forecast: of train, of a gang of that name which is gone, and by whom it waits for, whose name is not told.
	train := see.GangOutlook{
		Gang: cluster.Key{Face: "kai", Namespace: "ours", Name: "train"}, UID: "train", Queue: "q", Word: see.Between,
		P10: now.Add(time.Hour), P50: now.Add(2 * time.Hour), P90: now.Add(3 * time.Hour), Decides: "sesame/sesame ends", Awaits: &cluster.Key{Face: "kai", Namespace: "sesame", Name: "sesame"}, Part: 0.9,
	}
	gone := train
	gone.Gang.Name, gone.UID = "wide", "another"
	outlook, now = &see.Outlook{APIVersion: see.APIVersion, Kind: "Outlook", At: now, Horizon: 24 * time.Hour, Gangs: []see.GangOutlook{train, gone}}, now.Add(time.Minute)
	round("map[train:1]")
	if n, err = see.ReadBrief(notes["train"]); err != nil || n.Starts == nil || n.Starts.Band != starts["train"] || starts["train"] != "23:14 to Nov 15 01:14" ||
		!strings.Contains(n.Starts.Text, "a gang of queue q ends") || strings.Contains(notes["train"], "sesame") {
		t.Errorf("%v: %q and %s", err, starts["train"], notes["train"])
	}
	later := *outlook // no news
	outlook = &later
	now = now.Add(time.Minute)
	round("map[]")
	outlook = nil
	round("map[train:1]")
	if n, err = see.ReadBrief(notes["train"]); err != nil || n.Starts != nil || starts["train"] != "" {
		t.Errorf("%v: %q and %s", err, starts["train"], notes["train"])
	}
	store.Apply(cluster.PodState{UID: "sesame", Namespace: "sesame", Name: "sesame", Ours: true, Phase: cluster.Succeeded, NodeName: "n1", Gang: cluster.Key{Face: "kai", Namespace: "sesame", Name: "sesame"}, Requests: gpus(8)})
	step, now = 600*time.Millisecond, now.Add(time.Hour)
	seen := map[string]int{}
	for range 6 {
		clear(written)
		if err := a.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		for uid, k := range written {
			seen[uid] += k
		}
	}
	if n, err = see.ReadBrief(notes["train"]); err != nil || n.Word != explain.Starting || seen["train"] != 1 {
		t.Errorf("%v: %s; written %v", err, notes["train"], seen)
	}
}

// TestForecasts: what is no forecast, of another version, or of another time is refused with what it must be; the latest one counts for half an hour.
func TestForecasts(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0).UTC()
	f := &forecasts{now: func() time.Time { return now }}
	text := func(version, kind string, at time.Time) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"at":%q,"gangs":[{"gang":{"namespace":"b","name":"x"}},{"gang":{"namespace":"a","name":"y"},"uid":"u"}]}`, version, kind, at.Format(time.RFC3339))
	}
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":         {"hello", "the forecast is none"},
		"another version": {text("see/v9", "Outlook", now), `is of version "see/v9"`},
		"another kind":    {text(see.APIVersion, "List", now), `kind "List"`},
		"old":             {text(see.APIVersion, "Outlook", now.Add(-outlookFor)), "at is 2023-11-14T21:43:20Z, 30m0s ago; it must be within the last 30m0s"},
		"ahead":           {text(see.APIVersion, "Outlook", now.Add(time.Hour)), "must be within"},
	} {
		if err := f.take([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) || f.Latest() != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := f.take([]byte(text(see.APIVersion, "Outlook", now))); err != nil {
		t.Fatal(err)
	}
	if o := f.Latest(); o == nil || o.Of(cluster.Key{Namespace: "a", Name: "y"}) == nil || o.Of(cluster.Key{Namespace: "b", Name: "x"}) == nil {
		t.Errorf("%+v", o)
	}
	now = now.Add(outlookFor)
	if f.Latest() != nil {
		t.Error("it is believed for ever")
	}
}
