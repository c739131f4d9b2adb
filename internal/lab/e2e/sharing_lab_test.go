//go:build lab

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/lab"
)

// roundsEnv names the environment variable that says how often pods come and go in TestSharedDevices.
const roundsEnv = "MUSTER_SHARING_ROUNDS"

// reservationTimeout is how long the binder of these tests waits for a device.
const reservationTimeout = 3 * time.Second

// TestSharedDevices: a binder process gives pods shared devices; the test plays the scheduler and the admission webhook.
func TestSharedDevices(t *testing.T) {
	w := newSharingFixture(t, 4)
	proxy, err := w.lab.NewProxy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &sharing{fixture: w, proxy: proxy}
	s.binder = newProcess(t, "binder", proxy.Kubeconfig(), fmt.Sprintf("--resource-reservation-allocation-timeout=%d", reservationTimeout/time.Second))
	s.binder.start()
	s.binder.awaitReady(t)
	t.Run("fifty pods, one device", s.fifty)
	t.Run("two devices", s.two)
	t.Run("a gang", s.gang)
	t.Run("killed on the way", s.killed)
	t.Run("no answer", s.silent)
	t.Run("somebody deletes the reservation", s.lost)
	t.Run("many rounds", s.rounds)
	if !s.binder.running() {
		t.Errorf("the binder has ended: %v", s.binder.exit())
	}
	rejected, err := w.lab.Rejected(t.Context())
	if err != nil || len(rejected) > 0 {
		t.Errorf("kubelets turned pods away: %v, %v", rejected, err)
	}
}

type sharing struct {
	*fixture
	proxy  *lab.Proxy
	binder *process
}

// pod creates a pod that shares devices, as the admission webhook leaves it.
func (s *sharing) pod(t testing.TB, namespace, name string) *corev1.Pod {
	t.Helper()
	return s.sharer(t, namespace, name, nil)
}

// sharer is sharing.pod with a change.
func (w *fixture) sharer(t testing.TB, namespace, name string, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	prefix := name + "-abcdefg-shared-gpu"
	from := func(key string) corev1.EnvVar {
		return corev1.EnvVar{Name: key, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: prefix + "-0"}, Key: key,
		}}}
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{
			keys.GPUFractionAnnotation: "0.5", keys.SharedGPUConfigMapAnnotation: prefix,
		}},
		Spec: corev1.PodSpec{
			SchedulerName: keys.SchedulerName, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example/notebook",
				Env: []corev1.EnvVar{from(keys.VisibleDevicesEnv), from(keys.LegacyPortionEnv), from(keys.PortionEnv)},
				EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: prefix + "-0-evar"}, Optional: ptr.To(false),
				}}},
			}},
		},
	}
	if change != nil {
		change(p)
	}
	w.must(t, 10*time.Second, func() string { // until the namespace has its service account
		err := w.client.Create(t.Context(), p)
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return p
}

// request asks for a bind of the pod; bundle "" makes one that stands by itself.
func (s *sharing) request(t testing.TB, p *corev1.Pod, node, bundle string, size int, groups ...string) {
	t.Helper()
	r := &v1alpha2.BindRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID,
		}}},
		Spec: v1alpha2.BindRequestSpec{
			PodName: p.Name, SelectedNode: node, ReceivedResourceType: v1alpha2.ResourceTypeFraction,
			ReceivedGPU: &v1alpha2.ReceivedGPU{Count: len(groups), Portion: "0.50"}, SelectedGPUGroups: groups,
		},
	}
	if bundle != "" {
		r.Labels = map[string]string{keys.BundleLabel: bundle, keys.BundleSizeLabel: strconv.Itoa(size)}
	}
	s.create(t, r)
}

// env is the environment that a kubelet would give the pod's container, or why it could not start it.
func (s *sharing) env(ctx context.Context, p *corev1.Pod) (map[string]string, error) {
	out := map[string]string{}
	read := func(name string) (map[string]string, error) {
		var m corev1.ConfigMap
		if err := s.client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: name}, &m); err != nil {
			return nil, err
		}
		return m.Data, nil
	}
	c := p.Spec.Containers[0]
	for _, from := range c.EnvFrom {
		data, err := read(from.ConfigMapRef.Name)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, data)
	}
	for _, e := range c.Env {
		data, err := read(e.ValueFrom.ConfigMapKeyRef.Name)
		if err != nil {
			return nil, err
		}
		value, ok := data[e.ValueFrom.ConfigMapKeyRef.Key]
		if !ok {
			return nil, fmt.Errorf("ConfigMap %s has no key %s", e.ValueFrom.ConfigMapKeyRef.Name, e.ValueFrom.ConfigMapKeyRef.Key)
		}
		out[e.Name] = value
	}
	return out, nil
}

// held are the devices of the groups' reservation pods, by group. A group with two of them fails the test.
func (s *sharing) held(t testing.TB) map[string]string {
	t.Helper()
	var pods corev1.PodList
	if err := s.client.List(t.Context(), &pods, client.InNamespace(keys.ReservationNamespace)); err != nil {
		t.Fatal(err)
	}
	out, groups := map[string]string{}, map[string]string{}
	for _, p := range pods.Items {
		g, device := p.Labels[keys.GPUGroupLabel], p.Annotations[keys.ReservedGPUAnnotation]
		if p.DeletionTimestamp != nil {
			continue
		}
		if _, twice := out[g]; twice {
			t.Errorf("group %s has two reservation pods", g)
		}
		if other := groups[device]; other != "" && device != "" {
			t.Errorf("groups %s and %s have the same device %s", g, other, device)
		}
		out[g], groups[device] = device, g
	}
	return out
}

// devices wants each of the namespace's pods to be told the devices of its groups, by name.
func (s *sharing) devices(t testing.TB, namespace string, groups func(pod string) []string) {
	t.Helper()
	held := s.held(t)
	for _, p := range s.pods(namespace) {
		env, err := s.env(t.Context(), &p)
		if err != nil {
			t.Errorf("pod %s: %v", p.Name, err)
			continue
		}
		var want []string
		for _, g := range groups(p.Name) {
			want = append(want, held[g])
		}
		if got := env[keys.VisibleDevicesEnv]; got != strings.Join(want, ",") || env[keys.PortionEnv] != "0.50" || env[keys.LegacyPortionEnv] != "0.50" {
			t.Errorf("pod %s has environment %v, its devices are %v", p.Name, env, want)
		}
	}
}

// clear deletes the namespace's pods and waits until no group is left.
func (s *sharing) clear(t testing.TB, namespace string) {
	t.Helper()
	if err := s.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	s.must(t, 30*time.Second, func() string {
		if n := len(s.pods(namespace)) + len(s.pods(keys.ReservationNamespace)); n > 0 {
			return fmt.Sprintf("%d pods are left", n)
		}
		return ""
	})
}

func (s *sharing) fifty(t *testing.T) {
	s.namespace(t, "fifty")
	var pods []*corev1.Pod
	for i := range 50 {
		pods = append(pods, s.pod(t, "fifty", fmt.Sprintf("p%d", i)))
	}
	var all sync.WaitGroup
	for _, p := range pods {
		all.Go(func() { s.request(t, p, "n-0", "", 0, "fifty") })
	}
	all.Wait()
	took := s.must(t, 60*time.Second, s.allRunning("fifty", 50))
	if held := s.held(t); len(held) != 1 {
		t.Errorf("devices held: %v", held)
	}
	t.Logf("50 binds onto one device in %v", took)
	s.devices(t, "fifty", func(string) []string { return []string{"fifty"} })
	for _, p := range s.pods("fifty") {
		i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == keys.PodBoundCondition })
		if i >= 0 && !strings.Contains(p.Status.Conditions[i].Message, "GPU isolation: none") {
			t.Errorf("condition %+v", p.Status.Conditions[i])
		}
		if p.Annotations[keys.ReceivedResourceTypeAnnotation] != "Fraction" {
			t.Errorf("annotations %v", p.Annotations)
		}
	}
	s.clear(t, "fifty")
}

func (s *sharing) two(t *testing.T) {
	s.namespace(t, "two")
	s.request(t, s.pod(t, "two", "a"), "n-1", "", 0, "y", "x")
	s.request(t, s.pod(t, "two", "b"), "n-1", "", 0, "x")
	s.must(t, 30*time.Second, s.allRunning("two", 2))
	s.devices(t, "two", func(pod string) []string {
		if pod == "a" {
			return []string{"y", "x"}
		}
		return []string{"x"}
	})
	s.clear(t, "two")
}

// gang: eight pods of a bundle on four devices of two nodes; none is bound before all are prepared.
func (s *sharing) gang(t *testing.T) {
	s.namespace(t, "gang")
	var pods []*corev1.Pod
	for i := range 8 {
		pods = append(pods, s.pod(t, "gang", fmt.Sprintf("p%d", i)))
	}
	group := func(i int) string { return fmt.Sprintf("gang-%d", i/2) }
	for i, p := range pods[:7] {
		s.request(t, p, fmt.Sprintf("n-%d", i/4), "gang", 8, group(i))
	}
	// Another request that is served says that the gang was looked at.
	s.request(t, s.pod(t, "gang", "other"), "n-2", "", 0, "other")
	s.must(t, 30*time.Second, func() string {
		if s.running("gang") == 0 {
			return "the other pod does not run"
		}
		return ""
	})
	if n := s.boundNow(t, "gang"); n != 1 {
		t.Errorf("%d pods are bound before the gang is complete", n)
	}
	s.request(t, pods[7], "n-1", "gang", 8, group(7))
	s.must(t, 30*time.Second, s.allRunning("gang", 9))
	s.devices(t, "gang", func(pod string) []string {
		i, err := strconv.Atoi(strings.TrimPrefix(pod, "p"))
		if err != nil {
			return []string{pod}
		}
		return []string{group(i)}
	})
	s.clear(t, "gang")
}

// killed kills the binder around the writes of a bundle, starts it again, and wants everything as if nothing had been.
func (s *sharing) killed(t *testing.T) {
	for _, at := range []struct {
		name  string
		match lab.Match
		k     int
		when  lab.When
	}{
		{"reserve-lost", lab.Match{Method: "POST", Resource: "pods", Namespace: keys.ReservationNamespace}, 1, lab.BeforeForward},
		{"reserve-sent", lab.Match{Method: "POST", Resource: "pods", Namespace: keys.ReservationNamespace}, 2, lab.AfterForward},
		{"label-lost", lab.Match{Method: "PATCH", Resource: "pods"}, 1, lab.BeforeForward},
		{"label-sent", lab.Match{Method: "PATCH", Resource: "pods"}, 4, lab.AfterForward},
		{"map-lost", lab.Match{Method: "POST", Resource: "configmaps"}, 3, lab.BeforeForward},
		{"bind-lost", lab.Match{Method: "POST", Resource: "pods", Subresource: "binding"}, 1, lab.BeforeForward},
		{"bind-sent", lab.Match{Method: "POST", Resource: "pods", Subresource: "binding"}, 3, lab.AfterForward},
	} {
		s.namespace(t, at.name)
		s.proxy.Reset()
		if at.match.Namespace == "" {
			at.match.Namespace = at.name
		}
		fired := s.proxy.On(at.match, at.k, at.when, func(lab.Request) { s.binder.kill() })
		group := func(i int) string { return fmt.Sprintf("%s-%d", at.name, i/2) }
		for i := range 4 {
			s.request(t, s.pod(t, at.name, fmt.Sprintf("p%d", i)), "n-0", at.name, 4, group(i))
		}
		select {
		case <-fired:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the write did not come", at.name)
		}
		bound := s.boundNow(t, at.name)
		s.binder.start()
		took := s.must(t, 30*time.Second, s.allRunning(at.name, 4))
		t.Logf("%s: %d of 4 were bound; all run %v after the restart", at.name, bound, took.Round(10*time.Millisecond))
		if held := s.held(t); len(held) != 2 {
			t.Errorf("%s: devices held: %v", at.name, held)
		}
		s.devices(t, at.name, func(pod string) []string {
			i, _ := strconv.Atoi(strings.TrimPrefix(pod, "p"))
			return []string{group(i)}
		})
		s.clear(t, at.name)
	}
	s.proxy.Reset()
}

// silent: a node on which nobody starts pods, so no device is reported. The request fails, and nothing stays on the pod.
func (s *sharing) silent(t *testing.T) {
	s.namespace(t, "silent")
	s.create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dark"}})
	p := s.pod(t, "silent", "p")
	s.request(t, p, "dark", "", 0, "silent")
	var r v1alpha2.BindRequest
	took := s.must(t, 30*time.Second, func() string {
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(p), &r); err != nil || r.Status.Phase != v1alpha2.BindRequestFailed {
			return fmt.Sprintf("the request has not failed: %+v, %v", r.Status, err)
		}
		return ""
	})
	if took < reservationTimeout-time.Second || !strings.Contains(r.Status.Reason, "was not reserved within 3s") {
		t.Errorf("after %v: %s", took, r.Status.Reason)
	}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || len(p.Labels) > 0 {
		t.Errorf("labels %v, %v", p.Labels, err)
	}
	if held := s.held(t); len(held) > 0 {
		t.Errorf("held: %v", held)
	}
	if err := s.client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dark"}}); err != nil {
		t.Fatal(err)
	}
	// Nobody is on the node to end the reservation pod; the cluster does so when it cleans up after the node.
	if err := s.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(keys.ReservationNamespace), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.clear(t, "silent")
}

// lost: the reservation pod of a device in use is deleted by somebody; the device is reserved again, and nobody is evicted.
func (s *sharing) lost(t *testing.T) {
	s.namespace(t, "lost")
	for i := range 3 {
		s.request(t, s.pod(t, "lost", fmt.Sprintf("p%d", i)), "n-3", "", 0, "lost")
	}
	s.must(t, 30*time.Second, s.allRunning("lost", 3))
	// The success has to be on record: only then is it certain whose device it is.
	s.must(t, 30*time.Second, func() string {
		for _, r := range list(s.fixture, &v1alpha2.BindRequestList{}, client.InNamespace("lost")).Items {
			if r.Status.Phase != v1alpha2.BindRequestSucceeded {
				return "not all requests succeeded"
			}
		}
		return ""
	})
	before := s.pods(keys.ReservationNamespace)[0]
	if err := s.client.Delete(t.Context(), &before); err != nil {
		t.Fatal(err)
	}
	s.must(t, 30*time.Second, func() string {
		for _, p := range s.pods(keys.ReservationNamespace) {
			if p.UID != before.UID && p.Annotations[keys.ReservedGPUAnnotation] != "" && p.Annotations[keys.RegainedAnnotation] == "" {
				return ""
			}
		}
		return "the device is not reserved again"
	})
	s.devices(t, "lost", func(string) []string { return []string{"lost"} })
	if n := s.running("lost"); n != 3 {
		t.Errorf("%d of 3 pods run", n)
	}
	s.clear(t, "lost")
}

// devices is the account that a scheduler keeps of shared devices: one is in use from the first pod that is sent to it until its
// reservation pod has gone, for the device plugin has it back when that has ended, not when it is deleted. Without it the rounds
// would ask the binder for more devices than a node has, and kubelets would turn reservations away.
type devices struct {
	*sharing
	mu    sync.Mutex
	users map[device]int // pods that are sent to the device, and not deleted
}

type device struct{ node, group string }

// take enters a pod for a device, or says that the node has none for it yet.
func (d *devices) take(on device) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	used := map[device]bool{}
	for of := range d.users {
		used[of] = true
	}
	for _, p := range d.pods(keys.ReservationNamespace) {
		used[device{p.Spec.NodeName, p.Labels[keys.GPUGroupLabel]}] = true
	}
	n := 0
	for of := range used {
		if of.node == on.node && of != on {
			n++
		}
	}
	if n >= perNode {
		return fmt.Sprintf("node %s has no device for group %s: %d are in use", on.node, on.group, n)
	}
	d.users[on]++
	return ""
}

// leave says that a pod that ran has been deleted. That its device is reserved has been seen by then.
func (d *devices) leave(on device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users[on]--; d.users[on] == 0 {
		delete(d.users, on)
	}
}

// rounds: pods come, share devices and go, a thousand times; nothing is left.
func (s *sharing) rounds(t *testing.T) {
	rounds := 1000
	if text := os.Getenv(roundsEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s is %q, must be a number above 0", roundsEnv, text)
		}
		rounds = n
	}
	const lanes = 20
	s.namespace(t, "rounds")
	devices := &devices{sharing: s, users: map[device]int{}}
	since := time.Now()
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			for i := lane; i < rounds && !t.Failed(); i += lanes {
				name := fmt.Sprintf("p%d", i)
				p := s.pod(t, "rounds", name)
				// Neighbours share a group; whether they meet is left to chance.
				on := device{fmt.Sprintf("n-%d", lane/2%4), fmt.Sprintf("round-%d-%d", lane/2, i/lanes)}
				if _, what := s.await(60*time.Second, func() string { return devices.take(on) }); what != "" {
					t.Error(what)
					return
				}
				s.request(t, p, on.node, "", 0, on.group)
				_, what := s.await(60*time.Second, func() string {
					var now corev1.Pod
					if err := s.cache.Get(context.Background(), client.ObjectKeyFromObject(p), &now); err != nil || now.Status.Phase != corev1.PodRunning {
						return name + " does not run"
					}
					return ""
				})
				if what != "" {
					t.Error(what)
					return
				}
				if err := s.client.Delete(context.Background(), p); err != nil {
					t.Error(err)
					return
				}
				devices.leave(on)
			}
		})
	}
	all.Wait()
	t.Logf("%d rounds in %v", rounds, time.Since(since).Round(time.Second))
	s.clear(t, "rounds")
	// The garbage collector takes its time.
	s.must(t, 2*time.Minute, func() string {
		var left corev1.ConfigMapList
		if err := s.client.List(t.Context(), &left, client.InNamespace("rounds")); err != nil {
			t.Fatal(err)
		}
		requests := len(list(s.fixture, &v1alpha2.BindRequestList{}, client.InNamespace("rounds")).Items)
		n := 0
		for _, m := range left.Items {
			if strings.Contains(m.Name, "-shared-gpu") {
				n++
			}
		}
		if n+requests > 0 {
			return fmt.Sprintf("%d ConfigMaps and %d BindRequests are left", n, requests)
		}
		return ""
	})
}
