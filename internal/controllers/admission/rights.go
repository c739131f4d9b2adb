package admission

import (
	"fmt"
	"strings"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// Names of the policies that hold our own accounts to their work, where rules of RBAC cannot tell one object from another. Whoever
// gets hold of such an account, on one node or in one pod, gets no more.
const (
	// PolicyNodeRights holds the agent of a node to the pods of its node.
	PolicyNodeRights = "muster-rights-numa-exporter"
	// PolicyReservationRights holds a pod that reserves a device to itself.
	PolicyReservationRights = "muster-rights-reservation"
	// PolicyBinderRights holds the binder to the ConfigMaps that tell containers their devices.
	PolicyBinderRights = "muster-rights-binder"
	// PolicyGrouperRights holds the podgrouper to the marks by which pods are in gangs.
	PolicyGrouperRights = "muster-rights-podgrouper"
	// PolicyGangRights holds the podgrouper to what workloads say of their PodGroups.
	PolicyGangRights = "muster-rights-podgrouper-gangs"
	// PolicyScalingRights holds the nodescale role to scaling pods.
	PolicyScalingRights = "muster-rights-nodescale"
	// PolicyPodGroupRights holds the podgroup controller to its own annotation of Queues.
	PolicyPodGroupRights = "muster-rights-podgroup"
	// PolicyQueueRights holds the queue controller to its own annotation of Queues.
	PolicyQueueRights = "muster-rights-queue"
	// PolicySchedulerRights holds the scheduler to the times that it notes on PodGroups.
	PolicySchedulerRights = "muster-rights-scheduler"
	// PolicyRecordRights holds the scheduler to the ConfigMaps that are records of decisions about gangs.
	PolicyRecordRights = "muster-rights-scheduler-records"
	// PolicyOperatorRights holds the operator to its own webhook configurations and namespaces.
	PolicyOperatorRights = "muster-rights-operator"
)

// Names of the accounts, as an installation has them.
const (
	AccountExporter   = "muster-numa-exporter"
	AccountBinder     = "muster-binder"
	AccountPodGrouper = "muster-podgrouper"
	AccountPodGroup   = "muster-podgroup"
	AccountNodeScale  = "muster-nodescale"
	AccountQueue      = "muster-queue"
	AccountScheduler  = "muster-scheduler"
	AccountOperator   = "muster-operator"
)

// AccountAdmission is the account of this role. No policy is about it.
const AccountAdmission = "muster-admission"

// KAIAccount is the name of an account of ours, and of the Deployment and Service of its role, as KAI has it; the name itself where
// KAI has none.
func KAIAccount(account string) string {
	switch account {
	case AccountExporter:
		return "numa-placement-exporter"
	case AccountBinder:
		return "binder"
	case AccountPodGrouper:
		return "pod-grouper"
	case AccountPodGroup:
		return "podgroup-controller"
	case AccountNodeScale:
		return "node-scale-adjuster"
	case AccountQueue:
		return "queue-controller"
	case AccountScheduler:
		return "scheduler"
	case AccountAdmission:
		return "admission"
	}
	return account
}

// What the API server knows of whoever shows a token that a kubelet got for a pod.
const (
	extraNode = "authentication.kubernetes.io/node-name"
	extraPod  = "authentication.kubernetes.io/pod-name"
	extraUID  = "authentication.kubernetes.io/pod-uid"
)

// rights are the policies about our own accounts. They refuse in every mode.
func (o *Options) rights() []policy {
	return []policy{
		o.nodeRights(), o.reservationRights(), o.binderRights(), o.grouperRights(), o.gangRights(), o.scalingRights(), o.podGroupRights(), o.queueRights(), o.schedulerRights(), o.recordRights(), o.operatorRights(),
	}
}

// of limits a policy to requests of one of our accounts.
func (o *Options) of(account string) string {
	if o.KAINames {
		account = KAIAccount(account)
	}
	return "request.userInfo.?username.orValue('') != " + quote("system:serviceaccount:"+o.Namespace+":"+account)
}

// extra is what the API server knows of the one who asks, "" for nothing.
func extra(name, key string) admissionregv1.Variable {
	return variable(name, fmt.Sprintf("request.userInfo.?extra[?%s].orValue([]).join(',')", quote(key)))
}

// patchesPods is a policy about changes of pods, which may concern some annotations and labels and nothing else.
func patchesPods(name, skip string, annotations, labels []string) policy {
	return patches(name, skip, "pod", on("", "v1", []string{"pods"}, admissionregv1.Update), annotations, labels)
}

// patches is such a policy about objects of any kind.
func patches(name, skip, kind string, of admissionregv1.NamedRuleWithOperations, annotations, labels []string) policy {
	same := func(path string) string {
		return "object.?" + path + ".orValue(null) == oldObject.?" + path + ".orValue(null)"
	}
	but := func(now, old string, keys []string) string {
		return fmt.Sprintf("variables.%s.all(k, k in %s || variables.%s[?k] == variables.%s[?k]) && variables.%s.all(k, k in %s || k in variables.%s)",
			now, quoted(keys), now, old, old, quoted(keys), now)
	}
	return policy{
		name: name, joined: true, actions: deny, skip: skip, variables: metadata(),
		rules: []admissionregv1.NamedRuleWithOperations{of},
		checks: []admissionregv1.Validation{refuses(
			strings.Join([]string{
				but("annotations", "oldAnnotations", annotations), but("labels", "oldLabels", labels),
				same("metadata.?ownerReferences"), same("metadata.?finalizers"), same("spec"),
			}, " && "),
			fmt.Sprintf(`request.userInfo.username + ' may change nothing of a %s but %s'`, kind, strings.Join(append(annotations, labels...), ", ")), metav1.StatusReasonForbidden,
		)},
	}
}

// nodeRights: an agent writes what its own node gave to the pods of that node.
func (o *Options) nodeRights() policy {
	p := patchesPods(PolicyNodeRights, o.of(AccountExporter), []string{keys.NUMAObservedAnnotation}, nil)
	p.variables = append(p.variables, extra("node", extraNode))
	p.checks = append(p.checks, refuses("variables.node != '' && oldObject.?spec.?nodeName.orValue('') == variables.node",
		`'pod ' + object.metadata.name + ' is not on node ' + variables.node + ', whose agent asks'`, metav1.StatusReasonForbidden))
	return p
}

// reservationRights: a pod that reserves a device says which one it holds, and not which one another holds.
func (o *Options) reservationRights() policy {
	groups := make([]string, len(o.TrustedNamespaces))
	for i, ns := range o.TrustedNamespaces {
		groups[i] = serviceAccounts(ns)
	}
	p := patchesPods(PolicyReservationRights, "!request.userInfo.?groups.orValue([]).exists(g, g in "+quoted(groups)+")", []string{keys.ReservedGPUAnnotation}, nil)
	p.variables = append(p.variables, extra("pod", extraPod), extra("uid", extraUID))
	p.checks = append(p.checks, refuses("variables.uid != '' && object.metadata.name == variables.pod && oldObject.metadata.uid == variables.uid",
		`'pod ' + object.metadata.name + ' is not pod ' + variables.pod + ', which asks'`, metav1.StatusReasonForbidden))
	return p
}

// binderRights: the binder tells the containers of a pod their devices, in ConfigMaps that belong to the pod.
func (o *Options) binderRights() policy {
	const says = `'the binder writes only ConfigMaps that tell the containers of a pod their devices, '`
	ours := func(root string) string {
		return fmt.Sprintf("%s.?data.orValue({}).all(k, k in %s) && %s.?binaryData.orValue({}).size() == 0", root, quoted(kai.DeviceMapKeys()), root)
	}
	ofPod := func(root string) string {
		return root + ".?metadata.?ownerReferences.orValue([]).exists(o, o.kind == 'Pod' && o.apiVersion == 'v1')"
	}
	return policy{
		name: PolicyBinderRights, actions: deny, skip: o.of(AccountBinder),
		rules: []admissionregv1.NamedRuleWithOperations{on("", "v1", []string{"configmaps"}, admissionregv1.Create, admissionregv1.Update, admissionregv1.Delete)},
		checks: []admissionregv1.Validation{
			refuses("object == null || "+ofPod("object")+" && "+ours("object"), says+`+ object.metadata.name + ' is none'`, metav1.StatusReasonForbidden),
			// One that is there may be from an older version, without an owner; then its keys tell.
			refuses("oldObject == null || "+ours("oldObject")+" && (object != null || "+ofPod("oldObject")+")", says+`+ oldObject.metadata.name + ' is none'`, metav1.StatusReasonForbidden),
		},
	}
}

// grouperRights: the podgrouper says in which gang a pod is, or which it is by itself.
func (o *Options) grouperRights() policy {
	return patchesPods(PolicyGrouperRights, o.of(AccountPodGrouper), []string{keys.PodGroupAnnotation, keys.OwnGangAnnotation}, []string{keys.SubGroupLabel})
}

// gangRights: the podgrouper says what a gang's workload says of it. When it ran and was evicted is the scheduler's word, and what others
// decide about a gang that is there stays.
func (o *Options) gangRights() policy {
	same := func(paths ...string) string {
		for i, path := range paths {
			paths[i] = "object.?" + path + ".orValue(null) == oldObject.?" + path + ".orValue(null)"
		}
		return strings.Join(paths, " && ")
	}
	who := `request.userInfo.username + ' may not `
	return policy{
		name: PolicyGangRights, joined: true, actions: deny, skip: o.of(AccountPodGrouper), variables: metadata(),
		rules: []admissionregv1.NamedRuleWithOperations{on("scheduling.run.ai", "*", []string{"podgroups"}, admissionregv1.Create, admissionregv1.Update)},
		checks: []admissionregv1.Validation{
			refuses(quoted(notes())+".all(k, variables.annotations[?k] == variables.oldAnnotations[?k])",
				who+`say when PodGroup ' + object.metadata.name + ' ran: the scheduler does'`, metav1.StatusReasonForbidden),
			refuses("oldObject == null || "+same("spec.?queue", "spec.?markUnschedulable", "spec.?schedulingBackoff", "metadata.?ownerReferences", "metadata.?finalizers"),
				who+`change the queue, the owners or the treatment of PodGroup ' + object.metadata.name + ', which is there'`, metav1.StatusReasonForbidden),
		},
	}
}

// scalingRights: the nodescale role makes pods that ask for a node and do nothing, puts no pod on one, and takes away no other.
func (o *Options) scalingRights() policy {
	who := `request.userInfo.username + ' may not `
	ours := func(root string) string {
		return fmt.Sprintf("%s.?metadata.?labels[?%s].hasValue()", root, quote(keys.ScalingPodSourceNamespaceLabel))
	}
	return policy{
		name: PolicyScalingRights, joined: true, actions: deny, skip: o.of(AccountNodeScale),
		rules: []admissionregv1.NamedRuleWithOperations{
			on("", "v1", []string{"pods"}, admissionregv1.Create, admissionregv1.Update, admissionregv1.Delete), on("", "v1", []string{"pods/status"}, admissionregv1.Update),
		},
		checks: []admissionregv1.Validation{
			refuses("(object == null || "+ours("object")+") && (oldObject == null || "+ours("oldObject")+")",
				who+`write pod ' + request.name + ', which is no scaling pod'`, metav1.StatusReasonForbidden),
			refuses("request.operation != 'CREATE' || "+strings.Join([]string{
				"object.spec.?nodeName.orValue('') == '' && object.spec.?automountServiceAccountToken.orValue(true) == false",
				"!object.spec.?hostNetwork.orValue(false) && !object.spec.?hostPID.orValue(false) && !object.spec.?hostIPC.orValue(false)",
				"object.spec.?volumes.orValue([]).all(v, !has(v.hostPath) && !has(v.secret) && !has(v.persistentVolumeClaim))",
				"object.spec.containers.all(c, c.?securityContext.?privileged.orValue(false) == false)",
			}, " && "), who+`make a scaling pod that has more than room'`, metav1.StatusReasonForbidden),
		},
	}
}

// podGroupRights: the podgroup controller says what remnants are charged to a queue, and not what the queue may have.
func (o *Options) podGroupRights() policy {
	return patches(PolicyPodGroupRights, o.of(AccountPodGroup), "queue", on("scheduling.run.ai", "*", []string{"queues"}, admissionregv1.Update), []string{keys.RemnantsAnnotation}, nil)
}

// queueRights: the queue controller copies what an older API server would lose, and does not say what a queue may have.
func (o *Options) queueRights() policy {
	return patches(PolicyQueueRights, o.of(AccountQueue), "queue", on("scheduling.run.ai", "*", []string{"queues"}, admissionregv1.Update), []string{keys.ExtendedResourcesAnnotation}, nil)
}

// schedulerRights: the scheduler notes when a gang began, was evicted and fell below its minimum, and why it waits, and does not say what the gang asks for.
func (o *Options) schedulerRights() policy {
	return patches(PolicySchedulerRights, o.of(AccountScheduler), "podgroup", on("scheduling.run.ai", "*", []string{"podgroups"}, admissionregv1.Update),
		notes(), nil)
}

// recordRights: the scheduler records decisions about gangs, in ConfigMaps that are nothing else.
func (o *Options) recordRights() policy {
	ours := func(root string) string {
		return fmt.Sprintf("%s.?metadata.?labels[?%s].hasValue() && %s.?data.orValue({}).all(k, k in ['format', 'gang'])", root, quote(keys.GangRecordLabel), root)
	}
	return policy{
		name: PolicyRecordRights, actions: deny, skip: o.of(AccountScheduler),
		rules: []admissionregv1.NamedRuleWithOperations{on("", "v1", []string{"configmaps"}, admissionregv1.Create, admissionregv1.Update, admissionregv1.Delete)},
		checks: []admissionregv1.Validation{refuses("(object == null || "+ours("object")+") && (oldObject == null || "+ours("oldObject")+")",
			`'the scheduler writes only ConfigMaps that record decisions about gangs, ' + (object == null ? oldObject : object).metadata.name + ' is none'`, metav1.StatusReasonForbidden)},
	}
}

// operatorRights: the operator writes the configurations of our webhooks and of nobody else's, which could let anything into the
// cluster, and the namespaces that it makes. An API server does not ask policies about policies: of these RBAC alone speaks.
func (o *Options) operatorRights() policy {
	names := []string{}
	for _, name := range []string{o.Mutating, o.Validating, o.QueueWebhook, o.PodGroupWebhook} {
		if name != "" {
			names = append(names, name)
		}
	}
	var all []admissionregv1.NamedRuleWithOperations
	every := []admissionregv1.OperationType{admissionregv1.Create, admissionregv1.Update, admissionregv1.Delete}
	all = append(all, on(admissionregv1.GroupName, "*", []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}, every...),
		on(corev1.GroupName, "v1", []string{"namespaces"}, every...))
	return policy{
		name: PolicyOperatorRights, actions: deny, skip: o.of(AccountOperator), rules: all,
		variables: []admissionregv1.Variable{
			variable("name", "object == null ? oldObject.metadata.name : object.metadata.name"),
			// What it made before under another name it may take away.
			variable("made", fmt.Sprintf("oldObject != null && oldObject.?metadata.?labels[?%s].orValue('') == %s", quote(labelManagedBy), quote(AccountOperator))),
		},
		checks: []admissionregv1.Validation{refuses(
			fmt.Sprintf("request.resource.resource == 'namespaces' ? variables.name in %s : (variables.made || variables.name in %s)", quoted(o.OwnNamespaces), quoted(names)),
			`request.userInfo.username + ' may not write ' + request.resource.resource + ' ' + variables.name + ', which is not its own'`, metav1.StatusReasonForbidden)},
	}
}

// labelManagedBy is on everything that the operator made, with its name.
const labelManagedBy = "app.kubernetes.io/managed-by"
