package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/controllers/admission"
)

// TestPoliciesFollowConfig: what Config says of identity, of queues and of webhooks decides which policies and webhooks there are.
func TestPoliciesFollowConfig(t *testing.T) {
	t.Parallel()
	judged := func(annotations map[string]string, spec kaiv1.ConfigSpec) map[string]string {
		t.Helper()
		objects, _, err := Render(&kaiv1.Config{ObjectMeta: metav1.ObjectMeta{Name: kaiv1.ConfigName, Annotations: annotations}, Spec: spec}, nil, testEnvironment())
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, o := range objects {
			switch o := o.(type) {
			case *admissionregv1.ValidatingAdmissionPolicyBinding:
				out[o.Name] = fmt.Sprint(o.Spec.ValidationActions)
			case *admissionregv1.ValidatingWebhookConfiguration:
				out[o.Name] = fmt.Sprintf("%s:%d", o.Webhooks[0].ClientConfig.Service.Name, *o.Webhooks[0].ClientConfig.Service.Port)
			}
		}
		return out
	}
	expect := func(got map[string]string, want ...string) {
		t.Helper()
		for _, w := range want {
			if name, value, _ := strings.Cut(w, "="); got[name] != value {
				t.Errorf("%s is %q, want %q", name, got[name], value)
			}
		}
	}
	const queues, groups = admission.DefaultQueueWebhook, admission.DefaultPodGroupWebhook
	expect(judged(nil, kaiv1.ConfigSpec{}), admission.PolicyQueues+"=[Deny]", admission.PolicyAdvice+"=[Warn Audit]",
		admission.PolicyPods+"=[Deny]", admission.PolicyPodIdentity+"=", admission.PolicyQueueLabels+"=", queues+"=admission:443", groups+"=admission:443")
	expect(judged(map[string]string{AnnotationIdentity: "off", AnnotationAuthorizeQueues: "true"}, kaiv1.ConfigSpec{
		Admission:          &kaiv1.Admission{Webhook: &kaiv1.AdmissionWebhook{Port: ptr.To(8443)}},
		QueueController:    &kaiv1.QueueController{Webhooks: &kaiv1.Webhooks{EnableValidation: ptr.To(false)}},
		PodGroupController: &kaiv1.PodGroupController{Webhooks: &kaiv1.Webhooks{WebhookConfigurationNamePrefix: ptr.To("mine-")}},
	}), admission.PolicyPodIdentity+"=", admission.PolicyQueueLabels+"=[Deny]", admission.PolicyQueueTemplates+"=[Deny]",
		queues+"=", groups+"=", "mine-v2alpha2=admission:8443")
	expect(judged(map[string]string{AnnotationIdentity: "warn"}, kaiv1.ConfigSpec{}), admission.PolicyRequestIdentity+"=[Warn Audit]",
		admission.PolicyPodIdentity+"=[Warn Audit]", admission.PolicyPods+"=[Deny]") // who is charged, and what our accounts may do
}

// TestRoleIsAskedForItsFlags: a flag by which the role has something to say of every pod has it asked about every pod, also where the flag is not
// Config's.
func TestRoleIsAskedForItsFlags(t *testing.T) {
	t.Parallel()
	guarded := kaiv1.ConfigSpec{Admission: &kaiv1.Admission{BlockNvidiaVisibleDevices: ptr.To(true)}}
	const all, some = "[scheduler-name-match] [scheduler-name-match]", "[scheduler-name-match lacks-something] [scheduler-name-match says-something]"
	for _, c := range []struct {
		roles, want string
		spec        kaiv1.ConfigSpec
	}{
		{want: some},
		{want: all, spec: guarded},
		{roles: `{"admission": {"args": ["--v=2"]}}`, want: some},
		{roles: `{"admission": {"args": ["--block-nvidia-visible-devices=true"]}}`, want: all},
		{roles: `{"all": {"args": ["--authorize-queues"]}}`, want: all},
		{roles: `{"binder": {"args": ["--block-nvidia-visible-devices"]}}`, want: some},
	} {
		objects, _, err := Render(&kaiv1.Config{ObjectMeta: metav1.ObjectMeta{Name: kaiv1.ConfigName, Annotations: map[string]string{AnnotationRoles: c.roles}}, Spec: c.spec}, nil, testEnvironment())
		if err != nil {
			t.Fatal(err)
		}
		names := func(of []admissionregv1.MatchCondition) (out []string) {
			for i := range of {
				out = append(out, of[i].Name)
			}
			return out
		}
		var got string
		for _, o := range objects {
			switch o := o.(type) {
			case *admissionregv1.MutatingWebhookConfiguration:
				got = fmt.Sprint(names(o.Webhooks[0].MatchConditions))
			case *admissionregv1.ValidatingWebhookConfiguration:
				if o.Name == admission.DefaultValidating {
					got += " " + fmt.Sprint(names(o.Webhooks[0].MatchConditions))
				}
			}
		}
		if got != c.want {
			t.Errorf("with %s: asked if %s, want %s", c.roles, got, c.want)
		}
	}
}

// TestVolcanoIsTold: where the admission role is told of Volcano's face, so is the API server: its two configurations ask the role's Service. Elsewhere there is nothing of it.
func TestVolcanoIsTold(t *testing.T) {
	t.Parallel()
	for roles, want := range map[string]int{`{"admission": {"args": ["--volcano-scheduler-name=volcano,vc"]}}`: 2, `{"scheduler": {"args": ["--volcano-scheduler-name=volcano"]}}`: 0, "": 0} {
		objects, _, err := Render(&kaiv1.Config{ObjectMeta: metav1.ObjectMeta{Name: kaiv1.ConfigName, Annotations: map[string]string{AnnotationRoles: roles}}}, nil, testEnvironment())
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, o := range objects {
			switch o := o.(type) {
			case *admissionregv1.ValidatingWebhookConfiguration:
				if o.Name == admission.VolcanoWebhook {
					got++
					if s := o.Webhooks[0].ClientConfig.Service; s == nil || s.Name != AdmissionService {
						t.Errorf("%+v", o.Webhooks[0].ClientConfig)
					}
				}
			case *admissionregv1.MutatingWebhookConfiguration:
				if o.Name == admission.VolcanoWebhook {
					got++
				}
			}
		}
		if got != want {
			t.Errorf("with %s: %d objects about Volcano's kinds, want %d", roles, got, want)
		}
	}
}

// TestWebhookClients: the ConfigMap that a Config names says whom the admission role answers.
func TestWebhookClients(t *testing.T) {
	t.Parallel()
	objects, _, err := Render(&kaiv1.Config{ObjectMeta: metav1.ObjectMeta{Name: kaiv1.ConfigName, Annotations: map[string]string{AnnotationClientCA: "callers"}}}, nil, testEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		d, ok := o.(*appsv1.Deployment)
		if !ok || d.Name != Name(Admission) {
			continue
		}
		pod := d.Spec.Template.Spec
		if v := pod.Volumes; len(v) != 1 || v[0].ConfigMap.Name != "callers" || pod.Containers[0].VolumeMounts[0].MountPath != "/etc/muster/webhook-clients" ||
			!slices.Contains(pod.Containers[0].Args, "--webhook-client-ca-file=/etc/muster/webhook-clients/ca.crt") {
			t.Errorf("volumes %v, arguments %v", v, pod.Containers[0].Args)
		}
		return
	}
	t.Error("there is no admission role")
}

// TestGuardsThatNobodyUnderstands: a value that is none is told, and the guard stands.
func TestGuardsThatNobodyUnderstands(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, value, want, said string }{
		{AnnotationIdentity, "Enforce", "--identity=enforce", `is "Enforce", must be off, warn or enforce; it is enforce`},
		{AnnotationIdentity, "none", "--identity=enforce", `is "none"`},
		{AnnotationIdentity, " off", "--identity=enforce", `is " off"`},
		{AnnotationAuthorizeQueues, "True", "--authorize-queues=true", `is "True", must be true or false; queues are authorized`},
		{AnnotationAuthorizeQueues, "yes", "--authorize-queues=true", `is "yes"`},
		{AnnotationAuthorizeQueues, "false", "--authorize-queues=false", ""},
		{AnnotationTrustedUsers, "root@example.com, fixer,", "--trusted-users=root@example.com,fixer", ""},
	} {
		objects, warnings, err := Render(&kaiv1.Config{ObjectMeta: metav1.ObjectMeta{Name: kaiv1.ConfigName, Annotations: map[string]string{c.key: c.value}}}, nil, testEnvironment())
		if err != nil {
			t.Fatal(err)
		}
		roles := map[string][]string{}
		for _, o := range objects {
			if d, ok := o.(*appsv1.Deployment); ok {
				roles[d.Name] = d.Spec.Template.Spec.Containers[0].Args
			}
		}
		of := []string{Admission}
		if c.key == AnnotationAuthorizeQueues {
			of = append(of, PodGrouper)
		}
		for _, role := range of {
			if !slices.Contains(roles[Name(role)], c.want) {
				t.Errorf("%s: %q: role %s gets %v, want %s", c.key, c.value, role, roles[Name(role)], c.want)
			}
		}
		var said []string
		for _, w := range warnings {
			if w.Field == "metadata.annotations."+c.key {
				said = append(said, w.Rule)
			}
		}
		if (len(said) == 1) != (c.said != "") || c.said != "" && !strings.HasPrefix(said[0], c.said) {
			t.Errorf("%s: %q: said %q, want %q", c.key, c.value, said, c.said)
		}
	}
}

// TestAccounts: the policies about our own accounts call them what the installation calls them.
func TestAccounts(t *testing.T) {
	t.Parallel()
	for role, account := range map[string]string{
		Exporter: admission.AccountExporter, Binder: admission.AccountBinder, PodGrouper: admission.AccountPodGrouper, PodGroup: admission.AccountPodGroup, NodeScale: admission.AccountNodeScale,
		Queue: admission.AccountQueue, Scheduler: admission.AccountScheduler, Operator: admission.AccountOperator, Admission: admission.AccountAdmission,
	} {
		if Name(role) != account {
			t.Errorf("the account of %s is %s, not %s", role, Name(role), account)
		}
	}
	if admission.AccountOperator != Manager {
		t.Errorf("the operator writes as %s, not as %s", Manager, admission.AccountOperator)
	}
}
