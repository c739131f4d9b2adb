package feed

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lastApplied is where `kubectl apply` keeps a second copy of the object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Trim sets, in the options of the process's shared cache, what is not kept in memory. All roles of the process share
// the cache, so only what no role reads goes:
//
//   - of everything: managedFields;
//   - of pods: what a container does (command, probes, mounts, security, plain environment variables), addresses, and of
//     container statuses all but name, readiness, restarts and resources. What stays: metadata, resources, ports,
//     references to ConfigMaps, volumes, affinity, tolerations, spreading, gates, claims, phase and conditions;
//   - of nodes: the list of images, and volumes in use;
//   - of ConfigMaps watched as metadata: labels and annotations. Those watched whole stay whole.
//
// A cached pod or node must therefore never be sent back whole; write patches of single fields. Trim owns the entries of
// these kinds in o.ByObject; a role that needs other settings for one of them changes what Trim sets.
func Trim(o *cache.Options) {
	o.DefaultTransform = cache.TransformStripManagedFields()
	if o.ByObject == nil {
		o.ByObject = map[client.Object]cache.ByObject{}
	}
	o.ByObject[&v1.Pod{}] = cache.ByObject{Transform: trimPod}
	o.ByObject[&v1.Node{}] = cache.ByObject{Transform: trimNode}
	o.ByObject[&v1.ConfigMap{}] = cache.ByObject{Transform: trimConfigMap}
}

// The transforms below write only where there is something to remove: an informer may show them an object again that
// others read at the same time.

func trimPod(obj any) (any, error) {
	p, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	trimMeta(&p.ObjectMeta)
	none(&p.Spec.EphemeralContainers)
	none(&p.Spec.ImagePullSecrets)
	none(&p.Spec.HostAliases)
	null(&p.Spec.SecurityContext)
	null(&p.Spec.DNSConfig)
	for i := range p.Spec.InitContainers {
		trimContainer(&p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		trimContainer(&p.Spec.Containers[i])
	}
	none(&p.Status.PodIPs)
	none(&p.Status.HostIPs)
	none(&p.Status.EphemeralContainerStatuses)
	for i := range p.Status.InitContainerStatuses {
		trimStatus(&p.Status.InitContainerStatuses[i])
	}
	for i := range p.Status.ContainerStatuses {
		trimStatus(&p.Status.ContainerStatuses[i])
	}
	return p, nil
}

func trimContainer(c *v1.Container) {
	none(&c.Command)
	none(&c.Args)
	none(&c.VolumeMounts)
	none(&c.VolumeDevices)
	null(&c.LivenessProbe)
	null(&c.ReadinessProbe)
	null(&c.StartupProbe)
	null(&c.Lifecycle)
	null(&c.SecurityContext)
	plain := 0
	for i := range c.Env {
		if !refersToConfigMap(&c.Env[i]) {
			plain++
		}
	}
	switch plain {
	case 0:
		return
	case len(c.Env):
		c.Env = nil
		return
	}
	kept := make([]v1.EnvVar, 0, len(c.Env)-plain)
	for i := range c.Env {
		if refersToConfigMap(&c.Env[i]) {
			kept = append(kept, c.Env[i])
		}
	}
	c.Env = kept
}

func refersToConfigMap(e *v1.EnvVar) bool {
	return e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil
}

func trimStatus(s *v1.ContainerStatus) {
	null(&s.State.Waiting)
	null(&s.State.Running)
	null(&s.State.Terminated)
	null(&s.LastTerminationState.Waiting)
	null(&s.LastTerminationState.Running)
	null(&s.LastTerminationState.Terminated)
	none(&s.VolumeMounts)
	none(&s.AllocatedResourcesStatus)
	null(&s.User)
	blank(&s.Image)
	blank(&s.ImageID)
	blank(&s.ContainerID)
}

func trimNode(obj any) (any, error) {
	n, ok := obj.(*v1.Node)
	if !ok {
		return obj, nil
	}
	trimMeta(&n.ObjectMeta)
	none(&n.Status.Images)
	none(&n.Status.VolumesInUse)
	none(&n.Status.VolumesAttached)
	return n, nil
}

func trimConfigMap(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return cache.TransformStripManagedFields()(obj)
	}
	none(&m.ManagedFields)
	if m.Annotations != nil {
		m.Annotations = nil
	}
	if m.Labels != nil {
		m.Labels = nil
	}
	return m, nil
}

func trimMeta(m *metav1.ObjectMeta) {
	none(&m.ManagedFields)
	delete(m.Annotations, lastApplied)
}

func none[T any](s *[]T) {
	if *s != nil {
		*s = nil
	}
}

func null[T any](p **T) {
	if *p != nil {
		*p = nil
	}
}

func blank(s *string) {
	if *s != "" {
		*s = ""
	}
}
