package roles

import (
	"cmp"
	"container/list"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// repeatFirst is the least time between two equal warnings about one object; it doubles with each, to repeatMost.
	repeatFirst = 5 * time.Minute
	repeatMost  = time.Hour
	// repeatsKept bounds how many warnings are remembered for that.
	repeatsKept = 8192

	// warnBurst warnings of one series are given at once; after that one each warnEvery.
	warnBurst = 200
	warnEvery = 500 * time.Millisecond
	// summaryEvery is how often the last of those that were too many is given, with their number.
	summaryEvery = 10 * time.Second
)

// moderation decides which warnings are given. Somebody with thousands of broken pods is told of the first at once, of each in time,
// and never more often than anybody can read. It is not safe for concurrent use.
type moderation struct {
	now     func() time.Time
	repeats map[warning]*list.Element // of *repeat
	oldest  *list.List
	series  map[series]*pace
}

// warning is what is said about an object.
type warning struct {
	about   types.UID
	name    string // for objects without a UID
	reason  string
	message string
}

func warningOf(e *corev1.Event) warning {
	w := warning{about: e.InvolvedObject.UID, reason: e.Reason, message: e.Message}
	if w.about == "" {
		w.name = e.InvolvedObject.Kind + "/" + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name
	}
	return w
}

type repeat struct {
	warning
	next  time.Time // when it may be said again
	wait  time.Duration
	since int32 // how often it was not said meanwhile
}

// series are warnings that are much alike: of one component about objects of one kind in one namespace, for one reason.
type series struct{ namespace, component, reason, kind string }

type pace struct {
	next time.Time // when the warnings given so far have been earned
	left int32     // warnings that were too many
	last *corev1.Event
}

func newModeration(now func() time.Time) moderation {
	return moderation{now: now, repeats: map[warning]*list.Element{}, oldest: list.New(), series: map[series]*pace{}}
}

// admit says whether a warning is to be given now, and how often it stands for.
func (m *moderation) admit(e *corev1.Event) bool {
	now, w := m.now(), warningOf(e)
	known := m.repeats[w]
	if known != nil && now.Before(known.Value.(*repeat).next) {
		known.Value.(*repeat).since++
		return false
	}
	p := m.pace(series{e.Namespace, e.Source.Component, e.Reason, e.InvolvedObject.Kind}, now)
	burst := warnBurst
	if known != nil {
		burst /= 2 // those who have heard nothing yet go first
	}
	if !p.allow(now, burst) {
		p.left++
		p.last = e
		return false
	}
	if known == nil {
		known = m.oldest.PushBack(&repeat{warning: w, wait: repeatFirst / 2})
		m.repeats[w] = known
		if m.oldest.Len() > repeatsKept {
			first := m.oldest.Front()
			delete(m.repeats, m.oldest.Remove(first).(*repeat).warning)
		}
	}
	m.oldest.MoveToBack(known)
	r := known.Value.(*repeat)
	e.Count += r.since
	r.wait = min(2*r.wait, repeatMost)
	r.next, r.since = now.Add(r.wait), 0
	return true
}

// pace is that of a series. Series that have earned all they gave are forgotten when there are many.
func (m *moderation) pace(s series, now time.Time) *pace {
	p := m.series[s]
	if p != nil {
		return p
	}
	if n := len(m.series); n >= 256 && n&(n-1) == 0 {
		for other, p := range m.series { // order: each on its own
			if p.left == 0 && !p.next.After(now) {
				delete(m.series, other)
			}
		}
	}
	p = &pace{}
	m.series[s] = p
	return p
}

// allow says whether another may be given, of so many at once, and counts it.
func (p *pace) allow(now time.Time, burst int) bool {
	if p.next.Before(now) {
		p.next = now
	}
	if p.next.Sub(now) > time.Duration(burst-1)*warnEvery {
		return false
	}
	p.next = p.next.Add(warnEvery)
	return true
}

// summaries are warnings that tell of those that were too many, one for each series that may give one now.
func (m *moderation) summaries() []*corev1.Event {
	now := m.now()
	var out []*corev1.Event
	for _, p := range m.series { // order: sorted below
		if p.left == 0 || !p.allow(now, warnBurst) {
			continue
		}
		e := p.last.DeepCopy()
		if p.left > 1 {
			e.Message = fmt.Sprintf("%s (and %d more warnings like it in this namespace)", e.Message, p.left-1)
		}
		e.Count, e.LastTimestamp = p.left, metav1.NewTime(now)
		p.left, p.last = 0, nil
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *corev1.Event) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Name, b.Name))
	})
	return out
}
