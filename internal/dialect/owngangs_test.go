package dialect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// ownGangPod is a pod that is gang g of a queue by itself.
func ownGangPod(name, queue, pool string) *v1.Pod {
	p := pod(name)
	p.UID, p.Annotations = types.UID("u-"+name), map[string]string{}
	pg := aGroup(queue, pool)
	pg.OwnerReferences = []metav1.OwnerReference{{UID: "u-job"}}
	p.Annotations[keys.OwnGangAnnotation] = kai.WriteOwnGang(p, pg, kai.DefaultNodePoolKey)
	return p
}

func aGroup(queue, pool string) *v2alpha2.PodGroup {
	pg := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "g", UID: "u-object"}, Spec: v2alpha2.PodGroupSpec{Queue: queue}}
	if pool != "" {
		pg.Labels = map[string]string{kai.DefaultNodePoolKey: pool}
	}
	return pg
}

// gangs tells of a store: each gang with its UID, queue and pods.
func gangs(s *cluster.Store) (out []string) {
	snap := s.Snapshot(cluster.InstantOf(time.Now()))
	snap.EachGang(func(g *cluster.Gang) {
		var pods []string
		for _, id := range g.Pods {
			pods = append(pods, snap.Pod(id).Name)
		}
		slices.Sort(pods)
		out = append(out, fmt.Sprintf("%s %s in %s: %s", g.Key.Name, g.UID, g.Queue, strings.Join(pods, " ")))
	})
	return out
}

// TestOwnGangs: a pod that is a gang by itself is that gang, unless there is a PodGroup of its name, in whatever order is told of them.
func TestOwnGangs(t *testing.T) {
	t.Parallel()
	named := ownGangPod("p", "q", "")
	named.Annotations[kai.PodGroupAnnotation] = "g"
	copied := ownGangPod("p", "q", "")
	copied.UID = "u-another"
	bound := ownGangPod("p", "q", "")
	bound.Spec.NodeName = "n"
	for k, v := range kai.WriteCharged(cluster.Charged{Queue: "q", Gang: kai.GangKey("a", "g")}) {
		bound.Annotations[k] = v
	}
	renamed := bound.DeepCopy()
	renamed.Annotations[kai.PodGroupAnnotation] = "nothing"
	for name, c := range map[string]struct {
		objects []Object
		want    []string
	}{
		"a pod":                               {[]Object{ownGangPod("p", "q", "")}, []string{"g u-job in q: p"}},
		"bound":                               {[]Object{bound}, []string{"g u-job in q: p"}},
		"bound, and it names another since":   {[]Object{renamed}, []string{"g u-job in q: p"}},
		"of another shard":                    {[]Object{ownGangPod("p", "q", "gold")}, nil},
		"a copy of another's":                 {[]Object{copied}, nil},
		"it names a PodGroup, which is not":   {[]Object{named}, nil},
		"a PodGroup of its queue":             {[]Object{ownGangPod("p", "q", ""), aGroup("q", "")}, []string{"g u-object in q: p"}},
		"a PodGroup of another queue":         {[]Object{ownGangPod("p", "q", ""), aGroup("r", "")}, []string{"g u-object in r: "}},
		"a PodGroup of another shard":         {[]Object{ownGangPod("p", "q", ""), aGroup("q", "gold")}, nil},
		"two pods":                            {[]Object{ownGangPod("p", "q", ""), ownGangPod("o", "q", "")}, []string{"g u-job in q: o p"}},
		"two pods that name different queues": {[]Object{ownGangPod("p", "q", ""), ownGangPod("o", "r", "")}, []string{"g u-job in r: o"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queues := []Object{&v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}, &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "r"}}}
			forth := slices.Concat(queues, c.objects)
			back := slices.Clone(forth)
			slices.Reverse(back)
			for _, order := range [][]Object{forth, back} {
				tr, store := NewTranslator(Options{Partition: kai.Partition{Key: kai.DefaultNodePoolKey}}), cluster.NewStore(cluster.Options{})
				apply := func(e cluster.Event) { store.Apply(e) }
				for _, o := range order {
					k, _ := KindOf(o)
					tr.Take(k, KeyOf(o), o, apply)
				}
				got := gangs(store)
				if fmt.Sprint(got) != fmt.Sprint(c.want) {
					t.Errorf("gangs %q, want %q", got, c.want)
				}
				// What hid them goes, then they do.
				for _, o := range c.objects {
					if _, is := o.(*v2alpha2.PodGroup); is {
						tr.Take(PodGroups, KeyOf(o), nil, apply)
						if got := gangs(store); fmt.Sprint(got) != "[g u-job in q: p]" {
							t.Errorf("without the PodGroup: gangs %q", got)
						}
					}
				}
				for _, o := range c.objects {
					k, _ := KindOf(o)
					tr.Take(k, KeyOf(o), nil, apply)
				}
				if got := gangs(store); len(got)+len(tr.owns)+len(tr.groups)+len(tr.gangs) > 0 {
					t.Errorf("left over: %q, %v, %v, %v", got, tr.owns, tr.groups, tr.gangs)
				}
			}
		})
	}
}
