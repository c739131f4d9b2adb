package feed

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/kube/links"
)

// lone is a pod that says nothing of its gang, and what the podgrouper says of that.
func lone(name string) (*v1.Pod, string) {
	p := pod(name, "u-"+name, 10)
	p.Annotations = nil
	return p, kai.WriteOwnGang(p, gang("g-"+name, ""), "")
}

// gangOf is the gang of a pod of the store, by name; "" for none.
func (s *stage) gangOf(uid string) (name string) {
	snap := s.store.Snapshot(cluster.Instant{})
	snap.EachGang(func(g *cluster.Gang) {
		for _, id := range g.Pods {
			if snap.Pod(id).UID == uid {
				name = g.Key.Name
			}
		}
	})
	return name
}

func newLinks() *links.Links {
	l := links.New()
	l.Open(func(map[string]string) bool { return true })
	return l
}

// TestToldOfAPod: a pod of which something is told is in that gang, whether the feed or the podgrouper saw it first, until it says something
// itself; and nothing is kept of it then.
func TestToldOfAPod(t *testing.T) {
	t.Parallel()
	l := newLinks()
	s := newStage(t, Options{Links: l})
	tell := func(p *v1.Pod, text string) { l.Tell(p, nil, text, time.Time{}) }
	check := func(when, uid, want string) {
		t.Helper()
		s.drain()
		if got := s.gangOf(uid); got != want {
			t.Errorf("%s: pod %s is in gang %q, want %q", when, uid, got, want)
		}
	}
	first, firstText := lone("first")
	later, laterText := lone("later")
	s.say(&v2.Queue{}, first)
	tell(later, laterText)
	check("nobody has told", "u-first", "")
	tell(first, firstText)
	s.say(later)
	check("told of a pod that is known", "u-first", "g-first")
	check("told of a pod before it was known", "u-later", "g-later")
	first.Labels = map[string]string{"x": "y"}
	s.say(first)
	check("it changes", "u-first", "g-first")
	other := gang("g-another", "")
	tell(first, kai.WriteOwnGang(first, other, ""))
	check("told another gang", "u-first", "g-another")
	first.Annotations = map[string]string{keys.OwnGangAnnotation: firstText}
	first.Spec.NodeName = "n1"
	s.say(first)
	check("bound, and its Binding said so", "u-first", "g-first")
	tell(later, laterText)
	s.end(later)
	check("gone", "u-later", "")
	if l.Len() != 0 {
		t.Errorf("something is kept of %d pods", l.Len())
	}
	if len(s.feed.translator.says) != 0 {
		t.Errorf("the translator keeps %v", s.feed.translator.says)
	}
}

// TestToldOfPodsThatComeAndGo: of pods that come and go between two drains, of which whoever drains never hears, nothing is kept, whether
// they are told of before, between or after; of those that are told of when they are gone, who told looks whether they are there.
func TestToldOfPodsThatComeAndGo(t *testing.T) {
	t.Parallel()
	l := newLinks()
	s := newStage(t, Options{Links: l})
	for i := range 1000 {
		p, text := lone("p")
		p.UID = types.UID(rune(i + 1))
		if i%3 == 0 {
			l.Tell(p, nil, text, time.Time{})
		}
		s.say(p)
		if i%3 == 1 {
			l.Tell(p, nil, text, time.Time{})
		}
		s.end(p)
		if i%3 == 2 {
			l.Tell(p, nil, text, time.Time{})
			l.Gone(types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, p.UID)
		}
		if l.Len() != 0 {
			t.Fatalf("something is kept of pod %d", i)
		}
	}
	// A pod that took another's name while nobody watched, and one of which is told before the feed has heard that the former is gone.
	first, text := lone("p")
	second, _ := lone("p")
	second.UID = "u-second"
	s.say(first)
	l.Tell(first, nil, text, time.Time{})
	s.say(second)
	if l.Len() != 0 {
		t.Error("something is kept of the former pod of a name")
	}
	l.Tell(first, nil, text, time.Time{}) // as if of the next one
	s.end(second)
	if l.Text(first) != text {
		t.Error("the end of the former pod ended what is told of the next one")
	}
	s.say(first)
	s.end(first)
	s.expect()
	if n := l.Len() + len(s.feed.inbox.again) + len(s.feed.translator.says); n != 0 {
		t.Errorf("%d names are left", n)
	}
}

// TestToldIsNoDifference: the store takes a pod for what is told of it, and the API server says less: the Inspector knows.
func TestToldIsNoDifference(t *testing.T) {
	t.Parallel()
	exhibits(t, func(t *testing.T, x *exhibit) {
		l := newLinks()
		x.orders <- func() { x.feed.translator.links = l }
		p, text := lone("lone")
		x.happen(p)
		l.Tell(p, nil, text, time.Time{})
		x.feed.inbox.putAgain(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
		synctest.Wait()
		x.orders <- func() {
			if got := x.gangOf("u-lone"); got != "g-lone" {
				t.Errorf("the pod is in gang %q", got)
			}
		}
		if got := x.all(t); len(got.Differences)+got.Undecided != 0 || got.Compared[dialect.Pods.String()] != 1 {
			t.Errorf("%+v", got)
		}
		l.Gone(types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, p.UID) // the event that ended it is on its way
		if got := x.all(t); len(got.Differences)+got.Undecided != 0 {
			t.Errorf("%+v", got)
		}
	})
}
