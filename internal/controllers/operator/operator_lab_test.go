//go:build lab

package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/crds"
	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/controllers/admission"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestInstallation is the life of an installation on a real API server, whose own controllers run too: installed, drifted and
// repaired, shards coming and going, one that cannot run, a component switched off, uninstalled.
func TestInstallation(t *testing.T) {
	var definitions [][]byte
	for _, plural := range []string{"configs", "schedulingshards"} {
		crd, err := crds.YAML("kai.scheduler", plural)
		if err != nil {
			t.Fatal(err)
		}
		definitions = append(definitions, crd)
	}
	l, err := lab.Start(t.Context(), lab.Options{
		CRDs: definitions, Logf: t.Logf, KubeScheduler: true, Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "n", Count: 1, CPU: "16"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kaiv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(l.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	log, _ := ktesting.NewTestContext(t)
	events := make(chan string, 1000)
	role, err := New(Deps{Config: l.Config(), Scheme: scheme, Client: c, Log: log, Event: func(o client.Object, _, reason, message string) {
		select {
		case events <- o.GetName() + " " + reason + ": " + message:
		default:
		}
	}}, Options{Repository: "registry.example", Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// await looks until nothing is wrong any more.
	await := func(what string, wrong func() string) {
		t.Helper()
		deadline, stop := context.WithTimeout(t.Context(), 40*time.Second)
		defer stop()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		begun := time.Now()
		for why := wrong(); why != ""; why = wrong() {
			select {
			case <-deadline.Done():
				t.Fatalf("%s: %s", what, why)
			case <-tick.C:
			}
		}
		t.Logf("%s: %s", what, time.Since(begun).Round(10*time.Millisecond))
	}
	get := func(o client.Object, namespace, name string) error {
		return c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
	}
	const home = "kai-scheduler"
	must(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}))
	shard := func(name string, change func(*kaiv1.SchedulingShardSpec)) *kaiv1.SchedulingShard {
		s := &kaiv1.SchedulingShard{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s.Spec.PartitionLabelValue = name
		if change != nil {
			change(&s.Spec)
		}
		return s
	}
	must(c.Create(t.Context(), shard("default", func(s *kaiv1.SchedulingShardSpec) { s.PartitionLabelValue = "" })))
	must(c.Create(t.Context(), &kaiv1.Config{ObjectMeta: metav1.ObjectMeta{Name: kaiv1.ConfigName}}))
	// Somebody else's object that only looks like ours.
	must(c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: home, Name: "foreign", Labels: map[string]string{install.LabelPartOf: install.PartOf},
	}}))

	// Policies of an older version, one for each part of what is one now; and one that the new version has, too, of which it keeps nothing.
	// While one version follows the other, and after, a tenant may not say what they keep her from saying.
	config := &kaiv1.Config{}
	must(get(config, "", kaiv1.ConfigName))
	for _, name := range []string{admission.PolicyPodIdentity, admission.PolicyQueues} {
		meta := metav1.ObjectMeta{
			Name: name, Labels: install.Labels(install.Admission),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(config, kaiv1.GroupVersion.WithKind("Config"))},
		}
		must(c.Create(t.Context(), &admissionregv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregv1.Fail),
			MatchConstraints: &admissionregv1.MatchResources{ResourceRules: []admissionregv1.NamedRuleWithOperations{{RuleWithOperations: admissionregv1.RuleWithOperations{
				Operations: []admissionregv1.OperationType{admissionregv1.Create}, Rule: admissionregv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}}},
			MatchConditions: []admissionregv1.MatchCondition{{Name: "not-trusted", Expression: "true"}},
			Variables: []admissionregv1.Variable{
				{Name: "written", Expression: "true"}, {Name: "labels", Expression: "variables.written"}, {Name: "gone", Expression: "object.?metadata.?annotations.orValue({})"},
			},
			Validations: []admissionregv1.Validation{{Expression: fmt.Sprintf("!('%s' in variables.gone)", keys.ReceivedResourceTypeAnnotation), Message: "the old word"}},
		}}))
		must(c.Create(t.Context(), &admissionregv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregv1.ValidationAction{admissionregv1.Deny},
		}}))
	}
	as := rest.CopyConfig(l.Config())
	as.Impersonate = rest.ImpersonationConfig{UserName: "eve", Groups: []string{"system:authenticated"}}
	must(c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "eve"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "eve"}},
	}))
	eve, err := client.New(as, client.Options{Scheme: scheme})
	must(err)
	says := func() string { // what the API server says to it
		err := eve.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "forged", Annotations: map[string]string{keys.ReceivedResourceTypeAnnotation: "Fraction"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "i"}}},
		}, client.DryRunAll)
		return fmt.Sprint(err)
	}
	await("the older version guards", func() string {
		if said := says(); !strings.Contains(said, "the old word") {
			return said
		}
		return ""
	})

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- role.Run(ctx) }()
	running := true
	stop := func() {
		if running {
			running = false
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)

	ready := func() string {
		var config kaiv1.Config
		var s kaiv1.SchedulingShard
		if err := get(&config, "", kaiv1.ConfigName); err != nil {
			return err.Error()
		}
		if err := get(&s, "", "default"); err != nil {
			return err.Error()
		}
		for _, of := range []struct {
			name       string
			generation int64
			conditions []metav1.Condition
		}{{"Config", config.Generation, config.Status.Conditions}, {"shard", s.Generation, s.Status.Conditions}} {
			if got := condition(of.conditions, kaiv1.ConditionReady); !strings.HasPrefix(got, "True ready") {
				return of.name + " is Ready=" + got + ", Deployed=" + condition(of.conditions, kaiv1.ConditionDeployed)
			}
			for _, c := range of.conditions { // Ready may be that of the generation before, and a look still under way
				if c.ObservedGeneration != of.generation {
					return fmt.Sprintf("%s is at generation %d, its condition %s at %d", of.name, of.generation, c.Type, c.ObservedGeneration)
				}
			}
		}
		return ""
	}
	await("installed", ready)
	await("the older version's policies are gone", func() string {
		if said := says(); !strings.Contains(said, "the old word") && !strings.Contains(said, "only Muster itself may write "+keys.ReceivedResourceTypeAnnotation) {
			t.Errorf("while they go, she is told: %s", said)
		}
		for _, o := range []client.Object{&admissionregv1.ValidatingAdmissionPolicy{}, &admissionregv1.ValidatingAdmissionPolicyBinding{}} {
			if err := get(o, "", admission.PolicyPodIdentity); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("%T is there (%v)", o, err)
			}
		}
		return ""
	})
	await("the new ones alone guard", func() string {
		said := says()
		if !strings.Contains(said, "ValidatingAdmissionPolicy '"+admission.PolicyPods+"'") && !strings.Contains(said, "the old word") {
			t.Errorf("after they have gone, she is told: %s", said)
		}
		if strings.Contains(said, "the old word") { // the API server has not heard yet that they went
			return said
		}
		return ""
	})

	// A drift is repaired; what others added besides stays.
	deployment := &appsv1.Deployment{}
	must(get(deployment, home, "muster-binder"))
	deployment.Spec.Template.Spec.Containers[0].Image = "elsewhere/x:1"
	deployment.Labels["team"] = "a"
	must(c.Update(t.Context(), deployment))
	role2 := &rbacv1.ClusterRole{}
	must(get(role2, "", "muster-queue"))
	role2.Rules = append(role2.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})
	must(c.Update(t.Context(), role2))
	must(c.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "admission"}}))
	rules := len(install.Rules(install.Queue).Cluster)
	await("drift repaired", func() string {
		if err := get(deployment, home, "muster-binder"); err != nil || deployment.Spec.Template.Spec.Containers[0].Image != "registry.example/muster:v1" {
			return fmt.Sprintf("%v, image %s", err, deployment.Spec.Template.Spec.Containers[0].Image)
		}
		if err := get(role2, "", "muster-queue"); err != nil || len(role2.Rules) != rules {
			return fmt.Sprintf("%v, %d rules, want %d", err, len(role2.Rules), rules)
		}
		if err := get(&corev1.Service{}, home, "admission"); err != nil {
			return err.Error()
		}
		return ""
	})
	if deployment.Labels["team"] != "a" {
		t.Error("the repair took away somebody else's label")
	}

	// Shards come and go; one cannot run.
	must(c.Create(t.Context(), shard("second", func(s *kaiv1.SchedulingShardSpec) {
		s.UsageDBConfig = &kaiv1.UsageDBConfig{ClientType: kaiv1.UsageClientEmbedded, UsageParams: &kaiv1.UsageParams{ExtraParams: map[string]string{"persistentVolumeClaimSize": "1024Mi"}}}
	})))
	must(c.Create(t.Context(), shard("history", func(s *kaiv1.SchedulingShardSpec) {
		s.UsageDBConfig = &kaiv1.UsageDBConfig{ClientType: kaiv1.UsageClientEmbedded, UsageParams: &kaiv1.UsageParams{ExtraParams: map[string]string{"persistentVolumeClaimSize": "2048Mi"}}}
	})))
	must(c.Create(t.Context(), shard("broken", func(s *kaiv1.SchedulingShardSpec) { s.QueueDepthPerAction = map[string]int{"nosuch": 1} })))
	await("a shard more, and one broken", func() string {
		for _, name := range []string{"second", "history"} {
			if err := get(&appsv1.Deployment{}, home, "muster-scheduler-"+name); err != nil {
				return err.Error()
			}
			if err := get(&corev1.PersistentVolumeClaim{}, home, "muster-scheduler-"+name+"-usage"); err != nil {
				return err.Error()
			}
		}
		var s kaiv1.SchedulingShard
		if err := get(&s, "", "broken"); err != nil {
			return err.Error()
		}
		if got := condition(s.Status.Conditions, kaiv1.ConditionReady); !strings.Contains(got, `False not_ready: spec.queueDepthPerAction: "nosuch"`) {
			return "broken is Ready=" + got
		}
		return ""
	})
	must(c.Delete(t.Context(), shard("second", nil)))
	gone := func(objects ...client.Object) func() string {
		return func() string {
			for _, o := range objects {
				if err := get(o, o.GetNamespace(), o.GetName()); !apierrors.IsNotFound(err) {
					return fmt.Sprintf("%T %s is there (%v)", o, o.GetName(), err)
				}
			}
			return ""
		}
	}
	named := func(o client.Object, namespace, name string) client.Object {
		o.SetNamespace(namespace)
		o.SetName(name)
		return o
	}
	await("a shard less", gone(
		named(&appsv1.Deployment{}, home, "muster-scheduler-second"), named(&corev1.ConfigMap{}, home, "muster-scheduler-second"),
		named(&corev1.Service{}, home, "muster-scheduler-second"),
	))

	// What its scheduler knew of the past stays.
	must(get(&corev1.PersistentVolumeClaim{}, home, "muster-scheduler-second-usage"))

	// A component is switched off.
	must(get(config, "", kaiv1.ConfigName))
	before := config.DeepCopy()
	config.Spec.PodGrouper = &kaiv1.PodGrouper{Service: &kaiv1.Service{Enabled: ptr.To(false)}}
	must(c.Patch(t.Context(), config, client.MergeFrom(before)))
	await("a component less", gone(named(&appsv1.Deployment{}, home, "muster-podgrouper"), named(&rbacv1.ClusterRole{}, "", "muster-podgrouper")))
	await("ready again", ready)

	// A changed shard says who decides until the change is in force.
	var changed kaiv1.SchedulingShard
	must(get(&changed, "", "default"))
	old := changed.DeepCopy()
	changed.Spec.KValue = ptr.To(2.0)
	must(c.Patch(t.Context(), &changed, client.MergeFrom(old)))
	inForce := func() string {
		var s kaiv1.SchedulingShard
		if err := get(&s, "", "default"); err != nil {
			return err.Error()
		}
		for _, c := range s.Status.Conditions {
			if c.Type == conditionInForce && c.ObservedGeneration == s.Generation && c.Status == metav1.ConditionTrue {
				return ""
			}
		}
		return "SettingsInForce=" + condition(s.Status.Conditions, conditionInForce)
	}
	await("a change is in force", inForce)

	// With KAI's names and several replicas, a scheduler's Service leads to the pod that leads.
	must(get(config, "", kaiv1.ConfigName))
	before = config.DeepCopy()
	config.Annotations = map[string]string{install.AnnotationKAINames: "true"}
	config.Spec.Scheduler = &kaiv1.Scheduler{Replicas: ptr.To[int32](2)}
	must(c.Patch(t.Context(), config, client.MergeFrom(before)))
	await("KAI's names", ready)
	var pods corev1.PodList
	must(c.List(t.Context(), &pods, client.InNamespace(home), client.MatchingLabels{install.LabelApp: "kai-scheduler-default"}))
	if len(pods.Items) != 2 {
		t.Fatalf("%d schedulers", len(pods.Items))
	}
	leads := func(want string) func() string {
		return func() string {
			var slices discoveryv1.EndpointSliceList
			if err := c.List(t.Context(), &slices, client.InNamespace(home), client.MatchingLabels{discoveryv1.LabelServiceName: "kai-scheduler-default"}); err != nil {
				return err.Error()
			}
			var got []string
			for _, s := range slices.Items {
				for _, e := range s.Endpoints {
					got = append(got, s.Name+" "+e.TargetRef.Name+" "+e.Addresses[0])
				}
			}
			if strings.Join(got, ", ") != want {
				return fmt.Sprintf("the Service leads to %q, want %q", got, want)
			}
			return ""
		}
	}
	await("nobody leads", leads(""))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "kai-scheduler"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(pods.Items[0].Name + "_x")}}
	must(c.Create(t.Context(), lease))
	await("the first leads", leads("kai-scheduler-default-leader "+pods.Items[0].Name+" "+pods.Items[0].Status.PodIP))
	lease.Spec.HolderIdentity = ptr.To(pods.Items[1].Name + "_y")
	must(c.Update(t.Context(), lease))
	await("the second leads", leads("kai-scheduler-default-leader "+pods.Items[1].Name+" "+pods.Items[1].Status.PodIP))
	must(get(config, "", kaiv1.ConfigName))
	before = config.DeepCopy()
	config.Annotations, config.Spec.Scheduler = nil, nil
	must(c.Patch(t.Context(), config, client.MergeFrom(before)))
	await("our names", ready)
	await("all is told of the shard that cannot run", func() string { // or the process is stopped before it has told the last of it
		var s kaiv1.SchedulingShard
		if err := get(&s, "", "history"); err != nil {
			return err.Error()
		}
		if got := condition(s.Status.Conditions, kaiv1.ConditionReady); !strings.Contains(got, "has no volume yet") || !strings.Contains(got, "has 0 of 1 pods ready") {
			return "history is Ready=" + got
		}
		return ""
	})

	// At rest nothing is written: not by a second look, nor by the first of a new process.
	stop()
	w := newAPIClient(role, func() {})
	looking, endLooking := context.WithCancel(t.Context())
	defer endLooking()
	must(w.open(looking))
	var writes []string
	r := &reconciler{api: w.api(), warned: map[string]string{}}
	apply := r.apply
	r.apply = func(ctx context.Context, o object) error {
		writes = append(writes, "apply "+name(o))
		return apply(ctx, o)
	}
	set := r.setConditions
	r.setConditions = func(ctx context.Context, o client.Object, conditions []metav1.Condition) error {
		writes = append(writes, "conditions of "+o.GetName())
		return set(ctx, o, conditions)
	}
	for range 2 {
		if _, err := r.reconcile(looking); err != nil {
			t.Error(err)
		}
	}
	endLooking()
	w.close()
	if len(writes) > 0 {
		t.Errorf("at rest: %v", writes)
	}

	// The Config goes, and all that it asked for, without the operator. What running gangs need stays, and what is not ours.
	must(get(config, "", kaiv1.ConfigName))
	must(c.Delete(t.Context(), config))
	await("uninstalled", func() string {
		var deployments appsv1.DeploymentList
		var roles rbacv1.ClusterRoleList
		ours := client.MatchingLabels{install.LabelManagedBy: install.Manager}
		if err := c.List(t.Context(), &deployments, ours); err != nil || len(deployments.Items) > 0 {
			return fmt.Sprintf("%v, %d Deployments", err, len(deployments.Items))
		}
		if err := c.List(t.Context(), &roles, ours); err != nil || len(roles.Items) > 0 {
			return fmt.Sprintf("%v, %d ClusterRoles", err, len(roles.Items))
		}
		return ""
	})
	must(get(&corev1.PersistentVolumeClaim{}, home, "muster-scheduler-history-usage"))
	must(get(&corev1.Namespace{}, "", "kai-resource-reservation"))
	must(get(&corev1.ServiceAccount{}, "kai-resource-reservation", "kai-resource-reservation"))
	must(get(&corev1.ConfigMap{}, home, "foreign"))
	close(events)
	var said []string
	for e := range events {
		said = append(said, e)
	}
	for _, want := range []string{
		"kai-config Applied: Deployment kai-scheduler/muster-binder was not as it should be",
		"kai-config Removed: Deployment kai-scheduler/muster-scheduler-second is not asked for any more",
		"default SettingsRollingOut: generation 2 is rolled out: ",
		"default SettingsInForce: the scheduler decides by generation 2",
	} {
		if !slices.ContainsFunc(said, func(e string) bool { return strings.HasPrefix(e, want) }) {
			t.Errorf("no event %q among %q", want, said)
		}
	}
}
