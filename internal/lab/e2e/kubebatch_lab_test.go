//go:build lab

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kaikeys "github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/kubebatch/crds"
	kbkeys "github.com/muster-scheduler/muster/api/kubebatch/keys"
	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/lab"
)

// kubeBatchLimit is how long anything here may take at most.
const kubeBatchLimit = 3 * time.Minute

// TestKubeBatch: under an installation's rights, on an API server that takes the definitions, a gang of each of kube-batch's API groups starts whole and says so in the status of its PodGroup; one that has no room starts none and says why
// there, and starts once there is room; the second API group comes while the scheduler runs; a Deployment's pods are one gang without a PodGroup, by what their template says, and nothing is made for them. Who would change over
// is told what is not served, and who holds kube-batch's lock.
func TestKubeBatch(t *testing.T) {
	var at, later [][]byte
	for _, f := range crds.All() {
		if strings.HasPrefix(f.Name, v1alpha1.GroupVersion.Group) {
			at = append(at, f.YAML)
		} else {
			later = append(later, f.YAML)
		}
	}
	b := &volcanoFixture{fixture: newFixture(t, 1, lab.Options{CRDs: at})}
	b.watch(t, &v1alpha1.PodGroup{})
	kubeconfig := b.as(t, install.Scheduler)
	added := metav1.ObjectMeta{Name: install.Name(install.KubeBatchScheduler)}
	b.create(t, &rbacv1.ClusterRole{ObjectMeta: added, Rules: install.Rules(install.KubeBatchScheduler).Cluster})
	b.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: added, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: added.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: kaikeys.Namespace, Name: install.Name(install.Scheduler)}},
	})
	for _, p := range []*process{
		newProcess(t, install.Scheduler, kubeconfig, "--plugin-server-port=0", "--kube-batch-scheduler-name="+kbkeys.SchedulerName),
		newProcess(t, install.Binder, b.lab.Kubeconfig()),
	} {
		p.start()
		p.awaitReady(t)
	}
	const ns = "batch"
	b.namespace(t, ns)
	b.create(t, &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: kbkeys.DefaultQueue}, Spec: v1alpha1.QueueSpec{Weight: 1}})
	template := func(gpus string, notes map[string]string) corev1.PodTemplateSpec {
		p := gang(ns, "any", 1, "").Spec.Template
		p.Spec.SchedulerName, p.Labels, p.Annotations = kbkeys.SchedulerName, map[string]string{}, notes
		p.Spec.Containers[0].Resources.Limits[lab.GPUResource] = resource.MustParse(gpus)
		return p
	}
	pods := func(name, gpus string) {
		for i := range 4 {
			p := template(gpus, map[string]string{kbkeys.GroupName: name})
			b.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name + "-" + strconv.Itoa(i), Labels: map[string]string{"group": name}, Annotations: p.Annotations}, Spec: p.Spec})
		}
	}
	says := func(name string, phase v1alpha1.PodGroupPhase, running int32, why string) func() string {
		return func() string {
			var is *v1alpha1.PodGroupStatus
			for _, g := range list(b.fixture, &v1alpha1.PodGroupList{}, client.InNamespace(ns)).Items {
				if g.Name == name {
					is = &g.Status
				}
			}
			if name == "second" {
				for _, g := range list(b.fixture, &v1alpha2.PodGroupList{}, client.InNamespace(ns)).Items {
					is = &g.Status
				}
			}
			reason := ""
			if is != nil {
				for _, c := range is.Conditions {
					if c.Type == v1alpha1.PodGroupUnschedulable && c.Status == corev1.ConditionTrue {
						reason = c.Reason + ": " + c.Message
					}
				}
			}
			if is == nil || is.Phase != phase || is.Running != running || !strings.Contains(reason, why) || why == "" && reason != "" {
				return fmt.Sprintf("PodGroup %s says %+v, %q; want %s, %d running, %q", name, is, reason, phase, running, why)
			}
			return ""
		}
	}

	b.create(t, &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "first"}, Spec: v1alpha1.PodGroupSpec{MinMember: 4}})
	pods("first", "1")
	b.must(t, kubeBatchLimit, b.allRunning(ns, 4))
	b.must(t, kubeBatchLimit, says("first", v1alpha1.PodGroupRunning, 4, ""))

	changeOver := func(stops bool, want string) {
		t.Helper()
		text, err := exec.CommandContext(t.Context(), os.Getenv(binaryEnv), "migrate", "check", "--from", "kube-batch", "--kubeconfig", b.lab.Kubeconfig()).CombinedOutput()
		if (err != nil) != stops || !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
			t.Errorf("migrate check: %v, want %q:\n%s", err, want, text)
		}
	}
	changeOver(false, "the API server does not serve scheduling.sigs.dev")
	lock := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: kbkeys.SchedulerName, Annotations: map[string]string{
		"control-plane.alpha.kubernetes.io/leader": `{"holderIdentity": "old", "leaseDurationSeconds": 3600, "renewTime": "` + time.Now().UTC().Format(time.RFC3339) + `"}`,
	}}}
	b.create(t, lock)
	changeOver(true, `ConfigMap kube-system/kube-batch: "old" leads as kube-batch`)

	if err := lab.InstallCRDs(t.Context(), b.lab.Config(), later); err != nil { // which the scheduler looks for each half minute
		t.Fatal(err)
	}
	b.watch(t, &v1alpha2.PodGroup{})
	pods("second", "2") // before their PodGroup; two of them would fit
	b.create(t, &v1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "second"}, Spec: v1alpha1.PodGroupSpec{MinMember: 4, Queue: kbkeys.DefaultQueue}})
	b.must(t, kubeBatchLimit, says("second", v1alpha1.PodGroupPending, 0, "; GangNoRoom: "))
	if n := b.boundNow(t, ns); n != 4 {
		t.Fatalf("%d pods are bound; of the second group none may be", n)
	}
	if err := b.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(ns), client.MatchingLabels{"group": "first"}); err != nil {
		t.Fatal(err)
	}
	b.must(t, kubeBatchLimit, says("second", v1alpha1.PodGroupRunning, 4, ""))
	b.must(t, kubeBatchLimit, says("first", v1alpha1.PodGroupPending, 0, ""))
	if err := b.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	b.must(t, kubeBatchLimit, b.allRunning(ns, 0))

	shadow := template("2", map[string]string{kbkeys.GroupMinMember: "3"})
	shadow.Labels = map[string]string{"app": "web"}
	shadow.Spec.RestartPolicy = corev1.RestartPolicyAlways
	web := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: shadow.Labels}, Template: shadow},
	}
	b.create(t, web)
	b.must(t, kubeBatchLimit, b.allRunning(ns, 3))
	if n := len(list(b.fixture, &v1alpha1.PodGroupList{}).Items) + len(list(b.fixture, &v1alpha2.PodGroupList{}).Items); n != 2 {
		t.Errorf("there are %d PodGroups, of which two were made", n)
	}
}
