//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/lab"
)

const eves = "hers" // the namespace of a tenant who writes what she likes

// TestCharge: whatever a tenant makes of her running pods and of their PodGroup, what they hold stays charged to the queue they
// were bound for, and is taken back from there when it is owed to others.
func TestCharge(t *testing.T) {
	w := newFixture(t, 2, lab.Options{})
	for _, q := range []struct {
		name         string
		quota, limit float64
		weight       float64
	}{{"capped", 0, 8, 1}, {"owed", 8, -1, 0}, {"base", 8, -1, 0}} { // beyond their quotas these two are owed nothing
		made := queue(q.name, "root")
		made.Spec.Resources.GPU = queuev2.QueueResource{Quota: q.quota, Limit: q.limit, OverQuotaWeight: q.weight}
		w.create(t, made)
	}
	w.namespace(t, eves)
	eve := w.tenant(t, "eve", eves)
	w.mayBind(t, "eve")
	muster := admitting(t, w, "--identity=enforce")

	group := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: eves, Name: "full"}, Spec: v2alpha2.PodGroupSpec{Queue: "capped", MinMember: ptr.To[int32](1)}}
	w.create(t, group)
	for i := range 8 {
		w.create(t, chargedPod(fmt.Sprintf("full-%d", i), "capped", "full", 1))
	}
	w.create(t, chargedPod("big", "base", "", 8))
	w.must(t, 20*time.Second, w.allRunning(eves, 9))
	w.must(t, 10*time.Second, func() string { // what the watches show is what a Binding wrote
		for _, p := range w.pods(eves) {
			if got := p.Annotations[keys.ChargedAnnotation]; !strings.HasPrefix(got, p.Labels[keys.QueueLabel]+"/") {
				return fmt.Sprintf("%s of queue %s is charged to %q", p.Name, p.Labels[keys.QueueLabel], got)
			}
		}
		return ""
	})

	t.Run("enforce", func(t *testing.T) {
		full := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: eves, Name: "full-0"}}
		for _, patch := range []string{nobodys, reserved} {
			w.refused(t, "only Muster itself may write ", func() error {
				return eve.Patch(t.Context(), full.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
			})
		}
		late := chargedPod("late", "capped", "", 1)
		w.create(t, late)
		for _, forged := range []metav1.ObjectMeta{
			{Annotations: map[string]string{keys.ChargedAnnotation: "owed/nothing"}},
			{Annotations: map[string]string{keys.OwnGangAnnotation: "{}"}},
			{Annotations: map[string]string{keys.DecidedAnnotation: "2020-01-01T00:00:00Z"}},
			{Annotations: map[string]string{keys.PodGroupAnnotation: "nothing"}},
			{Labels: map[string]string{keys.GPUGroupLabel: "x"}},
			{Labels: map[string]string{keys.AppLabel: keys.ReservationNamespace}},
		} {
			w.refused(t, "only Muster itself may write ", func() error {
				return eve.SubResource("binding").Create(t.Context(), late.DeepCopy(), &corev1.Binding{ObjectMeta: forged, Target: corev1.ObjectReference{Kind: "Node", Name: "n-0"}}, &client.SubResourceCreateOptions{CreateOptions: client.CreateOptions{DryRun: []string{metav1.DryRunAll}}})
			})
		}
	})

	// From here on she may.
	muster.kill()
	muster.args[slices.Index(muster.args, "--identity=enforce")] = "--identity=warn"
	muster.start()
	muster.awaitReady(t)
	w.awaitAdmission(t)
	write := func(name, patch string) {
		t.Helper()
		var last error
		defer func() {
			if t.Failed() {
				t.Log(last)
			}
		}()
		w.poll(t, "eve writes pod "+name, func() bool {
			last = eve.Patch(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: eves, Name: name}}, client.RawPatch(types.MergePatchType, []byte(patch)))
			return last == nil
		})
	}
	for i := range 8 {
		write(fmt.Sprintf("full-%d", i), nobodys)
	}
	for _, forged := range []struct{ patch, key string }{ // but for the record, which no mode gives away
		{metadataPatch(map[string]string{keys.ChargedAnnotation: "owed/nothing"}, map[string]string{}), keys.ChargedAnnotation},
		{metadataPatch(map[string]string{keys.OwnGangAnnotation: "{}"}, map[string]string{}), keys.OwnGangAnnotation},
		{metadataPatch(map[string]string{keys.DecidedAnnotation: "2020-01-01T00:00:00Z"}, map[string]string{}), keys.DecidedAnnotation},
		{`{"metadata":{"annotations":null}}`, keys.ChargedAnnotation},
	} {
		w.refused(t, "only Muster itself may write "+forged.key, func() error {
			return eve.Patch(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: eves, Name: "big"}}, client.RawPatch(types.MergePatchType, []byte(forged.patch)), client.DryRunAll)
		})
	}
	for _, p := range w.pods(eves) { // it is a gang by itself, which counts only while the pod names no PodGroup
		if p.Name == "big" && (p.Annotations[keys.OwnGangAnnotation] == "" || p.Annotations[keys.PodGroupAnnotation] != "") {
			t.Errorf("big is no gang by itself: %v", p.Annotations)
		}
	}
	write("big", nobodys)
	write("big", reserved)
	if err := w.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: eves, Name: "late"}}); err != nil {
		t.Fatal(err)
	}

	t.Run("labels of a reservation hide no holder", func(t *testing.T) {
		for i := range 4 { // of the queue of the pod that lies, so that nobody is to be taken from
			w.create(t, chargedPod(fmt.Sprintf("room-%d", i), "base", "", 2))
		}
		w.mustWait(t, "room-", 4, "")
		w.must(t, 15*time.Second, w.allocates("base", 8))
		w.must(t, 15*time.Second, w.allocates("team", 0))
		for i := range 4 {
			if err := w.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: eves, Name: fmt.Sprintf("room-%d", i)}}); err != nil {
				t.Fatal(err)
			}
		}
	})
	if err := w.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: eves, Name: "big"}}); err != nil {
		t.Fatal(err)
	}

	// There is room for eight more, and none within the limit.
	for i, step := range []struct {
		name string
		do   func() error
	}{
		{"pods say that they are nobody's", func() error { return nil }},
		{"a restart", func() error { muster.kill(); muster.start(); muster.awaitReady(t); w.awaitAdmission(t); return nil }},
		{"the PodGroup goes to another queue", func() error {
			return eve.Patch(t.Context(), group.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"queue":"team"}}`)))
		}},
		{"the PodGroup is deleted", func() error { return eve.Delete(t.Context(), group.DeepCopy()) }},
		{"a restart that finds nothing but the pods", func() error { muster.kill(); muster.start(); muster.awaitReady(t); w.awaitAdmission(t); return nil }},
	} {
		t.Run(step.name, func(t *testing.T) {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			prefix := fmt.Sprintf("more-%d-", i)
			for j := range 8 {
				w.create(t, chargedPod(fmt.Sprintf("%s%d", prefix, j), "capped", "", 1))
			}
			w.mustWait(t, prefix, 8, "capped")
			if n := w.boundNow(t, eves); n != 8 {
				t.Errorf("%d pods are bound, want 8", n)
			}
			w.must(t, 15*time.Second, w.allocates("capped", 8))
			w.must(t, 15*time.Second, w.allocates("team", 0))
		})
	}

	t.Run("what is owed is taken back", func(t *testing.T) {
		w.create(t, chargedPod("base", "base", "", 8))
		w.must(t, 20*time.Second, w.runs("base", 1))
		w.create(t, chargedPod("owed", "owed", "", 8))
		w.must(t, 30*time.Second, w.runs("owed", 1))
		w.must(t, 15*time.Second, w.allocates("owed", 8))
		w.must(t, 15*time.Second, w.allocates("capped", 0))
	})
	muster.stop(t)
}

// What eve writes on running pods: that they are nobody's, that they may not be evicted, and that they hold room for others.
var (
	nobodys = metadataPatch(map[string]string{keys.SkipPodGrouperAnnotation: "true", keys.PodGroupAnnotation: "nothing"},
		map[string]string{keys.SubGroupLabel: "nonsense", keys.PreemptibilityLabel: "non-preemptible", keys.PriorityClassLabel: keys.PriorityClassInference, keys.QueueLabel: "team"})
	reserved = metadataPatch(map[string]string{}, map[string]string{keys.AppLabel: keys.ReservationNamespace, keys.GPUGroupLabel: "x"})
)

func metadataPatch(annotations, labels map[string]string) string {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations, "labels": labels}})
	if err != nil {
		panic(err) // strings have a JSON form
	}
	return string(body)
}

// chargedPod is a pod of eve's with so many GPUs; without a group the pod-grouper makes one.
func chargedPod(name, queue, group string, gpus int64) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: eves, Name: name, Labels: map[string]string{keys.QueueLabel: queue}, Annotations: map[string]string{}},
		Spec:       gang(eves, "", 1, "").Spec.Template.Spec,
	}
	if group != "" {
		p.Annotations[keys.PodGroupAnnotation] = group
	}
	p.Spec.Containers[0].Resources.Limits[lab.GPUResource] = *resource.NewQuantity(gpus, resource.DecimalSI)
	return p
}

// mayBind gives a user the right to bind pods, as some workload controllers have it.
func (w *fixture) mayBind(t *testing.T, user string) {
	t.Helper()
	w.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "binds"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods/binding"}, Verbs: []string{"create"}}}})
	w.create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: eves, Name: "binds"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "binds"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	})
}

// mustWait waits until so many pods whose names begin so are told why they wait, in words that name something.
func (w *fixture) mustWait(t *testing.T, prefix string, n int, names string) {
	t.Helper()
	var said string
	w.must(t, 20*time.Second, func() string {
		told, last := 0, ""
		for _, p := range w.pods(eves) {
			if !strings.HasPrefix(p.Name, prefix) {
				continue
			}
			if p.Spec.NodeName != "" {
				return p.Name + " is bound to " + p.Spec.NodeName
			}
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" {
					last = c.Message
					if strings.Contains(c.Message, names) {
						told, said = told+1, c.Message
					}
				}
			}
		}
		if told != n {
			return fmt.Sprintf("%d of %d pods %s… are told of %q why they wait; the last: %s", told, n, prefix, names, last)
		}
		return ""
	})
	t.Log(said)
}

// runs is what lacks until n pods of eve's whose names begin so run.
func (w *fixture) runs(prefix string, n int) func() string {
	return func() string {
		have := 0
		for _, p := range w.pods(eves) {
			if strings.HasPrefix(p.Name, prefix) && p.Status.Phase == corev1.PodRunning {
				have++
			}
		}
		if have != n {
			return fmt.Sprintf("%d of %d pods %s… run", have, n, prefix)
		}
		return ""
	}
}

// allocates is what lacks until a Queue's status says so many GPUs.
func (w *fixture) allocates(name string, gpus int64) func() string {
	return func() string {
		for _, q := range list(w, &queuev2.QueueList{}).Items {
			if q.Name == name {
				if got := q.Status.Allocated[lab.GPUResource]; got.Value() != gpus {
					return fmt.Sprintf("status of queue %s: %s GPUs, want %d", name, got.String(), gpus)
				}
				return ""
			}
		}
		return "there is no queue " + name
	}
}
