package solver_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/plugins/minruntime"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// plain is a town in which the last gang gets what the first one has, by any of the rights: g0 is the victim, of as little
// right as there is; the beneficiary needs all of n0.
func plain(cause policy.EvictionCause) exampleCluster {
	free := func(name string, quota int64) team {
		return team{name: name, quota: quota, limit: -1, cpuQuota: -1, weight: 1, priority: 100, reclaim: -1, preempt: -1}
	}
	w := exampleCluster{nodes: []exampleNode{{gpu: 2, cpu: 8, zone: "a"}}, queues: []team{free("lender", 0), free("owner", 2)}}
	victim := crew{queue: "lender", priority: 50, least: 1, started: 600, pods: []hand{{gpu: 2, on: 0}}}
	beneficiary := crew{queue: "owner", priority: 50, least: 1, pods: []hand{{gpu: 2, on: -1}}}
	switch cause {
	case policy.Preempt:
		victim.queue, beneficiary.priority = "owner", 60
	case policy.Consolidation: // the victim has half of n0, and may have half of n1
		victim.queue, victim.pods[0].gpu = "owner", 1
		other := crew{queue: "owner", priority: 50, fixed: true, least: 1, started: 600, pods: []hand{{gpu: 1, on: 1}}}
		w.nodes = append(w.nodes, exampleNode{gpu: 2, cpu: 8, zone: "a"})
		w.gangs = []crew{victim, other, beneficiary}
		return w
	}
	w.gangs = []crew{victim, beneficiary}
	return w
}

// budget lets a PodDisruptionBudget that allows nothing mean every pod; queues that block say so.
func budget(s *cluster.Store) {
	s.Apply(cluster.ObjectState{Kind: cluster.PodDisruptionBudgets, Key: "x/all", Object: &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "all"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
	}})
}

// displaced lets the victim have been displaced at these times for some gangs, and be back; the cluster last changed by itself
// at news.
func displaced(by string, news cluster.Instant, at ...cluster.Instant) func(*cluster.Store) {
	return func(s *cluster.Store) {
		gm := cluster.GangMemory{Gang: gang("g0"), GangHistory: cluster.GangHistory{Displaced: at[len(at)-1]}}
		for _, t := range at {
			for _, name := range strings.Fields(by) {
				gm.Displacements = append(gm.Displacements, cluster.Displacement{At: t, By: gang(name)})
			}
		}
		s.Restore(cluster.Memory{Gangs: []cluster.GangMemory{gm}, Held: map[string]cluster.Instant{"g0-0": noon}, News: news})
	}
}

// beneficiaries are the beneficiaries' names in plain towns.
const beneficiaries = "g1 g2"

func gang(name string) cluster.Key { return cluster.Key{Face: "kai", Namespace: "x", Name: name} }

// rows make the rows of the published table, by what stands in their first column.
var rows = map[string]struct {
	edit     func(*exampleCluster)
	remember func(*cluster.Store)
	reason   *policy.Reason
}{
	"nothing of the below":                                              {},
	"it may not be preempted":                                           {edit: func(w *exampleCluster) { w.gangs[0].fixed = true }, reason: policy.ReasonNotPreemptible},
	"its priority is higher":                                            {edit: func(w *exampleCluster) { w.gangs[0].priority = 75 }, reason: policy.ReasonHigherPriority},
	"its priority is the same":                                          {edit: func(w *exampleCluster) { w.gangs[len(w.gangs)-1].priority = 50 }, reason: policy.ReasonHigherPriority},
	"it is of the same queue":                                           {edit: func(w *exampleCluster) { w.gangs[0].queue = "owner" }},
	"pods of it are on their way to their nodes":                        {edit: func(w *exampleCluster) { w.gangs[0].pods[0].coming = true }, reason: policy.ReasonBeingBound},
	"it is of another queue":                                            {edit: func(w *exampleCluster) { w.gangs[0].queue = "lender" }},
	"nobody makes one of its pods anew":                                 {edit: func(w *exampleCluster) { w.gangs[0].pods[0].bare = true }, reason: policy.ReasonNotRecreated},
	"its queue holds no more than its own":                              {edit: func(w *exampleCluster) { w.queues[0].quota = 2 }, reason: policy.ReasonVictimWithinShare},
	"it is within its minimum runtime":                                  {edit: func(w *exampleCluster) { w.queues[0].reclaim, w.queues[1].preempt = 3600, 3600 }, reason: minruntime.ReasonMinRuntime},
	"it is, and the pod is above its minimum":                           {edit: func(w *exampleCluster) { w.queues[0].reclaim, w.queues[1].preempt = 3600, 3600; w.gangs[0].least = 0 }},
	"a disruption budget would be violated":                             {remember: budget, reason: policy.ReasonBudget},
	"it would be, and the queue says that budgets block":                {remember: func(s *cluster.Store) { budget(s); block(s) }, reason: policy.ReasonBudget},
	"it was displaced for the same gang before, and is back":            {remember: displaced(beneficiaries, noon, noon.Add(-120e9)), reason: policy.ReasonReturned},
	"it was displaced for another while the gang waited, and is back":   {remember: displaced("other", cluster.UnixNano(1), noon.Add(-120e9)), reason: policy.ReasonReturned},
	"it was, and the cluster has changed by itself since, a minute ago": {remember: displaced("other", noon, noon.Add(-120e9))},
	"it was, and a fair share of the two has moved to stay since": {remember: func(s *cluster.Store) {
		displaced("other", cluster.UnixNano(1), noon.Add(-120e9))(s)
		s.Restore(cluster.Memory{Moved: map[string]cluster.Instant{"owner": noon}})
	}, reason: policy.ReasonReturned},
	"it was, before the gang waited": {remember: displaced("other", cluster.UnixNano(1), cluster.UnixNano(1))},
	"the pair is frozen":             {remember: freeze, reason: policy.ReasonFrozen},
	"it lost pods four times within the hour, and shares follow usage": {remember: func(s *cluster.Store) {
		displaced("other", noon, noon.Add(-40*60e9), noon.Add(-30*60e9), noon.Add(-20*60e9), noon.Add(-10*60e9))(s)
		s.Apply(cluster.UsageState{Queues: map[string][]cluster.Quantity{"lender": {{Name: "gpu", Value: 1}}, "owner": {{Name: "gpu", Value: 1}}}})
	}, reason: policy.ReasonEvictionRate},
}

func block(s *cluster.Store) {
	snap := s.Snapshot(noon)
	for _, id := range snap.QueueOrder {
		q := snap.Queue(id).State(snap.Dims)
		q.BudgetsBlock = true
		s.Apply(q)
	}
}

func freeze(s *cluster.Store) {
	for _, beneficiary := range strings.Fields(beneficiaries) {
		s.Freeze(gang(beneficiary), gang("g0"), noon.Add(1e9))
	}
}

// TestTable plays every row of the table of legal victims in docs/concepts/disruption.md, by every right.
func TestTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "concepts", "disruption.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	columns := []policy.EvictionCause{policy.Consolidation, policy.Reclaim, policy.Preempt}
	for _, line := range regexp.MustCompile(`(?m)^\| (.+) \| (moved|taken|no|-)[^|]* \| (taken|no|-)[^|]* \| (taken|no|-)[^|]* \|.*$`).FindAllStringSubmatch(string(text), -1) {
		name := line[1]
		row, known := rows[name]
		if !known {
			t.Errorf("no case plays the row %q", name)
			continue
		}
		seen[name] = true
		for k, cause := range columns {
			want := line[2+k]
			if want == "-" {
				continue
			}
			w := plain(cause)
			if row.edit != nil {
				row.edit(&w)
			}
			answers, trace := tryIn(&w, cause, row.remember)
			last := answers[len(answers)-1]
			if last.ok != (want != "no") {
				t.Errorf("%s, %s: the table says %s\n%s", name, cause, want, tell(&w, cause))
				continue
			}
			if last.ok || row.reason == nil {
				continue
			}
			told := ""
			for _, g := range trace.Gangs {
				for _, a := range g.Tried {
					for _, b := range a.Barred {
						told += b.Verdict.Reason.String() + " "
					}
				}
			}
			if !strings.Contains(told, row.reason.Key) {
				t.Errorf("%s, %s: not touched for %q; want %s", name, cause, told, row.reason)
			}
		}
	}
	for name := range rows { // order: complaints
		if !seen[name] {
			t.Errorf("the table has no row %q", name)
		}
	}
}
