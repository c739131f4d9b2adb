package install

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	volcano "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/controllers/admission"
	kinds "github.com/muster-scheduler/muster/internal/dialect/workload"
)

// Permissions are what an account may do, by where it may do it.
type Permissions struct {
	// Cluster are rules for all namespaces and for objects without one: a ClusterRole.
	Cluster []rbacv1.PolicyRule
	// Home are rules for the control plane's own namespace, or, of what is Volcano's, for that of Volcano or of a ConfigMap: a Role there.
	Home []rbacv1.PolicyRule
	// Reserved are rules for the namespace of the pods that hold shared GPUs.
	Reserved []rbacv1.PolicyRule
	// Scaling are rules for the namespace of the pods that show demand to a cluster autoscaler.
	Scaling []rbacv1.PolicyRule
}

// API groups that rules speak of.
const (
	groupCore      = ""
	groupLease     = "coordination.k8s.io"
	groupKAI       = "kai.scheduler"
	groupWork      = "scheduling.run.ai"
	groupDevice    = "resource.k8s.io"
	groupStorage   = "storage.k8s.io"
	groupPolicy    = "policy"
	groupNUMA      = "topology.node.k8s.io"
	groupPriority  = "scheduling.k8s.io"
	groupRBAC      = "rbac.authorization.k8s.io"
	groupAdmission = "admissionregistration.k8s.io"
	groupMonitors  = "monitoring.coreos.com"
	groupVPA       = "autoscaling.k8s.io"

	groupVCBatch      = "batch.volcano.sh"
	groupVCBus        = "bus.volcano.sh"
	groupVCScheduling = "scheduling.volcano.sh"
	groupKBFirst      = "scheduling.incubator.k8s.io"
	groupKBSecond     = "scheduling.sigs.dev"
	groupVCFlow       = "flow.volcano.sh"
	groupVCTopology   = "topology.volcano.sh"
	groupVCShard      = "shard.volcano.sh"
	groupVCNode       = "nodeinfo.volcano.sh"
)

// CyclePath is the path at which schedulers serve their cycles; to get it is a right of its own.
const CyclePath = "/cycle"

// OutlookPath is the path at which schedulers are told what is forecast of their gangs; to post to it is a right of its own.
const OutlookPath = "/outlook"

// Verbs that go together.
var (
	watch = []string{"get", "list", "watch"}
	own   = []string{"get", "list", "watch", "create", "patch", "delete"}
)

func rule(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

func only(names []string, r rbacv1.PolicyRule) rbacv1.PolicyRule {
	r.ResourceNames = names
	return r
}

// events are written about pods and gangs of all namespaces, and in the namespace default about objects that have none.
func events() rbacv1.PolicyRule { return rule(groupCore, []string{"create"}, "events") }

// leaseRules lets a role take its turn: create its Lease, and from then on that one alone.
func leaseRules(name string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule(groupLease, []string{"create"}, "leases"),
		only([]string{name}, rule(groupLease, []string{"get", "update"}, "leases")),
	}
}

// Rules are what a role may do, and no more: a golden file holds them, and they may only shrink (testdata/rbac.golden says
// how they grow all the same). No role may read Secrets beyond its own by name, escalate, or act as somebody else. An unknown
// role may do nothing.
//
// The operator's are its own, and all that it hands to others: an API server lets nobody grant what he does not have.
func Rules(role string) Permissions {
	switch role {
	case Scheduler:
		return schedulerRules()
	case Binder:
		return binderRules()
	case PodGrouper:
		return podGrouperRules()
	case PodGroup:
		return Permissions{
			Cluster: []rbacv1.PolicyRule{
				rule(groupCore, watch, "pods", "nodes"),
				rule(groupPriority, watch, "priorityclasses"),
				rule(groupDevice, watch, "resourceclaims", "deviceclasses"),
				rule(groupWork, watch, "queues", "podgroups"),
				rule(groupWork, []string{"patch"}, "queues", "podgroups/status"),
				events(),
			},
			Home: leaseRules(keys.LeasePodGroupController),
		}
	case Queue:
		return Permissions{
			Cluster: []rbacv1.PolicyRule{
				rule(groupWork, watch, "queues", "podgroups"),
				rule(groupWork, []string{"patch"}, "queues", "queues/status"),
				events(), // of defects, as of every role
			},
			Home: leaseRules(keys.LeaseQueueController),
		}
	case Admission:
		return admissionRules()
	case NodeScale:
		return Permissions{
			Cluster: []rbacv1.PolicyRule{
				rule(groupCore, watch, "pods"),
				rule(groupWork, watch, "podgroups", "bindrequests"),
				events(),
			},
			Home: leaseRules(keys.LeaseNodeScaleAdjuster),
			Scaling: []rbacv1.PolicyRule{
				rule(groupCore, []string{"create", "delete"}, "pods"),
				rule(groupCore, []string{"patch"}, "pods/status"),
			},
		}
	case Operator:
		return operatorRules()
	case VolcanoControllers:
		return volcanoRules()
	case VolcanoScheduler:
		return Permissions{Cluster: []rbacv1.PolicyRule{
			rule(groupVCScheduling, watch, "queues", "podgroups"),
			rule(groupVCTopology, watch, "hypernodes"),
			rule(groupVCShard, watch, "nodeshards"),
			rule(groupVCNode, watch, "numatopologies"),
			rule(groupVCShard, []string{"patch"}, "nodeshards/status"),
			rule(groupCore, watch, "resourcequotas"),                         // on which plugin resourcequota votes
			rule("apps", watch, "replicasets", "statefulsets", "daemonsets"), // what owns bare pods
			rule("batch", watch, "jobs"),
			rule(groupVCScheduling, []string{"patch"}, "podgroups"), // of which the status is no subresource: a policy of the chart's says that it is only that
		}, Home: []rbacv1.PolicyRule{
			only([]string{VolcanoSchedulerFile}, rule(groupCore, watch, "configmaps")), // or another one alone, in its namespace
		}}
	case KubeBatchScheduler:
		return Permissions{Cluster: []rbacv1.PolicyRule{
			rule(groupKBFirst, watch, "queues", "podgroups"),
			rule(groupKBFirst, []string{"patch"}, "podgroups/status"),
			rule(groupKBSecond, watch, "queues", "podgroups"),
			rule(groupKBSecond, []string{"patch"}, "podgroups/status"),
		}}
	case VolcanoQueueGates: // of a pod there is no smaller right than to patch it: a policy of the chart's leaves of it the gate
		return Permissions{Cluster: []rbacv1.PolicyRule{rule(groupCore, []string{"patch"}, "pods")}}
	case UI:
		return Permissions{
			Cluster: []rbacv1.PolicyRule{
				{NonResourceURLs: []string{CyclePath}, Verbs: []string{"get"}},
				{NonResourceURLs: []string{OutlookPath}, Verbs: []string{"post"}},
				rule("authentication.k8s.io", []string{"create"}, "tokenreviews"),
				rule("authorization.k8s.io", []string{"create"}, "subjectaccessreviews"),
				rule(groupWork, []string{"list", "watch"}, "podgroups"), // whose they are
				rule(groupKAI, []string{"list"}, "schedulingshards"),
			},
			Home: []rbacv1.PolicyRule{rule(groupLease, []string{"get"}, "leases")}, // where schedulers serve their cycles
		}
	case VolcanoAdmission:
		verbs := []string{"get", "patch"} // whom to trust
		return Permissions{Cluster: []rbacv1.PolicyRule{
			rule(groupVCScheduling, []string{"list", "watch"}, "queues", "podgroups"),
			rule(groupCore, []string{"get"}, "namespaces"), // which may name a queue
			only([]string{admission.VolcanoWebhook}, rule(groupAdmission, verbs, "mutatingwebhookconfigurations", "validatingwebhookconfigurations")),
		}, Home: []rbacv1.PolicyRule{ // of the ConfigMap of resource groups, or another one alone, in its namespace
			only([]string{volcano.AdmissionConfig}, rule(groupCore, watch, "configmaps")),
			rule(groupCore, []string{"list", "watch", "create", "delete"}, "podtemplates"), // which stand for them: a policy reads what is in there, and nothing else
			events(),
		}}
	case Reservation:
		return Permissions{Reserved: []rbacv1.PolicyRule{rule(groupCore, []string{"get", "patch"}, "pods")}}
	case Exporter:
		return Permissions{Cluster: []rbacv1.PolicyRule{rule(groupCore, []string{"list", "patch"}, "pods")}}
	case Prometheus:
		return Permissions{Cluster: []rbacv1.PolicyRule{
			rule(groupCore, watch, "services", "endpoints", "pods"),
			rule("discovery.k8s.io", watch, "endpointslices"),
		}}
	}
	return Permissions{}
}

func schedulerRules() Permissions {
	return Permissions{
		Cluster: []rbacv1.PolicyRule{
			rule(groupCore, watch, "pods", "nodes", "namespaces", "configmaps", "persistentvolumes", "persistentvolumeclaims"),
			rule(groupCore, []string{"delete"}, "pods"),                          // --eviction-mode=delete
			rule(groupCore, []string{"create"}, "pods/eviction", "pods/binding"), // bindings of pods that need no binder
			rule(groupCore, []string{"patch"}, "pods/status"),
			rule(groupPriority, watch, "priorityclasses", "podgroups", "compositepodgroups"), // groups: Kubernetes' own, where it has them
			rule(groupPriority, []string{"patch"}, "podgroups/status"),
			rule(groupStorage, watch, "storageclasses", "csinodes", "csidrivers", "csistoragecapacities"),
			rule(groupPolicy, watch, "poddisruptionbudgets"),
			rule(groupDevice, watch, "resourceclaims", "resourceslices", "deviceclasses"),
			rule(groupNUMA, watch, "noderesourcetopologies"),
			rule(groupKAI, watch, "topologies"),
			rule(groupWork, watch, "queues", "podgroups"),
			rule(groupWork, []string{"patch"}, "podgroups", "podgroups/status"),
			rule(groupWork, append([]string{"create", "delete"}, watch...), "bindrequests"),
			events(),
		},
		Home: []rbacv1.PolicyRule{
			rule(groupLease, []string{"get", "create", "update"}, "leases"), // those of shards have their partitions' names
			rule(groupCore, []string{"create", "delete"}, "configmaps"),     // records of decisions about gangs, each with a name of its own
		},
	}
}

func binderRules() Permissions {
	return Permissions{
		Cluster: []rbacv1.PolicyRule{
			rule(groupWork, append([]string{"delete"}, watch...), "bindrequests"),
			rule(groupWork, []string{"patch"}, "bindrequests/status"),
			rule(groupCore, append([]string{"patch"}, watch...), "pods", "persistentvolumes", "persistentvolumeclaims"),
			rule(groupCore, []string{"create"}, "pods/binding", "pods/eviction"),
			rule(groupCore, []string{"update"}, "pods/finalizers"), // a claim of extended resources keeps its pod until it is gone
			rule(groupCore, []string{"patch"}, "pods/status"),
			rule(groupCore, watch, "nodes"),
			rule(groupCore, []string{"get", "create", "update", "delete"}, "configmaps"), // what tells containers their devices lies beside their pods
			rule(groupStorage, watch, "storageclasses"),
			rule(groupDevice, append([]string{"create", "patch", "delete"}, watch...), "resourceclaims"),
			rule(groupDevice, []string{"patch"}, "resourceclaims/status"),
			rule(groupDevice, []string{"update", "patch"}, "resourceclaims/binding"), // since Kubernetes 1.36
			events(),
		},
		Home:     leaseRules(keys.LeaseBinder),
		Reserved: []rbacv1.PolicyRule{rule(groupCore, []string{"create", "delete"}, "pods")},
	}
}

// workloads are the kinds that own pods, as the podgrouper's table of kinds has them.
func workloads() []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, a := range kinds.Accesses(kinds.Kinds()) { // sorted by group
		if a.Group == groupCore && a.Resource == "pods" {
			continue // its own subject, granted apart
		}
		if last := len(out) - 1; last >= 0 && out[last].APIGroups[0] == a.Group && slices.Equal(out[last].Verbs, a.Verbs) {
			out[last].Resources = append(out[last].Resources, a.Resource)
			continue
		}
		out = append(out, rule(a.Group, a.Verbs, a.Resource))
	}
	return out
}

func podGrouperRules() Permissions {
	return Permissions{
		Cluster: append([]rbacv1.PolicyRule{
			rule(groupCore, append([]string{"patch"}, watch...), "pods"),
			rule(groupCore, watch, "namespaces"),
			rule(groupPriority, watch, "priorityclasses"),
			rule(groupWork, append([]string{"create", "patch"}, watch...), "podgroups"),
			events(),
		}, workloads()...),
		Home: leaseRules(keys.LeasePodGrouper),
	}
}

// AdmissionSecret holds the certificates of the webhooks.
const AdmissionSecret = "admission-webhook-tls-secret"

func admissionRules() Permissions {
	validating := []string{"validating-kai-admission", "kai-queue-validation-v2", "kai-podgroup-validation-v2alpha2"}
	verbs := append([]string{"patch"}, watch...)
	return Permissions{
		Cluster: []rbacv1.PolicyRule{
			only([]string{"mutating-kai-admission"}, rule(groupAdmission, verbs, "mutatingwebhookconfigurations")),
			only(validating, rule(groupAdmission, verbs, "validatingwebhookconfigurations")),
			rule(groupWork, []string{"list"}, "queues", "podgroups"),
		},
		Home: append(leaseRules(keys.LeaseAdmission),
			rule(groupCore, []string{"create"}, "secrets"),
			only([]string{AdmissionSecret}, rule(groupCore, append([]string{"update"}, watch...), "secrets")),
		),
	}
}

// volcanoRules are what Volcano's controllers do in every namespace in which there are Jobs. That the Secrets and pods which they make are those of
// Jobs says a policy of the chart's; no rule can.
func volcanoRules() Permissions {
	return Permissions{
		Cluster: []rbacv1.PolicyRule{
			rule(groupVCBatch, own, "jobs"), // it makes those of CronJobs and JobFlows: a policy of the chart's says so
			rule(groupVCBatch, []string{"patch"}, "jobs/status", "cronjobs/status"),
			rule(groupVCBatch, watch, "cronjobs"),
			rule(groupVCFlow, watch, "jobflows", "jobtemplates"),
			rule(groupVCFlow, []string{"patch"}, "jobflows/status", "jobtemplates/status"),
			rule(groupVCTopology, own, "hypernodes"), // it writes those that it discovered: the same
			rule(groupVCTopology, []string{"patch"}, "hypernodes/status"),
			rule(groupVCShard, own, "nodeshards"),
			rule(groupCore, watch, "nodes"),
			rule(groupVCBatch, []string{"update"}, "jobs/finalizers"), // what is made for a Job keeps it until it is gone
			rule(groupVCBus, append([]string{"delete"}, watch...), "commands"),
			rule(groupVCScheduling, own, "podgroups"),
			rule(groupVCScheduling, append([]string{"create", "patch"}, watch...), "queues"), // it makes root and default: a policy of the chart's says so
			rule(groupVCScheduling, []string{"patch"}, "queues/status"),
			rule(groupPriority, watch, "priorityclasses"),
			rule(groupCore, own, "pods"),
			rule("apps", watch, "replicasets", "statefulsets", "daemonsets"), // what owns bare pods
			rule("batch", watch, "jobs"),
			rule(groupCore, append([]string{"create"}, watch...), "persistentvolumeclaims"),
			rule(groupCore, []string{"create", "patch"}, "configmaps"), // plugin svc
			rule(groupCore, []string{"create"}, "services", "secrets"), // plugins svc, ray and ssh
			rule("networking.k8s.io", []string{"create"}, "networkpolicies"),
			events(),
		},
		Home: append(leaseRules(volcano.LeaseControllers), only([]string{volcano.ControllerConfig, volcano.ShardingConfig}, rule(groupCore, watch, "configmaps"))),
	}
}

// operatorRules are the operator's own, then all that it grants.
func operatorRules() Permissions {
	accounts := func() []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{
			rule(groupCore, own, "serviceaccounts"),
			rule(groupRBAC, own, "roles", "rolebindings"),
		}
	}
	p := Permissions{
		Cluster: []rbacv1.PolicyRule{
			rule(groupKAI, watch, "configs", "schedulingshards"),
			rule(groupKAI, []string{"patch"}, "configs/status", "schedulingshards/status"),
			// Objects that are owned by a Config say that it is not to go before them.
			rule(groupKAI, []string{"update"}, "configs/finalizers", "schedulingshards/finalizers"),
			rule(groupCore, append([]string{"create", "patch"}, watch...), "namespaces"),
			rule(groupCore, watch, "nodes"),
			rule(groupRBAC, own, "clusterroles", "clusterrolebindings"),
			rule(groupAdmission, own, "mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
			// No policy can guard policies. So what it may change of them are those of its own names; it can still make others.
			rule(groupAdmission, append([]string{"create"}, watch...), "validatingadmissionpolicies", "validatingadmissionpolicybindings"),
			only(admission.PolicyNames(), rule(groupAdmission, []string{"patch", "delete"}, "validatingadmissionpolicies", "validatingadmissionpolicybindings")),
			rule("nvidia.com", watch, "clusterpolicies"),
			events(),
		},
		Home: append(append(leaseRules(keys.LeaseOperator),
			rule("apps", own, "deployments", "daemonsets"),
			rule(groupCore, own, "services", "configmaps"),
			// Histories of usage: it makes claims for them, and deletes none.
			rule(groupCore, append([]string{"create", "patch"}, watch...), "persistentvolumeclaims"),
			rule(groupPolicy, own, "poddisruptionbudgets"),
			rule("networking.k8s.io", own, "networkpolicies"),
			// Which scheduler leads, for Services that lead to it. (Pods it may watch, as those may to whom it grants that.)
			rule(groupLease, watch, "leases"),
			rule("discovery.k8s.io", own, "endpointslices"),
			rule(groupMonitors, own, "prometheuses", "servicemonitors"),
			rule(groupVPA, own, "verticalpodautoscalers"),
		), accounts()...),
		Reserved: accounts(),
		Scaling:  accounts(),
	}
	for _, role := range Roles() {
		if ByChart(role) {
			continue
		}
		granted := Rules(role)
		p.Cluster = append(p.Cluster, granted.Cluster...)
		p.Home = append(p.Home, granted.Home...)
		p.Reserved = append(p.Reserved, granted.Reserved...)
		p.Scaling = append(p.Scaling, granted.Scaling...)
	}
	for _, rules := range []*[]rbacv1.PolicyRule{&p.Cluster, &p.Home, &p.Reserved, &p.Scaling} {
		*rules = merged(*rules)
	}
	return p
}

// merged joins rules about the same resource into one with all their verbs, so that a union reads like a list.
func merged(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	type key struct{ group, resource, name string }
	verbs := map[key][]string{}
	var order []key
	for _, r := range rules {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, name := range names {
					k := key{group, resource, name}
					if _, seen := verbs[k]; !seen {
						order = append(order, k)
					}
					for _, v := range r.Verbs {
						if !slices.Contains(verbs[k], v) {
							verbs[k] = append(verbs[k], v)
						}
					}
				}
			}
		}
	}
	out := make([]rbacv1.PolicyRule, 0, len(order))
	for _, r := range rules {
		if len(r.NonResourceURLs) > 0 {
			out = append(out, r)
		}
	}
	for _, k := range order {
		slices.Sort(verbs[k])
		r := rule(k.group, verbs[k], k.resource)
		if k.name != "" {
			// Names of which the same may be done stand in one rule.
			if i := slices.IndexFunc(out, func(o rbacv1.PolicyRule) bool {
				return len(o.ResourceNames) > 0 && slices.Equal(o.APIGroups, r.APIGroups) && slices.Equal(o.Resources, r.Resources) && slices.Equal(o.Verbs, r.Verbs)
			}); i >= 0 {
				out[i].ResourceNames = append(out[i].ResourceNames, k.name)
				continue
			}
			r.ResourceNames = []string{k.name}
		}
		out = append(out, r)
	}
	return out
}
