package install

import (
	"fmt"
	"strings"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/controllers/admission"
)

// admission renders the role that answers the API server's questions, the Service by which it is asked, and the webhook
// configurations. What these trust is written into them by the role itself.
func (r *renderer) admission(a *kaiv1.Admission) {
	if !*a.Service.Enabled {
		return
	}
	hami := ptr.Deref(r.binderPlugins(&kaiv1.Binder{Plugins: hamicore(r.spec.Binder.Plugins), VolumeBindingTimeoutSeconds: ptr.To(1)})["hamicore"].Enabled, false)
	o := r.admissionOptions(a)
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
	f.set("queue-webhook-configuration", r.webhookNames()[2])
	f.set("podgroup-webhook-configuration", r.webhookNames()[3])
	f.set("enable-webhook", o.QueueWebhook != "")
	f.set("enable-podgroup-webhook", o.PodGroupWebhook != "")
	f.set("identity", o.Identity)
	f.set("authorize-queues", o.AuthorizeQueues)
	f.set("forbid-foreign-gpus", o.ForbidForeignGPUs)
	if o.KAINames {
		f.set("kai-names", true)
	}
	if names := r.values(Admission, "volcano-scheduler-name"); len(names) > 0 {
		o.Volcano = names // the flag is among those that the role is given besides
	}
	if len(o.Trusted) > 0 {
		f.set("trusted-users", strings.Join(o.Trusted, ","))
	}
	f.set("queue-label-key", o.QueueLabel)
	f.set("resource-reservation-app-label", o.ReservationApp)
	f.set("resource-reservation-namespace", o.TrustedNamespaces[0])
	f.set("webhook-secret", AdmissionSecret)
	r.account(Admission)
	w := &workload{
		role: Admission, name: r.name(Admission), path: "spec.admission", service: a.Service, client: limits(a.Service), replicas: *a.Replicas, vpa: a.VPA, args: f,
		ports: []corev1.ContainerPort{port(PortWebhook, *a.Webhook.TargetPort)},
	}
	if name := r.notes[AnnotationClientCA]; name != "" {
		const volume, at = "webhook-clients", "/etc/muster/webhook-clients"
		w.args = append(w.args, "--webhook-client-ca-file="+at+"/"+corev1.ServiceAccountRootCAKey)
		w.volumes = append(w.volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name},
		}}})
		w.mounts = append(w.mounts, corev1.VolumeMount{Name: volume, MountPath: at, ReadOnly: true})
	}
	r.usual(w, *a.Webhook.MetricsPort, *a.Webhook.ProbePort)
	r.inFront(w, AdmissionService, corev1.ServiceSpec{Ports: []corev1.ServicePort{
		servicePort(PortWebhook, *a.Webhook.Port, PortWebhook), servicePort(PortMetrics, *a.Webhook.MetricsPort, PortMetrics),
	}}, nil)
	r.webhooks(&o, a)
}

// hamicore is what Config says of that plugin alone.
func hamicore(plugins map[string]kaiv1.PluginConfig) map[string]kaiv1.PluginConfig {
	if p, ok := plugins["hamicore"]; ok {
		return map[string]kaiv1.PluginConfig{"hamicore": p}
	}
	return nil
}

// webhookNames are the configurations that the role may complete.
func (r *renderer) webhookNames() []string {
	a := r.spec.Admission
	return []string{
		*a.MutatingWebhookConfigurationName, *a.ValidatingWebhookConfigurationName,
		*r.spec.QueueController.Webhooks.WebhookConfigurationNamePrefix + "v2", *r.spec.PodGroupController.Webhooks.WebhookConfigurationNamePrefix + "v2alpha2",
	}
}

// admissionOptions are what the role is told by its flags, as far as the API server has to know it, too.
func (r *renderer) admissionOptions(a *kaiv1.Admission) admission.Options {
	g, names := r.spec.Global, r.webhookNames()
	o := admission.DefaultOptions()
	o.SchedulerNames, o.Namespace, o.QueueLabel = []string{*g.SchedulerName}, r.spec.Namespace, r.queueKey()
	o.Mutating, o.Validating, o.QueueWebhook, o.PodGroupWebhook = names[0], names[1], names[2], names[3]
	if !*r.spec.QueueController.Webhooks.EnableValidation {
		o.QueueWebhook = ""
	}
	if !*r.spec.PodGroupController.Webhooks.EnableValidation {
		o.PodGroupWebhook = ""
	}
	o.NamespaceSelector, o.PodSelector, o.QueueLabelSelector = g.NamespaceLabelSelector, g.PodLabelSelector, *a.QueueLabelSelector
	reserved := r.spec.Binder.ResourceReservation
	o.ReservationApp, o.TrustedNamespaces = *reserved.AppLabel, []string{*reserved.Namespace}
	o.OwnNamespaces = []string{*reserved.Namespace, *r.spec.NodeScaleAdjuster.Args.NodeScaleNamespace}
	o.KAINames, o.GuardDevices = r.kaiNames(), *a.BlockNvidiaVisibleDevices || r.given(Admission, "block-nvidia-visible-devices", "authorize-queues")
	r.guards(&o)
	return o
}

// guards reads what the Config's annotations say of identity and queues. What cannot be understood is the safe thing, not the
// weak one: whoever wrote it wanted a guard.
func (r *renderer) guards(o *admission.Options) {
	switch mode := admission.Mode(r.notes[AnnotationIdentity]); mode {
	case admission.Off, admission.Warn, admission.Enforce:
		o.Identity = mode
	case "":
	default:
		r.warn("metadata.annotations."+AnnotationIdentity, "is %q, must be off, warn or enforce; it is %s", mode, o.Identity)
	}
	switch value := r.notes[AnnotationForbidForeignGPUs]; value {
	case "true":
		o.ForbidForeignGPUs = true
	case "", "false":
	default:
		o.ForbidForeignGPUs = true
		r.warn("metadata.annotations."+AnnotationForbidForeignGPUs, "is %q, must be true or false; GPU pods of other schedulers are refused", value)
	}
	switch value := r.notes[AnnotationAuthorizeQueues]; value {
	case "true":
		o.AuthorizeQueues = true
	case "", "false":
	default:
		o.AuthorizeQueues = true
		r.warn("metadata.annotations."+AnnotationAuthorizeQueues, "is %q, must be true or false; queues are authorized", value)
	}
	for user := range strings.SplitSeq(r.notes[AnnotationTrustedUsers], ",") {
		if user = strings.TrimSpace(user); user != "" {
			o.Trusted = append(o.Trusted, user)
		}
	}
}

// webhooks renders what the API server has to be told: the role's own configurations and policies.
func (r *renderer) webhooks(o *admission.Options, a *kaiv1.Admission) {
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

// aim makes a webhook's address that of the Service.
func (r *renderer) aim(c *admissionregv1.WebhookClientConfig, a *kaiv1.Admission) {
	if c.Service == nil {
		panic(fmt.Sprintf("a webhook without a Service: %v", c.URL)) // no URL is ever set here
	}
	c.Service.Name, c.Service.Namespace, c.Service.Port = AdmissionService, r.spec.Namespace, ptr.To(int32(*a.Webhook.Port))
}
