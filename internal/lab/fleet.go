package lab

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Labels and annotations of the lab. A node is played if it carries LabelPool, whoever created it.
const (
	// LabelPool names the pool of a node; its presence makes the lab play that node's kubelet.
	LabelPool = "muster.lab/pool"
	// LabelRack, LabelBlock and LabelZone name the topology domains of a node, narrowest first.
	LabelRack  = "muster.lab/rack"
	LabelBlock = "muster.lab/block"
	LabelZone  = corev1.LabelTopologyZone
	// AnnotationFailed with value "true" on a node makes the lab play it as lost, until it is removed.
	AnnotationFailed = "muster.lab/failed"
	// AnnotationRunFor on a pod is how long it runs before it ends (a Go duration); absent: until deleted.
	AnnotationRunFor = "muster.lab/run-for"
	// AnnotationStartAfter on a pod is how long its containers take to start (a Go duration); absent: at once.
	AnnotationStartAfter = "muster.lab/start-after"
	// AnnotationOutcome on a pod is "succeed" (the default) or "fail": how it ends.
	AnnotationOutcome = "muster.lab/outcome"
	// AnnotationExitCode on a pod is the exit code of its containers when it fails; 1 by default.
	AnnotationExitCode = "muster.lab/exit-code"
	// AnnotationStopAfter on a pod is how long it takes to die once deleted: a Go duration, cut to its grace
	// period, or "never" for one that has to be killed when the grace is over; absent: it dies at once.
	AnnotationStopAfter = "muster.lab/stop-after"
)

// GPUResource is the extended resource by which a node's GPUs are counted.
const GPUResource corev1.ResourceName = "nvidia.com/gpu"

// MaxNodes is the most nodes one pool may have.
const MaxNodes = 100_000

// Fleet describes the simulated nodes of a lab. The zero Fleet has none. Its file form is YAML with these fields:
//
//	pools:
//	- name: h100            # names the pool; nodes are called <prefix><index>
//	  count: 64
//	  prefix: node-         # default: <name>-
//	  first: 0              # index of the first node
//	  gpus: 8               # per node; 0: a CPU node
//	  gpuMemoryMiB: 81920   # per GPU
//	  gpuProduct: NVIDIA-H100-80GB-HBM3
//	  cpu: "128"            # quantities, per node
//	  memory: 1Ti
//	  pods: 110
//	  resources: {rdma/hca: "8"}   # further resources
//	  racks: 8              # the nodes are split evenly into racks, these into blocks, these into zones
//	  blocks: 2
//	  zones: 1
//	  tree:                 # instead of those: any labels, widest first, each count per domain of the level before
//	  - {label: topology.kubernetes.io/zone, count: 4}
//	  - {label: example.com/rack, count: 8}
//	  domainPrefix: a-      # prepended to the names of domains
//	  mig: {strategy: mixed, slices: {1g.10gb: 14}}
//	  devices:              # what drivers of resource claims offer: a ResourceSlice a node, and a DeviceClass
//	  - {driver: gpu.example.com, count: 8, attributes: {model: H100}, capacity: {memory: 80Gi}}
//	  numa: {zones: 2, policy: single-numa-node, scope: pod} # a NodeResourceTopology a node
//	  labels: {team: vision}
//	  taints: [{key: dedicated, value: ai, effect: NoSchedule}]
//	storage:                # storage classes, of which the lab makes the volumes
//	- name: scratch
//	  reach: topology.kubernetes.io/zone
//	  capacity: 10Ti        # per zone
type Fleet struct {
	Pools []Pool `json:"pools"`
	// Storage are classes of volumes.
	Storage []Storage `json:"storage,omitempty"`
}

// Pool is a number of equal nodes. Its quantities are per node; see Fleet for an example.
type Pool struct {
	// Name labels the nodes (LabelPool). Required.
	Name string `json:"name"`
	// Count is how many nodes the pool has, up to MaxNodes.
	Count int `json:"count"`
	// Prefix and First name the nodes: Prefix followed by First, First+1, and so on. Prefix defaults to "<Name>-".
	Prefix string `json:"prefix,omitempty"`
	First  int    `json:"first,omitempty"`
	// GPUs is the number of whole GPUs of a node.
	GPUs int `json:"gpus,omitempty"`
	// GPUMemoryMiB is the memory of each GPU, in MiB; 81920 if it is 0 and there are GPUs.
	GPUMemoryMiB int `json:"gpuMemoryMiB,omitempty"`
	// GPUProduct is the value of label nvidia.com/gpu.product; NVIDIA-H100-80GB-HBM3 by default.
	GPUProduct string `json:"gpuProduct,omitempty"`
	// CPU and Memory are Kubernetes quantities; "128" and "1Ti" by default.
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
	// Pods is how many pods fit on a node; 110 by default.
	Pods int `json:"pods,omitempty"`
	// Resources are further allocatable resources by name.
	Resources map[string]string `json:"resources,omitempty"`
	// Racks, Blocks and Zones are numbers of topology domains; 0 means that nodes carry no such label.
	Racks  int `json:"racks,omitempty"`
	Blocks int `json:"blocks,omitempty"`
	Zones  int `json:"zones,omitempty"`
	// Tree says which topology domains there are by any labels, widest first; instead of Racks, Blocks and Zones. The nodes
	// are split evenly and in order.
	Tree []Level `json:"tree,omitempty"`
	// MIG cuts the GPUs into slices; nil for whole ones.
	MIG *MIG `json:"mig,omitempty"`
	// Devices are what the nodes offer to resource claims.
	Devices []Devices `json:"devices,omitempty"`
	// NUMA divides the nodes; nil for nodes that do not say.
	NUMA *NUMA `json:"numa,omitempty"`
	// DomainPrefix is prepended to the names of domains, to keep those of several pools apart.
	DomainPrefix string `json:"domainPrefix,omitempty"`
	// Labels are added to every node and win over the labels that the lab makes.
	Labels map[string]string `json:"labels,omitempty"`
	// Taints are put on every node.
	Taints []corev1.Taint `json:"taints,omitempty"`
}

// ReadFleet reads a fleet file. Unknown fields are errors, and so is whatever Nodes would refuse.
func ReadFleet(path string) (Fleet, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Fleet{}, fmt.Errorf("read the fleet: %w", err)
	}
	var f Fleet
	if err := yaml.UnmarshalStrict(b, &f); err != nil {
		return Fleet{}, fmt.Errorf("read the fleet %s: %w", path, err)
	}
	if _, err := f.Nodes(); err != nil {
		return Fleet{}, fmt.Errorf("read the fleet %s: %w", path, err)
	}
	return f, nil
}

// Nodes returns the fleet's nodes, ready and with their allocatable resources, in order. It fails on a pool or a
// class of storage that breaks a rule, and when two nodes have one name.
func (f Fleet) Nodes() ([]*corev1.Node, error) {
	if err := f.checkStorage(); err != nil {
		return nil, err
	}
	var all []*corev1.Node
	seen := map[string]string{}
	for i, p := range f.Pools {
		nodes, err := p.Nodes()
		if err != nil {
			return nil, fmt.Errorf("pools[%d]: %w", i, err)
		}
		for _, n := range nodes {
			if other, dup := seen[n.Name]; dup {
				return nil, fmt.Errorf("pools[%d]: node %s belongs to pool %s already: give one of them another prefix", i, n.Name, other)
			}
			seen[n.Name] = p.Name
		}
		all = append(all, nodes...)
	}
	return all, nil
}

// Nodes returns the pool's nodes, or an error that names the field and the rule it breaks.
func (p Pool) Nodes() ([]*corev1.Node, error) {
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("pool %q: %w", p.Name, err)
	}
	room, err := p.allocatable()
	if err != nil {
		return nil, fmt.Errorf("pool %q: %w", p.Name, err)
	}
	prefix := p.Prefix
	if prefix == "" {
		prefix = p.Name + "-"
	}
	nodes := make([]*corev1.Node, p.Count)
	for i := range nodes {
		name := prefix + strconv.Itoa(p.First+i)
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			return nil, fmt.Errorf("pool %q: prefix makes the node name %q: %s", p.Name, name, errs[0])
		}
		now := metav1.Now()
		nodes[i] = &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: p.labels(name, i)},
			Spec:       corev1.NodeSpec{Taints: p.Taints, ProviderID: "muster-lab://" + name},
			Status: corev1.NodeStatus{
				Capacity: room, Allocatable: room,
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
				NodeInfo: corev1.NodeSystemInfo{
					OperatingSystem: "linux", Architecture: "amd64", OSImage: "muster-lab",
					ContainerRuntimeVersion: "muster-lab://1", KubeletVersion: "v1.37.2", KernelVersion: "6.1.0",
				},
				Conditions: []corev1.NodeCondition{{
					Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
					Message: "played by muster-lab", LastHeartbeatTime: now, LastTransitionTime: now,
				}},
			},
		}
	}
	return nodes, nil
}

func (p Pool) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(p.Name != "", "name: is required")
	if e := validation.IsValidLabelValue(p.Name); len(e) > 0 {
		errs = append(errs, fmt.Errorf("name: %s", e[0]))
	}
	check(p.Count >= 0 && p.Count <= MaxNodes, "count: is %d, must be 0 to %d", p.Count, MaxNodes)
	check(p.First >= 0, "first: is %d, must not be negative", p.First)
	check(p.GPUs >= 0 && p.GPUs <= 1024, "gpus: is %d, must be 0 to 1024", p.GPUs)
	check(p.GPUMemoryMiB >= 0, "gpuMemoryMiB: is %d, must not be negative", p.GPUMemoryMiB)
	check(p.Pods >= 0, "pods: is %d, must not be negative", p.Pods)
	check(p.Racks >= 0 && p.Blocks >= 0 && p.Zones >= 0, "racks, blocks, zones: must not be negative")
	for k, v := range p.Labels {
		if e := validation.IsQualifiedName(k); len(e) > 0 {
			errs = append(errs, fmt.Errorf("labels: key %q: %s", k, e[0]))
		}
		if e := validation.IsValidLabelValue(v); len(e) > 0 {
			errs = append(errs, fmt.Errorf("labels: value of %s: %s", k, e[0]))
		}
	}
	return errors.Join(append(errs, p.checkHardware()...)...)
}

func (p Pool) allocatable() (corev1.ResourceList, error) {
	quantities := map[string]string{"cpu": "128", "memory": "1Ti", "pods": "110", "ephemeral-storage": "1Ti"}
	maps.Copy(quantities, p.Resources)
	if p.CPU != "" {
		quantities["cpu"] = p.CPU
	}
	if p.Memory != "" {
		quantities["memory"] = p.Memory
	}
	if p.Pods != 0 {
		quantities["pods"] = strconv.Itoa(p.Pods)
	}
	if p.GPUs != 0 {
		quantities[string(GPUResource)] = strconv.Itoa(p.GPUs)
	}
	p.cut(quantities)
	room := corev1.ResourceList{}
	for name, text := range quantities {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is no quantity: %w", name, text, err)
		}
		if q.Sign() < 0 {
			return nil, fmt.Errorf("%s: is %s, must not be negative", name, text)
		}
		room[corev1.ResourceName(name)] = q
	}
	return room, nil
}

func (p Pool) labels(name string, i int) map[string]string {
	l := map[string]string{
		LabelPool: p.Name, corev1.LabelHostname: name,
		corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}
	maps.Copy(l, p.gpuLabels())
	// Each level splits the nodes evenly and contiguously, so that a rack lies in one block and a block in one
	// zone whenever the numbers divide each other.
	domain := func(label, kind string, n int) {
		if n > 0 {
			l[label] = fmt.Sprintf("%s%s-%d", p.DomainPrefix, kind, i*n/p.Count)
		}
	}
	domain(LabelRack, "rack", p.Racks)
	domain(LabelBlock, "block", p.Blocks)
	domain(LabelZone, "zone", p.Zones)
	maps.Copy(l, p.treeLabels(i))
	maps.Copy(l, p.Labels)
	return l
}
