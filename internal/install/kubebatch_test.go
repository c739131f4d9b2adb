package install

import (
	"slices"
	"strings"
	"testing"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// TestKubeBatchFile: a scheduler is given the ConfigMap with kube-batch's scheduler file; where that cannot be, it is told, and the scheduler starts without.
func TestKubeBatchFile(t *testing.T) {
	t.Parallel()
	named := []string{"--kube-batch-scheduler-name=kube-batch"}
	for _, c := range []struct {
		note string
		args []string
		told string // of the warning; "" where the file is given
	}{
		{"rules:kube-batch.conf", named, ""},
		{"rules", named, `is "rules", must be NAME:KEY of a ConfigMap; it has no effect`},
		{"ns/rules:key", named, `is "ns/rules:key", must be NAME:KEY of a ConfigMap; it has no effect`},
		{"rules:../key", named, `is "rules:../key", must be NAME:KEY of a ConfigMap; it has no effect`},
		{"rules:key", nil, "has no effect: spec.args.kube-batch-scheduler-name does not say which pods are kube-batch's"},
		{"rules:key", []string{named[0], "--kube-batch-scheduler-conf=/own"}, "has no effect beside spec.args.kube-batch-scheduler-conf"},
	} {
		s := &kaiv1.SchedulingShard{}
		s.Name, s.Annotations = "default", map[string]string{AnnotationKubeBatchFile: c.note}
		r, w := &renderer{}, &workload{args: slices.Clone(c.args)}
		r.kubeBatchFile(s, w)
		given := slices.Contains(w.args, "--kube-batch-scheduler-conf=/etc/kube-batch/kube-batch.conf") && len(w.volumes) == 1 && len(w.mounts) == 1
		if given != (c.told == "") || len(r.warnings) > 1 || len(r.warnings) == 1 == given {
			t.Errorf("%q with %v: %+v, %+v", c.note, c.args, w, r.warnings)
		}
		if len(r.warnings) == 1 && !strings.Contains(r.warnings[0].Rule, c.told) {
			t.Errorf("%q with %v: %+v, want %s", c.note, c.args, r.warnings[0], c.told)
		}
	}
	r, w := &renderer{}, &workload{}
	if r.kubeBatchFile(&kaiv1.SchedulingShard{}, w); len(w.args)+len(w.volumes)+len(r.warnings) > 0 {
		t.Errorf("without the annotation: %+v, %+v", w, r.warnings)
	}
}
