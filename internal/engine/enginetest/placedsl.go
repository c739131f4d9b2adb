package enginetest

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// layout is a topology as a statement made it.
type layout struct {
	name   string
	levels []v1alpha1.TopologyLevel // widest first
}

// topology makes a Topology, widest level first: topology dc levels=zone:topology.kubernetes.io/zone,rack. A level is a
// node label, or an alias and a node label.
func (c *compiler) topology(s *statement) []Object {
	t := &v1alpha1.Topology{}
	t.Name, t.CreationTimestamp = s.name(), c.created(s)
	for _, text := range strings.Split(s.text("levels", ""), ",") {
		level := v1alpha1.TopologyLevel{NodeLabel: text}
		if alias, label, ok := strings.Cut(text, ":"); ok {
			level = v1alpha1.TopologyLevel{NodeLabel: label, Alias: alias}
		}
		if level.NodeLabel == "" {
			s.bad("want levels=[ALIAS:]LABEL,[ALIAS:]LABEL, widest first")
		}
		t.Spec.Levels = append(t.Spec.Levels, level)
	}
	if i := slices.IndexFunc(c.layouts, func(l layout) bool { return l.name == t.Name }); i >= 0 {
		c.layouts[i].levels = t.Spec.Levels
	} else {
		c.layouts = append(c.layouts, layout{t.Name, t.Spec.Levels})
	}
	return []Object{t}
}

// label returns the node label of a level, which may be given by its alias in any topology.
func (c *compiler) label(level string) string {
	for i := range c.layouts {
		for _, l := range c.layouts[i].levels {
			if l.Alias == level {
				return l.NodeLabel
			}
		}
	}
	return level
}

// domains reads tree=LEVEL:COUNT,LEVEL:COUNT, widest first, each count being per domain of the level before, and returns the
// labels of each of n nodes, which are split evenly. Domains are called by their level and a number from 1 on: rack7.
func (c *compiler) domains(s *statement, n int) func(i int) []attr {
	none := func(int) []attr { return nil }
	text := s.text("tree", "")
	if text == "" {
		return none
	}
	type level struct {
		label, name string
		count       int
	}
	var levels []level
	total := 1
	for _, part := range strings.Split(text, ",") {
		name, count, _ := strings.Cut(part, ":")
		k, err := strconv.Atoi(count)
		if err != nil || k < 1 || k > n || total*k > n {
			s.bad("tree=%s: want LEVEL:COUNT by commas, not more domains than the %d nodes", text, n)
			return none
		}
		total *= k
		label := c.label(name)
		levels = append(levels, level{label, label[strings.LastIndex(label, "/")+1:], total})
	}
	if n%total != 0 {
		s.bad("tree=%s: %d nodes cannot be split evenly among %d domains", text, n, total)
	}
	return func(i int) []attr {
		out := make([]attr, 0, len(levels))
		for _, l := range levels {
			out = append(out, attr{"label", l.label + "=" + l.name + strconv.Itoa(1+i*l.count/n)})
		}
		return out
	}
}

// constraint reads topology=NAME required=LEVEL preferred=LEVEL; without topology= the one made last is meant.
func (c *compiler) constraint(s *statement) v2alpha2.TopologyConstraint {
	t := v2alpha2.TopologyConstraint{
		Topology: s.text("topology", ""), RequiredTopologyLevel: s.text("required", ""), PreferredTopologyLevel: s.text("preferred", ""),
	}
	if t.Topology == "" && (t.RequiredTopologyLevel != "" || t.PreferredTopologyLevel != "") {
		if len(c.layouts) == 0 {
			s.bad("required= and preferred= need a topology, and no statement made one")
			return t
		}
		t.Topology = c.layouts[len(c.layouts)-1].name
	}
	return t
}

// devices reads what the labels of a node say about its GPUs: gpu-memory=MiB, mig-strategy=. A node with MIG slices has the
// strategy mixed unless it says otherwise.
func devices(s *statement, labels map[string]string) {
	if mib := s.text("gpu-memory", ""); mib != "" {
		labels[keys.GPUMemoryNodeLabel] = mib
	}
	strategy := s.text("mig-strategy", "")
	if strategy == "" && s.has("mig") {
		strategy = "mixed"
	}
	if strategy != "" {
		labels[keys.MIGStrategyNodeLabel] = strategy
	}
}

// share turns a part of a device into annotations, and the groups of devices that a pod which has a node shares into
// labels: gpu=0.5 or gpu-memory=MiB, devices=2, group=a,b. What it has read of merged it takes out.
func (c *compiler) share(p *v1.Pod, l layers, merged *statement, at place) {
	set := func(annotation, value string) {
		if value != "" {
			p.Annotations[annotation] = value
		}
	}
	mib, count := l.text("gpu-memory", ""), l.text("devices", "")
	part := l.text("gpu", "")
	shared := mib != ""
	if strings.Contains(part, ".") {
		shared = true
		set(keys.GPUFractionAnnotation, part)
		merged.attrs = slices.DeleteFunc(merged.attrs, func(a attr) bool { return a.key == "gpu" })
	}
	set(keys.GPUMemoryAnnotation, mib)
	set(keys.GPUFractionDevicesAnnotation, count)
	groups := l.text("group", "")
	switch {
	case groups == "" && shared && at.node != "":
		l[0].bad("a pod on a node that shares a device says which: group=NAME, or group=NAME,NAME")
	case groups != "" && at.node != "":
		names := strings.Split(groups, ",")
		for _, g := range names {
			c.groups[g] = true
		}
		SetGroups(p, names)
	}
}

// SetGroups labels a pod with the groups of the devices that it shares, as the binder does, in place of those it has.
func SetGroups(p *v1.Pod, groups []string) {
	labels := maps.Clone(p.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { return isGroupLabel(key) })
	if labels == nil {
		labels = map[string]string{}
	}
	for _, g := range groups {
		if p.Annotations[keys.GPUFractionDevicesAnnotation] == "" {
			labels[keys.GPUGroupLabel] = g
		} else {
			labels[keys.GPUGroupLabelPrefix+g] = g
		}
	}
	p.Labels = labels
}

// isGroupLabel says whether a label of a pod names a group of devices.
func isGroupLabel(key string) bool {
	return key == keys.GPUGroupLabel || strings.HasPrefix(key, keys.GPUGroupLabelPrefix)
}
