package links

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

func pod(name, uid string, edits ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(uid), Annotations: map[string]string{"other": "kept"}}}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func bound(p *v1.Pod) { p.Spec.NodeName = "n" }

func says(key string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations[key] = "itself" }
}

func open() *Links {
	l := New()
	l.Open(func(labels map[string]string) bool { return labels["pool"] == "" })
	return l
}

// TestTell: who is told what, since when, and who hears of it.
func TestTell(t *testing.T) {
	t.Parallel()
	l, at := New(), time.Unix(1000, 0)
	var heard []string
	l.Hear(func(pod types.NamespacedName) { heard = append(heard, pod.Name) })
	tell := func(p *v1.Pod, labels map[string]string, text string) string {
		since, ok := l.Tell(p, labels, text, at)
		at = at.Add(time.Second)
		if !ok {
			return "no"
		}
		return fmt.Sprint(since.Unix())
	}
	got := []string{tell(pod("p", "u"), nil, "before anybody leads")}
	l.Open(func(labels map[string]string) bool { return labels["pool"] == "" })
	got = append(got,
		tell(pod("p", "u"), nil, "one"), tell(pod("p", "u"), nil, "one"), tell(pod("p", "u"), nil, "two"), tell(pod("p", "another"), nil, "three"),
		tell(pod("q", "q"), map[string]string{"pool": "gold"}, "of another shard"), tell(pod("q", "q"), nil, ""), tell(pod("q", "q", bound), nil, "bound"),
		tell(pod("q", "q", says(keys.OwnGangAnnotation)), nil, "it says so"), tell(pod("q", "q", says(keys.PodGroupAnnotation)), nil, "it names a group"))
	if want := []string{"no", "1001", "1001", "1001", "1004", "no", "no", "no", "no", "no"}; !slices.Equal(got, want) {
		t.Errorf("told since %v, want %v", got, want)
	}
	if want := []string{"p", "p", "p"}; !slices.Equal(heard, want) { // first, another text, another pod
		t.Errorf("heard of %v, want %v", heard, want)
	}
	if was, is := l.Text(pod("p", "u")), l.Text(pod("p", "another")); was != "" || is != "three" || l.Len() != 1 {
		t.Errorf("the pod before is told %q, the pod %q; of %d", was, is, l.Len())
	}
	given := pod("p", "another")
	with := l.With(given)
	if with.Annotations[keys.OwnGangAnnotation] != "three" || with.Annotations["other"] != "kept" || given.Annotations[keys.OwnGangAnnotation] != "" {
		t.Errorf("with: %v, given %v", with.Annotations, given.Annotations)
	}
	bare := pod("p", "another")
	bare.Annotations = nil
	if l.With(bare).Annotations[keys.OwnGangAnnotation] != "three" {
		t.Error("a pod without annotations gets none")
	}
	for _, p := range []*v1.Pod{pod("p", "u"), pod("p", "another", bound), pod("p", "another", says(keys.OwnGangAnnotation)), pod("p", "another", says(keys.PodGroupAnnotation))} {
		if l.With(p) != p {
			t.Errorf("%+v reads as something else", p)
		}
	}
}

// TestMemory: nothing is kept of pods that need it no more, whatever ends them and in whatever order that is heard.
func TestMemory(t *testing.T) {
	t.Parallel()
	key := types.NamespacedName{Namespace: "a", Name: "p"}
	for name, c := range map[string]struct {
		end  func(l *Links)
		left int
	}{
		"nothing happens":             {func(*Links) {}, 1},
		"it is seen as it is":         {func(l *Links) { l.Saw(pod("p", "u")) }, 1},
		"another is seen":             {func(l *Links) { l.Saw(pod("q", "q", bound)) }, 1},
		"another is gone":             {func(l *Links) { l.Gone(types.NamespacedName{Namespace: "b", Name: "p"}, "u") }, 1},
		"a former one is bound, late": {func(l *Links) { l.Saw(pod("p", "former", bound)) }, 1},
		"a former one is gone, late":  {func(l *Links) { l.Gone(key, "former") }, 1},
		"it is bound":                 {func(l *Links) { l.Saw(pod("p", "u", bound)) }, 0},
		"it is written":               {func(l *Links) { l.Saw(pod("p", "u", says(keys.OwnGangAnnotation))) }, 0},
		"it has a PodGroup":           {func(l *Links) { l.Saw(pod("p", "u", says(keys.PodGroupAnnotation))) }, 0},
		"it is gone":                  {func(l *Links) { l.Gone(key, "u") }, 0},
		"who knows which is gone":     {func(l *Links) { l.Gone(key, "") }, 0},
		"another of its name is told": {func(l *Links) { l.Tell(pod("p", "another"), nil, "text", time.Time{}) }, 1},
	} {
		l := open()
		l.Tell(pod("p", "u"), nil, "text", time.Time{})
		if c.end(l); l.Len() != c.left {
			t.Errorf("%s: something is kept of %d, want %d", name, l.Len(), c.left)
		}
	}
}

// TestNil: where nobody hears, nothing can be told.
func TestNil(t *testing.T) {
	t.Parallel()
	var l *Links
	p := pod("p", "u")
	l.Open(nil)
	l.Hear(nil)
	l.Saw(p)
	l.Saw(pod("p", "u", bound))
	l.Gone(types.NamespacedName{}, "")
	if _, ok := l.Tell(p, nil, "text", time.Time{}); ok || l.With(p) != p || l.Len() != 0 {
		t.Error("nobody was told")
	}
}
