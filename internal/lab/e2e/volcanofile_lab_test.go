//go:build lab

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kaikeys "github.com/muster-scheduler/muster/api/kai/keys"
	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/install"
)

// TestVolcanoSchedulerFile: the scheduler follows the ConfigMap of Volcano's scheduler file, of which it may read this one alone. A gang that no action places waits, through a file that is refused
// too, and starts once a file comes that has the action; KAI's gangs go on meanwhile. A file that goes away rules on.
func TestVolcanoSchedulerFile(t *testing.T) {
	const name, key, ns = "integration-scheduler-configmap", "volcano-scheduler-ci.conf", "filed"
	file := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: vckeys.Namespace, Name: name}}
	b := newFacesFixture(t, func(b *volcanoFixture) []string {
		first := file.DeepCopy()
		first.Data = map[string]string{key: "actions: enqueue\n"}
		b.create(t, first)
		home := metav1.ObjectMeta{Namespace: vckeys.Namespace, Name: install.Name(install.VolcanoScheduler)}
		b.create(t, &rbacv1.Role{ObjectMeta: home, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{name}, Verbs: []string{"get", "list", "watch"}}}})
		b.create(t, &rbacv1.RoleBinding{
			ObjectMeta: home, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: home.Name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: kaikeys.Namespace, Name: install.Name(install.Scheduler)}},
		})
		return []string{"--volcano-scheduler-configmap=" + vckeys.Namespace + "/" + name + ":" + key}
	})
	says := func(text string) {
		t.Helper()
		now := file.DeepCopy()
		if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(file), now); err != nil {
			t.Fatal(err)
		}
		now.Data = map[string]string{key: text}
		if err := b.client.Update(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	told := func(reason, text string) func() string {
		return func() string {
			var events corev1.EventList
			if err := b.client.List(t.Context(), &events, client.InNamespace(vckeys.Namespace)); err != nil {
				return err.Error()
			}
			for i := range events.Items {
				if e := &events.Items[i]; e.InvolvedObject.Name == name && e.Reason == reason && strings.Contains(e.Message, text) {
					return ""
				}
			}
			return "no event " + reason + " of the ConfigMap says " + text
		}
	}
	b.namespace(t, ns)
	b.create(t, gpuJob(ns, "first", 2, ""))
	waits := b.groupWaits(ns, "first", vcscheduling.PodGroupInqueue, vcscheduling.NotEnoughResourcesReason, "NoAllocate")
	b.must(t, guard, waits)
	b.must(t, guard, told("SchedulerFileTaken", ""))

	says("actions: enqueue, allocate, dance\n")
	b.must(t, guard, told("SchedulerFileRefused", `line 1: actions names "dance"`))
	b.namespace(t, "kais")
	b.create(t, gang("kais", "train", 4, "")) // of another face: by the time that it runs, cycles have been decided
	b.must(t, guard, b.allRunning("kais", 4))
	b.must(t, guard, waits)
	if n := b.bound(ns); n != 0 {
		t.Errorf("%d pods are on nodes, and the file has no action that places them", n)
	}

	says("actions: enqueue, allocate\n")
	b.must(t, guard, b.phase(ns, "first", vcbatch.Running, 2, 0))
	if err := b.client.Delete(t.Context(), file.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	b.create(t, gpuJob(ns, "second", 2, ""))
	b.must(t, guard, b.phase(ns, "second", vcbatch.Running, 2, 0))
}
