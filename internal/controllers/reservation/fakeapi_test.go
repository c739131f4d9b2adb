package reservation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/control"
)

// fakeAPI is a cluster in memory: an API server, kubelets with devices, and caches that lag behind until they are told to
// deliver. It keeps the promises of the real ones that the controller relies on.
type fakeAPI struct {
	t         *testing.T
	now       time.Time
	serial    int
	devices   int // of each node
	nodesMade metav1.Time

	pods  map[string]*corev1.Pod // by namespace/name
	asked map[string]*schedulingv1alpha2.BindRequest
	maps  map[string]*corev1.ConfigMap
	taken map[string]types.UID // device -> reservation pod

	cachedPods     map[string]*corev1.Pod
	cachedRequests map[string]*schedulingv1alpha2.BindRequest
	queue          workqueue.TypedRateLimitingInterface[item]
	podNews        []func(*Controller)
	requestNews    []func(*Controller)

	events []string
	writes map[string]int
	blocks bool               // disruption budgets allow no eviction
	fails  func(string) error // asked before each write
	opened map[string]int     // reservation pods made, by group
}

func newFakeAPI(t *testing.T, devices int) *fakeAPI {
	return &fakeAPI{
		t: t, now: time.Unix(1_800_000_000, 0), devices: devices,
		pods: map[string]*corev1.Pod{}, asked: map[string]*schedulingv1alpha2.BindRequest{}, maps: map[string]*corev1.ConfigMap{},
		taken: map[string]types.UID{}, cachedPods: map[string]*corev1.Pod{}, cachedRequests: map[string]*schedulingv1alpha2.BindRequest{},
		writes: map[string]int{}, opened: map[string]int{},
	}
}

// start returns a controller with empty memory and caches as they are on the API server now.
func (w *fakeAPI) start() *Controller {
	c := w.controller(w)
	c.now = func() time.Time { return w.now }
	w.podNews, w.requestNews = nil, nil
	w.cachedPods, w.cachedRequests = maps.Clone(w.pods), maps.Clone(w.asked)
	for _, p := range w.pods {
		c.add(c.podSeen(p, false)...)
	}
	for _, r := range w.asked {
		c.add(c.requestSeen(r, false)...)
	}
	return c
}

// controller returns a controller whose items are in w.queue, for the test to look at one by one.
func (w *fakeAPI) controller(on cluster) *Controller {
	c := newController(Deps{}, DefaultOptions(), on)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[item]())
	w.t.Cleanup(queue.ShutDown)
	w.queue, c.add = queue, func(due ...control.Due[item]) {
		for _, d := range due {
			queue.AddAfter(d.Key, d.After)
		}
	}
	return c
}

func (w *fakeAPI) stamp(m *metav1.ObjectMeta) {
	w.serial++
	m.ResourceVersion = strconv.Itoa(w.serial)
	if m.UID == "" {
		m.UID = types.UID("uid-" + strconv.Itoa(w.serial))
		m.CreationTimestamp = metav1.NewTime(w.now)
	}
}

func key(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

func (w *fakeAPI) putPod(p *corev1.Pod) *corev1.Pod {
	w.stamp(&p.ObjectMeta)
	k := key(p)
	w.pods[k] = p
	w.podNews = append(w.podNews, func(c *Controller) {
		w.cachedPods[k] = p
		c.add(c.podSeen(p, false)...)
	})
	return p
}

func (w *fakeAPI) dropPod(k string) {
	p := w.pods[k]
	if p == nil {
		return
	}
	delete(w.pods, k)
	for device, uid := range w.taken {
		if uid == p.UID {
			delete(w.taken, device)
		}
	}
	w.podNews = append(w.podNews, func(c *Controller) { delete(w.cachedPods, k); c.add(c.podSeen(p, true)...) })
	// The garbage collector.
	for name, m := range w.maps {
		if len(m.OwnerReferences) > 0 && m.OwnerReferences[0].UID == p.UID {
			delete(w.maps, name)
		}
	}
	if r := w.asked[k]; r != nil && r.OwnerReferences[0].UID == p.UID {
		w.dropRequest(k)
	}
}

func (w *fakeAPI) editPod(k string, edit func(*corev1.Pod)) {
	p := w.pods[k].DeepCopy()
	edit(p)
	w.putPod(p)
}

func (w *fakeAPI) putRequest(r *schedulingv1alpha2.BindRequest) {
	w.stamp(&r.ObjectMeta)
	k := key(r)
	w.asked[k] = r
	w.requestNews = append(w.requestNews, func(c *Controller) { w.cachedRequests[k] = r; c.add(c.requestSeen(r, false)...) })
}

func (w *fakeAPI) dropRequest(k string) {
	r := w.asked[k]
	if r == nil {
		return
	}
	delete(w.asked, k)
	w.requestNews = append(w.requestNews, func(c *Controller) { delete(w.cachedRequests, k); c.add(c.requestSeen(r, true)...) })
}

// deliver tells the controller the oldest news of pods, or of requests; false if there are none.
func (w *fakeAPI) deliver(c *Controller, pods bool) bool {
	news := &w.requestNews
	if pods {
		news = &w.podNews
	}
	if len(*news) == 0 {
		return false
	}
	tell := (*news)[0]
	*news = (*news)[1:]
	tell(c)
	return true
}

const team = "team"

// fractional makes a pod that shares devices, as admission leaves it, and its request.
func (w *fakeAPI) fractional(name, node string, groups ...string) (*corev1.Pod, *schedulingv1alpha2.BindRequest) {
	from := func(key string) corev1.EnvVar {
		return corev1.EnvVar{Name: key, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: key}}}
	}
	p := w.putPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, Annotations: map[string]string{
			keys.SharedGPUConfigMapAnnotation: name + "-x-shared-gpu", keys.GPUFractionAnnotation: "0.5",
		}},
		Spec: corev1.PodSpec{
			Containers:  []corev1.Container{{Name: "c", Env: []corev1.EnvVar{from(keys.VisibleDevicesEnv)}}},
			Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	})
	return p, w.request(p, node, groups...)
}

func (w *fakeAPI) request(p *corev1.Pod, node string, groups ...string) *schedulingv1alpha2.BindRequest {
	r := &schedulingv1alpha2.BindRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}}},
		Spec: schedulingv1alpha2.BindRequestSpec{
			PodName: p.Name, SelectedNode: node, ReceivedResourceType: schedulingv1alpha2.ResourceTypeFraction,
			ReceivedGPU: &schedulingv1alpha2.ReceivedGPU{Count: len(groups), Portion: "0.50"}, SelectedGPUGroups: groups,
		},
	}
	w.putRequest(r)
	return r
}

// kubelet gives reservation pods that have none a device, or turns them away; and ends those that are deleted.
func (w *fakeAPI) kubelet() (busy bool) {
	for _, k := range slices.Sorted(maps.Keys(w.pods)) {
		p := w.pods[k]
		switch {
		case p.DeletionTimestamp != nil:
			w.dropPod(k)
			busy = true
		case p.Namespace != keys.ReservationNamespace || over(p) || deviceOf(p) != "":
		default:
			busy = true
			if device := w.free(p.Spec.NodeName); device != "" {
				w.taken[device] = p.UID
				w.editPod(k, func(p *corev1.Pod) {
					p.Status.Phase = corev1.PodRunning
					p.Annotations[keys.ReservedGPUAnnotation] = device
				})
				continue
			}
			w.editPod(k, func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "UnexpectedAdmissionError" })
		}
	}
	return busy
}

func (w *fakeAPI) free(node string) string {
	for i := range w.devices {
		if device := fmt.Sprintf("GPU-%s-%d", node, i); w.taken[device] == "" {
			return device
		}
	}
	return ""
}

// bind binds a pod that was prepared.
func (w *fakeAPI) bind(name string) {
	k := team + "/" + name
	w.editPod(k, func(p *corev1.Pod) { p.Spec.NodeName = w.asked[k].Spec.SelectedNode })
}

func (w *fakeAPI) report(name string, phase schedulingv1alpha2.BindRequestPhase) {
	r := w.asked[team+"/"+name].DeepCopy()
	r.Status.Phase = phase
	w.putRequest(r)
}

// settle delivers all news, syncs the groups that ask for it and lets kubelets work, until nothing happens any more. The
// clock stands still; groups that wait for it are left alone.
func (w *fakeAPI) settle(c *Controller) {
	w.t.Helper()
	for range 10000 {
		busy := w.deliver(c, true)
		busy = w.deliver(c, false) || busy
		busy = w.syncSome(c, 100) || busy
		busy = w.kubelet() || busy
		if !busy {
			return
		}
	}
	w.t.Fatal("it does not come to rest")
}

// syncSome looks at up to n groups that are due.
func (w *fakeAPI) syncSome(c *Controller, n int) (busy bool) {
	for ; n > 0 && w.queue.Len() > 0; n-- {
		g, _ := w.queue.Get()
		busy = true
		if err := c.write(context.Background(), c.decide(g)); err != nil && !w.blocks {
			w.t.Logf("group %s: %v", g.group, err)
			w.queue.Add(g)
		}
		w.queue.Done(g)
	}
	return busy
}

// run prepares, binds and reports a pod, with everything delivered in between.
func (w *fakeAPI) run(c *Controller, name string) {
	w.t.Helper()
	for range 10 {
		w.settle(c)
		k := team + "/" + name
		ready, err := c.Prepare(context.Background(), w.asked[k], w.cachedPods[k])
		if err != nil {
			w.t.Fatalf("%s: %v", name, err)
		}
		if ready {
			w.bind(name)
			w.report(name, schedulingv1alpha2.BindRequestSucceeded)
			w.settle(c)
			return
		}
	}
	w.t.Fatalf("%s does not get ready", name)
}

func (w *fakeAPI) reservations() []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(w.pods)) {
		if strings.HasPrefix(k, keys.ReservationNamespace+"/") {
			out = append(out, w.pods[k].Labels[keys.GPUGroupLabel])
		}
	}
	return out
}

// told is what a pod's container is told.
func (w *fakeAPI) told(name string) string {
	m := w.maps[team+"/"+name+"-x-shared-gpu-0"]
	if m == nil {
		return ""
	}
	return m.Data[keys.VisibleDevicesEnv]
}

func (w *fakeAPI) write(what string) error {
	w.writes[what]++
	if w.fails != nil {
		return w.fails(what)
	}
	return nil
}

func named(group string, pods map[string]*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for _, k := range slices.Sorted(maps.Keys(pods)) {
		if slices.Contains(groupsOf(pods[k]), group) {
			out = append(out, pods[k])
		}
	}
	return out
}

func (w *fakeAPI) members(_ context.Context, group string) ([]*corev1.Pod, error) {
	return named(group, w.cachedPods), nil
}

func (w *fakeAPI) liveMembers(_ context.Context, group string) ([]*corev1.Pod, error) {
	return named(group, w.pods), nil
}

func (w *fakeAPI) requests(_ context.Context, group string) (out []*schedulingv1alpha2.BindRequest, err error) {
	for _, k := range slices.Sorted(maps.Keys(w.cachedRequests)) {
		if slices.Contains(requestGroups(w.cachedRequests[k]), group) {
			out = append(out, w.cachedRequests[k])
		}
	}
	return out, nil
}

func (w *fakeAPI) unscheduled(_ context.Context, namespace string) (out []*corev1.Pod, err error) {
	for _, p := range w.cachedPods {
		if p.Namespace == namespace && p.Spec.NodeName == "" {
			out = append(out, p)
		}
	}
	return out, nil
}

func (w *fakeAPI) node(_ context.Context, name string) (*corev1.Node, error) {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: w.nodesMade, Labels: map[string]string{keys.GPUMemoryNodeLabel: "81920"}}}, nil
}

func (w *fakeAPI) livePod(_ context.Context, n types.NamespacedName) (*corev1.Pod, error) {
	return w.pods[n.String()], nil
}

func (w *fakeAPI) liveMap(_ context.Context, n types.NamespacedName) (*corev1.ConfigMap, error) {
	return w.maps[n.String()], nil
}

var some = schema.GroupResource{Resource: "things"}

func (w *fakeAPI) createPod(_ context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	if err := w.write("reserve"); err != nil {
		return nil, err
	}
	if w.pods[key(p)] != nil {
		return nil, apierrors.NewAlreadyExists(some, p.Name)
	}
	w.opened[p.Labels[keys.GPUGroupLabel]]++
	return w.putPod(p), nil
}

func (w *fakeAPI) deletePod(_ context.Context, p *corev1.Pod, exact bool) error {
	if err := w.write("release"); err != nil {
		return err
	}
	now := w.pods[key(p)]
	switch {
	case now == nil || now.UID != p.UID:
		if exact && now != nil {
			return errors.New("changed")
		}
		return nil
	case exact && now.ResourceVersion != p.ResourceVersion:
		return errors.New("changed")
	case now.DeletionTimestamp == nil:
		w.editPod(key(p), func(p *corev1.Pod) { at := metav1.NewTime(w.now); p.DeletionTimestamp = &at })
	}
	return nil
}

func (w *fakeAPI) patchMeta(_ context.Context, p *corev1.Pod, labels, annotations map[string]any, exact bool) (bool, error) {
	if err := w.write("label"); err != nil {
		return false, err
	}
	now := w.pods[key(p)]
	if now == nil || now.UID != p.UID || exact && now.ResourceVersion != p.ResourceVersion {
		return false, nil
	}
	apply := func(into *map[string]string, change map[string]any) {
		for k, v := range change {
			if text, ok := v.(string); ok {
				if *into == nil {
					*into = map[string]string{}
				}
				(*into)[k] = text
			} else {
				delete(*into, k)
			}
		}
	}
	w.editPod(key(p), func(p *corev1.Pod) { apply(&p.Labels, labels); apply(&p.Annotations, annotations) })
	return true, nil
}

func (w *fakeAPI) createMap(_ context.Context, m *corev1.ConfigMap) error {
	if err := w.write("map"); err != nil {
		return err
	}
	if w.maps[key(m)] != nil {
		return apierrors.NewAlreadyExists(some, m.Name)
	}
	if p := w.pods[m.Namespace+"/"+m.OwnerReferences[0].Name]; p == nil || p.UID != m.OwnerReferences[0].UID {
		return nil // the garbage collector is fast
	}
	m = m.DeepCopy()
	w.stamp(&m.ObjectMeta)
	w.maps[key(m)] = m
	return nil
}

func (w *fakeAPI) updateMap(_ context.Context, m *corev1.ConfigMap) error {
	if err := w.write("map"); err != nil {
		return err
	}
	if now := w.maps[key(m)]; now == nil || now.ResourceVersion != m.ResourceVersion {
		return apierrors.NewConflict(some, m.Name, errors.New("changed"))
	}
	m = m.DeepCopy()
	w.stamp(&m.ObjectMeta)
	w.maps[key(m)] = m
	return nil
}

func (w *fakeAPI) deleteMap(_ context.Context, m *corev1.ConfigMap) error {
	if err := w.write("map"); err != nil {
		return err
	}
	delete(w.maps, key(m))
	return nil
}

func (w *fakeAPI) evict(_ context.Context, p *corev1.Pod) (bool, error) {
	now := w.pods[key(p)]
	if now == nil || now.UID != p.UID {
		return false, nil
	}
	if err := w.write("evict"); err != nil {
		return false, err
	}
	if w.blocks {
		return false, errors.New("a budget does not allow it")
	}
	w.dropPod(key(p))
	return true, nil
}

func (w *fakeAPI) event(p *corev1.Pod, kind, reason, message string) {
	w.events = append(w.events, fmt.Sprintf("%s %s %s: %s", p.Name, kind, reason, message))
}

// TestDefectOfOneGroup: a look that ends in a panic is the defect of those that wait for the group, and wakes them; it is still to be made.
func TestDefectOfOneGroup(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 1)
	c := w.controller(breaking{w, "bad"})
	guard, err := aside.New("binder", logr.Discard(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var told, woken []string
	guard.Tell = func(o client.Object) { told = append(told, o.GetName()) }
	c.guard, c.wake = guard, func(n types.NamespacedName) { woken = append(woken, n.Name) }
	for _, g := range []string{"bad", "good"} {
		r := &schedulingv1alpha2.BindRequest{}
		r.Namespace, r.Name, r.UID = "team", g, types.UID(g)
		c.waits.begin(r, []string{g}, w.now)
		c.heard("team", g)
		err := guard.Catch("a worker", nil, func() error { return c.write(t.Context(), c.decide(item{"team", g, false})) })
		if (err != nil) != (g == "bad") {
			t.Errorf("%s: %v", g, err)
		}
	}
	if !slices.Equal(told, []string{"bad"}) || !slices.Equal(woken, []string{"bad", "good"}) || len(c.news) != 1 || c.decide(item{"team", "bad", false}).group == "" {
		t.Errorf("told %v, woken %v, still to be looked at %v", told, woken, c.news)
	}
}

// breaking is a cluster in which reading the members of one group is a defect.
type breaking struct {
	cluster
	group string
}

func (b breaking) members(ctx context.Context, group string) ([]*corev1.Pod, error) {
	if group == b.group {
		panic("broken")
	}
	return b.cluster.members(ctx, group)
}
