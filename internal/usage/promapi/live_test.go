package promapi

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/usage/usagetest"
)

// TestScraped: the real server goes on from its back-filled past with what it scrapes.
func TestScraped(t *testing.T) {
	t.Parallel()
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("kube_node_status_capacity{node=\"n7\",resource=\"nvidia_com_gpu\",unit=\"integer\"} 8\nkai_queue_allocated_gpus{queue_name=\"a\"} 2\n"))
	}))
	t.Cleanup(exporter.Close)
	u, err := url.Parse(exporter.URL)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Truncate(time.Minute).Add(-6 * time.Minute)
	past := usagetest.GPUs(end.Add(-2*time.Hour), time.Minute, 120, 8, func(int) map[string]int64 { return map[string]int64{"a": 8} })
	server := usagetest.Start(t, past, time.Second, u.Host)
	if server == nil {
		return
	}
	server.Await(t, "sum(kube_node_status_capacity{resource=\"nvidia_com_gpu\"})", 8)
	server.Await(t, "sum(kai_queue_allocated_gpus{queue_name=\"a\"})", 2)
}
