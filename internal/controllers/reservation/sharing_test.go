package reservation

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

var ctx = context.Background()

// TestHolderOutlastsItsUsers: what one tenant writes into the pod for which a device is reserved does not end the reservation before others who
// come to use the device: the holder tolerates whatever one of them may, for as long, and goes when the last has gone.
func TestHolderOutlastsItsUsers(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 2)
	c := w.start()
	pod, r := w.fractional("a", "n1", "g")
	pod.Spec.Tolerations = []corev1.Toleration{{
		Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64),
	}}
	if _, err := c.Prepare(ctx, r, pod); err != nil {
		t.Fatal(err)
	}
	holder := w.pods[keys.ReservationNamespace+"/"+podName("n1", "g")]
	for _, taint := range []corev1.Taint{
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}, {Key: "drain", Value: "now", Effect: corev1.TaintEffectNoExecute},
	} {
		if !slices.ContainsFunc(holder.Spec.Tolerations, func(by corev1.Toleration) bool {
			return by.ToleratesTaint(logr.Discard(), &taint, false) && by.TolerationSeconds == nil
		}) {
			t.Errorf("taint %s ends it: %+v", taint.Key, holder.Spec.Tolerations)
		}
	}
}

// TestForgedHolder: a pod of a tenant's namespace that looks like a reservation pod in every word is none. Nobody is told its device, it is
// not deleted for us, and the real one is made beside it.
func TestForgedHolder(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 2)
	c := w.start()
	w.putPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: team, Name: podName("n1", "g"), Labels: map[string]string{keys.AppLabel: c.options.App, keys.GPUGroupLabel: "g"},
			Annotations: map[string]string{keys.ReservedGPUAnnotation: "GPU-forged", keys.RegainedAnnotation: "true"},
		},
		Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	})
	w.fractional("a", "n1", "g")
	w.run(c, "a")
	if real := w.pods[keys.ReservationNamespace+"/"+podName("n1", "g")]; real == nil || deviceOf(real) == "" {
		t.Errorf("no device is reserved: %+v", real)
	}
	if told := w.told("a"); strings.Contains(told, "forged") || told == "" {
		t.Errorf("the pod is told %q", told)
	}
	if w.pods[team+"/"+podName("n1", "g")] == nil {
		t.Error("the tenant's pod is deleted")
	}
}

// TestOnePodOneDevice follows a pod from its request to its end.
func TestOnePodOneDevice(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 2)
	c := w.start()
	pod, r := w.fractional("a", "n1", "g")
	if ready, err := c.Prepare(ctx, r, pod); ready || err != nil {
		t.Fatalf("%v, %v before the device is known", ready, err)
	}
	held := w.pods[keys.ReservationNamespace+"/"+podName("n1", "g")]
	if held == nil {
		t.Fatal("no reservation pod")
	}
	want := corev1.PodSpec{
		NodeName: "n1", ServiceAccountName: "kai-resource-reservation", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "resource-reservation", Image: "registry/local/kai-scheduler/resource-reservation", ImagePullPolicy: corev1.PullIfNotPresent,
			Env: []corev1.EnvVar{fromField("POD_NAME", "metadata.name"), fromField("POD_NAMESPACE", "metadata.namespace")},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}, Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")},
			},
		}},
	}
	if d := cmp.Diff(want, held.Spec); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{"app": "kai-resource-reservation", "runai-gpu-group": "g"}, held.Labels); d != "" {
		t.Error(d)
	}
	if held.Annotations["karpenter.sh/do-not-disrupt"] != "true" {
		t.Error(held.Annotations)
	}
	w.run(c, "a")
	if d := cmp.Diff(map[string]string{"runai-gpu-group": "g"}, w.pods["team/a"].Labels); d != "" {
		t.Error(d)
	}
	capabilities, environment := w.maps["team/a-x-shared-gpu-0"], w.maps["team/a-x-shared-gpu-0-evar"]
	if capabilities == nil || environment == nil {
		t.Fatalf("ConfigMaps %v", w.maps)
	}
	if d := cmp.Diff(map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-n1-0", "GPU_PORTION": "0.50", "RUNAI_NUM_OF_GPUS": "0.50"}, capabilities.Data); d != "" {
		t.Error(d)
	}
	if len(environment.Data) > 0 || capabilities.OwnerReferences[0].UID != pod.UID {
		t.Errorf("%v, %v", environment.Data, capabilities.OwnerReferences)
	}
	w.editPod("team/a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	w.settle(c)
	if left := w.reservations(); len(left) > 0 {
		t.Errorf("reserved after the end: %v", left)
	}
}

// TestFiftyPodsOneReservation: pods of one group get one device, whatever the order of steps; those of another group get
// another one.
func TestFiftyPodsOneReservation(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 2)
	c := w.start()
	var names []string
	for i := range 50 {
		name := fmt.Sprintf("p%d", i)
		names = append(names, name)
		w.fractional(name, "n1", []string{"g", "h"}[i%2])
	}
	ready := func(name string) bool {
		k := "team/" + name
		ok, err := c.Prepare(ctx, w.asked[k], w.pods[k])
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	for _, name := range names {
		ready(name)
	}
	if n := len(c.waits.of("g")) + len(c.waits.of("h")); n != 50 {
		t.Errorf("%d requests wait", n)
	}
	w.settle(c)
	for i, name := range names {
		if !ready(name) {
			t.Fatalf("%s is not ready", name)
		}
		if got, want := w.told(name), fmt.Sprintf("GPU-n1-%d", i%2); len(got) != len(want) || got != w.told(names[i%2]) {
			t.Errorf("%s is told %s", name, got)
		}
	}
	if w.told("p0") == w.told("p1") {
		t.Error("two groups have the same device")
	}
	if d := cmp.Diff(map[string]int{"g": 1, "h": 1}, w.opened); d != "" {
		t.Error(d)
	}
	if len(c.waits.requests) > 0 || len(c.locks.groups) > 0 {
		t.Error("something is left of waits or locks")
	}
}

// TestTwoDevices: a pod that shares two devices, and the labels that tell so.
func TestTwoDevices(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 4)
	c := w.start()
	w.fractional("a", "n1", "h", "g")
	w.run(c, "a")
	if d := cmp.Diff(map[string]string{"runai-gpu-group/g": "g", "runai-gpu-group/h": "h"}, w.pods["team/a"].Labels); d != "" {
		t.Error(d)
	}
	// In the order of the request's groups; reservation pods were made in that order, too.
	held := map[string]string{}
	for _, p := range w.pods {
		if p.Namespace == keys.ReservationNamespace {
			held[p.Labels[keys.GPUGroupLabel]] = deviceOf(p)
		}
	}
	if got := w.told("a"); got != held["h"]+","+held["g"] {
		t.Errorf("told %s, held %v", got, held)
	}
	w.fractional("b", "n1", "g")
	w.run(c, "b")
	w.dropPod("team/a")
	w.settle(c)
	if d := cmp.Diff([]string{"g"}, w.reservations()); d != "" {
		t.Error(d)
	}
	w.dropPod("team/b")
	w.settle(c)
	if left := w.reservations(); len(left) > 0 {
		t.Error(left)
	}
}

// TestTimeout: a reservation pod that does not report its device is deleted, the attempt fails, and the next one begins
// anew.
func TestTimeout(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 1)
	c := w.start()
	pod, r := w.fractional("a", "n1", "g")
	for _, wait := range []time.Duration{0, 39 * time.Second} {
		w.now = w.now.Add(wait)
		for w.deliver(c, true) {
		}
		if ready, err := c.Prepare(ctx, r, pod); ready || err != nil {
			t.Fatalf("after %v: %v, %v", wait, ready, err)
		}
	}
	w.now = w.now.Add(time.Second)
	_, err := c.Prepare(ctx, r, pod)
	if _, ok := err.(interface{ AboutRequest() }); !ok || !strings.Contains(err.Error(), "was not reserved within 40s") {
		t.Fatal(err)
	}
	if err := c.Undo(ctx, r, pod); err != nil {
		t.Fatal(err)
	}
	w.kubelet()
	if left := w.reservations(); len(left) > 0 {
		t.Error(left)
	}
	w.settle(c)
	w.run(c, "a")
	if w.opened["g"] != 2 {
		t.Errorf("%d reservation pods were made", w.opened["g"])
	}
}

// TestLateAnswer: the device is reported when time is up, before the pod is deleted: the request is then prepared.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 1)
	c := w.start()
	pod, r := w.fractional("a", "n1", "g")
	if _, err := c.Prepare(ctx, r, pod); err != nil {
		t.Fatal(err)
	}
	for w.deliver(c, true) {
	}
	w.kubelet() // the cache does not show it
	w.now = w.now.Add(time.Minute)
	if _, err := c.Prepare(ctx, r, pod); err == nil {
		t.Fatal("ready without having seen the device")
	} else if _, about := err.(interface{ AboutRequest() }); about {
		t.Fatalf("the attempt failed: %v", err)
	}
	w.settle(c)
	if ready, err := c.Prepare(ctx, r, pod); !ready || err != nil {
		t.Fatalf("%v, %v", ready, err)
	}
}

// TestRejected: a node without a free device ends the attempt at once.
func TestRejected(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 0)
	c := w.start()
	pod, r := w.fractional("a", "n1", "g")
	if _, err := c.Prepare(ctx, r, pod); err != nil {
		t.Fatal(err)
	}
	w.settle(c)
	if _, err := c.Prepare(ctx, r, pod); err == nil || !strings.Contains(err.Error(), "UnexpectedAdmissionError") {
		t.Fatal(err)
	}
	w.kubelet()
	if left := w.reservations(); len(left) > 0 {
		t.Error(left)
	}
}

// TestScalingPodsGoFirst: no device is newly reserved while a cluster autoscaler is at work; but one that is reserved can
// be used.
func TestScalingPodsGoFirst(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 2)
	c := w.start()
	w.fractional("a", "n1", "g")
	w.run(c, "a")
	w.putPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: keys.ScaleAdjustNamespace, Name: "s"}})
	w.settle(c)
	w.fractional("b", "n1", "g")
	w.run(c, "b")
	pod, r := w.fractional("c", "n1", "h")
	if ready, err := c.Prepare(ctx, r, pod); ready || err != nil {
		t.Fatalf("%v, %v", ready, err)
	}
	if d := cmp.Diff([]string{"g"}, w.reservations()); d != "" {
		t.Fatal(d)
	}
	w.settle(c)
	w.dropPod(keys.ScaleAdjustNamespace + "/s")
	for w.deliver(c, true) {
	}
	if w.queue.Len() == 0 {
		t.Error("nobody wakes the request")
	}
	w.run(c, "c")
	w.putPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: keys.ScaleAdjustNamespace, Name: "s"}})
	w.settle(c)
	pod, r = w.fractional("d", "n1", "i")
	if _, err := c.Prepare(ctx, r, pod); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Minute)
	if _, err := c.Prepare(ctx, r, pod); err == nil || !strings.Contains(err.Error(), "wait for new nodes") {
		t.Fatal(err)
	}
}

// TestOneLook: pods and requests of several namespaces are news of one group. One look takes them in, and what fails is looked at
// by whoever comes next.
func TestOneLook(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 1)
	looks := &counting{cluster: w}
	c := w.controller(looks)
	all := func() (failed int) {
		for w.queue.Len() > 0 {
			it, _ := w.queue.Get()
			if c.write(ctx, c.decide(it)) != nil {
				failed++
			}
			w.queue.Done(it)
		}
		return failed
	}
	hear := func() {
		for _, namespace := range []string{"a", "b", keys.ReservationNamespace} {
			c.add(c.heard(namespace, "g")...)
		}
	}
	hear()
	if failed := all(); looks.n != 1 || failed != 0 {
		t.Errorf("%d looks, of which %d failed, want one", looks.n, failed)
	}
	hear()
	looks.fail = 1
	if failed := all(); looks.n != 3 || failed != 1 {
		t.Errorf("%d looks, of which %d failed, want two more, and the first in vain", looks.n, failed)
	}
	c.again("g", 0)
	if all(); looks.n != 4 {
		t.Errorf("%d looks, want one whose time has come", looks.n)
	}
}

// counting is a cluster that counts how often a group is looked at, and of these lets some fail.
type counting struct {
	cluster
	n, fail int
}

func (k *counting) members(ctx context.Context, group string) ([]*corev1.Pod, error) {
	if k.n++; k.fail > 0 {
		k.fail--
		return nil, errSea
	}
	return k.cluster.members(ctx, group)
}

// TestScalingCostsItsOwn: whose pod waits for a node is alone in waiting, but for nodes that have just joined.
func TestScalingCostsItsOwn(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 2)
	c := w.start()
	scaling := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: keys.ScaleAdjustNamespace, Name: "s", Labels: map[string]string{keys.ScalingPodSourceNamespaceLabel: "noisy"},
	}}
	w.putPod(scaling)
	w.settle(c)
	w.fractional("a", "n1", "g")
	w.run(c, "a") // team is not noisy
	w.nodesMade = metav1.NewTime(w.now)
	pod, r := w.fractional("b", "n1", "h")
	if ready, err := c.Prepare(ctx, r, pod); ready || err != nil {
		t.Fatalf("on a new node: %v, %v", ready, err)
	}
	if d := cmp.Diff([]string{"g"}, w.reservations()); d != "" {
		t.Fatal(d)
	}
	w.now = w.now.Add(nodeYouth)
	w.run(c, "b")
	w.nodesMade = metav1.Time{}
	scaling = scaling.DeepCopy()
	scaling.Name, scaling.Labels = "s2", map[string]string{keys.ScalingPodSourceNamespaceLabel: team}
	w.putPod(scaling)
	w.settle(c)
	pod, r = w.fractional("c", "n1", "i")
	if ready, err := c.Prepare(ctx, r, pod); ready || err != nil {
		t.Fatalf("beside one of its own namespace: %v, %v", ready, err)
	}
	if got := w.reservations(); len(got) != 2 || slices.Contains(got, "i") {
		t.Fatal(got)
	}
}

// TestLostReservation: what becomes of pods whose reservation pod somebody deletes.
func TestLostReservation(t *testing.T) {
	t.Parallel()
	lose := func(t *testing.T, between func(w *fakeAPI)) *fakeAPI {
		w := newFakeAPI(t, 2)
		c := w.start()
		for _, name := range []string{"a", "b"} {
			w.fractional(name, "n1", "g")
			w.run(c, name)
		}
		if between != nil {
			between(w)
		}
		w.dropPod(keys.ReservationNamespace + "/" + podName("n1", "g"))
		if between != nil {
			w.taken["GPU-n1-0"] = "somebody"
		}
		w.settle(c)
		return w
	}
	t.Run("the device is free", func(t *testing.T) {
		t.Parallel()
		w := lose(t, nil)
		p := w.pods[keys.ReservationNamespace+"/"+podName("n1", "g")]
		if p == nil || deviceOf(p) != "GPU-n1-0" || p.Annotations[keys.RegainedAnnotation] != "" {
			t.Errorf("%+v", p)
		}
		if w.writes["evict"] > 0 || len(w.events) > 0 {
			t.Errorf("events %v", w.events)
		}
	})
	t.Run("another device is reserved in its place", func(t *testing.T) {
		t.Parallel()
		w := lose(t, func(*fakeAPI) {})
		if w.writes["evict"] != 2 || len(w.events) != 2 || !strings.Contains(w.events[0], "device GPU-n1-1 was reserved in its place") {
			t.Errorf("%d evictions, events %v", w.writes["evict"], w.events)
		}
		if left := w.reservations(); len(left) > 0 {
			t.Error(left)
		}
	})
	t.Run("the node has no other device", func(t *testing.T) {
		t.Parallel()
		w := lose(t, func(w *fakeAPI) { w.taken["GPU-n1-1"] = "somebody" })
		if w.writes["evict"] != 2 || !strings.Contains(strings.Join(w.events, " "), "in use by another pod") {
			t.Errorf("%d evictions, events %v", w.writes["evict"], w.events)
		}
		if left := w.reservations(); len(left) > 0 {
			t.Error(left)
		}
	})
	t.Run("nobody knows what they were told", func(t *testing.T) {
		t.Parallel()
		w := lose(t, func(w *fakeAPI) { clear(w.maps) })
		if w.writes["evict"] > 0 {
			t.Errorf("events %v", w.events)
		}
	})
	t.Run("labels alone take no device", func(t *testing.T) {
		t.Parallel()
		w := newFakeAPI(t, 2)
		w.putPod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "forged", Labels: map[string]string{keys.GPUGroupLabel: "g"}},
			Spec:       corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		})
		w.settle(w.start())
		if len(w.writes) > 0 {
			t.Errorf("writes %v", w.writes)
		}
	})
}

// TestTakeover: what KAI left is used as it is.
func TestTakeover(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 4)
	old := func(name, group, device string) {
		w.taken[device] = w.putPod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: keys.ReservationNamespace, Name: name, Labels: map[string]string{keys.AppLabel: keys.ReservationNamespace, keys.GPUGroupLabel: group},
				Annotations: map[string]string{keys.ReservedGPUAnnotation: device},
			},
			Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}).UID
	}
	old("gpu-reservation-n1-xyz", "g", "GPU-n1-2") // named as old versions did
	old("gpu-reservation-n1-abc", "idle", "GPU-n1-3")
	w.putPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "old", Labels: map[string]string{keys.GPUGroupLabel: "g"}},
		Spec:       corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	})
	// A pod that KAI had put into a group and did not bind.
	w.putPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "stray", Labels: map[string]string{keys.GPUGroupLabel: "g", "mine": "x"}}})
	c := w.start()
	w.settle(c)
	if d := cmp.Diff([]string{"g"}, w.reservations()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{"mine": "x"}, w.pods["team/stray"].Labels); d != "" {
		t.Error(d)
	}
	w.fractional("new", "n1", "g")
	w.run(c, "new")
	if got := w.told("new"); got != "GPU-n1-2" || w.writes["evict"] > 0 || w.writes["reserve"] > 0 {
		t.Errorf("told %s, writes %v", got, w.writes)
	}
}

// TestUndo takes everything back, also in a process that did not prepare it, and twice.
func TestUndo(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 2)
	c := w.start()
	pod, r := w.fractional("a", "n1", "g", "h")
	if _, err := c.Prepare(ctx, r, pod); err != nil {
		t.Fatal(err)
	}
	w.settle(c)
	if ready, err := c.Prepare(ctx, r, w.cachedPods["team/a"]); !ready || err != nil {
		t.Fatalf("%v, %v", ready, err)
	}
	c = w.start()
	for range 2 {
		if err := c.Undo(ctx, r, pod); err != nil {
			t.Fatal(err)
		}
	}
	w.report("a", schedulingv1alpha2.BindRequestFailed)
	w.settle(c)
	if len(w.pods["team/a"].Labels) > 0 || len(w.maps) > 0 || len(w.reservations()) > 0 {
		t.Errorf("left: labels %v, ConfigMaps %v, groups %v", w.pods["team/a"].Labels, w.maps, w.reservations())
	}
}

// TestUndoAfterAPause: a process that slept while its successor bound the pod takes nothing back from it; nor does one whose view of
// the pod is old take back what the pod was given since.
func TestUndoAfterAPause(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 1)
	c := w.start()
	pod, r := w.fractional("a", "n1", "g")
	if _, err := c.Prepare(ctx, r, pod); err != nil {
		t.Fatal(err)
	}
	w.settle(c)
	if ready, err := c.Prepare(ctx, r, w.cachedPods["team/a"]); !ready || err != nil {
		t.Fatalf("%v, %v", ready, err)
	}
	before := w.cachedPods["team/a"]
	bound := w.pods["team/a"].DeepCopy()
	bound.Spec.NodeName = "n1"
	w.putPod(bound) // by the successor: the news has not come here
	if err := c.Undo(ctx, r, before); err != nil {
		t.Fatal(err)
	}
	if w.pods["team/a"].Labels[keys.GPUGroupLabel] != "g" || w.told("a") == "" {
		t.Errorf("labels %v, told %q", w.pods["team/a"].Labels, w.told("a"))
	}
}

// TestNewGroups: a pod that is decided anew leaves the groups of the earlier decision.
func TestNewGroups(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 2)
	c := w.start()
	pod, r := w.fractional("a", "n1", "g")
	if _, err := c.Prepare(ctx, r, pod); err != nil {
		t.Fatal(err)
	}
	w.settle(c)
	if ready, err := c.Prepare(ctx, r, pod); !ready || err != nil {
		t.Fatalf("%v, %v", ready, err)
	}
	// Killed here; the scheduler withdrew, and decided anew.
	w.dropRequest("team/a")
	w.request(pod, "n2", "x", "y")
	c = w.start()
	w.run(c, "a")
	if d := cmp.Diff([]string{"x", "y"}, groupsOf(w.pods["team/a"])); d != "" {
		t.Error(d)
	}
	held := w.reservations()
	slices.Sort(held)
	if d := cmp.Diff([]string{"x", "y"}, held); d != "" {
		t.Error(d)
	}
}

// TestThousandRounds: pods come, share, end and are deleted, a thousand times; nothing is left.
func TestThousandRounds(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 2)
	c := w.start()
	for i := range 1000 {
		a, b := fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)
		group := fmt.Sprintf("g%d", i)
		w.fractional(a, "n1", group)
		w.fractional(b, "n1", group)
		w.run(c, a)
		if i%3 == 0 {
			w.dropPod("team/" + b) // before it is bound
		} else {
			w.run(c, b)
		}
		if i%2 == 0 {
			w.editPod("team/"+a, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		}
		w.dropPod("team/" + a)
		w.dropPod("team/" + b)
		w.settle(c)
		if len(w.pods)+len(w.asked)+len(w.maps)+len(w.taken) > 0 {
			t.Fatalf("round %d left %v, %v, %v, %v", i, w.pods, w.asked, w.maps, w.taken)
		}
		if len(c.waits.requests)+len(c.waits.byGroup)+len(c.locks.groups)+len(c.news)+len(c.pods)+len(c.book.requests)+w.queue.Len() > 0 {
			t.Fatalf("round %d left something in memory", i)
		}
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

// TestGoldenPod: a reservation pod of Muster's own image is testdata/pod.yaml, whose command line is run against the image itself (make
// test-image). -update writes it anew.
func TestGoldenPod(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.Image = "registry.example/muster/muster-node:v1"
	p := newPod(o, "n1", "g")
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	got, err := yaml.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/pod.yaml"
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs (-file +now); if it is right, run with -update\n%s", file, d)
	}
}

// TestConfiguredPod: every setting of reservation pods is in them, and a device is what they ask for whatever is
// configured.
func TestConfiguredPod(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.Namespace, o.ServiceAccount, o.App, o.Image, o.RuntimeClass = "space", "account", "holder", "image:1", "nvidia"
	o.Resources = &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("10m"), "nvidia.com/gpu": resource.MustParse("4")},
		Limits:   corev1.ResourceList{"memory": resource.MustParse("100Mi")},
	}
	yes := true
	o.PodSecurity, o.ContainerSecurity = &corev1.PodSecurityContext{RunAsNonRoot: &yes}, &corev1.SecurityContext{ReadOnlyRootFilesystem: &yes}
	p := newPod(o, "n1", "g")
	c := p.Spec.Containers[0]
	if p.Namespace != "space" || p.Spec.ServiceAccountName != "account" || p.Labels["app"] != "holder" || c.Image != "image:1" || *p.Spec.RuntimeClassName != "nvidia" {
		t.Errorf("%+v", p)
	}
	if !*p.Spec.SecurityContext.RunAsNonRoot || !*c.SecurityContext.ReadOnlyRootFilesystem {
		t.Error("security contexts are missing")
	}
	want := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("10m"), "nvidia.com/gpu": resource.MustParse("1")},
		Limits:   corev1.ResourceList{"memory": resource.MustParse("100Mi"), "nvidia.com/gpu": resource.MustParse("1")},
	}
	if d := cmp.Diff(want, c.Resources); d != "" {
		t.Error(d)
	}
	for image, want := range map[string]string{
		"registry.example:5000/muster/muster-node:v1": "reservation", "registry.example/mirror/holder@sha256:00": "reservation",
		"resource-reservation-": "reservation", "resource-reservation": "", "ghcr.io/kai-scheduler/kai-scheduler/resourcereservation:v0.17.0": "",
		"registry.example:5000/resource-reservation-fips:v1@sha256:00": "", DefaultOptions().Image: "",
	} {
		o.Image = image
		if c := newPod(o, "n1", "g").Spec.Containers[0]; c.Image != image || c.Command != nil || strings.Join(c.Args, " ") != want {
			t.Errorf("%s is given %q, want %q", image, c.Args, want)
		}
	}
	o.Simulated = true
	if c := newPod(o, "n1", "g").Spec.Containers[0]; c.Image != "ubuntu" || strings.Join(c.Args, " ") != "sleep infinity" {
		t.Errorf("%+v", c)
	}
	for _, bad := range []func(*Options){
		func(o *Options) { o.Namespace = "" },
		func(o *Options) { o.App = "" },
		func(o *Options) { o.Image = "" },
		func(o *Options) { o.Timeout = 0 },
		func(o *Options) { o.MemoryLimits, o.Maps = true, false },
	} {
		o := DefaultOptions()
		if bad(&o); o.Validate() == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// TestPreparedPodLosesItsDevice: between the preparation of a pod and its bind the reservation pod is deleted, and made
// again for another pod; it gets another device. The first pod, once bound, is evicted; the other one stays.
func TestPreparedPodLosesItsDevice(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 2)
	c := w.start()
	a, ra := w.fractional("a", "n1", "g")
	if _, err := c.Prepare(ctx, ra, a); err != nil {
		t.Fatal(err)
	}
	w.settle(c)
	if ready, err := c.Prepare(ctx, ra, a); !ready || err != nil {
		t.Fatalf("%v, %v", ready, err)
	}
	w.settle(c)
	w.dropPod(keys.ReservationNamespace + "/" + podName("n1", "g"))
	w.taken["GPU-n1-0"] = "somebody"
	w.fractional("b", "n1", "g")
	w.run(c, "b")
	if w.told("a") != "GPU-n1-0" || w.told("b") != "GPU-n1-1" {
		t.Fatalf("told %s and %s", w.told("a"), w.told("b"))
	}
	w.bind("a")
	w.settle(c)
	if w.writes["evict"] > 0 {
		t.Error("evicted before it is on record that it was bound")
	}
	w.report("a", schedulingv1alpha2.BindRequestSucceeded)
	w.settle(c)
	if w.pods["team/a"] != nil || w.pods["team/b"] == nil || w.writes["evict"] != 1 {
		t.Errorf("%d evictions, events %v", w.writes["evict"], w.events)
	}
	if p := w.pods[keys.ReservationNamespace+"/"+podName("n1", "g")]; p == nil || p.Annotations[keys.RegainedAnnotation] != "" {
		t.Errorf("the matter is not closed: %+v", p)
	}
}
