package feed

import (
	"testing"

	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kubebatch"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/nodeshards"
)

// TestWithoutAFace: a scheduler that does not read a face watches nothing of it, and one that does watches all of it, and nothing else besides. Kubernetes' own face every
// scheduler reads.
func TestWithoutAFace(t *testing.T) {
	t.Parallel()
	without := New(newScript(), Options{})
	for face, o := range map[string]Options{
		volcano.Face:   {Volcano: []string{"volcano"}, Sharding: nodeshards.Sharding{Mode: nodeshards.Soft, Name: "volcano"}},
		kubebatch.Face: {KubeBatch: dialect.KubeBatch{Schedulers: []string{"kube-batch"}}},
	} {
		with, faces := New(newScript(), o), 0
		for k := range dialect.Kinds {
			of := k.Row().Face == face
			if own := k.Row().Face == upstream.Face; own && !has(without, k) {
				t.Errorf("%s is not watched", k)
			}
			if of {
				faces++
			}
			if has(without, k) && of {
				t.Errorf("%s is watched without its face", k)
			}
			zones := face == volcano.Face && k == dialect.NodeResourceTopologies // which plugin numa-aware of this face reads too
			if has(with, k) != (has(without, k) || of || zones) {
				t.Errorf("%s is watched with the face %s: %v", k, face, has(with, k))
			}
		}
		if faces == 0 {
			t.Errorf("there is no kind of the face %s", face)
		}
	}
}

func has(f *Feed, k dialect.Kind) bool {
	for _, have := range f.kinds {
		if have == k {
			return true
		}
	}
	return false
}
