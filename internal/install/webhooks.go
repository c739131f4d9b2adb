package install

import (
	"fmt"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
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
	f.set("enable-webhook", *r.spec.QueueController.Webhooks.EnableValidation)
	f.set("enable-podgroup-webhook", *r.spec.PodGroupController.Webhooks.EnableValidation)
	f.set("queue-webhook-configuration", r.webhookNames()[2])
	f.set("podgroup-webhook-configuration", r.webhookNames()[3])
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

// webhooks renders all that the API server is told of admission: configurations of webhooks, and policies that it enforces
// itself.
func (r *render) webhooks(a *kaiv1.Admission) {
	o := r.judges(a)
	for _, object := range o.Objects(nil) {
		switch c := object.(type) {
		case *admissionregv1.MutatingWebhookConfiguration:
			for i := range c.Webhooks {
				r.aim(&c.Webhooks[i].ClientConfig, a)
			}
		case *admissionregv1.ValidatingWebhookConfiguration:
			for i := range c.Webhooks {
				r.aim(&c.Webhooks[i].ClientConfig, a)
			}
		}
		r.add(Admission, object)
	}
}

// judges is what Config says about who is judged, by what.
func (r *render) judges(a *kaiv1.Admission) admission.Options {
	g, names := r.spec.Global, r.webhookNames()
	o := admission.DefaultOptions()
	o.SchedulerNames, o.Namespace, o.Mutating, o.Validating = []string{*g.SchedulerName}, r.spec.Namespace, names[0], names[1]
	o.QueueWebhook, o.PodGroupWebhook = "", ""
	if *r.spec.QueueController.Webhooks.EnableValidation {
		o.QueueWebhook = names[2]
	}
	if *r.spec.PodGroupController.Webhooks.EnableValidation {
		o.PodGroupWebhook = names[3]
	}
	// As with KAI, the queue's label is looked for at namespaces.
	o.NamespaceSelector, o.PodSelector, o.QueueLabelSelector, o.QueueLabel = g.NamespaceLabelSelector, g.PodLabelSelector, *a.QueueLabelSelector, r.queueKey()
	v := r.spec.Binder.ResourceReservation
	o.ReservationApp, o.TrustedNamespaces = *v.AppLabel, []string{*v.Namespace}
	o.Identity, o.AuthorizeQueues = admission.Mode(*a.Identity), *a.AuthorizeQueues
	return o
}

// aim makes a webhook's address that of the Service.
func (r *render) aim(c *admissionregv1.WebhookClientConfig, a *kaiv1.Admission) {
	if c.Service == nil {
		panic(fmt.Sprintf("a webhook without a Service: %v", c.URL)) // no URL is ever set here
	}
	c.Service.Name, c.Service.Namespace, c.Service.Port = AdmissionService, r.spec.Namespace, ptr.To(int32(*a.Webhook.Port))
}
