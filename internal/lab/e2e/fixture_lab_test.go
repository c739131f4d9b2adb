//go:build lab

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/crds"
	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	kaiv1alpha1 "github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/kubebatch"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vcbus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	vcflow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	vcshard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	vctopology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/lab"
)

// fixture is a lab with its objects followed by watches. Its GPU queue is the one called team.
type fixture struct {
	lab    *lab.Lab
	client client.Client
	cache  cache.Cache

	mu      sync.Mutex
	changed chan struct{} // closed at the next event
	stories map[string]*story
}

// story is what was seen happen in a namespace, by the API server's revisions: one counter for all kinds of objects.
type story struct {
	firstBind uint64                   // when the first pod had a node; 0 for never
	requests  map[types.UID]span       // the life of each BindRequest
	records   map[types.UID]gangRecord // and of each record of a gang of the namespace
	claims    map[string]uint64        // when the claim was bound
	bound     map[types.UID]time.Time  // when a pod was first seen on a node
	holds     map[types.UID]bool       // pods that are on a node and have not ended
	most      int                      // pods that were so at once
	waited    map[types.UID]bool       // pods that were told that there is no room for them
	evicted   map[types.UID]bool       // pods that the eviction API let go, which here is asked by the scheduler alone
}

// span is from when to when an object existed; an end of 0 is not known.
type span struct{ from, to uint64 }

// newFixture starts a lab with the options' fleet, or else so many nodes of 8 GPUs, and the queues, and follows it. Our
// definitions are installed besides the options' own.
func newFixture(t *testing.T, nodes int, o lab.Options) *fixture {
	t.Helper()
	if o.Fleet.Pools == nil {
		o.Fleet.Pools = []lab.Pool{{Name: "n", Count: nodes, GPUs: 8}}
	}
	o.CRDs = append(o.CRDs, crds.Documents()...)
	o.Logf = func(format string, args ...any) {
		// etcd warns of every request whose client was killed, and killing clients is what happens here.
		if line := fmt.Sprintf(format, args...); !strings.Contains(line, `"logger":"etcd-client"`) {
			t.Log(line)
		}
	}
	l, err := lab.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &fixture{lab: l, changed: make(chan struct{}), stories: map[string]*story{}}
	t.Cleanup(func() {
		if t.Failed() && w.client != nil {
			t.Log(w.account())
		}
	})
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kaiv1.AddToScheme, kaiv1alpha1.AddToScheme, v1alpha2.AddToScheme, queuev2.AddToScheme, v2alpha2.AddToScheme, vcbatch.AddToScheme, vcbus.AddToScheme, vcscheduling.AddToScheme, vcflow.AddToScheme, vctopology.AddToScheme, vcshard.AddToScheme, kubebatch.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	if w.client, err = client.New(l.Config(), client.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	if w.cache, err = cache.New(l.Config(), cache.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	w.follow(t)
	w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.Namespace}})
	w.create(t, queue("root", ""))
	w.create(t, queue("team", "root"))
	return w
}

// account is what a failed test leaves to be understood by: the Jobs and their pods, as the API server has them and not as
// the test's watches do, and the end of what the servers of the lab said.
func (w *fixture) account() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var b strings.Builder
	var jobs batchv1.JobList
	var pods corev1.PodList
	if err := errors.Join(w.client.List(ctx, &jobs), w.client.List(ctx, &pods)); err != nil {
		fmt.Fprintf(&b, "the API server does not tell what it has: %v\n", err)
	}
	of := map[string]map[string]int{}
	for i := range pods.Items {
		p := &pods.Items[i]
		job := p.Namespace + "/" + p.Labels[batchv1.JobNameLabel]
		if of[job] == nil {
			of[job] = map[string]int{}
		}
		is := string(p.Status.Phase)
		if p.Spec.NodeName != "" {
			is += " on a node"
		}
		if p.DeletionTimestamp != nil {
			is += " being deleted"
		}
		of[job][is]++
	}
	for i := range jobs.Items[:min(len(jobs.Items), 40)] {
		j := &jobs.Items[i]
		name := j.Namespace + "/" + j.Name
		fmt.Fprintf(&b, "Job %s made %s, deleted %v, active %d: pods %v\n", name, j.CreationTimestamp.Format(time.RFC3339), j.DeletionTimestamp, j.Status.Active, of[name])
		delete(of, name)
	}
	fmt.Fprintf(&b, "%d Jobs; pods of no Job, or of others: %v\n", len(jobs.Items), of)
	for _, log := range []string{"servers.log", "apiserver.log"} {
		text, err := os.ReadFile(filepath.Join(w.lab.Dir(), "logs", log))
		if err != nil {
			continue // only a split lab has both
		}
		lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
		fmt.Fprintf(&b, "the end of %s:\n  %s\n", log, strings.Join(lines[max(0, len(lines)-40):], "\n  "))
	}
	return b.String()
}

// follow starts the watches and returns when they have everything.
func (w *fixture) follow(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.cache.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for _, object := range []client.Object{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &corev1.ConfigMap{}, &corev1.Node{}, &corev1.Event{}, &batchv1.Job{}, &v1alpha2.BindRequest{}, &v2alpha2.PodGroup{}, &queuev2.Queue{}} {
		w.watch(t, object)
	}
}

// watch follows the objects of a kind, and returns when it has them all: from then on list tells of them, and await looks again
// whenever one changes.
func (w *fixture) watch(t *testing.T, object client.Object) {
	t.Helper()
	i, err := w.cache.GetInformer(t.Context(), object)
	if err != nil {
		t.Fatal(err)
	}
	r, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.seen(o, false) },
		UpdateFunc: func(_, o any) { w.seen(o, false) },
		DeleteFunc: func(o any) { w.seen(o, true) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if !toolscache.WaitForCacheSync(t.Context().Done(), r.HasSynced) {
		t.Fatal("the watches did not begin")
	}
}

// seen takes an event.
func (w *fixture) seen(object any, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
	o, ok := object.(client.Object)
	if !ok { // a deletion that the watch missed
		return
	}
	r := recordOf(o)
	of := o.GetNamespace()
	if r != nil {
		of = r.Gang.Namespace
	}
	s := w.stories[of]
	revision, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if s == nil || err != nil {
		return
	}
	switch o := o.(type) {
	case *corev1.Pod:
		s.placed(o, deleted)
		if o.Spec.NodeName != "" && (s.firstBind == 0 || revision < s.firstBind) {
			s.firstBind = revision
		}
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Reason == "EvictionByEvictionAPI" {
				s.evicted[o.UID] = true
			}
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				s.waited[o.UID] = true
			}
		}
	case *corev1.ConfigMap:
		if r == nil {
			return
		}
		life, known := s.records[o.UID]
		if !known {
			life = gangRecord{span: span{from: revision}, members: len(r.Members)}
		}
		if deleted {
			life.to = revision
		}
		s.records[o.UID] = life
	case *v1alpha2.BindRequest:
		life, known := s.requests[o.UID]
		if !known {
			life.from = revision
		}
		if deleted {
			life.to = revision
		}
		s.requests[o.UID] = life
	case *corev1.PersistentVolumeClaim:
		if _, known := s.claims[o.Name]; !known && o.Status.Phase == corev1.ClaimBound {
			s.claims[o.Name] = revision
		}
	}
}

// gangRecord is the life of the record of a decision about a gang.
type gangRecord struct {
	span
	members int
}

// recordOf is an object as the record of a decision about a gang; nil if it is none.
func recordOf(o client.Object) *kai.GangRecord {
	cm, is := o.(*corev1.ConfigMap)
	if !is || cm.Labels[keys.GangRecordLabel] == "" {
		return nil
	}
	r, err := kai.ReadGangRecord(cm, kai.Partition{})
	if err != nil {
		panic(err) // Muster wrote what it cannot read
	}
	return r
}

// recordsLeft is how many records there are of gangs of a namespace.
func (w *fixture) recordsLeft(namespace string) (n int) {
	for _, cm := range list(w, &corev1.ConfigMapList{}, client.InNamespace(keys.Namespace)).Items {
		if r := recordOf(&cm); r != nil && r.Gang.Namespace == namespace {
			n++
		}
	}
	return n
}

// tell begins the story of a namespace.
func (w *fixture) tell(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stories[namespace] = &story{requests: map[types.UID]span{}, records: map[types.UID]gangRecord{}, claims: map[string]uint64{}, evicted: map[types.UID]bool{}, waited: map[types.UID]bool{}, bound: map[types.UID]time.Time{}, holds: map[types.UID]bool{}}
}

// asked is how many BindRequests a namespace has had.
func (w *fixture) asked(namespace string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.stories[namespace].requests)
}

// waited says whether a pod was ever told that there is no room for it.
func (w *fixture) waited(namespace string, pod types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stories[namespace].waited[pod]
}

// early says what was missing when the first pod of a gang of that size was bound: decisions that stood at that moment, or
// claims that were bound; "" for nothing.
func (w *fixture) early(namespace string, size int, volumes bool) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stories[namespace]
	decided, prepared := 0, 0
	for _, life := range s.requests { // order: a count
		if life.from < s.firstBind && (life.to == 0 || life.to > s.firstBind) {
			decided++
		}
	}
	for _, life := range s.records { // order: a sum
		if life.from < s.firstBind && (life.to == 0 || life.to > s.firstBind) {
			decided += life.members
		}
	}
	for _, revision := range s.claims { // order: a count
		if revision < s.firstBind {
			prepared++
		}
	}
	switch {
	case decided < size:
		return fmt.Sprintf("a pod was bound when %d of %d members were decided", decided, size)
	case volumes && prepared < size:
		return fmt.Sprintf("a pod was bound when %d of %d members were prepared", prepared, size)
	}
	return ""
}

// askAgain is how often await asks where nothing happens: that the API server refuses what it took before, or the other way round, is no event of any object.
const askAgain = 500 * time.Millisecond

// await waits until lacking returns "", asking it again at each event, and now and then, and returns how long that took and what is
// lacking when time is up.
func (w *fixture) await(limit time.Duration, lacking func() string) (time.Duration, string) {
	since := time.Now()
	timer, again := time.NewTimer(limit), time.NewTicker(askAgain)
	defer timer.Stop()
	defer again.Stop()
	for {
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		what := lacking()
		if what == "" {
			return time.Since(since), ""
		}
		select {
		case <-changed:
		case <-again.C:
		case <-timer.C:
			return time.Since(since), what
		}
	}
}

// must is await for a test that cannot go on without.
func (w *fixture) must(t testing.TB, limit time.Duration, lacking func() string) time.Duration {
	t.Helper()
	took, what := w.await(limit, lacking)
	if what != "" {
		t.Fatalf("after %v: %s", limit, what)
	}
	return took
}

// create makes an object exist.
func (w *fixture) create(t testing.TB, o client.Object) {
	t.Helper()
	if err := w.client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// namespace makes a namespace and begins its story.
func (w *fixture) namespace(t testing.TB, name string) {
	t.Helper()
	w.tell(name)
	w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// list reads from the watches; objects are shared.
func list[L client.ObjectList](w *fixture, into L, o ...client.ListOption) L {
	if err := w.cache.List(context.Background(), into, append(o, client.UnsafeDisableDeepCopy)...); err != nil {
		panic(err) // the watches have synced, so only a programming error is left
	}
	return into
}

// pods are those of a namespace.
func (w *fixture) pods(namespace string) []corev1.Pod {
	return list(w, &corev1.PodList{}, client.InNamespace(namespace)).Items
}

// gangOf is the name of the gang that a pod is in, or is by itself; "" for none.
func gangOf(p *corev1.Pod) string {
	gang, _ := kai.Membership(p)
	return gang.Name
}

// bound counts the pods with a node.
func (w *fixture) bound(namespace string) (n int) {
	for _, p := range w.pods(namespace) {
		if p.Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// boundNow is bound as the API server itself has it.
func (w *fixture) boundNow(t testing.TB, namespace string) (n int) {
	t.Helper()
	var pods corev1.PodList
	if err := w.client.List(t.Context(), &pods, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// running counts the running pods.
func (w *fixture) running(namespace string) (n int) {
	for _, p := range w.pods(namespace) {
		if p.Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n
}

// allRunning is what lacks until n pods of the namespace run.
func (w *fixture) allRunning(namespace string, n int) func() string {
	return func() string {
		if have := w.running(namespace); have != n {
			return fmt.Sprintf("%d of %d pods in %s run, %d are bound", have, n, namespace, w.bound(namespace))
		}
		return ""
	}
}

// erase deletes the namespace's Jobs and waits until nothing of them is left.
func (w *fixture) erase(t testing.TB, namespace string) {
	t.Helper()
	if err := w.client.DeleteAllOf(t.Context(), &batchv1.Job{}, client.InNamespace(namespace), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	// Now rather than when the garbage collector comes by.
	if err := w.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	w.must(t, time.Minute, func() string {
		pods := len(w.pods(namespace))
		requests := len(list(w, &v1alpha2.BindRequestList{}, client.InNamespace(namespace)).Items)
		if pods+requests > 0 {
			return fmt.Sprintf("%d pods and %d BindRequests are left in %s", pods, requests, namespace)
		}
		return ""
	})
	if err := w.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
}

// queue is a queue without limits.
func queue(name, parent string) *queuev2.Queue {
	unlimited := queuev2.QueueResource{Quota: -1, Limit: -1, OverQuotaWeight: 1}
	return &queuev2.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: queuev2.QueueSpec{
		ParentQueue: parent,
		Resources:   &queuev2.QueueResources{GPU: unlimited, CPU: unlimited, Memory: unlimited},
	}}
}

// gang is a Job of so many pods of one GPU each that run together or not at all. With a storage class each pod has a
// volume of it.
func gang(namespace, name string, size int, storageClass string) *batchv1.Job {
	spec := corev1.PodSpec{
		SchedulerName: keys.SchedulerName, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](0),
		Containers: []corev1.Container{{Name: "main", Image: "registry.example/train", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{lab.GPUResource: resource.MustParse("1")},
		}}},
	}
	if storageClass != "" {
		spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &storageClass, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			}},
		}}}}
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{keys.QueueLabel: "team"},
			Annotations: map[string]string{keys.BatchMinMemberAnnotation: strconv.Itoa(size)},
		},
		Spec: batchv1.JobSpec{
			Parallelism: ptr.To(int32(size)), Completions: ptr.To(int32(size)), BackoffLimit: ptr.To[int32](1000),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.QueueLabel: "team"}}, Spec: spec},
		},
	}
}
