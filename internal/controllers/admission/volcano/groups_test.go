package volcano

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/kube/filters/podtemplate"
)

// volcanosGroups is the file as Volcano's installation shows it in a comment.
const volcanosGroups = `resourceGroups:
- resourceGroup: management
  object:
    key: namespace
    value:
    - mng-ns-1
  schedulerName: default-scheduler
  tolerations:
  - effect: NoSchedule
    key: taint
    operator: Exists
  labels:
    volcano.sh/nodetype: management
- resourceGroup: cpu
  object:
    key: annotation
    value:
    - "volcano.sh/resource-group: cpu"
  schedulerName: volcano
  labels:
    volcano.sh/nodetype: cpu
- resourceGroup: gpu
  schedulerName: volcano
  affinity: '{"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}}}'
  labels:
    volcano.sh/nodetype: gpu
`

// TestGroups: Volcano's file is three templates; each says which pods are of its group and which are of one before it.
func TestGroups(t *testing.T) {
	t.Parallel()
	got, told, err := ParseGroups([]byte(volcanosGroups), "volcano-system", podtemplate.Validate)
	if err != nil || len(told) > 0 || len(got) != 3 {
		t.Fatalf("%d templates, told %v: %v", len(got), told, err)
	}
	note := func(v string) corev1.EnvVar { return corev1.EnvVar{Name: "volcano.sh/resource-group", Value: v} }
	for i, want := range []struct {
		name, scheduler string
		of, not         []string
		ofNotes         []corev1.EnvVar
		notNotes        []corev1.EnvVar
		tolerations     int
		affinity        bool
	}{
		{"management", "default-scheduler", []string{"mng-ns-1"}, nil, nil, nil, 1, false},
		{"cpu", "volcano", nil, []string{"mng-ns-1"}, []corev1.EnvVar{note("cpu")}, nil, 0, false},
		{"gpu", "volcano", nil, []string{"mng-ns-1"}, []corev1.EnvVar{note("gpu")}, []corev1.EnvVar{note("cpu")}, 0, true},
	} {
		p := got[i]
		s := p.Template.Spec
		have := []any{p.Annotations[GroupNameAnnotation], p.Annotations[GroupSchedulerAnnotation], s.Containers[0].Args, s.Containers[1].Args, s.Containers[0].Env, s.Containers[1].Env, len(s.Tolerations), s.Affinity != nil, s.NodeSelector}
		if d := cmp.Diff([]any{want.name, want.scheduler, want.of, want.not, want.ofNotes, want.notNotes, want.tolerations, want.affinity, map[string]string{"volcano.sh/nodetype": want.name}}, have); d != "" {
			t.Errorf("%s: -want +got:\n%s", want.name, d)
		}
		if p.Namespace != "volcano-system" || p.Labels[GroupLabel] != "true" || s.Containers[0].Name != GroupOf || s.Containers[1].Name != GroupNot {
			t.Errorf("%+v", p.ObjectMeta)
		}
	}
	again, _, err := ParseGroups([]byte(volcanosGroups), "volcano-system", nil)
	if d := cmp.Diff(got, again); err != nil || d != "" {
		t.Errorf("the same file is read otherwise: %v\n%s", err, d)
	}
	other, _, err := ParseGroups([]byte(strings.Replace(volcanosGroups, "mng-ns-1", "mng-ns-2", 1)), "volcano-system", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range other { // each says it, the later ones of those before them
		if other[i].Name == got[i].Name {
			t.Errorf("%s is called as before", other[i].Annotations[GroupNameAnnotation])
		}
	}
}

// TestGroupFingerprint: whatever the policy reads of a template changes its fingerprint.
func TestGroupFingerprint(t *testing.T) {
	t.Parallel()
	all, _, err := ParseGroups([]byte(volcanosGroups), "volcano-system", nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := all[2]
	whole.Template.Spec.Tolerations = []corev1.Toleration{{Key: "k"}}
	seen := map[string]string{GroupFingerprint(whole): "nothing"}
	for name, change := range map[string]func(*corev1.PodTemplate){
		"label":      func(p *corev1.PodTemplate) { p.Labels[GroupLabel] = "" },
		"name":       func(p *corev1.PodTemplate) { p.Annotations[GroupNameAnnotation] = "x" },
		"scheduler":  func(p *corev1.PodTemplate) { delete(p.Annotations, GroupSchedulerAnnotation) },
		"namespaces": func(p *corev1.PodTemplate) { p.Template.Spec.Containers[0].Args = []string{"x"} },
		"notes":      func(p *corev1.PodTemplate) { p.Template.Spec.Containers[0].Env[0].Value = "x" },
		"before":     func(p *corev1.PodTemplate) { p.Template.Spec.Containers[1].Env = nil },
		"selector":   func(p *corev1.PodTemplate) { p.Template.Spec.NodeSelector["x"] = "" },
		"toleration": func(p *corev1.PodTemplate) { p.Template.Spec.Tolerations[0].Operator = "Exists" },
		"affinity":   func(p *corev1.PodTemplate) { p.Template.Spec.Affinity = nil },
	} { // order: each on its own
		p := whole.DeepCopy()
		change(p)
		f := GroupFingerprint(p)
		if was, ok := seen[f]; ok {
			t.Errorf("%s changes as little as %s", name, was)
		}
		seen[f] = name
	}
}

// TestGroupsRefused: a bad file is refused whole, with the line, the field and the rule; a file without groups has none.
func TestGroupsRefused(t *testing.T) {
	t.Parallel()
	group := func(rest string) string { return "# a comment\nresourceGroups:\n- resourceGroup: g\n  " + rest + "\n" }
	for text, want := range map[string]string{
		"": "", "# nothing\n": "", "resourceGroups:\n": "", "resourceGroups: []": "",
		"resourceGroups: [":             "line 1: the file is not YAML",
		"words":                         "line 1: the file must be a mapping",
		"a: &x [1]\nresourceGroups: *x": "line 1: the file has an anchor or alias",
		"resourceGroups: {}":            "line 1: resourceGroups must be a list of at most 64 groups",
		"resourceGroups: [" + strings.Repeat("{resourceGroup: g},", 65) + "]": "resourceGroups must be a list of at most 64 groups",
		"resourceGroups:\n- labels: {a: b}":                                   "line 2: resourceGroups[0] has neither a name",
		"resourceGroups:\n- {resourceGroup: g, resourceGroup: h}":             `line 2: resourceGroups[0] has the key "resourceGroup" twice`,
		group("schedulerName: A_B"):                                           `line 4: resourceGroups[0].schedulerName is "A_B", which is no name of a scheduler`,
		group("schedulerName: 7"):                                             "line 4: resourceGroups[0].schedulerName must be a text",
		group("object: {key: label, value: [a]}"):                             `line 4: resourceGroups[0].object.key is "label"; it must be namespace or annotation`,
		group("object: {key: namespace}"):                                     "line 4: resourceGroups[0].object.value must be a list of 1 to 256 values",
		group("object: {key: namespace, value: [A]}"):                         `line 4: resourceGroups[0].object.value[0] is "A", which is no name of a namespace`,
		group("object:\n    key: annotation\n    value:\n    - cpu"):          `line 7: resourceGroups[0].object.value[0] must be a text of the form "KEY: VALUE"`,
		group(`object: {key: annotation, value: ["a b: c"]}`):                 `names "a b", which is no key of an annotation`,
		group("labels: {a: 'b c'}"):                                           "line 3: resourceGroups[0] gives pods what an API server refuses: group.spec.nodeSelector",
		group("labels: {a: [1]}"):                                             "line 4: resourceGroups[0].labels cannot be read",
		group("tolerations: [{key: a, operator: Maybe}]"):                     "gives pods what an API server refuses: group.spec.tolerations[0].operator",
		group("tolerations: [{kee: a}]"):                                      "line 4: resourceGroups[0].tolerations cannot be read",
		group("affinity: '{\"nodeAffinity\": 3}'"):                            "line 4: resourceGroups[0].affinity cannot be read",
		"#" + strings.Repeat("x", MostGroupBytes):                             "line 1: the file has 65537 bytes, of at most 65536",
	} { // order: each on its own
		got, _, err := ParseGroups([]byte(text), "ns", podtemplate.Validate)
		var fault GroupFault
		if want == "" && (err != nil || len(got) > 0) || want != "" && (!errors.As(err, &fault) || !strings.Contains(err.Error(), want) || got != nil) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
	_, told, err := ParseGroups([]byte("more: 1\n"+group("color: red\n  object: {key: Namespace, value: [a], kind: x}")), "ns", podtemplate.Validate)
	if want := "[line 1: more is not known, and has no effect line 5: resourceGroups[0].color is not known, and has no effect line 6: resourceGroups[0].object.kind is not known, and has no effect]"; err != nil || fmt.Sprint(told) != want {
		t.Errorf("told %v, %v", told, err)
	}
}

// FuzzGroups: whatever the file says, it is refused or becomes templates that an API server takes.
func FuzzGroups(f *testing.F) {
	f.Add([]byte(volcanosGroups))
	f.Add([]byte("resourceGroups:\n- resourceGroup: \"'] || true || ['\"\n  schedulerName: \"x' + 'y\"\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, _, err := ParseGroups(text, "ns", podtemplate.Validate)
		if err != nil && err.Error() == "" || len(got) > MostGroups {
			t.Errorf("%d groups, %v", len(got), err)
		}
	})
}
