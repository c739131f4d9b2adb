package cluster

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/fieldtest"
)

// fact is a kind of observed object.
type fact struct {
	state Event // of this type; what it does not state is filled in
	world []Event
	// names are the fields by which the Store finds the object: another value is another object.
	names map[string]string
	// ignored are changes that mean nothing, with the reason.
	ignored map[string]string
	// stands are values that stay when another comes, and would show if that had come first.
	stands map[string]string
}

// facts lists the events that create and update objects.
func facts() []fact {
	cpu := func() []Quantity { return []Quantity{{Name: "cpu", Value: 7}} }
	queue := QueueState{Name: "q"}
	gang := GangState{Key: Key{"Gang.Face", "Gang.Namespace", "Gang.Name"}, Queue: "q"}
	return []fact{
		{state: NodeState{}, names: map[string]string{"Name": ""}},
		{
			state: PodState{
				Phase: Running, Returning: true, NodeName: "n", Charged: Charged{Queue: "q", Gang: gang.Key},
				Requests: cpu(), Charge: []Quantity{{Name: "gpu", Value: 7}},
			},
			world: []Event{NodeState{Name: "n", Allocatable: cpu()}, queue, gang},
			names: map[string]string{"UID": ""},
			ignored: map[string]string{
				"Spec.Requests": "Requests are used", "Spec.Charge": "Charge is used",
				"Spec.Tolerations[0].TolerationSeconds": "says when to leave a node; where pods may run is the same",
			},
			stands: map[string]string{
				"Charged":   "the first record of a pod that holds room",
				"Returning": "an eviction of ours may show nothing but the end",
			},
		},
		{
			state: GangState{Sets: []Set{{Name: "root", Parent: None, Children: []int32{1}, Min: 1}, {Name: "a", Leaf: true, Min: 1}, {Name: "b", Leaf: true, Min: 1}}},
			names: map[string]string{"Key": ""},
			ignored: map[string]string{
				"Sets[0].Children[0] cleared": "a root below itself is no tree; dialects make none", "Sets[0].Children grown": "no such child",
			},
		},
		{state: QueueState{}, names: map[string]string{"Name": ""}},
		{
			state: UsageState{Queues: map[string][]Quantity{"q": cpu()}}, world: []Event{queue},
			ignored: map[string]string{"Queues grown": "usage of no queue"},
		},
		{state: TopologyState{}, names: map[string]string{"Name": ""}},
		{state: ObjectState{Object: &NodeZones{}}, names: map[string]string{"Kind": "", "Key": ""}},
		{state: ObjectState{Object: &SpaceQuota{}}, names: map[string]string{"Kind": "", "Key": ""}},
		{state: ObjectState{Object: &NodeUse{}}, names: map[string]string{"Kind": "", "Key": ""}},
	}
}

// TestEveryFieldIsNoticed: whatever field of an observed object changes, in whatever depth, the Store notices: the generation moves, the
// next snapshot is that of a Store that has never seen anything else, and the one before stays as it was.
func TestEveryFieldIsNoticed(t *testing.T) {
	t.Parallel()
	for k, f := range facts() {
		t.Run(reflect.TypeOf(f.state).Name(), func(t *testing.T) {
			t.Parallel()
			full, all := fieldtest.Filled(f.state), fieldtest.Changes(f.state)
			t.Logf("%d changes", len(all))
			for i, c := range all {
				if c.In(f.names) || c.In(f.ignored) {
					continue
				}
				other := fieldtest.Changed(facts()[k].state, i)
				if reflect.DeepEqual(f.image(full), f.image(other)) {
					t.Errorf("%s: no snapshot shows it", c)
				}
				if !c.In(f.stands) {
					f.step(t, c.String(), full, other)
				}
				if _, all := f.stands[c.Path]; all || !c.In(f.stands) { // nothing stood there
					f.step(t, c.String()+", back", other, full)
				}
			}
		})
	}
}

// step checks that the Store notices when an object that was one way is another way.
func (f *fact) step(t *testing.T, what string, was, is Event) {
	t.Helper()
	s := f.store(was)
	before := s.Snapshot(UnixNano(1))
	shown := before.Image().Events
	if s.Apply(was) {
		t.Errorf("%s: the same is a change", what)
	}
	changed := s.Apply(is)
	after := s.Snapshot(UnixNano(1))
	switch {
	case !changed, after.Generation == before.Generation:
		t.Errorf("%s is not noticed", what)
	case !reflect.DeepEqual(after.Image().Events, f.image(is)):
		t.Errorf("%s: the snapshot shows\n%+v\nwant\n%+v", what, after.Image().Events, f.image(is))
	case !reflect.DeepEqual(before.Image().Events, shown):
		t.Errorf("%s: the snapshot before has changed", what)
	}
}

func (f *fact) store(e Event) *Store {
	s := NewStore(Options{})
	s.Apply(f.world...)
	s.Apply(e)
	return s
}

// image is what a snapshot of a Store that knows nothing else shows.
func (f *fact) image(e Event) []Event { return f.store(e).Snapshot(UnixNano(1)).Image().Events }

// TestEveryFactIsTested: the table above has every event but those that remove.
func TestEveryFactIsTested(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, f := range facts() {
		tested[reflect.TypeOf(f.state).Name()] = true
	}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	events := 0
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "apply" && fn.Recv != nil {
				events++
				if name := fn.Recv.List[0].Type.(*ast.Ident).Name; !strings.HasSuffix(name, "Gone") && !tested[name] {
					t.Errorf("%s is not tested", name)
				}
			}
		}
	}
	if events < 10 {
		t.Errorf("%d events found", events)
	}
}

// TestEveryFieldOfAPromise: a promise that is made again in other words is another one.
func TestEveryFieldOfAPromise(t *testing.T) {
	t.Parallel()
	names := map[string]string{"Pod": "", "Moved": ""}
	ignored := map[string]string{
		"Until": "a promise that is made again and again runs out when the first did", "Bundle": "it is the promise of the bundle that made it first",
	}
	for i, c := range fieldtest.Changes(HoldState{}) {
		if c.In(names) || c.In(ignored) {
			continue
		}
		s, full := NewStore(Options{}), fieldtest.Filled(HoldState{})
		s.Hold(s.promise(full))
		was := s.Generation()
		if s.Hold(s.promise(full)); s.Generation() != was {
			t.Errorf("the same promise is a change")
		}
		other := fieldtest.Changed(HoldState{}, i)
		s.Hold(s.promise(other))
		if s.Generation() == was || !reflect.DeepEqual(s.holds[other.ID()], s.promise(other)) {
			t.Errorf("%s is not noticed", c)
		}
	}
}
