package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/kubetest"
)

// replicas are controllers of one API server and one time.
func replicas(t *testing.T, o Options, n int, have ...client.Object) (client.Client, *clocktesting.FakeClock, []*Controller) {
	t.Helper()
	server, clock := kubetest.New(kubetest.Options{}), clocktesting.NewFakeClock(testStart)
	server.Put(append(have, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Namespace}})...)
	api, err := server.Process("admission").Client(kubetest.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	out := make([]*Controller, n)
	for i := range out {
		c, err := New(Deps{Client: api, Log: logr.Discard(), Clock: clock}, o)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = c
	}
	return api, clock, out
}

// bundles are what all webhooks of the options are told to trust; the test fails unless that is one thing.
func bundles(t *testing.T, api client.Client, o Options) []byte {
	t.Helper()
	mutating, validating := o.Webhooks(nil)
	var found [][]byte
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(mutating), mutating); err != nil {
		t.Fatal(err)
	}
	for i := range mutating.Webhooks {
		found = append(found, mutating.Webhooks[i].ClientConfig.CABundle)
	}
	for _, v := range validating {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(v), v); err != nil {
			t.Fatal(err)
		}
		for i := range v.Webhooks {
			found = append(found, v.Webhooks[i].ClientConfig.CABundle)
		}
	}
	want := 7
	if o.AuthorizeQueues {
		want++ // for pods that name a PodGroup
	}
	if len(found) != want {
		t.Fatalf("%d webhooks, want %d", len(found), want)
	}
	for _, b := range found {
		if !bytes.Equal(b, found[0]) {
			t.Fatal("the webhooks trust different authorities")
		}
	}
	return found[0]
}

// TestReplicasAgree: two replicas that start together serve one certificate, and what an installer wrote into the configurations
// stays, but for the bundle.
func TestReplicasAgree(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	var installed []client.Object
	for _, object := range o.Objects(nil) {
		object.SetLabels(map[string]string{"installed": "yes"})
		installed = append(installed, object)
	}
	api, clock, both := replicas(t, o, 2, installed...)
	var start sync.WaitGroup
	for _, c := range both {
		start.Go(func() {
			for range 10 { // who is late is refused, and looks again
				if err := c.keep(t.Context()); err == nil {
					return
				} else if !apierrors.IsAlreadyExists(errors.Unwrap(err)) && !apierrors.IsConflict(errors.Unwrap(err)) {
					t.Error(err)
				}
			}
			t.Error("it does not come to an end")
		})
	}
	start.Wait()
	served := func() (certificate []byte) {
		t.Helper()
		for _, c := range both {
			cert := c.certificate.Load()
			if cert == nil || certificate != nil && !bytes.Equal(certificate, cert.Certificate[0]) {
				t.Fatal("the replicas do not serve one certificate")
			}
			certificate = cert.Certificate[0]
		}
		return certificate
	}
	first, trusted := served(), bundles(t, api, o)
	secret := &corev1.Secret{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: o.Namespace, Name: o.Secret}, secret); err != nil || !bytes.Equal(secret.Data[keyTrusted], trusted) {
		t.Fatalf("the configurations trust another authority than the Secret's: %v", err)
	}

	// Years go by, replica by replica. Both follow whoever renews.
	changes := 0
	for year := 1; year <= 12; year++ {
		for month := range 12 {
			clock.Step(30 * 24 * time.Hour)
			for i := range both {
				if err := both[(month+i)%2].keep(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			clock.Step(2 * time.Hour) // a new authority is announced, and then used
			for i := range both {
				if err := both[(month+i+1)%2].keep(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if now := served(); !bytes.Equal(now, first) {
				first = now
				changes++
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
				t.Fatal(err)
			}
			trusts(t, map[string][]byte{keyTrusted: bundles(t, api, o)}, secret.Data, clock.Now(), both[0].hosts...)
		}
	}
	if changes < 12 || changes > 24 {
		t.Errorf("%d certificates in twelve years", changes)
	}
	if bytes.Equal(trusted, bundles(t, api, o)) {
		t.Error("the authority was never followed by another")
	}

	v := &admissionregv1.ValidatingWebhookConfiguration{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: o.QueueWebhook}, v); err != nil {
		t.Fatal(err)
	}
	want := installed[2].(*admissionregv1.ValidatingWebhookConfiguration).DeepCopy()
	for i := range want.Webhooks {
		want.Webhooks[i].ClientConfig.CABundle = v.Webhooks[0].ClientConfig.CABundle
	}
	if d := cmp.Diff(want.Webhooks, v.Webhooks); d != "" || v.Labels["installed"] != "yes" {
		t.Errorf("more than the bundle changed: %s", d)
	}
}

// TestWithURL: without an installer the role makes everything, and puts right what somebody changed.
func TestWithURL(t *testing.T) {
	t.Parallel()
	o := strict()
	o.URL = "https://127.0.0.1:9443"
	api, _, one := replicas(t, o, 1)
	if err := one[0].keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	bundles(t, api, o)
	b := &admissionregv1.ValidatingAdmissionPolicyBinding{}
	at := client.ObjectKey{Name: PolicyPods}
	if err := api.Get(t.Context(), at, b); err != nil {
		t.Fatal(err)
	}
	b.Spec.ValidationActions = []admissionregv1.ValidationAction{admissionregv1.Audit}
	if err := api.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(context.Background(), &admissionregv1.ValidatingAdmissionPolicy{ObjectMeta: b.ObjectMeta}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		t.Fatal(err)
	}
	if err := one[0].keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range o.Policies() {
		have := want.DeepCopyObject().(client.Object)
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(want), have); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(specOf(want), specOf(have)); d != "" {
			t.Errorf("%T %s: %s", want, want.GetName(), d)
		}
	}
}

// TestOlderPoliciesGo: without an installer, too, the policies of an older version, each part by itself, go some time after what they are parts
// of now has come. What is no part stays.
func TestOlderPoliciesGo(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.URL = "https://127.0.0.1:9443"
	older := strict()
	older.ForbidForeignGPUs = true
	var have []client.Object
	for _, p := range older.parts() {
		have = append(have, p.objects()...)
	}
	api, clock, one := replicas(t, o, 1, have...)
	names := func() (out []string) {
		t.Helper()
		var policies admissionregv1.ValidatingAdmissionPolicyList
		var bindings admissionregv1.ValidatingAdmissionPolicyBindingList
		if err := errors.Join(api.List(t.Context(), &policies), api.List(t.Context(), &bindings)); err != nil {
			t.Fatal(err)
		}
		for i := range policies.Items {
			out = append(out, policies.Items[i].Name)
		}
		for i := range bindings.Items {
			out = append(out, bindings.Items[i].Name)
		}
		slices.Sort(out)
		return out
	}
	keep := func() {
		t.Helper()
		if err := one[0].keep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var wanted, both []string
	for _, p := range o.Policies() {
		wanted = append(wanted, p.GetName())
	}
	for _, p := range have {
		if both = append(both, p.GetName()); slices.Contains([]string{PolicyQueueLabels, PolicyQueueTemplates, PolicyForeignGPUs}, p.GetName()) {
			wanted = append(wanted, p.GetName())
		}
	}
	slices.Sort(wanted)
	both = append(both, wanted...)
	slices.Sort(both)
	both, wanted = slices.Compact(both), slices.Compact(wanted)
	keep()
	clock.Step(overlapping - 1)
	keep()
	if d := cmp.Diff(both, slices.Compact(names())); d != "" {
		t.Errorf("at once: %s", d)
	}
	clock.Step(1)
	keep()
	if d := cmp.Diff(wanted, slices.Compact(names())); d != "" {
		t.Errorf("then: %s", d)
	}
}

// TestLinger: a replica that was asked to end answers on for a time, and on each connection once.
func TestLinger(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	api, clock, one := replicas(t, o, 1)
	c := one[0]
	if err := c.keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: o.Namespace, Name: o.Secret}, secret); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- c.answer(ctx, l) }()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(secret.Data[keyTrusted])
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: c.hosts[0], MinVersion: tls.VersionTLS12, Time: clock.Now}}
	defer transport.CloseIdleConnections()
	ask := func() (again bool) {
		t.Helper()
		seen := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { again = i.Reused }})
		r, err := http.NewRequestWithContext(seen, http.MethodPost, "https://"+l.Addr().String()+ValidatePodPath, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusBadRequest || answer.ProtoMajor != 2 {
			t.Fatalf("%s %s", answer.Proto, answer.Status)
		}
		return again
	}
	if ask(); !ask() {
		t.Error("a second request took a connection of its own")
	}
	end()
	for fresh := 0; fresh < 3; { // it may not have heard of it yet; bounded by the test's own limit
		if !ask() {
			fresh++
		}
	}
	clock.Step(linger)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
