package install

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// Render returns the objects that a Config and its shards ask for, accounts first, in an order that depends on nothing but
// their names; and what has no effect. The error joins one ShardError per shard that cannot run; the objects are then those
// without these shards. What is given is not changed.
func Render(config *kaiv1.Config, shards []kaiv1.SchedulingShard, env Environment) ([]client.Object, []Warning, error) {
	r := newRender(config, shards, env)
	if v, given := r.notes[AnnotationKAINames]; given && v != "true" && v != "false" {
		r.warn("metadata.annotations."+AnnotationKAINames, "is %q, must be true or false; names are ours", v)
	}
	if v, given := r.notes[AnnotationUI]; given && v != "true" && v != "false" {
		r.warn("metadata.annotations."+AnnotationUI, "is %q, must be true or false; schedulers serve no cycles", v)
	}
	r.controlPlane()
	var errs []error
	for i := range r.shards {
		if err := r.shard(&r.shards[i]); err != nil {
			errs = append(errs, &ShardError{Shard: r.shards[i].Name, Err: err})
		}
	}
	slices.SortStableFunc(r.objects, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(Key(a), Key(b)))
	})
	var warnings []Warning
	for _, w := range r.warnings { // what all shards share is said once
		if !slices.Contains(warnings, w) {
			warnings = append(warnings, w)
		}
	}
	return r.objects, warnings, errors.Join(errs...)
}

// ShardError says why the scheduler of one shard cannot run.
type ShardError struct {
	// Shard is the SchedulingShard's name.
	Shard string
	// Err names the field and the rule.
	Err error
}

// Error names the shard, the field and the rule.
func (e *ShardError) Error() string { return fmt.Sprintf("SchedulingShard %s: %v", e.Shard, e.Err) }

// Unwrap is the cause.
func (e *ShardError) Unwrap() error { return e.Err }

// ShardErrors takes the errors of shards out of what Render returned, by name.
func ShardErrors(err error) map[string]error {
	out := map[string]error{}
	var collect func(error)
	collect = func(err error) {
		var one *ShardError
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range many.Unwrap() {
				collect(e)
			}
		} else if errors.As(err, &one) {
			out[one.Shard] = one.Err
		}
	}
	collect(err)
	return out
}

// Key names an object among all others: its group, kind, namespace and name.
func Key(o client.Object) string {
	gvk := o.GetObjectKind().GroupVersionKind()
	return strings.Join([]string{gvk.Group, gvk.Kind, o.GetNamespace(), o.GetName()}, "/")
}

// Kept says whether an object stays when nobody asks for it any more, and when the Config is deleted: pods that hold GPUs of
// running gangs live in it or under it, or it holds what nobody can make again.
func Kept(o client.Object) bool {
	switch o.GetObjectKind().GroupVersionKind().Kind {
	case "Namespace", "PersistentVolumeClaim":
		return true
	case "ServiceAccount":
		return o.GetLabels()[LabelComponent] == Reservation
	}
	return false
}

// rank is the order in which objects are applied: what others refer to first, and who is asked by the API server last, so
// that it can answer by then.
func rank(o client.Object) int {
	order := []string{"Namespace", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "PersistentVolumeClaim", "ConfigMap", "Service", "NetworkPolicy", "Deployment", "DaemonSet"}
	if i := slices.Index(order, o.GetObjectKind().GroupVersionKind().Kind); i >= 0 {
		return i
	}
	return len(order)
}

// renderer is one rendering.
type renderer struct {
	spec     *kaiv1.ConfigSpec
	notes    map[string]string       // the Config's annotations
	shards   []kaiv1.SchedulingShard // by name
	env      Environment
	claims   map[string]string // by name, the shard whose history it keeps
	objects  []client.Object
	warnings []Warning
}

func newRender(config *kaiv1.Config, shards []kaiv1.SchedulingShard, env Environment) *renderer {
	r := &renderer{spec: Defaulted(config), notes: config.Annotations, env: env, claims: map[string]string{}}
	for i := range shards {
		r.shards = append(r.shards, *shards[i].DeepCopy())
	}
	slices.SortFunc(r.shards, func(a, b kaiv1.SchedulingShard) int { return strings.Compare(a.Name, b.Name) })
	return r
}

func (r *renderer) warn(field, rule string, args ...any) {
	r.warnings = append(r.warnings, Warning{Object: "Config", Field: field, Rule: fmt.Sprintf(rule, args...)})
}

func (r *renderer) missing(field, kind, what string) {
	r.warnings = append(r.warnings, Warning{
		Object: "Config", Field: field, Missing: true, Rule: fmt.Sprintf("asks for a %s, which the cluster does not know: %s", kind, what),
	})
}

// add takes an object in, with the labels of its role.
func (r *renderer) add(role string, o client.Object) {
	labels := Labels(role)
	maps.Copy(labels, o.GetLabels())
	if _, deployment := o.(*appsv1.Deployment); deployment && r.kaiNames() {
		labels[LabelManagedBy] = KAIManager
	}
	o.SetLabels(labels)
	r.objects = append(r.objects, o)
}

// controlPlane renders what there is once, however many shards there are.
func (r *renderer) controlPlane() {
	s := r.spec
	r.namespaces()
	r.podGrouper(s.PodGrouper)
	r.binder(s.Binder)
	r.admission(s.Admission)
	r.podGroup(s.PodGroupController)
	r.queue(s.QueueController)
	r.nodeScale(s.NodeScaleAdjuster)
	r.exporter(s.NUMAPlacementExporter)
	r.prometheus(s.Prometheus)
	if ptr.Deref(s.Scheduler.Service.Enabled, true) {
		r.account(Scheduler)
	}
}

// namespaces renders those of pods that components make.
func (r *renderer) namespaces() {
	b, n := r.spec.Binder, r.spec.NodeScaleAdjuster
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	reserved := *b.ResourceReservation.Namespace
	if *b.Service.Enabled {
		if reserved != r.spec.Namespace {
			r.add(Reservation, &corev1.Namespace{TypeMeta: kind("v1", "Namespace"), ObjectMeta: meta(reserved)})
		}
		account := *b.ResourceReservation.ServiceAccountName
		r.serviceAccount(Reservation, reserved, account)
		r.grant(Reservation, reserved, account)
	}
	if scaling := *n.Args.NodeScaleNamespace; *n.Service.Enabled {
		if scaling != r.spec.Namespace && scaling != reserved {
			r.add(NodeScale, &corev1.Namespace{TypeMeta: kind("v1", "Namespace"), ObjectMeta: meta(scaling)})
		}
		r.serviceAccount(NodeScale, scaling, *n.Args.NodeScaleServiceAccount)
	}
}

func kind(version, name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: name}
}

// workload is what Deployments differ in.
type workload struct {
	role     string
	name     string // of the Deployment, its Service and its pods' label app
	shard    string
	path     string // of the component in Config, for warnings
	service  *kaiv1.Service
	client   *kaiv1.K8sClientConfig
	replicas int32
	vpa      *kaiv1.VPASpec
	args     []string
	env      []corev1.EnvVar
	ports    []corev1.ContainerPort
	private  []corev1.ContainerPort // which pods of the role ui alone may reach
	probe    string                 // name of the port of health checks
	volumes  []corev1.Volume
	mounts   []corev1.VolumeMount
	notes    map[string]string // annotations of the pods
	led      bool              // its Service leads to the pod that leads, which the operator says
	alone    bool              // it holds a volume that two pods on different nodes may not have at once
}

// volumeGroup is the group to which a claim's folder is given: that of our images' user.
const volumeGroup = 65532

// deploy renders the Deployment, and what belongs to each: its budget, its autoscaler and who may connect to it.
//
// A new version rolls without a gap: one new pod more, and none less until it is ready, which it is while it stands by. The
// old one then ends its work, gives the Lease back, and the new one takes it within a second. So that old and new never work
// beside each other, every replica elects, whatever their number.
func (r *renderer) deploy(w *workload) {
	g := r.spec.Global
	labels := Selector(w.name)
	pod := Labels(w.role)
	maps.Copy(pod, labels)
	args := r.arguments(w)
	extra := r.extra(w.role, args)
	notes := extra.PodAnnotations
	maps.Copy(notes, w.notes)
	own := map[string]string{}
	if w.shard != "" {
		pod[LabelShard], own[LabelShard] = ShardLabel(w.shard), ShardLabel(w.shard)
	}
	d := &appsv1.Deployment{
		TypeMeta: kind("apps/v1", "Deployment"), ObjectMeta: metav1.ObjectMeta{Namespace: r.spec.Namespace, Name: w.name, Labels: own},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(w.replicas), Selector: &metav1.LabelSelector{MatchLabels: labels}, RevisionHistoryLimit: ptr.To[int32](3),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: surge()},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pod, Annotations: notes},
				Spec: corev1.PodSpec{
					ServiceAccountName: r.name(w.role), ImagePullSecrets: r.pullSecrets(), PriorityClassName: g.PriorityClassName,
					NodeSelector: g.NodeSelector, Tolerations: g.Tolerations, TerminationGracePeriodSeconds: ptr.To[int64](30),
					Affinity:                  MergeAffinities(w.service.Affinity, g.Affinity, w.name, *g.RequireDefaultPodAntiAffinityTerm),
					TopologySpreadConstraints: spread(w),
					SecurityContext:           r.podSecurity(), Volumes: w.volumes,
					Containers: []corev1.Container{{
						Name: w.role, Image: r.image(w.path+".service.image", w.service.Image, Program), ImagePullPolicy: *w.service.Image.PullPolicy,
						Args: slices.Concat([]string{"run", w.role}, args, extra.Args),
						Env: mergeEnv(append([]corev1.EnvVar{{
							Name: "NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
						}}, w.env...), extra.Env),
						Ports: slices.Concat(w.ports, w.private), Resources: corev1.ResourceRequirements(*w.service.Resources), SecurityContext: r.security(), VolumeMounts: w.mounts,
						LivenessProbe: probe("/healthz", w.probe, 10, 6), ReadinessProbe: probe("/readyz", w.probe, 2, 3),
					}},
				},
			},
		},
	}
	if w.alone {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		if c := d.Spec.Template.Spec.SecurityContext; c != nil {
			c.FSGroup = ptr.To[int64](volumeGroup)
		}
	}
	r.add(w.role, d)
	r.reachable(w)
	r.budget(w)
	r.autoscaler(w, "Deployment")
}

// arguments are a role's own flags and those that all roles share.
func (r *renderer) arguments(w *workload) []string {
	args := append(w.args, pacing(w.client).without(w.args)...)
	args = append(args, "--leader-elect=true")
	args = append(args, flags(r.pace()).without(w.args)...)
	if *r.spec.Global.JSONLog {
		if w.role == Scheduler {
			return append(args, "--log-json")
		}
		return append(args, "--zap-devel=false")
	}
	return args
}

// pacing is how fast a role may call the API server: as Config says. Where it says nothing the server paces, by priority and fairness,
// which knows its load and shares what there is; a limit of the client's own knows neither.
func pacing(c *kaiv1.K8sClientConfig) flags {
	var f flags
	if c == nil || c.QPS == nil && c.Burst == nil {
		f.set("qps", -1)
		return f
	}
	f.number("qps", c.QPS)
	f.number("burst", c.Burst)
	return f
}

// kaiImages are the names of KAI's images. A Config that was written for KAI may name them.
var kaiImages = []string{
	"podgrouper", "binder", "admission", "scheduler", "queuecontroller", "podgroupcontroller", "nodescaleadjuster", "scalingpod",
	"resource-reservation", "resourcereservation", "numa-placement-exporter", "operator",
}

// image is REPOSITORY/NAME:TAG, with @DIGEST for those whose digest the environment says. An image of KAI's cannot run our roles: its place is taken by ours, from where ours come from.
func (r *renderer) image(field string, i *kaiv1.Image, program string) string {
	repository, tag, name := ptr.Deref(i.Repository, r.env.Repository), ptr.Deref(i.Tag, r.env.Tag), *i.Name
	if slices.Contains(kaiImages, strings.TrimSuffix(name, "-fips")) {
		r.warn(field, "is KAI's %s; %s runs instead", name, program)
		repository, tag, name = r.env.Repository, r.env.Tag, program
	}
	ours := repository == r.env.Repository && tag == r.env.Tag && name == program
	if repository != "" {
		name = strings.TrimSuffix(repository, "/") + "/" + name
	}
	if tag != "" {
		name += ":" + tag
	}
	if digest := r.env.Digests[program]; ours && digest != "" {
		name += "@" + digest
	}
	return name
}

func (r *renderer) pullSecrets() []corev1.LocalObjectReference {
	var out []corev1.LocalObjectReference
	for _, name := range slices.Concat(r.spec.Global.AdditionalImagePullSecrets, r.env.PullSecrets) {
		if ref := (corev1.LocalObjectReference{Name: name}); name != "" && !slices.Contains(out, ref) {
			out = append(out, ref)
		}
	}
	return out
}

// security is the containers' context; on OpenShift the platform's.
func (r *renderer) security() *corev1.SecurityContext {
	if *r.spec.Global.Openshift {
		return nil
	}
	return r.spec.Global.SecurityContext.DeepCopy()
}

func (r *renderer) podSecurity() *corev1.PodSecurityContext {
	if *r.spec.Global.Openshift {
		return nil
	}
	return &corev1.PodSecurityContext{
		RunAsNonRoot: r.spec.Global.SecurityContext.RunAsNonRoot, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// queueKey and poolKey are the labels of queues and node pools.
func (r *renderer) queueKey() string { return ptr.Deref(r.spec.Global.QueueLabelKey, keys.QueueLabel) }

func (r *renderer) poolKey() string {
	return ptr.Deref(r.spec.Global.NodePoolLabelKey, keys.NodePoolLabel)
}
