package kaizip

import (
	"encoding/json"
	"time"

	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// entryName is the one file in an archive.
const entryName = "snapshot.json"

// archive is that file. Field names are KAI's; readers of JSON do not tell upper and lower case apart.
type archive struct {
	Config    config          `json:"config"`
	Params    Params          `json:"schedulerParams"`
	Raw       objects         `json:"rawObjects"`
	Discovery json.RawMessage `json:"discovery,omitempty"`
}

// config is the scheduler's configuration file.
type config struct {
	Actions             *string        `json:"actions,omitempty"`
	Tiers               []tier         `json:"tiers,omitempty"`
	QueueDepthPerAction map[string]int `json:"queueDepthPerAction,omitempty"`
}

type tier struct {
	Plugins []plugin `json:"plugins"`
}

type plugin struct {
	Name      string            `json:"name"`
	Arguments map[string]string `json:"arguments,omitempty"`
}

// Params are the flags of the scheduler that its decisions depend on, by KAI's names. Durations are nanoseconds.
type Params struct {
	SchedulerName                     string        `json:"schedulerName"`
	RestrictSchedulingNodes           bool          `json:"restrictSchedulingNodes"`
	PartitionParams                   Partition     `json:"partitionParams"`
	MaxNumberConsolidationPreemptees  int           `json:"maxNumberConsolidationPreemptees"`
	ScheduleCSIStorage                bool          `json:"scheduleCSIStorage"`
	UseSchedulingSignatures           bool          `json:"useSchedulingSignatures"`
	FullHierarchyFairness             bool          `json:"fullHierarchyFairness"`
	AllowConsolidatingReclaim         bool          `json:"allowConsolidatingReclaim"`
	NumOfStatusRecordingWorkers       int           `json:"numOfStatusRecordingWorkers"`
	GlobalDefaultStalenessGracePeriod time.Duration `json:"globalDefaultStalenessGracePeriod"`
	SchedulePeriod                    time.Duration `json:"schedulePeriod"`
	StuckInReleasingThreshold         time.Duration `json:"stuckInReleasingThreshold"`
	DetailedFitErrors                 bool          `json:"detailedFitErrors"`
	UpdatePodEvictionCondition        bool          `json:"updatePodEvictionCondition"`
	QueueLabelKey                     string        `json:"queueLabelKey"`
}

// Partition is the shard. KAI writes it without tags.
type Partition struct {
	NodePoolLabelKey   string
	NodePoolLabelValue string
}

// DefaultParams are KAI's flags when none is given.
func DefaultParams() Params {
	return Params{
		SchedulerName: keys.SchedulerName, PartitionParams: Partition{NodePoolLabelKey: keys.NodePoolLabel}, MaxNumberConsolidationPreemptees: 16,
		UseSchedulingSignatures: true, FullHierarchyFairness: true, AllowConsolidatingReclaim: true, NumOfStatusRecordingWorkers: 5,
		GlobalDefaultStalenessGracePeriod: time.Minute, SchedulePeriod: time.Second, StuckInReleasingThreshold: 2 * time.Minute,
		QueueLabelKey: keys.QueueLabel,
	}
}

// objects are the objects that KAI's scheduler lists.
type objects struct {
	Pods                   []*v1.Pod                                `json:"pods"`
	Nodes                  []*v1.Node                               `json:"nodes"`
	Queues                 []*v2.Queue                              `json:"queues"`
	PodGroups              []*v2alpha2.PodGroup                     `json:"podGroups"`
	BindRequests           []*v1alpha2.BindRequest                  `json:"bindRequests"`
	PriorityClasses        []*schedulingv1.PriorityClass            `json:"priorityClasses"`
	ConfigMaps             []*metav1.PartialObjectMetadata          `json:"configMaps"`
	PersistentVolumes      []*v1.PersistentVolume                   `json:"persistentVolumes"`
	PersistentVolumeClaims []*v1.PersistentVolumeClaim              `json:"persistentVolumeClaims"`
	CSIStorageCapacities   []*storagev1.CSIStorageCapacity          `json:"csiStorageCapacities"`
	StorageClasses         []*storagev1.StorageClass                `json:"storageClasses"`
	CSIDrivers             []*storagev1.CSIDriver                   `json:"csiDrivers"`
	ResourceClaims         []*resourcev1.ResourceClaim              `json:"resourceClaims"`
	ResourceSlices         []*resourcev1.ResourceSlice              `json:"resourceSlices"`
	DeviceClasses          []*resourcev1.DeviceClass                `json:"deviceClasses"`
	Topologies             []*v1alpha1.Topology                     `json:"topologies"`
	NodeResourceTopologies []*topologyv1alpha2.NodeResourceTopology `json:"nodeResourceTopologies"`
}
