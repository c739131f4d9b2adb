package kai

import (
	"flag"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/dialecttest"
)

var _ = flag.Bool("update", false, "rewrite the want sections of the golden files")

// TestGolden translates everything a file holds, its PriorityClasses first, as a shard of the pool "gold" would.
func TestGolden(t *testing.T) {
	t.Parallel()
	roles := Roles{SchedulerNames: []string{DefaultSchedulerName}, ReservationApp: DefaultReservationApp}
	dialecttest.Golden(t, func(t *testing.T, objects []dialecttest.Object) string {
		var out strings.Builder
		var priorities Priorities
		for _, o := range objects {
			if o.Kind == "PriorityClass" {
				var c schedulingv1.PriorityClass
				o.Into(t, &c)
				priorities.Set(&c)
			}
		}
		for _, o := range objects {
			switch o.Kind {
			case "PriorityClass":
			case "PodGroup":
				var pg v2alpha2.PodGroup
				o.Into(t, &pg)
				out.WriteString(dialecttest.Text(t, "gang", Gang(&pg, &priorities, "gold")))
			case "Queue":
				var q v2.Queue
				o.Into(t, &q)
				st, problem := Queue(&q)
				out.WriteString(dialecttest.Text(t, "queue", st))
				if problem != "" {
					out.WriteString("problem: " + problem + "\n")
				}
			case "BindRequest":
				var br v1alpha2.BindRequest
				o.Into(t, &br)
				out.WriteString(dialecttest.Text(t, "binding", Read(&br)))
			case "Pod":
				var p v1.Pod
				o.Into(t, &p)
				out.WriteString(dialecttest.Text(t, "pod", roles.Pod(&p, nil)))
			default:
				t.Fatalf("unknown kind %q", o.Kind)
			}
		}
		return out.String()
	})
}
