package volcano

import (
	"flag"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/dialecttest"
)

var _ = flag.Bool("update", false, "rewrite the want sections of the golden files")

// TestGolden translates everything a file holds.
func TestGolden(t *testing.T) {
	t.Parallel()
	dialecttest.Golden(t, func(t *testing.T, objects []dialecttest.Object) string {
		var out strings.Builder
		for _, o := range objects {
			switch o.Kind {
			case "Queue":
				var q v1beta1.Queue
				o.Into(t, &q)
				st, problem := Queue(&q)
				out.WriteString(dialecttest.Text(t, "queue", st))
				if problem != "" {
					out.WriteString("problem: " + problem + "\n")
				}
			default:
				t.Fatalf("unknown kind %q", o.Kind)
			}
		}
		return out.String()
	})
}

// TestFaces: two queues of one name in two faces are two, and what the model calls them says which.
func TestFaces(t *testing.T) {
	t.Parallel()
	if QueueName("a") == "a" || QueueName("") != QueueName("default") {
		t.Errorf("queues %s, %s", QueueName("a"), QueueName(""))
	}
	if face, name := cluster.SplitQueue(QueueName("a")); face != Face || name != "a" {
		t.Errorf("%s of face %s", name, face)
	}
	if face, name := cluster.SplitQueue("a"); face != "" || name != "a" {
		t.Errorf("%s of face %s", name, face)
	}
}
