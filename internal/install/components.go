package install

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/controllers/admission"
)

// The functions of this file turn one section of Config each into a role's command line, and say so where a field has no
// effect.

// text renders a map as k=v,k=v, in the order of its keys.
func text(m map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+"="+m[k])
	}
	return strings.Join(parts, ",")
}

// flags collects those of a role's flags that have a value.
type flags []string

func (f *flags) set(name string, value any) { *f = append(*f, fmt.Sprintf("--%s=%v", name, value)) }

func (f *flags) text(name string, value *string) {
	if value != nil && *value != "" {
		f.set(name, *value)
	}
}

func (f *flags) number(name string, value *int) {
	if value != nil {
		f.set(name, *value)
	}
}

// json hands over a part of Config as it is; nothing for nil.
func jsonFlag[T any](f *flags, name string, value *T) {
	if value == nil {
		return
	}
	body, err := json.Marshal(value)
	if err != nil {
		panic(err) // types of the API
	}
	f.set(name, string(body))
}

func (r *renderer) podGrouper(p *kaiv1.PodGrouper) {
	if !*p.Service.Enabled {
		return
	}
	g := r.spec.Global
	var f flags
	f.set("scheduler-name", *g.SchedulerName)
	f.set("queue-label-key", r.queueKey())
	f.set("nodepool-label-key", r.poolKey())
	if p.Args.GangScheduleKnative != nil {
		f.set("knative-gang-schedule", *p.Args.GangScheduleKnative)
	}
	f.set("generic-karta-fallback", *p.Args.GenericKartaFallback)
	name, space := ptr.Deref(p.Args.DefaultPrioritiesConfigMapName, ""), ptr.Deref(p.Args.DefaultPrioritiesConfigMapNamespace, "")
	switch {
	case name != "" && space != "":
		f.set("default-priorities-configmap-name", name)
		f.set("default-priorities-configmap-namespace", space)
		r.priorities(space, name)
	case name != "":
		r.warn("spec.podGrouper.args.defaultPrioritiesConfigMapName", "has no effect without defaultPrioritiesConfigMapNamespace")
	case space != "":
		r.warn("spec.podGrouper.args.defaultPrioritiesConfigMapNamespace", "has no effect without defaultPrioritiesConfigMapName")
	}
	if a := r.spec.Admission; *a.Service.Enabled {
		o := admission.Options{}
		(&renderer{notes: r.notes}).guards(&o) // warned of where the admission role is rendered
		f.set("authorize-queues", o.AuthorizeQueues)
	}
	if len(g.PodLabelSelector) > 0 {
		f.set("pod-label-selector", text(g.PodLabelSelector))
	}
	if len(g.NamespaceLabelSelector) > 0 {
		f.set("namespace-label-selector", text(g.NamespaceLabelSelector))
	}
	f.number("max-concurrent-reconciles", p.MaxConcurrentReconciles)
	if p.Service.K8sClientConfig != nil {
		r.warn("spec.podGrouper.service.k8sClientConfig", "has no effect: spec.podGrouper.k8sClientConfig counts")
	}
	r.account(PodGrouper)
	w := &workload{
		role: PodGrouper, name: r.name(PodGrouper), path: "spec.podGrouper", service: p.Service, client: p.K8sClientConfig, replicas: *p.Replicas, vpa: p.VPA, args: f,
	}
	r.usual(w, MetricsPort, ProbePort)
}

// priorities lets the podgrouper read the ConfigMap of default priorities.
func (r *renderer) priorities(namespace, name string) {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: Name(PodGrouper) + "-priorities"}
	v := rbacv1.SchemeGroupVersion.String()
	r.add(PodGrouper, &rbacv1.Role{
		TypeMeta: kind(v, "Role"), ObjectMeta: meta, Rules: []rbacv1.PolicyRule{only([]string{name}, rule(groupCore, []string{"get"}, "configmaps"))},
	})
	r.add(PodGrouper, &rbacv1.RoleBinding{
		TypeMeta: kind(v, "RoleBinding"), ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: r.spec.Namespace, Name: r.name(PodGrouper)}},
	})
}

// usual completes and deploys a component with ports of metrics and of health checks, and a Service of the former.
func (r *renderer) usual(w *workload, metrics, health int) {
	w.args = append(w.args, fmt.Sprintf("--metrics-bind-address=:%d", metrics), fmt.Sprintf("--health-probe-bind-address=:%d", health))
	w.ports, w.probe = append([]corev1.ContainerPort{port(PortMetrics, metrics)}, w.ports...), PortMetrics
	if health != metrics {
		w.ports, w.probe = append(w.ports, port(PortProbes, health)), PortProbes
	}
	r.deploy(w)
	if w.role != Admission { // whose Service has KAI's name, and the webhooks' port
		r.inFront(w, w.name, corev1.ServiceSpec{Ports: []corev1.ServicePort{servicePort(PortMetrics, metrics, PortMetrics)}}, nil)
	}
}

func (r *renderer) binder(b *kaiv1.Binder) {
	if !*b.Service.Enabled {
		return
	}
	v := b.ResourceReservation
	var f flags
	f.set("scheduler-name", *r.spec.Global.SchedulerName)
	f.set("resource-reservation-namespace", *v.Namespace)
	f.set("resource-reservation-service-account", *v.ServiceAccountName)
	f.set("resource-reservation-app-label", *v.AppLabel)
	f.set("resource-reservation-pod-image", r.image("spec.binder.resourceReservation.image", v.Image, NodeProgram))
	if *v.Image.PullPolicy != corev1.PullIfNotPresent {
		r.warn("spec.binder.resourceReservation.image.pullPolicy", "has no effect: it is always IfNotPresent")
	}
	f.number("resource-reservation-allocation-timeout", v.AllocationTimeout)
	jsonFlag(&f, "resource-reservation-pod-resources", v.PodResources)
	jsonFlag(&f, "resource-reservation-pod-security-context", v.ReservationPodSecurityContext)
	jsonFlag(&f, "resource-reservation-container-security-context", v.ReservationContainerSecurityContext)
	f.text("runtime-class-name", v.RuntimeClassName)
	f.set("scale-adjust-namespace", *r.spec.NodeScaleAdjuster.Args.NodeScaleNamespace)
	f.number("max-concurrent-reconciles", b.MaxConcurrentReconciles)
	plugins := r.binderPlugins(b)
	jsonFlag(&f, "plugins", &plugins)
	if r.env.SimulatedGPUs {
		f.set("fake-gpu-nodes", true)
	}
	r.account(Binder)
	r.usual(&workload{
		role: Binder, name: r.name(Binder), path: "spec.binder", service: b.Service, client: limits(b.Service), replicas: *b.Replicas, vpa: b.VPA, args: f,
	}, *b.MetricsPort, *b.ProbePort)
}

// binderPlugins are the binder's plugins, all of them, as KAI's operator names them.
func (r *renderer) binderPlugins(b *kaiv1.Binder) map[string]kaiv1.PluginConfig {
	timeout := map[string]string{"bindTimeoutSeconds": strconv.Itoa(*b.VolumeBindingTimeoutSeconds)}
	cdi := strconv.FormatBool(ptr.Deref(b.CDIEnabled, r.env.CDI))
	out := map[string]kaiv1.PluginConfig{
		"volumebinding":    {Enabled: ptr.To(true), Priority: ptr.To(300), Arguments: timeout},
		"dynamicresources": {Enabled: ptr.To(true), Priority: ptr.To(200), Arguments: maps.Clone(timeout)},
		"gpusharing":       {Enabled: ptr.To(true), Priority: ptr.To(100), Arguments: map[string]string{"cdiEnabled": cdi}},
		"hamicore":         {Enabled: ptr.To(false), Priority: ptr.To(50)},
	}
	for _, name := range slices.Sorted(maps.Keys(b.Plugins)) {
		p, known := out[name]
		if !known {
			r.warn("spec.binder.plugins."+name, "is left out: no plugin is called so; there are %s", strings.Join(slices.Sorted(maps.Keys(out)), ", "))
			continue
		}
		change := b.Plugins[name]
		if change.Enabled != nil {
			p.Enabled = change.Enabled
		}
		if change.Priority != nil {
			p.Priority = change.Priority
		}
		if change.Arguments != nil {
			p.Arguments = maps.Clone(change.Arguments)
			if _, given := p.Arguments["cdiEnabled"]; name == "gpusharing" && !given {
				p.Arguments["cdiEnabled"] = cdi
			}
		}
		out[name] = p
	}
	return out
}

func (r *renderer) podGroup(p *kaiv1.PodGroupController) {
	if !*p.Service.Enabled {
		return
	}
	var f flags
	f.set("scheduler-name", *r.spec.Global.SchedulerName)
	if key := r.queueKey(); key != keys.QueueLabel {
		f.set("queue-label-key", key)
	}
	f.number("max-concurrent-reconciles", p.MaxConcurrentReconciles)
	r.elsewhere("spec.podGroupController.controllerService.webhook", p.ControllerService.Webhook)
	r.account(PodGroup)
	r.usual(&workload{
		role: PodGroup, name: r.name(PodGroup), path: "spec.podGroupController", service: p.Service, client: limits(p.Service), replicas: *p.Replicas, vpa: p.VPA, args: f,
	}, MetricsPort, ProbePort)
}

// elsewhere warns of a webhook port that is not the usual one: all webhooks are the admission role's.
func (r *renderer) elsewhere(field string, p *kaiv1.ServicePort) {
	if *p.Port != WebhookServicePort || *p.TargetPort != WebhookPort || *p.Name != PortWebhook {
		r.warn(field, "has no effect: the role admission serves all webhooks, at the ports of spec.admission.webhook")
	}
}

func (r *renderer) queue(q *kaiv1.QueueController) {
	if !*q.Service.Enabled {
		return
	}
	m := q.ControllerService.Metrics
	var f flags
	f.set("scheduler-name", *r.spec.Global.SchedulerName)
	f.text("metrics-namespace", q.MetricsNamespace)
	f.text("queue-label-to-metric-label", q.QueueLabelToMetricLabel)
	f.text("queue-label-to-default-metric-value", q.QueueLabelToDefaultMetricValue)
	f.set("metrics-listen-address", fmt.Sprintf(":%d", *m.TargetPort))
	r.elsewhere("spec.queueController.controllerService.webhook", q.ControllerService.Webhook)
	r.account(Queue)
	w := &workload{
		role: Queue, name: r.name(Queue), path: "spec.queueController", service: q.Service, client: limits(q.Service), replicas: *q.Replicas, vpa: q.VPA, args: f,
		ports: []corev1.ContainerPort{port(PortQueueMetrics, *m.TargetPort)}, probe: PortQueueMetrics,
	}
	r.deploy(w)
	r.inFront(w, w.name, corev1.ServiceSpec{Ports: []corev1.ServicePort{servicePort(*m.Name, *m.Port, PortQueueMetrics)}}, nil)
}

func (r *renderer) nodeScale(n *kaiv1.NodeScaleAdjuster) {
	if !*n.Service.Enabled {
		return
	}
	var f flags
	f.set("scheduler-name", *r.spec.Global.SchedulerName)
	f.set("scaling-pod-image", r.image("spec.nodeScaleAdjuster.args.scalingPodImage", n.Args.ScalingPodImage, Program))
	if *n.Args.ScalingPodImage.PullPolicy != corev1.PullIfNotPresent {
		r.warn("spec.nodeScaleAdjuster.args.scalingPodImage.pullPolicy", "has no effect: it is always IfNotPresent")
	}
	f.set("scale-adjust-namespace", *n.Args.NodeScaleNamespace)
	f.set("scaling-pod-service-account", *n.Args.NodeScaleServiceAccount)
	if *n.Service.PodDisruptionBudget.Enabled {
		r.warn("spec.nodeScaleAdjuster.service.podDisruptionBudget", "has no effect: there is one replica")
	}
	f.set("nodepool-label-key", r.poolKey())
	if ratio := n.Args.GPUMemoryToFractionRatio; ratio != nil {
		f.set("gpu-memory-to-fraction-ratio", strconv.FormatFloat(*ratio, 'f', -1, 64))
	}
	r.account(NodeScale)
	r.usual(&workload{
		role: NodeScale, name: r.name(NodeScale), path: "spec.nodeScaleAdjuster", service: n.Service, client: limits(n.Service), replicas: 1, vpa: n.VPA, args: f,
	}, MetricsPort, ProbePort)
}

// exporter renders the node agent: if Config says so, or if it does not say and a shard looks at zones.
func (r *renderer) exporter(e *kaiv1.NUMAPlacementExporter) {
	looks := slices.ContainsFunc(r.shards, func(s kaiv1.SchedulingShard) bool {
		p, named := s.Spec.Plugins["numa"]
		return named && ptr.Deref(p.Enabled, true)
	})
	if !ptr.Deref(e.Service.Enabled, looks) {
		return
	}
	g := r.spec.Global
	name := r.name(Exporter)
	const sysfs = "/host/sys"
	var f flags
	f.set("podresources-socket", *e.PodResourcesSocket)
	f.set("sysfs-root", sysfs)
	if e.PollInterval != nil {
		f.set("poll-interval", e.PollInterval.Duration)
	}
	if e.DriftResyncInterval != nil {
		f.set("drift-resync-interval", e.DriftResyncInterval.Duration)
	}
	if c := e.Service.K8sClientConfig; c != nil {
		f.number("qps", c.QPS)
		f.number("burst", c.Burst)
	}
	if *g.JSONLog {
		f.set("zap-devel", false)
	}
	f.set("health-probe-bind-address", fmt.Sprintf(":%d", ProbePort))
	if *e.Service.PodDisruptionBudget.Enabled {
		r.warn("spec.numaPlacementExporter.service.podDisruptionBudget", "has no effect: node agents go with their nodes")
	}
	host := func(name, path string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: ptr.To(corev1.HostPathDirectory)}}}
	}
	extra := r.extra(Exporter, f)
	r.account(Exporter)
	pod := Labels(Exporter)
	maps.Copy(pod, Selector(name))
	r.add(Exporter, &appsv1.DaemonSet{
		TypeMeta: kind("apps/v1", "DaemonSet"), ObjectMeta: metav1.ObjectMeta{Namespace: r.spec.Namespace, Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: Selector(name)}, RevisionHistoryLimit: ptr.To[int32](3),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pod, Annotations: extra.PodAnnotations},
				Spec: corev1.PodSpec{
					ServiceAccountName: name, ImagePullSecrets: r.pullSecrets(), PriorityClassName: g.PriorityClassName,
					NodeSelector: e.NodeSelector, Tolerations: slices.Concat(g.DaemonsetsTolerations, e.Tolerations),
					Affinity: MergeAffinities(e.Service.Affinity, g.Affinity, name, *g.RequireDefaultPodAntiAffinityTerm),
					Volumes:  []corev1.Volume{host("podresources", *e.PodResourcesHostPath), host("sysfs", *e.SysfsHostPath)},
					Containers: []corev1.Container{{
						Name: Exporter, Image: r.image("spec.numaPlacementExporter.service.image", e.Service.Image, NodeProgram), ImagePullPolicy: *e.Service.Image.PullPolicy,
						Args: slices.Concat([]string{Exporter}, f, extra.Args), Resources: corev1.ResourceRequirements(*e.Service.Resources),
						Env: mergeEnv([]corev1.EnvVar{{
							Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.nodeName"}},
						}}, extra.Env),
						Ports: []corev1.ContainerPort{port(PortProbes, ProbePort)}, LivenessProbe: probe("/healthz", PortProbes, 10, 6),
						VolumeMounts: []corev1.VolumeMount{
							{Name: "podresources", MountPath: *e.PodResourcesHostPath, ReadOnly: true}, {Name: "sysfs", MountPath: sysfs, ReadOnly: true},
						},
						// The kubelet's socket is root's.
						SecurityContext: &corev1.SecurityContext{
							RunAsUser: ptr.To[int64](0), RunAsNonRoot: ptr.To(false), AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
							Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
							SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
						},
					}},
				},
			},
		},
	})
}
