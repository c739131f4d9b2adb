package tenants

import (
	"fmt"
	"strings"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// Carrier is what a key is written on where Muster reads it, a sum of the constants.
type Carrier uint8

// The carriers that a tenant can write.
const (
	Pods      Carrier = 1 << iota
	Workloads         // owners of pods, and their templates
	Groups            // PodGroups
	Requests          // BindRequests
	Claims            // ResourceClaims and PersistentVolumeClaims
)

// Key is a label or annotation of the interface. What the constants of api/kai/keys say in prose about who writes it and
// where it is read is repeated here in a form that a program can use; Names lists the constants that are none.
type Key struct {
	// Const is the constant's name, Text the key. A key that ends in a slash begins keys.
	Const, Text string
	// Label and Annotation are where it is read as the one and as the other; 0 for keys of objects that are the administrator's.
	Label, Annotation Carrier
	// Ours says that only Muster may write it: forged, it must have no effect.
	Ours bool
	// Values are those that mean something. A word with a dollar sign in front stands for the name of something that exists.
	Values []string
}

// Keys are the labels and annotations of api/kai/keys that somebody writes on an object.
func Keys() []Key {
	return []Key{
		// What users say.
		label("QueueLabel", keys.QueueLabel, Pods|Workloads|Groups|Claims, "$queue", "$queue", keys.DefaultQueue),
		label("NodePoolLabel", keys.NodePoolLabel, Pods|Workloads|Groups|Requests, "other", keys.DefaultNodePool),
		label("ProjectLabel", keys.ProjectLabel, Pods|Workloads, "$queue"),
		label("PriorityClassLabel", keys.PriorityClassLabel, Pods|Workloads, keys.PriorityClassTrain, keys.PriorityClassBuildPreemptible, keys.PriorityClassBuild, keys.PriorityClassInference, "system-node-critical"),
		both("PreemptibilityLabel", keys.PreemptibilityLabel, Pods|Workloads, "preemptible", "non-preemptible", "non-preemptible"),
		both("User", keys.User, Pods|Workloads, "$namespace"),
		annotation("PodGroupAnnotation", keys.PodGroupAnnotation, Pods, "$group", "$group", "nothing"),
		label("SubGroupLabel", keys.SubGroupLabel, Pods, "nonsense", "a", "b"),
		annotation("SubgroupsAnnotation", keys.SubgroupsAnnotation, 0, "a=1,b=2", "=", "a=1000000"),
		label("TaskPriorityLabel", keys.TaskPriorityLabel, Pods, "1", "-1", "99999999999999999999"),
		annotation("SkipPodGrouperAnnotation", keys.SkipPodGrouperAnnotation, Pods|Workloads, "true", "true", "false"),
		annotation("BatchMinMemberAnnotation", keys.BatchMinMemberAnnotation, Workloads, "0", "1", "2", "1000000", "-5"),
		annotation("PreemptionDelayAnnotation", keys.PreemptionDelayAnnotation, Pods|Workloads, "0s", "1h", "-1h", "9999999h"),
		annotation("StalenessGracePeriodAnnotation", keys.StalenessGracePeriodAnnotation, Pods|Workloads, "0s", "-1s", "9999999h"),
		annotation("TopologyAnnotation", keys.TopologyAnnotation, Workloads, "nowhere"),
		annotation("TopologyRequiredAnnotation", keys.TopologyRequiredAnnotation, Workloads, "kubernetes.io/hostname", "nowhere"),
		annotation("TopologyPreferredAnnotation", keys.TopologyPreferredAnnotation, Workloads, "kubernetes.io/hostname", "nowhere"),
		annotation("SegmentSizeAnnotation", keys.SegmentSizeAnnotation, Workloads, "1", "0", "-1", "1000000"),
		annotation("SegmentTopologyRequiredAnnotation", keys.SegmentTopologyRequiredAnnotation, Workloads, "kubernetes.io/hostname"),
		annotation("SegmentTopologyPreferredAnnotation", keys.SegmentTopologyPreferredAnnotation, Workloads, "kubernetes.io/hostname"),
		annotation("GPUFractionAnnotation", keys.GPUFractionAnnotation, Pods|Workloads, "0.5", "0.25", "0.000001", "0.999", "NaN"),
		annotation("GPUMemoryAnnotation", keys.GPUMemoryAnnotation, Pods|Workloads, "1024", "1", "99999999999"),
		annotation("GPUFractionDevicesAnnotation", keys.GPUFractionDevicesAnnotation, Pods|Workloads, "1", "2", "1024"),
		annotation("GPUFractionContainerAnnotation", keys.GPUFractionContainerAnnotation, Pods|Workloads, "main", "missing"),
		annotation("MPSAnnotation", keys.MPSAnnotation, Pods|Workloads, "true"),
		annotation("SharedGPUConfigMapAnnotation", keys.SharedGPUConfigMapAnnotation, Pods|Workloads, "kube-root-ca.crt", "$group"),
		label("GrovePodGangLabel", keys.GrovePodGangLabel, Pods|Workloads, "$group"),
		annotation("GroveTopologyAnnotation", keys.GroveTopologyAnnotation, Workloads, "nowhere"),
		annotation("KarpenterDoNotDisruptAnnotation", keys.KarpenterDoNotDisruptAnnotation, Pods, "true"),
		label("AppLabel", keys.AppLabel, Pods|Workloads, keys.ReservationNamespace, keys.ScalingPodApp),
		// What Muster says.
		ours(label("GPUGroupLabel", keys.GPUGroupLabel, Pods|Workloads, "x", "forged")),
		ours(label("GPUGroupLabelPrefix", keys.GPUGroupLabelPrefix, Pods|Workloads, "x", "forged")),
		ours(annotation("ReceivedResourceTypeAnnotation", keys.ReceivedResourceTypeAnnotation, Pods|Workloads, "Regular", "Fraction")),
		ours(annotation("ChargedAnnotation", keys.ChargedAnnotation, Pods|Requests, "$queue/$group", "forged")),
		ours(annotation("ChargedAsAnnotation", keys.ChargedAsAnnotation, Pods|Requests, keys.ChargedFixed)),
		ours(annotation("OwnGangAnnotation", keys.OwnGangAnnotation, Pods|Requests, `{"pod":"$uid","name":"$group","uid":"$uid","spec":{"queue":"$queue","preemptibility":"non-preemptible"}}`, "[")),
		label("GangRecordLabel", keys.GangRecordLabel, 0),
		ours(annotation("DecidedAnnotation", keys.DecidedAnnotation, Pods|Requests, "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z")),
		ours(annotation("ReservedGPUAnnotation", keys.ReservedGPUAnnotation, Pods, "GPU-forged", "0")),
		ours(annotation("RegainedAnnotation", keys.RegainedAnnotation, Pods, "true")),
		ours(Key{Const: "BundleLabel", Text: keys.BundleLabel, Label: Requests, Annotation: Pods, Values: []string{"forged"}}),
		ours(label("BundleSizeLabel", keys.BundleSizeLabel, Requests, "1", "0", "1000000", "-1")),
		ours(label("SelectedNodeLabel", keys.SelectedNodeLabel, Requests, "$node")),
		ours(annotation("NUMAPredictedAnnotation", keys.NUMAPredictedAnnotation, Pods, `[{"zone":"node-0","amount":{"cpu":"64"}}]`, "[")),
		ours(annotation("NUMAObservedAnnotation", keys.NUMAObservedAnnotation, Pods, `[{"zone":"node-0","amount":{"cpu":"64"}}]`, `[{"zone":"","amount":{"nvidia.com/gpu":"-9"}}]`)),
		ours(annotation("StaleSinceAnnotation", keys.StaleSinceAnnotation, Groups|Workloads, "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z")),
		ours(annotation("LastStartAnnotation", keys.LastStartAnnotation, Groups|Workloads, "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z")),
		ours(annotation("LastEvictionAnnotation", keys.LastEvictionAnnotation, Groups|Workloads, "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z")),
		ours(annotation("WhyAnnotation", keys.WhyAnnotation, Groups|Workloads, "nothing", "{}")),
		ours(annotation("StartsAnnotation", keys.StartsAnnotation, Groups|Workloads, "14:20 to 17:00", "never")),
		ours(annotation("SelectedForAnnotation", keys.SelectedForAnnotation, Claims, "$uid")),
		annotation("ScalingShapeAnnotation", keys.ScalingShapeAnnotation, Pods, "x"),
		// Read on pods of the namespace for scaling pods, which is no tenant's.
		both("ScalingPodSourceLabel", keys.ScalingPodSourceLabel, Pods, "$pod"),
		both("ScalingPodSourceNamespaceLabel", keys.ScalingPodSourceNamespaceLabel, Pods, "$namespace"),
		annotation("TopOwnerAnnotation", keys.TopOwnerAnnotation, Groups, "name: x\nuid: $uid\ngroup: batch\nversion: v1\nkind: Job\n", "["),
		// What lies on events and on objects of the administrator; a tenant's copy of it means nothing.
		annotation("DecisionAnnotation", keys.DecisionAnnotation, 0),
		annotation("EvictedPodsAnnotation", keys.EvictedPodsAnnotation, 0),
		annotation("EvictorActionAnnotation", keys.EvictorActionAnnotation, 0),
		annotation("EvictorPodGroupAnnotation", keys.EvictorPodGroupAnnotation, 0),
		annotation("EvictorNamespaceAnnotation", keys.EvictorNamespaceAnnotation, 0),
		annotation("BudgetsAnnotation", keys.BudgetsAnnotation, 0, keys.BudgetsBlock),
		annotation("ExtendedResourcesAnnotation", keys.ExtendedResourcesAnnotation, 0),
		annotation("RemnantsAnnotation", keys.RemnantsAnnotation, 0),
		annotation("TopologyMigratedFromAnnotation", keys.TopologyMigratedFromAnnotation, 0),
		annotation("DeprecationAnnotation", keys.DeprecationAnnotation, 0),
		label("AccountingLabel", keys.AccountingLabel, 0, "true"),
		label("ManagedByLabel", keys.ManagedByLabel, 0, keys.OperatorManager),
		label("KartaGroupLabel", keys.KartaGroupLabel, 0),
		label("KartaVersionLabel", keys.KartaVersionLabel, 0),
		label("KartaKindLabel", keys.KartaKindLabel, 0),
		label("FakeGPUNodeLabel", keys.FakeGPUNodeLabel, 0, "true"),
		label("CPUWorkerNodeLabel", keys.CPUWorkerNodeLabel, 0, "true"),
		label("GPUWorkerNodeLabel", keys.GPUWorkerNodeLabel, 0, "true"),
		label("MIGWorkerNodeLabel", keys.MIGWorkerNodeLabel, 0, "true"),
		label("GPUMemoryNodeLabel", keys.GPUMemoryNodeLabel, 0, "1"),
		label("GPUCountNodeLabel", keys.GPUCountNodeLabel, 0, "1"),
		label("MIGStrategyNodeLabel", keys.MIGStrategyNodeLabel, 0, "mixed"),
		label("AMDGPUMemoryNodeLabelPrefix", keys.AMDGPUMemoryNodeLabelPrefix, 0),
		label("MPSCapableNodeLabel", keys.MPSCapableNodeLabel, 0, "true"),
	}
}

// Names are the constants of api/kai/keys that are no key of an object: values, names of objects, resources and variables,
// conditions and reasons. A prefix stands for all that begin with it.
func Names() []string {
	return []string{
		"Event", "Reason", "Lease", "PriorityClass", "BudgetsBlock", "BudgetsOrder", "GPUResource", "MIGResourcePrefix", "GPUMemoryResource",
		"VisibleDevicesEnv", "PortionEnv", "LegacyPortionEnv", "MemoryLimitEnv", "LegacyVisibleDevicesKey", "SchedulerName", "Namespace",
		"ReservationNamespace", "ScaleAdjustNamespace", "ScalingPodApp", "DefaultQueue", "DefaultNodePool", "DefaultGangPriority",
		"NonPreemptiblePriority", "ChargedFixed", "ChargedShare", "MetricsNamespace", "RuntimeClass", "OperatorManager", "PodBoundCondition", "RoomHeldCondition", "FrozenCondition",
	}
}

func label(name, text string, on Carrier, values ...string) Key {
	return Key{Const: name, Text: text, Label: on, Values: values}
}

func annotation(name, text string, on Carrier, values ...string) Key {
	return Key{Const: name, Text: text, Annotation: on, Values: values}
}

func both(name, text string, on Carrier, values ...string) Key {
	return Key{Const: name, Text: text, Label: on, Annotation: on, Values: values}
}

func ours(k Key) Key {
	k.Ours = true
	return k
}

// keysOn are the keys that are read on a carrier.
func keysOn(c Carrier) (out []Key) {
	for _, k := range Keys() {
		if (k.Label|k.Annotation)&c != 0 {
			out = append(out, k)
		}
	}
	return out
}

// Table is the keys as lines of a table in Markdown: key, as what and on what it is read, and who may write it.
func Table() string {
	var b strings.Builder
	b.WriteString("| key | read as | on | written by |\n|---|---|---|---|\n")
	for _, k := range Keys() {
		var as, on []string
		if k.Label != 0 {
			as = append(as, "label")
		}
		if k.Annotation != 0 {
			as = append(as, "annotation")
		}
		for i, name := range []string{"pods", "workloads and templates", "PodGroups", "BindRequests", "claims"} {
			if (k.Label|k.Annotation)&(1<<i) != 0 {
				on = append(on, name)
			}
		}
		who := "users"
		switch {
		case k.Ours:
			who = "Muster alone"
		case k.Label|k.Annotation == 0:
			as = []string{"either"}
			on, who = []string{"nodes, queues, events or objects of the control plane"}, "administrators and Muster"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Text, strings.Join(as, ", "), strings.Join(on, ", "), who)
	}
	return b.String()
}
