package kai

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
)

func annotated(observed, predicted string) *v1.Pod {
	p := &v1.Pod{}
	p.Annotations = map[string]string{}
	if observed != "" {
		p.Annotations[keys.NUMAObservedAnnotation] = observed
	}
	if predicted != "" {
		p.Annotations[keys.NUMAPredictedAnnotation] = predicted
	}
	return p
}

// TestZones: what was observed counts more than what a BindRequest says, and that more than what was predicted.
func TestZones(t *testing.T) {
	t.Parallel()
	zone := func(name string, cpu int64) []cluster.ZoneShare {
		return []cluster.ZoneShare{{Zone: name, Amounts: []cluster.Quantity{{Name: "cpu", Value: cpu}}}}
	}
	observed, predicted := `[{"zone":"node-0","amount":{"cpu":"3"}}]`, `[{"zone":"node-1","amount":{"cpu":"2","nvidia.com/gpu":"1"}}]`
	asked := &Binding{Zones: zone("node-2", 1000)}
	for _, c := range []struct {
		about    string
		pod      *v1.Pod
		promised *Binding
		want     []cluster.ZoneShare
	}{
		{"observed", annotated(observed, predicted), asked, zone("node-0", 3000)},
		{"promised", annotated("", predicted), asked, zone("node-2", 1000)},
		{"predicted", annotated("", predicted), &Binding{}, []cluster.ZoneShare{{Zone: "node-1", Amounts: []cluster.Quantity{{Name: "cpu", Value: 2000}, {Name: "gpu", Value: 1000}}}}},
		{"nothing", annotated("", ""), nil, nil},
		{"text that is no placement", annotated(`{"zone":1}`, predicted), nil, []cluster.ZoneShare{{Zone: "node-1", Amounts: []cluster.Quantity{{Name: "cpu", Value: 2000}, {Name: "gpu", Value: 1000}}}}},
		{"zones without a name or an amount", annotated(`[{"zone":"","amount":{"cpu":"1"}},{"zone":"node-0","amount":{"cpu":"-5"}},{"zone":"node-0","amount":{"cpu":"3"}}]`, ""), nil, zone("node-0", 3000)},
	} {
		if d := cmp.Diff(c.want, Zones(c.pod, c.promised)); d != "" {
			t.Errorf("%s: -want +got:\n%s", c.about, d)
		}
	}
}

// TestZonesOnTheWay: what an intent says arrives through its BindRequest, and only where somebody asks for zones.
func TestZonesOnTheWay(t *testing.T) {
	t.Parallel()
	want := []cluster.ZoneShare{
		{Zone: "node-0", Amounts: []cluster.Quantity{{Name: "cpu", Value: 3000}, {Name: "gpu", Value: 1000}, {Name: "memory", Value: 1 << 30}}},
		{Zone: "node-1", Amounts: []cluster.Quantity{{Name: "cpu", Value: 1000}}},
	}
	in := Intent{Namespace: "a", Pod: "p", PodUID: "u", Node: "n", Zones: want}
	br := in.BindRequest()
	b := Read(br)
	if d := cmp.Diff(want, b.Zones); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	text, err := json.Marshal(br.Spec.PredictedNUMAZones)
	if err != nil || string(text) != `[{"zone":"node-0","amount":{"cpu":"3","memory":"1Gi","nvidia.com/gpu":"1"}},{"zone":"node-1","amount":{"cpu":"1"}}]` {
		t.Errorf("%v: %s", err, text)
	}
	p := annotated("", "")
	p.Namespace, p.Name, p.UID, p.Spec.SchedulerName = "a", "p", "u", DefaultSchedulerName
	roles := Roles{SchedulerNames: []string{DefaultSchedulerName}, Zones: true}
	if d := cmp.Diff(want, roles.Pod(p, &b).Zones); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := roles.Pod(p, nil).Zones; got != nil {
		t.Errorf("a pod that waits has zones: %v", got)
	}
	roles.Zones = false
	if got := roles.Pod(p, &b).Zones; got != nil {
		t.Errorf("zones that nobody asks for: %v", got)
	}
}

func FuzzZones(f *testing.F) {
	f.Add(`[{"zone":"node-0","amount":{"cpu":"3"}}]`)
	f.Add(`[{"zone":"x","amount":{"cpu":"1e30","a":"-1"}},{}]`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, z := range Zones(annotated(text, text), nil) {
			for _, q := range z.Amounts {
				if z.Zone == "" || q.Value <= 0 || q.Value > cluster.MaxQuantity {
					t.Fatalf("%s: %+v", text, z)
				}
			}
		}
	})
}
