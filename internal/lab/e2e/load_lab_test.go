//go:build lab

package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

// The load: so many gangs at once, of four pods each. Its queue may hold loadLimit GPUs, so that some always wait.
const (
	loadGangs = 10
	loadSize  = 4
	loadLimit = 24
)

// placed keeps account of where pods are. The caller holds the fixture's lock.
func (s *story) placed(p *corev1.Pod, deleted bool) {
	ended := deleted || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	switch {
	case ended:
		delete(s.holds, p.UID)
	case p.Spec.NodeName != "":
		s.holds[p.UID] = true
		if _, known := s.bound[p.UID]; !known {
			s.bound[p.UID] = time.Now()
		}
	}
	s.most = max(s.most, len(s.holds))
}

// binds counts the pods of a namespace that were ever bound.
func (w *fixture) binds(namespace string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.stories[namespace].bound)
}

// traffic submits gangs, deletes each when it runs whole, and submits another, until it is stopped.
type traffic struct {
	w        *fixture
	ns       string
	cancel   context.CancelFunc
	ended    sync.WaitGroup
	mu       sync.Mutex
	finished int
	slowest  time.Duration
	open     int   // gangs that were submitted and have not ended
	refused  error // what the last submission met, if anything
	most     int   // pods that held a GPU at once, as far as was looked; under the fixture's lock
	unseen   bool  // the watch missed something; likewise
}

// newLoad starts the load in a namespace of its own, under a queue of its own that has the limit.
func newLoad(t *testing.T, w *fixture, ns string) *traffic {
	t.Helper()
	q := queue(ns, "root")
	q.Spec.Resources.GPU.Limit = loadLimit
	w.create(t, q)
	w.namespace(t, ns)
	ctx, cancel := context.WithCancel(context.Background())
	l := &traffic{w: w, ns: ns, cancel: cancel}
	l.ended.Go(func() { l.run(ctx) })
	t.Cleanup(func() { cancel(); l.ended.Wait() })
	return l
}

func (l *traffic) run(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	since := map[string]time.Time{} // of the gangs that have not run yet
	whole := map[string]bool{}      // those of them that were seen to run whole
	for next := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		running := map[string]int{}
		for _, p := range l.w.pods(l.ns) {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				running[p.Labels[batchv1.JobNameLabel]]++
			}
		}
		for name, began := range since { // order: each gang on its own
			whole[name] = whole[name] || running[name] >= loadSize
			// The API server may be away: then the next round tries again, though the pods may be gone by then.
			if !whole[name] || l.end(context.WithoutCancel(ctx), name) != nil {
				continue
			}
			delete(since, name)
			delete(whole, name)
			l.mu.Lock()
			l.finished, l.slowest = l.finished+1, max(l.slowest, time.Since(began))
			l.mu.Unlock()
		}
		if len(since) < loadGangs {
			name := fmt.Sprintf("load-%d", next)
			j := gang(l.ns, name, loadSize, "")
			j.Labels[keys.QueueLabel], j.Spec.Template.Labels[keys.QueueLabel] = l.ns, l.ns
			// An API server that was killed may have made it without saying so.
			err := l.w.client.Create(ctx, j)
			if apierrors.IsAlreadyExists(err) {
				err = nil
			}
			if err == nil {
				since[name] = time.Now()
				next++
			}
			l.mu.Lock()
			l.open, l.refused = len(since), err
			l.mu.Unlock()
		}
	}
}

// end deletes a gang, its pods at once.
func (l *traffic) end(ctx context.Context, name string) error {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: name}}
	if err := client.IgnoreNotFound(l.w.client.Delete(ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
		return err
	}
	return l.w.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(l.ns), client.MatchingLabels{batchv1.JobNameLabel: name})
}

// flows waits until the load has had so many more pods bound.
func (l *traffic) flows(t *testing.T, more int, limit time.Duration) time.Duration {
	t.Helper()
	from := l.w.binds(l.ns)
	return l.w.must(t, limit, func() string {
		if n := l.w.binds(l.ns); n < from+more {
			l.mu.Lock()
			defer l.mu.Unlock()
			return fmt.Sprintf("only %d of %d further pods of the load are bound; it has %d gangs open and submitted the last with %v", n-from, more, l.open, l.refused)
		}
		return ""
	})
}

// stop ends the load, waits until every gang that is left is whole or has no room under the limit, and checks what must hold
// of all there was.
func (l *traffic) stop(t *testing.T) {
	t.Helper()
	l.cancel()
	l.ended.Wait()
	// Gangs end whole: of each, none or all pods are on nodes, at the latest when the grace is over in which a gang that a fault
	// left below its minimum is completed or released: a minute unless set.
	l.w.must(t, 90*time.Second, func() string {
		on, all := map[string]int{}, map[string]string{}
		for _, p := range l.w.pods(l.ns) {
			name := p.Labels[batchv1.JobNameLabel]
			if p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
				on[name]++
			}
			all[name] += fmt.Sprintf("\n  %s on %q, %s, deleted %v, %v", p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp, p.Status.Conditions)
		}
		for _, j := range list(l.w, &batchv1.JobList{}, client.InNamespace(l.ns)).Items {
			// What a Job that is gone leaves behind, the garbage collector takes; it may be slow after an outage.
			if n := on[j.Name]; n != 0 && n != loadSize && j.DeletionTimestamp == nil {
				return fmt.Sprintf("%d of %d pods of %s are on nodes:%s", n, loadSize, j.Name, all[j.Name])
			}
		}
		return ""
	})
	most := l.within(t)
	l.w.sound(t)
	t.Logf("the load: %d gangs came and went, the slowest ran whole %v after it was submitted; at most %d of %d GPUs of its limit were held", l.finished, l.slowest.Round(10*time.Millisecond), most, loadLimit)
}

// within fails the test if the load ever held more than its limit, and returns the most it held: by the watch, which has every
// moment of it, unless the watch was interrupted, as by blind; then from there on by one look at the API server.
func (l *traffic) within(t *testing.T) int {
	t.Helper()
	var pods corev1.PodList
	if err := l.w.client.List(t.Context(), &pods, client.InNamespace(l.ns)); err != nil {
		t.Fatal(err)
	}
	now := 0
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			now++
		}
	}
	l.w.mu.Lock()
	most := l.most
	if !l.unseen {
		most = max(most, l.w.stories[l.ns].most)
	}
	l.most = max(most, now)
	l.w.mu.Unlock()
	if l.most > loadLimit {
		t.Errorf("%d pods held a GPU each at once, where the queue's limit is %d", l.most, loadLimit)
	}
	return l.most
}

// blind says that the watch will miss things from now on: it lists anew, and then hears of pods that came before it hears of
// those that went.
func (l *traffic) blind(t *testing.T) {
	t.Helper()
	l.within(t)
	l.w.mu.Lock()
	l.unseen = true
	l.w.mu.Unlock()
}

// sound fails the test if a node was overcommitted, or a request speaks of a node its pod is not on.
func (w *fixture) sound(t *testing.T) {
	t.Helper()
	rejected, err := w.lab.Rejected(t.Context())
	if err != nil || len(rejected) > 0 {
		t.Errorf("kubelets turned pods away: %v, %v", rejected, err)
	}
	nodes := map[string]string{}
	for _, p := range list(w, &corev1.PodList{}).Items {
		nodes[p.Namespace+"/"+p.Name] = p.Spec.NodeName
	}
	for _, r := range list(w, &v1alpha2.BindRequestList{}).Items {
		if on := nodes[r.Namespace+"/"+r.Spec.PodName]; on != "" && r.Spec.SelectedNode != on {
			t.Errorf("BindRequest %s/%s is for node %s, its pod is on %s", r.Namespace, r.Name, r.Spec.SelectedNode, on)
		}
	}
}

// probe submits a gang in a namespace made before, and returns how long after since its first pod was bound. It fails unless
// the gang was decided whole before that, and runs whole soon.
func (w *fixture) probe(t *testing.T, ns string, since time.Time, limit time.Duration) time.Duration {
	t.Helper()
	err := retry.OnError(retry.DefaultBackoff, func(err error) bool { return !apierrors.IsAlreadyExists(err) }, func() error {
		return w.client.Create(t.Context(), gang(ns, "probe", loadSize, ""))
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	w.must(t, limit, func() string {
		if w.binds(ns) == 0 {
			return "no pod of the gang " + ns + " is bound"
		}
		return ""
	})
	took := time.Since(since)
	w.must(t, limit, w.allRunning(ns, loadSize))
	if what := w.early(ns, loadSize, false); what != "" {
		t.Errorf("%s: %s", ns, what)
	}
	return took
}
