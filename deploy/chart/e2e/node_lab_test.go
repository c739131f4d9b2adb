//go:build lab && node

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

const (
	realNode = "real-1"
	realGPUs = 4
	// busybox is the image that a real node brings with it.
	busybox = "registry.example/busybox:1"
)

// joined is a place whose lab has a real node beside its simulated ones.
type joined struct {
	*place
	told map[string]string // what containers of Muster's own have logged, by pod and container
	// gateway is this machine's address, as the node reaches it.
	gateway string
}

// newJoined starts a lab and a real node that has the images of `make image`, under the names that the chart has by default, what more says, and more of these
// images.
func newJoined(t *testing.T, more lab.RealNodeOptions, images ...string) *joined {
	t.Helper()
	realnode, dist := os.Getenv("MUSTER_REALNODE_BINARY"), os.Getenv("MUSTER_IMAGES")
	if realnode == "" || dist == "" {
		t.Fatal("MUSTER_REALNODE_BINARY and MUSTER_IMAGES have to say where the node's program and the images are (run: make test-node)")
	}
	lacks, err := lab.RealNodeLacks(t.Context(), realnode)
	if err != nil {
		t.Fatal(err)
	}
	if len(lacks) > 0 {
		t.Skipf("NOT CHECKED: a real node cannot run on this machine, which lacks\n%s", strings.Join(lacks, "\n"))
	}
	chart := load(t).Metadata.AppVersion
	more.Program, more.Name, more.Dir, more.GPUs, more.Images = realnode, realNode, cmp.Or(more.Dir, filepath.Join(t.TempDir(), "node")), realGPUs, map[string]string{}
	for _, image := range append([]string{"muster", "muster-node"}, images...) {
		more.Images["docker.io/registry/local/muster/"+image+":"+chart] = filepath.Join(dist, image+".tar")
	}
	node, err := lab.StartRealNode(context.WithoutCancel(t.Context()), more) // its end is a clean-up's
	if err != nil {
		t.Fatal(err)
	}
	// After the lab, which newPlace stops before: clean-ups run in the reverse order.
	t.Cleanup(func() {
		if err := node.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for _, name := range append([]string{"node", "kubelet", "containerd", "kube-proxy"}, slices.Sorted(maps.Keys(more.Services))...) {
				t.Logf("the end of the node's %s.log:\n%s", name, node.Log(name, 60))
			}
		}
	})
	j := &joined{told: map[string]string{}, gateway: node.Gateway(), place: newPlace(t, lab.Options{
		Advertise: node.Gateway(), KubeScheduler: true,
		// Who does not say that he knows of simulated nodes gets real ones.
		Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "simulated", Count: 1, GPUs: 8, Taints: []corev1.Taint{{Key: lab.LabelPool, Effect: corev1.TaintEffectNoSchedule}}}}},
	})}
	if err := node.Join(j.lab); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		j.listen()
		for name, text := range j.told {
			t.Logf("the end of %s:\n%s", name, last(text, 25))
		}
		j.print("")
	})
	return j
}

func last(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// print logs pods, and events that warn.
func (j *joined) print(namespace string) {
	var pods corev1.PodList
	if err := j.client.List(context.Background(), &pods, client.InNamespace(namespace)); err != nil {
		j.Error(err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		line := fmt.Sprintf("%s/%s on %q: %s", p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase)
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			line += fmt.Sprintf("; %s ready=%v restarts=%d", s.Name, s.Ready, s.RestartCount)
			if w := s.State.Waiting; w != nil {
				line += " " + w.Reason + ": " + w.Message
			}
			if w := s.LastTerminationState.Terminated; w != nil {
				line += fmt.Sprintf(" before: %s, code %d", w.Reason, w.ExitCode)
			}
		}
		j.Log(line)
	}
	var events corev1.EventList
	if err := j.client.List(context.Background(), &events, client.InNamespace(namespace)); err != nil {
		j.Error(err)
	}
	for i := range events.Items {
		if e := &events.Items[i]; e.Type == corev1.EventTypeWarning {
			j.Logf("event: %s/%s %s ×%d: %s", e.Namespace, e.InvolvedObject.Name, e.Reason, max(e.Count, 1), e.Message)
		}
	}
}

// listen keeps what Muster's containers on the real node have logged until now, through the API server, as `kubectl logs` does.
func (j *joined) listen() {
	for _, namespace := range []string{home, keys.ReservationNamespace} {
		var pods corev1.PodList
		if err := j.client.List(context.Background(), &pods, client.InNamespace(namespace)); err != nil {
			j.Error(err)
		}
		for i := range pods.Items {
			for _, s := range pods.Items[i].Status.ContainerStatuses {
				for _, previous := range []bool{false, true}[:1+min(1, s.RestartCount)] {
					text, err := j.lab.Client().CoreV1().Pods(namespace).GetLogs(pods.Items[i].Name, &corev1.PodLogOptions{Container: s.Name, Previous: previous}).DoRaw(context.Background())
					if err != nil {
						j.Logf("the log of %s/%s: %v", pods.Items[i].Name, s.Name, err)
						continue
					}
					j.told[fmt.Sprintf("%s/%s previous=%v", pods.Items[i].Name, s.Name, previous)] = string(text)
				}
			}
		}
	}
}

// log is what a container has said.
func (j *joined) log(pod, container string) string {
	j.Helper()
	text, err := j.lab.Client().CoreV1().Pods("default").GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(j.Context())
	if err != nil {
		j.Fatalf("the log of %s: %v", pod, err)
	}
	return strings.TrimSpace(string(text))
}

// exec runs a command in a container, as `kubectl exec` does.
func (j *joined) exec(pod, container string, command ...string) (string, error) {
	return j.feed(nil, pod, container, command...)
}

// feed is exec with an input; nil for none.
func (j *joined) feed(in io.Reader, pod, container string, command ...string) (string, error) {
	r := j.lab.Client().CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdin: in != nil, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	e, err := remotecommand.NewWebSocketExecutor(j.lab.Config(), "GET", r.URL().String())
	if err != nil {
		return "", err
	}
	var out, failed bytes.Buffer
	if err := e.StreamWithContext(j.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: &out, Stderr: &failed}); err != nil {
		return "", fmt.Errorf("exec in %s: %w: %s", pod, err, failed.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// job is one of so many pods, which run together or not at all, each with a shell script and some GPUs.
func job(name string, size int32, gpus string, script string) *batchv1.Job {
	labels := map[string]string{keys.QueueLabel: "default-queue"}
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels, Annotations: map[string]string{keys.BatchMinMemberAnnotation: fmt.Sprint(size)}},
		Spec: batchv1.JobSpec{Parallelism: &size, Completions: &size, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels)},
			Spec: corev1.PodSpec{
				SchedulerName: keys.SchedulerName, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To(int64(1)),
				Containers: []corev1.Container{{Name: "main", Image: busybox, Command: []string{"sh", "-c", script}}},
			},
		}},
	}
	if gpus != "" {
		j.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{lab.GPUResource: resource.MustParse(gpus)}
	}
	return j
}

// create returns what creates something.
func (j *joined) create(o client.Object) func() error {
	return func() error { return j.client.Create(j.Context(), o) }
}

// pods are a Job's, by name.
func (j *joined) pods(name string) []corev1.Pod {
	var list corev1.PodList
	if err := j.client.List(j.Context(), &list, client.InNamespace("default"), client.MatchingLabels{"batch.kubernetes.io/job-name": name}); err != nil {
		j.Fatal(err)
	}
	return list.Items
}

// only is the pod of a Job of one, nil as long as there is none.
func (j *joined) only(name string) *corev1.Pod {
	if pods := j.pods(name); len(pods) == 1 {
		return &pods[0]
	}
	return nil
}

func (j *joined) complete(name string) func() string {
	return func() string {
		var b batchv1.Job
		if err := j.get(&b, "default", name); err != nil {
			return err.Error()
		}
		if b.Status.CompletionTime == nil {
			return fmt.Sprintf("%s has not completed: %+v", name, b.Status)
		}
		return ""
	}
}

// TestNode is an installation with the chart's default values whose roles are containers on a real node, from the images that
// `make image` writes, and what runs there through it: what only a real node shows.
func TestNode(t *testing.T) {
	j := newJoined(t, lab.RealNodeOptions{})
	chart := load(t)
	image := "registry/local/muster/muster:" + chart.Metadata.AppVersion
	j.step("the real node is ready and offers its GPUs", nil, func() string {
		var n corev1.Node
		if err := j.get(&n, "", realNode); err != nil {
			return err.Error()
		}
		if got := n.Status.Allocatable[lab.GPUResource]; !lab.NodeReady(&n) || got.Value() != realGPUs {
			return fmt.Sprintf("%s GPUs, conditions %+v", got.String(), n.Status.Conditions)
		}
		return ""
	})
	var n corev1.Node
	if err := j.get(&n, "", realNode); err != nil {
		t.Fatal(err)
	}
	i := n.Status.NodeInfo
	t.Logf("kubelet %s, %s, kernel %s, %s; API server %s; %s CPU, %s", i.KubeletVersion, i.ContainerRuntimeVersion, i.KernelVersion, i.OSImage, j.lab.State().Version,
		n.Status.Capacity.Cpu(), n.Status.Capacity.Memory())
	t.Run("installed", func(t *testing.T) { j.part(t).installed(image) })
	if t.Failed() {
		t.FailNow()
	}
	t.Run("gang", func(t *testing.T) { j.part(t).gangs() })
	t.Run("job", func(t *testing.T) { j.part(t).jobs() })
	t.Run("eviction", func(t *testing.T) { j.part(t).evictions() })
	t.Run("sharing", func(t *testing.T) { j.part(t).sharing(image) })
	j.listen()
	t.Run("nothing forbidden", func(t *testing.T) {
		for name, text := range j.told {
			for line := range strings.Lines(text) {
				if strings.Contains(strings.ToLower(line), "forbidden") {
					t.Errorf("%s: %s", name, strings.TrimSpace(line))
				}
			}
		}
		t.Logf("%d containers logged", len(j.told))
	})
	j.print(home)
	j.step("helm uninstall: every container ends", func() error {
		_, err := action.NewUninstall(j.helm).Run("muster")
		return err
	}, func() string {
		var pods corev1.PodList
		if err := j.client.List(j.Context(), &pods, client.InNamespace(home)); err != nil {
			return err.Error()
		}
		if len(pods.Items) > 0 {
			return fmt.Sprintf("%d pods", len(pods.Items))
		}
		return ""
	})
}

// part is the same with another T.
func (j *joined) part(t *testing.T) *joined {
	p := *j.place
	p.T = t
	return &joined{place: &p, told: j.told, gateway: j.gateway}
}

func (j *joined) installed(image string) {
	j.step("helm install: every role is an available container", func() error {
		i := action.NewInstall(j.helm)
		i.ReleaseName, i.Namespace, i.CreateNamespace = "muster", home, true
		_, err := i.RunWithContext(j.Context(), load(j), nil)
		return err
	}, j.available(image, deployments))
}

// gangs: all pods of a gang run or none, each in a container of its own that is told which GPU it has.
func (j *joined) gangs() {
	const script = `echo "$HOSTNAME has $NVIDIA_VISIBLE_DEVICES"; exec sleep 3600`
	whole, excess := job("whole", 3, "1", script), job("excess", 2, "1", script)
	j.step("a gang of 3 pods runs", j.create(whole), j.runs("whole", 3))
	j.step("a gang of 2 finds one GPU free, and has no pod bound", j.create(excess), func() string {
		pods := j.pods("excess")
		if len(pods) != 2 {
			return fmt.Sprintf("%d pods", len(pods))
		}
		for i := range pods {
			said := slices.ContainsFunc(pods[i].Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
			})
			if !said || pods[i].Spec.NodeName != "" {
				return fmt.Sprintf("%s is on %q: %+v", pods[i].Name, pods[i].Spec.NodeName, pods[i].Status.Conditions)
			}
		}
		return ""
	})
	devices := map[string]bool{}
	for _, p := range j.pods("whole") {
		said := j.log(p.Name, "main")
		name, device, _ := strings.Cut(said, " has ")
		if name != p.Name || !strings.HasPrefix(device, "GPU-") || devices[device] {
			j.Errorf("%s says %q: want its name and a GPU that nobody else has", p.Name, said)
		}
		devices[device] = true
		if out, err := j.exec(p.Name, "main", "hostname"); err != nil || out != p.Name {
			j.Errorf("hostname in %s is %q (%v)", p.Name, out, err)
		}
		j.Logf("kubectl logs, exec: %s", said)
	}
	j.step("one Job is deleted: the other gang runs", func() error {
		return j.client.Delete(j.Context(), whole, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}, j.runs("excess", 2))
	wide := job("wide", 10, "1", script)
	wide.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: lab.LabelPool, Operator: corev1.TolerationOpExists}}
	j.step("both Jobs are gone, and a gang of 10 runs on 8 simulated GPUs and 2 of the real node's", func() error {
		err := j.client.Delete(j.Context(), excess, client.PropagationPolicy(metav1.DeletePropagationForeground))
		if err != nil {
			return err
		}
		return j.client.Create(j.Context(), wide)
	}, func() string {
		if left := j.gone("whole", "excess"); left != "" {
			return left
		}
		return j.runs("wide", 10)()
	})
	nodes := map[string]int{}
	for _, p := range j.pods("wide") {
		nodes[p.Spec.NodeName]++
		if p.Spec.NodeName == realNode && j.log(p.Name, "main") == "" {
			j.Errorf("%s says nothing", p.Name)
		}
	}
	if nodes[realNode] < 2 || nodes["simulated-0"] == 0 {
		j.Errorf("the gang is on %v", nodes)
	}
	j.step("it is gone", func() error {
		return j.client.Delete(j.Context(), wide, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}, func() string { return j.gone("wide") })
}

// gone says which pods of Jobs are left.
func (j *joined) gone(names ...string) string {
	for _, name := range names {
		if pods := j.pods(name); len(pods) > 0 {
			return fmt.Sprintf("%d pods of %s", len(pods), name)
		}
	}
	return ""
}

// jobs: a pod whose init container prepares a volume, whose first run fails, whose second is not ready before its probes say so,
// and which ends well.
func (j *joined) jobs() {
	b := job("probed", 1, "", `
		[ "$(cat /data/prepared)" = yes ] || exit 4
		[ -f /data/second ] || { touch /data/second; echo first run; exit 3; }
		echo second run; touch /data/started
		until [ -f /data/end ]; do sleep 0.1; done; echo ends`)
	spec := &b.Spec.Template.Spec
	spec.RestartPolicy = corev1.RestartPolicyOnFailure
	spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	main := &spec.Containers[0]
	main.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	spec.InitContainers = []corev1.Container{{Name: "prepare", Image: busybox, Command: []string{"sh", "-c", "echo yes > /data/prepared; echo prepared"}, VolumeMounts: main.VolumeMounts}}
	probe := func(file string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-f", file}}}, PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 300}
	}
	main.StartupProbe, main.ReadinessProbe, main.LivenessProbe = probe("/data/started"), probe("/data/ready"), probe("/data/prepared")
	j.step("a pod is prepared, fails, is started again, and is not ready", j.create(b), func() string {
		p := j.only("probed")
		if p == nil || len(p.Status.ContainerStatuses) == 0 || len(p.Status.InitContainerStatuses) == 0 {
			return "no containers yet"
		}
		s, before := p.Status.ContainerStatuses[0], p.Status.InitContainerStatuses[0]
		switch failed := s.LastTerminationState.Terminated; {
		case before.State.Terminated == nil || before.State.Terminated.ExitCode != 0:
			return fmt.Sprintf("init container: %+v", before.State)
		case s.RestartCount != 1 || failed == nil || failed.ExitCode != 3:
			return fmt.Sprintf("%d restarts, after %+v", s.RestartCount, failed)
		case !ptr.Deref(s.Started, false) || s.Ready:
			return fmt.Sprintf("started %v, ready %v", ptr.Deref(s.Started, false), s.Ready)
		}
		return ""
	})
	p := j.only("probed")
	if p == nil {
		j.Fatal("the pod is gone")
	}
	j.step("it is ready when its probe says so", func() error {
		_, err := j.exec(p.Name, "main", "touch", "/data/ready")
		return err
	}, func() string {
		if p := j.only("probed"); p == nil || !p.Status.ContainerStatuses[0].Ready {
			return "not ready"
		}
		return ""
	})
	j.step("it ends, and the Job is complete", func() error {
		_, err := j.exec(p.Name, "main", "touch", "/data/end")
		return err
	}, j.complete("probed"))
	if said := j.log(p.Name, "prepare"); said != "prepared" {
		j.Errorf("the init container says %q", said)
	}
	if said := j.log(p.Name, "main"); said != "second run\nends" {
		j.Errorf("the container says %q", said)
	}
}

// evictions: work of a low priority makes way for work of a higher one, which starts after the last word of the former.
func (j *joined) evictions() {
	victim := job("victim", 1, fmt.Sprint(realGPUs), `trap 'echo told to go; sleep 2; echo goes; exit 0' TERM; echo works; while :; do sleep 0.1; done`)
	victim.Spec.Template.Spec.PriorityClassName = keys.PriorityClassTrain
	victim.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To(int64(60))
	victim.Spec.BackoffLimit = ptr.To(int32(10))
	j.step("a pod of low priority runs on all GPUs", j.create(victim), j.runs("victim", 1))
	low := j.only("victim")
	if low == nil {
		j.Fatal("the pod is gone")
	}
	stream, err := j.lab.Client().CoreV1().Pods("default").GetLogs(low.Name, &corev1.PodLogOptions{Follow: true}).Stream(j.Context())
	if err != nil {
		j.Fatal(err)
	}
	defer stream.Close()
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(stream) // until the container ends
		said <- strings.TrimSpace(string(text))
	}()
	urgent := job("urgent", 1, "1", `echo works; exec sleep 3600`)
	urgent.Spec.Template.Spec.PriorityClassName = keys.PriorityClassBuildPreemptible
	j.step("it is evicted for one of higher priority, which runs", j.create(urgent), j.runs("urgent", 1))
	if got, want := <-said, "works\ntold to go\ngoes"; got != want {
		j.Errorf("the victim's last words are %q, want %q", got, want)
	}
	high := j.only("urgent")
	if high == nil {
		j.Fatal("the pod is gone")
	}
	j.step("its Job makes another, which waits", nil, func() string {
		pods := j.pods("victim")
		if !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID != low.UID && p.Spec.NodeName == "" }) {
			return fmt.Sprintf("%d pods", len(pods))
		}
		return ""
	})
	j.step("both Jobs are gone", func() error {
		for _, b := range []*batchv1.Job{victim, urgent} {
			if err := j.client.Delete(j.Context(), b, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
				return err
			}
		}
		return nil
	}, func() string { return j.gone("victim", "urgent") })
}

// sharing: with the sharing of GPUs switched on, two pods share the device that a real reservation pod says it has.
func (j *joined) sharing(image string) {
	j.listen() // to those who end now
	halves := job("halves", 2, "", `echo "$NVIDIA_VISIBLE_DEVICES"; exec sleep 3600`)
	halves.Spec.Template.Annotations = map[string]string{keys.GPUFractionAnnotation: "0.5"}
	j.step("helm upgrade: sharing is on, and every role is available again", func() error {
		// As NVIDIA's operator makes it.
		if err := j.client.Create(j.Context(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "nvidia"}, Handler: "nvidia"}); err != nil {
			return err
		}
		u := action.NewUpgrade(j.helm)
		u.Namespace = home
		_, err := u.RunWithContext(j.Context(), "muster", load(j), map[string]any{"global": map[string]any{"gpuSharing": true}})
		return err
	}, func() string {
		if wrong := j.available(image, deployments)(); wrong != "" { // of before the upgrade, it may be
			return wrong
		}
		half := &corev1.Pod{ObjectMeta: *halves.Spec.Template.ObjectMeta.DeepCopy(), Spec: *halves.Spec.Template.Spec.DeepCopy()}
		half.Namespace, half.Name = "default", "asked-for"
		if err := j.client.Create(j.Context(), half, client.DryRunAll); err != nil {
			return err.Error()
		}
		return ""
	})
	j.step("two pods with half a GPU each run", j.create(halves), j.runs("halves", 2))
	var reservations corev1.PodList
	if err := j.client.List(j.Context(), &reservations, client.InNamespace(keys.ReservationNamespace)); err != nil {
		j.Fatal(err)
	}
	if len(reservations.Items) != 1 || reservations.Items[0].Spec.NodeName != realNode {
		j.print(keys.ReservationNamespace)
		j.Fatalf("%d reservation pods, want one on %s", len(reservations.Items), realNode)
	}
	device := reservations.Items[0].Annotations[keys.ReservedGPUAnnotation]
	for _, p := range j.pods("halves") {
		if said := j.log(p.Name, "main"); said != device || !strings.HasPrefix(said, "GPU-") {
			j.Errorf("%s says that it has %q; the reservation pod %q", p.Name, said, device)
		}
		if class := ptr.Deref(p.Spec.RuntimeClassName, ""); class != "nvidia" {
			j.Errorf("%s has the RuntimeClass %q", p.Name, class)
		}
	}
	j.Logf("the reservation pod, and both pods: %s", device)
	j.listen()
	j.step("the Job is deleted, and the reservation pod goes", func() error {
		return j.client.Delete(j.Context(), halves, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}, func() string {
		if err := j.client.List(j.Context(), &reservations, client.InNamespace(keys.ReservationNamespace)); err != nil {
			return err.Error()
		}
		if len(reservations.Items) > 0 {
			return "it is still there"
		}
		return j.gone("halves")
	})
}
