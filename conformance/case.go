package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
)

// Case is one situation and what is expected of it. Field names are those of the files.
type Case struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	Tags    []string `json:"tags"`
	Actions []string `json:"actions"`
	// Rounds is nil for a case whose actions run once.
	Rounds *Rounds `json:"rounds"`
	// DefaultStalenessGraceSeconds is the shard's grace for gangs below their minimum.
	DefaultStalenessGraceSeconds int64  `json:"defaultStalenessGraceSeconds"`
	Given                        Given  `json:"given"`
	Expect                       Expect `json:"expect"`
}

// Rounds says how often the actions run before and after the first comparison, and how much time lies between.
type Rounds struct {
	UntilMatch   int     `json:"untilMatch"`
	AfterMatch   int     `json:"afterMatch"`
	DelaySeconds float64 `json:"delaySeconds"`
}

// Given is the cluster at the start.
type Given struct {
	Nodes         []Node              `json:"nodes"`
	Queues        []Queue             `json:"queues"`
	Gangs         []Gang              `json:"gangs"`
	Topologies    []v1alpha1.Topology `json:"topologies"`
	DRA           DRA                 `json:"dra"`
	SchedulerConf json.RawMessage     `json:"schedulerConf"`
}

// Node is a node: whole GPUs, milli-CPU, bytes, pod slots.
type Node struct {
	Name         string            `json:"name"`
	GPUs         int64             `json:"gpus"`
	CPUMilli     int64             `json:"cpuMilli"`
	MemoryBytes  int64             `json:"memoryBytes"`
	PodSlots     int64             `json:"podSlots"`
	GPUMemoryMiB int64             `json:"gpuMemoryMiB"`
	Labels       map[string]string `json:"labels"`
	MIGStrategy  string            `json:"migStrategy"`
	MIGInstances map[string]int64  `json:"migInstances"`
	NUMA         *NUMA             `json:"numa"`
}

// NUMA is how a node's kubelet places pods in its NUMA zones.
type NUMA struct {
	Policy string `json:"policy"`
	Scope  string `json:"scope"`
	Zones  []Zone `json:"zones"`
}

// Zone is a NUMA zone: resources by name, CPU in milli-CPU.
type Zone struct {
	ID          string           `json:"id"`
	Allocatable map[string]int64 `json:"allocatable"`
	Available   map[string]int64 `json:"available"`
}

// DRA is what there is of devices that pods claim.
type DRA struct {
	DeviceClasses []string `json:"deviceClasses"`
	Slices        []Slice  `json:"slices"`
	Claims        []Claim  `json:"claims"`
}

// Slice is a pool of equal devices, called 0, 1, and so on, of one node.
type Slice struct {
	Name         string          `json:"name"`
	Node         string          `json:"node"`
	Driver       string          `json:"driver"`
	Class        string          `json:"class"`
	Devices      int             `json:"devices"`
	AllNodes     bool            `json:"allNodes"`
	NodeSelector json.RawMessage `json:"nodeSelector"`
}

// Claim asks for Count devices of a class in one request. Status is as in the API.
type Claim struct {
	Name      string                          `json:"name"`
	Namespace string                          `json:"namespace"`
	Class     string                          `json:"class"`
	Count     int64                           `json:"count"`
	Labels    map[string]string               `json:"labels"`
	Status    *resourcev1.ResourceClaimStatus `json:"status"`
}

// Queue is a queue. GPUs are whole, CPU in milli-CPU, memory in megabytes.
type Queue struct {
	Name      string `json:"name"`
	Parent    string `json:"parent"`
	CreatedAt int64  `json:"createdAt"`
	Priority  *int32 `json:"priority"`
	GPU       Share  `json:"gpu"`
	CPU       Share  `json:"cpu"`
	Memory    Share  `json:"memory"`
}

// Share is what a queue may have of one resource.
type Share struct {
	Quota  Amount  `json:"quota"`
	Limit  Amount  `json:"limit"`
	Weight float64 `json:"overQuotaWeight"`
}

// Amount is a number, or "unlimited".
type Amount struct {
	Value     float64
	Unlimited bool
}

// UnmarshalJSON reads a number or the word.
func (a *Amount) UnmarshalJSON(b []byte) error {
	if string(b) == `"unlimited"` {
		a.Unlimited = true
		return nil
	}
	return json.Unmarshal(b, &a.Value)
}

// Gang is a gang and its pods.
type Gang struct {
	Name                   string   `json:"name"`
	Namespace              string   `json:"namespace"`
	Queue                  string   `json:"queue"`
	Priority               int32    `json:"priority"`
	Preemptibility         string   `json:"preemptibility"`
	AgeSeconds             int64    `json:"ageSeconds"`
	Tree                   Tree     `json:"tree"`
	PerPod                 *Request `json:"perPod"`
	BestEffort             bool     `json:"bestEffort"`
	StaleForSeconds        *int64   `json:"staleForSeconds"`
	StalenessGraceSeconds  *int64   `json:"stalenessGraceSeconds"`
	PreemptionDelaySeconds *int64   `json:"preemptionDelaySeconds"`
	QOSClass               string   `json:"qosClass"`
	DeletedDuringTest      bool     `json:"deletedDuringTest"`
	Pods                   []Pod    `json:"pods"`
}

// Tree is a gang's tree of sets, from its root: a member with members of its own is a set, one without a pod set.
type Tree struct {
	Name        string   `json:"name"`
	MinSubGroup *int32   `json:"minSubGroup"`
	MinMember   *int32   `json:"minMember"`
	Topology    Together `json:"topologyConstraint"`
	Members     []Tree   `json:"members"`
}

// Together names a topology and the levels of it of which a set must, or should, stay in one domain.
type Together struct {
	Topology  string `json:"topology"`
	Required  string `json:"required"`
	Preferred string `json:"preferred"`
}

// Request is what one pod asks for. GPUs that are not integral are a share of one device.
type Request struct {
	GPUs         float64 `json:"gpus"`
	GPUDevices   int64   `json:"gpuDevices"`
	GPUMemoryMiB int64   `json:"gpuMemoryMiB"`
	CPUMilli     int64   `json:"cpuMilli"`
	MemoryBytes  int64   `json:"memoryBytes"`
}

// Pod is one pod at the start.
type Pod struct {
	Name            string            `json:"name"`
	Status          string            `json:"status"`
	Node            string            `json:"node"`
	GPUGroups       []string          `json:"gpuGroups"`
	Subgroup        string            `json:"subgroup"`
	GPUs            *float64          `json:"gpus"`
	OnlyNodes       []string          `json:"onlyNodes"`
	AffinityLabels  map[string]string `json:"podAffinityLabels"`
	AffinityKey     string            `json:"podAffinityTopologyKey"`
	AntiAffinityKey string            `json:"podAntiAffinityTopologyKey"`
	MIG             map[string]int64  `json:"mig"`
	LegacyMIG       bool              `json:"legacyMig"`
	TaskPriority    *int              `json:"taskPriority"`
	Claims          []string          `json:"claims"`
	Annotations     map[string]string `json:"annotations"`
}

// Expect is what must have become of the cluster; whoever is absent is not checked.
type Expect struct {
	Gangs  map[string]Outcome     `json:"gangs"`
	Pods   map[string]Outcome     `json:"pods"`
	Nodes  map[string]NodeOutcome `json:"nodes"`
	AtMost Bounds                 `json:"atMost"`
}

// Outcome is what must have become of a pod, or of every pod of a gang.
type Outcome struct {
	Status           string   `json:"status"`
	Node             string   `json:"node"`
	GPUsRequired     *float64 `json:"gpusRequired"`
	CPURequired      *int64   `json:"cpuMilliRequired"`
	MemoryRequired   *int64   `json:"memoryBytesRequired"`
	GPUsAccepted     *float64 `json:"gpusAccepted"`
	GPUGroups        []string `json:"gpuGroups"`
	IgnoreGPUGroups  bool     `json:"ignoreGpuGroups"`
	NUMAZones        []int    `json:"numaZones"`
	ErrorMessage     string   `json:"errorMessage"`
	StartedLongerAgo *int64   `json:"startedLongerAgoThanSeconds"`
}

// NodeOutcome is what must be left of a node.
type NodeOutcome struct {
	IdleGPUs      *float64 `json:"idleGpus"`
	ReleasingGPUs *float64 `json:"releasingGpus"`
	// NUMAZonesAvailable are quantities by resource, by index in the node's list of zones.
	NUMAZonesAvailable map[string]map[string]string `json:"numaZonesAvailable"`
}

// Bounds are the most there may be of each decision over the whole run; nil does not bound.
type Bounds struct {
	Binds       *int `json:"binds"`
	Evictions   *int `json:"evictions"`
	Nominations *int `json:"pipelined"`
}

// Load reads every case below dir (a folder of cases, or one that holds the folder "kai"), ordered by id.
func Load(dir string) ([]Case, error) {
	if sub := filepath.Join(dir, "kai"); isDir(sub) {
		dir = sub
	}
	var cases []Case
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var c Case
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&c); err != nil {
			return fmt.Errorf("behaviour case %s: %w", path, err)
		}
		if c.ID == "" || len(c.Actions) == 0 {
			return fmt.Errorf("behaviour case %s: id and actions must be given", path)
		}
		cases = append(cases, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading behaviour cases: %w", err)
	}
	if len(cases) == 0 {
		return nil, fmt.Errorf("no behaviour cases (*.json) below %s", dir)
	}
	slices.SortFunc(cases, func(a, b Case) int { return strings.Compare(a.ID, b.ID) })
	return cases, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
