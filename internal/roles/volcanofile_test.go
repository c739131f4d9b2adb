package roles

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// TestVolcanoFile: --volcano-scheduler-conf names a scheduler file of Volcano's. A bad one, one that is not there, and one without Volcano's scheduler names stop the
// start, and say why; KAI's configuration is the same with and without.
func TestVolcanoFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "volcano-scheduler.conf")
	for text, want := range map[string]string{
		"actions: enqueue, allocate\ntiers: [{plugins: [{name: overcommit}]}]\n": "",
		"actions: enqueue, dance\n": `line 1: actions names "dance"`,
		"":                          "is empty",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := parse(t, Scheduler, "--volcano-scheduler-name=volcano", "--volcano-scheduler-conf="+file, "--kubeconfig="+newPlane(t, true).kubeconfig())
		_, err := newProcess([]string{Scheduler}, s, "v", logr.Discard())
		if (err != nil) != (want != "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file)) {
			t.Errorf("%q: %v", text, err)
		}
		if want != "" {
			continue
		}
		p, err := s.profile()
		if err != nil || len(p.Faces) != 1 || len(p.Actions) != 5 {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if _, err := parse(t, Scheduler, "--volcano-scheduler-conf="+file+"x").profile(); err == nil || !strings.Contains(err.Error(), "--volcano-scheduler-conf") {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := newProcess([]string{Scheduler}, parse(t, Scheduler, "--volcano-scheduler-conf="+file), "v", logr.Discard()); err == nil || !strings.Contains(err.Error(), "--volcano-scheduler-name") {
		t.Errorf("without names: %v", err)
	}
}
