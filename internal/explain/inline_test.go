package explain

import (
	"fmt"
	"slices"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// crowded draws a cluster that is full, in which many gangs of several queues wait, ours somewhere among them.
func crowded(seed int64) (*cluster.Snapshot, cluster.Key) {
	d := newDraw(seed)
	for name, quota := range map[string]int64{"leaf": int64(d.Intn(6)), "other": int64(d.Intn(6))} {
		d.store.Apply(cluster.QueueState{Name: name, UID: name, Parent: "dept", Priority: 100, Quota: []cluster.Quantity{
			{Name: "gpu", Value: quota * 1000}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited},
		}, Weight: []cluster.Quantity{{Name: "gpu", Value: 1000}}})
	}
	for i := range 3 {
		d.store.Apply(cluster.NodeState{Name: fmt.Sprintf("big%d", i), UID: "b", Labels: map[string]string{"zone": "a"}, Allocatable: append(request(64, 256, 8), cluster.Quantity{Name: "pods", Value: 110})})
		for k := range 8 {
			key := cluster.Key{Face: "kai", Namespace: "team", Name: fmt.Sprintf("runs%d-%d", i, k)}
			d.store.Apply(cluster.GangState{Key: key, UID: key.Name, Queue: pickOne(d, "leaf", "other"), Priority: int32(1 + d.Intn(3)), Preemptible: d.chance(70), Sets: cluster.FlatTree(1), LastStart: now.Add(-1e12)})
			d.store.Apply(cluster.PodState{UID: key.Name, Namespace: "team", Name: key.Name, Ours: true, Gang: key, Phase: cluster.Running, NodeName: fmt.Sprintf("big%d", i), Requests: request(1, 1, 1)})
		}
	}
	for i := range 5 + d.Intn(8) {
		key := cluster.Key{Face: "kai", Namespace: pickOne(d, "team", "rival"), Name: fmt.Sprintf("waits%02d", i)}
		pods := 1 + d.Intn(3)
		d.store.Apply(cluster.GangState{Key: key, UID: key.String(), Queue: pickOne(d, "leaf", "leaf", "other"), Priority: int32(d.Intn(3)), Preemptible: true, Created: cluster.UnixNano(int64(d.Intn(200))), Sets: cluster.FlatTree(int32(pods))})
		req := request(1+d.Intn(4), 1+d.Intn(4), pickOne(d, 0, 1, 1, 2, 4))
		for k := range pods {
			d.store.Apply(cluster.PodState{UID: fmt.Sprint(key, k), Namespace: key.Namespace, Name: fmt.Sprint(key.Name, "-", k), Ours: true, Gang: key, Requests: req})
		}
	}
	return d.store.Snapshot(now), d.target
}

// startsInLine asks a fresh engine in a fresh fork in which everybody waits.
func startsInLine(t *testing.T, snap *cluster.Snapshot, key cluster.Key, changes []*Change) bool {
	t.Helper()
	store := cluster.Fork(snap, cluster.Options{})
	at := snap.Now
	for _, c := range changes {
		if c != nil {
			at = c.Apply(store, at)
		}
	}
	e, err := newEngine()
	if err != nil {
		t.Fatal(err)
	}
	o := ask(t.Context(), e, store.Snapshot(at), key)
	return o.placed()
}

// For 400 gangs in crowded clusters: what is said to hold in line starts the gang while everybody else waits, and no part of it can go.
func TestInLineIsTrue(t *testing.T) {
	t.Parallel()
	const want = 400
	waiting, without, parts := 0, 0, 0
	kinds, words := map[Kind]int{}, map[Word]int{}
	for seed := int64(0); waiting < want; seed++ {
		if seed > 20*want {
			t.Fatalf("only %d of the first %d clusters have a gang that does not start", waiting, seed)
		}
		snap, key := crowded(seed)
		if startsInLine(t, snap, key, nil) {
			continue
		}
		r, err := Look(t.Context(), snap, newEngine)
		if err != nil {
			t.Fatal(err)
		}
		e, err := r.Gang(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if e.Word == "" || e.Word == Starting {
			continue
		}
		waiting++
		words[e.Word]++
		if err := r.Prove(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		proven := false
		for _, m := range e.Remedies {
			if m.First != placeable(t, snap, key, m.Changes) && m.First {
				t.Errorf("seed %d: were it next, it does not start:\n%s", seed, e.Text(100))
			}
			if !m.InLine {
				continue
			}
			proven = true
			if len(m.Changes) == 0 || !startsInLine(t, snap, key, m.Changes) {
				t.Errorf("seed %d: it does not start at its place:\n%s", seed, e.Text(100))
			}
			for i, c := range m.Changes {
				kinds[c.Kind]++
				if c.Text == "" {
					t.Errorf("seed %d: %s has no text", seed, c.Kind)
				}
				for _, part := range c.Parts() {
					less := slices.Clone(m.Changes)
					less[i] = part
					parts++
					if startsInLine(t, snap, key, less) {
						t.Errorf("seed %d: it starts without a part of %q:\n%s", seed, c.Text, e.Text(100))
					}
				}
			}
		}
		if !proven {
			without++
			if without < 12 {
				t.Logf("seed %d: nothing is proven in line:\n%s", seed, e.Text(100))
			}
		}
	}
	if without > want/20 {
		t.Errorf("for %d of %d gangs nothing was proven in line", without, want)
	}
	t.Logf("%d gangs (%v), %d parts left out in turn, %d without a remedy in line; changes %v", waiting, words, parts, without, kinds)
}
