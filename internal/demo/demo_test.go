package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

func TestWrap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		room       int
		want       []string
	}{
		{"empty", "", 10, []string{""}},
		{"fits", "one two", 7, []string{"one two"}},
		{"breaks at a space", "one two three", 7, []string{"one two", "three"}},
		{"a long word has its line", "a incomprehensible b", 5, []string{"a", "incomprehensible", "b"}},
		{"characters, not bytes", "äöü äöü", 7, []string{"äöü äöü"}},
		{"keeps its indent", "  one two", 7, []string{"  one", "  two"}},
	} {
		if diff := cmp.Diff(c.want, wrap(c.text, c.room)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestUnbroken(t *testing.T) {
	t.Parallel()
	got := unbroken("gang a: room for 0 of\n  8 pods\nwhy: none\n     8 insufficient gpu\nwhat:\n  - this\n")
	if diff := cmp.Diff("gang a: room for 0 of 8 pods\nwhy: none\n     8 insufficient gpu\nwhat:\n  - this\n", got); diff != "" {
		t.Error(diff)
	}
}

// TestManifests renders all manifests on the smallest and on the default cluster.
func TestManifests(t *testing.T) {
	t.Parallel()
	entries, err := manifests.ReadDir("manifests")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []sizes{{Nodes: 16, PerNode: 1}, {Nodes: 64, PerNode: 8}} {
		dir, home := t.TempDir(), false
		queues, used := map[string]bool{}, map[string]bool{}
		for _, e := range entries {
			objects, err := render(strings.TrimSuffix(e.Name(), ".yaml"), dir, s)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objects {
				switch o.GetKind() {
				case "Queue":
					queues[o.GetName()] = true
					if parent, _, _ := unstructured.NestedString(o.Object, "spec", "parentQueue"); parent != "" && !queues[parent] {
						t.Errorf("queue %s comes before its parent %s", o.GetName(), parent)
					}
				case "PriorityClass":
				case "Namespace": // the control plane's, or gangs have BindRequests
					if o.GetName() != keys.Namespace || o.GetNamespace() != "" {
						t.Errorf("there is namespace %s in %q", o.GetName(), o.GetNamespace())
					}
					home = true
				default:
					used[o.GetLabels()["kai.scheduler/queue"]] = true
				}
			}
			if _, err := os.Stat(filepath.Join(dir, e.Name())); err != nil {
				t.Errorf("the reader does not find it: %v", err)
			}
		}
		if !home {
			t.Error("the control plane has no namespace")
		}
		for q := range used {
			if !queues[q] {
				t.Errorf("work names queue %q, which is not there", q)
			}
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	full := filepath.Join(t.TempDir(), "full")
	if err := os.MkdirAll(filepath.Join(full, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		set  func(*Options)
	}{
		{"--nodes is 8; it must be a multiple of 8, and at least 16", func(o *Options) { o.Nodes = 8 }},
		{"--nodes is 20; it must be", func(o *Options) { o.Nodes = 20 }},
		{"--gpus is 0", func(o *Options) { o.GPUs = 0 }},
		{"--timeout is 0s", func(o *Options) { o.Patience = 0 }},
		{"is not empty", func(o *Options) { o.Dir, o.LabBinary = full, "unused" }},
		{"start muster-lab", func(o *Options) { o.LabBinary, o.Dir = filepath.Join(full, "absent"), filepath.Join(full, "new") }},
		{"no muster-lab beside", func(o *Options) { o.MusterBinary = filepath.Join(full, "muster") }},
	} {
		o := DefaultOptions()
		o.Out = &strings.Builder{}
		c.set(&o)
		err := Run(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want one with %q", err, c.want)
		}
	}
}

func TestServingAt(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"time=2026-01-01T00:00:00Z level=INFO msg=serving address=127.0.0.1:46319": "127.0.0.1:46319",
		`time=2026-01-01T00:00:00Z level=INFO msg="serving nothing" address=1`:     "",
		"msg=other address=127.0.0.1:1":                                            "",
	} {
		if got, ok := servingAt(line); got != want || ok != (want != "") {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

// TestChild ends children in each way they can end.
func TestChild(t *testing.T) {
	t.Parallel()
	t.Run("by itself", func(t *testing.T) {
		t.Parallel()
		gone := make(chan error, 1)
		log := filepath.Join(t.TempDir(), "log")
		c, out, err := start("x", log, nil, func(err error) { gone <- err }, "/bin/sh", "-c", "echo said; echo last words >&2; exit 3")
		if err != nil {
			t.Fatal(err)
		}
		said := make([]byte, 5)
		if _, err := out.Read(said); err != nil || string(said) != "said\n" {
			t.Errorf("its output is %q, %v", said, err)
		}
		err, _ = receive(t.Context(), time.Minute, gone)
		if want := "x ended by itself (exit status 3): last words"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if err := c.stop(); err == nil {
			t.Error("its stop does not say how it ended")
		}
		if b, err := os.ReadFile(log); err != nil || string(b) != "last words\n" {
			t.Errorf("its log is %q, %v", b, err)
		}
	})
	t.Run("asked to", func(t *testing.T) {
		t.Parallel()
		ready := make(chan string, 1)
		c, _, err := start("x", filepath.Join(t.TempDir(), "log"), func(line string) { ready <- line },
			func(err error) { t.Errorf("reported as gone: %v", err) }, "/bin/sh", "-c", "trap 'exit 0' TERM; echo ready >&2; cat; exit 0")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := receive(t.Context(), time.Minute, ready); err != nil {
			t.Fatal(err)
		}
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("never says anything", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		died := errors.New("died")
		cancel(died)
		if _, err := receive(ctx, time.Minute, make(chan int)); !errors.Is(err, died) {
			t.Errorf("got %v, want the cause", err)
		}
		if _, err := receive(t.Context(), time.Nanosecond, make(chan int)); err == nil {
			t.Error("patience does not end")
		}
	})
}
