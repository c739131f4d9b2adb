package dialect

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
)

// ownedPod is a pod of Job train that has been told nothing of its gang.
func ownedPod(name string, change func(*v1.Pod)) *v1.Pod {
	p := pod(name)
	p.UID, p.Annotations = types.UID("u-"+name), map[string]string{}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "u-job", Controller: ptr.To(true)}}
	if change != nil {
		change(p)
	}
	return p
}

// TestGangOfOwner: a pod that says nothing of its gang is in that of its owner, in whatever order is told of them, if the PodGroup is for all pods of
// the owner alike, and of the queue that the pod names.
func TestGangOfOwner(t *testing.T) {
	t.Parallel()
	group := func(change func(*v2alpha2.PodGroup)) *v2alpha2.PodGroup {
		pg := aGroup("q", "")
		pg.Name = "pg-train-u-job"
		if change != nil {
			change(pg)
		}
		return pg
	}
	queue := func(q string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Labels = map[string]string{keys.QueueLabel: q} }
	}
	const in, out = "[pg-train-u-job u-object in q: p]", "[pg-train-u-job u-object in q: ]"
	for name, c := range map[string]struct {
		pod   func(*v1.Pod)
		group func(*v2alpha2.PodGroup)
		want  string
	}{
		"it says nothing":                   {nil, nil, in},
		"it names the queue":                {queue("q"), nil, in},
		"it names another queue":            {queue("r"), nil, out},
		"the gang was moved to its queue":   {queue("r"), func(pg *v2alpha2.PodGroup) { pg.Labels = map[string]string{keys.QueueLabel: "r"} }, in},
		"the gang has subgroups":            {nil, func(pg *v2alpha2.PodGroup) { pg.Spec.SubGroups = []v2alpha2.SubGroup{{Name: "a"}} }, out},
		"it names a subgroup":               {func(p *v1.Pod) { p.Labels = map[string]string{kai.SubGroupLabel: "a"} }, nil, out},
		"it names another gang":             {func(p *v1.Pod) { p.Annotations[kai.PodGroupAnnotation] = "g" }, nil, out},
		"it is not to be grouped":           {func(p *v1.Pod) { p.Annotations[keys.SkipPodGrouperAnnotation] = "true" }, nil, out},
		"what it was by itself is forged":   {func(p *v1.Pod) { p.Annotations[keys.OwnGangAnnotation] = "{}" }, nil, out},
		"its owner is another":              {func(p *v1.Pod) { p.OwnerReferences[0].UID = "u-other" }, nil, out},
		"its owner does not control it":     {func(p *v1.Pod) { p.OwnerReferences[0].Controller = nil }, nil, out},
		"it has two owners":                 {func(p *v1.Pod) { p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{}) }, nil, out},
		"it has no owner":                   {func(p *v1.Pod) { p.OwnerReferences = nil }, nil, out},
		"the PodGroup is of another's name": {nil, func(pg *v2alpha2.PodGroup) { pg.Name = "pg-train-u-other" }, "[pg-train-u-other u-object in q: ]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, pg := ownedPod("p", c.pod), group(c.group)
			forth := []Object{&v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}, &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "r"}}, p, pg}
			back := slices.Clone(forth)
			slices.Reverse(back)
			for _, order := range [][]Object{forth, back} {
				tr, store := NewTranslator(Options{Partition: kai.Partition{Key: kai.DefaultNodePoolKey}}), cluster.NewStore(cluster.Options{})
				apply := func(e cluster.Event) { store.Apply(e) }
				for _, o := range order {
					k, _ := KindOf(o)
					tr.Take(k, KeyOf(o), o, apply)
				}
				if got := fmt.Sprint(gangs(store)); got != c.want {
					t.Errorf("gangs %s, want %s", got, c.want)
				}
				if name == "it names the queue" { // and the gang is moved to another: the podgrouper is asked
					moved := pg.DeepCopy()
					moved.Spec.Queue = "r"
					tr.Take(PodGroups, KeyOf(moved), moved, apply)
					if got := fmt.Sprint(gangs(store)); got != "[pg-train-u-job u-object in r: ]" {
						t.Errorf("in another queue: gangs %s", got)
					}
				}
				tr.Take(PodGroups, KeyOf(pg), nil, apply)
				tr.Take(Pods, KeyOf(p), nil, apply)
				if n := len(tr.owned) + len(tr.admitted); n > 0 {
					t.Errorf("left over: %v, %v", tr.owned, tr.admitted)
				}
			}
		})
	}
}

// TestBindingNamesTheGang: a pod that nobody has told its gang is told by its Binding; one that was told, or is a gang by itself, is not.
func TestBindingNamesTheGang(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pod  func(*v1.Pod)
		gang string // that it was bound for
		want string
	}{
		"it says nothing":        {nil, "pg-train-u-job", "pg-train-u-job"},
		"bound for another":      {nil, "g", ""},
		"bound for none":         {nil, "", ""},
		"it names it":            {func(p *v1.Pod) { p.Annotations[kai.PodGroupAnnotation] = "pg-train-u-job" }, "pg-train-u-job", ""},
		"it is a gang by itself": {func(p *v1.Pod) { p.Annotations[keys.OwnGangAnnotation] = "{}" }, "pg-train-u-job", ""},
		"it has no owner":        {func(p *v1.Pod) { p.OwnerReferences = nil }, "pg-train-u-job", ""},
		"bound for Volcano's":    {nil, volcano.QueueName("pg-train-u-job"), ""}, // a gang of that name in another face
	} {
		in := kai.Intent{Namespace: "a", Pod: "p", PodUID: "u-p", Node: "n"}
		if face, gang := cluster.SplitQueue(c.gang); face != "" {
			in.Charged = cluster.Charged{Queue: volcano.QueueName("q"), Gang: volcano.GangKey("a", gang)}
		} else if c.gang != "" {
			in.Charged = cluster.Charged{Queue: "q", Gang: kai.GangKey("a", c.gang)}
		}
		b, err := in.Binding(ownedPod("p", c.pod))
		if err != nil || b.Annotations[kai.PodGroupAnnotation] != c.want {
			t.Errorf("%s: the Binding names %q, want %q (%v)", name, b.Annotations[kai.PodGroupAnnotation], c.want, err)
		}
		// If it was told of in memory what gang it is by itself, that comes instead, whoever makes the Binding.
		in.OwnGang = "{}"
		b, err = kai.Bind(in.BindRequest(), ownedPod("p", c.pod), "")
		if err != nil || b.Annotations[kai.PodGroupAnnotation] != "" || b.Annotations[keys.OwnGangAnnotation] != "{}" {
			t.Errorf("%s, and it is told of: the Binding says %v (%v)", name, b.Annotations, err)
		}
	}
}

// TestGangOfOwnerByItself: a pod that says nothing is judged by the gang of its owner too where another pod is that gang by itself, in whatever order is told
// of them; of a pod that is alone nothing is kept for that.
func TestGangOfOwnerByItself(t *testing.T) {
	t.Parallel()
	by := func(queue string) *v1.Pod {
		p := ownGangPod("o", queue, "")
		pg := aGroup(queue, "")
		pg.Name, pg.OwnerReferences = "pg-train-u-job", []metav1.OwnerReference{{UID: "u-job"}}
		p.Annotations[keys.OwnGangAnnotation] = kai.WriteOwnGang(p, pg, kai.DefaultNodePoolKey)
		return p
	}
	says := func(queue string) *v1.Pod {
		return ownedPod("p", func(p *v1.Pod) { p.Labels = map[string]string{keys.QueueLabel: queue} })
	}
	const without, with, moved = "[pg-train-u-job u-job in q: o]", "[pg-train-u-job u-job in q: o p]", "[pg-train-u-job u-job in r: o]"
	for _, first := range []string{"o", "p"} {
		tr, store := NewTranslator(Options{Partition: kai.Partition{Key: kai.DefaultNodePoolKey}}), cluster.NewStore(cluster.Options{})
		apply := func(e cluster.Event) { store.Apply(e) }
		is := func(step, want string, objects ...Object) {
			t.Helper()
			for _, o := range objects {
				k, _ := KindOf(o)
				tr.Take(k, KeyOf(o), o, apply)
			}
			if got := fmt.Sprint(gangs(store)); got != want {
				t.Errorf("%s first, %s: gangs %s, want %s", first, step, got, want)
			}
		}
		is("queues", "[]", &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}, &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "r"}})
		if first == "o" {
			is("it comes", without, by("q"))
			if len(tr.admitted) != 0 {
				t.Errorf("kept of a pod that is alone: %v", tr.admitted)
			}
			is("one of another queue", without, says("r"))
		} else {
			tr.Take(Pods, KeyOf(says("r")), says("r"), apply)
			is("it comes, of another queue", without, by("q"))
		}
		is("it is of the queue", with, says("q"))
		is("the gang is of another queue", moved, by("r"))
		is("and back", with, by("q"))
		tr.Take(Pods, KeyOf(says("q")), nil, apply)
		is("it is alone", without)
		is("the gang is of another queue", moved, by("r"))
		is("one of its former queue", moved, says("q"))
		tr.Take(Pods, KeyOf(by("r")), nil, apply)
		tr.Take(Pods, KeyOf(says("q")), nil, apply)
		if n := len(tr.owned) + len(tr.admitted); n > 0 {
			t.Errorf("left over: %v, %v", tr.owned, tr.admitted)
		}
	}
}
