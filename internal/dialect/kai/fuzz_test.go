package kai

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// The fuzzers hand in whatever an API server may store of a kind. Nothing may panic, an answer depends on the object alone,
// amounts are such that sums stay exact, and what is said of an object is short, whatever is in it.

// longest is how much may be said of one field, user's text included.
const longest = 300

// decoded reads an object as a client does; false if no API server would have stored it.
func decoded[T any](text []byte) (*T, bool) {
	object := new(T)
	return object, json.Unmarshal(text, object) == nil
}

// amounts fails the test unless all are in the model's range.
func amounts(t *testing.T, what string, list []cluster.Quantity, low int64) {
	t.Helper()
	for _, q := range list {
		if q.Value < low || q.Value > cluster.MaxQuantity {
			t.Fatalf("%s: %s is %d", what, q.Name, q.Value)
		}
	}
}

func FuzzPod(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"namespace":"n","name":"p","annotations":{"gpu-fraction":"0.5","gpu-fraction-num-devices":"2","pod-group-name":"g"},"labels":{"kai.scheduler/subgroup-name":"s","runai-gpu-group/a":"a"}},"spec":{"schedulerName":"kai-scheduler","nodeName":"n1","containers":[{"name":"c"}]},"status":{"phase":"Running"}}`,
		`{"metadata":{"annotations":{"gpu-memory":"99999999999999999999","mps":"true"}},"spec":{"schedulerName":"kai-scheduler"}}`,
		`{"metadata":{"annotations":{"gpu-fraction":"NaN"}},"spec":{"schedulerName":"kai-scheduler"}}`,
		`{"metadata":{"annotations":{"nvidia.com/mig-1g.5gb":"9223372036854775807","nvidia.com/mig-":"-1"}},"spec":{"schedulerName":"kai-scheduler"}}`,
		`{"metadata":{"labels":{"app":"kai-resource-reservation","runai-gpu-group":"g"}},"spec":{"nodeName":"n"},"status":{"phase":"Running"}}`,
		`{"metadata":{"annotations":{"kai.scheduler/numa-placement-observed":"[{\"zone\":\"node-0\",\"amount\":{\"cpu\":\"9e18\"}}]","kai.scheduler/numa-placement-predicted":"["}},"spec":{"schedulerName":"kai-scheduler","nodeName":"n"},"status":{"phase":"Running"}}`,
		`{"metadata":{"annotations":{"runai/shared-gpu-configmap":"x","gpu-fraction":"1e-300","gpu-fraction-container-name":"nobody"}},"spec":{"schedulerName":"kai-scheduler","containers":[{"resources":{"limits":{"nvidia.com/gpu":"8E","cpu":"-5"}},"envFrom":[{"configMapRef":{"name":"x-0-evar"}}]}]}}`,
	} {
		f.Add([]byte(seed))
	}
	roles := &Roles{SchedulerNames: []string{DefaultSchedulerName}, ReservationApp: DefaultReservationApp, Zones: true, RestrictGPU: "gpu", RestrictCPU: "cpu"}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, ok := decoded[v1.Pod](text)
		if !ok {
			return
		}
		st := roles.Pod(p, &Binding{Node: "n", Groups: []string{"g"}})
		if d := cmp.Diff(st, roles.Pod(p.DeepCopy(), &Binding{Node: "n", Groups: []string{"g"}})); d != "" {
			t.Fatalf("the same pod reads differently: %s", d)
		}
		amounts(t, "requests", st.Requests, 0)
		for _, z := range st.Zones {
			amounts(t, "zone "+z.Zone, z.Amounts, 0)
		}
		if len(st.Zones) > cluster.MaxZones {
			t.Fatalf("%d zones", len(st.Zones))
		}
		if len(st.Spec.Unsupported) > longest {
			t.Fatalf("%d bytes about it: %s", len(st.Spec.Unsupported), st.Spec.Unsupported)
		}
		if at, err := SharingContainer(p); err == nil && at.Of(p) == nil {
			t.Fatalf("the sharing container %+v is not there", at)
		}
	})
}

func FuzzPodGroup(f *testing.F) {
	for _, seed := range []string{
		`{"spec":{"minMember":4,"queue":"q","stalenessGracePeriod":"-1s","preemptionDelay":"9223372036s"}}`,
		`{"spec":{"subGroups":[{"name":"a","minSubGroup":1},{"name":"b","parent":"A","minMember":2147483647}]}}`,
		`{"spec":{"subGroups":[{"name":"a","parent":"b"},{"name":"b","parent":"a"},{"name":"a"}]}}`,
		`{"spec":{"minMember":-1,"minSubGroup":2,"schedulingBackoff":1},"status":{"schedulingConditions":[{"type":"UnschedulableOnNodePool","nodePool":""}]}}`,
		`{"metadata":{"annotations":{"kai.scheduler/last-start-timestamp":"9999-01-01T00:00:00Z","kai.scheduler/stale-podgroup-timestamp":"0001-01-01T00:00:00Z"}},"spec":{"topologyConstraint":{"topology":"t","requiredTopologyLevel":"x"}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		pg, ok := decoded[v2alpha2.PodGroup](text)
		if !ok {
			return
		}
		g := Gang(pg, &Priorities{}, DefaultPool)
		if d := cmp.Diff(g, Gang(pg.DeepCopy(), &Priorities{}, DefaultPool)); d != "" {
			t.Fatalf("the same PodGroup reads differently: %s", d)
		}
		if len(g.Sets) == 0 || len(g.Sets) > cluster.MaxSets+1 || g.Sets[0].Parent != cluster.None {
			t.Fatalf("%d sets", len(g.Sets))
		}
		for i, s := range g.Sets { // it is a tree, and what is needed can be
			if i > 0 && (s.Parent < 0 || int(s.Parent) >= len(g.Sets)) || s.Min < 0 || !s.Leaf && int(s.Min) > len(s.Children) {
				t.Fatalf("set %d of %d: %+v", i, len(g.Sets), s)
			}
		}
		if most := longest + len(pg.Namespace) + len(pg.Name); len(g.Invalid) > most {
			t.Fatalf("%d bytes about it: %s", len(g.Invalid), g.Invalid)
		}
		if g.PreemptionDelay < 0 || g.LastStart.Before(cluster.Instant{}) || g.LastEviction.Before(cluster.Instant{}) || g.StaleSince.Before(cluster.Instant{}) {
			t.Fatalf("negative times: %+v", g)
		}
	})
}

func FuzzQueue(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"q"},"spec":{"parentQueue":"p","priority":9223372036854775807,"resources":{"gpu":{"quota":1e308,"limit":-1,"overQuotaWeight":-3},"cpu":{"quota":-0.5},"memory":{"limit":1e19}}}}`,
		`{"spec":{"resources":{"extended":{"":{},"cpu":{"quota":1},"rdma/hca":{"quota":4,"limit":1e300}}},"preemptMinRuntime":"-5s"}}`,
		`{"metadata":{"annotations":{"muster.dev/extended-resources":"{\"a\":{\"quota\":1}}","muster.dev/disruption-budgets":"x"}}}`,
		`{"metadata":{"annotations":{"muster.dev/extended-resources":"[1,2"}},"spec":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		q, ok := decoded[v2.Queue](text)
		if !ok {
			return
		}
		st, problem := Queue(q)
		again, _ := Queue(q.DeepCopy())
		if d := cmp.Diff(st, again); d != "" {
			t.Fatalf("the same Queue reads differently: %s", d)
		}
		amounts(t, "quota", st.Quota, cluster.Unlimited)
		amounts(t, "limit", st.Limit, cluster.Unlimited)
		amounts(t, "weight", st.Weight, 0)
		if st.PreemptMinRuntime.Value < 0 || st.ReclaimMinRuntime.Value < 0 {
			t.Fatalf("negative times: %+v", st)
		}
		if copied, ok := ExtendedCopy(&q.Spec); ok && len(copied) > maxExtendedCopy {
			t.Fatalf("a copy of %d bytes", len(copied))
		}
		_ = problem // names every bad number: as long as the object is
	})
}

func FuzzBindRequest(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"p","labels":{"muster.dev/bundle":"b","muster.dev/bundle-size":"99999999999999999999"},"ownerReferences":[{"kind":"Pod","apiVersion":"v1","name":"p","uid":"u"}]},"spec":{"podName":"p","selectedNode":"n","selectedGPUGroups":["b","a"],"backoffLimit":-1,"predictedNUMAZones":[{"zone":"","amount":{"cpu":"1"}}]},"status":{"phase":"Failed","failedAttempts":2147483647}}`,
		`{"spec":{"resourceClaimAllocations":[{"name":"c"}],"extendedResourceClaimAllocation":{}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		br, ok := decoded[v1alpha2.BindRequest](text)
		if !ok {
			return
		}
		b := Read(br)
		if d := cmp.Diff(b, Read(br.DeepCopy())); d != "" {
			t.Fatalf("the same BindRequest reads differently: %s", d)
		}
		if b.Size < 0 || len(b.Zones) > cluster.MaxZones {
			t.Fatalf("%+v", b)
		}
		if p := (&v1.Pod{}); b.Meant(p) {
			t.Fatal("it is meant for a pod that is not there")
		}
	})
}

func FuzzTopology(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"t"},"spec":{"levels":[{"nodeLabel":"zone","alias":"z"},{"nodeLabel":"zone"},{"nodeLabel":""}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		o, ok := decoded[v1alpha1.Topology](text)
		if !ok {
			return
		}
		if d := cmp.Diff(Topology(o), Topology(o.DeepCopy())); d != "" {
			t.Fatal(d)
		}
	})
}

func FuzzNode(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"n","labels":{"nvidia.com/mig.strategy":"mixed","node-role.kubernetes.io/mig-enabled":"maybe","nvidia.com/gpu.memory":"81920"}},"status":{"allocatable":{"nvidia.com/gpu":"8","nvidia.com/mig-1g.5gb":"9E","cpu":"-1"}}}`,
		`{"metadata":{"labels":{"nvidia.com/gpu.memory":"-1","nvidia.com/gpu.count":"x","beta.amd.com/gpu.vram.64G":"1"}}}`,
	} {
		f.Add([]byte(seed))
	}
	roles := &Roles{}
	f.Fuzz(func(t *testing.T, text []byte) {
		n, ok := decoded[v1.Node](text)
		if !ok {
			return
		}
		st := roles.Node(n)
		if d := cmp.Diff(st, roles.Node(n.DeepCopy())); d != "" {
			t.Fatalf("the same node reads differently: %s", d)
		}
		amounts(t, "allocatable", st.Allocatable, 0)
	})
}
