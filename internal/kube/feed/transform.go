package feed

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	kbv1alpha1 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	kbv1alpha2 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcnodeinfo "github.com/muster-scheduler/muster/api/volcano/nodeinfo/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/workload"
)

// Reads say what the roles of a process read besides what all do.
type Reads struct {
	// SchedulerNames are those of pods that are ours. Of the others is kept what room, affinity and volumes need. Nil: all are ours.
	SchedulerNames []string
	// Notes says that annotations of workloads that nobody knows are read, for they are copied (podgrouper).
	Notes bool
}

// Trim sets, in the options of the process's shared cache, what is not kept in memory. All roles of the process share
// the cache, so only what no role reads goes. Caches keep what is read and no more, because whoever may create an object decides how
// large it is:
//
//   - of everything: managedFields; of what tenants write, annotations that nobody reads, what is longer than such a text can be, and
//     of labels beyond maxLabels bytes those that come last; see workload.Notes and the table in trim;
//   - of pods: what a container does (command, probes, mounts, security, plain environment variables), what is projected into volumes
//     besides ConfigMaps that may be missing, addresses, the kubelet's conditions (Ready and the like), and of container statuses all but name,
//     readiness, restarts and resources. What stays: metadata, resources, ports, references to ConfigMaps, other volumes, affinity, tolerations,
//     spreading, gates, claims, phase and other conditions. Of pods of other schedulers also what they ask of nodes: environment, tolerations, spreading,
//     node affinity, and volumes that are not claims;
//   - of nodes: the list of images, and volumes in use;
//   - of ConfigMaps watched as metadata: labels and annotations. Those watched whole stay whole.
//
// What stays is kept once where many objects say it alike: lists of amounts and of tolerations, and short texts.
//
// A cached object must therefore never be sent back whole; write patches of single fields. Nor is a part of it written to. Trim owns the entries of
// these kinds in o.ByObject; a role that needs other settings for one of them changes what Trim sets.
func Trim(o *cache.Options, r Reads) {
	others := 0
	if r.Notes {
		others = workload.OtherNotes
	}
	once := newAlike()
	// The custom kinds are no entries of ByObject: for each of those the cache asks the API server when it is made.
	o.DefaultTransform = func(obj any) (any, error) { return trimObject(obj, others, once) }
	if o.ByObject == nil {
		o.ByObject = map[client.Object]cache.ByObject{}
	}
	o.ByObject[&v1.Pod{}] = cache.ByObject{Transform: func(obj any) (any, error) { return trimPod(obj, r, others, once) }}
	o.ByObject[&v1.Node{}] = cache.ByObject{Transform: func(obj any) (any, error) { return trimNode(obj, once) }}
	o.ByObject[&v1.ConfigMap{}] = cache.ByObject{Transform: trimConfigMap}
}

// trimObject takes out of an object of a kind without a function of its own what nobody reads; others is how much is kept of annotations
// that nobody knows.
func trimObject(obj any, others int, once *alike) (any, error) {
	o, ok := obj.(client.Object)
	if !ok {
		return obj, nil
	}
	if kept := ownerOfVolcano(o); kept != nil {
		return kept, nil
	}
	if o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	switch o.(type) {
	case *metav1.PartialObjectMetadata: // an owner of pods
		note(o, others)
	case *v2alpha2.PodGroup: // what is copied, and what else it has
		note(o, 2*others)
	case *v1alpha2.BindRequest, *v1beta1.PodGroup, *kbv1alpha1.PodGroup, *kbv1alpha2.PodGroup, *schedulingv1beta1.PodGroup, *schedulingv1alpha3.CompositePodGroup:
		note(o, 0)
	case *v2.Queue:
		only(o, keys.ExtendedResourcesAnnotation, keys.BudgetsAnnotation, keys.RemnantsAnnotation)
	case *v1beta1.Queue:
		only(o, vckeys.Hierarchy, vckeys.HierarchyWeights)
	case *kbv1alpha1.Queue, *kbv1alpha2.Queue, *v1.Namespace, *v1.ResourceQuota, *policyv1.PodDisruptionBudget, *resourcev1.ResourceClaim, *vcnodeinfo.Numatopology:
		only(o)
	case *v1.PersistentVolumeClaim, *v1.PersistentVolume:
		only(o, volumeNotes...)
	}
	once.metadata(o)
	return obj, nil
}

// ownerOfVolcano is what is kept of a controller of bare pods of Volcano's: who it is, what it says of their PodGroup, and how many it wants; nil for an object of another kind.
func ownerOfVolcano(o client.Object) client.Object {
	meta := func() metav1.ObjectMeta {
		kept := metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
		for k, v := range o.GetAnnotations() { // order: into a map
			if len(v) <= maxText && (k == vckeys.GroupMinMember || strings.HasPrefix(k, vckeys.OwnPrefix)) {
				if kept.Annotations == nil {
					kept.Annotations = map[string]string{}
				}
				kept.Annotations[k] = v
			}
		}
		return kept
	}
	switch o := o.(type) {
	case *appsv1.ReplicaSet:
		return &appsv1.ReplicaSet{ObjectMeta: meta(), Spec: appsv1.ReplicaSetSpec{Replicas: o.Spec.Replicas}}
	case *appsv1.StatefulSet:
		return &appsv1.StatefulSet{ObjectMeta: meta(), Spec: appsv1.StatefulSetSpec{Replicas: o.Spec.Replicas}}
	case *appsv1.DaemonSet:
		return &appsv1.DaemonSet{ObjectMeta: meta()}
	case *batchv1.Job:
		return &batchv1.Job{ObjectMeta: meta()}
	}
	return nil
}

// volumeNotes are the annotations with which controllers of volumes talk to each other, the scheduler among them.
var volumeNotes = []string{
	volume.AnnSelectedNode, volume.AnnBindCompleted, volume.AnnBoundByController, volume.AnnDynamicallyProvisioned,
	volume.AnnStorageProvisioner, volume.AnnBetaStorageProvisioner, volume.AnnMigratedTo, v1.BetaStorageClassAnnotation, keys.SelectedForAnnotation,
}

const (
	// maxLabels is how much is kept of an object's labels, in bytes of keys and values: more than any workload has, and no more than its
	// spec takes.
	maxLabels = 16 << 10
	// maxText is how much is kept of a condition's message.
	maxText = 4096
)

// The transforms below write only where there is something to remove: an informer may show them an object again that
// others read at the same time.

func trimPod(obj any, r Reads, others int, once *alike) (any, error) {
	p, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	none(&p.ManagedFields)
	ours := r.SchedulerNames == nil || slices.Contains(r.SchedulerNames, p.Spec.SchedulerName)
	if ours {
		note(p, others)
	} else {
		note(p, 0)
		trimForeign(&p.Spec)
	}
	without(&p.Status.Conditions, kubelets)
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; len(c.Message) > maxText {
			c.Message = strings.Clone(c.Message[:maxText])
		}
	}
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
	without(&p.Spec.Volumes, awaitsNothing)
	for i := range p.Spec.Volumes {
		trimVolume(&p.Spec.Volumes[i])
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
	once.metadata(p)
	once.pod(p)
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

// awaited says whether a part of a projected volume is a ConfigMap that a pod may wait for.
func awaited(s v1.VolumeProjection) bool {
	return s.ConfigMap != nil && s.ConfigMap.Name != core.RootCertificates
}

// awaitsNothing says whether a volume is a projected one, as each pod has for its service account, with no ConfigMap that the pod may wait for.
func awaitsNothing(v v1.Volume) bool {
	return v.Projected != nil && !slices.ContainsFunc(v.Projected.Sources, awaited)
}

// trimVolume takes out of a projected volume all but what the pod may wait for.
func trimVolume(v *v1.Volume) {
	if v.Projected == nil {
		return
	}
	without(&v.Projected.Sources, func(s v1.VolumeProjection) bool { return !awaited(s) })
}

// kubelets says whether a condition is of how the kubelet gets on with a pod, which nobody asks here.
func kubelets(c v1.PodCondition) bool {
	switch c.Type {
	case v1.PodReady, v1.ContainersReady, v1.PodInitialized, v1.PodReadyToStartContainers:
		return true
	}
	return false
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

func trimNode(obj any, once *alike) (any, error) {
	n, ok := obj.(*v1.Node)
	if !ok {
		return obj, nil
	}
	none(&n.ManagedFields)
	note(n, 0)
	none(&n.Status.Images)
	none(&n.Status.VolumesInUse)
	none(&n.Status.VolumesAttached)
	once.metadata(n)
	once.node(n)
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

// trimForeign takes out what says where a pod may go that we do not place.
func trimForeign(s *v1.PodSpec) {
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			none(&list[i].Env)
			none(&list[i].EnvFrom)
		}
	}
	none(&s.TopologySpreadConstraints)
	if s.NodeSelector != nil {
		s.NodeSelector = nil
	}
	if s.Affinity != nil {
		null(&s.Affinity.NodeAffinity)
	}
	if s.NodeName != "" {
		none(&s.Tolerations)
	}
	without(&s.Volumes, local)
}

// local says that a volume is made of what the node or the API server has, and is nobody else's business.
func local(v v1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil || v.EmptyDir != nil || v.HostPath != nil
}

// trimLabels bounds an object's labels. Which are left does not depend on the order of the map.
func trimLabels(o client.Object) {
	all, size := o.GetLabels(), 0
	for k, v := range all { // order: a sum
		size += len(k) + len(v)
	}
	if size <= maxLabels {
		return
	}
	kept, left := map[string]string{}, maxLabels
	for _, known := range [2]bool{true, false} {
		for _, k := range slices.Sorted(maps.Keys(all)) {
			ours := workload.Known(k) || k == keys.AppLabel || k == keys.GPUGroupLabel || strings.HasPrefix(k, keys.GPUGroupLabelPrefix)
			if n := len(k) + len(all[k]); ours == known && n <= left {
				kept[k] = all[k]
				left -= n
			}
		}
	}
	o.SetLabels(kept)
}

// note takes out what is too much of an object's annotations and labels.
func note(o client.Object, others int) {
	trimLabels(o)
	if kept, less := workload.Notes(o.GetAnnotations(), others); less {
		o.SetAnnotations(kept)
	}
}

// only keeps the annotations of these keys, and bounds the labels.
func only(o client.Object, known ...string) {
	trimLabels(o)
	kept := map[string]string{}
	for _, k := range known {
		if v, ok := o.GetAnnotations()[k]; ok && len(v) <= maxText {
			kept[k] = v
		}
	}
	if len(kept) != len(o.GetAnnotations()) {
		o.SetAnnotations(kept)
	}
}

// without takes out of a list what is not kept, and leaves no more memory than the rest needs.
func without[T any](s *[]T, drop func(T) bool) {
	if !slices.ContainsFunc(*s, drop) {
		return
	}
	var kept []T
	for _, e := range *s {
		if !drop(e) {
			kept = append(kept, e)
		}
	}
	*s = kept
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
