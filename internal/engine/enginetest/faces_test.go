package enginetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// TestOneFaceIsAlone: a cluster in which only KAI's face has work decides as if there were no other: every scenario answers the same with Volcano's face switched
// on and queues of Volcano's that nobody asks anything of.
func TestOneFaceIsAlone(t *testing.T) {
	t.Parallel()
	scs, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	for _, sc := range scs {
		shows := slices.ContainsFunc(sc.archive.Files, func(f txtar.File) bool { return strings.Contains(string(f.Data), "show queues") })
		if sc.Options.Volcano || sc.Options.Shards != nil || slices.Contains(sc.Options.Needs, "filters") || shows {
			continue
		}
		played++
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			sc.Options.Volcano = true
			b, err := NewEngine(&sc.Options, Mutation{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"default", "other"} {
				if err := b.Apply(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.QueueSpec{Weight: 7}}); err != nil {
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
