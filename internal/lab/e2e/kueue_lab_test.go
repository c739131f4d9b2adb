//go:build lab

package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// kueueEnv names the environment variable with Kueue's own controller, and kueueConfigEnv that with the folder of its definitions and webhooks; make prove-kueue sets both.
const (
	kueueEnv       = "MUSTER_KUEUE_BINARY"
	kueueConfigEnv = "MUSTER_KUEUE_CONFIG"
)

// kueueSpace and kueueDeployment are where Kueue's controller is, as its manifests have it.
const (
	kueueSpace      = "kueue-system"
	kueueDeployment = "kueue-controller-manager"
)

// TestKueue: Muster beside Kueue's own controller. What Kueue admits starts whole, where its flavor says, and what it does not admit holds nothing; then its queues become Muster's.
func TestKueue(t *testing.T) {
	binary, config := os.Getenv(kueueEnv), os.Getenv(kueueConfigEnv)
	if binary == "" || config == "" {
		t.Skip("NOT CHECKED: Kueue's controller is not here; make prove-kueue builds it")
	}
	hook, health := freeAddress(t), freeAddress(t)
	w := newFixture(t, 2, lab.Options{
		KubeScheduler: true, // for Kueue's own pod
		FeatureGates:  "GenericWorkload=true", APIServerArgs: []string{"--runtime-config=scheduling.k8s.io/v1beta1=true"}, CRDs: kueueDefinitions(t, config, hook),
	})
	w.watch(t, &schedulingv1beta1.PodGroup{})
	muster := newProcess(t, "all", w.lab.Kubeconfig())
	muster.start()
	muster.awaitReady(t)
	stop := kueue(t, w, binary, config, hook, health)

	const space, other, own = "kueue", "other", "own"
	for _, name := range []string{space, other, own} {
		w.namespace(t, name)
	}
	var nodes corev1.NodeList
	if err := w.client.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	flavor := nodes.Items[len(nodes.Items)-1].Name
	text, err := os.ReadFile("testdata/kueue.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.createAll(t, strings.ReplaceAll(string(text), "NODE", flavor))

	kueueJobs(t, w, space, other, flavor)
	kueuePods(t, w, space, flavor)
	fromKueue(t, w, own, stop)
	if rejected, err := w.lab.Rejected(t.Context()); err != nil || len(rejected) > 0 {
		t.Errorf("kubelets turned away %v (%v): a node was overcommitted", rejected, err)
	}
}

// kueueJobs has two Jobs of Kueue's, each of its whole quota, and one that is not Kueue's and wants all that is left. Kueue has the second wait, suspended; when the first
// has gone, the second starts whole.
func kueueJobs(t *testing.T, w *fixture, space, other, flavor string) {
	job := func(namespace, name string, size int, queue string) {
		j := gang(namespace, name, size, "")
		if queue != "" {
			j.Labels["kueue.x-k8s.io/queue-name"] = queue
		}
		w.create(t, j)
	}
	job(space, "first", 8, "main")
	w.must(t, upstreamLimit, w.allRunning(space, 8))
	job(space, "second", 8, "main")
	w.must(t, upstreamLimit, func() string { return w.lacksQuota(t, space, "job-second") })
	job(other, "other", 8, "")
	w.must(t, upstreamLimit, w.allRunning(other, 8))
	for _, p := range w.pods(space) {
		if p.Spec.NodeName != flavor || p.Labels["job-name"] != "first" {
			t.Errorf("pod %s runs on %s; only the first Job is admitted, for %s", p.Name, p.Spec.NodeName, flavor)
		}
	}
	w.erase(t, other)
	if err := w.client.Delete(t.Context(), gang(space, "first", 8, ""), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	w.must(t, upstreamLimit, func() string {
		for _, p := range w.pods(space) {
			if p.Labels["job-name"] != "second" {
				return "pod " + p.Name + " is left"
			}
		}
		return w.allRunning(space, 8)()
	})
	for _, p := range w.pods(space) {
		if p.Spec.NodeName != flavor {
			t.Errorf("pod %s runs on %s; it was admitted for %s", p.Name, p.Spec.NodeName, flavor)
		}
	}
}

// kueuePods has plain pods of one of Kueue's groups, behind its gate, which are a PodGroup of Kubernetes': none is bound while the quota is another's, and all start together after.
func kueuePods(t *testing.T, w *fixture, space, flavor string) {
	const size = 4
	w.create(t, &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "pods", Labels: map[string]string{keys.QueueLabel: "team"}},
		Spec: schedulingv1beta1.PodGroupSpec{
			WorkloadRef:      &schedulingv1beta1.WorkloadReference{WorkloadName: "work", TemplateName: "pods"},
			SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: size}},
		},
	})
	for i := range size {
		p := gang(space, "pods", 1, "").Spec.Template
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("pods")}
		p.Labels["kueue.x-k8s.io/queue-name"], p.Labels["kueue.x-k8s.io/pod-group-name"] = "main", "pods"
		w.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: space, Name: "pods-" + strconv.Itoa(i), Labels: p.Labels, Annotations: map[string]string{"kueue.x-k8s.io/pod-group-total-count": strconv.Itoa(size)},
		}, Spec: p.Spec})
	}
	w.must(t, upstreamLimit, func() string { return w.lacksQuota(t, space, "pods") })
	for _, p := range w.pods(space) {
		if gated := slices.Contains(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueueGate}); p.Labels["kueue.x-k8s.io/pod-group-name"] != "" && (p.Spec.NodeName != "" || !gated) {
			t.Errorf("pod %s is bound or has no gate of Kueue's, which has not admitted it", p.Name)
		}
	}
	if err := w.client.Delete(t.Context(), gang(space, "second", 8, ""), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	w.must(t, upstreamLimit, func() string {
		ready := 0
		for _, p := range w.pods(space) {
			if p.Labels["kueue.x-k8s.io/pod-group-name"] != "" && p.Spec.NodeName == flavor && p.Status.Phase == corev1.PodRunning {
				ready++
			}
		}
		if ready != size {
			return fmt.Sprintf("%d of %d admitted pods run on %s", ready, size, flavor)
		}
		return ""
	})
}

// fromKueue carries Kueue's queues over as its page says, Kueue is stopped, and a Job that is Muster's alone meets the limit that was Kueue's quota.
func fromKueue(t *testing.T, w *fixture, space string, stop func()) {
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), os.Getenv(binaryEnv), append(args, "--from", "kueue", "--kubeconfig", w.lab.Kubeconfig())...)
		out, err := cmd.Output()
		t.Logf("%s: %v\n%s", strings.Join(cmd.Args[1:3], " "), err, out)
		return string(out), err
	}
	if out, err := run("migrate", "check"); err != nil || !strings.Contains(out, "Deployment "+kueueSpace+"/"+kueueDeployment) || !strings.Contains(out, "Queues: 1 of 1 are not there yet") {
		t.Errorf("while Kueue runs, and no Queue is made: %v", err)
	}
	out, err := run("migrate", "queues")
	if err != nil {
		t.Fatal(err)
	}
	w.createAll(t, out)
	if out, err := run("migrate", "check"); err != nil || strings.Contains(out, "are not there yet") {
		t.Errorf("with its Queues: %v", err)
	}
	stop()
	w.must(t, upstreamLimit, func() string { // its Deployment has to see it
		if out, err := run("migrate", "check"); err == nil || !strings.Contains(out, "WebhookConfiguration kueue-") {
			return "its webhooks keep Jobs from being made, and the check does not say so"
		}
		return ""
	})
	for _, o := range []client.Object{
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kueue-validating-webhook-configuration"}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kueue-mutating-webhook-configuration"}},
	} {
		if err := w.client.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := run("migrate", "check"); err != nil {
		t.Errorf("without Kueue: %v", err)
	}
	job := func(name string, size int) {
		j := gang(space, name, size, "")
		j.Labels[keys.QueueLabel], j.Spec.Template.Labels[keys.QueueLabel] = "vision", "vision"
		w.create(t, j)
	}
	job("above", 9) // of 12 that are free
	job("within", 8)
	w.must(t, upstreamLimit, w.allRunning(space, 8))
	for _, p := range w.pods(space) {
		if p.Spec.NodeName != "" && p.Labels["job-name"] != "within" {
			t.Errorf("pod %s is bound; with it the queue has more than its limit", p.Name)
		}
	}
	w.erase(t, space)
}

// lacksQuota says what is amiss until Kueue has told of a Workload, of which names begin so, that it waits for quota.
func (w *fixture) lacksQuota(t *testing.T, namespace, name string) string {
	t.Helper()
	var all unstructured.UnstructuredList
	all.SetAPIVersion("kueue.x-k8s.io/v1beta2")
	all.SetKind("WorkloadList")
	if err := w.client.List(t.Context(), &all, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, o := range all.Items {
		if !strings.HasPrefix(o.GetName(), name) {
			continue
		}
		conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "QuotaReserved" && c["status"] == "False" {
				return ""
			}
		}
		return fmt.Sprintf("Workload %s says %v", o.GetName(), conditions)
	}
	return "there is no Workload " + name
}

// createAll makes all objects of some YAML exist.
func (w *fixture) createAll(t *testing.T, text string) {
	t.Helper()
	for _, part := range strings.Split(text, "\n---") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(part), &o.Object); err != nil {
			t.Fatalf("%v in\n%s", err, part)
		}
		if len(o.Object) > 0 {
			w.create(t, o)
		}
	}
}

// kueueDefinitions are Kueue's CRDs; those which its webhook converts name it.
func kueueDefinitions(t *testing.T, config, hook string) (all [][]byte) {
	t.Helper()
	docs, err := lab.ReadCRDs(filepath.Join(config, "crd", "bases"))
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range docs {
		var u map[string]any
		if err := yaml.Unmarshal(doc, &u); err != nil {
			t.Fatal(err)
		}
		name, _, _ := unstructured.NestedString(u, "metadata", "name")
		switch strings.TrimSuffix(name, ".kueue.x-k8s.io") {
		case "localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters":
			if err := unstructured.SetNestedMap(u, map[string]any{"strategy": "Webhook", "webhook": map[string]any{
				"clientConfig": map[string]any{"url": "https://" + hook + "/convert"}, "conversionReviewVersions": []any{"v1"},
			}}, "spec", "conversion"); err != nil {
				t.Fatal(err)
			}
		}
		text, err := yaml.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	return all
}

// kueueWebhooks makes Kueue's webhook configurations, as its manifests have them, but for where they call: here it is no Service.
func kueueWebhooks(t *testing.T, w *fixture, config, hook string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(config, "webhook", "manifests.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "\n---") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(part), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetName("kueue-" + o.GetName())
		all, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		if err != nil || len(all) == 0 {
			t.Fatalf("%s has %d webhooks: %v", o.GetName(), len(all), err)
		}
		for _, one := range all {
			one := one.(map[string]any)
			path, _, _ := unstructured.NestedString(one, "clientConfig", "service", "path")
			one["clientConfig"] = map[string]any{"url": "https://" + hook + path}
			switch one["name"] {
			case "mpod.kb.io", "vpod.kb.io", "mdeployment.kb.io", "vdeployment.kb.io", "mstatefulset.kb.io", "vstatefulset.kb.io":
				one["namespaceSelector"] = map[string]any{"matchExpressions": []any{
					map[string]any{"key": corev1.LabelMetadataName, "operator": "NotIn", "values": []any{metav1.NamespaceSystem, kueueSpace}},
				}}
			}
		}
		if err := unstructured.SetNestedSlice(o.Object, all, "webhooks"); err != nil {
			t.Fatal(err)
		}
		w.create(t, o)
	}
}

// kueueCertificate is what Kueue's controller makes for itself, but for the address: the certificate of its Service is good for 127.0.0.1 too.
func kueueCertificate(t *testing.T) map[string][]byte {
	t.Helper()
	now := time.Now()
	sign := func(template, parent *x509.Certificate, key, by *rsa.PrivateKey) (cert, private []byte) {
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	}
	var keys [2]*rsa.PrivateKey
	for i := range keys {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = key
	}
	service := "kueue-webhook-service." + kueueSpace + ".svc"
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kueue-ca", Organization: []string{"kueue"}}, DNSNames: []string{"kueue-ca"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: service}, DNSNames: []string{service}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	caCert, caKey := sign(ca, ca, keys[0], keys[0])
	cert, key := sign(server, ca, keys[1], keys[0])
	return map[string][]byte{"ca.crt": caCert, "ca.key": caKey, "tls.crt": cert, "tls.key": key}
}

// kueue starts Kueue's controller and waits until it is ready; stop ends it as scaling its Deployment to nothing does. That Deployment is there, with a pod that the lab plays,
// for whoever asks whether Kueue runs.
func kueue(t *testing.T, w *fixture, binary, config, hook, health string) (stop func()) {
	t.Helper()
	dir := t.TempDir()
	certs := filepath.Join(dir, "certs")
	if err := os.Mkdir(certs, 0o700); err != nil {
		t.Fatal(err)
	}
	data := kueueCertificate(t)
	for name, content := range data { // which a kubelet would do
		if err := os.WriteFile(filepath.Join(certs, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kueueSpace}})
	w.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kueueSpace, Name: "kueue-webhook-server-cert"}, Data: data})
	_, port, _ := strings.Cut(hook, ":")
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: %s
health: {healthProbeBindAddress: %q}
metrics: {bindAddress: "0"}
webhook: {port: %s, certDir: %s}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: true}
featureGates: {VisibilityOnDemand: false}
integrations: {frameworks: [batch/job, pod]}
`, kueueSpace, health, port, certs), 0o600); err != nil {
		t.Fatal(err)
	}
	kueueWebhooks(t, w, config, hook)
	label := map[string]string{"app.kubernetes.io/name": "kueue"}
	running := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: kueueSpace, Name: kueueDeployment, Labels: label},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: label}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: label}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "registry.example/kueue/kueue:v0.17.0"}}},
		}},
	}

	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "--config", file, "--kubeconfig", w.lab.Kubeconfig())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
	t.Cleanup(func() {
		end()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("the end of what Kueue said:\n%s", said[max(0, len(said)-8000):])
		}
	})
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(2 * time.Minute)
	for {
		// It begins as another program, which sees to the certificate; its webhook is listened for by that which works.
		c, err := net.Dial("tcp", hook)
		if err == nil {
			_ = c.Close()
			var answer *http.Response
			if answer, err = http.Get("http://" + health + "/readyz"); err == nil {
				_ = answer.Body.Close()
				if answer.StatusCode == http.StatusOK {
					break
				}
				err = errors.New(answer.Status)
			}
		}
		select {
		case <-tick.C:
			continue
		case <-limit:
			t.Fatalf("Kueue's controller is not ready: %v", err)
		}
	}
	w.create(t, running)
	w.must(t, upstreamLimit, w.allRunning(kueueSpace, 1))
	return func() {
		end()
		before := running.DeepCopy()
		running.Spec.Replicas = ptr.To[int32](0)
		if err := w.client.Patch(t.Context(), running, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
}
