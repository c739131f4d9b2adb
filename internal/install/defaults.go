package install

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// def gives a field that is unset its default.
func def[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// part is a part of a spec, made if it is not there.
func part[T any](field **T) *T {
	if *field == nil {
		*field = new(T)
	}
	return *field
}

// Defaulted is a copy of a Config's spec in which every field that KAI's operator has a default for has a value. Muster's own are
// the names of images, of which there are two; calls to the API server and CPU, which nothing limits unless it is said; and
// admission, of which there are two with a budget, since pods wait for its answer.
func Defaulted(c *kaiv1.Config) *kaiv1.ConfigSpec {
	s := c.Spec.DeepCopy()
	if s.Namespace == "" {
		s.Namespace = keys.Namespace
	}
	defaultGlobal(part(&s.Global))
	g := s.Global
	defaultQueue(part(&s.QueueController), g)
	defaultBinder(part(&s.Binder), g)
	defaultPodGrouper(part(&s.PodGrouper), g)
	defaultScheduler(part(&s.Scheduler), g)
	defaultPodGroup(part(&s.PodGroupController), g)
	defaultAdmission(part(&s.Admission), g)
	defaultNodeScale(part(&s.NodeScaleAdjuster), g)
	defaultPrometheus(part(&s.Prometheus))
	defaultExporter(part(&s.NUMAPlacementExporter))
	return s
}

func defaultGlobal(g *kaiv1.GlobalConfig) {
	vpa := part(&g.VPA)
	def(&vpa.Enabled, false)
	def(&part(&vpa.UpdatePolicy).UpdateMode, "InPlaceOrRecreate")
	def(&g.Openshift, false)
	def(&g.RequireDefaultPodAntiAffinityTerm, false)
	sec := part(&g.SecurityContext)
	def(&sec.AllowPrivilegeEscalation, false)
	def(&sec.RunAsNonRoot, true)
	def(&sec.RunAsUser, 10000)
	def(&sec.ReadOnlyRootFilesystem, true)
	if sec.SeccompProfile == nil {
		sec.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	if caps := part(&sec.Capabilities); len(caps.Drop) == 0 {
		caps.Drop = []corev1.Capability{"ALL"} // KAI writes "all", which the profile restricted does not know
	}
	if name := ptr.Deref(g.ImagesPullSecret, ""); name != "" && !slices.Contains(g.AdditionalImagePullSecrets, name) {
		g.AdditionalImagePullSecrets = append(g.AdditionalImagePullSecrets, name)
	}
	g.ImagesPullSecret = nil
	def(&g.QueueLabelKey, keys.QueueLabel)
	def(&g.SchedulerName, keys.SchedulerName)
	def(&g.NodePoolLabelKey, keys.NodePoolLabel)
	def(&g.JSONLog, false)
}

// sizes are requests of CPU and memory, and limits of memory.
//
// There is no limit of CPU: a role that is idle has much to do at once when a thousand pods come, and would be stopped nine tenths of
// that time by KAI's 100m on a node that has nothing else to do. What it asks for is its share when the node is busy.
type sizes struct{ cpu, memory, maxMemory string }

var usualSizes = sizes{"50m", "256Mi", "512Mi"}

// defaultService fills in how a component is deployed. Whether the NUMA exporter is, stays open.
func defaultService(s *kaiv1.Service, program string, z sizes) {
	if program != NodeProgram {
		def(&s.Enabled, true)
	}
	defaultImage(part(&s.Image), program)
	r := part(&s.Resources)
	fill := func(list *corev1.ResourceList, name corev1.ResourceName, value string) {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		if _, ok := (*list)[name]; !ok && value != "" {
			(*list)[name] = resource.MustParse(value)
		}
	}
	for _, d := range []struct {
		name      corev1.ResourceName
		low, high string
	}{{corev1.ResourceCPU, z.cpu, ""}, {corev1.ResourceMemory, z.memory, z.maxMemory}} {
		_, asked := r.Requests[d.name]
		fill(&r.Requests, d.name, d.low)
		fill(&r.Limits, d.name, d.high)
		// Where one of the two is given, the other's default does not contradict it: the API server would refuse the pod.
		if low, high := r.Requests[d.name], r.Limits[d.name]; !high.IsZero() && low.Cmp(high) > 0 {
			if asked {
				r.Limits[d.name] = low
			} else {
				r.Requests[d.name] = high
			}
		}
	}
	b := part(&s.PodDisruptionBudget)
	def(&b.Enabled, false)
	def(&b.MaxUnavailable, 1)
}

func defaultImage(i *kaiv1.Image, program string) {
	def(&i.Name, program)
	def(&i.PullPolicy, corev1.PullIfNotPresent)
}

func defaultVPA(v **kaiv1.VPASpec, g *kaiv1.GlobalConfig) {
	if *v == nil {
		*v = g.VPA.DeepCopy()
	}
	def(&(*v).Enabled, false)
	def(&part(&(*v).UpdatePolicy).UpdateMode, "InPlaceOrRecreate")
}

func defaultReplicas(r **int32, g *kaiv1.GlobalConfig) {
	def(r, ptr.Deref(g.ReplicaCount, 1))
}

func defaultPort(p *kaiv1.ServicePort, port, target int, name string) {
	def(&p.Port, port)
	def(&p.TargetPort, target)
	def(&p.Name, name)
}

func defaultQueue(q *kaiv1.QueueController, g *kaiv1.GlobalConfig) {
	defaultService(part(&q.Service), Program, usualSizes)
	s := part(&q.ControllerService)
	defaultPort(part(&s.Metrics), MetricsPort, MetricsPort, PortQueueMetrics)
	defaultPort(part(&s.Webhook), WebhookServicePort, WebhookPort, PortWebhook)
	w := part(&q.Webhooks)
	def(&w.EnableValidation, true)
	def(&w.WebhookConfigurationNamePrefix, "kai-queue-validation-")
	defaultReplicas(&q.Replicas, g)
	defaultVPA(&q.VPA, g)
}

func defaultBinder(b *kaiv1.Binder, g *kaiv1.GlobalConfig) {
	defaultService(part(&b.Service), Program, sizes{"50m", "200Mi", "200Mi"})
	r := part(&b.ResourceReservation)
	defaultImage(part(&r.Image), NodeProgram)
	def(&r.Namespace, keys.ReservationNamespace)
	def(&r.ServiceAccountName, keys.ReservationNamespace)
	def(&r.AppLabel, keys.ReservationNamespace)
	if r.ReservationContainerSecurityContext == nil {
		r.ReservationContainerSecurityContext = g.SecurityContext.DeepCopy()
		if *g.Openshift {
			r.ReservationContainerSecurityContext.RunAsUser = nil // the platform gives each namespace users of its own, and admits no other
		}
	}
	defaultReplicas(&b.Replicas, g)
	def(&b.VolumeBindingTimeoutSeconds, 120)
	def(&b.ProbePort, ProbePort)
	def(&b.MetricsPort, MetricsPort)
	defaultVPA(&b.VPA, g)
}

func defaultPodGrouper(p *kaiv1.PodGrouper, g *kaiv1.GlobalConfig) {
	defaultService(part(&p.Service), Program, usualSizes)
	def(&part(&p.Args).GenericKartaFallback, true)
	defaultReplicas(&p.Replicas, g)
	defaultVPA(&p.VPA, g)
}

func defaultScheduler(s *kaiv1.Scheduler, g *kaiv1.GlobalConfig) {
	defaultService(part(&s.Service), Program, sizes{"250m", "512Mi", "512Mi"})
	def(&s.GOGC, 400)
	v := part(&s.SchedulerService)
	def(&v.Type, corev1.ServiceTypeClusterIP)
	def(&v.Port, MetricsPort)
	def(&v.TargetPort, MetricsPort)
	defaultReplicas(&s.Replicas, g)
	defaultVPA(&s.VPA, g)
}

func defaultPodGroup(p *kaiv1.PodGroupController, g *kaiv1.GlobalConfig) {
	defaultService(part(&p.Service), Program, usualSizes)
	defaultPort(part(&part(&p.ControllerService).Webhook), WebhookServicePort, WebhookPort, PortWebhook)
	w := part(&p.Webhooks)
	def(&w.EnableValidation, true)
	def(&w.WebhookConfigurationNamePrefix, "kai-podgroup-validation-")
	defaultReplicas(&p.Replicas, g)
	defaultVPA(&p.VPA, g)
}

func defaultAdmission(a *kaiv1.Admission, g *kaiv1.GlobalConfig) {
	def(&part(&part(&a.Service).PodDisruptionBudget).Enabled, true)
	defaultService(a.Service, Program, usualSizes)
	w := part(&a.Webhook)
	def(&w.Port, WebhookServicePort)
	def(&w.TargetPort, WebhookPort)
	def(&w.ProbePort, ProbePort)
	def(&w.MetricsPort, MetricsPort)
	def(&a.Replicas, max(2, ptr.Deref(g.ReplicaCount, 1)))
	def(&a.GPUSharing, false)
	def(&a.BlockNvidiaVisibleDevices, false)
	def(&a.QueueLabelSelector, false)
	def(&a.ValidatingWebhookConfigurationName, "validating-kai-admission")
	def(&a.MutatingWebhookConfigurationName, "mutating-kai-admission")
	if a.GPUPodRuntimeClassName == nil {
		def(&a.GPUFractionRuntimeClassName, keys.RuntimeClass)
	}
	defaultVPA(&a.VPA, g)
}

func defaultNodeScale(n *kaiv1.NodeScaleAdjuster, g *kaiv1.GlobalConfig) {
	defaultService(part(&n.Service), Program, usualSizes)
	a := part(&n.Args)
	defaultImage(part(&a.ScalingPodImage), Program)
	def(&a.NodeScaleNamespace, keys.ScaleAdjustNamespace)
	def(&a.NodeScaleServiceAccount, keys.ScaleAdjustNamespace)
	defaultVPA(&n.VPA, g)
}

func defaultPrometheus(p *kaiv1.Prometheus) {
	def(&p.Enabled, false)
	def(&p.InstanceName, "prometheus")
	def(&p.RetentionPeriod, "2w")
	def(&p.EnablePersistentStorage, true)
	def(&p.StorageSize, "50Gi")
	def(&p.StorageClassName, "standard")
	m := part(&p.ServiceMonitor)
	def(&m.Enabled, true)
	def(&m.Interval, "30s")
	def(&m.ScrapeTimeout, "10s")
	def(&m.BearerTokenFile, "/var/run/secrets/kubernetes.io/serviceaccount/token")
	h := part(&p.ExternalPrometheusHealthProbe)
	def(&h.Interval, 30)
	def(&h.Timeout, 10)
	def(&h.MaxRetries, 5)
	def(&p.AccountingLabelKey, keys.AccountingLabel)
	def(&p.AccountingLabelValue, "true")
}

func defaultExporter(e *kaiv1.NUMAPlacementExporter) {
	defaultService(part(&e.Service), NodeProgram, usualSizes)
	if e.NodeSelector == nil {
		e.NodeSelector = map[string]string{"feature.node.kubernetes.io/memory-numa": "true"}
	}
	def(&e.PodResourcesHostPath, "/var/lib/kubelet/pod-resources")
	def(&e.PodResourcesSocket, *e.PodResourcesHostPath+"/kubelet.sock")
	def(&e.SysfsHostPath, "/sys")
}
