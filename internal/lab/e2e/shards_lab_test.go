//go:build lab

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/lab"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/usage/history"
	"github.com/muster-scheduler/muster/internal/usage/usagetest"
)

// kindLabel tells the CPU nodes from the GPU nodes.
const kindLabel = "example.com/kind"

// policy is a shard and what becomes of the one situation under it.
type policy struct {
	name, about string
	spec        kaiv1.SchedulingShardSpec
	runs        []string // of the gangs b1, b2, c1, c2 and c3
	together    bool     // the CPU pod goes to the node in use
	reason      string   // in the reason why c1 or c2 waits, where it tells the policy
}

func policies(history string) []policy {
	spread, minutes, two, one := "spread", "10m", 2.0, 1
	second, window := metav1.Duration{Duration: time.Second}, kaiv1.PrometheusDuration("1h")
	off := false
	return []policy{
		{
			name: "training", about: "KAI's defaults: packed", spec: kaiv1.SchedulingShardSpec{},
			runs: []string{"b", "c3"}, together: true,
		},
		{
			name: "inference", about: "spread, nobody displaced within 10 minutes", spec: kaiv1.SchedulingShardSpec{
				PlacementStrategy: &kaiv1.PlacementStrategy{GPU: &spread, CPU: &spread},
				MinRuntime:        &kaiv1.MinRuntime{PreemptMinRuntime: &minutes, ReclaimMinRuntime: &minutes},
			},
			runs: []string{"b", "b"},
		},
		{
			name: "fair", about: "past usage counts, twice", spec: kaiv1.SchedulingShardSpec{
				KValue: &two, UsageDBConfig: &kaiv1.UsageDBConfig{ClientType: kaiv1.UsageClientEmbedded, ConnectionString: history, UsageParams: &kaiv1.UsageParams{
					WindowSize: &window, FetchInterval: &second,
				}},
			},
			runs: []string{"c", "c3"}, together: true,
		},
		{
			name: "brief", about: "one gang of each queue per action", spec: kaiv1.SchedulingShardSpec{
				QueueDepthPerAction: map[string]int{"allocate": one, "consolidation": one, "reclaim": one, "preempt": one},
			},
			runs: []string{"b", "c3"}, together: true, reason: "gangs of queue brief-calm are before it",
		},
		{
			name: "equal", about: "plugin priority off, and nobody preempts", spec: kaiv1.SchedulingShardSpec{
				Plugins: map[string]kaiv1.PluginConfig{"priority": {Enabled: &off}},
				Actions: map[string]kaiv1.ActionConfig{"preempt": {Enabled: &off}},
			},
			runs: []string{"b", "c"}, together: true,
		},
	}
}

// TestFiveShards runs five schedulers on five pools of one cluster. Each has the configuration file that its SchedulingShard
// becomes; each finds the same situation in its pool, and decides it by its policy, on its own nodes alone.
func TestFiveShards(t *testing.T) {
	ps := policies(filepath.Join(t.TempDir(), "history"))
	var fleet lab.Fleet
	for _, p := range ps {
		pool := func(kind string, nodes, gpus int) lab.Pool {
			return lab.Pool{
				Name: p.name + "-" + kind, Count: nodes, GPUs: gpus, CPU: "64",
				Labels: map[string]string{keys.NodePoolLabel: p.name, kindLabel: kind},
			}
		}
		fleet.Pools = append(fleet.Pools, pool("gpu", 1, 8), pool("cpu", 2, 0))
	}
	w := newFixture(t, 0, lab.Options{Fleet: fleet})
	w.create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 75})
	for _, role := range []string{"binder", "podgrouper"} {
		newProcess(t, role, w.lab.Kubeconfig()).start()
	}
	var fair *process
	for _, p := range ps {
		for _, q := range [][2]string{{p.name + "-root", ""}, {p.name + "-busy", p.name + "-root"}, {p.name + "-calm", p.name + "-root"}} {
			o := queue(q[0], q[1])
			o.Labels = map[string]string{keys.NodePoolLabel: p.name}
			if q[1] != "" {
				o.Spec.Resources.GPU.Quota = 0
			}
			w.create(t, o)
		}
		text, err := profile.File(profile.Of(&p.spec))
		if err != nil {
			t.Fatal(err)
		}
		conf := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(conf, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if p.name == "fair" {
			greedyHour(t, text, p.name+"-busy", 8)
		}
		s := newProcess(t, "scheduler", w.lab.Kubeconfig(), "--plugin-server-port=0", "--partition-label-value="+p.name, "--scheduler-conf="+conf)
		s.start()
		if p.name == "fair" {
			fair = s
		}
		w.namespace(t, p.name)
		for _, name := range []string{"b1", "b2"} {
			w.create(t, pooledJob(p.name, name, "busy", 4, ""))
		}
		w.create(t, webJob(p.name, "old", "8"))
	}
	for _, p := range ps {
		w.must(t, 60*time.Second, w.allRunning(p.name, 9))
	}
	awaitSeries(t, fair, `kai_queue_gpu_usage{queue_display_name="fair-busy",queue_metadata_name="fair-busy",queue_name="fair-busy"}`, 0.9)
	since := time.Now()
	for _, p := range ps {
		w.create(t, webJob(p.name, "web", "4"))
	}
	for _, p := range ps { // before others of its queue come: of those made in one second the order is anybody's, and where one of a queue is looked at, it would wait behind who waits
		w.must(t, time.Minute, w.allRunning(p.name, 10))
	}
	for _, p := range ps {
		w.create(t, pooledJob(p.name, "c1", "calm", 4, ""))
		w.create(t, pooledJob(p.name, "c2", "calm", 4, ""))
	}
	w.must(t, 30*time.Second, func() string { // so that who came first has room where that counts
		if runs := w.kinds("equal"); !slices.Equal(runs, []string{"b", "c"}) {
			return fmt.Sprintf("%v run", runs)
		}
		return ""
	})
	for _, p := range ps {
		w.create(t, pooledJob(p.name, "c3", "calm", 4, "urgent"))
	}
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(out, "shard\tpolicy\truns (4 GPUs each)\tCPU pod\tof c1 and c2, one waits because")
	for _, p := range ps {
		_, lacking := w.await(30*time.Second, func() string { return w.lacks(&p) })
		if lacking != "" {
			t.Errorf("shard %s after 30 s: %s", p.name, lacking)
		}
		where := "to the idle node"
		if w.packed(p.name) {
			where = "to the node in use"
		}
		fmt.Fprintf(out, "\n%s\t%s\t%s\t%s\t%s", p.name, p.about, strings.Join(w.gangsRunning(p.name), " "), where, w.waits(&p))
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("five schedulers side by side, %v after the same work came to each:\n%s", time.Since(since).Round(time.Millisecond), b.String())
	for _, p := range ps {
		for _, pod := range w.pods(p.name) {
			if n := pod.Spec.NodeName; n != "" && !strings.HasPrefix(n, p.name+"-") {
				t.Errorf("pod %s/%s is on %s", p.name, pod.Name, n)
			}
		}
	}
	rejected, err := w.lab.Rejected(t.Context())
	if err != nil || len(rejected) > 0 {
		t.Errorf("kubelets turned pods away: %v, %v", rejected, err)
	}
}

// lacks says what is not yet as the policy makes it; "" for nothing.
func (w *fixture) lacks(p *policy) string {
	runs := w.kinds(p.name)
	switch {
	case !slices.Equal(runs, p.runs):
		return fmt.Sprintf("%v run, want %v", w.gangsRunning(p.name), p.runs)
	case w.packed(p.name) != p.together:
		return fmt.Sprintf("the CPU pod went to the node in use: %v", !p.together)
	}
	return ""
}

// kinds are gangsRunning without the numbers of b1, b2, c1 and c2: which of two that are alike runs is not for a policy to say.
func (w *fixture) kinds(namespace string) []string {
	out := w.gangsRunning(namespace)
	for i, name := range out {
		if name != "c3" {
			out[i] = name[:1]
		}
	}
	return out
}

// gangsRunning are the GPU gangs of a namespace of which all four pods run, sorted.
func (w *fixture) gangsRunning(namespace string) []string {
	count := map[string]int{}
	for _, p := range w.pods(namespace) {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			count[p.Labels[batchv1.JobNameLabel]]++
		}
	}
	var out []string
	for name, n := range count { // order: sorted below
		if n == 4 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// packed says whether the CPU pods of a namespace are on one node.
func (w *fixture) packed(namespace string) bool {
	nodes := map[string]string{}
	for _, p := range w.pods(namespace) {
		nodes[p.Labels[batchv1.JobNameLabel]] = p.Spec.NodeName
	}
	return nodes["web"] != "" && nodes["web"] == nodes["old"]
}

// waits is why c1 or c2 waits: what tells the policy, if one of them says so. Which of the two is first is not for it to say.
func (w *fixture) waits(p *policy) string {
	first, second := w.reason(p.name, "c1"), w.reason(p.name, "c2")
	if second == "" || p.reason != "" && strings.Contains(first, p.reason) {
		return first
	}
	return second
}

// reason is why a Job's gang waits, as its PodGroup says.
func (w *fixture) reason(namespace, job string) string {
	for _, pg := range list(w, &v2alpha2.PodGroupList{}, client.InNamespace(namespace)).Items {
		if len(pg.OwnerReferences) == 1 && pg.OwnerReferences[0].Name == job {
			for _, c := range pg.Status.SchedulingConditions {
				return strings.TrimSpace(strings.ReplaceAll(c.Message, "\n", "; "))
			}
		}
	}
	return ""
}

// pooledJob is a gang in the pool that its namespace is called by.
func pooledJob(namespace, name, queue string, size int, priority string) *batchv1.Job {
	j := gang(namespace, name, size, "")
	labels := map[string]string{keys.QueueLabel: namespace + "-" + queue, keys.NodePoolLabel: namespace}
	j.Labels, j.Spec.Template.Labels = labels, labels
	j.Spec.Template.Spec.PriorityClassName = priority
	return j
}

// webJob is one pod that needs no GPU.
func webJob(namespace, name, cpu string) *batchv1.Job {
	j := pooledJob(namespace, name, "calm", 1, "")
	j.Spec.Template.Spec.NodeSelector = map[string]string{kindLabel: "cpu"}
	j.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
	j.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	return j
}

// greedyHour writes into the history of a scheduler with this configuration, before it starts, that a queue held all the GPUs
// there were for an hour. So the seconds of a test do not count beside it.
func greedyHour(t *testing.T, conf []byte, queue string, gpus int64) {
	t.Helper()
	c, err := profile.Usage(conf)
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	store, err := history.Open(t.Context(), *c, c.Address)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range usagetest.GPUs(time.Now().Add(-time.Hour), time.Minute, 59, gpus, func(int) map[string]int64 { return map[string]int64{queue: gpus} }) {
		if err := store.Record(t.Context(), m.At, m.Sample); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

// awaitSeries waits until a metric of a process is at least so much.
func awaitSeries(t *testing.T, p *process, series string, least float64) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for {
		got := scrape(t, p.address)[series]
		if got >= least {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s is %v after 30 s, want %v", series, got, least)
		}
	}
}
