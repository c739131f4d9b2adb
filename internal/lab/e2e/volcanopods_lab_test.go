//go:build lab

package e2e

import (
	"fmt"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/install"
)

// resourceGroups is the file of Volcano's specs about pods that are changed: a namespace, and two annotations.
const resourceGroups = `resourceGroups:
- resourceGroup: management
  object: {key: namespace, value: [management]}
  schedulerName: default-scheduler
  tolerations: [{key: taint, operator: Exists, effect: NoSchedule}]
  labels: {volcano.sh/nodetype: management}
- resourceGroup: cpu
  object: {key: annotation, value: ["volcano.sh/resource-group: cpu"]}
  schedulerName: volcano
  labels: {volcano.sh/nodetype: cpu}
- resourceGroup: gpu
  schedulerName: volcano
  labels: {volcano.sh/nodetype: gpu}
  affinity: '{"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}]}}'
`

// TestVolcanoPods: on a real API server pods of resource groups get what a ConfigMap of Volcano's says, others stay as they are, and who asks for it has the gate of queues; a bad ConfigMap is told and
// changes nothing; a change is followed; and all of that goes on while the role is dead.
func TestVolcanoPods(t *testing.T) {
	b := newFacesFixture(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	const home, other = "groups", "team"
	for _, ns := range []string{home, other, "management"} {
		b.namespace(t, ns)
	}
	conf := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: vckeys.AdmissionConfig}, Data: map[string]string{vckeys.AdmissionConfigKey: resourceGroups}}
	b.create(t, conf)
	admission := newProcess(t, install.Admission, b.lab.Kubeconfig(), "--volcano-scheduler-name="+vckeys.SchedulerName, "--volcano-queue-gates",
		"--volcano-admission-configmap="+home+"/"+vckeys.AdmissionConfig+":"+vckeys.AdmissionConfigKey,
		fmt.Sprintf("--webhook-addr=%d", port), fmt.Sprintf("--webhook-url=https://127.0.0.1:%d", port))
	admission.start()
	admission.awaitReady(t)

	pod := func(namespace string, notes map[string]string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", Annotations: notes},
			Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
	}
	of := func(group string) map[string]string { return map[string]string{vckeys.ResourceGroup: group} }
	// made is what the API server makes of a pod, without what it always fills in.
	made := func(p *corev1.Pod) (*corev1.PodSpec, string) {
		p = p.DeepCopy()
		if err := b.client.Create(t.Context(), p, client.DryRunAll); err != nil {
			return nil, err.Error()
		}
		s := &corev1.PodSpec{SchedulerName: p.Spec.SchedulerName, NodeSelector: p.Spec.NodeSelector, Affinity: p.Spec.Affinity, SchedulingGates: p.Spec.SchedulingGates}
		for _, toleration := range p.Spec.Tolerations {
			if toleration.Key == "taint" || toleration.Key == "own" {
				s.Tolerations = append(s.Tolerations, toleration)
			}
		}
		return s, ""
	}
	node := func(v string) map[string]string { return map[string]string{"volcano.sh/nodetype": v} }
	wish := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
		{Weight: 7, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "gpu", Operator: corev1.NodeSelectorOpExists}}}},
	}}}
	taint := corev1.Toleration{Key: "taint", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	own := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
	gate := []corev1.PodSchedulingGate{{Name: vckeys.QueueAllocationGate}}
	type row struct {
		name string
		pod  *corev1.Pod
		want corev1.PodSpec
	}
	rows := []row{
		{"of the management namespace", pod("management", nil), corev1.PodSpec{SchedulerName: "default-scheduler", NodeSelector: node("management"), Tolerations: []corev1.Toleration{taint}}},
		{"of cpu", pod(other, of("cpu")), corev1.PodSpec{SchedulerName: vckeys.SchedulerName, NodeSelector: node("cpu")}},
		{"of gpu", pod(other, of("gpu")), corev1.PodSpec{SchedulerName: vckeys.SchedulerName, NodeSelector: node("gpu"), Affinity: wish}},
		{"of no group", pod(other, of("tpu")), corev1.PodSpec{SchedulerName: "nobody"}},
	}
	ownWish := pod(other, of("gpu"))
	ownWish.Spec.Affinity = own
	rows = append(rows, row{"with an affinity of its own", ownWish, corev1.PodSpec{SchedulerName: vckeys.SchedulerName, NodeSelector: node("gpu"), Affinity: own}})
	more := pod("management", of("cpu"))
	more.Spec.NodeSelector, more.Spec.Tolerations = map[string]string{"mine": "1"}, []corev1.Toleration{{Key: "own", Operator: corev1.TolerationOpExists}}
	rows = append(rows, row{"with labels and tolerations of its own", more, corev1.PodSpec{
		SchedulerName: "default-scheduler", NodeSelector: map[string]string{"mine": "1", "volcano.sh/nodetype": "management"}, Tolerations: []corev1.Toleration{{Key: "own", Operator: corev1.TolerationOpExists}, taint},
	}})
	asks := pod(other, map[string]string{vckeys.QueueAllocationGate: "true"})
	asks.Spec.SchedulerName = vckeys.SchedulerName
	rows = append(rows, row{"that asks for the gate", asks, corev1.PodSpec{SchedulerName: vckeys.SchedulerName, SchedulingGates: gate}})
	rows = append(rows, row{"that asks for the gate of nobody", pod(other, map[string]string{vckeys.QueueAllocationGate: "true"}), corev1.PodSpec{SchedulerName: "nobody"}})
	both := pod(other, map[string]string{vckeys.QueueAllocationGate: "true", vckeys.ResourceGroup: "cpu"})
	rows = append(rows, row{"that becomes Volcano's and asks for the gate", both, corev1.PodSpec{SchedulerName: vckeys.SchedulerName, NodeSelector: node("cpu"), SchedulingGates: gate}})
	all := func() string {
		for _, r := range rows {
			got, wrong := made(r.pod)
			if wrong != "" {
				return r.name + ": " + wrong
			}
			if d := cmp.Diff(&r.want, got); d != "" {
				return r.name + ": -want +got:\n" + d
			}
		}
		return ""
	}
	b.must(t, guard, all) // what an API server has been given is in force some time later, of which no object tells

	say := func(text string) {
		t.Helper()
		conf.Data[vckeys.AdmissionConfigKey] = text
		if err := b.client.Update(t.Context(), conf); err != nil {
			t.Fatal(err)
		}
	}
	say(resourceGroups + "- labels: {a: b}\n")
	b.must(t, guard, func() string {
		var events corev1.EventList
		if err := b.client.List(t.Context(), &events, client.InNamespace(home)); err != nil {
			return err.Error()
		}
		for i := range events.Items {
			if e := &events.Items[i]; e.InvolvedObject.Name == conf.Name && e.Reason == "ResourceGroupsRefused" {
				return ""
			}
		}
		return fmt.Sprintf("%d events, none of which tells of the ConfigMap", len(events.Items))
	})
	if said := all(); said != "" {
		t.Errorf("with a bad ConfigMap: %s", said)
	}
	say("resourceGroups:\n- resourceGroup: gpu\n  labels: {volcano.sh/nodetype: other}\n")
	for i := range rows {
		switch w := &rows[i].want; {
		case rows[i].pod.Annotations[vckeys.ResourceGroup] == "gpu":
			w.SchedulerName, w.NodeSelector, w.Affinity = "nobody", node("other"), rows[i].pod.Spec.Affinity
		default:
			w.SchedulerName, w.NodeSelector, w.Tolerations = rows[i].pod.Spec.SchedulerName, rows[i].pod.Spec.NodeSelector, rows[i].pod.Spec.Tolerations
			if w.SchedulerName != vckeys.SchedulerName {
				w.SchedulingGates = nil
			}
		}
	}
	b.must(t, guard, all)
	admission.kill()
	if said := all(); said != "" {
		t.Errorf("without the role: %s", said)
	}
}
