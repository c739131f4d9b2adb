package roles

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile/volcano"
	"github.com/muster-scheduler/muster/internal/usage/nodeuse"
)

// TestKubeBatchSettings: without the face its flags come to nothing; with it the default file rules, or the one at the path.
func TestKubeBatchSettings(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "conf")
	if err := os.WriteFile(file, []byte("actions: allocate, preempt\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		args    []string
		face    dialect.KubeBatch
		actions []string
	}{
		"without":     {[]string{"--kube-batch-default-queue=q", "--kube-batch-priority-class=false"}, dialect.KubeBatch{}, nil},
		"by default":  {[]string{"--kube-batch-scheduler-name=kb"}, dialect.KubeBatch{Schedulers: []string{"kb"}, Queue: "default"}, []string{"allocate", "backfill"}},
		"with a file": {[]string{"--kube-batch-scheduler-name=kb,kc", "--kube-batch-default-queue=q", "--kube-batch-priority-class=false", "--kube-batch-scheduler-conf=" + file}, dialect.KubeBatch{Schedulers: []string{"kb", "kc"}, Queue: "q", Alike: true}, []string{"allocate", "preempt"}},
	} {
		s := parse(t, Scheduler, c.args...)
		p, err := s.profile()
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		var actions []string
		for _, f := range p.Faces {
			actions = f.Actions
		}
		if d := cmp.Diff(c.face, s.feed().KubeBatch) + cmp.Diff(c.actions, actions); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
}

// TestVolcanosFileBesideKubeBatch: a file of Volcano's that is followed live takes the place of the one before it, and of no other face's.
func TestVolcanosFileBesideKubeBatch(t *testing.T) {
	t.Parallel()
	other, err := volcano.ParseKubeBatch([]byte(volcano.KubeBatchDefault), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	base := engine.Profile{Faces: []engine.Face{{Name: volcano.Face, Actions: []string{"allocate"}}, other.Face}}
	f := &schedulerFile{base: base, registry: builtin.Registry(), measure: nodeuse.New(nil)}
	for range 2 {
		if err := f.take(logr.Discard(), []byte(volcano.Default)); err != nil {
			t.Fatal(err)
		}
		var faces []string
		for _, face := range f.next.Profile().Faces {
			faces = append(faces, face.Name)
		}
		if d := cmp.Diff([]string{volcano.KubeBatchFace, volcano.Face}, faces); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	if base.Faces[0].Name != volcano.Face || len(base.Faces) != 2 {
		t.Errorf("the first profile is %+v now", base.Faces)
	}
}
