//go:build lab

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/lab"
)

// blind is how much of the past a scheduler may not have heard of when it decides: the way of an event.
const blind = 500 * time.Millisecond

// TestForeignScheduler lets a stock kube-scheduler fill the same nodes.
func TestForeignScheduler(t *testing.T) {
	w := newFixture(t, 8, lab.Options{KubeScheduler: true})
	muster := newProcess(t, "all", w.lab.Kubeconfig())
	muster.start()
	muster.awaitReady(t)
	t.Run("both fill the nodes", func(t *testing.T) { bothFill(t, w) })
	t.Run("room that is gone is reported", func(t *testing.T) { shrunk(t, w) })
	if muster.started != 1 || !muster.running() {
		t.Errorf("muster has ended: %v", muster.exit())
	}
}

// bothFill runs gangs, four at a time, on 64 GPUs through which a crowd of foreign pods runs meanwhile.
func bothFill(t *testing.T, w *fixture) {
	const streams, rounds, size, crowd = 4, 15, 8, 40
	book := newLedger(t, w)
	w.namespace(t, "foreign")
	w.namespace(t, "ours")
	w.create(t, foreigners("foreign", crowd))
	began := time.Now()
	results := make(chan string, streams)
	for i := range streams {
		go func() {
			for round := range rounds {
				if what := w.pass(fmt.Sprintf("gang-%d-%d", i, round), size); what != "" {
					results <- what
					return
				}
			}
			results <- ""
		}()
	}
	for range streams {
		if what := <-results; what != "" {
			t.Errorf("a gang did not become whole: %s", what)
		}
	}
	took := time.Since(began)
	r := book.audit()
	rejected, err := w.lab.Rejected(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, e := range list(w, &corev1.EventList{}).Items {
		if e.InvolvedObject.Kind == "Node" && e.Reason == "Overcommitted" {
			told++
		}
	}
	t.Logf("%d gangs of %d, four at a time, beside %d foreign pods that come and go, on 64 GPUs: all were whole within %v; %s; kubelets turned away %v; %d events told of overcommitted nodes",
		streams*rounds, size, crowd, took.Round(100*time.Millisecond), r, rejected, told)
	if len(r.faults) > 0 {
		t.Errorf("binds of ours where there was no room, and no foreign bind came between:\n%s", strings.Join(r.faults, "\n"))
	}
	if r.ours < streams*rounds*size || r.foreign < 100 {
		t.Errorf("only %d and %d binds were seen", r.ours, r.foreign)
	}
	if err := w.client.Delete(t.Context(), foreigners("foreign", crowd), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	w.erase(t, "foreign")
	w.erase(t, "ours")
}

// foreigners are so many pods of the stock scheduler, of one GPU and one second each, of which each is followed by another.
func foreigners(namespace string, n int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": "foreign"}
	spec := gang(namespace, "", 1, "").Spec.Template.Spec
	spec.SchedulerName, spec.RestartPolicy = corev1.DefaultSchedulerName, corev1.RestartPolicyAlways
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "crowd"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{lab.AnnotationRunFor: "1s"}}, Spec: spec},
	}}
}

// pass makes a gang in namespace ours, waits until it is whole, and deletes it. A pod that is turned away by its kubelet is
// replaced, as its workload's controller would; here it is replaced at once. It returns what is lacking after a minute.
func (w *fixture) pass(name string, size int) (lacking string) {
	ctx := context.Background()
	labels := map[string]string{keys.QueueLabel: "team", "gang": name}
	group := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: name}, Spec: v2alpha2.PodGroupSpec{Queue: "team", MinMember: ptr.To(int32(size))}}
	if err := w.client.Create(ctx, group); err != nil {
		return err.Error()
	}
	made := 0
	replaced := map[types.UID]bool{}
	_, lacking = w.await(time.Minute, func() string {
		running, wanted := 0, max(0, size-made)
		for _, p := range list(w, &corev1.PodList{}, client.InNamespace("ours"), client.MatchingLabels{"gang": name}).Items {
			switch {
			case p.Status.Phase == corev1.PodRunning:
				running++
			case p.Status.Phase == corev1.PodFailed && !replaced[p.UID]:
				replaced[p.UID] = true
				wanted++
			}
		}
		for range wanted {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ours", Name: fmt.Sprintf("%s-%d", name, made), Labels: labels,
				Annotations: map[string]string{keys.PodGroupAnnotation: name},
			}, Spec: gang("ours", name, 1, "").Spec.Template.Spec}
			if err := w.client.Create(ctx, pod); err != nil {
				return err.Error()
			}
			made++
		}
		if running < size {
			return fmt.Sprintf("%d of %d pods of %s run", running, size, name)
		}
		return ""
	})
	if lacking != "" {
		return lacking
	}
	if err := w.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("ours"), client.MatchingLabels{"gang": name}); err != nil {
		return err.Error()
	}
	if err := w.client.Delete(ctx, group); err != nil {
		return err.Error()
	}
	return ""
}

// shrunk takes GPUs away from a full node, as when devices fail: nothing tells the scheduler's pods to go, there is just
// less than is used.
func shrunk(t *testing.T, w *fixture) {
	w.namespace(t, "full")
	w.create(t, gang("full", "gang", 64, ""))
	w.must(t, 20*time.Second, w.allRunning("full", 64))
	const node = "n-3"
	body := fmt.Sprintf(`{"status":{"allocatable":{%q:"6"},"capacity":{%q:"6"}}}`, lab.GPUResource, lab.GPUResource)
	if err := w.client.Status().Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		t.Fatal(err)
	}
	var said string
	w.must(t, 10*time.Second, func() string {
		for _, e := range list(w, &corev1.EventList{}).Items {
			if e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == node && e.Reason == "Overcommitted" && strings.Contains(e.Message, "8 of 6 gpu") {
				said = e.Message
				return ""
			}
		}
		return "no event says that node " + node + " is overcommitted"
	})
	t.Logf("event on Node %s: %s", node, said)

	// One of its pods ends: the node is still short by one, so its replacement must not come here, and nowhere else is room.
	var last *corev1.Pod
	for _, p := range w.pods("full") {
		if p.Spec.NodeName == node {
			last = &p
		}
	}
	if err := w.client.Delete(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	w.must(t, 30*time.Second, func() string { // a Job waits 10 s before it replaces a pod that it lost
		for _, p := range w.pods("full") {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && p.Spec.NodeName == "" {
					said = c.Message
					return ""
				}
			}
		}
		return "the replacement is not told why it waits"
	})
	t.Logf("its pod's replacement: %s", said)
	if n := w.boundNow(t, "full"); n != 63 {
		t.Errorf("%d pods are bound, want 63", n)
	}
	body = fmt.Sprintf(`{"status":{"allocatable":{%q:"8"},"capacity":{%q:"8"}}}`, lab.GPUResource, lab.GPUResource)
	if err := w.client.Status().Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		t.Fatal(err)
	}
	w.must(t, 10*time.Second, w.allRunning("full", 64))
	w.erase(t, "full")
}

// ledger writes down who was bound where and when, by the API server's revisions.
type ledger struct {
	mu       sync.Mutex
	capacity map[string]int64
	pods     map[types.UID]*entry
	decided  map[types.UID]stamp // by BindRequests, or the record of its gang; a pod that stands alone has neither
}

// stamp is a moment: the API server's, and ours when we heard of it.
type stamp struct {
	revision uint64
	heard    time.Time
}

// entry is a pod that holds GPUs of a node from bound to ended.
type entry struct {
	name, node   string
	ours         bool
	gpus         int64
	bound, ended stamp
	uid          types.UID
}

func newLedger(t *testing.T, w *fixture) *ledger {
	t.Helper()
	l := &ledger{capacity: map[string]int64{}, pods: map[types.UID]*entry{}, decided: map[types.UID]stamp{}}
	for _, n := range list(w, &corev1.NodeList{}).Items {
		l.capacity[n.Name] = ptr.To(n.Status.Allocatable[lab.GPUResource]).Value()
	}
	for _, o := range []client.Object{&corev1.Pod{}, &v1alpha2.BindRequest{}, &corev1.ConfigMap{}} {
		i, err := w.cache.GetInformer(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		r, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { l.note(o, false) }, UpdateFunc: func(_, o any) { l.note(o, false) }, DeleteFunc: func(o any) { l.note(o, true) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = i.RemoveEventHandler(r) })
	}
	return l
}

// note takes an event.
func (l *ledger) note(object any, deleted bool) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	o := object.(client.Object)
	revision, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	now := stamp{revision, time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	decide := func(pod types.UID) {
		if _, known := l.decided[pod]; !known {
			l.decided[pod] = now
		}
	}
	switch o := o.(type) {
	case *v1alpha2.BindRequest:
		for _, owner := range o.OwnerReferences {
			decide(owner.UID)
		}
	case *corev1.ConfigMap:
		if r := recordOf(o); r != nil {
			for i := range r.Members {
				decide(r.Members[i].PodUID)
			}
		}
	case *corev1.Pod:
		e := l.pods[o.UID]
		if e == nil && o.Spec.NodeName != "" {
			gpus := resource.Quantity{}
			for _, c := range o.Spec.Containers {
				gpus.Add(c.Resources.Requests[lab.GPUResource])
			}
			e = &entry{name: o.Namespace + "/" + o.Name, node: o.Spec.NodeName, ours: o.Spec.SchedulerName == keys.SchedulerName, gpus: gpus.Value(), bound: now, uid: o.UID}
			l.pods[o.UID] = e
		}
		over := deleted || o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed
		if e != nil && over && e.ended.revision == 0 {
			e.ended = now
		}
	}
}

// audit is what the ledger shows.
type audit struct {
	ours, foreign int
	thefts        int // binds of ours onto room that a foreign bind took after our decision
	robbed        int // foreign binds onto room that was not there
	faults        []string
}

func (a audit) String() string {
	return fmt.Sprintf("%d binds of ours and %d foreign ones; %d of ours found their room taken after it was promised, %d foreign ones found none",
		a.ours, a.foreign, a.thefts, a.robbed)
}

// audit replays all binds in the order of the API server. A bind of ours that overfills its node is excused if a foreign
// pod was bound there after our decision, or so shortly before it that we could not know.
func (l *ledger) audit() (a audit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*entry, 0, len(l.pods))
	for _, e := range l.pods { // order: sorted below
		all = append(all, e)
	}
	slices.SortFunc(all, func(x, y *entry) int { return cmp.Compare(x.bound.revision, y.bound.revision) })
	for i, e := range all {
		used := e.gpus
		late := ""
		decision, asked := l.decided[e.uid]
		if !asked {
			decision = e.bound // by the scheduler itself
		}
		for _, o := range all[:i] {
			if o.node != e.node || o.ended.revision != 0 && o.ended.revision < e.bound.revision {
				continue
			}
			used += o.gpus
			if !o.ours && (o.bound.revision > decision.revision || o.bound.heard.After(decision.heard.Add(-blind))) {
				late = o.name
			}
		}
		if e.ours {
			a.ours++
		} else {
			a.foreign++
		}
		switch {
		case used <= l.capacity[e.node]:
		case !e.ours:
			a.robbed++
		case late != "":
			a.thefts++
		default:
			a.faults = append(a.faults, fmt.Sprintf("%s was bound to %s, where %d of %d GPUs were taken then", e.name, e.node, used, l.capacity[e.node]))
		}
	}
	return a
}
