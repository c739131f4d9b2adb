package workload

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

func ptr[T any](v T) *T { return &v }

func group(change func(*v2alpha2.PodGroup)) *v2alpha2.PodGroup {
	g := &v2alpha2.PodGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "pg", UID: "u-pg",
			Labels:      map[string]string{"app": "x", keys.NodePoolLabel: "a100"},
			Annotations: map[string]string{"note": "1"},
		},
		Spec: v2alpha2.PodGroupSpec{
			MinMember: ptr(int32(2)), Queue: "research", PriorityClassName: "train",
			PreemptionDelay:    &metav1.Duration{Duration: time.Minute},
			TopologyConstraint: v2alpha2.TopologyConstraint{Topology: "dc", RequiredTopologyLevel: "rack"},
			SubGroups:          []v2alpha2.SubGroup{{Name: "a", MinMember: ptr(int32(1))}},
		},
	}
	if change != nil {
		change(g)
	}
	return g
}

// TestUpdatePatch: what the workload decides follows it, what others decide stays.
func TestUpdatePatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		existing, wanted func(*v2alpha2.PodGroup)
		want             string
	}{
		"equal":           {want: ``},
		"minimum":         {wanted: func(g *v2alpha2.PodGroup) { g.Spec.MinMember = ptr(int32(3)) }, want: `{"metadata":{"uid":"u-pg"},"spec":{"minMember":3}}`},
		"queue stays":     {wanted: func(g *v2alpha2.PodGroup) { g.Spec.Queue = "other" }},
		"node pool stays": {wanted: func(g *v2alpha2.PodGroup) { g.Labels[keys.NodePoolLabel] = "b200" }},
		"node pool that was removed stays removed": {existing: func(g *v2alpha2.PodGroup) { delete(g.Labels, keys.NodePoolLabel) }},
		"flags stay": {existing: func(g *v2alpha2.PodGroup) {
			g.Spec.MarkUnschedulable, g.Spec.SchedulingBackoff = ptr(false), ptr(int32(1))
		}},
		"topology stays where none is stated": {wanted: func(g *v2alpha2.PodGroup) { g.Spec.TopologyConstraint = v2alpha2.TopologyConstraint{} }},
		"topology changes whole": {
			wanted: func(g *v2alpha2.PodGroup) {
				g.Spec.TopologyConstraint = v2alpha2.TopologyConstraint{Topology: "dc", PreferredTopologyLevel: "rack"}
			},
			want: `{"metadata":{"uid":"u-pg"},"spec":{"topologyConstraint":{"preferredTopologyLevel":"rack","requiredTopologyLevel":null}}}`,
		},
		"foreign labels and annotations stay": {existing: func(g *v2alpha2.PodGroup) {
			g.Labels["mine"], g.Annotations[keys.LastStartAnnotation] = "1", "2026-01-01T00:00:00Z"
		}},
		"labels and annotations are added": {
			wanted: func(g *v2alpha2.PodGroup) { g.Labels["app"], g.Annotations["new"] = "y", "2" },
			want:   `{"metadata":{"annotations":{"new":"2"},"labels":{"app":"y"},"uid":"u-pg"}}`,
		},
		"what is not wanted any more": {
			wanted: func(g *v2alpha2.PodGroup) {
				g.Spec.PreemptionDelay, g.Spec.SubGroups, g.Spec.PriorityClassName = nil, nil, ""
			},
			want: `{"metadata":{"uid":"u-pg"},"spec":{"preemptionDelay":null,"priorityClassName":null,"subGroups":null}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := UpdatePatch(group(c.existing), group(c.wanted), keys.NodePoolLabel)
			if d := cmp.Diff(c.want, string(got)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// merge applies a JSON merge patch as RFC 7386 defines it.
func merge(t *rapid.T, to any, patch []byte) []byte {
	raw, err := json.Marshal(to)
	if err != nil {
		t.Fatal(err)
	}
	var target, change any
	if err := json.Unmarshal(raw, &target); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(patch, &change); err != nil {
		t.Fatal(err)
	}
	var apply func(target, patch any) any
	apply = func(target, patch any) any {
		p, isMap := patch.(map[string]any)
		if !isMap {
			return patch
		}
		out, isMap := target.(map[string]any)
		if !isMap {
			out = map[string]any{}
		}
		for k, v := range p {
			if v == nil {
				delete(out, k)
			} else {
				out[k] = apply(out[k], v)
			}
		}
		return out
	}
	if raw, err = json.Marshal(apply(target, change)); err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestUpdateConverges: after the patch there is nothing left to patch.
func TestUpdateConverges(t *testing.T) {
	t.Parallel()
	count := rapid.Custom(func(t *rapid.T) *int32 {
		if rapid.Bool().Draw(t, "set") {
			return ptr(rapid.Int32Range(0, 3).Draw(t, "n"))
		}
		return nil
	})
	word := rapid.SampledFrom([]string{"", "a", "b"})
	any := rapid.Custom(func(t *rapid.T) *v2alpha2.PodGroup {
		g := group(nil)
		g.Labels = rapid.MapOfN(rapid.SampledFrom([]string{"x", "y", keys.NodePoolLabel}), word, 0, 3).Draw(t, "labels")
		g.Annotations = rapid.MapOfN(rapid.SampledFrom([]string{"x", "y"}), word, 0, 2).Draw(t, "annotations")
		g.Spec.MinMember, g.Spec.PriorityClassName = count.Draw(t, "min"), word.Draw(t, "class")
		g.Spec.TopologyConstraint.Topology = word.Draw(t, "topology")
		g.Spec.TopologyConstraint.RequiredTopologyLevel = word.Draw(t, "required")
		g.Spec.SubGroups = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) v2alpha2.SubGroup {
			return v2alpha2.SubGroup{Name: word.Draw(t, "name"), MinMember: count.Draw(t, "min")}
		}), 0, 2).Draw(t, "subgroups")
		return g
	})
	rapid.Check(t, func(t *rapid.T) {
		existing, wanted := any.Draw(t, "existing"), any.Draw(t, "wanted")
		patch := UpdatePatch(existing, wanted, keys.NodePoolLabel)
		if patch == nil {
			return
		}
		patched := &v2alpha2.PodGroup{}
		if err := json.Unmarshal(merge(t, existing, patch), patched); err != nil {
			t.Fatal(err)
		}
		if again := UpdatePatch(patched, wanted, keys.NodePoolLabel); again != nil {
			t.Fatalf("after %s still wants %s", patch, again)
		}
		if patched.Spec.Queue != existing.Spec.Queue {
			t.Fatalf("%s changed the queue", patch)
		}
	})
}

func TestPodPatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		labels, annotations map[string]string
		subgroup, want      string
	}{
		"new":          {want: `{"metadata":{"annotations":{"pod-group-name":"pg"},"uid":"u"}}`},
		"with part":    {subgroup: "worker", want: `{"metadata":{"annotations":{"pod-group-name":"pg"},"labels":{"kai.scheduler/subgroup-name":"worker"},"uid":"u"}}`},
		"done":         {annotations: map[string]string{keys.PodGroupAnnotation: "pg"}},
		"wrong group":  {annotations: map[string]string{keys.PodGroupAnnotation: "mine"}, want: `{"metadata":{"annotations":{"pod-group-name":"pg"},"uid":"u"}}`},
		"stale part":   {annotations: map[string]string{keys.PodGroupAnnotation: "pg"}, labels: map[string]string{keys.SubGroupLabel: "old"}},
		"another part": {annotations: map[string]string{keys.PodGroupAnnotation: "pg"}, labels: map[string]string{keys.SubGroupLabel: "old"}, subgroup: "new", want: `{"metadata":{"labels":{"kai.scheduler/subgroup-name":"new"},"uid":"u"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Labels: c.labels, Annotations: c.annotations}}
			if d := cmp.Diff(c.want, string(PodPatch(pod, "pg", c.subgroup))); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// TestGroupName: whatever the owner is called, the name is one that the API server takes, and ends in the UID.
func TestGroupName(t *testing.T) {
	t.Parallel()
	const uid = types.UID("0b0f1c1e-7c7e-4a53-8f3c-111111111111")
	if got, want := GroupName("train", uid), "pg-train-"+string(uid); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.StringMatching(`[a-z0-9]([-a-z0-9.]{0,260}[a-z0-9])?`), rapid.StringN(0, 300, 300)).Draw(t, "name")
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 && plainName(name) && len(name) < 200 {
			return // no API object is called that: dots and dashes in places where no kind allows them
		}
		got := GroupName(name, uid)
		if errs := validation.IsDNS1123Subdomain(got); len(errs) > 0 || !strings.HasSuffix(got, string(uid)) {
			t.Fatalf("%q: %v", got, errs)
		}
	})
}

func TestTableRefuses(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][]Rule{
		"no kind":          {{Group: "g"}},
		"twice":            {{Kind: "K"}, {Kind: "K"}},
		"empty minimum":    {{Kind: "K", Minimum: []Source{{}}}},
		"double minimum":   {{Kind: "K", Minimum: []Source{{Path: "a", Sum: "b"}}}},
		"rest not a name":  {{Kind: "K", Parts: &Parts{Path: "p", Label: "l", Names: []string{"a"}, Rest: "b"}}},
		"parts of one pod": {{Kind: "K", Subject: EachPod, Parts: &Parts{Path: "p", Label: "l", Names: []string{"a"}, Rest: "a"}}},
	} {
		if _, err := NewTable(rules); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	byVersion, err := NewTable([]Rule{{Kind: "K"}, {Kind: "K", Versions: []string{"v1"}, PriorityClass: "build"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := byVersion.Rule(gvk("", "v1", "K")).PriorityClass; got != "build" {
		t.Errorf("v1 got the row of class %q", got)
	}
	if got := byVersion.Rule(gvk("", "v2", "K")).PriorityClass; got != "" {
		t.Errorf("v2 got the row of class %q", got)
	}
}

func TestKindDefaults(t *testing.T) {
	t.Parallel()
	got, err := ParseKindDefaults(`[{"typeName":"Job","group":"batch","priorityName":"build"},{"typeName":"Pod","preemptibility":"preemptible"}]`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]KindDefaults{"Job.batch": {PriorityClass: "build"}, "Pod": {Preemptibility: "preemptible"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{``, `{}`, `[{"group":"batch"}]`} {
		if _, err := ParseKindDefaults(bad); err == nil {
			t.Errorf("%q: accepted", bad)
		}
	}
}
