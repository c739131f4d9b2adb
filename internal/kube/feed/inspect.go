package feed

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Difference is an object of which the store knew something else than the API server said, at a version that its watch had passed.
type Difference struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// What is one of the values below, Has the version that the store knew, Should the API server's; "" for no such object.
	What   string `json:"what"`
	Has    string `json:"has,omitempty"`
	Should string `json:"should,omitempty"`
}

// What can differ.
const (
	Missing = "missing" // the store does not know the object
	Gone    = "gone"    // the store knows an object that does not exist
	Older   = "older"   // the store knows an older version
	Meaning = "meaning" // the store knows this version, and took it for something else
)

// String says it in a line.
func (d Difference) String() string {
	name := d.Kind + " " + strings.TrimPrefix(d.Namespace+"/"+d.Name, "/")
	switch d.What {
	case Missing:
		return fmt.Sprintf("%s: the store does not know it; it is there, at version %s", name, d.Should)
	case Gone:
		return fmt.Sprintf("%s: the store knows it at version %s; it does not exist", name, d.Has)
	case Older:
		return fmt.Sprintf("%s: the store knows version %s; the API server has %s", name, d.Has, d.Should)
	}
	return fmt.Sprintf("%s: the store took version %s for something else than it says", name, d.Has)
}

// version is what the desk was last told of an object.
type version struct {
	uid types.UID
	at  string
}

// note remembers what the desk was told; nil is no such object.
func (d *desk) note(k kind, key types.NamespacedName, object client.Object) {
	if _, doubted := d.doubted[doubt{k, key}]; doubted {
		d.doubted[doubt{k, key}] = true
	}
	if object == nil {
		delete(d.versions[k], key)
		return
	}
	if d.versions[k] == nil {
		d.versions[k] = map[types.NamespacedName]version{}
	}
	d.versions[k][key] = version{object.GetUID(), object.GetResourceVersion()}
}

// suspicion is a difference that may be an event on its way. object is the API server's, nil for none; need is the version that the
// watch must have passed before it counts.
type suspicion struct {
	kind   kind
	key    types.NamespacedName
	had    version
	object client.Object
	need   string
	since  time.Time
}

// doubt is an object of which there is a suspicion.
type doubt struct {
	kind kind
	key  types.NamespacedName
}

// inquiry is what an Inspector asks of the goroutine that drains: about a part of the objects of a kind, or about suspicions.
type inquiry struct {
	kind    kind
	objects []client.Object // in the order of the API server's list
	version string          // of that list
	// from and to bound the part by key, from excluded, to included; open without.
	from, to *types.NamespacedName
	confirm  []suspicion
	open     []suspicion  // those that are left for later
	answer   chan finding // of capacity 1
}

// finding is what came of an inquiry.
type finding struct {
	suspicions  []suspicion
	differences []Difference
}

// inspect answers an inquiry. Differences are healed: the store is told again.
func (d *desk) inspect(q *inquiry, store *cluster.Store) (f finding) {
	heal := func(k kind, key types.NamespacedName, object client.Object) (changed bool) {
		apply := func(e cluster.Event) { changed = store.Apply(e) || changed }
		d.translate(k, key, object, apply)
		if d.nodesChanged {
			d.recheckNodes()
		}
		d.recheckMoved()
		d.recheckDevices(apply)
		for pod := range d.dirty { // order: each pod on its own
			if p := d.pods[pod]; p != nil {
				d.tellPod(pod, p, apply)
			}
		}
		clear(d.dirty)
		return changed
	}
	told := d.doubted
	d.doubted = make(map[doubt]bool, len(q.open))
	for i := range q.open {
		at := doubt{q.open[i].kind, q.open[i].key}
		d.doubted[at] = told[at]
	}
	for i := range q.confirm {
		s := &q.confirm[i]
		if told[doubt{s.kind, s.key}] {
			continue // it was on its way
		}
		diff := s.difference()
		heal(s.kind, s.key, s.object)
		f.differences = append(f.differences, diff)
	}
	if q.confirm != nil {
		return f
	}
	listed := make(map[types.NamespacedName]struct{}, len(q.objects))
	for _, o := range q.objects {
		key := client.ObjectKeyFromObject(o)
		listed[key] = struct{}{}
		have, known := d.versions[q.kind][key]
		is := version{o.GetUID(), o.GetResourceVersion()}
		switch {
		case known && have.uid == is.uid && (have.at == is.at || q.kind.existence()):
			if q.kind.translated() && heal(q.kind, key, d.own(q.kind, key, o)) {
				f.differences = append(f.differences, Difference{Kind: q.kind.name(), Namespace: key.Namespace, Name: key.Name, What: Meaning, Has: have.at, Should: is.at})
			}
		case known && later(have.at, is.at): // it changed since
		default:
			f.suspicions = append(f.suspicions, suspicion{kind: q.kind, key: key, had: have, object: o, need: is.at})
		}
	}
	for key, have := range d.versions[q.kind] { // order: sorted below
		if _, there := listed[key]; there || !q.covers(key) || later(have.at, q.version) {
			continue
		}
		f.suspicions = append(f.suspicions, suspicion{kind: q.kind, key: key, had: have, need: q.version})
	}
	for i := range f.suspicions {
		d.doubted[doubt{q.kind, f.suspicions[i].key}] = false
	}
	slices.SortFunc(f.suspicions, func(a, b suspicion) int { return compareKeys(a.key, b.key) })
	return f
}

// own is the object that the desk has of that version, which the informer holds as well; or else the one given.
func (d *desk) own(k kind, key types.NamespacedName, other client.Object) client.Object {
	switch k {
	case nodes:
		if n := d.nodes[key.Name]; n != nil {
			return n
		}
	case gangs:
		if g := d.gangs[key]; g != nil {
			return g
		}
	case pods:
		if p := d.pods[key]; p != nil {
			return p
		}
	}
	return other
}

// covers says whether the inquiry is about objects of the key.
func (q *inquiry) covers(key types.NamespacedName) bool {
	return (q.from == nil || compareKeys(*q.from, key) < 0) && (q.to == nil || compareKeys(key, *q.to) <= 0)
}

// compareKeys is the order of lists: that of the keys in etcd, where a slash ends the namespace.
func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace+"/", b.Namespace+"/"), cmp.Compare(a.Name, b.Name))
}

func (s *suspicion) difference() Difference {
	d := Difference{Kind: s.kind.name(), Namespace: s.key.Namespace, Name: s.key.Name, Has: s.had.at}
	switch {
	case s.object == nil:
		d.What = Gone
	case s.had == version{}:
		d.What, d.Should = Missing, s.object.GetResourceVersion()
	default:
		d.What, d.Should = Older, s.object.GetResourceVersion()
	}
	return d
}

// later says whether version a is a later one than b. What is no number is not compared.
func later(a, b string) bool {
	x, err := strconv.ParseUint(a, 10, 64)
	y, failed := strconv.ParseUint(b, 10, 64)
	return err == nil && failed == nil && x > y
}

// translated says that the desk makes something else of objects of the kind, so that what the store holds can be wrong at the right
// version. Of the others the store holds the object itself.
func (k kind) translated() bool {
	switch k {
	case nodes, topologies, queues, gangs, requests, pods:
		return true
	}
	return false
}

// name is the kind's name.
func (k kind) name() string {
	if k == configMaps {
		return "ConfigMap"
	}
	text := fmt.Sprintf("%T", k.example())
	return text[strings.LastIndexByte(text, '.')+1:]
}

// Kinds are the names of the kinds that an inspection compares.
func Kinds() []string {
	var out []string
	for k := range kinds {
		out = append(out, k.name())
	}
	return out
}

// ask hands an inquiry to whoever drains, and waits for the answer.
func (f *Feed) ask(ctx context.Context, q *inquiry) (finding, error) {
	q.answer = make(chan finding, 1)
	f.asking.Lock()
	f.inquiries = append(f.inquiries, q)
	f.asking.Unlock()
	f.inbox.nudge()
	select {
	case got := <-q.answer:
		return got, nil
	case <-ctx.Done():
		return finding{}, fmt.Errorf("nobody takes in what the feed has: %w", ctx.Err())
	}
}

// answer answers what was asked, after all that has come in was taken in.
func (f *Feed) answer(store *cluster.Store) {
	f.asking.Lock()
	waiting := f.inquiries
	f.inquiries = nil
	f.asking.Unlock()
	for _, q := range waiting {
		q.answer <- f.desk.inspect(q, store)
	}
}
