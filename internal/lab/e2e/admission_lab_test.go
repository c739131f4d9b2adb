//go:build lab

package e2e

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/lab"
)

// admitting starts all roles, admission among them, reached by URL, and returns when a pod that shares a GPU comes out complete.
func admitting(t *testing.T, w *fixture, args ...string) *process {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	w.create(t, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: keys.RuntimeClass}, Handler: keys.RuntimeClass})
	p := newProcess(t, "all", w.lab.Kubeconfig(), append([]string{
		"--admission", "--gpu-sharing-enabled", fmt.Sprintf("--webhook-addr=%d", port), fmt.Sprintf("--webhook-url=https://127.0.0.1:%d", port),
	}, args...)...)
	p.start()
	p.awaitReady(t)
	w.awaitAdmission(t)
	return p
}

// awaitAdmission waits until pods that share a GPU come out complete.
func (w *fixture) awaitAdmission(t *testing.T) time.Duration {
	t.Helper()
	since, limit := time.Now(), time.After(30*time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		p := fractionPod("default", "probe", nil)
		err := w.client.Create(t.Context(), p, client.DryRunAll)
		if err == nil && p.Annotations[keys.SharedGPUConfigMapAnnotation] != "" {
			return time.Since(since)
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("admission does not answer: %v", err)
		}
	}
}

// fractionPod is a pod of ours that shares a GPU, with one container.
func fractionPod(namespace, name string, annotations map[string]string) *corev1.Pod {
	if annotations == nil {
		annotations = map[string]string{keys.GPUFractionAnnotation: "0.5"}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{keys.QueueLabel: "team"}, Annotations: annotations},
		Spec:       corev1.PodSpec{SchedulerName: keys.SchedulerName, Containers: []corev1.Container{{Name: "main", Image: "registry.example/notebook"}}},
	}
}

// TestAdmission: pods of ours come out complete or not at all; pods of others come out whatever has become of the role.
func TestAdmission(t *testing.T) {
	w := newFixture(t, 1, lab.Options{})
	// The processes are the administrator, who is trusted for that: eve is not.
	muster := admitting(t, w, "--block-nvidia-visible-devices", "--identity=enforce", "--authorize-queues")
	w.namespace(t, "pods")
	eve := w.tenant(t, "eve", "pods")

	t.Run("pods are completed", func(t *testing.T) {
		p := fractionPod("pods", "", nil)
		p.GenerateName, p.Spec.SchedulerName = "trainer-", keys.SchedulerName
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "test/stay"}}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "side", Image: "registry.example/side"})
		w.create(t, p)
		prefix := p.Annotations[keys.SharedGPUConfigMapAnnotation]
		got := []string{*p.Spec.RuntimeClassName}
		for _, c := range p.Spec.Containers {
			for _, e := range c.Env {
				line := c.Name + " " + e.Name + "=" + e.Value
				if e.ValueFrom != nil {
					line += e.ValueFrom.ConfigMapKeyRef.Name + "/" + e.ValueFrom.ConfigMapKeyRef.Key
				}
				got = append(got, line)
			}
			for _, f := range c.EnvFrom {
				got = append(got, c.Name+" "+f.ConfigMapRef.Name)
			}
		}
		for _, v := range p.Spec.Volumes {
			if v.ConfigMap != nil {
				got = append(got, v.Name)
			}
		}
		want := []string{
			"nvidia", "main NVIDIA_VISIBLE_DEVICES=" + prefix + "-0/NVIDIA_VISIBLE_DEVICES", "main RUNAI_NUM_OF_GPUS=" + prefix + "-0/RUNAI_NUM_OF_GPUS",
			"main GPU_PORTION=" + prefix + "-0/GPU_PORTION", "main " + prefix + "-0-evar", "side NVIDIA_VISIBLE_DEVICES=void", prefix + "-0-vol",
		}
		if d := cmp.Diff(want, got); d != "" || !strings.HasPrefix(prefix, "trainer-") || !strings.HasSuffix(prefix, "-shared-gpu") {
			t.Errorf("prefix %q: %s", prefix, d)
		}
		// A patch, because Muster may have written into the pod meanwhile.
		nonsense := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"gpu-fraction":"all"}}}`))
		if err := w.client.Patch(t.Context(), p.DeepCopy(), nonsense); err == nil || !strings.Contains(err.Error(), `metadata.annotations[gpu-fraction]: Invalid value: "all"`) {
			t.Errorf("an update that makes no sense: %v", err)
		}
	})

	t.Run("nonsense is refused", func(t *testing.T) {
		for want, p := range map[string]*corev1.Pod{
			`Pod "a" is invalid: metadata.annotations[gpu-fraction]: Invalid value: "NaN": must be a decimal number above 0 and below 1`: fractionPod("pods", "a", map[string]string{"gpu-fraction": "NaN"}),
			`must be at most 1073741824 MiB`:        fractionPod("pods", "b", map[string]string{"gpu-memory": "99999999999999999999"}),
			`must name one of the pod's containers`: fractionPod("pods", "c", map[string]string{"gpu-fraction": "0.5", "gpu-fraction-container-name": "x"}),
			`must be a decimal number above 0`:      fractionPod("pods", "d", map[string]string{"gpu-fraction": strings.Repeat("9", 200<<10)}),
		} {
			w.refused(t, want, func() error { return w.client.Create(t.Context(), p.DeepCopy(), client.DryRunAll) })
		}
		topology := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": map[string]any{"name": "t"},
			"spec": map[string]any{"levels": []any{map[string]any{"nodeLabel": "a", "alias": "b"}, map[string]any{"nodeLabel": "b"}}},
		}}
		w.refused(t, "an alias must differ from every node label", func() error {
			return w.client.Create(t.Context(), topology.DeepCopy(), client.DryRunAll)
		})
	})

	t.Run("certificates are kept", func(t *testing.T) {
		secret := &corev1.Secret{}
		at := client.ObjectKey{Namespace: keys.Namespace, Name: "admission-webhook-tls-secret"}
		if err := w.client.Get(t.Context(), at, secret); err != nil {
			t.Fatal(err)
		}
		if err := w.client.Delete(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		old := secret.Data["ca.crt"]
		w.poll(t, "a Secret that was deleted is made anew", func() bool {
			return w.client.Get(t.Context(), at, secret) == nil && !bytes.Equal(secret.Data["ca.crt"], old)
		})
		t.Logf("after the loss of the Secret, pods came out complete again after %s", w.awaitAdmission(t).Round(time.Millisecond))
		config := &admissionregv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "mutating-kai-admission"}}
		if err := w.client.Patch(t.Context(), config, client.RawPatch("application/json-patch+json", []byte(`[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":""}]`))); err != nil {
			t.Fatal(err)
		}
		w.poll(t, "a configuration that was spoiled is repaired", func() bool {
			return w.client.Get(t.Context(), client.ObjectKeyFromObject(config), config) == nil && bytes.Equal(config.Webhooks[0].ClientConfig.CABundle, secret.Data["ca.crt"])
		})
		w.awaitAdmission(t)
	})

	t.Run("queues", func(t *testing.T) {
		creates := func(o client.Object, want string) {
			t.Helper()
			w.refused(t, want, func() error {
				return w.client.Create(t.Context(), o.DeepCopyObject().(client.Object), client.DryRunAll)
			})
		}
		deletes := func(o client.Object) {
			t.Helper()
			if err := w.client.Delete(t.Context(), o, client.DryRunAll); err != nil {
				t.Errorf("a queue that is in use: %v", err)
			}
		}
		creates(&queuev2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}, "Queue bare: spec.resources: resources must be specified")
		creates(queue("me", "me"), "a queue cannot be its own parent")
		w.create(t, queue("leaf", "team"))
		w.refused(t, "makes a loop: root -> leaf -> team -> root", func() error {
			return w.client.Patch(t.Context(), queue("root", ""), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"parentQueue":"leaf"}}`)), client.DryRunAll)
		})
		deletes(queue("team", ""))
		pg := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "user"}, Spec: v2alpha2.PodGroupSpec{Queue: "leaf", MinMember: ptr.To[int32](1)}}
		w.create(t, pg)
		deletes(queue("leaf", ""))
		torn := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"subGroups":[{"name":"a","parent":"b","minMember":1}]}}`))
		w.refused(t, `spec.subGroups[0].parent: Not found: "b"`, func() error { return w.client.Patch(t.Context(), pg.DeepCopy(), torn, client.DryRunAll) })
		if err := w.client.Delete(t.Context(), pg); err != nil {
			t.Fatal(err)
		}
		if err := w.client.Delete(t.Context(), queue("leaf", "")); err != nil {
			t.Errorf("a queue that nobody needs: %v", err)
		}
		shard := &kaiv1.SchedulingShard{ObjectMeta: metav1.ObjectMeta{Name: "odd"}, Spec: kaiv1.SchedulingShardSpec{Plugins: map[string]kaiv1.PluginConfig{"magic": {}}}}
		creates(shard, `is the name of no plugin`)
	})

	forged := &v1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "forged"}, Spec: v1alpha2.BindRequestSpec{PodName: "forged", SelectedNode: "n-0"}}
	t.Run("tenants are not Muster", func(t *testing.T) {
		marked := fractionPod("pods", "marked", nil)
		marked.Spec.SchedulerName, marked.Labels = "default-scheduler", map[string]string{keys.GPUGroupLabel: "mine"}
		bound := fractionPod("pods", "bound", map[string]string{})
		bound.Spec.NodeName, bound.Labels = "n-0", nil
		early := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "early", Annotations: map[string]string{keys.LastStartAnnotation: "2030-01-01T00:00:00Z"}}}
		for want, o := range map[string]client.Object{
			"metadata: only Muster itself may write runai-gpu-group":     marked,
			"spec.nodeName: the scheduler decides where a pod of":        bound,
			"metadata.annotations: only Muster itself may write kai.sch": early,
			"BindRequest forged: only Muster itself may write BindReque": forged.DeepCopy(),
		} {
			w.refused(t, want, func() error {
				return eve.Create(t.Context(), o.DeepCopyObject().(client.Object), client.DryRunAll)
			})
			if err := w.client.Create(t.Context(), o, client.DryRunAll); err != nil {
				t.Errorf("trusted: %v", err)
			}
		}
	})

	t.Run("who may not use a queue submits nothing to it", func(t *testing.T) {
		job := func(name string, top, template map[string]string) *batchv1.Job {
			j := gang("pods", name, 1, "")
			j.Labels, j.Spec.Template.Labels = top, template
			return j
		}
		team := map[string]string{keys.QueueLabel: "team"}
		const want = "eve may not use queue team (it takes the verb use on that queue, resource queues.scheduling.run.ai)"
		for _, o := range []client.Object{
			fractionPod("pods", "hers", nil), job("hers", team, nil), job("hers", nil, team),
			&v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "hers"}, Spec: v2alpha2.PodGroupSpec{Queue: "team"}},
		} {
			w.refused(t, want, func() error {
				return eve.Create(t.Context(), o.DeepCopyObject().(client.Object), client.DryRunAll)
			})
		}
		w.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "use-team"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"scheduling.run.ai"}, Resources: []string{"queues"}, ResourceNames: []string{"team"}, Verbs: []string{"use"}},
		}})
		w.create(t, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "use-team"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "use-team"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "eve"}},
		})
		w.poll(t, "eve's right counts", func() bool { return eve.Create(t.Context(), job("hers", team, team)) == nil })
		w.poll(t, "the Job's pod, which a controller makes, is admitted and bound", func() bool { return w.bound("pods") == 1 })
	})

	t.Run("a pod's queue is one that its author was judged for", func(t *testing.T) {
		rich := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rich", Labels: map[string]string{keys.QueueLabel: "root"}}}
		w.create(t, rich)
		theirs := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "theirs"}, Spec: v2alpha2.PodGroupSpec{Queue: "root", MinMember: ptr.To[int32](1)}}
		w.create(t, theirs)
		owned, joined, forgotten := fractionPod("pods", "owned", nil), fractionPod("pods", "joined", nil), fractionPod("pods", "forgotten", nil)
		owned.Labels, owned.OwnerReferences = nil, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "rich", UID: rich.UID}}
		joined.Annotations[keys.PodGroupAnnotation], forgotten.Annotations[keys.PodGroupAnnotation] = "theirs", "nobodys"
		for want, p := range map[string]*corev1.Pod{
			"pods that have an owner must name their queue themselves":                        owned,
			"PodGroup theirs is of queue root; where queues are authorized the pod must name": joined,
			`there is no PodGroup "nobodys"`:                                                  forgotten,
		} {
			w.refused(t, want, func() error { return eve.Create(t.Context(), p.DeepCopy(), client.DryRunAll) })
		}
		owned.Labels = map[string]string{keys.QueueLabel: "team"}
		copied := fractionPod("pods", "copied", nil) // from a running pod of a PodGroup of hers
		w.create(t, &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "ours"}, Spec: v2alpha2.PodGroupSpec{Queue: "team", MinMember: ptr.To[int32](1)}})
		copied.Labels[keys.GPUGroupLabel], copied.Annotations[keys.ReceivedResourceTypeAnnotation] = "somebodys", "Fraction"
		copied.Annotations[keys.PodGroupAnnotation], copied.Spec.NodeName = "ours", "n-0"
		bare := fractionPod("pods", "bare", map[string]string{})
		bare.Labels = nil
		for _, p := range []*corev1.Pod{owned, copied, bare} {
			if err := eve.Create(t.Context(), p, client.DryRunAll); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
		if copied.Spec.NodeName != "" || copied.Labels[keys.GPUGroupLabel] != "" || bare.Labels[keys.QueueLabel] != keys.DefaultQueue {
			t.Errorf("the copy goes to %q with labels %v; the bare pod has labels %v", copied.Spec.NodeName, copied.Labels, bare.Labels)
		}
	})

	t.Run("our own accounts do their work and no more", func(t *testing.T) { w.rights(t) })

	t.Run("a dead role stops nobody else's pods", func(t *testing.T) {
		for i, way := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			muster.signal(way)
			for name, change := range map[string]func(*corev1.Pod){
				"default-scheduler": func(*corev1.Pod) {}, "no-scheduler": func(p *corev1.Pod) { p.Spec.SchedulerName = "" },
				"system": func(p *corev1.Pod) { p.Namespace, p.Spec.SchedulerName = "kube-system", keys.SchedulerName },
			} {
				p := fractionPod("pods", fmt.Sprintf("%s-%d", name, i), nil)
				p.Spec.SchedulerName = "default-scheduler"
				change(p)
				since := time.Now()
				w.create(t, p)
				if took := time.Since(since); took > 2*time.Second {
					t.Errorf("%s: a pod that is not ours took %s", way, took)
				}
			}
			ours := fractionPod("pods", fmt.Sprintf("ours-%d", i), nil)
			if err := w.client.Create(t.Context(), ours); err == nil || !strings.Contains(err.Error(), "admission.kai-scheduler.svc") {
				t.Errorf("%s: a pod of ours, unjudged: %v", way, err)
			}
			if err := eve.Create(t.Context(), forged.DeepCopy()); err == nil || !strings.Contains(err.Error(), "only Muster itself may write BindRequests") {
				t.Errorf("%s: a forged BindRequest, with nobody to judge it: %v", way, err)
			}
		}
		muster.kill()
		muster.start()
		muster.awaitReady(t)
		w.awaitAdmission(t)
	})
	if d := muster.stop(t); d > 10*time.Second {
		t.Errorf("it took %s to end", d)
	}
}

// tenant is a client of a user who may write workloads, and our own namespaced objects, in one namespace.
func (w *fixture) tenant(t *testing.T, name, namespace string) client.Client {
	t.Helper()
	w.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "tenant-" + name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"scheduling.run.ai"}, Resources: []string{"podgroups", "bindrequests"}, Verbs: []string{"*"}},
		{APIGroups: []string{"", "batch"}, Resources: []string{"pods", "jobs"}, Verbs: []string{"*"}},
	}})
	w.create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tenant-" + name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
	})
	config := rest.CopyConfig(w.lab.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: w.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rights tries what our own accounts may not do although RBAC lets them.
func (w *fixture) rights(t *testing.T) {
	t.Helper()
	w.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "wide"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "configmaps", "namespaces"}, Verbs: []string{"*"}},
		{APIGroups: []string{admissionregv1.GroupName}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{v2alpha2.GroupVersion.Group}, Resources: []string{"podgroups"}, Verbs: []string{"*"}},
	}})
	w.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "wide"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "wide"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts"}},
	})
	as := func(namespace, account string, extra map[string][]string) client.Client {
		config := rest.CopyConfig(w.lab.Config())
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + namespace + ":" + account, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}, Extra: extra,
		}
		c, err := client.New(config, client.Options{Scheme: w.client.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	p := fractionPod("pods", "placed", map[string]string{})
	p.Spec.SchedulerName, p.Spec.NodeName, p.Labels = "default-scheduler", "n-0", nil
	w.create(t, p)
	note := func(c client.Client, key string) func() error {
		return func() error {
			return c.Patch(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "placed"}},
				client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+key+`":"x"}}}`)), client.DryRunAll)
		}
	}
	on := func(node string) map[string][]string {
		return map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	w.refused(t, "pod placed is not on node n-1, whose agent asks", note(as(keys.Namespace, "muster-numa-exporter", on("n-1")), keys.NUMAObservedAnnotation))
	w.refused(t, "may change nothing of a pod but "+keys.NUMAObservedAnnotation, note(as(keys.Namespace, "muster-numa-exporter", on("n-0")), keys.ReservedGPUAnnotation))
	if err := note(as(keys.Namespace, "muster-numa-exporter", on("n-0")), keys.NUMAObservedAnnotation)(); err != nil {
		t.Errorf("an agent, of a pod of its node: %v", err)
	}
	w.refused(t, "pod placed is not pod another, which asks", note(as(keys.ReservationNamespace, "any", map[string][]string{
		"authentication.kubernetes.io/pod-name": {"another"}, "authentication.kubernetes.io/pod-uid": {"u"},
	}), keys.ReservedGPUAnnotation))
	w.refused(t, "may change nothing of a pod but pod-group-name", note(as(keys.Namespace, "muster-podgrouper", nil), "theirs"))
	scaling := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "scaling", Labels: map[string]string{keys.ScalingPodSourceNamespaceLabel: "pods"}},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if err := as(keys.Namespace, "muster-nodescale", nil).Create(t.Context(), scaling.DeepCopy(), client.DryRunAll); err != nil {
		t.Errorf("a scaling pod: %v", err)
	}
	chosen, ran := scaling.DeepCopy(), &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "ran", Annotations: map[string]string{keys.LastStartAnnotation: "2020-01-01T00:00:00Z"}}}
	chosen.Spec.NodeName = "n-0"
	for _, c := range []struct {
		account, want string
		object        client.Object
	}{
		{"muster-nodescale", "may not make a scaling pod that has more than room", chosen},
		{"muster-nodescale", "which is no scaling pod", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "any"}, Spec: scaling.Spec}},
		{"muster-podgrouper", "may not say when PodGroup ran ran", ran},
	} {
		of := as(keys.Namespace, c.account, nil)
		w.refused(t, c.want, func() error {
			return of.Create(t.Context(), c.object.DeepCopyObject().(client.Object), client.DryRunAll)
		})
	}
	for account, o := range map[string]client.Object{
		"muster-binder":   &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "dns"}, Data: map[string]string{"Corefile": "mine"}},
		"muster-operator": &admissionregv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}},
	} {
		c := as(keys.Namespace, account, nil)
		w.refused(t, map[string]string{"muster-binder": "the binder writes only ConfigMaps that tell", "muster-operator": "theirs, which is not its own"}[account], func() error {
			return c.Create(t.Context(), o.DeepCopyObject().(client.Object), client.DryRunAll)
		})
	}
	if err := w.client.Delete(t.Context(), p); err != nil {
		t.Error(err)
	}
}

// refused waits until the API server refuses a request, which changes nothing, for a reason: policies and webhooks count some
// time, mostly a second, after they were made.
func (w *fixture) refused(t *testing.T, want string, try func() error) {
	t.Helper()
	var last error
	defer func() {
		if t.Failed() {
			t.Logf("the last answer: %.2000v", last)
		}
	}()
	w.poll(t, "the API server says "+want, func() bool {
		last = try()
		return last != nil && strings.Contains(last.Error(), want)
	})
	if n := len(last.Error()); n > 600 {
		t.Errorf("a refusal has %d characters: %.600v", n, last)
	}
}

// poll waits until something is so.
func (w *fixture) poll(t *testing.T, what string, so func() bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("it did not happen within 30 s: %s", what)
		}
	}
}
