package kai

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestCharged: a record is what was written, whatever it is; what is none is no record.
func TestCharged(t *testing.T) {
	t.Parallel()
	for _, c := range []cluster.Charged{
		{},
		{Queue: "q", Gang: GangKey("ns", "g")},
		{Queue: "q", Gang: GangKey("ns", "g"), Set: "a/b", Fixed: true},
		{Queue: "volcano:q", Gang: cluster.Key{Face: "volcano", Namespace: "ns", Name: "g"}, Set: "worker"},
		{Queue: "q", Gang: GangKey("ns", "g"), Share: cluster.Share{Devices: 2, Portion: 500_000}},
		{Queue: "q", Gang: GangKey("ns", "g"), Fixed: true, Share: cluster.Share{Devices: 1, Portion: 1}},
		{Queue: "q", Gang: GangKey("ns", "g"), Share: cluster.Share{Devices: 1024, MemoryMiB: cluster.MaxQuantity}},
	} {
		if d := cmp.Diff(c, ReadCharged("ns", WriteCharged(c))); d != "" {
			t.Error(d)
		}
	}
	for _, as := range []string{"share=", "share=x", "share=2x", "share=0x0.5", "share=1x2", "share=1x-1Mi", "share=99999999999x0.5", "share=1xNaN", "x"} {
		if d := cmp.Diff(cluster.Charged{Queue: "q", Gang: GangKey("ns", "g")}, ReadCharged("ns", map[string]string{keys.ChargedAnnotation: "q/g", keys.ChargedAsAnnotation: as})); d != "" {
			t.Errorf("%s: %s", as, d)
		}
	}
}

// TestShareIsWhatWasGiven: who asks for less of a shared device after it was decided how much of it he gets has, and pays for, what
// he got: from the BindRequest on, and once he is bound.
func TestShareIsWhatWasGiven(t *testing.T) {
	t.Parallel()
	given := cluster.Charged{Queue: "q", Gang: GangKey("ns", "g"), Share: cluster.Share{Devices: 1, Portion: 900_000}}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Annotations: map[string]string{PodGroupAnnotation: "g", FractionAnnotation: "0.01"}}}
	p.Spec.SchedulerName = "kai-scheduler"
	r := Roles{SchedulerNames: []string{"kai-scheduler"}}
	if st := r.Pod(p, nil); st.Spec.Share.Portion != 10_000 {
		t.Errorf("waiting, it asks for %+v", st.Spec.Share)
	}
	if st := r.Pod(p, &Binding{Node: "n", Groups: []string{"d"}, Charged: given}); st.Spec.Share != given.Share || !cmp.Equal(st.Charge, []cluster.Quantity{{Name: "pods", Value: 1}, {Name: "gpu", Value: 900}}) {
		t.Errorf("promised, it has %+v for %v", st.Spec.Share, st.Charge)
	}
	p.Spec.NodeName = "n"
	for key, text := range WriteCharged(given) {
		p.Annotations[key] = text
	}
	if st := r.Pod(p, nil); st.Spec.Share != given.Share {
		t.Errorf("bound, it has %+v", st.Spec.Share)
	}
	p.Spec.NodeName = ""
	if st := r.Pod(p, nil); st.Spec.Share.Portion != 10_000 {
		t.Errorf("waiting, with a record of its own making, it asks for %+v", st.Spec.Share)
	}
}
