package replay_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/enginetest"
	"github.com/muster-scheduler/muster/internal/fieldtest"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
)

// smallCluster is a small cluster in which something is to be decided.
func smallCluster() *replay.Case {
	gang := cluster.Key{Face: "kai", Namespace: "ns", Name: "g"}
	s := cluster.NewStore(cluster.Options{})
	unlimited := []cluster.Quantity{{Name: "cpu", Value: -1}, {Name: "memory", Value: -1}, {Name: "gpu", Value: -1}}
	s.Apply(
		cluster.NodeState{Name: "n", UID: "n", Allocatable: []cluster.Quantity{{Name: "gpu", Value: 8000}, {Name: "pods", Value: 10}, {Name: "example.com/nic", Value: 2}}},
		cluster.TopologyState{Name: "t", Levels: []cluster.Level{{Label: "rack"}}},
		cluster.QueueState{Name: "q", UID: "q", Quota: unlimited, Limit: unlimited},
		cluster.GangState{Key: gang, UID: "g", Queue: "q", Sets: cluster.FlatTree(2)},
	)
	for _, name := range []string{"a", "b"} {
		s.Apply(cluster.PodState{UID: name, Namespace: "ns", Name: name, Gang: gang, Ours: true, Requests: []cluster.Quantity{{Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}}})
	}
	return &replay.Case{Version: "test", Profile: profile.BuiltIn(), Image: s.Snapshot(cluster.UnixNano(1)).Image()}
}

func written(t testing.TB, c *replay.Case) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := replay.Write(&b, c); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unpacked(t testing.TB, packed []byte) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(z); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestOtherDecision: a replay says when what is on record is not what is decided.
func TestOtherDecision(t *testing.T) {
	t.Parallel()
	c := smallCluster()
	out, err := c.Run(t.Context(), builtin.Registry())
	if err != nil || len(out.Plans) != 1 || out.Plans[0].Binds() != 2 || out.Same {
		t.Fatalf("nothing is on record: %+v, %v", out, err)
	}
	c.Decided, c.Plans = true, out.Plans
	if out, err = c.Run(t.Context(), builtin.Registry()); err != nil || !out.Same {
		t.Errorf("the same decision is on record: %+v, %v", out, err)
	}
	c.Plans = nil
	if out, err = c.Run(t.Context(), builtin.Registry()); err != nil || out.Same {
		t.Errorf("another decision is on record: %+v, %v", out, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = c.Run(ctx, builtin.Registry()); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that is cut short: %v", err)
	}
	c.Profile.Actions = append(c.Profile.Actions, "no-such")
	if _, err = c.Run(t.Context(), builtin.Registry()); err == nil || !strings.Contains(err.Error(), "no-such") {
		t.Errorf("an unknown action: %v", err)
	}
}

// fall is an action that panics.
type fall struct{}

func (fall) Run(*engine.Session) { panic("fell") }

func TestPanicIsAnError(t *testing.T) {
	t.Parallel()
	c := smallCluster()
	r := builtin.Registry()
	r.Actions["fall"] = func() engine.Action { return fall{} }
	c.Profile.Actions = []string{"fall"}
	if _, err := c.Run(t.Context(), r); err == nil || !strings.Contains(err.Error(), "fell") {
		t.Errorf("got %v", err)
	}
}

// TestRefused: each file that is no snapshot is refused with what is wrong with it.
func TestRefused(t *testing.T) {
	t.Parallel()
	packed := written(t, smallCluster())
	text := unpacked(t, packed)
	if _, err := replay.Read(strings.NewReader(text), replay.DefaultLimits()); err != nil {
		t.Fatalf("an unpacked file: %v", err)
	}
	edit := func(old, new string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("nothing to replace: %s in %s", old, text)
		}
		return strings.Replace(text, old, new, 1)
	}
	for _, c := range []struct{ name, file, want string }{
		{"nothing", "", "not JSON"},
		{"half", string(packed[:len(packed)/2]), "unexpected EOF"},
		{"words", "hello", "not JSON"},
		{"two", text + text, "follows after its end"},
		{"newer", edit(replay.Format, "muster.snapshot/v9"), `format is "muster.snapshot/v9"; this version of muster reads "muster.snapshot/v1"`},
		{"unknown field", edit(`"now"`, `"then"`), `unknown field "then"`},
		{"dims", edit(`"cpu","memory"`, `"memory","cpu"`), `dims[0] is "memory"`},
		{"dim twice", edit(`"example.com/nic"]`, `"cpu"]`), `dims[4] is "cpu"`},
		{"amount", edit(`{"Name":"gpu","Value":8000}`, `{"Name":"gpu","Value":-8}`), `nodes[0] (n): Allocatable of gpu is -8`},
		{"dimension", edit(`{"Name":"gpu","Value":8000}`, `{"Name":"tpu","Value":8}`), `nodes[0] (n): Allocatable names the dimension "tpu"`},
		{"class", edit(`"class":0`, `"class":7`), `pods[0] (ns/a): class is 7; there are 1`},
		{"phase", edit(`"phase":"Pending"`, `"phase":"Asleep"`), `pods[0] (ns/a): phase is "Asleep"`},
		{"tree", edit(`"Children":[1]`, `"Children":[1,1]`), `gangs[0] (ns/g): a set is below itself, or below two`},
		{"no tree", edit(`"Children":[1]`, `"Children":[]`), `gangs[0] (ns/g): 1 of 2 sets hang below the root`},
		{"number", edit(`"now":1`, `"now":"x"`), "now"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if _, err := replay.Read(strings.NewReader(c.file), replay.DefaultLimits()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want …%s…", err, c.want)
			}
		})
	}
	small := replay.Limits{Packed: 1 << 20, Unpacked: 1 << 20}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 64 {
		if _, err := z.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := replay.Read(&bomb, small); !errors.Is(err, replay.ErrTooLarge) {
		t.Errorf("64 MiB of nothing: %v", err)
	}
	if _, err := replay.Read(strings.NewReader(strings.Repeat(" ", 2<<20)), small); !errors.Is(err, replay.ErrTooLarge) {
		t.Errorf("a long file: %v", err)
	}
	exact := replay.Limits{Packed: int64(len(packed)), Unpacked: int64(len(text))}
	if _, err := replay.Read(bytes.NewReader(packed), exact); err != nil {
		t.Errorf("exactly as long as allowed: %v", err)
	}
}

// everything is an image in which every field is stated, in whatever depth.
func everything() cluster.Image {
	cpu := []cluster.Quantity{{Name: "cpu", Value: 7}}
	sets := []cluster.Set{{Name: "root", Parent: cluster.None, Children: []int32{1}, Min: 1}, {Name: "a", Leaf: true, Min: 1}}
	return cluster.Image{
		Now: cluster.UnixNano(1), Dims: []string{"cpu", "memory", "gpu", "pods"},
		Events: []cluster.Event{
			fieldtest.Filled(cluster.NodeState{}),
			fieldtest.Filled(cluster.TopologyState{}),
			fieldtest.Filled(cluster.QueueState{}),
			fieldtest.Filled(cluster.UsageState{Queues: map[string][]cluster.Quantity{"q": cpu}}),
			fieldtest.Filled(cluster.GangState{Sets: sets}),
			fieldtest.Filled(cluster.PodState{}),
			fieldtest.Filled(cluster.ObjectState{Kind: cluster.NodeResourceTopologies, Object: &cluster.NodeZones{}}),
			fieldtest.Filled(cluster.ObjectState{Kind: cluster.NodeUses, Object: &cluster.NodeUse{}}),
			fieldtest.Filled(cluster.ObjectState{Kind: cluster.ResourceQuotas, Object: &cluster.SpaceQuota{}}),
		},
		Memory: fieldtest.Filled(cluster.Memory{Generation: 7, Answers: map[string]cluster.RememberedAnswer{
			"q": {Until: cluster.UnixNano(7), Asked: 7, Wake: cluster.UnixNano(7), Why: &engine.Told{Asks: "a"}},
		}}),
	}
}

// TestEveryFieldIsWritten: whatever a snapshot says and a Store remembers is read as it was written.
func TestEveryFieldIsWritten(t *testing.T) {
	t.Parallel()
	c, err := replay.Read(bytes.NewReader(written(t, &replay.Case{Image: everything()})), replay.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	same(t, c.Image, everything())
}

// TestOldFile: what a file of an earlier version says is taken in, and written again.
func TestOldFile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "everything.v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := replay.Read(bytes.NewReader(text), replay.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if why, ok := c.Image.Memory.Answers["q"].Why.(*engine.Told); !ok || why.Asks != "a" {
		t.Errorf("an answer is read as %+v", c.Image.Memory.Answers["q"])
	}
	var was, is any
	again := unpacked(t, written(t, c))
	if err := cmp.Or(json.Unmarshal(text, &was), json.Unmarshal([]byte(again), &is)); err != nil {
		t.Fatal(err)
	}
	for _, path := range lost(was, is, "") {
		t.Errorf("%s is lost or changed", path)
	}
	if _, err := c.Run(t.Context(), builtin.Registry()); err != nil {
		t.Error(err)
	}
}

// lost are the paths of what one JSON value says and another does not.
func lost(was, is any, path string) (out []string) {
	switch was := was.(type) {
	case map[string]any:
		is, _ := is.(map[string]any)
		for name, v := range was { // order: all are reported
			out = append(out, lost(v, is[name], path+"."+name)...)
		}
	case []any:
		is, _ := is.([]any)
		for i, v := range was {
			if i >= len(is) {
				return append(out, path)
			}
			out = append(out, lost(v, is[i], fmt.Sprintf("%s[%d]", path, i))...)
		}
	default:
		if was != is {
			out = append(out, path)
		}
	}
	return out
}

// same compares an image that was read with the one that was written.
func same(t *testing.T, is, was cluster.Image) {
	t.Helper()
	if why, ok := is.Memory.Answers["q"].Why.(*engine.Told); !ok || why.Asks != "a" {
		t.Errorf("an answer is read as %+v", is.Memory.Answers["q"])
	}
	pod := was.Events[5].(cluster.PodState)
	pod.Returning = false                         // the memory says so
	pod.Spec.Requests, pod.Spec.Charge = nil, nil // those of PodState are used
	was.Events[5] = pod
	is.Memory.Answers = nil
	was.Memory.Answers, was.Memory.Generation = nil, 1 // in other numbers
	like := equality.Semantic.Copy()
	if err := like.AddFunc(cluster.Instant.Equal); err != nil {
		t.Fatal(err)
	}
	for _, of := range [][2]any{{is, was}, {is.Memory, was.Memory}} {
		got, want := reflect.ValueOf(of[0]), reflect.ValueOf(of[1])
		for i := range want.NumField() {
			if name := want.Type().Field(i).Name; !like.DeepEqual(got.Field(i).Interface(), want.Field(i).Interface()) && name != "Memory" {
				t.Errorf("%s: read\n%+v\nwritten\n%+v", name, got.Field(i), want.Field(i))
			}
		}
	}
}

// FuzzRead: whatever the bytes, reading ends with an error or with a case that a Store takes in, that the engine
// decides on without a panic, and that is written as it was read.
func FuzzRead(f *testing.F) {
	f.Add([]byte(unpacked(f, written(f, smallCluster()))))
	f.Add([]byte(`{"format":"muster.snapshot/v1","now":0,"profile":{},"dims":["cpu","memory","gpu","pods"]}`))
	for _, text := range seeds(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := replay.Read(bytes.NewReader(text), replay.Limits{Packed: 1 << 20, Unpacked: 1 << 20})
		if err != nil {
			return
		}
		// Whatever hangs would hang for ever: then the input is to be kept.
		defer time.AfterFunc(15*time.Second, func() { panic("it does not end") }).Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := c.Run(ctx, builtin.Registry()); err != nil && strings.Contains(err.Error(), "the engine panics") {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := replay.Write(&b, c); err != nil {
			t.Fatal(err)
		}
		if _, err := replay.Read(&b, replay.DefaultLimits()); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}

// seeds are the first cycles of every fifth scenario.
func seeds(f *testing.F) (out [][]byte) {
	f.Helper()
	scs, err := enginetest.Load(filepath.Join("..", "..", "scenarios"))
	if err != nil {
		f.Fatal(err)
	}
	for i, sc := range scs {
		if i%5 != 0 {
			continue
		}
		kept := len(out)
		b, err := enginetest.NewEngine(&sc.Options, enginetest.Mutation{}, nil)
		if err != nil {
			continue // needs the upstream filters
		}
		b.Watch = func(snap *cluster.Snapshot, p engine.Profile, _ engine.Registry, plans []engine.Plan) error {
			if len(out) == kept {
				var text bytes.Buffer
				if err := replay.Write(&text, &replay.Case{Profile: p, Image: snap.Image(), Decided: true, Plans: plans}); err != nil {
					return err
				}
				if plain := unpacked(f, text.Bytes()); len(plain) < 16<<10 && json.Valid([]byte(plain)) {
					out = append(out, []byte(plain))
				}
			}
			return nil
		}
		if _, err := sc.Play(b); err != nil {
			continue
		}
	}
	if len(out) < 20 {
		f.Fatalf("only %d of %d scenarios make seeds", len(out), len(scs))
	}
	return out
}
