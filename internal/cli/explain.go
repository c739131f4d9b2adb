package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/kube/apply"
	"github.com/muster-scheduler/muster/internal/see"
)

func newExplain(d Deps) *cobra.Command {
	const short = ": the blocking rule with its numbers, and what would change it"
	about := "Say why a gang waits" + short + ". NAME is its PodGroup's, or enough of the beginning of it; for a workload that Muster grouped,\n" +
		"the workload's own name will do; or a pod's.\n\nThe answer begins with one word: starting (the next run of the scheduler gives it room), in line (it could start by itself; those\n" +
		"before it take what it needs), blocked (it could not start even were it next), never (nor would it in an empty cluster: somebody has to\n" +
		"change something). What would change it has been tried, while everybody else waits too.\n\n" +
		"Exit status: 0 an answer was printed, 1 there is none (the message says why)."
	c := explainOne(d, "explain NAME", "Say why a gang or a pod waits, and what would change it", about, (*view).explainAny)
	c.AddCommand(
		explainOne(d, "gang NAME", "Say why one gang waits"+short, about, (*view).explainGang),
		explainOne(d, "pod NAME", "Say why one pod waits"+short, "Say why one pod waits, which is why its gang does; or why it has no gang.", (*view).explainPod),
	)
	return c
}

// explainOne is one of the commands that explain, each by names of its own.
func explainOne(d Deps, use, short, long string, what func(*view, context.Context, string, string) (*answer, error)) *cobra.Command {
	l := &looker{deps: d}
	var namespace, since string
	var timeline bool
	c := &cobra.Command{
		Use: use, Long: long, Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: l.complete(&namespace),
		RunE: func(c *cobra.Command, args []string) error {
			ns, err := l.namespace(namespace)
			if err != nil {
				return err
			}
			if err := form.Check(l.output); err != nil {
				return err
			}
			more := ""
			if timeline || l.output != "table" { // programs have it at no further question
				more = "&timeline=true"
				if since != "" {
					more += "&since=" + url.QueryEscape(since)
				}
			}
			if e := l.role.explain(c, l.client, ns, args[0], more); e != nil {
				return form.Emit(c.OutOrStdout(), l.output, e, func() string {
					if timeline && e.Timeline == nil {
						fmt.Fprintln(c.ErrOrStderr(), "the role ui keeps no journal: there is no timeline")
					}
					return roleText(e, form.WidthOf(c.OutOrStdout())) + e.Timeline.Text()
				})
			}
			if timeline {
				fmt.Fprintln(c.ErrOrStderr(), "a timeline takes the journal of the role ui: say where it is with --ui")
			}
			v, err := l.look(c.Context())
			var no *Forbidden
			if errors.As(err, &no) {
				return l.explainNarrow(c, ns, args[0], no)
			}
			if err != nil {
				return err
			}
			a, err := what(v, c.Context(), ns, args[0])
			if err != nil {
				return err
			}
			return form.Emit(c.OutOrStdout(), l.output, a.Explanation, func() string { return a.text(form.WidthOf(c.OutOrStdout())) })
		},
	}
	l.flags(c)
	l.role.flags(c)
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace; empty: the kubeconfig's")
	c.Flags().BoolVar(&timeline, "timeline", false, "also print what became of it, from the journal of the role ui (--ui); with -o json or yaml it always is")
	c.Flags().StringVar(&since, "since", "", "how far back the timeline goes, such as 36h or 3d; empty: a day")
	return c
}

// answer is an explanation and what is said before and after it.
type answer struct {
	*see.Explanation
	before string
	since  time.Time // since when the scheduler's own condition says what the cluster does not show; zero for not
}

func (a *answer) text(width int) string {
	s := a.before + a.Explanation.Text(width)
	if !a.since.IsZero() {
		s += fmt.Sprintf("so the scheduler says, since %s; the cluster itself shows nothing that blocks it\n", a.since.UTC().Format(time.RFC3339))
	}
	return s
}

// explainAny explains the gang of that name, or else the pod.
func (v *view) explainAny(ctx context.Context, namespace, name string) (*answer, error) {
	a, err := v.explainGang(ctx, namespace, name)
	if err == nil {
		return a, nil
	}
	found := false
	v.snap.EachPod(func(p *cluster.Pod) { found = found || p.Namespace == namespace && p.Name == name })
	if found {
		return v.explainPod(ctx, namespace, name)
	}
	return nil, err
}

// explain explains a gang that exists, with everybody in line, and what the scheduler itself wrote of it.
func (v *view) explain(ctx context.Context, key cluster.Key) (*answer, error) {
	var said *v2alpha2.SchedulingCondition
	if v.group != nil {
		g, err := v.group(key.Namespace, key.Name)
		if err == nil { // who may not read it goes without
			v.learn(key, g)
			said = unschedulable(g)
		}
	}
	e, err := see.InLine(ctx, v.cycle, key)
	if err != nil {
		return nil, err
	}
	e.Cycle.Aged(time.Now())
	a := &answer{Explanation: e}
	if e.Word == explain.Starting && said != nil && e.Reason != policy.ReasonReleasing.Key {
		// What only the scheduler remembers, such as a bind that failed, a look at the cluster does not show.
		e.Word, e.Reason, e.Message, e.Verdict, e.Next = explain.Blocked, reasonOf(said), said.Message, nil, 0
		a.since = said.LastTransitionTime.Time
	}
	return a, nil
}

// learn takes over what a gang's object says of its owner.
func (v *view) learn(key cluster.Key, g *v2alpha2.PodGroup) {
	for i := range g.OwnerReferences {
		if o := &g.OwnerReferences[i]; o.Controller != nil && *o.Controller || len(g.OwnerReferences) == 1 {
			if v.cycle.Works == nil {
				v.cycle.Works = map[cluster.Key]see.Work{}
			}
			v.cycle.Works[key], _ = see.Declared(o.Kind, o.Name, g.Annotations, nil) // what cannot be read is not said
		}
	}
}

// unschedulable is the condition in which the scheduler says why a gang waits; nil when it says nothing.
func unschedulable(g *v2alpha2.PodGroup) *v2alpha2.SchedulingCondition {
	for i := range g.Status.SchedulingConditions {
		if c := &g.Status.SchedulingConditions[i]; c.Type == v2alpha2.UnschedulableOnNodePool && c.Status == v1.ConditionTrue {
			return c
		}
	}
	return nil
}

func reasonOf(c *v2alpha2.SchedulingCondition) string {
	if len(c.Reasons) > 0 {
		return string(c.Reasons[0].Reason)
	}
	return string(c.Reason)
}

// explainGang explains a gang by its PodGroup's name, or by the beginning of it that no other gang of the namespace has: tables
// cut long names, and what stands behind the workload's name is a UID.
func (v *view) explainGang(ctx context.Context, namespace, name string) (*answer, error) {
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
			return v.explain(ctx, kai.GangKey(namespace, meant[0]))
		}
		if len(meant) > 1 {
			slices.Sort(meant)
			return nil, fmt.Errorf("%d gangs in namespace %s could be meant by %s: %s", len(meant), namespace, name, strings.Join(meant[:min(4, len(meant))], ", "))
		}
		if elsewhere != "" {
			return nil, fmt.Errorf("there is no gang %s in namespace %s, but one in namespace %s: add -n %s", name, namespace, elsewhere, elsewhere)
		}
		return nil, fmt.Errorf("there is no gang %s in namespace %s%s", name, namespace, explain.Near(name, here))
	}
	return v.explain(ctx, key)
}

// explainPod explains the gang of a pod, or says why the pod has none.
func (v *view) explainPod(ctx context.Context, namespace, name string) (*answer, error) {
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
		return nil, fmt.Errorf("there is no pod %s in namespace %s%s", name, namespace, explain.Near(name, here))
	}
	full, err := v.pod(namespace, name)
	if err != nil {
		return nil, err
	}
	if err := v.whyNoGang(pod, full); err != nil {
		return nil, err
	}
	key := pod.GangKey()
	e, err := v.explain(ctx, key)
	if err != nil {
		return nil, err
	}
	e.before = podLine(pod)
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
	case p.NodeName == "" && apply.Missing(full) != "": // of whichever face
		return fmt.Errorf("pod %s waits: %s", p.FullName(), apply.Missing(full))
	case key.Face == volcano.Face && v.snap.GangByKey(key) == nil && full.Annotations[vckeys.GroupName] == "":
		return fmt.Errorf("pod %s has no gang yet: it has no annotation %s, and PodGroup %s, which would be its owner's, does not exist. The controller of bare pods makes it within a second. Is that role "+
			"running (`muster run vc-controller-manager`, with pg-controller among its --controllers)? What it cannot make it tells the pod in an event", p.FullName(), vckeys.GroupName, key.Name)
	case !slices.Contains(v.names, full.Spec.SchedulerName):
		return fmt.Errorf("pod %s is not Muster's: its spec.schedulerName is %q. Pods with %s are; a pod's name of scheduler cannot be changed, so recreate it "+
			"(or, if your scheduler answers to that name, add --scheduler-name %s)", p.FullName(), full.Spec.SchedulerName, strings.Join(v.names, " or "), full.Spec.SchedulerName)
	case key == (cluster.Key{}) && !p.Phase.Alive():
		return fmt.Errorf("pod %s has ended (%s) and was in no gang", p.FullName(), p.Phase)
	case key == (cluster.Key{}), v.snap.GangByKey(key) == nil && kai.GangOfOwner(full) == key.Name:
		return fmt.Errorf("pod %s has no gang yet: its owner has no PodGroup, and it has neither of the annotations %s and %s. The podgrouper writes one of them within a second. Is that role running "+
			"(`muster run podgrouper`, or `muster run all`)? Its log names the pods it cannot group", p.FullName(), kai.PodGroupAnnotation, keys.OwnGangAnnotation)
	case v.snap.GangByKey(key) == nil:
		if named, ok := dialect.GroupNamedBy(full, key); ok && key.Face != kai.Face {
			return fmt.Errorf("pod %s waits: %s", p.FullName(), apply.GroupMissing(named))
		}
		return fmt.Errorf("pod %s asks for PodGroup %s (annotation %s), which does not exist, or belongs to another shard. Create it, or remove the annotation "+
			"for the podgrouper to make one", p.FullName(), key, kai.PodGroupAnnotation)
	}
	return nil
}
