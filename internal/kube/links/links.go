// Package links has the podgrouper tell the other roles of its process what gang a lone pod is, without a write (ADR 18). Of Volcano's face, whose controllers are another process, vcpodgroup.Teller does.
//
//	podgrouper ──Tell──► Links ◄──Text, With── feed (the scheduler's translator), binds, evictions, podgroup
//	                       ▲ └──Hear──► feed, podgroup: look at the pod again
//	      informer of pods ┘ Saw, Gone: what is over
//
// What is told is the text that the podgrouper would else have written on the pod (keys.OwnGangAnnotation). A pod of which something is
// told is read as if it carried that text, until it says something itself, has a node, or is gone; the Binding brings the text to the
// pod. Nothing here is a truth: what is lost with the process the next podgrouper works out again, and one that waits for long has it
// written.
//
// Who tells only where the scheduler that decides about the gang is of the same process and leads: Open says so. A process that loses its
// turn ends, so nothing is taken back.
//
// Memory: one text for each pod that was told of and waits. An event ends it, at most once for each pod, however late it is heard: events of a
// former pod of the name end nothing. What is told of a pod that the cache has seen go by then is forgotten by who told it (he looks at the
// cache after he has told, and says what he finds by Saw or Gone), since no event of it is to come.
package links

import (
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// Links is what was told. It is safe for concurrent use. Nil is one to which nothing can be told.
type Links struct {
	mu     sync.Mutex
	serves func(labels map[string]string) bool // nil: closed
	told   map[types.NamespacedName]link
	hear   []func(pod types.NamespacedName)
}

// link is what was told of the pod of a name: one that is told of another pod of that name ends it.
type link struct {
	uid   types.UID
	text  string
	since time.Time // when something was first told of the pod
}

// New returns Links to which nothing can be told before Open.
func New() *Links { return &Links{told: map[types.NamespacedName]link{}} }

// Open says that the scheduler of the process leads from now on, for good, and decides about gangs whose PodGroup would have labels that
// serves accepts. serves must be safe for concurrent use, and must not call back.
func (l *Links) Open(serves func(labels map[string]string) bool) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serves = serves
}

// Hear has f called with the name of a pod after something new was told of it: by who tells, without a lock held. It is called while
// the process is put together.
func (l *Links) Hear(f func(pod types.NamespacedName)) {
	if l != nil {
		l.hear = append(l.hear, f)
	}
}

// Tell tells what gang a pod is: text is its annotation, labels are those of the PodGroup that it does without. It returns since when
// something is told of the pod. Not ok: nobody here would hear it, or the pod says something itself, or has a node; then it is to be written.
func (l *Links) Tell(pod *v1.Pod, labels map[string]string, text string, now time.Time) (since time.Time, ok bool) {
	if l == nil || text == "" || over(pod) {
		return time.Time{}, false
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	l.mu.Lock()
	if l.serves == nil || !l.serves(labels) {
		l.mu.Unlock()
		return time.Time{}, false
	}
	was := l.told[key]
	is := link{pod.UID, text, now}
	if was.uid == pod.UID && !was.since.IsZero() {
		is.since = was.since
	}
	l.told[key] = is
	l.mu.Unlock()
	if is.uid != was.uid || is.text != was.text {
		for _, f := range l.hear {
			f(key)
		}
	}
	return is.since, true
}

// Text is what was told of a pod; "" for nothing, and for a pod that says something itself or has a node: that counts.
func (l *Links) Text(pod *v1.Pod) string {
	if l == nil || over(pod) {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.told[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]; t.uid == pod.UID {
		return t.text
	}
	return ""
}

// With returns the pod as if it carried what was told of it: itself if that is nothing, else a shallow copy.
func (l *Links) With(pod *v1.Pod) *v1.Pod { return Carrying(pod, l.Text(pod)) }

// Carrying returns the pod with the text as its annotation: itself for "", else a shallow copy.
func Carrying(pod *v1.Pod, text string) *v1.Pod {
	if text == "" {
		return pod
	}
	out := *pod
	out.Annotations = maps.Clone(pod.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[keys.OwnGangAnnotation] = text
	return &out
}

// Saw takes in a pod as it is, or was a moment ago, and forgets what was told of it if it says something itself or has a node.
func (l *Links) Saw(pod *v1.Pod) {
	if over(pod) {
		l.Gone(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID)
	}
}

// Gone takes in that the pod of that UID is gone, and forgets what was told of it. uid "": whatever pod of the name there was.
func (l *Links) Gone(pod types.NamespacedName, uid types.UID) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if uid == "" || l.told[pod].uid == uid {
		delete(l.told, pod)
	}
}

// Len is of how many pods something is told.
func (l *Links) Len() int {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.told)
}

// over says whether a pod says itself in which gang it is, or has a node.
func over(pod *v1.Pod) bool {
	return pod.Spec.NodeName != "" || pod.Annotations[keys.OwnGangAnnotation] != "" || pod.Annotations[keys.PodGroupAnnotation] != ""
}
