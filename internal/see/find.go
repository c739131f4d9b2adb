package see

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/explain"
)

// maxMeant is how many gangs are named where several could be meant.
const maxMeant = 4

// Find is the gang of a namespace that a name means: the gang's own name; that of the workload it was made for, with or without its kind ("train", "Job train",
// "job/train"); as much of the gang's name as no other gang there begins with; or a pod's name. A name that is nobody's, or that several could have, is a
// [Refusal], which names gangs of that namespace alone. O(gangs and pods).
func (c *Cycle) Find(ctx context.Context, namespace, name string) (cluster.Key, error) {
	run, err := c.Look(ctx)
	if err != nil {
		return cluster.Key{}, err
	}
	name = strings.TrimSuffix(strings.TrimSpace(name), "…") // tables cut long names
	kind, rest, two := strings.Cut(name, " ")
	if !two {
		kind, rest, two = strings.Cut(name, "/")
	}
	if !two {
		kind, rest = "", name
	}
	var exact, workloads, begin []cluster.Key
	in := func(each func(cluster.Key)) {
		run.Snapshot().EachGang(func(g *cluster.Gang) {
			if g.Key.Namespace == namespace && !g.Key.Remnant() {
				each(g.Key)
			}
		})
	}
	in(func(k cluster.Key) {
		if k.Name == name {
			exact = append(exact, k)
		}
	})
	if len(exact) == 0 { // most who ask know the gang's name: nothing is made of all others' then
		in(func(k cluster.Key) {
			switch {
			case stripped(k.Name) == rest && (kind == "" || strings.EqualFold(c.Works[k].Kind, kind)):
				workloads = append(workloads, k)
			case kind == "" && name != "" && (strings.HasPrefix(k.Name, name) || strings.HasPrefix(k.Name, "pg-"+name+"-")):
				begin = append(begin, k)
			}
		})
	}
	for _, meant := range [][]cluster.Key{exact, workloads, begin} {
		switch len(meant) {
		case 0:
			continue
		case 1:
			return meant[0], nil
		}
		var names []string
		for _, k := range meant {
			names = append(names, k.Name)
		}
		slices.Sort(names)
		return cluster.Key{}, &Refusal{
			Field: "name", Rule: fmt.Sprintf("could mean %d gangs in namespace %s: %s", len(meant), namespace, strings.Join(names[:min(maxMeant, len(names))], ", ")),
		}
	}
	var pod *cluster.Pod
	run.Snapshot().EachPod(func(p *cluster.Pod) {
		if p.Namespace == namespace && p.Name == name {
			pod = p
		}
	})
	if pod != nil && run.Snapshot().GangByKey(pod.GangKey()) != nil && pod.GangKey().Namespace == namespace {
		return pod.GangKey(), nil
	}
	var here []string
	in(func(k cluster.Key) { here = append(here, k.Name) })
	slices.Sort(here)
	return cluster.Key{}, &Refusal{Missing: true, Rule: fmt.Sprintf("there is no gang %s in namespace %s%s", name, namespace, explain.Near(name, here))}
}

// stripped is the name of the workload that a gang was made for, or else the gang's own.
func stripped(gang string) string {
	if m := made.FindStringSubmatch(gang); m != nil {
		return m[1]
	}
	return gang
}
