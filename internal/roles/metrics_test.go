package roles

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-scheduler/muster/docs/operations"
	"github.com/muster-scheduler/muster/internal/ui"
	"github.com/muster-scheduler/muster/internal/usage"
)

// TestMetricsPage: docs/operations/metrics.md lists what the roles serve, with its labels, no more and no less. (Types are held
// against a running process by TestDashboards in internal/lab/e2e.) No label is about a pod.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	server := newPlane(t, true)
	p, _, _ := launch(t, All, quiet(All, "--kubeconfig="+server.kubeconfig(), "--leader-elect", "--plugin-server-port=0", "--nodescale")...)
	if _, err := usage.NewMetrics(p.MetricsNamespace, p.registry); err != nil { // otherwise only with a configuration of it
		t.Fatal(err)
	}
	if _, err := ui.NewMetrics(p.registry); err != nil { // otherwise only in the role ui, which is no part of All
		t.Fatal(err)
	}
	served := described(t, p.registry)
	for limit := time.After(20 * time.Second); served["kai_queue_info"] == nil; { // the queue role's come when it leads
		select {
		case <-time.After(10 * time.Millisecond):
			served = described(t, p.registry)
		case <-limit:
			t.Fatal("the queue role's metrics do not come")
		}
	}
	rows, err := operations.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string][]string{}
	for _, m := range rows {
		listed[m.Name] = append([]string{}, slices.Sorted(slices.Values(m.Labels))...)
	}
	if d := cmp.Diff(listed, served); d != "" {
		t.Errorf("docs/operations/metrics.md (-) and what is served (+), by name, with labels:\n%s", d)
	}
	for name, labels := range served {
		if slices.ContainsFunc(labels, func(l string) bool { return l == "pod" || strings.HasPrefix(l, "pod_") || l == "container" }) {
			t.Errorf("%s has a label for each pod: %q", name, labels)
		}
	}
}

// described are the metrics of a registry that are not the runtime's, and their labels, sorted.
func described(t *testing.T, r *prometheus.Registry) map[string][]string {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		r.Describe(descs)
		close(descs)
	}()
	text := regexp.MustCompile(`fqName: "([^"]+)".* variableLabels: {([^}]*)}`)
	out := map[string][]string{}
	for d := range descs {
		found := text.FindStringSubmatch(d.String())
		if found == nil {
			t.Errorf("a description that cannot be read: %s", d)
			continue
		}
		if !strings.HasPrefix(found[1], "go_") && !strings.HasPrefix(found[1], "process_") {
			labels := slices.DeleteFunc(strings.Split(found[2], ","), func(l string) bool { return l == "" })
			slices.Sort(labels)
			out[found[1]] = labels
		}
	}
	return out
}
