package volcano

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// GangKey returns the key of the gang that the PodGroup of that namespace and name is.
func GangKey(namespace, name string) cluster.Key {
	return cluster.Key{Face: Face, Namespace: namespace, Name: name}
}

// defaultPriority is the priority of a gang that names no class, in a cluster without a default one.
const defaultPriority = 0

// defaultTaskPriority is the own priority of a pod that says none.
const defaultTaskPriority = 1

// Gang returns the event that makes the model know pg as it is. value is what a PriorityClass is worth; of "" it is asked for the cluster's default one.
//
// The minimum of the gang is minMember. The minimums of tasks count besides, unless minMember is below their sum. pods says of which subgroups its pods are, and tier
// what the name of a tier stands for: a hard network topology keeps pods within one HyperNode of at most that tier, a soft one wishes for few HyperNodes. Hard without a tier asks
// for nothing (Unheeded).
//
// The status is not read: it is no part that only the scheduler may write.
func Gang(pg *v1beta1.PodGroup, value func(class string) (priority int32, known bool), tier func(name string) (int, bool), pods *Pods) cluster.GangState {
	sets, problem := tree(&pg.Spec, tier, pods)
	priority, known := value(pg.Spec.PriorityClassName)
	if !known {
		if priority, known = value(""); !known {
			priority = defaultPriority
		}
	}
	g := cluster.GangState{
		Key: GangKey(pg.Namespace, pg.Name), UID: string(pg.UID), Generation: asks(&pg.Spec), Queue: QueueName(pg.Spec.Queue), Priority: priority,
		Preemptible: true, Created: core.Nanoseconds(&pg.CreationTimestamp), Sets: sets, MarkUnschedulable: true,
		BeforePods: true,
		// Whoever made the pods says what becomes of a gang that has lost some.
		StaleGrace: cluster.Maybe[time.Duration]{Set: true, Value: -1},
	}
	if least := pg.Spec.MinResources; least != nil {
		g.Asks = minimum(*least)
	}
	if d, err := waitingTime(pg); err == nil && d > 0 {
		g.AdmitAfter = cluster.Maybe[time.Duration]{Set: true, Value: d}
	}
	g.Company, _ = company(pg)
	g.Yields = yields(pg)
	g.Budget, _ = budget(pg)
	if problem != "" {
		g.Invalid = "PodGroup " + pg.Namespace + "/" + pg.Name + ": " + problem
	}
	return g
}

// minimum is what a PodGroup's minResources ask for: amounts of quotas (how many objects, and what is requested or limited in all) say the same again, and count for
// nothing here. It is never nil.
func minimum(list corev1.ResourceList) []cluster.Quantity {
	kept := corev1.ResourceList{}
	for name, q := range list { // order: the result is a map
		if text := string(name); !strings.HasPrefix(text, "count/") && !strings.HasPrefix(text, "requests.") && !strings.HasPrefix(text, "limits.") {
			kept[name] = q
		}
	}
	return core.Amounts(kept)
}

// waitingTime is how long a PodGroup says that it waits to be admitted at most, 0 for nothing.
func waitingTime(pg *v1beta1.PodGroup) (time.Duration, error) {
	for _, key := range [...]string{keys.SLAWaitingTime, keys.SLAWaitingTimeOlder} {
		if text, said := pg.Annotations[key]; said {
			d, err := time.ParseDuration(text)
			if err != nil || d <= 0 {
				return 0, fmt.Errorf("metadata.annotations[%s] is %q; it must be a duration above 0, such as 1h30m: it is overlooked", key, brief(text))
			}
			return d, nil
		}
	}
	return 0, nil
}

// Unheeded says what of pg is overlooked, for its owner to know; "" for nothing.
func Unheeded(pg *v1beta1.PodGroup, tier func(name string) (int, bool), pods *Pods) string {
	text := unheededTopology(pg.Spec.NetworkTopology, "spec.networkTopology", tier)
	named := map[string]bool{}
	for i := range pg.Spec.SubGroupPolicy {
		p := &pg.Spec.SubGroupPolicy[i]
		named[p.Name] = true
		text = cmp.Or(text, unheededTopology(p.NetworkTopology, fmt.Sprintf("spec.subGroupPolicy[%d].networkTopology", i), tier))
	}
	for _, task := range sortedTasks(&pg.Spec) {
		if pods.Tasks[task] && !named[task] {
			text = cmp.Or(text, fmt.Sprintf("spec.minTaskMember[%s] does not count: pods of the task are in subgroups of a policy of another name", brief(task)))
		}
	}
	if _, err := waitingTime(pg); err != nil {
		text = cmp.Or(text, err.Error())
	}
	if _, err := company(pg); err != nil {
		text = cmp.Or(text, err.Error())
	}
	if _, err := budget(pg); err != nil {
		text = cmp.Or(text, err.Error())
	}
	if text != "" {
		text = "PodGroup " + pg.Namespace + "/" + pg.Name + ": " + text
	}
	return text
}

// sortedTasks are the tasks with a minimum, by name.
func sortedTasks(spec *v1beta1.PodGroupSpec) []string {
	return slices.Sorted(maps.Keys(spec.MinTaskMember))
}

// taskSum is the sum of the minimums of tasks.
func taskSum(spec *v1beta1.PodGroupSpec) (sum int64) {
	for _, n := range spec.MinTaskMember { // order: a sum
		sum += int64(n)
	}
	return sum
}

// asks stands for metadata.generation, which here grows with each write of the status too: it changes when the spec does.
func asks(spec *v1beta1.PodGroupSpec) int64 {
	text, err := json.Marshal(spec)
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(text) // never fails
	return int64(h.Sum64() & math.MaxInt64)
}

// tree is the tree of a gang: its tasks as leaves, and one for all other pods. When it asks for what cannot be said so, the tree has no place for a pod,
// and the rule it breaks is returned.
func tree(spec *v1beta1.PodGroupSpec, tier func(string) (int, bool), pods *Pods) ([]cluster.Set, string) {
	sets, problem := minimums(spec, tier, pods)
	if problem == "" {
		sets[0].Near = nearby(spec.NetworkTopology, tier)
	}
	return sets, problem
}

func minimums(spec *v1beta1.PodGroupSpec, tier func(string) (int, bool), pods *Pods) ([]cluster.Set, string) {
	broken := []cluster.Set{{Parent: cluster.None}}
	switch {
	case spec.MinMember < 0:
		return broken, fmt.Sprintf("spec.minMember is %d; it must not be negative", spec.MinMember)
	case len(spec.MinTaskMember) > cluster.MaxSets-1:
		return broken, fmt.Sprintf("spec.minTaskMember has %d entries; at most %d are allowed", len(spec.MinTaskMember), cluster.MaxSets-1)
	}
	tasks := sortedTasks(spec)
	for _, name := range tasks {
		if n := spec.MinTaskMember[name]; n < 0 {
			return broken, fmt.Sprintf("spec.minTaskMember[%s] is %d; it must not be negative", brief(name), n)
		}
	}
	sum := taskSum(spec)
	if len(spec.SubGroupPolicy) > 0 {
		return grouped(spec, tier, pods)
	}
	if int64(spec.MinMember) < sum || len(tasks) == 0 {
		sets := cluster.FlatTree(spec.MinMember)
		sets[1].Rest = true
		return sets, ""
	}
	sets := []cluster.Set{{Parent: cluster.None}}
	rest := cluster.DefaultSet
	for _, name := range tasks {
		sets = append(sets, cluster.Set{Name: name, Parent: 0, Leaf: true, Min: spec.MinTaskMember[name]})
		if name == rest {
			rest += "-"
		}
	}
	sets = append(sets, cluster.Set{Name: rest, Parent: 0, Leaf: true, Rest: true})
	for i := 1; i < len(sets); i++ {
		sets[0].Children = append(sets[0].Children, int32(i))
	}
	if sets[0].Min = int32(len(sets) - 1); int64(spec.MinMember) > sum {
		sets[0].Pods = spec.MinMember
	}
	return sets, ""
}

// Member adds to the event of p what only a pod of Volcano's has: that it is ours, its gang and task, its own priority (what its annotation says, or its spec, or 1), how long after it
// got its node it is left alone, whether its queue has to let it in, and whether it may be evicted for others: unless its annotation, or else its label, says anything but true. A pod that names no PodGroup is in that of its
// owner, whatever other faces would read on it.
func Member(st *cluster.PodState, p *corev1.Pod) (problem string) {
	problem = align(st, p)
	refuseParts(st, p)
	st.Ours, st.Gang, st.SetName = true, Membership(p), ""
	if text, said := p.Annotations[keys.Preemptable]; said {
		st.Kept = !truth(text)
	} else if text, said := p.Labels[keys.Preemptable]; said {
		st.Kept = !truth(text)
	}
	if p.Annotations[keys.RevocableZone] == anyZone && st.Spec != nil {
		st.Spec.Revocable = true
	}
	if st.Cooldown = cooldown(p); st.Cooldown > 0 {
		for i := range p.Status.Conditions {
			if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
				st.Scheduled = core.Nanoseconds(&c.LastTransitionTime)
			}
		}
	}
	if p.Annotations[keys.QueueAllocationGate] == "true" {
		switch gates := p.Spec.SchedulingGates; {
		case len(gates) == 0:
			st.Entry = cluster.EntryGiven
		case len(gates) == 1 && gates[0].Name == keys.QueueAllocationGate:
			st.Entry = cluster.EntryAsked
		}
	}
	st.Priority = defaultTaskPriority
	if p.Spec.Priority != nil {
		st.Priority = *p.Spec.Priority
	}
	if n, err := strconv.ParseInt(p.Annotations[keys.TaskPriority], 10, 32); err == nil {
		st.Priority = int32(n)
	}
	if st.Gang != (cluster.Key{}) {
		st.SetName = Task(p)
	}
	return problem
}

// cooldown is how long after it got its node a pod says that it is left alone, by its label, or else its annotation; 0 for not at all, and for what is no duration above 0.
func cooldown(p *corev1.Pod) time.Duration {
	text, said := p.Labels[keys.CooldownTime]
	if !said {
		text = p.Annotations[keys.CooldownTime]
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0
	}
	return d
}

// truth says whether a text is a yes.
func truth(text string) bool {
	yes, err := strconv.ParseBool(text)
	return err == nil && yes
}

// Membership returns the gang that p is in, one of its own namespace: that of the PodGroup that it names, or else that of its owner; the zero Key for none.
func Membership(p *corev1.Pod) cluster.Key {
	if name := cmp.Or(p.Annotations[keys.GroupName], GroupOfOwner(p)); name != "" {
		return GangKey(p.Namespace, name)
	}
	return cluster.Key{}
}

// GroupPrefix begins the names of PodGroups of bare pods; the UID of their controller follows, or of a pod that has none (fact sheet, 2.8).
const GroupPrefix = "podgroup-"

// GroupOfOwner returns the name of the PodGroup that a pod is in if it names none. There need not be one of that name. Whoever sees the pod knows it without being told: the controller that makes
// that PodGroup, and the scheduler (ADR 18). "" for one that is no object of an API server yet, and has no UID.
func GroupOfOwner(p *corev1.Pod) string {
	uid := p.UID
	if c := metav1.GetControllerOfNoCopy(p); c != nil {
		uid = c.UID
	}
	if uid == "" {
		return ""
	}
	return GroupPrefix + string(uid)
}
