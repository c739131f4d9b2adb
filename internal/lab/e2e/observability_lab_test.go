//go:build lab

package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/docs/operations"
	"github.com/muster-scheduler/muster/internal/lab"
	"github.com/muster-scheduler/muster/internal/monitoring"
	"github.com/muster-scheduler/muster/internal/monitoring/monitoringtest"
	"github.com/muster-scheduler/muster/internal/usage/usagetest"
)

// picturesEnv asks TestDashboards to go on for a few minutes and to draw the dashboards into docs/operations.
const picturesEnv = "MUSTER_PICTURES"

// TestDashboards puts a mixed load on a lab, has a real Prometheus server scrape Muster each second, and asks it every query of every
// panel: none is empty, and none but those that are about trouble shows only zeros. What is served is what the inventory says, type and
// labels too.
func TestDashboards(t *testing.T) {
	w := newSharingLab(t, 5, lab.Options{Fleet: lab.Fleet{
		Pools: []lab.Pool{{Name: "n", Count: 5, GPUs: 8}}, Storage: []lab.Storage{{Name: "silent", Capacity: "2Gi"}},
	}})
	for name, quota := range map[string]float64{"research": 12, "vision": 16} {
		q := queue(name, "root")
		q.Spec.Resources.GPU = queuev2.QueueResource{Quota: quota, Limit: -1, OverQuotaWeight: 1}
		w.create(t, q)
	}
	conf := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("usageDBConfig: {connectionString: %q, usageParams: {windowSize: 10m, fetchInterval: 1s, extraParams: {queryResolution: 1s}}}\n", filepath.Join(t.TempDir(), "history"))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	muster := admitting(t, w, "--fake-gpu-nodes", "--leader-elect", "--scheduler-conf="+conf)
	server := usagetest.Start(t, nil, time.Second, muster.address)
	if server == nil {
		return
	}
	began := time.Now()
	l := &mixed{w: w}
	w.create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 75})
	for _, namespace := range []string{"research", "vision", "team"} {
		w.namespace(t, namespace)
	}
	for i := range 8 {
		w.create(t, inQueue("research", gang("research", fmt.Sprintf("sweep-%d", i), 4, "")))
	}
	w.must(t, 30*time.Second, w.allRunning("research", 32))

	pictures := os.Getenv(picturesEnv) != ""
	limit := time.After(110 * time.Second)
	if pictures {
		limit = time.After(130 * time.Second)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var answers [][][][]monitoringtest.Series
	for second, over := 0, false; !over; second++ {
		l.step(t, second)
		select {
		case <-tick.C:
		case <-limit:
			over = true
		}
		if !over && (second%3 != 0 || second < 12 || pictures) {
			continue
		}
		// Answers to what happened before the load began would be worth nothing.
		span := monitoringtest.Span{From: began.Truncate(time.Second), To: time.Now(), Step: time.Second, Window: "10s"}
		var lacking []string
		answers, lacking = ask(t, server.URL, span)
		switch {
		case len(lacking) == 0:
			over = true
		case over:
			t.Errorf("after %v:\n%s", time.Since(began).Round(time.Second), strings.Join(lacking, "\n"))
		}
		if over && pictures {
			drawAll(t, answers, span)
		}
	}
	t.Logf("no panel is empty after %v of load", time.Since(began).Round(time.Second))
	checkInventory(t, muster.address)
	muster.stop(t)
}

// ask asks all queries, and says what the answers lack.
func ask(t *testing.T, url string, span monitoringtest.Span) (answers [][][][]monitoringtest.Series, lacking []string) {
	t.Helper()
	for _, d := range monitoring.Dashboards() {
		var page [][][]monitoringtest.Series
		for i := range d.Panels {
			answer, err := monitoringtest.Ask(t.Context(), url, &d.Panels[i], span)
			if err != nil {
				t.Fatal(err)
			}
			if what := monitoringtest.Lacking(&d.Panels[i], answer); what != "" {
				lacking = append(lacking, d.Name+": "+what)
			}
			page = append(page, answer)
		}
		answers = append(answers, page)
	}
	return answers, lacking
}

// drawAll writes the pictures of the pages.
func drawAll(t *testing.T, answers [][][][]monitoringtest.Series, span monitoringtest.Span) {
	t.Helper()
	for i, d := range monitoring.Dashboards() {
		var out bytes.Buffer
		if err := monitoringtest.Draw(&out, &d, answers[i], span); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join("../../../docs/operations", d.Name+".png"), out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// mixed is a mixed load: gangs that run, wait and are evicted, parts of GPUs, short jobs, binds that fail, pods that are refused.
type mixed struct{ w *fixture }

// step does what belongs to a second of the load.
func (l *mixed) step(t *testing.T, second int) {
	t.Helper()
	if second%2 == 0 { // short work all the time
		j := gang("team", fmt.Sprintf("short-%d", second), 1, "")
		j.Spec.Template.Annotations = map[string]string{lab.AnnotationRunFor: "1s"}
		j.Spec.TTLSecondsAfterFinished = ptr.To[int32](1)
		l.w.create(t, j)
	}
	if second%4 == 1 { // parts of GPUs all the time, which the binder prepares
		for i := range 4 {
			l.w.create(t, fractionPod("team", fmt.Sprintf("part-%d-%d", second, i), map[string]string{keys.GPUFractionAnnotation: "0.5", lab.AnnotationRunFor: "1s"}))
		}
	}
	if second%10 == 3 { // a pod that makes no sense is refused
		if err := l.w.client.Create(t.Context(), fractionPod("team", fmt.Sprintf("senseless-%d", second), map[string]string{keys.GPUFractionAnnotation: "all"})); err == nil {
			t.Error("a pod that makes no sense was taken")
		}
	}
	switch second {
	case 1: // two halves of a GPU
		for i := range 2 {
			l.w.create(t, fractionPod("team", fmt.Sprintf("notebook-%d", i), nil))
		}
	case 2: // volumes that their driver refuses, again and again
		l.w.create(t, inQueue("team", carriers("team", "refused", 1, "silent", "4Gi")))
	case 3: // a pod as large as a node, which finds none
		j := inQueue("research", gang("research", "whole-node", 1, ""))
		j.Spec.Template.Spec.Containers[0].Resources.Limits[lab.GPUResource] = resource.MustParse("8")
		l.w.create(t, j)
	case 25, 55: // more important work of the same queue goes before the rest of it
		j := inQueue("research", gang("research", fmt.Sprintf("urgent-%d", second), 4, ""))
		j.Spec.Template.Labels["priorityClassName"] = "urgent"
		j.Spec.Template.Annotations = map[string]string{lab.AnnotationRunFor: "10s"}
		l.w.create(t, j)
	case 5, 65: // a queue takes back what it lent, and is done with it some time later
		j := inQueue("vision", gang("vision", fmt.Sprintf("training-%d", second), 16, ""))
		j.Spec.Template.Annotations = map[string]string{lab.AnnotationRunFor: "40s"}
		l.w.create(t, j)
	}
}

// inQueue puts a Job into a queue, and has its pods ask for processors and memory too.
func inQueue(queue string, j *batchv1.Job) *batchv1.Job {
	limits := j.Spec.Template.Spec.Containers[0].Resources.Limits
	limits[corev1.ResourceCPU], limits[corev1.ResourceMemory] = resource.MustParse("500m"), resource.MustParse("2Gi")
	j.Labels[keys.QueueLabel], j.Spec.Template.Labels[keys.QueueLabel] = queue, queue
	return j
}

// checkInventory holds what a process serves against docs/operations/metrics.md: names, types and labels.
func checkInventory(t *testing.T, address string) {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := operations.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]operations.Metric{}
	for _, m := range rows {
		listed[m.Name] = m
	}
	for name, f := range families {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		m, ok := listed[name]
		if !ok {
			t.Errorf("%s is served and not in docs/operations/metrics.md", name)
			continue
		}
		delete(listed, name)
		if kind := strings.ToLower(dto.MetricType_name[int32(f.GetType())]); kind != m.Type {
			t.Errorf("%s is a %s, and a %s in docs/operations/metrics.md", name, kind, m.Type)
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		if want := slices.Sorted(slices.Values(m.Labels)); !slices.Equal(labels, want) {
			t.Errorf("%s has the labels %q, and %q in docs/operations/metrics.md", name, labels, want)
		}
		if n := len(f.GetMetric()); n > 300 {
			t.Errorf("%s has %d series in a cluster of 5 nodes", name, n)
		}
	}
	for name := range listed {
		t.Logf("%s was not served under this load", name)
	}
}
