package dialect

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestVolcanosRootComesAndGoes: root is there while there is any queue, with its object's word where there is one.
func TestVolcanosRootComesAndGoes(t *testing.T) {
	t.Parallel()
	s, tr := cluster.NewStore(cluster.Options{}), NewTranslator(Options{Volcano: []string{vckeys.SchedulerName}})
	tell := func(name string, q *v1beta1.Queue) *cluster.Queue {
		var o Object
		if q != nil {
			o = q
		}
		tr.Take(VolcanoQueues, KeyOf(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}), o, func(e cluster.Event) { s.Apply(e) })
		return s.Snapshot(cluster.UnixNano(1)).QueueByName("volcano:root")
	}
	object := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "root", UID: "r"}}
	for i, step := range []struct {
		name string
		q    *v1beta1.Queue
		uid  string
		none bool
	}{
		{"q", &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}, "", false},
		{"root", object, "r", false},
		{"root", nil, "", false},
		{"q", nil, "", true},
		{"root", object, "r", false},
		{"root", nil, "", true},
	} {
		if root := tell(step.name, step.q); (root == nil) != step.none || root != nil && root.UID != step.uid {
			t.Errorf("step %d: root is %+v", i, root)
		}
	}
}
