package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/deploy/chart"
	"github.com/muster-scheduler/muster/internal/lab"
)

const (
	// home is the namespace of the installation, as on the page about it.
	home     = "kai-scheduler"
	realNode = "real-1"
	// patience is how long a part of the cluster may take to be there.
	patience = 3 * time.Minute
)

// comparison is a case measured in two ways.
type comparison struct {
	About      string `json:"about"`
	Kubernetes string `json:"kubernetes"`
	Nodes      int    `json:"nodes"` // simulated
	Jobs       int    `json:"jobs"`
	Cores      int    `json:"cores"` // for Muster, the lab, the real node and the load driver together
	// Ways are Muster as installed, and in one process.
	Ways [2]way `json:"ways"`
	// Ratio is the first way's median time until all was bound, divided by the second's; Reach is what it should not exceed.
	Ratio float64 `json:"ratio"`
	Reach float64 `json:"reach"`
}

// way is one in which Muster ran.
type way struct {
	Name     string `json:"name"`
	Where    string `json:"where"`    // its processes are
	Webhooks int    `json:"webhooks"` // that the API server calls
	Policies int    `json:"policies"` // by which it judges what is written itself
	Runs     []run  `json:"runs"`
}

// run is one run of a case in one way.
type run struct {
	AllBound   float64   `json:"allBoundSeconds"` // from the first submit to the last pod bound
	FirstBound float64   `json:"firstBoundSeconds"`
	LabCPU     float64   `json:"labCPUSeconds"`
	Processes  []process `json:"processes"`
}

// process is one of Muster's, and what it used in a run.
type process struct {
	Name string   `json:"name"` // replicas have the same
	Args []string `json:"args"`
	// MemoryLimit (bytes) and CPULimit (cores) are the container's; 0: none.
	MemoryLimit int64   `json:"memoryLimitBytes"`
	CPULimit    float64 `json:"cpuLimitCores"`
	// CPU is its time on processors while the load was submitted and placed, RSS the most memory it ever had of its own.
	CPU float64 `json:"cpuSeconds"`
	RSS float64 `json:"rssMiB"`
	// Cgroup is of its container; nil if it has none, or was started again.
	Cgroup *figures `json:"cgroup,omitempty"`
	// Restarts counts the ends of its container, and Ended says why the last one was: OOMKilled, for example.
	Restarts int32  `json:"restarts"`
	Ended    string `json:"ended,omitempty"`

	pod   string
	pid   int
	group cgroup
}

// starter brings Muster up on a lab: its processes, and what ends those that do not end with the lab.
type starter func(ctx context.Context, l *lab.Lab) ([]process, func(), error)

// compare measures a case by turns with Muster as the chart installs it (default values, every role a container on a real node) and with all
// roles in one process of this machine, each time on a fresh lab of the same make.
func (b *bench) compare(ctx context.Context, c *benchCase) error {
	lacks, err := lab.RealNodeLacks(ctx, filepath.Join(b.bin, "realnode"))
	if err != nil {
		return err
	}
	if len(lacks) > 0 {
		return fmt.Errorf("a real node cannot run on this machine, which lacks %s", strings.Join(lacks, "; "))
	}
	out := comparison{About: c.About, Cores: runtime.NumCPU(), Reach: c.Reach["all_bound_s"].MaxRatio, Ways: [2]way{
		{Name: "as installed", Where: "containers on a real node"}, {Name: "muster run all", Where: "beside the lab"},
	}}
	for i := range b.rounds {
		for k, start := range [...]starter{b.install, b.alone} {
			w := &out.Ways[k]
			if err := b.beside(ctx, c, filepath.Join(b.dir, fmt.Sprintf("%s-%d-%d", c.Name, i, k)), start, &out, w); err != nil {
				return fmt.Errorf("%s, run %d: %w", w.Name, i+1, err)
			}
			last := w.Runs[i]
			fmt.Fprintf(os.Stderr, "%s, run %d: all bound after %.1f s, first after %.2f s; muster %.1f CPU-s; lab %.1f CPU-s\n", w.Name, i+1,
				last.AllBound, last.FirstBound, last.cpu(), last.LabCPU)
		}
	}
	out.Ratio = out.Ways[0].median(run.allBound) / out.Ways[1].median(run.allBound)
	if b.json {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(&out)
	}
	return out.print(os.Stdout)
}

// beside measures one run on a lab with a real node beside it. Both ways have both, a stock kube-scheduler for what is not Muster's to place, and an
// API server that paces its clients, as clusters have it.
func (b *bench) beside(ctx context.Context, c *benchCase, dir string, start starter, out *comparison, w *way) (err error) {
	image, err := chartImage(chart.Files())
	if err != nil {
		return err
	}
	n, err := lab.StartRealNode(ctx, lab.RealNodeOptions{
		Program: filepath.Join(b.bin, "realnode"), Name: realNode, Dir: filepath.Join(dir, "node"),
		Images: map[string]string{image: filepath.Join(b.images, "muster.tar")},
	})
	if err != nil {
		return err
	}
	defer func() {
		stopped := n.Stop()
		if err = errors.Join(err, stopped); err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w\nthe end of the node's log:\n%s\nthe end of its kubelet's:\n%s", err, n.Log("node", 5), n.Log("kubelet", 10))
		}
	}()
	l, err := lab.Start(ctx, lab.Options{
		Dir: filepath.Join(dir, "lab"), Binary: filepath.Join(b.bin, "muster-lab"),
		Advertise: n.Gateway(), KubeScheduler: true, APIServerArgs: []string{"--enable-priority-and-fairness=true"},
	})
	if err != nil {
		return err
	}
	defer l.Stop() //nolint:errcheck // the folder goes anyway
	if err := n.Join(l); err != nil {
		return err
	}
	if err := await(ctx, "the real node is ready", func() (string, error) { return nodeReady(ctx, l) }); err != nil {
		return err
	}
	processes, end, err := start(ctx, l)
	if err != nil {
		return err
	}
	defer end()
	watched := map[string]int{}
	for i := range processes {
		watched[strconv.Itoa(i)] = processes[i].pid
	}
	got, err := b.drive(ctx, slices.Concat([]string{"-kubeconfig", l.Kubeconfig()}, c.driverArgs(sideMuster), pids(l, watched), b.load), nil)
	if err != nil {
		return err
	}
	for i := range processes {
		processes[i].CPU, processes[i].RSS = max(0, got["cpu_s_"+strconv.Itoa(i)]), got["rss_mb_"+strconv.Itoa(i)] // below 0: it ended meanwhile
	}
	if err := observe(ctx, l, processes); err != nil {
		return err
	}
	if w.Webhooks, w.Policies, err = guards(ctx, l); err != nil {
		return err
	}
	out.Nodes, out.Jobs, out.Kubernetes = int(got["nodes"]), int(got["pods"]), l.State().Version
	w.Runs = append(w.Runs, run{AllBound: got["all_bound_s"], FirstBound: got["first_bound_s"], LabCPU: got["cpu_s_lab"], Processes: processes})
	return nil
}

// alone starts all roles in one process.
func (b *bench) alone(ctx context.Context, l *lab.Lab) ([]process, func(), error) {
	if err := lab.InstallCRDs(ctx, l.Config(), crdDocuments()); err != nil {
		return nil, nil, err
	}
	if err := installation(ctx, l); err != nil {
		return nil, nil, err
	}
	m, err := b.muster(l, "all", 0)
	if err != nil {
		return nil, nil, err
	}
	args := slices.Clone(m.cmd.Args[1:])
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], l.Kubeconfig(), "KUBECONFIG")
	}
	return []process{{Name: "muster", Args: args, pid: m.pid()}}, m.end, nil
}

// install installs the chart with its default values, as Helm does, and returns when every role is available.
func (b *bench) install(ctx context.Context, l *lab.Lab) ([]process, func(), error) {
	folder := filepath.Join(l.Dir(), "chart")
	if err := os.CopyFS(folder, chart.Files()); err != nil {
		return nil, nil, fmt.Errorf("write the chart: %w", err)
	}
	helm := exec.CommandContext(ctx, filepath.Join(b.bin, "helm-install"), "-kubeconfig", l.Kubeconfig(), "-namespace", home, folder)
	if said, err := helm.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("helm install: %w\n%s", err, said)
	}
	if err := await(ctx, "every role is available", func() (string, error) { return available(ctx, l) }); err != nil {
		return nil, nil, err
	}
	pods, err := installed(ctx, l)
	if err != nil {
		return nil, nil, err
	}
	out := make([]process, len(pods))
	for i := range pods {
		if out[i], err = container(&pods[i]); err != nil {
			return nil, nil, err
		}
	}
	slices.SortFunc(out, func(a, b process) int { return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.pod, b.pod)) })
	return out, func() {}, nil
}

// installed are the pods of the installation's Deployments.
func installed(ctx context.Context, l *lab.Lab) ([]corev1.Pod, error) {
	pods, err := l.Client().CoreV1().Pods(home).List(ctx, metav1.ListOptions{LabelSelector: "pod-template-hash"})
	if err != nil {
		return nil, fmt.Errorf("list the installation's pods: %w", err)
	}
	return pods.Items, nil
}

// container is the process of a pod that runs.
func container(p *corev1.Pod) (process, error) {
	spec, status := &p.Spec.Containers[0], p.Status.ContainerStatuses
	out := process{
		Name: strings.TrimSuffix(p.GenerateName, "-"+p.Labels["pod-template-hash"]+"-"), Args: spec.Args, pod: p.Name,
		MemoryLimit: spec.Resources.Limits.Memory().Value(), CPULimit: spec.Resources.Limits.Cpu().AsApproximateFloat64(),
	}
	if p.Spec.NodeName != realNode || len(p.Spec.Containers) != 1 || len(status) != 1 {
		return out, fmt.Errorf("pod %s is on node %q with %d containers, want one on %s", p.Name, p.Spec.NodeName, len(p.Spec.Containers), realNode)
	}
	_, id, _ := strings.Cut(status[0].ContainerID, "://")
	var err error
	if out.group, err = findCgroup(cgroupRoot, "muster-lab-"+realNode, id); err != nil {
		return out, fmt.Errorf("pod %s: %w", p.Name, err)
	}
	if out.pid, err = out.group.process(); err != nil {
		return out, fmt.Errorf("pod %s: %w", p.Name, err)
	}
	return out, nil
}

// observe says what the processes' containers had used when all was told that trails the binds: when together they took less than a
// quarter of a processor for two seconds, or after a minute.
func observe(ctx context.Context, l *lab.Lab, processes []process) error {
	if processes[0].pod == "" {
		return nil
	}
	used := func() (sum time.Duration) {
		for i := range processes {
			if f, err := processes[i].group.read(); err == nil { // who was started again is told below
				sum += f.used
			}
		}
		return sum
	}
	for before, quiet, i := used(), 0, 0; i < 60 && quiet < 2; i++ {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		now := used()
		if quiet++; now-before > time.Second/4 {
			quiet = 0
		}
		before = now
	}
	pods, err := installed(ctx, l)
	if err != nil {
		return err
	}
	for i := range processes {
		p := &processes[i]
		k := slices.IndexFunc(pods, func(o corev1.Pod) bool { return o.Name == p.pod })
		if k < 0 || len(pods[k].Status.ContainerStatuses) != 1 {
			return fmt.Errorf("pod %s went while it was measured", p.pod)
		}
		s := &pods[k].Status.ContainerStatuses[0]
		p.Restarts = s.RestartCount
		if t := s.LastTerminationState.Terminated; t != nil {
			p.Ended = t.Reason
		}
		if f, err := p.group.read(); err == nil {
			p.Cgroup = &f
		} else if p.Restarts == 0 {
			return fmt.Errorf("pod %s: %w", p.pod, err)
		}
	}
	return nil
}

// nodeReady says what is wrong with the real node, nothing if it is ready.
func nodeReady(ctx context.Context, l *lab.Lab) (string, error) {
	nodes, err := l.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + realNode})
	if err != nil || len(nodes.Items) == 0 {
		return "it is not there", err
	}
	if n := &nodes.Items[0]; !lab.NodeReady(n) {
		return fmt.Sprintf("conditions %+v", n.Status.Conditions), nil
	}
	return "", nil
}

// available says what is missing until the Config is available and all pods are ready.
func available(ctx context.Context, l *lab.Lab) (string, error) {
	scheme := apiruntime.NewScheme()
	if err := kaiv1.AddToScheme(scheme); err != nil {
		return "", err
	}
	kai, err := client.New(l.Config(), client.Options{Scheme: scheme})
	if err != nil {
		return "", err
	}
	var config kaiv1.Config
	if err := kai.Get(ctx, client.ObjectKey{Name: kaiv1.ConfigName}, &config); err != nil {
		return "", fmt.Errorf("the Config: %w", err)
	}
	for _, kind := range []string{"Deployed", "Available", "Ready"} {
		if !meta.IsStatusConditionTrue(config.Status.Conditions, kind) {
			return fmt.Sprintf("the Config is not %s: %+v", kind, config.Status.Conditions), nil
		}
	}
	pods, err := installed(ctx, l)
	if err != nil || len(pods) == 0 {
		return "there are no pods", err
	}
	for i := range pods {
		ready := slices.ContainsFunc(pods[i].Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
		if !ready || pods[i].DeletionTimestamp != nil {
			return fmt.Sprintf("pod %s is not ready, or goes", pods[i].Name), nil
		}
	}
	return "", nil
}

// guards counts the webhooks that the API server calls, and its admission policies.
func guards(ctx context.Context, l *lab.Lab) (hooks, policies int, err error) {
	api := l.Client().AdmissionregistrationV1()
	change, err := api.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, fmt.Errorf("count the webhooks: %w", err)
	}
	for i := range change.Items {
		hooks += len(change.Items[i].Webhooks)
	}
	judge, err := api.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, fmt.Errorf("count the webhooks: %w", err)
	}
	for i := range judge.Items {
		hooks += len(judge.Items[i].Webhooks)
	}
	rules, err := api.ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, fmt.Errorf("count the admission policies: %w", err)
	}
	return hooks, len(rules.Items), nil
}

// await waits until nothing is wrong any more.
func await(ctx context.Context, what string, wrong func() (string, error)) error {
	var why string
	err := wait.PollUntilContextTimeout(ctx, poll, patience, true, func(context.Context) (bool, error) {
		var err error
		why, err = wrong()
		return why == "", err
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w; %s", what, err, why)
	}
	return nil
}

// chartImage is the whole name of the image muster that the chart asks for with its default values.
func chartImage(files fs.FS) (string, error) {
	var about struct {
		AppVersion string `json:"appVersion"`
	}
	var values struct {
		Global struct{ Registry, Tag string } `json:"global"`
	}
	for name, into := range map[string]any{"Chart.yaml": &about, "values.yaml": &values} {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return "", fmt.Errorf("the chart: %w", err)
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			return "", fmt.Errorf("the chart's %s: %w", name, err)
		}
	}
	return "docker.io/" + values.Global.Registry + "/muster:" + cmp.Or(values.Global.Tag, about.AppVersion), nil
}
