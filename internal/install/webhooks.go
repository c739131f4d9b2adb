package install

import (
	"fmt"
	"slices"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/controllers/admission"
)

// admission renders the role that answers the API server's questions, the Service by which it is asked, and the webhook
// configurations. What these trust is written into them by the role itself.
func (r *render) admission(a *kaiv1.Admission) {
	if !*a.Service.Enabled {
		return
	}
	hami := ptr.Deref(r.binderPlugins(&kaiv1.Binder{Plugins: hamicore(r.spec.Binder.Plugins), VolumeBindingTimeoutSeconds: ptr.To(1)})["hamicore"].Enabled, false)
	var f flags
	f.set("scheduler-name", *r.spec.Global.SchedulerName)
	f.set("webhook-addr", *a.Webhook.TargetPort)
	f.set("gpu-sharing-enabled", *a.GPUSharing)
	f.set("hami-core-enabled", hami)
	f.set("block-nvidia-visible-devices", *a.BlockNvidiaVisibleDevices)
	if a.GPUFractionRuntimeClassName != nil {
		f.set("gpu-fraction-runtime-class-name", *a.GPUFractionRuntimeClassName)
	}
	if a.GPUPodRuntimeClassName != nil {
		f.set("gpu-pod-runtime-class-name", *a.GPUPodRuntimeClassName)
		if a.GPUFractionRuntimeClassName != nil {
			r.warn("spec.admission.gpuPodRuntimeClassName", "has no effect beside gpuFractionRuntimeClassName")
		}
	}
	f.set("mutating-webhook-configuration", *a.MutatingWebhookConfigurationName)
	f.set("validating-webhook-configuration", *a.ValidatingWebhookConfigurationName)
	f.set("webhook-secret", AdmissionSecret)
	r.account(Admission)
	w := &workload{
		role: Admission, name: Name(Admission), path: "spec.admission", service: a.Service, client: limits(a.Service), replicas: *a.Replicas, vpa: a.VPA, args: f,
		ports: []corev1.ContainerPort{port(PortWebhook, *a.Webhook.TargetPort)},
	}
	r.usual(w, *a.Webhook.MetricsPort, *a.Webhook.ProbePort)
	r.inFront(w, AdmissionService, corev1.ServiceSpec{Ports: []corev1.ServicePort{
		servicePort(PortWebhook, *a.Webhook.Port, PortWebhook), servicePort(PortMetrics, *a.Webhook.MetricsPort, PortMetrics),
	}}, nil)
	r.webhooks(a)
}

// hamicore is what Config says of that plugin alone.
func hamicore(plugins map[string]kaiv1.PluginConfig) map[string]kaiv1.PluginConfig {
	if p, ok := plugins["hamicore"]; ok {
		return map[string]kaiv1.PluginConfig{"hamicore": p}
	}
	return nil
}

// webhookNames are the configurations that the role may complete.
func (r *render) webhookNames() []string {
	a := r.spec.Admission
	return []string{
		*a.MutatingWebhookConfigurationName, *a.ValidatingWebhookConfigurationName,
		*r.spec.QueueController.Webhooks.WebhookConfigurationNamePrefix + "v2", *r.spec.PodGroupController.Webhooks.WebhookConfigurationNamePrefix + "v2alpha2",
	}
}

// webhooks renders the configurations: the role's own, narrowed down to what Config says is ours.
func (r *render) webhooks(a *kaiv1.Admission) {
	o := admission.DefaultOptions()
	o.SchedulerNames, o.Namespace = []string{*r.spec.Global.SchedulerName}, r.spec.Namespace
	o.Mutating, o.Validating = *a.MutatingWebhookConfigurationName, *a.ValidatingWebhookConfigurationName
	mutating, validating := o.Webhooks(nil)
	about := func(rules []admissionregv1.RuleWithOperations) bool { // pods
		return slices.ContainsFunc(rules, func(rule admissionregv1.RuleWithOperations) bool { return slices.Contains(rule.Resources, "pods") })
	}
	for i := range mutating.Webhooks {
		h := &mutating.Webhooks[i]
		r.aim(&h.ClientConfig, a)
		if about(h.Rules) {
			r.narrow(h.NamespaceSelector, h.ObjectSelector, a)
		}
	}
	for i := range validating.Webhooks {
		h := &validating.Webhooks[i]
		r.aim(&h.ClientConfig, a)
		if about(h.Rules) {
			r.narrow(h.NamespaceSelector, h.ObjectSelector, a)
		}
	}
	version := admissionregv1.SchemeGroupVersion.String()
	mutating.TypeMeta, validating.TypeMeta = kind(version, "MutatingWebhookConfiguration"), kind(version, "ValidatingWebhookConfiguration")
	r.add(Admission, mutating)
	r.add(Admission, validating)
}

// aim makes a webhook's address that of the Service.
func (r *render) aim(c *admissionregv1.WebhookClientConfig, a *kaiv1.Admission) {
	if c.Service == nil {
		panic(fmt.Sprintf("a webhook without a Service: %v", c.URL)) // no URL is ever set here
	}
	c.Service.Name, c.Service.Namespace, c.Service.Port = AdmissionService, r.spec.Namespace, ptr.To(int32(*a.Webhook.Port))
}

// narrow has a webhook asked only about pods of namespaces, and with labels, that Config names. As with KAI, the queue's label
// is looked for at namespaces.
func (r *render) narrow(namespaces, objects *metav1.LabelSelector, a *kaiv1.Admission) {
	g := r.spec.Global
	if len(g.NamespaceLabelSelector) > 0 {
		namespaces.MatchLabels = g.NamespaceLabelSelector
	}
	if *a.QueueLabelSelector {
		namespaces.MatchExpressions = append(namespaces.MatchExpressions, metav1.LabelSelectorRequirement{Key: r.queueKey(), Operator: metav1.LabelSelectorOpExists})
	}
	if len(g.PodLabelSelector) > 0 {
		objects.MatchLabels = g.PodLabelSelector
	}
}
