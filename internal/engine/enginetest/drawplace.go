package enginetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// device is a GPU that pods share.
type device struct {
	group  string // its identifier
	called string // what it is called in answers
	pods   []*v1.Pod
}

// shared returns the devices of a node that pods share, ordered by the first pod on each. Those that statements named keep
// their names, others are called A, B, C: identifiers are drawn differently on every backend.
func (in *interpreter) shared(here []*v1.Pod) []device {
	var out []device
	for _, p := range here {
		for _, g := range groupsOf(p) {
			i := slices.IndexFunc(out, func(d device) bool { return d.group == g })
			if i < 0 {
				i = len(out)
				out = append(out, device{group: g})
			}
			out[i].pods = append(out[i].pods, p)
		}
	}
	next := 0
	for i := range out {
		if out[i].called = out[i].group; !in.compile.groups[out[i].group] {
			out[i].called = letter(next)
			next++
		}
	}
	return out
}

// deviceNames returns what devices are called in answers. Those that no pod is on yet are called new1, new2 and so on, node
// by node, in the order in which they are asked for.
func (in *interpreter) deviceNames() (func(node, group string) string, error) {
	nodes, pods, err := in.world()
	if err != nil {
		return nil, err
	}
	names := map[string]map[string]string{}
	fresh := map[string]int{}
	for _, n := range nodes {
		names[n.Name] = map[string]string{}
		for _, d := range in.shared(podsOn(pods, n.Name)) {
			names[n.Name][d.group] = d.called
		}
	}
	return func(node, group string) string {
		of := names[node]
		if of == nil {
			return group
		}
		if of[group] == "" {
			fresh[node]++
			of[group] = "new" + strconv.Itoa(fresh[node])
		}
		return of[group]
	}, nil
}

// letter names the i-th thing of a kind: A to Z, then A27 and so on.
func letter(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return "A" + strconv.Itoa(i+1)
}

// groupsOf returns the groups of devices that a pod's labels name, sorted.
func groupsOf(p *v1.Pod) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
		if isGroupLabel(k) {
			out = append(out, p.Labels[k])
		}
	}
	return out
}

// shareOf says which part of a device a pod asks for: 0.5, or 20480MiB.
func shareOf(p *v1.Pod) string {
	if f := p.Annotations[keys.GPUFractionAnnotation]; f != "" {
		return f
	}
	if m := p.Annotations[keys.GPUMemoryAnnotation]; m != "" {
		return m + "MiB"
	}
	return "?"
}

// showDevices prints, a line each, the devices that the pods on a node share: which part of it who has.
func (in *interpreter) showDevices(devices []device) {
	for _, d := range devices {
		in.printf("  gpu %s", d.called)
		for k := 0; k < len(d.pods); {
			n := 1
			for k+n < len(d.pods) && shareOf(d.pods[k+n]) == shareOf(d.pods[k]) {
				n++
			}
			names := make([]string, n)
			for i := range n {
				names[i] = fullName(d.pods[k+i].Namespace, d.pods[k+i].Name)
			}
			in.printf("  %s %s", shareOf(d.pods[k]), strings.ReplaceAll(strings.TrimSpace(ranges(names)), "  ", " "))
			k += n
		}
		in.printf("\n")
	}
}

// domain is one domain of a topology, with what is in it.
type domain struct {
	path        []string // values of the levels' labels, widest first
	held, total int64    // milli-GPU
	pods        []string
}

// showDomains prints a topology as a tree of domains, with the GPUs that pods hold and offer in each, and at the narrowest
// level the pods: show domains [TOPOLOGY].
func (in *interpreter) showDomains(s *statement) error {
	if len(in.compile.layouts) == 0 {
		return s.errorf("no statement made a topology")
	}
	t := in.compile.layouts[len(in.compile.layouts)-1]
	if len(s.words) > 1 {
		i := slices.IndexFunc(in.compile.layouts, func(l layout) bool { return l.name == s.words[1] })
		if i < 0 {
			return s.errorf("no statement made the topology %s", s.words[1])
		}
		t = in.compile.layouts[i]
	}
	nodes, pods, err := in.world()
	if err != nil {
		return err
	}
	var all []domain
	for _, n := range nodes {
		var path []string
		for _, l := range t.levels {
			if v := n.Labels[l.NodeLabel]; v != "" {
				path = append(path, v)
			}
		}
		if len(path) < len(t.levels) {
			continue
		}
		here := podsOn(pods, n.Name)
		var names []string
		for _, p := range here {
			names = append(names, fullName(p.Namespace, p.Name))
		}
		for depth := range path {
			i := slices.IndexFunc(all, func(d domain) bool { return slices.Equal(d.path, path[:depth+1]) })
			if i < 0 {
				i = len(all)
				all = append(all, domain{path: path[:depth+1]})
			}
			all[i].held += in.held(here)
			all[i].total += gpusOf(core.Amounts(n.Status.Allocatable))
			if depth == len(path)-1 {
				all[i].pods = append(all[i].pods, names...)
			}
		}
	}
	slices.SortFunc(all, func(a, b domain) int {
		return slices.CompareFunc(a.path, b.path, func(x, y string) int { return natural(x, y) })
	})
	gpus := func(x int64) string { return cluster.BaseDims().FormatOne(cluster.GPU, x) }
	for _, d := range all {
		depth := len(d.path) - 1
		in.printf("%s%s  %s/%s gpu%s\n", strings.Repeat("  ", depth), d.path[depth], gpus(d.held), gpus(d.total), ranges(d.pods))
	}
	return nil
}

// natural orders names with numbers at their ends by these: rack2 before rack10.
func natural(a, b string) int {
	split := func(s string) (string, int) {
		cut := len(strings.TrimRight(s, "0123456789"))
		n, err := strconv.Atoi(s[cut:])
		if err != nil {
			return s, -1
		}
		return s[:cut], n
	}
	x, i := split(a)
	y, j := split(b)
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(i, j), cmp.Compare(a, b))
}

// showSpread prints how a gang's pods are spread over the domains of a level: show gang NAME by=LEVEL.
func (in *interpreter) showSpread(name, level string) error {
	nodes, pods, err := in.world()
	if err != nil {
		return err
	}
	label := in.compile.label(level)
	count := map[string]int{}
	for _, p := range pods {
		if groupOf(p) == "" || fullName(p.Namespace, groupOf(p)) != name {
			continue
		}
		where := "no node"
		if i := slices.IndexFunc(nodes, func(n *v1.Node) bool { return n.Name == p.Spec.NodeName }); i >= 0 {
			if where = "no " + level; nodes[i].Labels[label] != "" {
				where = nodes[i].Labels[label]
			}
		}
		count[where]++
	}
	var parts []string
	for _, where := range slices.SortedFunc(maps.Keys(count), natural) {
		parts = append(parts, fmt.Sprintf("%d in %s", count[where], where))
	}
	if len(parts) == 0 {
		parts = []string{"no pods"}
	}
	in.printf("%s: %s\n", name, strings.Join(parts, ", "))
	return nil
}

// world returns all nodes, and all pods that have not ended, in the order in which answers name them.
func (in *interpreter) world() ([]*v1.Node, []*v1.Pod, error) {
	nodes, err := in.backend.Nodes()
	if err != nil {
		return nil, nil, err
	}
	pods, err := in.backend.Pods()
	if err != nil {
		return nil, nil, err
	}
	pods = slices.DeleteFunc(pods, func(p *v1.Pod) bool {
		return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed ||
			p.Labels[kai.AppLabel] == kai.DefaultReservationApp // it holds what is drawn as shared, and only a lab has it
	})
	sortPods(pods)
	return nodes, pods, nil
}

// podsOn returns the pods on a node.
func podsOn(pods []*v1.Pod, node string) []*v1.Pod {
	var out []*v1.Pod
	for _, p := range pods {
		if p.Spec.NodeName == node {
			out = append(out, p)
		}
	}
	return out
}

// held returns what pods on one node hold of its GPUs, in milli-GPU: a device that is shared counts as a whole.
func (in *interpreter) held(here []*v1.Pod) int64 {
	sum := int64(len(in.shared(here))) * 1000
	for _, p := range here {
		sum += gpusOf(core.Requests(p))
	}
	return sum
}
