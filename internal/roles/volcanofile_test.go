package roles

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/kube/textfile"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/usage/nodeuse"
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

// TestQueueGates: with --volcano-queue-gates queues let pods in before anything else is done, and without Volcano's scheduler names the start stops.
func TestQueueGates(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--volcano-scheduler-name=volcano"}, {"--volcano-scheduler-name=volcano", "--volcano-queue-gates"}} {
		p, err := parse(t, Scheduler, args...).profile()
		if err != nil || (p.Actions[0] == builtin.QueueGates) != (len(args) > 1) || slices.Contains(p.Actions[1:], builtin.QueueGates) {
			t.Errorf("%v: %v, %v", args, p.Actions, err)
		}
	}
	if _, err := newProcess([]string{Scheduler}, parse(t, Scheduler, "--volcano-queue-gates"), "v", logr.Discard()); err == nil || !strings.Contains(err.Error(), "--volcano-scheduler-name") {
		t.Errorf("without names: %v", err)
	}
}

// TestFileSaysWhoMeasures: who measures nodes is who the file names that rules, and is asked as soon as it does.
func TestFileSaysWhoMeasures(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	f := &schedulerFile{base: profile.BuiltIn(), registry: builtin.Registry(), measure: nodeuse.New(nil)}
	ctx, stop := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
	ended := make(chan error, 1)
	go func() { ended <- f.measure.Run(ctx) }()
	if err := f.take(logr.Discard(), []byte("actions: allocate\ntiers: [{plugins: [{name: usage}]}]\nmetrics: {type: prometheus, address: '"+server.URL+"', interval: 1h}\n")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked:
	case <-time.After(5 * time.Minute):
		t.Error("nobody is asked")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestSchedulerFile: the file is followed. Each text that is good is what is decided by from the next cycle on, told once; a bad one, or one that goes, is told with its line
// and its rule, once, and the one before it rules on.
func TestSchedulerFile(t *testing.T) {
	t.Parallel()
	s := parse(t, Scheduler, "--volcano-scheduler-name=volcano", "--volcano-scheduler-configmap=volcano-system/c:k", "--kubeconfig="+newPlane(t, true).kubeconfig())
	p, err := newProcess([]string{Scheduler}, s, "v", logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	base, err := s.profile()
	if err != nil || len(base.Faces) != 1 || !slices.Equal(base.Faces[0].Actions, []string{"enqueue", "allocate", "backfill"}) {
		t.Fatalf("it begins with %+v, %v", base.Faces, err)
	}
	var events []string
	used := 0
	f := &schedulerFile{
		where: "c", base: base, registry: p.actions(), changed: make(chan struct{}, 1), refused: prometheus.NewGauge(prometheus.GaugeOpts{Name: "refused"}),
		used: func(engine.Profile) { used++ }, measure: nodeuse.New(nil),
		tell: func(o client.Object, kind, reason, message string) {
			events = append(events, strings.TrimSpace(o.GetName()+" "+kind+" "+reason+" "+message))
		},
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "volcano-system", Name: "c"}}
	if f.Settled() {
		t.Error("settled before anything was read")
	}
	const good, bad = "actions: enqueue\n", "actions: enqueue\ntiers: 3\n"
	for i, step := range []struct {
		found   textfile.Found
		actions int // of the engine that comes; 0 for none
		event   string
		refused float64
	}{
		{textfile.Found{Text: []byte(bad), About: m}, 0, "c Warning SchedulerFileRefused the file is refused, and the one before it rules: line 2: tiers must be a list", 1},
		{textfile.Found{Text: []byte(good), About: m}, 1, "c Normal SchedulerFileTaken the scheduler decides by this file from now on", 0},
		{textfile.Found{Text: []byte(good), About: m}, 0, "", 0},
		{textfile.Found{Text: []byte(bad), About: m}, 0, "c Warning SchedulerFileRefused the file is refused, and the one before it rules: line 2: tiers must be a list", 1},
		{textfile.Found{Text: []byte(bad), About: m}, 0, "", 1},
		{textfile.Found{Text: []byte(good), About: m}, 0, "", 0},
		{textfile.Found{Why: "it is gone"}, 0, "", 1},
		{textfile.Found{Text: []byte("actions: enqueue, allocate\n"), About: m}, 2, "c Normal SchedulerFileTaken the scheduler decides by this file from now on", 0},
	} {
		events = nil
		f.found(logr.Discard(), step.found)
		<-f.Changed()
		actions := 0
		if e := f.Take(); e != nil {
			if actions = len(e.Profile().Faces[0].Actions); len(e.Profile().Faces) != 1 || len(e.Profile().Actions) != len(base.Actions) {
				t.Errorf("step %d: %+v", i, e.Profile())
			}
		}
		if actions != step.actions || strings.Join(events, ";") != step.event || testutil.ToFloat64(f.refused) != step.refused || f.Take() != nil || !f.Settled() {
			t.Errorf("step %d: %d actions, events %q, refused %v", i, actions, events, testutil.ToFloat64(f.refused))
		}
	}
	if used != 2 {
		t.Errorf("told %d times of another profile", used)
	}
	for flags, want := range map[string]string{
		"--volcano-scheduler-configmap=a/b":                                                              "--volcano-scheduler-name",
		"--volcano-scheduler-name=volcano --volcano-scheduler-configmap=a":                               "NAMESPACE/NAME",
		"--volcano-scheduler-name=volcano --volcano-scheduler-configmap=a/b --volcano-scheduler-conf=/x": "keep one of both",
	} {
		if err := parse(t, Scheduler, strings.Fields(flags)...).checkVolcano(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", flags, err, want)
		}
	}
}
