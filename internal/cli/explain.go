package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/explain"
)

func newExplain(d Deps) *cobra.Command {
	c := &cobra.Command{
		Use: "explain", Short: "Say why a gang or a pod waits, and what would change it", Args: cobra.NoArgs,
		RunE: app.NeedsCommand,
	}
	about := map[string]string{
		"gang": "Say why one gang waits: the blocking rule with its numbers, and what would change it. NAME is its PodGroup's, or enough of the\n" +
			"beginning of it; for a workload that Muster grouped, the workload's own name will do.",
		"pod": "Say why one pod waits, which is why its gang does; or why it has no gang.",
	}
	for _, kind := range []string{"gang", "pod"} {
		l := &looker{deps: d}
		var namespace string
		one := &cobra.Command{
			Use: kind + " NAME", Long: about[kind], Short: "Say why one " + kind + " waits: the blocking rule with its numbers, and what would change it",
			Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
				v, err := l.look(c.Context())
				if err != nil {
					return err
				}
				ns, err := l.namespace(namespace)
				if err != nil {
					return err
				}
				what := v.explainGang
				if kind == "pod" {
					what = v.explainPod
				}
				e, err := what(c.Context(), ns, args[0])
				if err != nil {
					return err
				}
				return form.Emit(c.OutOrStdout(), l.output, e, func() string { return e.Text })
			},
		}
		l.flags(one)
		one.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace; empty: the kubeconfig's")
		c.AddCommand(one)
	}
	return c
}

// explainGang explains a gang by its PodGroup's name, or by the beginning of it that no other gang of the namespace has: tables
// cut long names, and what stands behind the workload's name is a UID.
func (v *view) explainGang(ctx context.Context, namespace, name string) (*explain.Explanation, error) {
	name = strings.TrimSuffix(name, "…")
	key := kai.GangKey(namespace, name)
	if v.snap.GangByKey(key) == nil {
		var here, meant []string
		elsewhere := ""
		v.snap.EachGang(func(g *cluster.Gang) {
			if g.Key.Namespace == namespace {
				here = append(here, g.Key.Name)
				if strings.HasPrefix(g.Key.Name, name) || strings.HasPrefix(g.Key.Name, "pg-"+name+"-") {
					meant = append(meant, g.Key.Name)
				}
			} else if g.Key.Name == name {
				elsewhere = min(cmp.Or(elsewhere, g.Key.Namespace), g.Key.Namespace)
			}
		})
		if len(meant) == 1 {
			return explain.Gang(ctx, v.snap, v.build, kai.GangKey(namespace, meant[0]))
		}
		if len(meant) > 1 {
			slices.Sort(meant)
			return nil, fmt.Errorf("%d gangs in namespace %s could be meant by %s: %s", len(meant), namespace, name, strings.Join(meant[:min(4, len(meant))], ", "))
		}
		if elsewhere != "" {
			return nil, fmt.Errorf("there is no gang %s in namespace %s, but one in namespace %s: add -n %s", name, namespace, elsewhere, elsewhere)
		}
		return nil, fmt.Errorf("there is no gang %s in namespace %s%s", name, namespace, orNear(name, here))
	}
	return explain.Gang(ctx, v.snap, v.build, key)
}

// explainPod explains the gang of a pod, or says why the pod has none.
func (v *view) explainPod(ctx context.Context, namespace, name string) (*explain.Explanation, error) {
	var pod *cluster.Pod
	var here []string
	elsewhere := ""
	v.snap.EachPod(func(p *cluster.Pod) {
		switch {
		case p.Namespace == namespace && p.Name == name:
			pod = p
		case p.Namespace == namespace:
			here = append(here, p.Name)
		case p.Name == name:
			elsewhere = min(cmp.Or(elsewhere, p.Namespace), p.Namespace)
		}
	})
	switch {
	case pod == nil && elsewhere != "":
		return nil, fmt.Errorf("there is no pod %s in namespace %s, but one in namespace %s: add -n %s", name, namespace, elsewhere, elsewhere)
	case pod == nil:
		return nil, fmt.Errorf("there is no pod %s in namespace %s%s", name, namespace, orNear(name, here))
	}
	full, err := v.pod(namespace, name)
	if err != nil {
		return nil, err
	}
	if err := v.whyNoGang(pod, full); err != nil {
		return nil, err
	}
	key := pod.GangKey()
	e, err := explain.Gang(ctx, v.snap, v.build, key)
	if err != nil {
		return nil, err
	}
	e.Text = podLine(pod) + e.Text
	return e, nil
}

// podLine says where the pod itself stands.
func podLine(p *cluster.Pod) string {
	set := ""
	if p.SetName() != "" {
		set = ", subgroup " + p.SetName()
	}
	if p.NodeName != "" {
		return fmt.Sprintf("pod %s: %s on %s%s\n", p.FullName(), strings.ToLower(p.Phase.String()), p.NodeName, set)
	}
	return fmt.Sprintf("pod %s: %s%s\n", p.FullName(), strings.ToLower(p.Phase.String()), set)
}

// whyNoGang says what keeps a pod out of every gang, and what to do about it; nil for a pod that is in one.
func (v *view) whyNoGang(p *cluster.Pod, full *v1.Pod) error {
	key := p.GangKey()
	switch {
	case !slices.Contains(v.names, full.Spec.SchedulerName):
		return fmt.Errorf("pod %s is not Muster's: its spec.schedulerName is %q. Pods with %s are; a pod's name of scheduler cannot be changed, so recreate it "+
			"(or, if your scheduler answers to that name, add --scheduler-name %s)", p.FullName(), full.Spec.SchedulerName, strings.Join(v.names, " or "), full.Spec.SchedulerName)
	case key == (cluster.Key{}) && !p.Phase.Alive():
		return fmt.Errorf("pod %s has ended (%s) and was in no gang", p.FullName(), p.Phase)
	case key == (cluster.Key{}):
		return fmt.Errorf("pod %s has no gang yet: it lacks the annotation %s, which the podgrouper writes within a second. Is that role running "+
			"(`muster run podgrouper`, or `muster run all`)? Its log names the pods it cannot group", p.FullName(), kai.PodGroupAnnotation)
	case v.snap.GangByKey(key) == nil:
		return fmt.Errorf("pod %s asks for PodGroup %s (annotation %s), which does not exist, or belongs to another shard. Create it, or remove the annotation "+
			"for the podgrouper to make one", p.FullName(), key, kai.PodGroupAnnotation)
	}
	return nil
}

// orNear suggests up to three names that were perhaps meant.
func orNear(name string, among []string) string {
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	for _, c := range among {
		d := distance(name, c)
		if strings.Contains(c, name) {
			d = 0
		}
		if d <= max(2, len(name)/3) {
			found = append(found, candidate{c, d})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name))
	})
	names := make([]string, 0, 3)
	for _, c := range found[:min(3, len(found))] {
		names = append(names, c.name)
	}
	if len(names) == 0 {
		if len(among) == 0 {
			return ""
		}
		return fmt.Sprintf(" (there are %d others)", len(among))
	}
	return "; did you mean " + strings.Join(names, ", ") + "?"
}

// distance is how many letters have to be changed, added or removed to make a of b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
