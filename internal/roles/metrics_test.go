package roles

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-scheduler/muster/internal/usage"
)

// TestMetricsPage: docs/operations/metrics.md lists what the roles serve, no more and no less.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	s := parse(t, All, "--kubeconfig="+newPlane(t, true).kubeconfig(), "--admission", "--webhook-addr=0", "--nodescale")
	p, err := newProcess(Names(), s, "v", logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := usage.NewMetrics(s.MetricsNamespace, p.registry); err != nil { // otherwise only with a configuration of it
		t.Fatal(err)
	}
	// The queue role's are registered when it leads; its own tests are about them.
	served := []string{
		"kai_queue_info", "kai_queue_deserved_gpus", "kai_queue_quota_cpu_cores", "kai_queue_quota_memory_bytes",
		"kai_queue_allocated_gpus", "kai_queue_allocated_cpu_cores", "kai_queue_allocated_memory_bytes",
		"muster_queue_requested_gpus", "muster_queue_requested_cpu_cores", "muster_queue_requested_memory_bytes", "muster_queue_limit_gpus",
		"muster_queue_condition",
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		p.registry.Describe(descs)
		close(descs)
	}()
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range descs {
		n := name.FindStringSubmatch(d.String())[1]
		if !strings.HasPrefix(n, "go_") && !strings.HasPrefix(n, "process_") {
			served = append(served, n)
		}
	}
	text, err := os.ReadFile("../../docs/operations/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, row[1])
	}
	slices.Sort(served)
	for _, n := range slices.Compact(served) {
		if !slices.Contains(listed, n) {
			t.Errorf("%s is served and not listed", n)
		}
	}
	for i, n := range listed {
		if !slices.Contains(served, n) {
			t.Errorf("%s is listed and not served", n)
		}
		if slices.Contains(listed[:i], n) {
			t.Errorf("%s is listed twice", n)
		}
	}
}
