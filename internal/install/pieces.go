package install

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// surge rolls one pod at a time, the new one first.
func surge() *appsv1.RollingUpdateDeployment {
	return &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0))}
}

func probe(path, port string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(port), Scheme: corev1.URISchemeHTTP}},
		PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: 5, SuccessThreshold: 1,
	}
}

// spread keeps replicas on several nodes, in several zones, where there are such; not those that hold a volume of one node.
func spread(w *workload) (out []corev1.TopologySpreadConstraint) {
	if w.replicas < 2 || w.alone {
		return nil
	}
	for _, key := range []string{corev1.LabelHostname, corev1.LabelTopologyZone} {
		out = append(out, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: Selector(w.name)},
			MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey}, // those of the version that goes do not count
		})
	}
	return out
}

func port(name string, number int) corev1.ContainerPort {
	return corev1.ContainerPort{Name: name, ContainerPort: int32(number), Protocol: corev1.ProtocolTCP}
}

func servicePort(name string, number int, target string) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: int32(number), TargetPort: intstr.FromString(target), Protocol: corev1.ProtocolTCP}
}

// account renders a role's ServiceAccount in the control plane's namespace, and what it may do.
func (r *renderer) account(role string) {
	r.serviceAccount(role, r.spec.Namespace, r.name(role))
	r.grant(role, r.spec.Namespace, r.name(role))
}

func (r *renderer) serviceAccount(role, namespace, name string) {
	o := &corev1.ServiceAccount{TypeMeta: kind("v1", "ServiceAccount"), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if role == NodeScale && namespace != r.spec.Namespace {
		// The pods that stand for demand ask nothing of the API server.
		o.AutomountServiceAccountToken = ptr.To(false)
	}
	r.add(role, o)
}

// grant renders a role's rules, bound to an account.
func (r *renderer) grant(role, namespace, account string) {
	p := Rules(role)
	name := Name(role)
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}}
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	rbac := func(k string) metav1.TypeMeta { return kind(rbacv1.SchemeGroupVersion.String(), k) }
	if len(p.Cluster) > 0 {
		meta := metav1.ObjectMeta{Name: name}
		r.add(role, &rbacv1.ClusterRole{TypeMeta: rbac("ClusterRole"), ObjectMeta: meta, Rules: r.named(role, p.Cluster)})
		r.add(role, &rbacv1.ClusterRoleBinding{TypeMeta: rbac("ClusterRoleBinding"), ObjectMeta: meta, Subjects: subjects, RoleRef: ref("ClusterRole")})
	}
	local := map[string][]rbacv1.PolicyRule{}
	for _, scope := range []struct {
		namespace string
		rules     []rbacv1.PolicyRule
	}{
		{r.spec.Namespace, p.Home},
		{*r.spec.Binder.ResourceReservation.Namespace, p.Reserved},
		{*r.spec.NodeScaleAdjuster.Args.NodeScaleNamespace, p.Scaling},
	} {
		if len(scope.rules) > 0 {
			local[scope.namespace] = append(local[scope.namespace], scope.rules...)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(local)) {
		meta := metav1.ObjectMeta{Namespace: at, Name: name}
		r.add(role, &rbacv1.Role{TypeMeta: rbac("Role"), ObjectMeta: meta, Rules: local[at]})
		r.add(role, &rbacv1.RoleBinding{TypeMeta: rbac("RoleBinding"), ObjectMeta: meta, Subjects: subjects, RoleRef: ref("Role")})
	}
}

// named puts the names that Config gives to webhook configurations into the rules about them.
func (r *renderer) named(role string, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	if role != Admission {
		return rules
	}
	for i := range rules {
		if slices.Contains(rules[i].APIGroups, groupAdmission) {
			rules[i].ResourceNames = r.webhookNames()
		}
	}
	return rules
}

// service renders a Service in front of a workload's pods.
func (r *renderer) inFront(w *workload, name string, spec corev1.ServiceSpec, notes map[string]string) {
	if !w.led {
		spec.Selector = Selector(w.name)
	}
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	o := &corev1.Service{
		TypeMeta: kind("v1", "Service"), ObjectMeta: metav1.ObjectMeta{Namespace: r.spec.Namespace, Name: name, Annotations: notes},
		Spec: spec,
	}
	if w.shard != "" {
		o.Labels = map[string]string{LabelShard: ShardLabel(w.shard)}
	}
	r.add(w.role, o)
}

// reachable renders who may connect to a workload: anybody, but only to the ports that it says it serves, and to those that are private the role ui alone.
func (r *renderer) reachable(w *workload) {
	p := &networkingv1.NetworkPolicy{
		TypeMeta:   kind(networkingv1.SchemeGroupVersion.String(), "NetworkPolicy"),
		ObjectMeta: metav1.ObjectMeta{Namespace: r.spec.Namespace, Name: w.name},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: Selector(w.name)}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	if w.shard != "" {
		p.Labels = map[string]string{LabelShard: ShardLabel(w.shard)}
	}
	var ports []networkingv1.NetworkPolicyPort
	for _, c := range w.ports {
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: ptr.To(c.Protocol), Port: ptr.To(intstr.FromInt32(c.ContainerPort))})
	}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: ports}}
	for _, c := range w.private {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{
			Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(c.Protocol), Port: ptr.To(intstr.FromInt32(c.ContainerPort))}},
			From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: Selector(Name(UI))}}},
		})
	}
	r.add(w.role, p)
}

// budget renders a PodDisruptionBudget, for several replicas, where Config asks for one.
func (r *renderer) budget(w *workload) {
	b := w.service.PodDisruptionBudget
	if w.replicas < 2 || !*b.Enabled {
		return
	}
	o := &policyv1.PodDisruptionBudget{
		TypeMeta: kind("policy/v1", "PodDisruptionBudget"), ObjectMeta: metav1.ObjectMeta{Namespace: r.spec.Namespace, Name: w.name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(*b.MaxUnavailable)), Selector: &metav1.LabelSelector{MatchLabels: Selector(w.name)},
		},
	}
	if w.shard != "" {
		o.Labels = map[string]string{LabelShard: ShardLabel(w.shard)}
	}
	r.add(w.role, o)
}

// autoscaler renders a VerticalPodAutoscaler where Config asks for one.
func (r *renderer) autoscaler(w *workload, target string) {
	if w.vpa == nil || !*w.vpa.Enabled {
		return
	}
	if !r.env.Kinds[KindVPA] {
		r.missing(w.path+".vpa.enabled", KindVPA.Kind, "install the vertical pod autoscaler")
		return
	}
	spec := map[string]any{"targetRef": map[string]any{"apiVersion": "apps/v1", "kind": target, "name": w.name}}
	spec["updatePolicy"] = plainFields(w.vpa.UpdatePolicy)
	if w.vpa.ResourcePolicy != nil {
		spec["resourcePolicy"] = plainFields(w.vpa.ResourcePolicy)
	}
	o := r.foreign(w.role, "autoscaling.k8s.io/v1", KindVPA.Kind, w.name, spec)
	if w.shard != "" {
		labels := o.GetLabels()
		labels[LabelShard] = ShardLabel(w.shard)
		o.SetLabels(labels)
	}
}

// foreign renders an object of a kind that is not Kubernetes' own.
func (r *renderer) foreign(role, version, kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind, "spec": spec}}
	o.SetNamespace(r.spec.Namespace)
	o.SetName(name)
	r.add(role, o)
	return o
}

// plainFields turns a typed part into what an unstructured object holds.
func plainFields(typed any) map[string]any {
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		panic(err) // types of the API: they are made of what JSON knows
	}
	return out
}

// MergeAffinities is a component's affinity, made of its own and the global one as KAI does: if only one is given, it is
// that; if both are, each of the three parts is the component's own or else the global one, and replicas keep apart from each
// other unless something else is said about pods: if they can, or by all means if required.
func MergeAffinities(local, global *corev1.Affinity, app string, required bool) *corev1.Affinity {
	if local == nil {
		return global.DeepCopy()
	}
	out := local.DeepCopy()
	if global == nil {
		return out
	}
	if out.NodeAffinity == nil {
		out.NodeAffinity = global.NodeAffinity.DeepCopy()
	}
	if out.PodAffinity == nil {
		out.PodAffinity = global.PodAffinity.DeepCopy()
	}
	if out.PodAntiAffinity == nil {
		out.PodAntiAffinity = global.PodAntiAffinity.DeepCopy()
	}
	if out.PodAntiAffinity == nil {
		term := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{LabelApp: app}}}
		out.PodAntiAffinity = &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: term}},
		}
		if required {
			out.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{*term.DeepCopy()}
		}
	}
	return out
}

// limits are a component's calls to the API server: those that its section says, nil for none.
func limits(s *kaiv1.Service) *kaiv1.K8sClientConfig { return s.K8sClientConfig }
