package binder

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/kube/control"
)

// TestRequestsByPhase: the metric counts what the book holds, and who does not lead shows nothing.
func TestRequestsByPhase(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	m, err := newMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(registry, "muster_bindrequests"); err != nil || n != 0 {
		t.Errorf("%d series without a run, %v", n, err)
	}
	k := newBook(DefaultOptions(), nil)
	for name, phase := range map[string]schedulingv1alpha2.BindRequestPhase{
		"a": "", "b": schedulingv1alpha2.BindRequestPending, "c": schedulingv1alpha2.BindRequestSucceeded, "d": "Unheard",
	} {
		r := &schedulingv1alpha2.BindRequest{}
		r.Status.Phase = phase
		k.members[types.NamespacedName{Name: name}] = &Member{Request: r}
	}
	m.run.Store(&run{book: k, steps: control.New(control.Deps{}, control.Role[key, *task]{})})
	want := `# HELP muster_bindrequests BindRequests there are, by phase: Pending, Succeeded, Failed.
# TYPE muster_bindrequests gauge
muster_bindrequests{phase="Failed"} 0
muster_bindrequests{phase="Pending"} 3
muster_bindrequests{phase="Succeeded"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "muster_bindrequests"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "muster_binder_actions_total"); err != nil || n != 6*len(outcomes()) {
		t.Errorf("%d series of actions before the first, %v", n, err)
	}
}
