//go:build lab && node

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

const (
	// machineImage is a disk that keeps the guest contract.
	machineImage = "registry.example/vm/tiny:1"
	vmNamespace  = "muster-vm"
	vmLabel      = "muster.dev/vm"
)

// libvirtService is a node's libvirtd. It sees what is mounted on the node, and has no /dev/kvm: one that is there and does not work would have libvirt ask QEMU what it can do again and
// again. Where it keeps its settings and what it knows of QEMU is its own.
const libvirtService = `mkdir -p /run/libvirt /var/lib/libvirt /var/log/libvirt
exec unshare -m --propagation slave sh -ec '
for d in /etc/libvirt /var/cache/libvirt; do mkdir -p $d; mount -t tmpfs -o mode=755 tmpfs $d; done
printf "stdio_handler = \"file\"\nnamespaces = []\n" >/etc/libvirt/qemu.conf
printf "unix_sock_dir = \"/run/libvirt\"\nauth_unix_rw = \"none\"\nauth_unix_ro = \"none\"\nhost_uuid = \"7a8c7f5a-93cb-4f26-8d3f-0e6d6cf1a0d7\"\n" >/etc/libvirt/libvirtd.conf
dev=/etc/libvirt/dev
mkdir $dev
mount -t tmpfs -o mode=755 tmpfs $dev
mkdir $dev/net
for n in null zero full random urandom tty ptmx net/tun; do touch $dev/$n; mount --bind /dev/$n $dev/$n; done
for n in pts shm; do mkdir $dev/$n; mount --rbind /dev/$n $dev/$n; done
ln -s /proc/self/fd $dev/fd
mount --rbind $dev /dev
exec libvirtd -f /etc/libvirt/libvirtd.conf'`

// TestVMNode is an installation on a real node whose kubelet has muster-vm's proxy for its runtime, before containerd and the chart's own pod of muster-vm: a Job whose pod is a machine, bound
// by Muster, with its log, a command inside, a restart of muster-vm under it and its guest's code; and a gang of two.
func TestVMNode(t *testing.T) {
	program, disk := os.Getenv("MUSTER_VM_BINARY"), os.Getenv("MUSTER_VM_IMAGE")
	for _, path := range []string{program, disk} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("NOT CHECKED: MUSTER_VM_BINARY and MUSTER_VM_IMAGE have to name what make vm and make vm-image make: %v", err)
		}
	}
	for _, p := range []string{"libvirtd", "qemu-system-x86_64", "qemu-img", "unshare", "/usr/lib/cni/host-local", "/usr/lib/cni/portmap"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("NOT CHECKED: %v", err)
		}
	}
	const primary = "/run/containerd/containerd.sock"
	dir := filepath.Join(t.TempDir(), "node")
	j := newJoined(t, lab.RealNodeOptions{
		Dir: dir, CRI: "/run/muster-vm/cri.sock",
		Services: map[string]string{
			"libvirtd": libvirtService,
			"proxy":    "exec " + program + " up --parts proxy --cri /run/muster-vm/cri.sock --primary " + primary,
		},
	}, "muster-vm")
	j.limit = 5 * time.Minute // machines without hardware's help, on a machine that has other work
	mirror := j.registry(disk)
	j.step("the real node is ready, through the proxy", nil, func() string {
		var n corev1.Node
		if err := j.get(&n, "", realNode); err != nil {
			return err.Error()
		}
		if !lab.NodeReady(&n) {
			return fmt.Sprintf("conditions %+v", n.Status.Conditions)
		}
		return ""
	})
	j.step("helm install: every role is available, with machines switched on", func() error {
		i := action.NewInstall(j.helm)
		i.ReleaseName, i.Namespace, i.CreateNamespace = "muster", home, true
		_, err := i.RunWithContext(j.Context(), load(t), map[string]any{"vm": map[string]any{
			"enabled": true, "domainType": "qemu", "primary": primary, "systemdCgroups": false,
			"extraArgs": []any{"--cni-bin-dir=/usr/lib/cni", "--cni-conf-dir=" + filepath.Join(dir, "etc", "cni"), "--mirror=registry.example=" + mirror},
		}})
		return err
	}, j.available("registry/local/muster/muster:"+load(t).Metadata.AppVersion, deployments))
	j.step("the node gets the label: its pod of muster-vm is ready", func() error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: realNode}}
		return j.client.Patch(j.Context(), n, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, vmLabel)))
	}, j.vmReady(""))
	if t.Failed() {
		t.FailNow()
	}
	state := filepath.Join(dir, "lib", "muster-vm") // /var/lib/muster-vm on the node
	t.Run("job", func(t *testing.T) { j.part(t).machine(state) })
	t.Run("gang", func(t *testing.T) { j.part(t).machines() })
	t.Run("suspend", func(t *testing.T) { j.part(t).suspends(filepath.Join(dir, "claim")) })
	// The kubelet removes what is left of pods that are gone about once a minute.
	j.step("nothing of the machines is left", nil, func() string {
		for _, kept := range []string{"state/containers", "state/volumes", "run/s", "run/f"} {
			entries, err := os.ReadDir(filepath.Join(state, kept))
			if err != nil {
				return err.Error()
			}
			for _, e := range entries {
				if !strings.HasPrefix(e.Name(), ".") {
					return fmt.Sprintf("left in %s: %s", kept, e.Name())
				}
			}
		}
		return ""
	})
}

// vmReady says what is missing until the node has a pod of muster-vm that is ready, and is another than that one.
func (j *joined) vmReady(other types.UID) func() string {
	return func() string {
		var set appsv1.DaemonSet
		if err := j.get(&set, vmNamespace, "muster-vm"); err != nil {
			return err.Error()
		}
		p := j.vmPod()
		if p == nil || p.UID == other || p.DeletionTimestamp != nil || set.Status.NumberAvailable != 1 {
			return fmt.Sprintf("%+v", set.Status)
		}
		return ""
	}
}

// vmPod is the pod of muster-vm, nil if there is none or more than one.
func (j *joined) vmPod() *corev1.Pod {
	var pods corev1.PodList
	if err := j.client.List(j.Context(), &pods, client.InNamespace(vmNamespace)); err != nil {
		j.Fatal(err)
	}
	if len(pods.Items) != 1 {
		return nil
	}
	return &pods.Items[0]
}

// vm is a Job whose pods are machines.
func vm(name string, size int32, script string) *batchv1.Job {
	b := job(name, size, "", script)
	spec := &b.Spec.Template.Spec
	spec.RuntimeClassName, spec.TerminationGracePeriodSeconds = ptr.To("muster-vm"), ptr.To(int64(30))
	spec.Containers[0].Image = machineImage
	spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("192Mi")}
	b.Spec.BackoffLimit = ptr.To(int32(0))
	return b
}

// machine: a Job of one machine, from its bind to its guest's code. State is the folder of muster-vm.
func (j *joined) machine(state string) {
	b := vm("machine", 1, `echo "$(hostname) is up"; until [ -f /run/end ]; do sleep 0.2; done; echo ends; exit 42`)
	j.step("a Job's machine runs", j.create(b), j.runs("machine", 1))
	p := j.only("machine")
	if p == nil {
		j.Fatal("the pod is gone")
	}
	if p.Spec.NodeName != realNode || p.Spec.SchedulerName != b.Spec.Template.Spec.SchedulerName || p.Spec.Overhead.Memory().IsZero() {
		j.Errorf("on %q, by %s, with the overhead %v", p.Spec.NodeName, p.Spec.SchedulerName, p.Spec.Overhead)
	}
	// The kubelet puts the name of its one runtime, which is the primary's, before every id: whose a container is, the id says alone.
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	if _, err := os.Stat(filepath.Join(state, "state", "containers", id)); id == "" || err != nil {
		j.Errorf("its container %q is none of muster-vm's: %v", id, err)
	}
	j.step("kubectl logs: the guest has its pod's name", nil, func() string {
		if said := j.log(p.Name, "main"); !strings.Contains(said, p.Name+" is up") {
			return said
		}
		return ""
	})
	boot := func() string {
		j.Helper()
		id, err := j.exec(p.Name, "main", "cat", "/proc/sys/kernel/random/boot_id")
		if err != nil || len(id) != 36 {
			j.Errorf("its boot is %q: %v", id, err)
		}
		return id
	}
	var before string
	j.step("kubectl exec: a command in the guest", func() error {
		before = boot()
		got, err := j.feed(strings.NewReader("one\ntwo\n"), p.Name, "main", "wc", "-l")
		if err == nil && got != "2" {
			err = fmt.Errorf("a command with two lines of input counts %q", got)
		}
		return err
	}, func() string { return "" })
	j.Logf("the machine's memory on the node: %s", j.memory(p))
	old := j.vmPod()
	if old == nil {
		j.Fatal("there is no pod of muster-vm")
	}
	j.step("the pod of muster-vm is deleted, and another is ready", func() error { return j.client.Delete(j.Context(), old) }, j.vmReady(old.UID))
	j.step("the machine has lived on, and is found again", nil, func() string {
		if q := j.only("machine"); q == nil || q.UID != p.UID || q.Status.Phase != corev1.PodRunning || q.Status.ContainerStatuses[0].RestartCount != 0 {
			return fmt.Sprintf("%+v", q)
		}
		id, err := j.exec(p.Name, "main", "cat", "/proc/sys/kernel/random/boot_id")
		if err != nil {
			return err.Error()
		}
		if id != before {
			j.Fatalf("it was boot %s, and is %s", before, id)
		}
		return ""
	})
	j.step("its command ends, and the pod has the guest's code", func() error {
		j.end(p.Name)
		return nil
	}, func() string {
		q := j.only("machine")
		if q == nil || len(q.Status.ContainerStatuses) == 0 {
			return "no pod"
		}
		if e := q.Status.ContainerStatuses[0].State.Terminated; e == nil || e.ExitCode != 42 || q.Status.Phase != corev1.PodFailed {
			return fmt.Sprintf("%s: %+v", q.Status.Phase, q.Status.ContainerStatuses[0].State)
		}
		return ""
	})
	if said := j.log(p.Name, "main"); strings.Count(said, "is up") != 1 || strings.Count(said, "ends") != 1 {
		j.Errorf("its log, with each line once: %s", said)
	}
	j.step("it is gone", func() error {
		return j.client.Delete(j.Context(), b, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}, func() string { return j.gone("machine") })
}

// machines: a gang of two starts whole, beside a container, and its Job completes.
func (j *joined) machines() {
	container := job("container", 1, "", "exec sleep 3600")
	pair := vm("pair", 2, `echo "$(hostname) is up"; until [ -f /run/end ]; do sleep 0.2; done`)
	j.step("a gang of two machines runs, beside a container", func() error {
		if err := j.client.Create(j.Context(), container); err != nil {
			return err
		}
		return j.client.Create(j.Context(), pair)
	}, func() string {
		if wrong := j.runs("pair", 2)(); wrong != "" {
			return wrong
		}
		for _, p := range j.pods("pair") {
			if said := j.log(p.Name, "main"); !strings.Contains(said, p.Name+" is up") {
				return said
			}
		}
		// Simulated nodes take containers, too.
		return j.runs("container", 1)()
	})
	j.step("both commands end, and the Job is complete", func() error {
		for _, p := range j.pods("pair") {
			j.end(p.Name)
		}
		return nil
	}, j.complete("pair"))
	j.step("they are gone", func() error {
		for _, b := range []*batchv1.Job{container, pair} {
			if err := j.client.Delete(j.Context(), b, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
				return err
			}
		}
		return nil
	}, func() string { return j.gone("container", "pair") })
}

// suspends: a Job's machine is saved to its claim when Muster preempts it for a Job of higher priority, and the next pod of its Job goes on in the same boot once there is room. Path is the claim's.
func (j *joined) suspends(path string) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		j.Fatal(err)
	}
	b := vm("sleeper", 1, `i=0; until [ -f /run/end ]; do i=$((i+1)); echo "count $i of $(cat /proc/sys/kernel/random/boot_id)"; sleep 1; done; exit 7`)
	b.Spec.CompletionMode, b.Spec.BackoffLimit = ptr.To(batchv1.IndexedCompletion), ptr.To(int32(3))
	t := &b.Spec.Template
	t.Annotations = map[string]string{"vm.muster.dev/on-stop": "suspend", "vm.muster.dev/suspend-to": "/claim"}
	t.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("128Mi")
	t.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1200m")}
	t.Spec.AutomountServiceAccountToken, t.Spec.PriorityClassName = ptr.To(false), keys.PriorityClassTrain
	t.Spec.Containers[0].VolumeMounts = append(t.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "claim", MountPath: "/claim"})
	t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: "claim", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "sleeper"}}})
	counts := func(pod string) (numbers []string, boot string) {
		for line := range strings.Lines(j.log(pod, "main")) {
			if f := strings.Fields(line); len(f) == 4 && f[0] == "count" {
				numbers, boot = append(numbers, f[1]), f[3]
			}
		}
		return numbers, boot
	}
	j.step("a claim is bound", func() error { return j.claim(b.Namespace, "sleeper", path) }, func() string { return j.bound(b.Namespace, "sleeper") })
	j.step("a Job's machine with the claim counts", j.create(b), func() string {
		if wrong := j.runs("sleeper", 1)(); wrong != "" {
			return wrong
		}
		if numbers, _ := counts(j.only("sleeper").Name); len(numbers) < 3 {
			return fmt.Sprint(numbers)
		}
		return ""
	})
	first := j.only("sleeper")
	if first == nil {
		j.Fatal("the pod is gone")
	}
	_, boot := counts(first.Name)
	urgent := job("urgent", 1, "", "sleep 3")
	u := &urgent.Spec.Template.Spec
	u.PriorityClassName, u.NodeSelector = keys.PriorityClassBuildPreemptible, map[string]string{vmLabel: "true"}
	u.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1200m")} // the node has two CPUs
	began := time.Now()
	j.step("a Job of higher priority takes its place, and ends", j.create(urgent), j.complete("urgent"))
	j.step("the next pod of its Job counts on, in the same boot", nil, func() string {
		q := j.only("sleeper")
		if q == nil || q.UID == first.UID || q.Status.Phase != corev1.PodRunning {
			return "no other pod"
		}
		numbers, again := counts(q.Name)
		if len(numbers) < 2 {
			return fmt.Sprint(numbers)
		}
		if again != boot || numbers[0] == "1" {
			j.Fatalf("it was boot %s, and counts %v in boot %s", boot, numbers, again)
		}
		return ""
	})
	j.Logf("from the other Job's creation until it counts on: %.1f s", time.Since(began).Seconds())
	j.step("its command ends, and the pod has the guest's code", func() error {
		j.end(j.only("sleeper").Name)
		return nil
	}, func() string {
		for _, q := range j.pods("sleeper") {
			if len(q.Status.ContainerStatuses) > 0 {
				if e := q.Status.ContainerStatuses[0].State.Terminated; e != nil && e.ExitCode == 7 {
					return ""
				}
			}
		}
		return "no pod ended so"
	})
	j.step("they are gone", func() error {
		for _, one := range []*batchv1.Job{b, urgent} {
			if err := j.client.Delete(j.Context(), one, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
				return err
			}
		}
		return nil
	}, func() string { return j.gone("sleeper", "urgent") })
}

// end tells a guest's script to end. The machine can be off before its agent has said that it heard: what comes of it tells.
func (j *joined) end(pod string) {
	if _, err := j.exec(pod, "main", "touch", "/run/end"); err != nil {
		j.Logf("the answer of a guest that was told to end: %v", err)
	}
}

// claim makes a claim on a folder of the node.
func (j *joined) claim(namespace, name, path string) error {
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}, StorageClassName: ptr.To(""), VolumeName: name},
	}
	if err := j.client.Create(j.Context(), c); err != nil {
		return err
	}
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: modes, Capacity: size, PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}},
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name, UID: c.UID},
		},
	}
	if err := j.client.Create(j.Context(), v); err != nil {
		return err
	}
	return nil
}

// bound is "" once a claim is bound to its volume, which it does where nobody else has.
func (j *joined) bound(namespace, name string) string {
	var v corev1.PersistentVolume
	var c corev1.PersistentVolumeClaim
	if err := errors.Join(j.get(&v, "", name), j.get(&c, namespace, name)); err != nil {
		return err.Error()
	}
	if v.Status.Phase != corev1.VolumeBound {
		v.Status.Phase = corev1.VolumeBound
		if err := j.client.Status().Update(j.Context(), &v); err != nil {
			return err.Error()
		}
	}
	if c.Status.Phase != corev1.ClaimBound {
		c.Status.Phase, c.Status.AccessModes, c.Status.Capacity = corev1.ClaimBound, v.Spec.AccessModes, v.Spec.Capacity
		if err := j.client.Status().Update(j.Context(), &c); err != nil {
			return err.Error()
		}
	}
	return ""
}

// memory is what a machine's control group has, and its pod's may have.
func (j *joined) memory(p *corev1.Pod) string {
	j.Helper()
	for _, names := range [][2]string{{"memory/", "memory.usage_in_bytes"}, {"", "memory.current"}} {
		found, _ := filepath.Glob(fmt.Sprintf("/sys/fs/cgroup/%smuster-lab-%s/kubepods/*/pod%s/muster-vm-*/%s", names[0], realNode, p.UID, names[1]))
		for _, path := range found {
			text, err := os.ReadFile(path)
			if err != nil {
				j.Error(err)
			}
			return strings.TrimSpace(string(text))
		}
	}
	j.Error("its pod has no control group with a machine's in it")
	return ""
}

// registry serves the disk as an image, where the node finds it.
func (j *joined) registry(disk string) (url string) {
	j.Helper()
	content, err := os.ReadFile(disk)
	if err != nil {
		j.Fatal(err)
	}
	blobs := map[string][]byte{}
	put := func(kind string, body []byte) map[string]any {
		sum := sha256.Sum256(body)
		digest := "sha256:" + hex.EncodeToString(sum[:])
		blobs[digest] = body
		return map[string]any{"mediaType": kind, "digest": digest, "size": len(body)}
	}
	const kind = "application/vnd.oci.image.manifest.v1+json"
	text, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": kind, "config": put("application/vnd.oci.empty.v1+json", []byte("{}")), "layers": []any{put("application/x-qcow2", content)},
	})
	if err != nil {
		j.Fatal(err)
	}
	manifest := put(kind, text)["digest"].(string)
	l, err := net.Listen("tcp", net.JoinHostPort(j.gateway, "0"))
	if err != nil {
		j.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		switch {
		case r.URL.Path == "/v2/":
			return
		case strings.Contains(r.URL.Path, "/manifests/"):
			w.Header().Set("Content-Type", kind)
			if at == "1" {
				at = manifest
			}
		}
		body, ok := blobs[at]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Docker-Content-Digest", at)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})}
	go func() { _ = s.Serve(l) }()
	j.Cleanup(func() { _ = s.Close() })
	return "http://" + l.Addr().String()
}
