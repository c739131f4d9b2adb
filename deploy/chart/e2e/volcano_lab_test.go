//go:build lab

package e2e

import (
	"strings"
	"testing"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	vctopology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestVolcanoRights: a real API server with the chart's rules and policy lets the account of Volcano's controllers write what is a Volcano Job's, and refuses
// it what is nobody's, another's, or a Secret that is not that of plugin ssh. Nobody else is judged.
func TestVolcanoRights(t *testing.T) {
	rendered, err := render(t, "volcano: {enabled: true}", false)
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, lab.Options{Dir: t.TempDir(), CRDs: volcanoDefinitions()})
	const account = "muster-vc-controller-manager"
	all := objects(t, map[string]string{"volcano.yaml": rendered["volcano.yaml"]})
	for _, o := range []client.Object{
		all["ClusterRole /"+account].(*rbacv1.ClusterRole),
		all["ClusterRoleBinding /"+account].(*rbacv1.ClusterRoleBinding),
		all["ValidatingAdmissionPolicy /muster-rights-vc-controller-manager"].(*admissionregv1.ValidatingAdmissionPolicy),
		all["ValidatingAdmissionPolicyBinding /muster-rights-vc-controller-manager"].(*admissionregv1.ValidatingAdmissionPolicyBinding),
	} {
		if err := p.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	config := rest.CopyConfig(p.lab.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + home + ":" + account}
	scheme := p.client.Scheme()
	for _, add := range []func() error{func() error { return vcbatch.AddToScheme(scheme) }, func() error { return vcscheduling.AddToScheme(scheme) }, func() error { return vctopology.AddToScheme(scheme) }} {
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	controllers, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	job := &vcbatch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j"}, Spec: vcbatch.JobSpec{Tasks: []vcbatch.TaskSpec{{Name: "t", Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}}}}}
	if err := p.client.Create(t.Context(), job); err != nil { // or the garbage collector takes what names it
		t.Fatal(err)
	}
	owner := metav1.OwnerReference{APIVersion: vcbatch.GroupVersion.String(), Kind: "Job", Name: "j", UID: job.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}
	named := func(name string, of ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: of}
	}
	pod := func(name string, of ...metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: named(name, of...), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	}
	theirs, ours := pod("theirs"), pod("ours", owner)
	grouped := pod("grouped")
	grouped.Annotations = map[string]string{vckeys.GroupName: "theirs"}
	queue := &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	hyper := func(name string, labels map[string]string) *vctopology.HyperNode {
		return &vctopology.HyperNode{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: vctopology.HyperNodeSpec{Tier: 1, Members: []vctopology.MemberSpec{
			{Type: vctopology.MemberTypeNode, Selector: vctopology.MemberSelector{ExactMatch: &vctopology.ExactMatch{Name: "n"}}},
		}}}
	}
	found := map[string]string{vckeys.TopologySource: "label"}
	from := func(apiVersion, kind string) *vcbatch.Job {
		o := owner
		o.APIVersion, o.Kind = apiVersion, kind
		return &vcbatch.Job{ObjectMeta: named("made", o), Spec: *job.Spec.DeepCopy()}
	}
	for _, o := range []client.Object{
		theirs, ours, grouped, queue, hyper("users", nil), hyper("found", found), &corev1.ConfigMap{ObjectMeta: named("coredns")}, &corev1.ConfigMap{ObjectMeta: named("j-svc", owner)},
		&corev1.Secret{ObjectMeta: named("anybodys")}, // nobody else is judged
	} {
		if err := p.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	create := func(o client.Object) func() error {
		return func() error { return controllers.Create(t.Context(), o, client.DryRunAll) }
	}
	patch := func(o client.Object, text string) func() error {
		return func() error {
			return controllers.Patch(t.Context(), o.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", []byte(text)), client.DryRunAll)
		}
	}
	ssh := func(meta metav1.ObjectMeta, kind corev1.SecretType, file string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: meta, Type: kind, Data: map[string][]byte{file: []byte("x")}}
	}
	answer := func(do func() error) string {
		if err := do(); err != nil {
			return err.Error()
		}
		return ""
	}
	p.step("the policy holds", nil, func() string {
		if said := answer(create(pod("early"))); !strings.Contains(said, "which is no Volcano Job's") {
			return "a pod of nobody's was taken: " + said
		}
		return ""
	})
	const nobodys, noSSH = "which is no Volcano Job's", "is not that of a Volcano Job's plugin ssh"
	other := owner
	other.APIVersion, other.Kind = "batch/v1", "Job"
	another := owner
	another.Name = "k"
	token := named("j-ssh", owner)
	token.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	for name, one := range map[string]struct { // order: nothing is kept
		do   func() error
		want string
	}{
		"a pod of a Job":                  {create(pod("p", owner)), ""},
		"a pod of nobody's":               {create(pod("p")), nobodys},
		"a pod of another kind of Job":    {create(pod("p", other)), nobodys},
		"a mark":                          {patch(ours, `{"metadata": {"annotations": {"`+vckeys.OutOfSync+`": "true"}}}`), ""},
		"another annotation":              {patch(ours, `{"metadata": {"annotations": {"a": "b"}}}`), "may change nothing of pod ours but Volcano's annotations"},
		"a label":                         {patch(ours, `{"metadata": {"labels": {"a": "b"}}}`), "may change nothing of pod ours"},
		"a deadline":                      {patch(ours, `{"spec": {"activeDeadlineSeconds": 5}}`), "may change nothing of pod ours"},
		"a mark on a pod of nobody's":     {patch(theirs, `{"metadata": {"annotations": {"`+vckeys.OutOfSync+`": "true"}}}`), nobodys},
		"the owner of somebody's pod":     {patch(theirs, `{"metadata": {"ownerReferences": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u", "controller": true}]}}`), nobodys},
		"a bare pod's group":              {patch(theirs, `{"metadata": {"annotations": {"scheduling.k8s.io/group-name": "podgroup-u"}}}`), ""},
		"with something else":             {patch(theirs, `{"metadata": {"annotations": {"scheduling.k8s.io/group-name": "podgroup-u", "a": "b"}}}`), "may change nothing of pod theirs"},
		"with an owner":                   {patch(theirs, `{"metadata": {"annotations": {"scheduling.k8s.io/group-name": "podgroup-u"}, "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}]}}`), "may change nothing of pod theirs"},
		"another group":                   {patch(theirs, `{"metadata": {"annotations": {"scheduling.k8s.io/group-name": "mine"}}}`), nobodys},
		"the group of a pod that has one": {patch(grouped, `{"metadata": {"annotations": {"scheduling.k8s.io/group-name": "podgroup-u"}}}`), nobodys},
		"the end of a pod":                {func() error { return controllers.Delete(t.Context(), ours, client.DryRunAll) }, ""},
		"the end of a pod of nobody's":    {func() error { return controllers.Delete(t.Context(), theirs, client.DryRunAll) }, nobodys},
		"the Secret of ssh":               {create(ssh(named("j-ssh", owner), corev1.SecretTypeOpaque, "id_rsa")), ""},
		"of another name":                 {create(ssh(named("mine", owner), corev1.SecretTypeOpaque, "id_rsa")), noSSH},
		"of another Job":                  {create(ssh(named("j-ssh", another), corev1.SecretTypeOpaque, "id_rsa")), noSSH},
		"of nobody":                       {create(ssh(named("j-ssh"), corev1.SecretTypeOpaque, "id_rsa")), nobodys},
		"with another file":               {create(ssh(named("j-ssh", owner), corev1.SecretTypeOpaque, "token")), noSSH},
		"a token of an account":           {create(&corev1.Secret{ObjectMeta: token, Type: corev1.SecretTypeServiceAccountToken}), noSSH},
		"a Secret read": {func() error {
			return controllers.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "anybodys"}, &corev1.Secret{})
		}, "forbidden"},
		"hosts":                         {create(&corev1.ConfigMap{ObjectMeta: named("k-svc", owner)}), ""},
		"hosts anew":                    {patch(&corev1.ConfigMap{ObjectMeta: named("j-svc")}, `{"data": {"a": "b"}}`), ""},
		"somebody's ConfigMap":          {patch(&corev1.ConfigMap{ObjectMeta: named("coredns")}, `{"data": {"a": "b"}}`), nobodys},
		"a NetworkPolicy":               {create(&networkingv1.NetworkPolicy{ObjectMeta: named("j", owner)}), ""},
		"a NetworkPolicy of nobody's":   {create(&networkingv1.NetworkPolicy{ObjectMeta: named("j")}), nobodys},
		"the parent of a queue":         {patch(queue, `{"spec": {"parent": "root"}}`), ""},
		"another parent":                {patch(queue, `{"spec": {"parent": "mine"}}`), "may change nothing of the spec of Queue q"},
		"what a queue may have":         {patch(queue, `{"spec": {"weight": 7}}`), "may change nothing of the spec of Queue q"},
		"a queue's parent and its room": {patch(queue, `{"spec": {"parent": "root", "capability": {"cpu": "9"}}}`), "may change nothing of the spec of Queue q"},
		"a weight with the parent":      {patch(queue, `{"spec": {"parent": "root", "weight": 7}}`), "may change nothing of the spec of Queue q"},
		"the queue default":             {create(&vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "default"}}), ""},
		"another queue":                 {create(&vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}), "may make no Queue but root and default: not mine"},
		"that its parent closed it":     {patch(queue, `{"metadata": {"annotations": {"`+vckeys.ClosedByParent+`": "true"}}}`), ""},
		"a Job of a CronJob":            {create(from("batch.volcano.sh/v1alpha1", "CronJob")), ""},
		"a Job of a JobFlow":            {create(from("flow.volcano.sh/v1alpha1", "JobFlow")), ""},
		"a Job of another's CronJob":    {create(from("batch/v1", "CronJob")), "may make no Job but that of a CronJob or a JobFlow: not made"},
		"a Job of nobody's":             {create(&vcbatch.Job{ObjectMeta: named("made"), Spec: *job.Spec.DeepCopy()}), "may make no Job but that of a CronJob or a JobFlow: not made"},
		"a HyperNode that is found":     {create(hyper("h", found)), ""},
		"a HyperNode that is not":       {create(hyper("h", nil)), "may write no HyperNode but those that it discovered: not h"},
		"its members":                   {patch(hyper("found", nil), `{"spec": {"tier": 2}}`), ""},
		"a user's members":              {patch(hyper("users", nil), `{"spec": {"tier": 2}}`), "may write no HyperNode but those that it discovered: not users"},
		"a user's HyperNode is taken":   {patch(hyper("users", nil), `{"metadata": {"labels": {"`+vckeys.TopologySource+`": "label"}}}`), "may write no HyperNode"},
		"the end of one that is found":  {func() error { return controllers.Delete(t.Context(), hyper("found", nil), client.DryRunAll) }, ""},
		"the end of a user's":           {func() error { return controllers.Delete(t.Context(), hyper("users", nil), client.DryRunAll) }, "may write no HyperNode"},
	} {
		if said := answer(one.do); said != "" && one.want == "" || !strings.Contains(said, one.want) {
			t.Errorf("%s: %q, want %q", name, said, one.want)
		}
	}
	podsOfVolcano(t, p)
}

// TestQueueGateRights: a real API server with the chart's rules and policy lets the scheduler take the gate of a queue off a pod, and change nothing else of it.
func TestQueueGateRights(t *testing.T) {
	rendered, err := render(t, "volcano: {enabled: true, queueGates: true}", false)
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, lab.Options{Dir: t.TempDir(), CRDs: volcanoDefinitions()})
	const name = "muster-scheduler-volcano-gates"
	all := objects(t, map[string]string{"volcano.yaml": rendered["volcano.yaml"]})
	bound := all["ClusterRoleBinding /"+name].(*rbacv1.ClusterRoleBinding)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "i"}}, SchedulingGates: []corev1.PodSchedulingGate{{Name: vckeys.QueueAllocationGate}, {Name: "example.com/wait"}},
	}}
	for _, o := range []client.Object{
		pod, all["ClusterRole /"+name].(*rbacv1.ClusterRole), bound,
		all["ValidatingAdmissionPolicy /muster-rights-scheduler-volcano-gates"].(*admissionregv1.ValidatingAdmissionPolicy),
		all["ValidatingAdmissionPolicyBinding /muster-rights-scheduler-volcano-gates"].(*admissionregv1.ValidatingAdmissionPolicyBinding),
	} {
		if err := p.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	config := rest.CopyConfig(p.lab.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + home + ":" + bound.Subjects[0].Name}
	scheduler, err := client.New(config, client.Options{Scheme: p.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	patch := func(text string) string {
		if err := scheduler.Patch(t.Context(), pod.DeepCopy(), client.RawPatch("application/strategic-merge-patch+json", []byte(text)), client.DryRunAll); err != nil {
			return err.Error()
		}
		return ""
	}
	const refused = "may change nothing of pod p but take the gate of its queue off it"
	p.step("the policy holds", nil, func() string {
		if said := patch(`{"metadata": {"labels": {"a": "b"}}}`); !strings.Contains(said, refused) {
			return "a label was taken: " + said
		}
		return ""
	})
	const off = `"schedulingGates": [{"$patch": "delete", "name": "` + vckeys.QueueAllocationGate + `"}]`
	for text, want := range map[string]string{ // order: nothing is kept
		`{"spec": {` + off + `}}`: "",
		`{"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.com/wait"}]}}`:                 refused,
		`{"spec": {` + off + `, "activeDeadlineSeconds": 5}}`:                                               refused,
		`{"spec": {` + off + `, "nodeSelector": {"a": "b"}}}`:                                               refused,
		`{"spec": {` + off + `, "containers": [{"name": "c", "image": "j"}]}}`:                              refused,
		`{"metadata": {"annotations": {"a": "b"}}, "spec": {` + off + `}}`:                                  refused,
		`{"metadata": {"finalizers": ["a/b"]}, "spec": {` + off + `}}`:                                      refused,
		`{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}]}}`: refused,
	} {
		if said := patch(text); (said != "") != (want != "") || !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", text, said, want)
		}
	}
}
