package enginetest

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/nodetopology"
)

// zones makes what a node says of its NUMA zones: zones=2 policy=restricted scope=pod. Its CPUs, memory and devices are
// split evenly; what is left over goes to the first zones. nil for a node that says nothing.
func zones(s *statement, n *v1.Node) *topologyv1alpha2.NodeResourceTopology {
	count := s.int("zones", 0)
	policy, scope := s.text("policy", string(cluster.ZonesSingle)), s.text("scope", string(cluster.PerContainer))
	if count < 0 || count > cluster.MaxZones {
		s.bad("zones=%d: want 1 to %d", count, cluster.MaxZones)
		return nil
	}
	if count == 0 {
		return nil
	}
	t := &topologyv1alpha2.NodeResourceTopology{}
	t.Name, t.CreationTimestamp = n.Name, n.CreationTimestamp
	t.Attributes = topologyv1alpha2.AttributeList{{Name: nodetopology.AttributePolicy, Value: policy}, {Name: nodetopology.AttributeScope, Value: scope}}
	for z := range int64(count) {
		zone := topologyv1alpha2.Zone{Name: zoneName(int(z)), Type: nodetopology.TypeNode}
		for _, name := range slices.Sorted(maps.Keys(n.Status.Allocatable)) {
			if name != v1.ResourceCPU && name != v1.ResourceMemory && !strings.Contains(string(name), "/") {
				continue
			}
			q := n.Status.Allocatable[name]
			x := q.Value() / int64(count)
			if z < q.Value()%int64(count) {
				x++
			}
			part := *resource.NewQuantity(x, q.Format)
			zone.Resources = append(zone.Resources, topologyv1alpha2.ResourceInfo{Name: string(name), Capacity: part, Allocatable: part, Available: part})
		}
		t.Zones = append(t.Zones, zone)
	}
	return t
}

func zoneName(i int) string { return "node-" + strconv.Itoa(i) }

// align reads what a pod has of NUMA zones: guaranteed (its limits are what it asks for; so it asks for memory, too), and of
// a pod on a node zone=0, by which the node has told that all it needs is in that zone.
func align(p *v1.Pod, l layers) {
	r := &p.Spec.Containers[0].Resources
	if l.flag("guaranteed") {
		if _, ok := r.Requests[v1.ResourceCPU]; !ok {
			l[0].bad("a guaranteed pod says how much cpu= it needs")
		}
		if _, ok := r.Requests[v1.ResourceMemory]; !ok {
			r.Requests[v1.ResourceMemory] = resource.MustParse("1Mi")
		}
		r.Limits = r.Requests.DeepCopy()
	}
	text := l.text("zone", "")
	if text == "" {
		return
	}
	zone, err := strconv.Atoi(text)
	if err != nil || zone < 0 || zone >= cluster.MaxZones {
		l[0].bad("zone=%s: want the number of a zone", text)
	}
	amount := v1.ResourceList{}
	for _, need := range core.Needs(p) {
		for name, q := range core.Quantities(need.Amounts) { // order: sums
			sum := amount[name]
			sum.Add(q)
			amount[name] = sum
		}
	}
	l[0].note(setZones(p, keys.NUMAObservedAnnotation, []v1alpha2.NUMAZonePlacement{{Zone: zoneName(zone), Amount: amount}}))
}

// setZones writes on a pod what it has of NUMA zones.
func setZones(p *v1.Pod, annotation string, zones []v1alpha2.NUMAZonePlacement) error {
	if len(zones) == 0 {
		return nil
	}
	text, err := json.Marshal(zones)
	if err != nil {
		return err
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[annotation] = string(text)
	return nil
}

// predict does what the binder does to a pod: it writes down which zones it is expected to get.
func predict(p *v1.Pod, zones []cluster.ZoneShare) error {
	in := kai.Intent{Zones: zones}
	return setZones(p, keys.NUMAPredictedAnnotation, in.BindRequest().Spec.PredictedNUMAZones)
}

// zoneNames are the zones of a decision, in order.
func zoneNames(zones []cluster.ZoneShare) []string {
	out := make([]string, len(zones))
	for i := range zones {
		out[i] = zones[i].Zone
	}
	return out
}

// showZones prints, for every node with pods on record in its NUMA zones, how many CPUs and GPUs they have in each.
func (in *interpreter) showZones() error {
	nodes, pods, err := in.world()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		type zone struct {
			cpu, gpu int64
			pods     []string
		}
		held := map[string]*zone{}
		for _, p := range podsOn(pods, n.Name) {
			for _, z := range kai.Zones(p, nil) {
				if held[z.Zone] == nil {
					held[z.Zone] = &zone{}
				}
				at := held[z.Zone]
				at.pods = append(at.pods, fullName(p.Namespace, p.Name))
				for _, q := range z.Amounts {
					switch q.Name {
					case "cpu":
						at.cpu += q.Value
					case "gpu":
						at.gpu += q.Value
					}
				}
			}
		}
		if len(held) == 0 {
			continue
		}
		in.printf("%s\n", n.Name)
		d := cluster.BaseDims()
		for _, name := range slices.Sorted(maps.Keys(held)) {
			z := held[name]
			in.printf("  %s  %s cpu  %s gpu%s\n", name, d.FormatOne(cluster.CPU, z.cpu), d.FormatOne(cluster.GPU, z.gpu), ranges(z.pods))
		}
	}
	return nil
}
