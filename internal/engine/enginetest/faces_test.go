package enginetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// TestOneFaceIsAlone: a cluster in which some faces have no work decides as if there were none of them: every scenario answers the same with those of Volcano and kube-batch switched on that it has not, and
// queues of theirs that nobody asks anything of.
func TestOneFaceIsAlone(t *testing.T) {
	t.Parallel()
	scs, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	for _, sc := range scs {
		shows := slices.ContainsFunc(sc.archive.Files, func(f txtar.File) bool { return strings.Contains(string(f.Data), "show queues") })
		if sc.Options.Volcano && sc.Options.KubeBatch || sc.Options.Shards != nil || slices.Contains(sc.Options.Needs, "filters") || shows {
			continue
		}
		played++
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			var idle []Object
			for _, name := range []string{"default", "other"} {
				if !sc.Options.Volcano {
					idle = append(idle, &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.QueueSpec{Weight: 7}})
				}
				if !sc.Options.KubeBatch {
					idle = append(idle, &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.QueueSpec{Weight: 7}}, &v1alpha2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "second-" + name}})
				}
			}
			sc.Options.Volcano, sc.Options.KubeBatch = true, true
			b, err := NewEngine(&sc.Options, Mutation{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range idle {
				if err := b.Apply(o); err != nil {
					t.Fatal(err)
				}
			}
			turns, err := sc.Play(b)
			if err != nil {
				t.Fatal(err)
			}
			for _, turn := range turns {
				if !turn.OK() {
					t.Errorf("run:\n%s\nalone (-) and beside (+):\n%s", turn.Run, cmp.Diff(turn.Want, turn.Got))
				}
			}
		})
	}
	if played < 100 {
		t.Errorf("%d scenarios were played", played)
	}
}
