package volcano

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kyaml "sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/volcano/keys"
)

// The bounds of a file of resource groups: its bytes, how many groups it has, how many values one names, and how many aliases of YAML: none.
const (
	MostGroupBytes  = 64 << 10
	MostGroups      = 64
	MostGroupValues = 256
)

// What a PodTemplate that stands for a resource group says, besides its spec. A policy of the API server's reads it: see admission.Options.VolcanoMutations.
const (
	// GroupLabel is "true" on it (label).
	GroupLabel = "muster.dev/volcano-resource-group"
	// GroupNameAnnotation is the group's name, for people.
	GroupNameAnnotation = "muster.dev/volcano-resource-group-name"
	// GroupSchedulerAnnotation is the scheduler that pods of the group get; without it they keep theirs. The spec has one in any case: the API server fills it in.
	GroupSchedulerAnnotation = "muster.dev/volcano-scheduler-name"
	// GroupOf and GroupNot are the containers that say which pods are of the group, and which of them are of one before it: args are namespaces, env are annotations.
	GroupOf  = "of"
	GroupNot = "not"
)

// GroupFault is something that is wrong with a file of resource groups, or without effect in it.
type GroupFault struct {
	Line  int    // counted from 1
	Field string // such as resourceGroups[0].object.key
	Rule  string // what is wrong, in words that follow the field's name
}

// Error says all of it.
func (f GroupFault) Error() string { return fmt.Sprintf("line %d: %s %s", f.Line, f.Field, f.Rule) }

// group is a resource group as the file says it.
type group struct {
	name, scheduler string
	namespaces      []string
	notes           []corev1.EnvVar // annotations: one of them is enough
	labels          map[string]string
	tolerations     []corev1.Toleration
	affinity        *corev1.Affinity
	line            int
}

// groupReader reads one file.
type groupReader struct {
	told []GroupFault
}

// ParseGroups reads the file of Volcano's admission, of which resourceGroups have an effect, and returns a PodTemplate in namespace for each group, in the file's order: which pods are of it and of
// none before it, and what they get. Its name is made of all that it says, so that two that differ have different names. told are what has no effect. The error is a GroupFault: a file is
// taken whole or refused whole. check judges the templates; nil takes them all.
func ParseGroups(text []byte, namespace string, check TemplateCheck) (out []*corev1.PodTemplate, told []GroupFault, err error) {
	r := groupReader{}
	groups, err := r.file(text)
	if err != nil {
		return nil, nil, err
	}
	var before group
	for i, g := range groups {
		t := g.template(namespace, &before)
		if check != nil {
			if faults := check(&t.Template, field.NewPath("group")); len(faults) > 0 {
				f := faults[0]
				return nil, nil, GroupFault{g.line, fmt.Sprintf("resourceGroups[%d]", i), "gives pods what an API server refuses: " + f.Error()}
			}
		}
		before.namespaces, before.notes = append(before.namespaces, g.namespaces...), append(before.notes, g.notes...)
		out = append(out, t)
	}
	return out, r.told, nil
}

// GroupFingerprint is a text made of all that the policy reads of a PodTemplate.
func GroupFingerprint(t *corev1.PodTemplate) string {
	said := map[string]any{
		"label": t.Labels[GroupLabel], "name": t.Annotations[GroupNameAnnotation], "scheduler": t.Annotations[GroupSchedulerAnnotation],
		"selector": t.Template.Spec.NodeSelector, "tolerations": t.Template.Spec.Tolerations, "affinity": t.Template.Spec.Affinity,
	}
	for i := range t.Template.Spec.Containers {
		c := &t.Template.Spec.Containers[i]
		said[fmt.Sprintf("container %d", i)] = []any{c.Name, c.Args, c.Env}
	}
	body, err := json.Marshal(said)
	if err != nil {
		panic(err) // maps and lists of strings and of Kubernetes' own types
	}
	return fmt.Sprintf("%x", sha256.Sum256(body))
}

// template is the group as the policy reads it. before are the pods of the groups before it.
func (g *group) template(namespace string, before *group) *corev1.PodTemplate {
	names := func(name string, of *group) corev1.Container {
		return corev1.Container{Name: name, Image: "none", Args: append([]string(nil), of.namespaces...), Env: append([]corev1.EnvVar(nil), of.notes...)}
	}
	t := &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{GroupLabel: "true"}, Annotations: map[string]string{GroupNameAnnotation: g.name}},
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{names(GroupOf, g), names(GroupNot, before)}, NodeSelector: g.labels, Tolerations: g.tolerations, Affinity: g.affinity,
		}},
	}
	if g.scheduler != "" {
		t.Annotations[GroupSchedulerAnnotation] = g.scheduler
	}
	t.Name = "muster-resource-group-" + GroupFingerprint(t)[:20]
	return t
}

// entry is a key of a mapping with its value.
type entry struct {
	name  string
	at    *yaml.Node // the key
	value *yaml.Node
}

// entries are those of a mapping, each once.
func entries(n *yaml.Node, path string) (out []entry, err error) {
	if n.Kind != yaml.MappingNode {
		return nil, GroupFault{n.Line, path, "must be a mapping"}
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || seen[k.Value] {
			return nil, GroupFault{k.Line, path, fmt.Sprintf("has the key %.64q twice, or one that is no text", k.Value)}
		}
		seen[k.Value] = true
		out = append(out, entry{k.Value, k, n.Content[i+1]})
	}
	return out, nil
}

// null says whether nothing is said.
func null(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// text is a scalar that is a text.
func text(n *yaml.Node, path string) (string, error) {
	if null(n) {
		return "", nil
	}
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		return "", GroupFault{n.Line, path, "must be a text"}
	}
	return n.Value, nil
}

func (r *groupReader) unknown(e entry, path string) {
	r.told = append(r.told, GroupFault{e.at.Line, strings.TrimPrefix(path+"."+printable(e.name), "."), "is not known, and has no effect"})
}

// printable is a user's text as it may stand in a message.
func printable(s string) string {
	quoted := fmt.Sprintf("%.64q", s)
	return quoted[1 : len(quoted)-1]
}

// aliases says where the first alias of YAML is, 0 for nowhere: a few lines of them say more than fits anywhere.
func aliases(n *yaml.Node) int {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return n.Line
	}
	for _, c := range n.Content {
		if line := aliases(c); line > 0 {
			return line
		}
	}
	return 0
}

// file reads the whole. An empty one has no groups.
func (r *groupReader) file(body []byte) (out []group, err error) {
	if len(body) > MostGroupBytes {
		return nil, GroupFault{1, "the file", fmt.Sprintf("has %d bytes, of at most %d", len(body), MostGroupBytes)}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(body, &doc); err != nil {
		return nil, GroupFault{1, "the file", "is not YAML: " + printable(err.Error())}
	}
	if doc.Kind == 0 || len(doc.Content) == 0 || null(doc.Content[0]) {
		return nil, nil
	}
	if line := aliases(&doc); line > 0 {
		return nil, GroupFault{line, "the file", "has an anchor or alias"}
	}
	top, err := entries(doc.Content[0], "the file")
	if err != nil {
		return nil, err
	}
	for _, e := range top {
		if e.name != "resourceGroups" {
			r.unknown(e, "")
			continue
		}
		if null(e.value) {
			continue
		}
		if e.value.Kind != yaml.SequenceNode || len(e.value.Content) > MostGroups {
			return nil, GroupFault{e.at.Line, "resourceGroups", fmt.Sprintf("must be a list of at most %d groups", MostGroups)}
		}
		for i, n := range e.value.Content {
			g, err := r.group(n, fmt.Sprintf("resourceGroups[%d]", i))
			if err != nil {
				return nil, err
			}
			out = append(out, g)
		}
	}
	return out, nil
}

// group reads one group.
func (r *groupReader) group(n *yaml.Node, path string) (g group, err error) {
	all, err := entries(n, path)
	if err != nil {
		return g, err
	}
	g.line = n.Line
	object := false
	for _, e := range all {
		at := path + "." + e.name
		switch e.name {
		case "resourceGroup":
			g.name, err = text(e.value, at)
		case "schedulerName":
			if g.scheduler, err = text(e.value, at); err == nil && g.scheduler != "" && len(validation.IsDNS1123Subdomain(g.scheduler)) > 0 {
				err = GroupFault{e.value.Line, at, fmt.Sprintf("is %.64q, which is no name of a scheduler", g.scheduler)}
			}
		case "object":
			if !null(e.value) {
				object, err = r.object(&g, e.value, at)
			}
		case "labels":
			err = into(e.value, at, &g.labels)
		case "tolerations":
			err = into(e.value, at, &g.tolerations)
		case "affinity":
			err = into(e.value, at, &g.affinity)
		default:
			r.unknown(e, path)
		}
		if err != nil {
			return g, err
		}
	}
	if object {
		return g, nil
	}
	if g.name == "" {
		return g, GroupFault{n.Line, path, "has neither a name (resourceGroup) nor an object: nobody knows which pods it is about"}
	}
	g.notes = []corev1.EnvVar{{Name: keys.ResourceGroup, Value: g.name}}
	return g, nil
}

// object reads which pods are of a group; said is false where it says nothing.
func (r *groupReader) object(g *group, n *yaml.Node, path string) (said bool, err error) {
	all, err := entries(n, path)
	if err != nil {
		return false, err
	}
	key, values := "", (*yaml.Node)(nil)
	for _, e := range all {
		switch e.name {
		case "key":
			if key, err = text(e.value, path+".key"); err != nil {
				return false, err
			}
		case "value":
			values = e.value
		default:
			r.unknown(e, path)
		}
	}
	if key == "" && (values == nil || null(values)) {
		return false, nil
	}
	if values == nil || values.Kind != yaml.SequenceNode || len(values.Content) == 0 || len(values.Content) > MostGroupValues {
		return false, GroupFault{n.Line, path + ".value", fmt.Sprintf("must be a list of 1 to %d values", MostGroupValues)}
	}
	for i, v := range values.Content {
		at := fmt.Sprintf("%s.value[%d]", path, i)
		switch strings.ToLower(key) {
		case "namespace":
			name, err := text(v, at)
			if err != nil {
				return false, err
			}
			if len(validation.IsDNS1123Label(name)) > 0 {
				return false, GroupFault{v.Line, at, fmt.Sprintf("is %.64q, which is no name of a namespace", name)}
			}
			g.namespaces = append(g.namespaces, name)
		case "annotation":
			var pairs map[string]string
			if v.Kind != yaml.ScalarNode || kyaml.Unmarshal([]byte(v.Value), &pairs) != nil || len(pairs) != 1 {
				return false, GroupFault{v.Line, at, `must be a text of the form "KEY: VALUE"`}
			}
			for k, value := range pairs { // order: there is one
				if len(validation.IsQualifiedName(strings.ToLower(k))) > 0 {
					return false, GroupFault{v.Line, at, fmt.Sprintf("names %.64q, which is no key of an annotation", k)}
				}
				g.notes = append(g.notes, corev1.EnvVar{Name: k, Value: value})
			}
		default:
			return false, GroupFault{n.Line, path + ".key", fmt.Sprintf("is %.64q; it must be namespace or annotation", key)}
		}
	}
	return true, nil
}

// into decodes a value strictly; a text is YAML, of which JSON is a part, in its turn.
func into(n *yaml.Node, path string, out any) error {
	if null(n) {
		return nil
	}
	body := []byte(n.Value)
	if n.Kind != yaml.ScalarNode {
		var err error
		if body, err = yaml.Marshal(n); err != nil {
			return GroupFault{n.Line, path, "cannot be read"}
		}
	}
	if err := kyaml.UnmarshalStrict(body, out); err != nil {
		return GroupFault{n.Line, path, "cannot be read: " + printable(err.Error())}
	}
	return nil
}
