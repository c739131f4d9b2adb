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
	"github.com/muster-scheduler/muster/internal/dialect"
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

// version is of an object; the zero value is of none.
type version struct {
	uid types.UID
	at  string
}

func versionOf(o client.Object) version { return version{o.GetUID(), o.GetResourceVersion()} }

// suspicion is a difference that may be an event on its way. object is the API server's, nil for none; need is the version that the
// watch must have passed before it counts.
type suspicion struct {
	kind   dialect.Kind
	key    types.NamespacedName
	had    version
	object client.Object
	need   string
	since  time.Time
}

// doubt is an object of which there is a suspicion.
type doubt struct {
	kind dialect.Kind
	key  types.NamespacedName
}

// inquiry is what an Inspector asks of the goroutine that drains: about a part of the objects of a kind, or about suspicions.
type inquiry struct {
	kind    dialect.Kind
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
func (d *translator) inspect(q *inquiry, store *cluster.Store) (f finding) {
	heal := func(k dialect.Kind, key types.NamespacedName, object, read client.Object) (changed bool) {
		d.note(k, key, object)
		d.Take(k, key, read, func(e cluster.Event) { changed = store.Apply(e) || changed })
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
		heal(s.kind, s.key, s.object, d.read(s.kind, s.key, s.object))
		f.differences = append(f.differences, diff)
	}
	if q.confirm != nil {
		return f
	}
	listed := make(map[types.NamespacedName]struct{}, len(q.objects))
	for _, o := range q.objects {
		key := client.ObjectKeyFromObject(o)
		listed[key] = struct{}{}
		last, known := d.told[q.kind][key]
		is, have := versionOf(o), version{}
		if known {
			have = versionOf(last)
		}
		switch {
		case known && have.uid == is.uid && (have.at == is.at || !q.kind.Row().Metadata.Empty()):
			if q.kind.Row().Carried == "" && heal(q.kind, key, last, d.again(key, last)) { // of what is carried the store holds the object itself
				f.differences = append(f.differences, Difference{Kind: q.kind.String(), Namespace: key.Namespace, Name: key.Name, What: Meaning, Has: have.at, Should: is.at})
			}
		case known && later(have.at, is.at): // it changed since
		default:
			f.suspicions = append(f.suspicions, suspicion{kind: q.kind, key: key, had: have, object: o, need: is.at})
		}
	}
	for key, last := range d.told[q.kind] { // order: sorted below
		have := versionOf(last)
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

// covers says whether the inquiry is about objects of the key.
func (q *inquiry) covers(key types.NamespacedName) bool {
	return (q.from == nil || compareKeys(*q.from, key) < 0) && (q.to == nil || compareKeys(key, *q.to) <= 0)
}

// compareKeys is the order of lists: that of the keys in etcd, where a slash ends the namespace.
func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace+"/", b.Namespace+"/"), cmp.Compare(a.Name, b.Name))
}

func (s *suspicion) difference() Difference {
	d := Difference{Kind: s.kind.String(), Namespace: s.key.Namespace, Name: s.key.Name, Has: s.had.at}
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
		q.answer <- f.translator.inspect(q, store)
	}
}
