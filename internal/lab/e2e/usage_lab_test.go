//go:build lab

package e2e

import (
	"bufio"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/api/kai/keys"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/lab"
	"github.com/muster-scheduler/muster/internal/usage/usagetest"
)

// TestTimeShares runs time-based shares on real parts: a Prometheus server that scrapes the queue role and the lab, with
// an hour in its past in which one queue held the whole cluster and the other nothing. Then both ask for everything, and
// each gets what the formula gives, worked out here from the past alone.
func TestTimeShares(t *testing.T) {
	const gpus, halfLife = 24, time.Hour
	w := newFixture(t, gpus/8, lab.Options{})
	for _, name := range []string{"greedy", "patient"} {
		q := queue(name, "root")
		for _, r := range []*queuev2.QueueResource{&q.Spec.Resources.GPU, &q.Spec.Resources.CPU, &q.Spec.Resources.Memory} {
			r.Quota = 0 // all of it is over quota, so that history decides
		}
		w.create(t, q)
	}

	// The past ends six minutes ago: a sample counts for five minutes, and so none of it is seen beside a live one.
	end := time.Now().Truncate(time.Minute).Add(-6 * time.Minute)
	past := usagetest.GPUs(end.Add(-2*time.Hour), time.Minute, 120, gpus, func(step int) map[string]int64 {
		if step < 60 {
			return map[string]int64{"greedy": 0, "patient": 0}
		}
		return map[string]int64{"greedy": gpus, "patient": 0}
	})
	queues := newProcess(t, "queue", w.lab.Kubeconfig())
	labMetrics, err := url.Parse(w.lab.State().MetricsURL)
	if err != nil {
		t.Fatal(err)
	}
	server := usagetest.Start(t, past, time.Second, queues.address, labMetrics.Host)
	if server == nil {
		return
	}
	conf := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("usageDBConfig: {clientType: prometheus, connectionString: %q, usageParams: {windowSize: 3h, halfLifePeriod: %s, fetchInterval: 2s}}\n", server.URL, halfLife)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	scheduler := newProcess(t, "scheduler", w.lab.Kubeconfig(), "--scheduler-conf="+conf)
	for _, role := range []string{"binder", "podgrouper", "podgroup"} {
		newProcess(t, role, w.lab.Kubeconfig()).start()
	}
	queues.start()
	queues.awaitReady(t)

	// Both ask for everything before anyone decides.
	for _, name := range []string{"greedy", "patient"} {
		w.namespace(t, name)
		job := gang(name, "work", gpus, "")
		job.Labels[keys.QueueLabel], job.Spec.Template.Labels[keys.QueueLabel] = name, name
		job.Annotations = map[string]string{keys.BatchMinMemberAnnotation: "1"} // each further pod is welcome
		w.create(t, job)
	}
	w.must(t, 30*time.Second, func() string {
		for _, name := range []string{"greedy", "patient"} {
			groups := list(w, &v2alpha2.PodGroupList{}).Items
			found := 0
			for i := range groups {
				if groups[i].Namespace == name {
					found++
				}
			}
			grouped := 0
			for _, p := range w.pods(name) {
				if gangOf(&p) != "" {
					grouped++
				}
			}
			if found != 1 || grouped != gpus {
				return fmt.Sprintf("%d groups and %d pods that are in one in %s", found, grouped, name)
			}
		}
		return ""
	})

	// What the formula gives. The last sample of the past stands for five more minutes.
	now := time.Now()
	var held, had float64
	for i := range past {
		weight := math.Exp2(-now.Sub(past[i].At).Seconds() / halfLife.Seconds())
		if i == len(past)-1 {
			for extra := 1; extra <= 5; extra++ {
				weight += math.Exp2(-now.Sub(past[i].At.Add(time.Duration(extra)*time.Minute)).Seconds() / halfLife.Seconds())
			}
		}
		had += gpus * weight
		if i >= 60 {
			held += gpus * weight
		}
	}
	used := held / had
	greedy, patient := max(0, 0.5+(0.5-used)), 0.5+0.5 // n + k·(n − usage), n = 1/2, k = 1
	want := map[string]float64{"greedy": gpus * greedy / (greedy + patient), "patient": gpus * patient / (greedy + patient)}
	t.Logf("greedy used %.4f of the cluster; the formula gives greedy %.2f GPUs and patient %.2f", used, want["greedy"], want["patient"])

	scheduler.start()
	scheduler.awaitReady(t)
	took := w.must(t, 30*time.Second, func() string {
		if a, b := w.running("greedy"), w.running("patient"); a+b != gpus {
			return fmt.Sprintf("%d pods of greedy and %d of patient run", a, b)
		}
		return ""
	})
	for name, share := range want {
		got := w.running(name)
		t.Logf("%s: %d GPUs, after %v", name, got, took.Round(time.Millisecond))
		if math.Abs(float64(got)-share) > 0.75 { // a whole GPU, rounded
			t.Errorf("%s runs %d pods, want %.2f", name, got, share)
		}
	}
	shown := scrape(t, scheduler.address)
	for name, share := range want {
		labels := fmt.Sprintf(`{queue_display_name="%s",queue_metadata_name="%s",queue_name="%s"}`, name, name, name)
		if got := shown["kai_queue_fair_share_gpu"+labels]; math.Abs(got-share) > 0.75 {
			t.Errorf("the scheduler shows a fair share of %v GPUs for %s, want %.2f", got, name, share)
		}
		wantUsed := map[string]float64{"greedy": used}[name]
		// A step or two of now, in which nobody held anything yet or both held their share, has come in.
		if got := shown["kai_queue_gpu_usage"+labels]; math.Abs(got-wantUsed) > 0.03 {
			t.Errorf("the scheduler shows a usage of %v for %s, want %.3f", got, name, wantUsed)
		}
	}
	if shown["kai_usage_query_latency_milliseconds_count"] < 1 {
		t.Error("no fetch was counted")
	}

	// The pipe is closed: the server has what the queue role and the lab export now.
	for query, value := range map[string]float64{
		`sum(kube_node_status_capacity{resource="nvidia_com_gpu"})`:  gpus,
		`sum(kube_node_status_capacity{resource="cpu"}) > bool 0`:    1,
		`sum(kube_node_status_capacity{resource="memory"}) > bool 0`: 1,
		`sum(kai_queue_allocated_gpus{queue_name="greedy"})`:         float64(w.running("greedy")),
		`sum(kai_queue_allocated_gpus{queue_name="patient"})`:        float64(w.running("patient")),
		`sum(kai_queue_allocated_gpus{queue_name="root"})`:           gpus,
		`count(kai_queue_allocated_cpu_cores{queue_name="greedy"})`:  1, `count(kai_queue_allocated_memory_bytes{queue_name="greedy"})`: 1,
	} {
		server.Await(t, query, value)
	}
	scheduler.stop(t)
	queues.stop(t)
}

// TestEmbeddedHistory: a scheduler that keeps the history itself sees a queue's greed grow, and knows of it after SIGKILL.
func TestEmbeddedHistory(t *testing.T) {
	const gpus = 8
	w := newFixture(t, gpus/8, lab.Options{})
	folder := filepath.Join(t.TempDir(), "history")
	conf := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("usageDBConfig: {connectionString: %q, usageParams: {windowSize: 10m, fetchInterval: 1s, extraParams: {queryResolution: 1s}}}\n", folder)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	scheduler := newProcess(t, "scheduler", w.lab.Kubeconfig(), "--scheduler-conf="+conf)
	for _, role := range []string{"binder", "podgrouper", "podgroup"} {
		newProcess(t, role, w.lab.Kubeconfig()).start()
	}
	scheduler.start()
	scheduler.awaitReady(t)
	const series = `kai_queue_gpu_usage{queue_display_name="team",queue_metadata_name="team",queue_name="team"}`
	shows := func(least, most float64) float64 {
		t.Helper()
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		limit := time.After(30 * time.Second)
		for {
			used := scrape(t, scheduler.address)[series]
			if used >= least && used <= most {
				return used
			}
			select {
			case <-tick.C:
			case <-limit:
				t.Fatalf("team used %v of the cluster, want %v to %v", used, least, most)
			}
		}
	}
	w.namespace(t, "greedy")
	w.create(t, gang("greedy", "work", gpus, ""))
	w.must(t, 20*time.Second, w.allRunning("greedy", gpus))
	before := shows(0.5, 1)
	w.erase(t, "greedy")
	scheduler.kill()
	scheduler.start()
	scheduler.awaitReady(t)
	// From now on nobody holds anything, so that all there is was recorded before the kill.
	after := shows(0.001, 1) // without the history, exactly 0
	t.Logf("team used %.3f of the cluster, and after SIGKILL, a restart and some idle seconds %.3f", before, after)
	scheduler.stop(t)
}

// scrape reads a /metrics: values by series, as it writes them.
func scrape(t *testing.T, address string) map[string]float64 {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		series, value, ok := strings.Cut(lines.Text(), "} ")
		if ok {
			series += "}"
		} else if series, value, ok = strings.Cut(lines.Text(), " "); !ok {
			continue
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			out[series] = v
		}
	}
	return out
}
