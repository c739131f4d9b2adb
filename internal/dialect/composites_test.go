package dialect

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
)

// drawSets writes a tree of sets in a line: NAME:MINIMUM(CHILDREN), a leaf with the UID of its object.
func drawSets(sets []cluster.Set, i int32) string {
	s := &sets[i]
	if s.Leaf {
		return fmt.Sprintf("%s:%d=%s", s.Name, s.Min, s.UID)
	}
	var below []string
	for _, c := range s.Children {
		below = append(below, drawSets(sets, c))
	}
	slices.Sort(below)
	return fmt.Sprintf("%s:%d(%s)", s.Name, s.Min, strings.Join(below, " "))
}

// TestUpstreamsTrees: whatever names whatever as its parent, told of in whatever order, which gang pods are in, in which set, and what sets a tree has, is as a slow reading says: a group
// that comes to a composite without a parent in at most three steps is in its tree, and every other that names a parent waits by itself.
func TestUpstreamsTrees(t *testing.T) {
	t.Parallel()
	trees, orphans := 0, 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 3))
		names := []string{"c1", "c2", "c3", "c4", "c5"}
		composites, groups, pods := map[string]*schedulingv1alpha3.CompositePodGroup{}, map[string]*schedulingv1beta1.PodGroup{}, map[string]string{}
		var objects []Object
		for i, c := range names {
			parent := ""
			switch r.IntN(4) {
			case 0:
			case 1:
				parent = names[r.IntN(len(names))] // a loop, perhaps
			default:
				parent = names[max(0, i-1)]
			}
			if parent == c && r.IntN(2) == 0 {
				parent = ""
			}
			if r.IntN(8) > 0 {
				composites[c] = compositeOf(c, "q", parent)
				composites[c].Spec.SchedulingPolicy.Gang.MinGroupCount = 1
				objects = append(objects, composites[c])
			}
		}
		for _, g := range []string{"g", "h", "i"} {
			groups[g] = upstreamGroupOf(g, "q", "")
			if r.IntN(6) > 0 {
				groups[g].Spec.ParentCompositePodGroupName = &names[r.IntN(len(names))]
			}
			if r.IntN(6) == 0 {
				groups[g].DeletionTimestamp = &metav1.Time{Time: metav1.Unix(9, 0).Time}
			}
			p := upstreamPod("p"+g, "p"+g, g, "q", 1)
			pods[p.Name] = g
			objects = append(objects, groups[g], p)
		}
		r.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
		snap := told(Options{}, objects)

		root := func(g string) (path []string, root string) {
			at := groups[g].Spec.ParentCompositePodGroupName
			for at != nil {
				c := composites[*at]
				if c == nil || len(path) == 3 {
					return nil, ""
				}
				path, root, at = append(path, *at), *at, c.Spec.ParentCompositePodGroupName
			}
			return path, root
		}
		wantGang, wantSet, below := map[string]string{}, map[string]string{}, map[string]map[string]bool{}
		put := func(parent, child string) {
			if below[parent] == nil {
				below[parent] = map[string]bool{}
			}
			below[parent][child] = true
		}
		for p, g := range pods { // order: each by itself
			path, top := root(g)
			wantGang[p], wantSet[p] = upstream.Face+" "+g, ""
			if top == "" {
				if groups[g].Spec.ParentCompositePodGroupName != nil {
					orphans++
				}
				if is := snap.GangByKey(upstream.GangKey("ns", g)); is == nil || (is.Invalid != "") != (groups[g].Spec.ParentCompositePodGroupName != nil || groups[g].DeletionTimestamp != nil) {
					t.Fatalf("seed %d: group %s by itself is %+v", seed, g, is)
				}
				continue
			}
			trees++
			wantGang[p], wantSet[p] = upstream.CompositeFace+" "+top, g
			if groups[g].DeletionTimestamp != nil {
				wantSet[p] = g + " (being deleted)"
			}
			child := "g " + g
			for _, c := range path {
				put(c, child)
				child = c
			}
			if is := snap.GangByKey(upstream.GangKey("ns", g)); is != nil {
				t.Fatalf("seed %d: group %s is in the tree of %s, and a gang besides: %+v", seed, g, top, is)
			}
		}
		gotGang, gotSet := map[string]string{}, map[string]string{}
		snap.EachPod(func(p *cluster.Pod) {
			gotGang[p.Name], gotSet[p.Name] = p.GangKey().Face+" "+p.GangKey().Name, p.SetName()
		})
		if d := cmp.Diff(wantGang, gotGang) + cmp.Diff(wantSet, gotSet); d != "" {
			t.Fatalf("seed %d: gangs and sets of pods (-want +got):\n%s", seed, d)
		}
		var draw func(c string, top bool) string
		draw = func(c string, top bool) string {
			var parts []string
			for child := range maps.Keys(below[c]) { // order: sorted
				if g, leaf := strings.CutPrefix(child, "g "); leaf {
					parts = append(parts, fmt.Sprintf("%s:2=u-%s", g, g))
				} else {
					parts = append(parts, draw(child, false))
				}
			}
			slices.Sort(parts)
			name := c + "/"
			if top {
				name = ""
			}
			return fmt.Sprintf("%s:1(%s)", name, strings.Join(parts, " "))
		}
		for c, o := range composites { // order: each by itself
			is := snap.GangByKey(upstream.CompositeKey("ns", c))
			switch {
			case o.Spec.ParentCompositePodGroupName != nil && is != nil, o.Spec.ParentCompositePodGroupName == nil && is == nil:
				t.Fatalf("seed %d: composite %s is the gang %+v", seed, c, is)
			case is == nil:
			case len(below[c]) == 0 != (is.Invalid != ""):
				t.Fatalf("seed %d: tree %s with %v below it is %+v", seed, c, below[c], is)
			case len(below[c]) > 0:
				if got, want := drawSets(is.Sets, 0), draw(c, true); got != want {
					t.Fatalf("seed %d: tree %s is\n%s\nwant\n%s", seed, c, got, want)
				}
			}
		}
	}
	if trees < 100 || orphans < 100 {
		t.Errorf("%d groups were in trees, %d in none", trees, orphans)
	}
}

// TestUpstreamsTreeHolds: what runs for a tree, on record or not, is the tree's, whatever of it comes first; and another shard's tree is nothing to us, whatever its groups say.
func TestUpstreamsTreeHolds(t *testing.T) {
	t.Parallel()
	const pool = "example.com/pool"
	group := func(name, queue string) *schedulingv1beta1.PodGroup {
		pg, parent := upstreamGroupOf(name, queue, ""), "inner"
		pg.Spec.ParentCompositePodGroupName = &parent
		return pg
	}
	bound := upstreamPod("p", "p", "g", "q", 1)
	bound.Spec.NodeName, bound.Status.Phase = "n", "Running"
	waits := upstreamPod("w", "w", "g", "q", 1)
	theirs := compositeOf("root", "q", "")
	theirs.Labels[pool] = "other"
	nodes := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}
	for _, c := range []struct {
		what    string
		objects []Object
		of      cluster.Key
		pods    int
	}{
		{"ours", []Object{nodes, compositeOf("root", "q", ""), compositeOf("inner", "", "root"), group("g", ""), bound, waits}, upstream.CompositeKey("ns", "root"), 2},
		{"others'", []Object{nodes, theirs, compositeOf("inner", "", "root"), group("g", "q"), waits}, upstream.CompositeKey("ns", "root"), 0},
	} {
		for seed := range uint64(200) {
			r := rand.New(rand.NewPCG(seed, 4))
			objects := slices.Clone(c.objects)
			r.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
			options := Options{}
			options.Partition.Key = pool
			snap, pods := told(options, objects), 0
			if g := snap.GangByKey(c.of); g != nil {
				pods = len(g.Pods)
			}
			if all := 0; pods != c.pods {
				t.Errorf("%s, seed %d: gang %s has %d pods, want %d", c.what, seed, c.of, pods, c.pods)
			} else if snap.EachPod(func(*cluster.Pod) { all++ }); all != c.pods {
				t.Errorf("%s, seed %d: %d pods are known, want %d", c.what, seed, all, c.pods)
			}
			if g := snap.GangByKey(c.of); g != nil && (g.Queue != "q" || g.StrayPods > 0) {
				t.Errorf("%s, seed %d: the gang is %+v", c.what, seed, g)
			}
		}
	}
	// The record has the face of the tree, and comes back from it.
	if key := upstream.CompositeKey("ns", "root"); cluster.RemnantKey(key, "q").Former() != key || cluster.GroupKey("ns", cluster.GroupName(key, "q"), "q") != key {
		t.Errorf("a remnant of %v was one of %v", key, cluster.RemnantKey(key, "q").Former())
	}
	if o, ok := Group(upstream.CompositeKey("ns", "root"), "u").(*schedulingv1alpha3.CompositePodGroup); !ok || o.Name != "root" || o.UID != "u" {
		t.Error("the object of a tree is not its root")
	}
}
