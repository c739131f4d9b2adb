//go:build lab

package demo_test

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-scheduler/muster/internal/demo"
)

// TestDemo tells the whole story as at a terminal, presses Ctrl-C at its end, and sees that nothing is left running.
func TestDemo(t *testing.T) {
	o := demo.DefaultOptions()
	o.MusterBinary = build(t, "muster", "")
	o.LabBinary = build(t, "muster-lab", os.Getenv("MUSTER_LAB_BINARY"))
	o.Dir = t.TempDir()
	o.Patience = time.Minute
	o.Keep = true
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := &teller{t: t, until: "Ctrl-C stops it.", then: cancel}
	o.Out = told
	if err := demo.Run(ctx, o); err != nil {
		t.Fatal(err)
	}
	text := told.text.String()
	words := strings.Join(strings.Fields(text), " ") // wherever lines are broken
	for _, want := range []string{
		"resnet of team search", "room for ", "uses  304", "uses  144", "bert runs whole", "what would change it", "512 of 512 used",
		"38 pods, 304 gpu", "preempt for", "training-2 moves to the second node", "0 evicted, 2 moved, 4 placed", "All 22 sentences held",
	} {
		if !strings.Contains(words, strings.Join(strings.Fields(want), " ")) {
			t.Errorf("the story does not say %q", want)
		}
	}
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 && !strings.Contains(line, o.Dir) {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	log, err := os.ReadFile(filepath.Join(o.Dir, "muster.log"))
	if err != nil || strings.Contains(string(log), "decisions about gangs are not recorded") {
		t.Errorf("the control plane has no namespace, so that gangs have BindRequests (%v)", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(o.Dir, "lab", "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", server.Host); err == nil {
		_ = c.Close()
		t.Errorf("the API server still accepts connections at %s", server.Host)
	}
}

// build returns the path of a command of this module: the given one, or one just built.
func build(t *testing.T, name, given string) string {
	t.Helper()
	if given != "" {
		return given
	}
	path := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-o", path, "github.com/muster-scheduler/muster/cmd/"+name)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return path
}

// teller keeps what is told, passes it on to the test's log, and does something once a text has been told.
type teller struct {
	t     *testing.T
	mu    sync.Mutex
	text  bytes.Buffer
	until string
	then  func()
}

// Write implements io.Writer.
func (w *teller) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(b)
	w.t.Log(strings.TrimRight(string(b), "\n"))
	if strings.Contains(w.text.String(), w.until) {
		w.then()
	}
	return len(b), nil
}
