package feed

import (
	"testing"

	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/nodeshards"
)

// TestWithoutAFace: a scheduler that does not read Volcano's face watches nothing of it, and one that does watches all of it, and nothing else besides. Kubernetes' own face every
// scheduler reads.
func TestWithoutAFace(t *testing.T) {
	t.Parallel()
	without, with := New(newScript(), Options{}), New(newScript(), Options{Volcano: []string{"volcano"}, Sharding: nodeshards.Sharding{Mode: nodeshards.Soft, Name: "volcano"}})
	faces := 0
	for k := range dialect.Kinds {
		of := k.Row().Face == volcano.Face
		if own := k.Row().Face == upstream.Face; own && !has(without, k) {
			t.Errorf("%s is not watched", k)
		}
		if of {
			faces++
		}
		if has(without, k) && of {
			t.Errorf("%s is watched without its face", k)
		}
		if has(with, k) != (has(without, k) || of) {
			t.Errorf("%s is watched with Volcano's face: %v", k, has(with, k))
		}
	}
	if faces == 0 {
		t.Error("there is no kind of a face")
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
