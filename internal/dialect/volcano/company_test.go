package volcano

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestCompany: what the annotations of a task topology come to, in words.
func TestCompany(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ together, apart, order, want string }{
		{"", "", "", "nothing"},
		{" ; ,; ", ",", " ", "nothing"},
		{"ps,worker;ps", "ps; evaluator , ps", "ps,worker", "together [[ps worker] [ps]] apart [[ps] [evaluator ps]] order [ps worker]"},
		{"a,a", "", "", "together [[a]] apart [] order []"},
		{"", "", "b,a", "together [] apart [] order [b a]"},
		{strings.Repeat("a;", cluster.MaxCompany), "", "", "together [" + strings.TrimSpace(strings.Repeat("[a] ", cluster.MaxCompany)) + "] apart [] order []"},
		{strings.Repeat("a;", cluster.MaxCompany), "b", "", "metadata.annotations[volcano.sh/task-topology-anti-affinity] has too many names: of more than 64 in all, what the annotations of a task topology say is overlooked"},
		{strings.Repeat("a;", cluster.MaxCompany+1), "", "", "metadata.annotations[volcano.sh/task-topology-affinity] has too many names: of more than 64 in all, what the annotations of a task topology say is overlooked"},
	} {
		pg := &v1beta1.PodGroup{}
		pg.Annotations = map[string]string{keys.TaskTopologyAffinity: c.together, keys.TaskTopologyAntiAffinity: c.apart, keys.TaskTopologyOrder: c.order}
		got := "nothing"
		if says, err := company(pg); err != nil {
			got = err.Error()
		} else if says != nil {
			got = fmt.Sprint("together ", says.Together, " apart ", says.Apart, " order ", says.Order)
		}
		if got != c.want {
			t.Errorf("%q, %q, %q: %s, want %s", c.together, c.apart, c.order, got, c.want)
		}
	}
}
