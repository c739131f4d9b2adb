//go:build lab

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/lab"
)

// The cluster of these tests has three nodes. Queue greedy fills it with pods of one GPU that nobody needs together; queue
// starved owns a node's worth of it, and asks for it by one pod of 8 GPUs: eight pods of one node have to go.
const (
	contestedNodes = 3
	greedyPods     = 8 * contestedNodes
)

// disrupted is a fixture in which somebody is about to be starved.
type disrupted struct {
	*fixture
	proxy     *lab.Proxy
	scheduler *process
}

func newDisrupted(t *testing.T) *disrupted {
	t.Helper()
	w := newFixture(t, contestedNodes, lab.Options{})
	for name, gpus := range map[string]float64{"greedy": 8, "starved": 8} {
		q := queue(name, "root")
		q.Spec.Resources.GPU = queuev2.QueueResource{Quota: gpus, Limit: -1, OverQuotaWeight: 1}
		w.create(t, q)
	}
	proxy, err := w.lab.NewProxy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	d := &disrupted{fixture: w, proxy: proxy}
	for _, role := range []string{"binder", "podgrouper", "podgroup"} {
		p := newProcess(t, role, w.lab.Kubeconfig())
		p.start()
		p.awaitReady(t)
	}
	d.scheduler = newProcess(t, "scheduler", proxy.Kubeconfig(), "--plugin-server-port=0")
	d.scheduler.start()
	d.scheduler.awaitReady(t)
	return d
}

// job is a Job whose pods each take so many GPUs and need nobody else.
func job(namespace, name, queue string, pods int, gpus string, stopAfter string, grace int64) *batchv1.Job {
	j := gang(namespace, name, pods, "")
	j.Labels[keys.QueueLabel], j.Spec.Template.Labels[keys.QueueLabel] = queue, queue
	j.Annotations[keys.BatchMinMemberAnnotation] = "1"
	j.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{lab.GPUResource: resource.MustParse(gpus)}
	j.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To(grace)
	if stopAfter != "" {
		j.Spec.Template.Annotations = map[string]string{lab.AnnotationStopAfter: stopAfter}
	}
	return j
}

// fill lets greedy fill the cluster.
func (d *disrupted) fill(t *testing.T, ns, stopAfter string, grace int64) {
	t.Helper()
	d.namespace(t, ns)
	for i := range contestedNodes {
		d.create(t, job(ns, "greedy-"+strconv.Itoa(i), "greedy", 8, "1", stopAfter, grace))
	}
	d.must(t, time.Minute, d.allRunning(ns, greedyPods))
}

// evictions counts the pods of the namespace that the scheduler has had evicted.
func (d *disrupted) evictions(ns string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.stories[ns].evicted)
}

// placed is what lacks until the starved pod runs.
func (d *disrupted) placed(ns string) func() string {
	return func() string {
		for _, p := range d.pods(ns) {
			if p.Labels[keys.QueueLabel] == "starved" {
				if p.Status.Phase == corev1.PodRunning {
					return ""
				}
				return fmt.Sprintf("the starved pod is %s on %q, nominated to %q; %d pods evicted", p.Status.Phase, p.Spec.NodeName, p.Status.NominatedNodeName, d.evictions(ns))
			}
		}
		return "there is no starved pod yet"
	}
}

// starve lets starved ask for its own.
func (d *disrupted) starve(t *testing.T, ns string) {
	t.Helper()
	d.create(t, job(ns, "starved", "starved", 1, "8", "", 0))
}

// cleanUp ends a case.
func (d *disrupted) cleanUp(t *testing.T, ns string) {
	t.Helper()
	d.proxy.Reset()
	d.erase(t, ns)
	d.scheduler.awaitReady(t)
}

var evictions = lab.Match{Method: "POST", Resource: "pods", Subresource: "eviction"}

// TestDisruptionFaults: what goes wrong between a decision that evicts and its end.
func TestDisruptionFaults(t *testing.T) {
	d := newDisrupted(t)

	t.Run("victims that refuse to die", func(t *testing.T) {
		const ns, grace = "slow", 12
		d.fill(t, ns, "never", grace)
		d.starve(t, ns)
		since := time.Now()
		d.must(t, 20*time.Second, func() string {
			if n := d.evictions(ns); n != 8 {
				return fmt.Sprintf("%d pods evicted", n)
			}
			return ""
		})
		decided := time.Since(since)
		// While they drain, room is held, and says so.
		d.must(t, 10*time.Second, func() string {
			for _, p := range d.pods(ns) {
				if p.Labels[keys.QueueLabel] == "starved" && p.Status.NominatedNodeName != "" && held(&p) {
					return ""
				}
			}
			return "the pod does not say where its room is held"
		})
		d.must(t, 10*time.Second, func() string {
			for _, p := range d.pods(ns) { // one that is its gang by itself says it itself
				for _, c := range p.Status.Conditions {
					if p.Labels[keys.QueueLabel] == "starved" && p.Annotations[keys.PodGroupAnnotation] == "" && c.Type == keys.RoomHeldCondition && c.Status == corev1.ConditionTrue {
						if c.Reason == keys.ReasonWaitingForRelease && strings.Contains(c.Message, "room on node n-") {
							return ""
						}
						return "the pod says: " + c.Reason + ": " + c.Message
					}
				}
			}
			for _, g := range list(d.fixture, &v2alpha2.PodGroupList{}, client.InNamespace(ns)).Items {
				if g.Spec.Queue != "starved" {
					continue
				}
				for _, c := range g.Status.SchedulingConditions {
					if len(c.Reasons) == 1 && c.Reasons[0].Reason == "WaitingForRelease" && strings.Contains(c.Message, "held on n-") {
						return ""
					}
				}
			}
			return "the gang does not say where its room is held"
		})
		d.must(t, time.Minute, d.placed(ns))
		if took := time.Since(since); took < grace*time.Second {
			t.Errorf("placed after %v, and its victims had %d s", took, grace)
		}
		if n := d.evictions(ns); n != 8 {
			t.Errorf("%d pods evicted for room that 8 have", n)
		}
		t.Logf("evicted after %v, placed after %v, 8 evictions", decided.Round(time.Millisecond), time.Since(since).Round(time.Millisecond))
		d.cleanUp(t, ns)
	})

	t.Run("a node lost between decision and eviction", func(t *testing.T) {
		const ns = "lost"
		d.fill(t, ns, "", 0)
		node := make(chan string, 8)
		gate := make(chan struct{})
		seen := make(chan struct{}, 8)
		for k := 1; k <= 4; k++ { // as many as are under way at once
			d.proxy.On(lab.Match{Method: "POST", Resource: "pods", Subresource: "eviction", Namespace: ns}, k, lab.BeforeForward, func(r lab.Request) {
				for _, p := range d.pods(ns) {
					if p.Name == r.Name {
						node <- p.Spec.NodeName
					}
				}
				seen <- struct{}{}
				<-gate
			})
		}
		d.starve(t, ns)
		for range 4 {
			select {
			case <-seen:
			case <-time.After(30 * time.Second):
				t.Fatal("the evictions did not come")
			}
		}
		lost := <-node
		if err := d.lab.FailNode(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
		d.must(t, 10*time.Second, func() string {
			var n corev1.Node
			if err := d.cache.Get(t.Context(), client.ObjectKey{Name: lost}, &n); err != nil {
				return err.Error()
			}
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
					return ""
				}
			}
			return "the node is still ready"
		})
		close(gate)
		d.must(t, time.Minute, d.placed(ns))
		if n := d.evictions(ns); n != 4+8 {
			t.Errorf("%d pods evicted, not 4 before node %s was lost, and 8 on another", n, lost)
		}
		// The other four were spared: they go when the node controller gives the node up, not by us.
		if err := d.lab.RestoreNode(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
		d.cleanUp(t, ns)
	})

	for _, k := range []int{1, 4, 8} {
		for _, when := range []lab.When{lab.BeforeForward, lab.AfterForward} {
			name := fmt.Sprintf("killed at eviction %d %s", k, map[lab.When]string{lab.BeforeForward: "lost", lab.AfterForward: "sent"}[when])
			t.Run(name, func(t *testing.T) {
				ns := strings.ReplaceAll(strings.TrimPrefix(name, "killed at "), " ", "-")
				d.fill(t, ns, "", 0)
				match := evictions
				match.Namespace = ns
				fired := d.proxy.On(match, k, when, func(lab.Request) { d.scheduler.kill() })
				d.starve(t, ns)
				select {
				case <-fired:
				case <-time.After(30 * time.Second):
					t.Fatal("the eviction did not come")
				}
				d.proxy.Reset()
				before := d.evictions(ns)
				d.scheduler.start()
				since := time.Now()
				d.must(t, time.Minute, d.placed(ns))
				took := time.Since(since)
				// What was free when the process died may have been taken again before the new one decided: then as many go
				// once more, and not more.
				if n := d.evictions(ns); n > 8+8 || n < 8 {
					t.Errorf("%d pods evicted for room that 8 have, %d of them before the kill", n, before)
				}
				t.Logf("%d evicted at the kill, %d in the end, placed %v after the restart", before, d.evictions(ns), took.Round(time.Millisecond))
				d.must(t, time.Minute, func() string { // everybody else is back where there is room
					if n := d.running(ns); n != greedyPods-8+1 {
						return fmt.Sprintf("%d pods run", n)
					}
					return ""
				})
				d.cleanUp(t, ns)
			})
		}
	}
}

// held says whether the pod says that we hold room for it.
func held(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == keys.RoomHeldCondition {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
