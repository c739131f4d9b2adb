//go:build lab

package lab_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/muster-scheduler/muster/internal/lab"
	"github.com/muster-scheduler/muster/internal/lab/operator"
)

// TestLab walks through everything a lab promises, on one lab and a second one beside it.
func TestLab(t *testing.T) {
	l := start(t, lab.Options{
		Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "gpu", Prefix: "node-", Count: 4, GPUs: 8, CPU: "16", Racks: 2}}},
		CRDs:  operator.CRDs(),
	})
	t.Run("nodes", func(t *testing.T) { nodes(t, l) })
	t.Run("a bound pod runs and ends", func(t *testing.T) { runs(t, l) })
	t.Run("a pod that fails says so", func(t *testing.T) { fails(t, l) })
	t.Run("overcommitment is rejected", func(t *testing.T) { rejects(t, l) })
	t.Run("deletion honours grace", func(t *testing.T) { grace(t, l) })
	t.Run("a failed node", func(t *testing.T) { failedNode(t, l) })
	t.Run("a PyTorchJob", func(t *testing.T) { pyTorchJob(t, l) })
	t.Run("tokens and RBAC", func(t *testing.T) { tokens(t, l) })
	t.Run("kubectl", func(t *testing.T) { kubectl(t, l) })
	t.Run("proxy", func(t *testing.T) { proxy(t, l) })
	t.Run("two labs side by side", func(t *testing.T) { sideBySide(t, l) })
	t.Run("stop", func(t *testing.T) { stop(t, l) })
}

func start(t *testing.T, o lab.Options) *lab.Lab {
	t.Helper()
	begun := time.Now()
	o.Logf = t.Logf
	l, err := lab.Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %s", time.Since(begun).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func nodes(t *testing.T, l *lab.Lab) {
	n, err := l.Client().CoreV1().Nodes().Get(t.Context(), "node-3", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"muster.lab/pool": "gpu", "muster.lab/rack": "rack-1", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81920",
		"kubernetes.io/hostname": "node-3",
	}
	got := map[string]string{}
	for k := range want {
		got[k] = n.Labels[k]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !lab.NodeReady(n) {
		t.Errorf("node-3 is not ready: %+v %+v", n.Spec.Taints, n.Status.Conditions)
	}
	if err := l.AddNodes(t.Context(), lab.Pool{Name: "more", Count: 2}); err != nil {
		t.Fatal(err)
	}
	if err := l.RemoveNodes(t.Context(), "more-0", "more-1", "absent"); err != nil {
		t.Fatal(err)
	}
}

func runs(t *testing.T, l *lab.Lab) {
	pod := bind(t, l, "runs", "node-0", map[string]string{lab.AnnotationRunFor: "300ms"}, "cpu", "1", "nvidia.com/gpu", "8")
	got := await(t, l, pod, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	if !hasCondition(got, corev1.PodReady, corev1.ConditionTrue) || len(got.Status.ContainerStatuses) != 1 || got.Status.PodIP == "" {
		t.Errorf("a running pod has the status %+v", got.Status)
	}
	await(t, l, pod, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	// What it held is free again.
	pod = bind(t, l, "next", "node-0", nil, "nvidia.com/gpu", "8")
	await(t, l, pod, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	remove(t, l, pod)
}

func fails(t *testing.T, l *lab.Lab) {
	pod := bind(t, l, "fails", "node-0", map[string]string{
		lab.AnnotationRunFor: "1ms", lab.AnnotationOutcome: "fail", lab.AnnotationExitCode: "42",
	})
	got := await(t, l, pod, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if c := got.Status.ContainerStatuses[0].State.Terminated; c == nil || c.ExitCode != 42 {
		t.Errorf("its container ended as %+v, want exit code 42", c)
	}
}

func rejects(t *testing.T, l *lab.Lab) {
	first := bind(t, l, "first", "node-1", nil, "cpu", "1", "nvidia.com/gpu", "5")
	await(t, l, first, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	gpu := bind(t, l, "too-many-gpus", "node-1", nil, "nvidia.com/gpu", "4")
	cpu := bind(t, l, "too-much-cpu", "node-1", nil, "cpu", "15500m")
	fits := bind(t, l, "fits", "node-1", nil, "cpu", "15", "nvidia.com/gpu", "3")
	for pod, reason := range map[*corev1.Pod]string{gpu: "OutOfnvidia.com/gpu", cpu: "OutOfcpu"} {
		got := await(t, l, pod, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		if got.Status.Reason != reason {
			t.Errorf("%s: rejected with reason %q, want %q", pod.Name, got.Status.Reason, reason)
		}
	}
	await(t, l, fits, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	rejected, err := l.Rejected(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"OutOfnvidia.com/gpu": 1, "OutOfcpu": 1}, rejected); diff != "" {
		t.Error(diff)
	}
	remove(t, l, first)
	remove(t, l, fits)
}

func grace(t *testing.T, l *lab.Lab) {
	stubborn := bind(t, l, "stubborn", "node-0", map[string]string{lab.AnnotationStopAfter: "never"})
	quick := bind(t, l, "quick", "node-0", nil)
	for _, p := range []*corev1.Pod{stubborn, quick} {
		await(t, l, p, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	}
	begun := time.Now()
	two := int64(2)
	for _, p := range []*corev1.Pod{stubborn, quick} {
		if err := l.Client().CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &two}); err != nil {
			t.Fatal(err)
		}
	}
	gone(t, l, quick)
	if d := time.Since(begun); d > 1500*time.Millisecond {
		t.Errorf("a pod that dies at once took %s", d)
	}
	last := gone(t, l, stubborn)
	if d := time.Since(begun); d < 1500*time.Millisecond {
		t.Errorf("a pod that refuses to die took %s, less than its grace", d)
	}
	if c := last.Status.ContainerStatuses[0].State.Terminated; c == nil || c.ExitCode != 137 {
		t.Errorf("its container ended as %+v, want exit code 137", c)
	}
}

func failedNode(t *testing.T, l *lab.Lab) {
	pod := bind(t, l, "survivor", "node-2", nil)
	await(t, l, pod, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	begun := time.Now()
	if err := l.FailNode(t.Context(), "node-2"); err != nil {
		t.Fatal(err)
	}
	t.Logf("node-2 is lost after %s", time.Since(begun).Round(time.Millisecond))
	await(t, l, pod, func(p *corev1.Pod) bool { return hasCondition(p, corev1.PodReady, corev1.ConditionFalse) })
	late := newPod("late", nil) // this one may stay on a lost node, and starts when the node is back
	late.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	late, err := l.Client().CoreV1().Pods("default").Create(t.Context(), late, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bindTo(t, l, late, "node-2")
	// Nobody plays the lost node; its eviction deletes the pod, and nothing there carries that out.
	await(t, l, pod, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if err := l.RestoreNode(t.Context(), "node-2"); err != nil {
		t.Fatal(err)
	}
	gone(t, l, pod)
	await(t, l, late, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	s, err := l.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Nodes != 4 || s.NodesReady != 4 {
		t.Errorf("status counts %d nodes and %d ready, want 4 and 4", s.Nodes, s.NodesReady)
	}
}

func pyTorchJob(t *testing.T, l *lab.Lab) {
	dyn, err := dynamic.NewForConfig(l.Config())
	if err != nil {
		t.Fatal(err)
	}
	template := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{lab.AnnotationRunFor: "100ms"}, "labels": map[string]any{"team": "vision"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "pytorch", "image": "x"}}},
	}
	jobs := dyn.Resource(schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "pytorchjobs"}).Namespace("default")
	_, err = jobs.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
		"metadata": map[string]any{"name": "train", "annotations": map[string]any{"mine": "only"}},
		"spec": map[string]any{"pytorchReplicaSpecs": map[string]any{
			"Master": map[string]any{"replicas": int64(1), "restartPolicy": "Never", "template": template},
			"Worker": map[string]any{"replicas": int64(2), "template": template},
		}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const label = "training.kubeflow.org/"
	for name, want := range map[string]map[string]string{
		"train-master-0": {"replica-type": "master", "replica-index": "0", "job-role": "master", "job-name": "train", "operator-name": "pytorchjob-controller"},
		"train-worker-0": {"replica-type": "worker", "replica-index": "0", "job-name": "train", "operator-name": "pytorchjob-controller"},
		"train-worker-1": {"replica-type": "worker", "replica-index": "1", "job-name": "train", "operator-name": "pytorchjob-controller"},
	} {
		pod := await(t, l, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}, func(*corev1.Pod) bool { return true })
		got := map[string]string{}
		for k, v := range pod.Labels {
			if k, ok := strings.CutPrefix(k, label); ok {
				got[k] = v
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: labels: %s", name, diff)
		}
		if pod.Labels["team"] != "vision" || pod.Annotations["mine"] != "" || pod.Annotations[lab.AnnotationRunFor] == "" {
			t.Errorf("%s: labels %v and annotations %v are not the template's", name, pod.Labels, pod.Annotations)
		}
		if c := metav1.GetControllerOf(pod); c == nil || c.Kind != "PyTorchJob" || c.Name != "train" {
			t.Errorf("%s: its controller is %+v", name, c)
		}
		bindTo(t, l, pod, "node-0")
	}
	done := func(o runtime.Object) bool {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return false
		}
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range conditions {
			if m, ok := c.(map[string]any); ok && m["type"] == "Succeeded" && m["status"] == "True" {
				return true
			}
		}
		return false
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lw := &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return jobs.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return jobs.Watch(ctx, o) },
	}
	if _, err := watchtools.UntilWithSync(ctx, lw, &unstructured.Unstructured{}, nil, func(e watch.Event) (bool, error) { return done(e.Object), nil }); err != nil {
		t.Errorf("the PyTorchJob has not succeeded: %v", err)
	}
}

// tokens proves that a ServiceAccount's token is honoured, and that it may do what RBAC gives it and nothing else.
func tokens(t *testing.T, l *lab.Lab) {
	c, ctx := l.Client(), t.Context()
	if _, err := c.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tr, err := c.CoreV1().ServiceAccounts("default").CreateToken(ctx, "reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.NewProxy()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := c.RbacV1().Roles("default").Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "reader", Namespace: "default"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "reader"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The API server judges by what its caches have heard of, and that of a binding takes it a moment.
	asks := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:default:reader",
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "list", Resource: "pods"},
	}}
	if err := wait.PollUntilContextTimeout(ctx, 25*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		said, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, asks, metav1.CreateOptions{})
		return err == nil && said.Status.Allowed, err
	}); err != nil {
		t.Fatalf("the binding has no effect: %v", err)
	}
	for way, host := range map[string]string{"directly": l.Config().Host, "through the proxy": p.URL()} {
		cfg := rest.AnonymousClientConfig(l.Config())
		cfg.Host, cfg.BearerToken = host, tr.Status.Token
		reader := kubernetes.NewForConfigOrDie(cfg)
		if _, err := reader.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); err != nil {
			t.Errorf("%s: list pods: %v", way, err)
		}
		if _, err := reader.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: list nodes: got error %v, want forbidden", way, err)
		}
	}
}

func kubectl(t *testing.T, l *lab.Lab) {
	path, err := exec.LookPath("kubectl")
	if err != nil {
		t.Log("no kubectl on this machine: nothing to prove")
		return
	}
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig", l.Kubeconfig()}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if out := run("version"); !strings.Contains(out, "Server Version: "+l.State().Version) {
		t.Errorf("kubectl version says:\n%s", out)
	}
	run("create", "configmap", "cm", "--from-literal=a=b")
	run("wait", "--for=condition=Ready", "node/node-0", "--timeout=10s")
	if out := run("get", "nodes", "-o", "name"); strings.Count(out, "node/") != 4 {
		t.Errorf("kubectl get nodes says:\n%s", out)
	}
	run("delete", "configmap", "cm")
}

// proxy proves that hooks come at the exact response: the write is there when the hook runs, and the client has its
// answer or not, as was asked.
func proxy(t *testing.T, l *lab.Lab) {
	p, err := l.NewProxy()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	cfg, err := p.Config()
	if err != nil {
		t.Fatal(err)
	}
	cfg.ContentType = "application/json" // so that Where can read bodies; the default is protobuf
	through := kubernetes.NewForConfigOrDie(cfg)
	w, err := through.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: "proxied"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()

	answered := make(chan struct{}, 8) // one for each create that has returned
	create := func(name string) {
		_, err := through.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"proxied": ""}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
		}
		answered <- struct{}{}
	}
	exists := func(name string) bool {
		_, err := l.Client().CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
		return err == nil
	}
	m := lab.Match{Method: "POST", Resource: "configmaps", Namespace: "default"}
	count := p.Count(m)
	before := p.On(m, 2, lab.BeforeForward, func(r lab.Request) {
		if !exists("b") || len(answered) != 1 {
			t.Errorf("before: b exists: %v, answers: %d, want true and 1", exists("b"), len(answered))
		}
	})
	third := m
	third.Where = func(r lab.Request) bool { return strings.Contains(string(r.Body), `"name":"c"`) }
	after := p.On(third, 1, lab.AfterForward, func(lab.Request) {
		select { // the third answer arrives while the hook runs
		case <-answered:
		case <-time.After(10 * time.Second):
			t.Error("after: the client has no answer yet")
		}
		if !exists("c") {
			t.Error("after: c does not exist")
		}
	})
	within := func(what string, c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: nothing after 20 s", what)
		}
	}
	create("a")
	create("b")
	within("the hook before", before)
	within("the first answer", answered)
	within("the second answer", answered)
	create("c")
	within("the hook after", after)
	if got := count(); got != 3 {
		t.Errorf("counted %d creates, want 3", got)
	}
	for _, want := range []string{"a", "b", "c"} {
		e, ok := <-w.ResultChan()
		if !ok {
			t.Fatal("the watch through the proxy ended")
		}
		if cm, ok := e.Object.(*corev1.ConfigMap); !ok || cm.Name != want {
			t.Errorf("the watch through the proxy shows %+v, want %s", e.Object, want)
		}
	}
}

func sideBySide(t *testing.T, l *lab.Lab) {
	other := start(t, lab.Options{Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "cpu", Count: 1}}}, KubeScheduler: true})
	list, err := l.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "muster.lab/pool=cpu"})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 0 {
		t.Error("one lab shows the nodes of another")
	}
	pod, err := other.Client().CoreV1().Pods("default").Create(t.Context(), newPod("scheduled", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, other, pod, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	if _, err := lab.Start(t.Context(), lab.Options{Dir: other.Dir()}); err == nil || !strings.Contains(err.Error(), "already running") {
		t.Errorf("a second lab in the same folder: got error %v", err)
	}
	if err := other.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := l.Client().CoreV1().Nodes().Get(t.Context(), "node-0", metav1.GetOptions{}); err != nil {
		t.Errorf("the first lab no longer answers: %v", err)
	}
}

func stop(t *testing.T, l *lab.Lab) {
	state := l.State()
	begun := time.Now()
	if err := l.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped after %s", time.Since(begun).Round(time.Millisecond))
	if _, err := os.Stat(l.Dir()); !os.IsNotExist(err) {
		t.Errorf("its temporary folder is still there: %v", err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", state.PID)); !os.IsNotExist(err) {
		t.Errorf("its process is still there: %v", err)
	}
	for _, address := range []string{state.Server, state.StatusURL} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := net.Dial("tcp", u.Host); err == nil {
			c.Close()
			t.Errorf("%s still accepts connections", u.Host)
		}
	}
}

func newPod(name string, annotations map[string]string, requests ...string) *corev1.Pod {
	list := corev1.ResourceList{}
	for i := 0; i+1 < len(requests); i += 2 {
		list[corev1.ResourceName(requests[i])] = resource.MustParse(requests[i+1])
	}
	limits := maps.Clone(list)
	delete(limits, corev1.ResourceCPU)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: annotations},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
			Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Requests: list, Limits: limits},
		}}},
	}
}

func bind(t *testing.T, l *lab.Lab, name, node string, annotations map[string]string, requests ...string) *corev1.Pod {
	t.Helper()
	pod, err := l.Client().CoreV1().Pods("default").Create(t.Context(), newPod(name, annotations, requests...), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bindTo(t, l, pod, node)
	return pod
}

func bindTo(t *testing.T, l *lab.Lab, pod *corev1.Pod, node string) {
	t.Helper()
	err := l.Client().CoreV1().Pods(pod.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, l *lab.Lab, pod *corev1.Pod) {
	t.Helper()
	if err := l.Client().CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	gone(t, l, pod)
}

func await(t *testing.T, l *lab.Lab, pod *corev1.Pod, ok func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	return follow(t, l, pod, func(e watch.EventType, p *corev1.Pod) bool { return e != watch.Deleted && ok(p) })
}

func gone(t *testing.T, l *lab.Lab, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	return follow(t, l, pod, func(e watch.EventType, _ *corev1.Pod) bool { return e == watch.Deleted })
}

// follow watches one pod until ok, and returns it as it was then. A pod that is gone already counts as deleted.
func follow(t *testing.T, l *lab.Lab, pod *corev1.Pod, ok func(watch.EventType, *corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	only := fields.OneTermEqualSelector("metadata.name", pod.Name).String()
	pods := l.Client().CoreV1().Pods(pod.Namespace)
	last := pod
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return pods.Watch(ctx, o)
		},
	}
	absent := func(s cache.Store) (bool, error) {
		_, found, err := s.GetByKey(pod.Namespace + "/" + pod.Name)
		return !found && ok(watch.Deleted, last), err
	}
	_, err := watchtools.UntilWithSync(ctx, lw, &corev1.Pod{}, absent, func(e watch.Event) (bool, error) {
		p, isPod := e.Object.(*corev1.Pod)
		if !isPod {
			return false, nil
		}
		last = p
		return ok(e.Type, p), nil
	})
	if err != nil {
		t.Fatalf("pod %s: %v; last seen %s", pod.Name, err, last.Status.String())
	}
	return last
}

func hasCondition(p *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status == status
		}
	}
	return false
}
