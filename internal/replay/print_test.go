package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/profile"
)

// many is a case of so many gangs, of a pod each.
func many(n int) *Case {
	c := &Case{Version: "v", Profile: profile.BuiltIn(), Decided: true, Plans: []engine.Plan{{Action: "allocate"}}}
	im := &c.Image
	im.Now, im.Memory = cluster.UnixNano(5), cluster.Memory{Generation: 7, Postponed: map[string]cluster.Instant{"p": cluster.UnixNano(9)}}
	dims := cluster.BaseDims()
	for i := range dims.Len() {
		im.Dims = append(im.Dims, dims.Name(i))
	}
	im.Events = append(im.Events,
		cluster.NodeState{Name: "n<&>", Allocatable: []cluster.Quantity{{Name: "gpu", Value: 64000}, {Name: "pods", Value: 110}}}, cluster.QueueState{Name: "q", Quota: []cluster.Quantity{{Name: "gpu", Value: -1}}},
		cluster.UsageState{Queues: map[string][]cluster.Quantity{"q": {{Name: "gpu", Value: 1}}}})
	for i := range n {
		im.Events = append(im.Events, cluster.GangState{Key: key(i), UID: fmt.Sprint("g", i), Queue: "q", Sets: cluster.FlatTree(1)})
	}
	for i := range n {
		im.Events = append(im.Events, cluster.PodState{
			UID: fmt.Sprint("p", i), Namespace: "team", Name: fmt.Sprint("p", i), Gang: key(i), Ours: true, Labels: map[string]string{"a": "<b>"}, Phase: cluster.Pending,
			Requests: []cluster.Quantity{{Name: "gpu", Value: int64(1000 * (1 + i%2))}}, Spec: &cluster.ClassSpec{},
		})
	}
	im.Events = append(im.Events, cluster.ObjectState{Kind: cluster.Namespaces, Key: "team", Object: &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}})
	return c
}

func key(i int) cluster.Key {
	return cluster.Key{Face: "kai", Namespace: "team", Name: fmt.Sprint("g", i)}
}

// TestPrinted: what is printed bit by bit is what json.Marshal makes of it at once, of files and of entries.
func TestPrinted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*Case{"empty": {}, "one": many(1), "many": many(100)} { // order: each on its own
		f, err := pack(c)
		if err != nil {
			t.Fatal(err)
		}
		atOnce := *f
		for i := range f.packed {
			state, _ := f.packed[i].state.(cluster.PodState)
			atOnce.Pods = append(atOnce.Pods, placed{pod: pod(state), Class: f.packed[i].class, Phase: state.Phase.String()})
		}
		var b bytes.Buffer
		w := bufio.NewWriter(&b)
		if err := f.print(w); err != nil || w.Flush() != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(&atOnce)
		if err != nil || b.String() != string(want) {
			t.Errorf("%s: %v\n%s\nat once:\n%s", name, err, b.String(), want)
		}
		for _, e := range []*printed{{Kind: Still, Cycle: 3}, {Kind: Gap, Cycle: 3, Missed: 2}, {Kind: Change, Cycle: 3, File: f, Gone: &gone{Pods: []string{"p"}}}, {Kind: Change, Cycle: 3, File: f, Gone: &gone{}}, {Kind: Keyframe, Format: StreamFormat, Cluster: "c", File: f}} {
			got, err := line(e)
			if err != nil {
				t.Fatal(err)
			}
			all := *e
			if e.File != nil {
				all.File = &atOnce
			}
			want, err := json.Marshal(&all)
			if err != nil || string(got) != string(want)+"\n" {
				t.Errorf("%s, %s: %v\n%s\nat once:\n%s", name, e.Kind, err, got, want)
			}
		}
	}
}

// TestHeldOnce: two followers that were given one entry, the images that they make, and the keyframe that one makes for the other, hold each object once: none of them copies it.
func TestHeldOnce(t *testing.T) { // allocations are counted: not in parallel
	const n = 1000
	var b bytes.Buffer
	if err := wholeLine(&b, 1, "c", many(n)); err != nil {
		t.Fatal(err)
	}
	e, err := ReadEntry(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if e.Size() != b.Len() {
		t.Errorf("a line of %d bytes has %d", b.Len(), e.Size())
	}
	var one, other, third Follower
	for _, f := range []*Follower{&one, &other} {
		if _, err := f.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := other.Whole()
	if err == nil {
		_, err = third.Add(whole)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(){"an image": func() { one.Case() }, "a keyframe": func() { _, _ = other.Whole() }} { // order: each on its own
		if made := testing.AllocsPerRun(3, do); made > n/10 {
			t.Errorf("%s of %d gangs and pods: %v allocations", name, n, made)
		}
	}
	var tree []cluster.Set
	for _, e := range one.Case().Image.Events {
		if g, ok := e.(cluster.GangState); ok {
			if tree == nil {
				tree = g.Sets
			}
			if &g.Sets[0] != &tree[0] {
				t.Fatalf("gang %s has a tree of its own that is as others'", g.Key)
			}
		}
	}
	texts := map[string]bool{}
	for _, f := range []*Follower{&one, &other, &third} {
		var b bytes.Buffer
		if err := Write(&b, f.Case()); err != nil {
			t.Fatal(err)
		}
		texts[b.String()] = true
	}
	if len(texts) != 1 {
		t.Error("they have different cases")
	}
}
