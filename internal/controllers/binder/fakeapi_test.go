package binder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

const ns = "team"

// fakeAPI is a cluster in memory, with one step at a time and a clock that moves when told. It keeps the promises of a
// real API server that the binder relies on, and checks those that the binder makes.
type fakeAPI struct {
	t   failer
	now time.Time
	uid int

	pods     map[string]*corev1.Pod
	requests map[string]*schedulingv1alpha2.BindRequest
	nodes    map[string]*corev1.Node
	claims   map[string]*corev1.PersistentVolumeClaim
	pvs      map[string]*corev1.PersistentVolume
	classes  map[string]*storagev1.StorageClass

	whole map[string]bool      // the bundles that were complete at some time
	bound map[types.UID]string // where pods were bound by Bindings
	sent  []string             // events

	// fault is asked before each write (after == false) and after it.
	fault func(write, name string, after bool) error

	watchers []*process
}

// failer is what *testing.T and *rapid.T have in common here.
type failer interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func newFakeAPI(t failer, nodes ...string) *fakeAPI {
	w := &fakeAPI{
		t: t, now: time.Unix(1_700_000_000, 0),
		pods: map[string]*corev1.Pod{}, requests: map[string]*schedulingv1alpha2.BindRequest{},
		nodes: map[string]*corev1.Node{}, claims: map[string]*corev1.PersistentVolumeClaim{},
		pvs: map[string]*corev1.PersistentVolume{}, classes: map[string]*storagev1.StorageClass{},
		whole: map[string]bool{}, bound: map[types.UID]string{},
	}
	for _, n := range nodes {
		w.nodes[n] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{corev1.LabelHostname: n}}}
	}
	return w
}

func (w *fakeAPI) newUID() types.UID {
	w.uid++
	return types.UID("uid-" + strconv.Itoa(w.uid))
}

// tell queues an event for every process.
func (w *fakeAPI) tell(kind string, deliver func(*process)) {
	for _, p := range w.watchers {
		p.queues[kind] = append(p.queues[kind], deliver)
	}
}

func (w *fakeAPI) putPod(pod *corev1.Pod) {
	w.pods[pod.Name] = pod
	w.tell("pod", func(p *process) { p.cache[pod.Name] = pod; p.look(p.book.putPod(pod)) })
}

func (w *fakeAPI) addPod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: w.newUID()}}
	for _, e := range edit {
		e(pod)
	}
	w.putPod(pod)
	return pod
}

func (w *fakeAPI) editPod(name string, edit func(*corev1.Pod)) {
	pod := w.pods[name].DeepCopy()
	edit(pod)
	w.putPod(pod)
}

func (w *fakeAPI) deletePod(name string) {
	pod := w.pods[name]
	delete(w.pods, name)
	w.tell("pod", func(p *process) {
		delete(p.cache, name)
		p.look(p.book.dropPod(types.NamespacedName{Namespace: ns, Name: name}, pod.UID))
	})
}

// collect deletes the requests whose pod is gone, as the garbage collector does at some time.
func (w *fakeAPI) collect() {
	for _, name := range slices.Sorted(maps.Keys(w.requests)) {
		r := w.requests[name]
		if pod := w.pods[name]; len(r.OwnerReferences) > 0 && (pod == nil || pod.UID != r.OwnerReferences[0].UID) {
			w.removeRequest(name)
		}
	}
}

func (w *fakeAPI) putRequest(r *schedulingv1alpha2.BindRequest) {
	w.requests[r.Name] = r
	w.tell("request", func(p *process) { p.seeRequest(r) })
}

func (w *fakeAPI) removeRequest(name string) {
	r := w.requests[name]
	delete(w.requests, name)
	w.tell("request", func(p *process) {
		p.look(p.book.dropRequest(types.NamespacedName{Namespace: ns, Name: name}, r.UID))
	})
}

// request writes the request for the pod of that name; bundle "" makes one without labels.
func (w *fakeAPI) request(name, node, bundle string, size int, edit ...func(*schedulingv1alpha2.BindRequest)) *schedulingv1alpha2.BindRequest {
	r := &schedulingv1alpha2.BindRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name, UID: w.newUID(), Generation: 1, CreationTimestamp: metav1.NewTime(w.now),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: w.pods[name].UID}},
		},
		Spec: schedulingv1alpha2.BindRequestSpec{PodName: name, SelectedNode: node},
	}
	if bundle != "" {
		r.Labels = map[string]string{keys.BundleLabel: bundle, keys.BundleSizeLabel: strconv.Itoa(size)}
	}
	for _, e := range edit {
		e(r)
	}
	w.putRequest(r)
	if bundle != "" {
		n := 0
		for _, other := range w.requests {
			if other.Labels[keys.BundleLabel] == bundle {
				n++
			}
		}
		if n == size {
			w.whole[bundle] = true
		}
	}
	return r
}

// gang makes pods p0, p1, ... and the first n requests of their bundle g.
func (w *fakeAPI) gang(size, n int) {
	for i := range size {
		w.addPod(fmt.Sprintf("p%d", i))
	}
	for i := range n {
		w.request(fmt.Sprintf("p%d", i), "n1", "g", size)
	}
}

func (w *fakeAPI) dropNode(name string) {
	delete(w.nodes, name)
	w.tell("node", func(p *process) { p.look(p.book.setNode(name, false)) })
}

func (w *fakeAPI) putClaim(c *corev1.PersistentVolumeClaim) {
	w.claims[c.Name] = c
	w.tell("claim", func(p *process) { p.look(p.book.touchClaim(nameOf(c))) })
}

// addVolume adds a volume. The processes that watch have it in their caches only when they were told of it.
func (w *fakeAPI) addVolume(v *corev1.PersistentVolume) {
	w.pvs[v.Name] = v
	for _, p := range w.watchers {
		p.late[v.Name] = true
	}
	w.tell("volume", func(p *process) { delete(p.late, v.Name); p.look(p.book.touchVolume(v)) })
}

// provision binds the claims that wait for a provisioner.
func (w *fakeAPI) provision() {
	for _, name := range slices.Sorted(maps.Keys(w.claims)) {
		c := w.claims[name]
		reserved := ""
		for _, v := range w.pvs {
			if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID == c.UID {
				reserved = v.Name
			}
		}
		if reserved == "" && c.Annotations[volume.AnnSelectedNode] != "" {
			reserved = "pv-" + name
			w.addVolume(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: reserved}, Spec: corev1.PersistentVolumeSpec{
				ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: ns, Name: c.Name, UID: c.UID},
			}})
		}
		if bound(c) || reserved == "" {
			continue
		}
		c = c.DeepCopy()
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnBindCompleted, "yes")
		c.Spec.VolumeName = reserved
		w.putClaim(c)
	}
}

func (w *fakeAPI) boundPods() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		if w.pods[name].Spec.NodeName != "" {
			out = append(out, name)
		}
	}
	return out
}

// process is one life of the binder: what it has in memory, what it was not told yet, and what it is about to do.
type process struct {
	api    *fakeAPI
	book   *book
	exec   *executor
	cache  map[string]*corev1.Pod
	late   map[string]bool // volumes that are not in its cache yet
	queues map[string][]func(*process)
	dirty  map[BundleKey]bool
	wakes  map[BundleKey]time.Time
	tasks  []task
	dead   bool
}

var errDead = errors.New("this process is dead")

func (w *fakeAPI) start() *process {
	p := &process{
		api: w, cache: maps.Clone(w.pods), late: map[string]bool{},
		queues: map[string][]func(*process){}, dirty: map[BundleKey]bool{}, wakes: map[BundleKey]time.Time{},
	}
	ps := []Preparer{volumes{p}}
	p.book = newBook(DefaultOptions(), ps)
	p.exec = &executor{writer: p, preparers: ps, now: func() time.Time { return w.now }}
	for name := range w.nodes {
		p.book.setNode(name, true)
	}
	for _, pod := range w.pods {
		p.book.putPod(pod)
	}
	for _, name := range slices.Sorted(maps.Keys(w.requests)) {
		p.seeRequest(w.requests[name])
	}
	w.watchers = append(w.watchers, p)
	return p
}

func (p *process) kill() {
	p.dead = true
	p.api.watchers = slices.DeleteFunc(p.api.watchers, func(o *process) bool { return o == p })
}

func (p *process) look(keys []BundleKey) {
	for _, k := range keys {
		p.dirty[k] = true
	}
}

func (p *process) seeRequest(r *schedulingv1alpha2.BindRequest) {
	p.look(p.book.putRequest(r, p.api.now))
}

// deliver hands over the oldest event of a kind.
func (p *process) deliver(kind string) bool {
	q := p.queues[kind]
	if len(q) == 0 {
		return false
	}
	p.queues[kind] = q[1:]
	q[0](p)
	return true
}

// decide decides about one bundle.
func (p *process) decide(key BundleKey) {
	delete(p.dirty, key)
	p.book.look(key, func(name types.NamespacedName) *corev1.Pod { return p.cache[name.Name] })
	tasks, wake := p.book.decide(key, p.api.now)
	p.tasks = append(p.tasks, tasks...)
	delete(p.wakes, key)
	if !wake.IsZero() {
		if !wake.After(p.api.now) {
			p.api.t.Fatalf("bundle %s asks to be looked at again at once", key)
		}
		p.wakes[key] = wake
	}
}

// act carries out the i-th task.
func (p *process) act(i int) {
	t := p.tasks[i]
	p.tasks = slices.Delete(p.tasks, i, i+1)
	out := p.exec.run(context.Background(), t)
	if !p.dead {
		p.look([]BundleKey{p.book.settle(t, out, p.api.now)})
	}
}

func (p *process) ring() {
	for key, t := range p.wakes {
		if !t.After(p.api.now) {
			delete(p.wakes, key)
			p.dirty[key] = true
		}
	}
}

// settle runs the process until it has nothing to do at this time.
func (p *process) settle() {
	for steps := 0; !p.dead; steps++ {
		if steps > 20000 {
			p.api.t.Fatal("the binder does not come to rest")
		}
		p.ring()
		busy := false
		for _, kind := range []string{"node", "claim", "volume", "pod", "request"} {
			busy = p.deliver(kind) || busy
		}
		for _, key := range slices.SortedFunc(maps.Keys(p.dirty), func(a, b BundleKey) int { return cmpKey(a, b) }) {
			busy = true
			p.decide(key)
		}
		if len(p.tasks) > 0 {
			busy = true
			p.act(0)
		}
		if !busy {
			return
		}
	}
}

func cmpKey(a, b BundleKey) int {
	switch {
	case a.String() < b.String():
		return -1
	case a == b:
		return 0
	}
	return 1
}

// pass lets time pass in steps of one second, the process at work.
func (p *process) pass(d time.Duration) {
	for end := p.api.now.Add(d); p.api.now.Before(end) && !p.dead; {
		p.api.now = p.api.now.Add(time.Second)
		p.settle()
	}
}

// write wraps every write of the process.
func (p *process) write(kind, name string, do func() error) error {
	if p.dead {
		return errDead
	}
	if f := p.api.fault; f != nil {
		if err := f(kind, name, false); err != nil {
			return err
		}
		if p.dead {
			return errDead
		}
	}
	if err := do(); err != nil {
		return err
	}
	if f := p.api.fault; f != nil {
		return f(kind, name, true)
	}
	return nil
}

func (p *process) readPod(_ context.Context, name types.NamespacedName) (*corev1.Pod, error) {
	if p.dead {
		return nil, errDead
	}
	return p.api.pods[name.Name], nil
}

var podResource = schema.GroupResource{Resource: "pods"}

func (p *process) bind(_ context.Context, b *corev1.Binding) error {
	w := p.api
	return p.write("bind", b.Name, func() error {
		pod := w.pods[b.Name]
		switch {
		case pod == nil:
			return apierrors.NewNotFound(podResource, b.Name)
		case b.UID == "":
			w.t.Fatal("a Binding without a UID")
		case pod.UID != b.UID, pod.DeletionTimestamp != nil, pod.Spec.NodeName != "", len(pod.Spec.SchedulingGates) > 0:
			return apierrors.NewConflict(podResource, b.Name, errors.New("not to be bound"))
		}
		if id := b.Annotations[keys.BundleLabel]; id != "" && !w.whole[id] {
			w.t.Fatalf("pod %s was bound before bundle %s was complete", b.Name, id)
		}
		for _, c := range claimsOf(pod) {
			if !bound(w.claims[c.Name]) {
				w.t.Fatalf("pod %s was bound before its claim %s", b.Name, c.Name)
			}
		}
		w.editPod(b.Name, func(pod *corev1.Pod) {
			pod.Spec.NodeName = b.Target.Name
			for k, v := range b.Annotations {
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, v)
			}
		})
		w.bound[b.UID] = b.Target.Name
		return nil
	})
}

func (p *process) setCondition(_ context.Context, pod *corev1.Pod, c corev1.PodCondition) error {
	return p.write("condition", pod.Name, func() error {
		if now := p.api.pods[pod.Name]; now == nil || now.UID != pod.UID {
			return nil
		}
		p.api.editPod(pod.Name, func(pod *corev1.Pod) {
			pod.Status.Conditions = slices.DeleteFunc(slices.Clone(pod.Status.Conditions), func(o corev1.PodCondition) bool { return o.Type == c.Type })
			pod.Status.Conditions = append(pod.Status.Conditions, c)
		})
		return nil
	})
}

func (p *process) setStatus(_ context.Context, r *schedulingv1alpha2.BindRequest, s schedulingv1alpha2.BindRequestStatus) error {
	return p.write("status", r.Name, func() error {
		now := p.api.requests[r.Name]
		if now == nil || now.UID != r.UID {
			return nil
		}
		if s.Phase == schedulingv1alpha2.BindRequestSucceeded {
			if uid := now.OwnerReferences[0].UID; p.api.bound[uid] != now.Spec.SelectedNode {
				p.api.t.Fatalf("request %s was reported as bound and is not", r.Name)
			}
		}
		changed := now.DeepCopy()
		changed.Status = s
		p.api.putRequest(changed)
		return nil
	})
}

func (p *process) deleteRequest(_ context.Context, r *schedulingv1alpha2.BindRequest) error {
	return p.write("delete", r.Name, func() error {
		if now := p.api.requests[r.Name]; now != nil && now.UID == r.UID {
			p.api.removeRequest(r.Name)
		}
		return nil
	})
}

func (p *process) event(pod *corev1.Pod, kind, reason, message string) {
	_ = p.write("event", pod.Name, func() error {
		p.api.sent = append(p.api.sent, fmt.Sprintf("%s %s %s: %s", pod.Name, kind, reason, message))
		return nil
	})
}

func (p *process) claim(_ context.Context, name types.NamespacedName, _ bool) (*corev1.PersistentVolumeClaim, error) {
	return p.api.claims[name.Name], nil
}

func (p *process) class(_ context.Context, name string) (*storagev1.StorageClass, error) {
	return p.api.classes[name], nil
}

func (p *process) volumes(context.Context) ([]*corev1.PersistentVolume, error) {
	var known []*corev1.PersistentVolume
	for name, v := range p.api.pvs {
		if !p.late[name] {
			known = append(known, v)
		}
	}
	return known, nil
}

func (p *process) volume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	if p.late[name] {
		return nil, nil
	}
	return p.api.pvs[name], nil
}

func (p *process) node(_ context.Context, name string) (*corev1.Node, error) {
	return p.api.nodes[name], nil
}

func (p *process) selectNode(_ context.Context, c *corev1.PersistentVolumeClaim, node string, request types.UID) error {
	return p.write("claim", c.Name, func() error {
		c := p.api.claims[c.Name].DeepCopy()
		if node == "" {
			delete(c.Annotations, volume.AnnSelectedNode)
			delete(c.Annotations, keys.SelectedForAnnotation)
		} else {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnSelectedNode, node)
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, keys.SelectedForAnnotation, string(request))
		}
		p.api.putClaim(c)
		return nil
	})
}

func (p *process) reserveVolume(_ context.Context, v *corev1.PersistentVolume, ref *corev1.ObjectReference, mark bool) error {
	return p.write("volume", v.Name, func() error {
		v := p.api.pvs[v.Name].DeepCopy()
		v.Spec.ClaimRef = ref
		delete(v.Annotations, volume.AnnBoundByController)
		if mark {
			metav1.SetMetaDataAnnotation(&v.ObjectMeta, volume.AnnBoundByController, "yes")
		}
		p.api.pvs[v.Name] = v
		return nil
	})
}
