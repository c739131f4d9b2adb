//go:build lab

package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vcflow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vctopology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
)

// TestVolcanoMakers: on a real API server, under the rights that an installation gives, the controllers make what is asked of them, each once though they are killed between: HyperNodes of
// node labels, the first Job of a flow, a CronJob's Job; and the API server takes what they say of it.
func TestVolcanoMakers(t *testing.T) {
	b := newVolcanoFixture(t)
	const ns = "makers"
	b.namespace(t, ns)
	for i := range 4 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n-%d", i)}}
		if err := b.client.Patch(t.Context(), n, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata": {"labels": {"example.com/rack": "r%d"}}}`, i/2))); err != nil {
			t.Fatal(err)
		}
	}
	spec := bareJob(ns, "", "").Spec
	spec.MinAvailable, spec.Tasks[0].Name = 2, "t" // nobody schedules: they wait
	b.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: vckeys.Namespace, Name: vckeys.ControllerConfig}, Data: map[string]string{vckeys.ControllerConfigKey: `
networkTopologyDiscovery:
- {source: label, enabled: true, config: {networkTopologyTypes: {lab: [{nodeLabel: example.com/rack}, {nodeLabel: kubernetes.io/hostname}]}}}
`}})
	for _, name := range []string{"a", "b"} {
		b.create(t, &vcflow.JobTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: spec})
	}
	b.create(t, &vcflow.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "f"}, Spec: vcflow.JobFlowSpec{Flows: []vcflow.Flow{
		{Name: "a"}, {Name: "b", DependsOn: &vcflow.DependsOn{Targets: []string{"a"}}},
	}}})
	b.create(t, &vcbatch.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c"}, Spec: vcbatch.CronJobSpec{
		Schedule: "* * * * *", ConcurrencyPolicy: vcbatch.ForbidConcurrent, JobTemplate: vcbatch.JobTemplateSpec{Spec: spec},
	}})
	read := func(o client.Object) string {
		if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err.Error()
		}
		return ""
	}
	made := func() string {
		var all vctopology.HyperNodeList
		if err := b.client.List(t.Context(), &all, client.MatchingLabels{vckeys.TopologySource: "label"}); err != nil {
			return err.Error()
		}
		if len(all.Items) != 2 || all.Items[0].Status.NodeCount != 2 || all.Items[1].Status.NodeCount != 2 {
			return fmt.Sprintf("HyperNodes are %+v", all.Items)
		}
		f, template := &vcflow.JobFlow{}, &vcflow.JobTemplate{}
		f.Namespace, f.Name, template.Namespace, template.Name = ns, "f", ns, "a"
		if text := read(f) + read(template); text != "" || f.Status.State.Phase == "" || len(f.Status.JobStatusList) != 1 || len(template.Status.JobDependsOnList) != 1 {
			return fmt.Sprintf("%s: the flow is %+v, the template %+v", text, f.Status, template.Status)
		}
		c := &vcbatch.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c"}}
		if text := read(c); text != "" || len(c.Status.Active) != 1 || c.Status.LastScheduleTime == nil {
			return fmt.Sprintf("%s: the CronJob is %+v", text, c.Status)
		}
		return ""
	}
	b.again(t)
	b.must(t, guard, made)
	b.again(t)
	b.must(t, guard, made)
	var jobs vcbatch.JobList
	if err := b.client.List(t.Context(), &jobs, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if len(jobs.Items) != 2 {
		t.Errorf("%d Jobs are made, of which one is the flow's and one the CronJob's", len(jobs.Items))
	}
}
