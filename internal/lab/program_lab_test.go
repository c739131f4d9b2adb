//go:build lab

package lab_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/internal/lab"
)

// programEnv makes this test's binary the program that the lab's pods run.
const programEnv = "LAB_TEST_PROGRAM"

// linger is how long the program still answers once it was asked to end: as every server in a cluster has to, until nobody sends it
// requests any more.
const linger = 500 * time.Millisecond

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		if err := program(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// program serves what it knows of itself, says that it is ill once it was told to be, and refuses what a webhook asks it about.
func program(folder string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	greeting, err := os.ReadFile(filepath.Join(folder, "greeting"))
	if err != nil {
		return err
	}
	var ill atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s %s %s %d", greeting, os.Getenv("HOSTNAME"), os.Getenv("VERSION"), os.Getpid())
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if ill.Load() {
			http.Error(w, "ill", http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("POST /ill", func(http.ResponseWriter, *http.Request) { ill.Store(true) })
	mux.HandleFunc("POST /review", func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "refused by a process"}}
		_ = json.NewEncoder(w).Encode(review)
	})
	at := func(port string) string { return net.JoinHostPort(os.Getenv(lab.EnvListenHost), port) }
	server, hooks := &http.Server{Addr: at("8080"), Handler: mux}, &http.Server{Addr: at("8443"), Handler: mux}
	failed := make(chan error, 2)
	go func() { failed <- server.ListenAndServe() }()
	go func() {
		failed <- hooks.ListenAndServeTLS(filepath.Join(folder, "tls", "tls.crt"), filepath.Join(folder, "tls", "tls.key"))
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	fmt.Println("asked to end")
	<-time.After(linger)
	leaving, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(leaving), hooks.Close())
}

// TestPrograms: a Deployment whose pods are processes of this machine. Its probes count, its Service leads to them, a process that
// is ill or killed is started again, and a rolling update leaves no gap.
func TestPrograms(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := start(t, lab.Options{
		Fleet:         lab.Fleet{Pools: []lab.Pool{{Name: "cpu", Count: 2, CPU: "16"}}},
		KubeScheduler: true,
		Programs:      map[string]string{"registry.example/program:1": self},
	})
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(l.Dir(), "pods", "*", "*.log"))
			for _, path := range logs {
				text, _ := os.ReadFile(path)
				t.Logf("%s:\n%s", path, text)
			}
		}
	})
	ctx, c := t.Context(), l.Client()
	bundle, secret := certificate(t, "web.default.svc")
	_, err = c.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{})
	check(t, err)
	begun := time.Now()
	d, err := c.AppsV1().Deployments("default").Create(ctx, webDeployment(), metav1.CreateOptions{})
	check(t, err)
	_, err = c.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{Selector: d.Spec.Selector.MatchLabels, Ports: []corev1.ServicePort{
			{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}, {Name: "hooks", Port: 443, TargetPort: intstr.FromInt32(8443)},
		}},
	}, metav1.CreateOptions{})
	check(t, err)

	// What a volume needs is missing: the pods say so, and come up when it is there.
	until(t, "the pods say what is missing", func(ctx context.Context) (bool, error) {
		pods, err := c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		blocked := 0
		for _, p := range pods.Items {
			for _, s := range p.Status.ContainerStatuses {
				if w := s.State.Waiting; w != nil && w.Reason == "CreateContainerConfigError" && strings.Contains(w.Message, `configmaps "web" not found`) {
					blocked++
				}
			}
		}
		return blocked == 2, err
	})
	_, err = c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Data: map[string]string{"greeting": "hello"}}, metav1.CreateOptions{})
	check(t, err)
	available := func(generation int64) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			d, err := c.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			s := d.Status
			return s.ObservedGeneration >= generation && s.UpdatedReplicas == 2 && s.AvailableReplicas == 2 && s.Replicas == 2, nil
		}
	}
	until(t, "two replicas are available", available(1))
	t.Logf("two replicas were available %v after they were asked for", time.Since(begun).Round(time.Millisecond))

	ask := func(ctx context.Context) ([]string, error) {
		text, err := c.CoreV1().Services("default").ProxyGet("http", "web", "http", "/", nil).DoRaw(ctx)
		return strings.Fields(string(text)), err
	}
	names := map[string]bool{}
	until(t, "the Service leads to both", func(ctx context.Context) (bool, error) {
		said, err := ask(ctx)
		if err != nil || len(said) != 4 || said[0] != "hello" || said[2] != "1" {
			return false, fmt.Errorf("the Service says %q: %w", said, err)
		}
		names[said[1]] = true
		return len(names) == 2, nil
	})

	until(t, "a webhook of the Service is asked", func(ctx context.Context) (bool, error) {
		_, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, webhook(bundle), metav1.CreateOptions{})
		if err != nil && !strings.Contains(err.Error(), "already exists") {
			return false, err
		}
		_, err = c.CoreV1().ConfigMaps("kube-public").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "no-"}}, metav1.CreateOptions{})
		return err != nil && strings.Contains(err.Error(), "refused by a process"), nil
	})

	said, err := ask(ctx)
	check(t, err)
	_, err = c.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name(said[1] + ":8080").SubResource("proxy").Suffix("ill").DoRaw(ctx)
	check(t, err)
	restarted := func(name string, times int32) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			p, err := c.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			s := p.Status.ContainerStatuses[0]
			return s.RestartCount == times && s.Ready && s.LastTerminationState.Terminated != nil, nil
		}
	}
	until(t, "a process that is ill is started again", restarted(said[1], 1))
	var pid int
	until(t, "it serves again", func(ctx context.Context) (bool, error) {
		now, err := ask(ctx)
		if err != nil || now[1] != said[1] {
			return false, err
		}
		_, err = fmt.Sscan(now[3], &pid)
		return now[3] != said[3], err
	})
	begun = time.Now()
	check(t, syscall.Kill(pid, syscall.SIGKILL))
	until(t, "a process that was killed is started again", restarted(said[1], 2))
	p, err := c.CoreV1().Pods("default").Get(ctx, said[1], metav1.GetOptions{})
	check(t, err)
	if code := p.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode; code != 137 {
		t.Errorf("its last exit code is %d, want 137", code)
	}
	t.Logf("ready again %v after a SIGKILL", time.Since(begun).Round(time.Millisecond))

	begun = time.Now()
	rolling, rolled := context.WithCancel(ctx)
	defer rolled()
	type answers struct {
		good int
		bad  []string
	}
	all := make(chan answers, 1)
	go func() {
		var a answers
		for rolling.Err() == nil {
			if _, err := ask(ctx); err != nil {
				a.bad = append(a.bad, err.Error())
			} else {
				a.good++
			}
		}
		all <- a
	}()
	d, err = c.AppsV1().Deployments("default").Patch(ctx, "web", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"web","env":[{"name":"VERSION","value":"2"}]}]}}}}`), metav1.PatchOptions{})
	check(t, err)
	until(t, "the new version is available", available(d.Generation))
	until(t, "the old pods are gone", func(ctx context.Context) (bool, error) {
		pods, err := c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		return len(pods.Items) == 2, err
	})
	rolled()
	a := <-all
	t.Logf("rolled over in %v; %d requests were answered meanwhile", time.Since(begun).Round(time.Millisecond), a.good)
	if len(a.bad) > 0 || a.good == 0 {
		t.Errorf("%d requests failed during the update: %.500q", len(a.bad), a.bad)
	}
	if said, err = ask(ctx); err != nil || said[2] != "2" {
		t.Errorf("after the update the Service says %q, %v", said, err)
	}
	for name := range names {
		logs, _ := filepath.Glob(filepath.Join(l.Dir(), "pods", "default_"+name+"_*", "web.log"))
		text, err := os.ReadFile(strings.Join(logs, " "))
		if err != nil || !strings.Contains(string(text), "asked to end") {
			t.Errorf("pod %s was not asked to end: it says %q, %v", name, text, err)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until polls.
func until(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 25*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		ok, err := done(ctx)
		last = err
		return ok && err == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v; %v", what, err, last)
	}
}

// webDeployment has two replicas of the program, which are never both away.
func webDeployment() *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	get := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")}}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromInt32(1))}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](10),
					Containers: []corev1.Container{{
						Name: "web", Image: "registry.example/program:1", Args: []string{"/etc/web"},
						Env:            []corev1.EnvVar{{Name: programEnv, Value: "1"}, {Name: "VERSION", Value: "1"}},
						Ports:          []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
						StartupProbe:   &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8443)}}},
						LivenessProbe:  &corev1.Probe{ProbeHandler: get, PeriodSeconds: 1, FailureThreshold: 2},
						ReadinessProbe: &corev1.Probe{ProbeHandler: get, PeriodSeconds: 1},
						VolumeMounts:   []corev1.VolumeMount{{Name: "all", MountPath: "/etc/web"}},
					}},
					Volumes: []corev1.Volume{{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
						{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}}},
						{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}, Items: []corev1.KeyToPath{{Key: "tls.crt", Path: "tls/tls.crt"}, {Key: "tls.key", Path: "tls/tls.key"}}}},
					}}}}},
				},
			},
		},
	}
}

// webhook has the Service asked before a ConfigMap is made in kube-public.
func webhook(bundle []byte) *admissionregv1.ValidatingWebhookConfiguration {
	return &admissionregv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Webhooks: []admissionregv1.ValidatingWebhook{{
			Name: "web.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregv1.SideEffectClassNone),
			ClientConfig:      admissionregv1.WebhookClientConfig{CABundle: bundle, Service: &admissionregv1.ServiceReference{Namespace: "default", Name: "web", Path: ptr.To("/review")}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "kube-public"}},
			Rules: []admissionregv1.RuleWithOperations{{
				Operations: []admissionregv1.OperationType{admissionregv1.Create},
				Rule:       admissionregv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}
}

// certificate makes a Secret with a certificate of its own for a host, and says what it is to be trusted by.
func certificate(t *testing.T, host string) ([]byte, *corev1.Secret) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	check(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	check(t, err)
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return crt, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		"tls.crt": crt, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}),
	}}
}
