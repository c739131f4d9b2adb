package admission

import (
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// TestRights: our own accounts write what their work is, where RBAC would let them write more; nobody else is asked.
func TestRights(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.Identity, o.OwnNamespaces = Off, []string{keys.ReservationNamespace} // it does not depend on the former
	all := judges(t, o)
	const pods, queues, groups, maps, hooks = "pods.v1.", "queues.v2.scheduling.run.ai", "podgroups.v2alpha2.scheduling.run.ai", "configmaps.v1.", "mutatingwebhookconfigurations.v1.admissionregistration.k8s.io"
	onNode := map[string][]string{extraNode: {"n1"}}
	asPod := map[string][]string{extraNode: {"n1"}, extraPod: {"p"}, extraUID: {"u1"}}
	pod := func(meta, spec string) string {
		return "{metadata: {name: p, uid: u1, " + meta + "}, spec: {nodeName: n1, " + spec + "}}"
	}
	queue := func(meta, limit string) string {
		return "{metadata: {name: q, " + meta + "}, spec: {resources: {gpu: {limit: " + limit + "}}}}"
	}
	group := func(notes, queue string) string {
		return "{metadata: {name: g, annotations: {" + notes + "}}, spec: {queue: " + queue + "}}"
	}
	gangOf := func(spec, notes string) string {
		return "{metadata: {name: g, annotations: {" + notes + "}}, spec: {queue: a, " + spec + "}}"
	}
	scaling := func(spec, security string) string {
		return "{metadata: {name: s, labels: {" + keys.ScalingPodSourceNamespaceLabel + ": team}}, spec: {automountServiceAccountToken: false, containers: [{name: c, securityContext: {" + security + "}}], " + spec + "}}"
	}
	note := func(key string) string { return "annotations: {" + key + ": x}" }
	devices := func(meta, data string) string {
		return "{metadata: {name: m, " + meta + "}, data: {" + data + "}}"
	}
	const (
		ofPod   = "ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u1}]"
		visible = "NVIDIA_VISIBLE_DEVICES: g"
		made    = "labels: {app.kubernetes.io/managed-by: muster-operator}"
		numa    = "may change nothing of a pod but " + keys.NUMAObservedAnnotation
		gpu     = "may change nothing of a pod but " + keys.ReservedGPUAnnotation
		rest    = "may change nothing of a queue but " + keys.RemnantsAnnotation
		gang    = "may change nothing of a pod but pod-group-name, muster.dev/gang, kai.scheduler/subgroup-name"
		tells   = "the binder writes only ConfigMaps that tell the containers of a pod their devices, m is none"
	)
	for _, c := range []struct {
		name, policy, resource, object, old, want string
		extra                                     map[string][]string
		removes                                   bool
	}{
		{name: "an agent on its node", policy: PolicyNodeRights, resource: pods, object: pod(note(keys.NUMAObservedAnnotation), ""), old: pod("", ""), extra: onNode},
		{name: "of another node", policy: PolicyNodeRights, resource: pods, object: pod(note(keys.NUMAObservedAnnotation), ""), old: pod("", ""), extra: map[string][]string{extraNode: {"n2"}}, want: "pod p is not on node n2, whose agent asks"},
		{name: "of no node", policy: PolicyNodeRights, resource: pods, object: pod(note(keys.NUMAObservedAnnotation), ""), old: pod("", ""), want: "is not on node"},
		{name: "another annotation", policy: PolicyNodeRights, resource: pods, object: pod(note(keys.ReservedGPUAnnotation), ""), old: pod("", ""), extra: onNode, want: numa},
		{name: "an annotation taken off", policy: PolicyNodeRights, resource: pods, object: pod("", ""), old: pod(note("theirs"), ""), extra: onNode, want: numa},
		{name: "its own taken off", policy: PolicyNodeRights, resource: pods, object: pod("", ""), old: pod(note(keys.NUMAObservedAnnotation), ""), extra: onNode},
		{name: "a label", policy: PolicyNodeRights, resource: pods, object: pod("labels: {a: b}", ""), old: pod("", ""), extra: onNode, want: numa},
		{name: "an image", policy: PolicyNodeRights, resource: pods, object: pod("", "containers: [{image: mine}]"), old: pod("", "containers: [{image: theirs}]"), extra: onNode, want: numa},
		{name: "an owner", policy: PolicyNodeRights, resource: pods, object: pod(ofPod, ""), old: pod("", ""), extra: onNode, want: numa},
		{name: "a finalizer", policy: PolicyNodeRights, resource: pods, object: pod("", ""), old: pod("finalizers: [theirs]", ""), extra: onNode, want: numa},

		{name: "a reservation pod", policy: PolicyReservationRights, resource: pods, object: pod(note(keys.ReservedGPUAnnotation), ""), old: pod("", ""), extra: asPod},
		{name: "its sibling", policy: PolicyReservationRights, resource: pods, object: pod(note(keys.ReservedGPUAnnotation), ""), old: pod("", ""), extra: map[string][]string{extraPod: {"q"}, extraUID: {"u2"}}, want: "pod p is not pod q, which asks"},
		{name: "one before it of its name", policy: PolicyReservationRights, resource: pods, object: pod(note(keys.ReservedGPUAnnotation), ""), old: pod("", ""), extra: map[string][]string{extraPod: {"p"}, extraUID: {"u0"}}, want: "pod p is not pod p, which asks"},
		{name: "nobody's token", policy: PolicyReservationRights, resource: pods, object: pod(note(keys.ReservedGPUAnnotation), ""), old: pod("", ""), want: "is not pod"},
		{name: "its group", policy: PolicyReservationRights, resource: pods, object: pod("labels: {runai-gpu-group: a}", ""), old: pod("", ""), extra: asPod, want: gpu},

		{name: "a pod's devices", policy: PolicyBinderRights, resource: maps, object: devices(ofPod, visible)},
		{name: "anew", policy: PolicyBinderRights, resource: maps, object: devices(ofPod, visible), old: devices(ofPod, visible)},
		{name: "of an older version", policy: PolicyBinderRights, resource: maps, object: devices(ofPod, visible), old: devices("", "RUNAI-VISIBLE-DEVICES: g")},
		{name: "taken away", policy: PolicyBinderRights, resource: maps, object: devices(ofPod, visible), removes: true},
		{name: "nobody's", policy: PolicyBinderRights, resource: maps, object: devices("", visible), want: tells},
		{name: "something else", policy: PolicyBinderRights, resource: maps, object: devices(ofPod, "Corefile: mine"), want: tells},
		{name: "over something else", policy: PolicyBinderRights, resource: maps, object: devices(ofPod, visible), old: devices("", "Corefile: theirs"), want: tells},
		{name: "something else taken away", policy: PolicyBinderRights, resource: maps, object: devices("", "Corefile: theirs"), removes: true, want: tells},
		{name: "nobody's taken away", policy: PolicyBinderRights, resource: maps, object: devices("", ""), removes: true, want: tells},

		{name: "a gang", policy: PolicyGrouperRights, resource: pods, object: pod("labels: {kai.scheduler/subgroup-name: s}, "+note("pod-group-name"), ""), old: pod("", "")},
		{name: "a gang and more", policy: PolicyGrouperRights, resource: pods, object: pod("labels: {kai.scheduler/queue: s}", ""), old: pod("", ""), want: gang},

		{name: "a new gang", policy: PolicyGangRights, resource: groups, object: group("theirs: x", "a")},
		{name: "what the workload says now", policy: PolicyGangRights, resource: groups, object: gangOf("minMember: 4", "theirs: x"), old: gangOf("minMember: 2", "")},
		{name: "beside the scheduler's notes", policy: PolicyGangRights, resource: groups, object: gangOf("minMember: 4", keys.LastStartAnnotation+": x"), old: gangOf("minMember: 2", keys.LastStartAnnotation+": x")},
		{name: "a new gang that ran", policy: PolicyGangRights, resource: groups, object: group(keys.LastStartAnnotation+": x", "a"), want: "may not say when PodGroup g ran"},
		{name: "that it ran", policy: PolicyGangRights, resource: groups, object: group(keys.StaleSinceAnnotation+": x", "a"), old: group("", "a"), want: "may not say when PodGroup g ran"},
		{name: "that it was not evicted", policy: PolicyGangRights, resource: groups, object: group("", "a"), old: group(keys.LastEvictionAnnotation+": x", "a"), want: "may not say when"},
		{name: "another queue", policy: PolicyGangRights, resource: groups, object: group("", "b"), old: group("", "a"), want: "may not change the queue, the owners or the treatment of PodGroup g"},
		{name: "other treatment", policy: PolicyGangRights, resource: groups, object: gangOf("markUnschedulable: true", ""), old: gangOf("", ""), want: "the treatment of PodGroup g"},
		{name: "other owners", policy: PolicyGangRights, resource: groups, object: "{metadata: {name: g, " + ofPod + "}, spec: {queue: a}}", old: group("", "a"), want: "the owners"},

		{name: "a scaling pod", policy: PolicyScalingRights, resource: pods, object: scaling("", "")},
		{name: "its status", policy: PolicyScalingRights, resource: pods + "/status", object: scaling("nodeName: n1", ""), old: scaling("nodeName: n1", "")},
		{name: "taken away", policy: PolicyScalingRights, resource: pods, object: scaling("nodeName: n1", ""), removes: true},
		{name: "another pod", policy: PolicyScalingRights, resource: pods, object: pod("", ""), want: "which is no scaling pod"},
		{name: "another's status", policy: PolicyScalingRights, resource: pods + "/status", object: pod("", ""), old: pod("", ""), want: "which is no scaling pod"},
		{name: "another taken away", policy: PolicyScalingRights, resource: pods, object: pod("", ""), removes: true, want: "which is no scaling pod"},
		{name: "one made of another", policy: PolicyScalingRights, resource: pods, object: scaling("", ""), old: pod("", ""), want: "which is no scaling pod"},
		{name: "on a node", policy: PolicyScalingRights, resource: pods, object: scaling("nodeName: n1", ""), want: "has more than room"},
		{name: "with a token", policy: PolicyScalingRights, resource: pods, object: strings.Replace(scaling("", ""), "Token: false", "Token: true", 1), want: "has more than room"},
		{name: "on the host's network", policy: PolicyScalingRights, resource: pods, object: scaling("hostNetwork: true", ""), want: "has more than room"},
		{name: "of the host's processes", policy: PolicyScalingRights, resource: pods, object: scaling("hostPID: true", ""), want: "has more than room"},
		{name: "with the host's files", policy: PolicyScalingRights, resource: pods, object: scaling("volumes: [{name: v, hostPath: {path: /}}]", ""), want: "has more than room"},
		{name: "with a secret", policy: PolicyScalingRights, resource: pods, object: scaling("volumes: [{name: v, secret: {secretName: s}}]", ""), want: "has more than room"},
		{name: "with all rights", policy: PolicyScalingRights, resource: pods, object: scaling("", "privileged: true"), want: "has more than room"},
		{name: "with its own", policy: PolicyScalingRights, resource: pods, object: scaling("volumes: [{name: v, emptyDir: {}}]", "privileged: false")},

		{name: "a queue's remnants", policy: PolicyPodGroupRights, resource: queues, object: queue(note(keys.RemnantsAnnotation), "4"), old: queue("", "4")},
		{name: "a queue's limit", policy: PolicyPodGroupRights, resource: queues, object: queue("", "8"), old: queue("", "4"), want: rest},
		{name: "a queue's notes", policy: PolicyPodGroupRights, resource: queues, object: queue(note(keys.ExtendedResourcesAnnotation), "4"), old: queue("", "4"), want: rest},

		{name: "a queue's copy", policy: PolicyQueueRights, resource: queues, object: queue(note(keys.ExtendedResourcesAnnotation), "4"), old: queue("", "4")},
		{name: "a queue's limit", policy: PolicyQueueRights, resource: queues, object: queue("", "8"), old: queue("", "4"), want: "may change nothing of a queue but " + keys.ExtendedResourcesAnnotation},
		{name: "a queue's remnants", policy: PolicyQueueRights, resource: queues, object: queue(note(keys.RemnantsAnnotation), "4"), old: queue("", "4"), want: "may change nothing of a queue"},

		{name: "a gang's times", policy: PolicySchedulerRights, resource: groups, object: group(keys.LastStartAnnotation+": x, "+keys.StaleSinceAnnotation+": x", "a"), old: group(keys.LastEvictionAnnotation+": x", "a")},
		{name: "a gang's queue", policy: PolicySchedulerRights, resource: groups, object: group("", "b"), old: group("", "a"), want: "may change nothing of a podgroup but " + keys.StaleSinceAnnotation},
		{name: "a gang's notes", policy: PolicySchedulerRights, resource: groups, object: group("theirs: x", "a"), old: group("", "a"), want: "may change nothing of a podgroup"},

		{name: "a record", policy: PolicyRecordRights, resource: maps, object: "{metadata: {name: gang-b, labels: {muster.dev/gang-record: default}}, data: {format: '1', gang: a/g}}"},
		{name: "a record taken away", policy: PolicyRecordRights, resource: maps, object: "{metadata: {name: gang-b, labels: {muster.dev/gang-record: default}}}", removes: true},
		{name: "something else", policy: PolicyRecordRights, resource: maps, object: "{metadata: {name: settings}, data: {a: b}}", want: "settings is none"},
		{name: "something else, labelled", policy: PolicyRecordRights, resource: maps, object: "{metadata: {name: settings, labels: {muster.dev/gang-record: default}}, data: {a: b}}", want: "settings is none"},
		{name: "something else taken away", policy: PolicyRecordRights, resource: maps, object: "{metadata: {name: settings}, data: {a: b}}", removes: true, want: "settings is none"},

		{name: "our webhooks", policy: PolicyOperatorRights, resource: hooks, object: "{metadata: {name: mutating-kai-admission, " + made + "}}"},
		{name: "KAI's, taken over", policy: PolicyOperatorRights, resource: hooks, object: "{metadata: {name: mutating-kai-admission, " + made + "}}", old: "{metadata: {name: mutating-kai-admission}}"},
		{name: "others'", policy: PolicyOperatorRights, resource: hooks, object: "{metadata: {name: evil, " + made + "}}", want: "may not write mutatingwebhookconfigurations evil, which is not its own"},
		{name: "over others'", policy: PolicyOperatorRights, resource: hooks, object: "{metadata: {name: theirs, " + made + "}}", old: "{metadata: {name: theirs}}", want: "theirs, which is not its own"},
		{name: "what it made", policy: PolicyOperatorRights, resource: hooks, object: "{metadata: {name: older, " + made + "}}", removes: true},
		{name: "what others made", policy: PolicyOperatorRights, resource: hooks, object: "{metadata: {name: theirs}}", removes: true, want: "theirs, which is not its own"},
		{name: "its namespace", policy: PolicyOperatorRights, resource: "namespaces.v1.", object: "{metadata: {name: kai-resource-reservation}}", old: "{metadata: {name: kai-resource-reservation}}"},
		{name: "another", policy: PolicyOperatorRights, resource: "namespaces.v1.", object: "{metadata: {name: team, " + made + "}}", old: "{metadata: {name: team, " + made + "}}", want: "may not write namespaces team"},
	} {
		account := map[string]string{PolicyNodeRights: AccountExporter, PolicyBinderRights: AccountBinder, PolicyGrouperRights: AccountPodGrouper, PolicyGangRights: AccountPodGrouper, PolicyScalingRights: AccountNodeScale, PolicyPodGroupRights: AccountPodGroup, PolicyQueueRights: AccountQueue, PolicySchedulerRights: AccountScheduler, PolicyRecordRights: AccountScheduler, PolicyOperatorRights: AccountOperator}[c.policy]
		name, groups := serviceAccount(o.Namespace, account)
		if account == "" {
			name, groups = serviceAccount(keys.ReservationNamespace, "kai-resource-reservation")
		}
		resource, part, _ := strings.Cut(c.resource, "/")
		a := asked{resource: resource, subresource: part, object: c.object, old: c.old, removes: c.removes, user: name, groups: groups, extra: c.extra}
		all[c.policy].expect(t, strings.TrimPrefix(c.policy, "muster-rights-")+": "+c.name, a, c.want)
		for _, other := range []string{"team", "kube-system"} {
			a.user, a.groups = serviceAccount(other, account)
			all[c.policy].expect(t, c.name+" by another", a, "")
		}
	}
}
