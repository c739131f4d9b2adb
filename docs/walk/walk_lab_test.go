//go:build lab

package walk

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// rewrite has the pages say what came out, where it differs.
var rewrite = flag.Bool("rewrite", false, "write what commands say into the pages")

// settles is how long a command that looks at a cluster may say something else before it says what the page shows.
const settles = 90 * time.Second

// TestQuickstart types what the quickstart has its reader type.
func TestQuickstart(t *testing.T) { walk(t, "../quickstart.md") }

// TestResearchers does so with the page for researchers.
func TestResearchers(t *testing.T) { walk(t, "../researchers.md") }

// shell is a shell with the programs in bin, as in a checkout.
type shell struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

func newShell(t *testing.T) *shell {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, env := range map[string]string{"muster": "MUSTER_BINARY", "muster-lab": "MUSTER_LAB_BINARY"} {
		path := os.Getenv(env)
		if path == "" {
			path = filepath.Join(t.TempDir(), name)
			if out, err := exec.Command("go", "build", "-o", path, "github.com/muster-scheduler/muster/cmd/"+name).CombinedOutput(); err != nil {
				t.Fatalf("build %s: %v\n%s", name, err, out)
			}
		}
		if err := os.Symlink(path, filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("bash", "--norc")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "KUBECONFIG=") })
	// Ports without a host are those of an address of this test's own.
	cmd.Env = append(cmd.Env, "HOME="+dir, fmt.Sprintf("MUSTER_LISTEN_HOST=127.77.%d.%d", os.Getpid()>>8&255, os.Getpid()&255))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		down := exec.Command("bin/muster-lab", "down") // if the page has not got that far
		down.Dir = dir
		_ = down.Run()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
		r.Close()
		if text, err := os.ReadFile(filepath.Join(dir, "muster.log")); err == nil && t.Failed() {
			t.Logf("muster.log:\n%s", text)
		}
	})
	return &shell{t, in, bufio.NewReader(r)}
}

// enter types a command and returns what it says, and its exit status.
func (s *shell) enter(command string) (out []string, status string) {
	s.t.Helper()
	const over = "--- over: "
	if _, err := fmt.Fprintf(s.in, "%s\necho \"%s$?\"\n", command, over); err != nil {
		s.t.Fatal(err)
	}
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("%s: the shell ended: %v", command, err)
		}
		line = strings.TrimRight(line, " \t\r\n")
		if text, status, ended := strings.Cut(line, over); ended {
			if text != "" {
				out = append(out, text)
			}
			return out, status
		}
		out = append(out, line)
	}
}

// looks says whether a command only looks at the cluster, so that it can be given again until there is what was asked for.
func looks(command string) bool {
	words := strings.Fields(command)
	for _, known := range []string{"bin/muster status", "bin/muster gang", "bin/muster queue", "bin/muster explain", "bin/muster decisions", "bin/muster-lab kubectl get", "bin/muster-lab status"} {
		if strings.HasPrefix(strings.Join(words, " "), known) {
			return true
		}
	}
	return false
}

// asTyped is a command as the test types it: a demo is not kept at a terminal, and is built already.
func asTyped(command string) string {
	if command == "make demo" {
		return "bin/muster demo --no-wait"
	}
	return command
}

func walk(t *testing.T, name string) {
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(page), "\n")
	all := steps(string(page))
	if len(all) < 5 {
		t.Fatalf("%s has only %d commands", name, len(all))
	}
	s := newShell(t)
	var written []string // the page anew
	from := 0
	for _, k := range all {
		got, status := s.enter(asTyped(k.command))
		if k.hidden {
			if status != "0" {
				t.Fatalf("%s:%d: $ %s: exit status %s\n%s", name, k.line, k.command, status, strings.Join(got, "\n"))
			}
			continue
		}
		if looks(k.command) {
			before := got
			_ = wait.PollUntilContextTimeout(t.Context(), time.Second, settles, false, func(context.Context) (bool, error) {
				if says(k.want, got) {
					return true, nil
				}
				got, status = s.enter(k.command)
				settled := *rewrite && says(got, before) && len(got) > 0
				before = got
				return settled, nil
			})
		}
		if status != "0" {
			t.Errorf("%s:%d: $ %s: exit status %s", name, k.line, k.command, status)
		}
		written = append(written, lines[from:k.line]...)
		switch {
		case says(k.want, got):
			written = append(written, k.want...)
		case *rewrite:
			for _, line := range got {
				written = append(written, holes[1].like.ReplaceAllString(line, "/…/.lab"))
			}
		default:
			written = append(written, k.want...)
			t.Errorf("%s:%d: $ %s\nsays\n%s\nand the page shows\n%s", name, k.line, k.command, strings.Join(got, "\n"), strings.Join(k.want, "\n"))
		}
		from = k.end - 1
	}
	written = append(written, lines[from:]...)
	if text := strings.Join(written, "\n"); *rewrite && text != string(page) {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s is rewritten", name)
	}
}
