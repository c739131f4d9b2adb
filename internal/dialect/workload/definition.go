package workload

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// DefinitionKind is the kind of the objects that define further kinds of workloads.
var DefinitionKind = schema.GroupVersionKind{Group: "run.ai", Version: "v1alpha1", Kind: "Karta"}

// Definition is what a Karta object says of gangs of a kind. It is immutable.
type Definition struct {
	// Name is the Karta's, and Kind is the kind that it defines.
	Name string
	Kind schema.GroupVersionKind

	components map[string]*component
	groups     []definedGroup
	problem    error // why there are none
}

// component is a part of a workload: which pods are its, and how many there are.
type component struct {
	name string
	// kind and value tell the pods of a type, instance which of several of the type.
	kind, instance *query
	value          string
	// replicas and least give a number per instance, ids the names of the instances in the same order.
	replicas, least, ids *query
}

// definedGroup is one pod group of a definition.
type definedGroup struct {
	name    string
	members []definedMember
	near    *v2alpha2.TopologyConstraint // nil: what annotations say
}

type definedMember struct {
	component *component
	keys      []*query
	near      *v2alpha2.TopologyConstraint
}

// maxParts bounds components and pod groups of a definition.
const maxParts = 64

// ParseDefinition reads a Karta object. It is for the kind that its labels name, or else that of its root component. A Karta
// that says nothing of gangs gives nil. Errors name object, field and rule; beside one that leaves the kind known stands a
// definition that tells it to every pod of that kind.
func ParseDefinition(content map[string]any) (*Definition, error) {
	d, err := readDefinition(content)
	if err != nil && d != nil {
		d = &Definition{Name: d.Name, Kind: d.Kind, problem: err}
	}
	return d, err
}

// readDefinition is ParseDefinition; what it returns beside an error has name and kind.
func readDefinition(content map[string]any) (*Definition, error) {
	meta, _ := content["metadata"].(map[string]any)
	o := &Object{GVK: DefinitionKind, Name: textAt(meta, "name"), Content: content}
	const root = "spec.structureDefinition.rootComponent"
	d := &Definition{Name: o.Name, components: map[string]*component{}, Kind: schema.GroupVersionKind{
		Group: textAt(content, root+".kind.group"), Version: textAt(content, root+".kind.version"), Kind: textAt(content, root+".kind.kind"),
	}}
	if labels := stringsAt(content, "metadata.labels"); labels[keys.KartaKindLabel] != "" {
		d.Kind = schema.GroupVersionKind{
			Group: labels[keys.KartaGroupLabel], Version: labels[keys.KartaVersionLabel], Kind: labels[keys.KartaKindLabel],
		}
	}
	if d.Kind.Kind == "" || d.Kind.Version == "" {
		return nil, invalidField(o, root+".kind", "must name version and kind of the workloads that it defines")
	}
	h := &hints{facts: o}
	value, _, _ := lookup(content, root)
	if m, ok := value.(map[string]any); ok {
		if err := d.component(o, root, m); err != nil {
			return d, err
		}
	}
	const children = "spec.structureDefinition.childComponents"
	list, err := h.listAt(children)
	if err != nil {
		return d, err
	}
	if len(list) > maxParts {
		return d, invalidField(o, children, "must have at most %d components, has %d", maxParts, len(list))
	}
	for i, m := range list {
		if err := d.component(o, indexed(children, i, ""), m); err != nil {
			return d, err
		}
	}
	const gangs = "spec.optimizationInstructions.gangScheduling"
	if _, found, ok := lookup(content, gangs); ok && !found {
		return nil, nil
	}
	return d, d.gangs(h, gangs)
}

// gangs reads what a definition says of gangs: one pod group of components, or, in the older way, a list of pod groups of members.
// As in KAI, the list does not count where there is the one.
func (d *Definition) gangs(h *hints, at string) error {
	one, found, _ := lookup(h.facts.Content, at+".podGroup")
	if found {
		m, ok := one.(map[string]any)
		if !ok {
			return invalidField(h.facts, at+".podGroup", "must be an object, is %s", shown(one))
		}
		return d.group(h.facts, at+".podGroup", "subGroups", m)
	}
	list, err := h.listAt(at + ".podGroups")
	if err != nil {
		return err
	}
	if len(list) == 0 || len(list) > maxParts {
		return invalidField(h.facts, at, "must have a podGroup, or from 1 to %d podGroups, has %d", maxParts, len(list))
	}
	for i, m := range list {
		if err := d.group(h.facts, indexed(at+".podGroups", i, ""), "members", m); err != nil {
			return err
		}
	}
	return nil
}

func (d *Definition) component(o *Object, at string, m map[string]any) error {
	c := &component{name: textAt(m, "name"), value: textAt(m, "podSelector.componentTypeSelector.value")}
	if c.name == "" || d.components[c.name] != nil {
		return invalidField(o, at+".name", "must be a name that no other component has, is %q", c.name)
	}
	for path, q := range map[string]**query{ // order: each has a field of its own
		"podSelector.componentTypeSelector.keyPath":    &c.kind,
		"podSelector.componentInstanceSelector.idPath": &c.instance,
		"scaleDefinition.replicasPath":                 &c.replicas,
		"scaleDefinition.minReplicasPath":              &c.least,
		"instanceIdPath":                               &c.ids,
	} {
		text := textAt(m, path)
		if text == "" {
			continue
		}
		var err error
		if *q, err = parseQuery(text); err != nil {
			return invalidField(o, at+"."+path, "%v", err)
		}
	}
	d.components[c.name] = c
	return nil
}

// group reads a pod group, whose components are listed under the name given.
func (d *Definition) group(o *Object, at, list string, m map[string]any) error {
	g := definedGroup{name: textAt(m, "name"), near: definedTopology(m)}
	members, _ := m[list].([]any)
	if len(members) == 0 || len(members) > maxParts {
		return invalidField(o, at+"."+list, "must list from 1 to %d components, lists %d", maxParts, len(members))
	}
	for i, e := range members {
		field := indexed(at+"."+list, i, "")
		m, _ := e.(map[string]any)
		c := d.components[textAt(m, "componentName")]
		if c == nil {
			return invalidField(o, field+".componentName", "must name a component, is %q", textAt(m, "componentName"))
		}
		if slices.ContainsFunc(g.members, func(m definedMember) bool { return m.component == c }) {
			return invalidField(o, field+".componentName", "must name each component once, is %q again", c.name)
		}
		member := definedMember{component: c, near: definedTopology(m)}
		paths, _ := m["groupByKeyPaths"].([]any)
		if len(paths) > maxParts {
			return invalidField(o, field+".groupByKeyPaths", "must list at most %d paths, lists %d", maxParts, len(paths))
		}
		for _, p := range paths {
			text, _ := p.(string)
			q, err := parseQuery(text)
			if err != nil {
				return invalidField(o, field+".groupByKeyPaths", "%v", err)
			}
			member.keys = append(member.keys, q)
		}
		g.members = append(g.members, member)
	}
	d.groups = append(d.groups, g)
	return nil
}

// definedTopology is the constraint of a pod group or of one of its components; nil where the definition has none.
func definedTopology(m map[string]any) *v2alpha2.TopologyConstraint {
	c := &v2alpha2.TopologyConstraint{
		Topology: textAt(m, "topology.topologyName"), RequiredTopologyLevel: textAt(m, "topology.requiredTopologyLevel"),
		PreferredTopologyLevel: textAt(m, "topology.preferredTopologyLevel"),
	}
	if c.Topology == "" || c.RequiredTopologyLevel == "" && c.PreferredTopologyLevel == "" {
		return nil
	}
	return c
}

// one evaluates a query that should give one string; "" where it gives none.
func one(q *query, content any) string {
	values, err := q.values(content)
	if err != nil || len(values) == 0 {
		return ""
	}
	if s, ok := values[0].(string); ok {
		return s
	}
	return shown(values[0])
}

// has says whether a pod is the component's.
func (c *component) has(pod map[string]any) bool {
	if c.kind != nil {
		if v := one(c.kind, pod); v == "" || c.value != "" && v != c.value {
			return false
		}
	}
	return c.instance == nil || one(c.instance, pod) != ""
}

// podContent is the part of a pod that definitions look at.
func podContent(pod *corev1.Pod) map[string]any {
	texts := func(m map[string]string) map[string]any {
		out := make(map[string]any, len(m))
		for k, v := range m { // order: a map is made
			out[k] = v
		}
		return out
	}
	out := map[string]any{"metadata": map[string]any{
		"name": pod.Name, "namespace": pod.Namespace, "labels": texts(pod.Labels), "annotations": texts(pod.Annotations),
	}}
	if len(pod.OwnerReferences) > 0 {
		ref, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod.OwnerReferences[0])
		if err == nil {
			out["metadata"].(map[string]any)["ownerReferences"] = []any{ref}
		}
	}
	return out
}

// member finds the pod's place in a definition: nil, nil where it has none.
func (d *Definition) member(pod map[string]any) (group *definedGroup, member *definedMember, err error) {
	for i := range d.groups {
		for k := range d.groups[i].members {
			if !d.groups[i].members[k].component.has(pod) {
				continue
			}
			if member != nil {
				return nil, nil, fmt.Errorf("the pod is in pod group %s and in %s, as %s and as %s", group.name, d.groups[i].name,
					member.component.name, d.groups[i].members[k].component.name)
			}
			group, member = &d.groups[i], &d.groups[i].members[k]
		}
	}
	return group, member, nil
}

// defined derives the gang of a workload that a Karta defines: a subgroup for each component of the pod's group. A definition
// that does not fit is ignored with a warning.
func (h *hints) defined(d *Definition) (*tree, error) {
	plain := &tree{minimum: 1}
	ignore := func(format string, args ...any) (*tree, error) {
		h.warn(&Object{GVK: DefinitionKind, Name: d.Name}, "spec", "ignored for this pod: "+format, args...)
		return plain, nil
	}
	if d.problem != nil {
		return ignore("%v", d.problem)
	}
	content := podContent(h.pod)
	group, member, err := d.member(content)
	if err != nil {
		return ignore("%v", err)
	}
	if member == nil {
		return plain, nil
	}
	out := &tree{name: "pg-" + string(h.subject.UID), constraint: group.near}
	if len(d.groups) > 1 {
		out.name += "-" + group.name
	}
	for _, q := range member.keys {
		key := one(q, content)
		if key == "" {
			return ignore("%s gives nothing on pod %s", q.text, h.pod.Name)
		}
		out.name += "-" + key
	}
	out.name = plainSubdomain(out.name)
	counts := []int64{0}
	count := int32(len(group.members))
	for i := range group.members {
		c := group.members[i].component
		n, err := h.pods(c, content, c == member.component && len(member.keys) > 0)
		if err != nil {
			return ignore("component %s: %v", c.name, err)
		}
		counts = append(counts, int64(n))
		s := leaf(strings.ToLower(c.name), n, "")
		s.TopologyConstraint = group.members[i].near.DeepCopy()
		out.subGroups = append(out.subGroups, s)
	}
	out.minSubGroup = &count
	out.members = Members{place: func(pod *corev1.Pod) (string, error) {
		_, m, err := d.member(podContent(pod))
		if err != nil || m == nil {
			self := FromPod(pod)
			return "", invalidField(&self, "metadata", "must be of one component of %s %s", DefinitionKind.Kind, d.Name)
		}
		return strings.ToLower(m.component.name), nil
	}}
	out.minimum, err = h.sum("spec", counts...)
	return out, err
}

// pods is the number of a component's pods that the gang needs: of the pod's own instance, or of all.
func (h *hints) pods(c *component, pod map[string]any, own bool) (int32, error) {
	numbers, err := c.least.values(h.facts.Content)
	if err == nil && len(numbers) == 0 {
		numbers, err = c.replicas.values(h.facts.Content)
	}
	if err != nil {
		return 0, err
	}
	if len(numbers) == 0 {
		return 1, nil
	}
	if own && c.instance != nil && c.ids != nil {
		ids, err := c.ids.values(h.facts.Content)
		if err != nil {
			return 0, err
		}
		id := one(c.instance, pod)
		for i, v := range ids {
			if v == id && len(ids) == len(numbers) {
				numbers = numbers[i : i+1]
				break
			}
		}
	}
	total := int64(0)
	for _, v := range numbers {
		n, ok := integer(v)
		if !ok || n < 0 {
			return 0, fmt.Errorf("the number of replicas must be an integer of at least 0, is %s", shown(v))
		}
		total += n
		if total > 1<<31-1 {
			return 0, errors.New("too many replicas")
		}
	}
	return int32(total), nil
}
