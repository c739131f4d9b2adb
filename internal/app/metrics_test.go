package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestCountRequests: answers are counted by code, and a server that does not answer as <error>.
func TestCountRequests(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }))
	defer server.Close()
	config := &rest.Config{Host: server.URL, QPS: -1}
	registry := prometheus.NewPedanticRegistry()
	if err := CountRequests(config, registry); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	get := func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if _, err := client.CoreV1().Pods("a").Get(ctx, "b", metav1.GetOptions{}); err == nil {
			t.Error("a pod was found")
		}
	}
	get()
	get()
	server.Close()
	get()
	host := strings.TrimPrefix(server.URL, "http://")
	want := strings.ReplaceAll(`# HELP rest_client_requests_total Requests to the API server, by the answer's status code (<error>: none came), method and host.
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="404",host="HOST",method="GET"} 2
rest_client_requests_total{code="<error>",host="HOST",method="GET"} 1
`, "HOST", host)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "rest_client_requests_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "rest_client_request_duration_seconds"); err != nil || n != 1 {
		t.Errorf("%d histograms of durations, %v", n, err)
	}
	if err := CountRequests(config, registry); err == nil {
		t.Error("registered twice without an error")
	}
}
