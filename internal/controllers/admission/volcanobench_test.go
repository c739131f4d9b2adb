package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/kube/filters/podtemplate"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// volcanoReview is a review as it is sent.
type volcanoReview struct {
	path string
	body []byte
}

// volcanoReviews are a review of each path of Volcano's face that is answered with yes, and who answers them: in a cluster of 100 queues and 1,000 PodGroups, over an API server in memory. The API server
// judges the two paths of pods by itself.
func volcanoReviews(b *testing.B) (h *Handler, asked []volcanoReview) {
	b.Helper()
	var tasks strings.Builder
	for i := range 8 {
		fmt.Fprintf(&tasks, "{name: t%d, replicas: 1, minAvailable: 1, maxRetry: 3, template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: '1'}}}]}}},", i)
	}
	job := "{metadata: {name: j}, spec: {queue: default, schedulerName: volcano, minAvailable: 8, maxRetry: 3, plugins: {env: [], svc: []}, tasks: [" + tasks.String() + "]}}"
	for _, a := range []struct{ path, object string }{
		{MutateJobPath, job},
		{ValidateJobPath, job},
		{MutateVCQueuePath, "{metadata: {name: q}, spec: {}}"},
		{ValidateVCQueuePath, "{metadata: {name: q}, spec: {weight: 2, parent: q07}}"},
		{MutateVCGroupPath, "{metadata: {name: g}, spec: {queue: default, minMember: 8}}"},
		{ValidateVCGroupPath, "{metadata: {name: g}, spec: {queue: q07, minMember: 8}}"},
		{ValidateHyperNodePath, "{metadata: {name: h}, spec: {tier: 1, members: [{type: Node, selector: {regexMatch: {pattern: 'n-[0-9]+'}}}]}}"},
		{ValidateJobFlowPath, "{metadata: {name: f}, spec: {flows: [{name: a}, {name: b, dependsOn: {targets: [a]}}]}}"},
		{ValidateCronJobPath, "{metadata: {name: c}, spec: {schedule: '*/5 * * * *', jobTemplate: {spec: {queue: default, tasks: [{name: a, replicas: 1, template: {spec: {containers: [{name: c, image: i}]}}}]}}}}"},
	} {
		object, err := yaml.YAMLToJSON([]byte(a.object))
		if err != nil {
			b.Fatal(err)
		}
		body, err := json.Marshal(admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"},
			Request:  &admissionv1.AdmissionRequest{UID: "u", Namespace: "team", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object}},
		})
		if err != nil {
			b.Fatal(err)
		}
		asked = append(asked, volcanoReview{a.path, body})
	}
	s := kubetest.New(kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)})
	s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
	for _, name := range []string{"root", "default"} {
		s.Put(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1beta1.QueueStatus{State: v1beta1.QueueStateOpen}})
	}
	for i := range 98 {
		s.Put(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("q%02d", i)}, Spec: v1beta1.QueueSpec{Weight: 1, Parent: "root"}, Status: v1beta1.QueueStatus{State: v1beta1.QueueStateOpen}})
	}
	for i := range 1000 {
		name := fmt.Sprintf("g%03d", i)
		s.Put(&v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}, Spec: v1beta1.PodGroupSpec{Queue: "default", MinMember: 8}, Status: v1beta1.PodGroupStatus{Running: 8}})
	}
	p := s.Process("admission")
	known := hearing(b, p)
	c, err := p.Client(kubetest.Scheme())
	if err != nil {
		b.Fatal(err)
	}
	h, err = NewHandler(bothFaces().Rules, Sources{Volcano: readVolcano(c, known, podtemplate.Validate)}, nil)
	if err != nil {
		b.Fatal(err)
	}
	return h, asked
}

// BenchmarkVolcanoPaths is what one review of each path takes, with what the API server in memory does for it.
func BenchmarkVolcanoPaths(b *testing.B) {
	h, asked := volcanoReviews(b)
	for _, a := range asked {
		b.Run(strings.ReplaceAll(a.path[1:], "/", "-"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, a.path, bytes.NewReader(a.body))); w.Code != http.StatusOK {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
			}
		})
	}
}

// BenchmarkVolcanoReviews asks for 200 reviews a second, by turns at each path and over TLS as the API server does. It reports how long a review takes, in milliseconds: half of them at most p50-ms, 99 of
// 100 at most p99-ms. Say how many: -benchtime=4000x takes 20 s.
func BenchmarkVolcanoReviews(b *testing.B) {
	const each = time.Second / 200
	h, asked := volcanoReviews(b)
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	ask := func(i int) (took time.Duration, err error) {
		began := time.Now()
		resp, err := server.Client().Post(server.URL+asked[i].path, "application/json", bytes.NewReader(asked[i].body))
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		took = time.Since(began)
		if err == nil && !bytes.Contains(text, []byte(`"allowed":true`)) {
			err = fmt.Errorf("%s: %d %s", asked[i].path, resp.StatusCode, text)
		}
		return took, err
	}
	for i := range asked { // so that what is made once is there
		if _, err := ask(i); err != nil {
			b.Fatal(err)
		}
	}
	took, errs := make([]time.Duration, b.N), make([]error, b.N)
	var group sync.WaitGroup
	began := time.Now()
	b.ResetTimer()
	for i := range b.N {
		<-time.After(time.Until(began.Add(time.Duration(i) * each)))
		group.Go(func() { took[i], errs[i] = ask(i % len(asked)) })
	}
	group.Wait()
	b.StopTimer()
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
	for i, a := range asked {
		var of []time.Duration
		for k := i; k < b.N; k += len(asked) {
			of = append(of, took[k])
		}
		if slices.Sort(of); len(of) > 0 {
			b.Logf("%s: half at most %v, 99 of 100 at most %v", a.path, of[len(of)/2], of[len(of)*99/100])
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[b.N/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds())/1000, "p99-ms")
}
