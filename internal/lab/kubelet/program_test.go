package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestArgv(t *testing.T) {
	t.Parallel()
	env := map[string]string{"A": "a"}
	for _, c := range []struct {
		command, args, want []string
	}{
		{nil, nil, []string{"/bin/prog"}},
		{nil, []string{"$(A)", "$(B)"}, []string{"/bin/prog", "a", "$(B)"}},
		{[]string{"prog"}, nil, []string{"/bin/prog"}},
		{[]string{"/prog", "other"}, []string{"x"}, []string{"/bin/prog", "other", "x"}},
		{[]string{"sh", "-c"}, []string{"prog"}, nil},
	} {
		got, err := argv("/bin/prog", &corev1.Container{Command: c.command, Args: c.args}, env)
		if d := cmp.Diff(c.want, got); d != "" || (err == nil) != (c.want != nil) {
			t.Errorf("%v: %s", err, d)
		}
	}
	if d := cmp.Diff([]string{"A=a", "B="}, environ(map[string]string{"B": "", "A": "a"})); d != "" {
		t.Error(d)
	}
}

// shell is a command that runs a script.
func shell(t *testing.T, restart corev1.RestartPolicy, script string) *command {
	t.Helper()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Log("there is no shell here: nothing to run")
		return nil
	}
	return &command{argv: []string{"/bin/sh", "-c", script}, env: []string{"PATH=/bin:/usr/bin", "WORD=told"}, log: filepath.Join(t.TempDir(), "log"), restart: restart}
}

// said waits until the command has said a word, and returns all that it said.
func (c *command) said(t *testing.T, word string) string {
	t.Helper()
	tick, limit := time.NewTicker(5*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for {
		text, _ := os.ReadFile(c.log)
		if strings.Contains(string(text), word) {
			return string(text)
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("it says %q, not %q", text, word)
		}
	}
}

// TestCommand: how a process ends, and when it is started again.
func TestCommand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		restart corev1.RestartPolicy
		script  string
		want    int32
		says    string
	}{
		"well":          {corev1.RestartPolicyNever, `echo $WORD`, 0, "told\n"},
		"badly":         {corev1.RestartPolicyNever, `exit 3`, 3, ""},
		"by a signal":   {corev1.RestartPolicyNever, `kill -9 $$`, 137, ""},
		"well at last":  {corev1.RestartPolicyOnFailure, `if [ -e again ]; then exit 0; fi; echo once > again; echo failed; exit 1`, 0, "failed\n"},
		"not a program": {corev1.RestartPolicyNever, "", 128, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := shell(t, c.restart, c.script)
			if cmd == nil {
				return
			}
			if c.script == "" {
				cmd.argv = []string{"/nowhere/at-all"}
			}
			if got := cmd.run(t.Context(), t.Context()); got != c.want {
				t.Errorf("exit code %d, want %d", got, c.want)
			}
			cmd.said(t, c.says)
		})
	}
}

// TestCommandAsked: SIGTERM first, and SIGKILL when that does not help.
func TestCommandAsked(t *testing.T) {
	t.Parallel()
	const wait = `echo ready; while :; do sleep 0.02; done`
	for name, c := range map[string]struct {
		script string
		kill   bool
		want   int32
	}{
		"it listens":      {`trap 'exit 7' TERM; ` + wait, false, 7},
		"it does not":     {`trap 'echo heard' TERM; ` + wait, true, 137},
		"it has no trap":  {wait, false, 143},
		"killed unasked ": {wait, true, 137},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := shell(t, corev1.RestartPolicyAlways, c.script)
			if cmd == nil {
				return
			}
			ending, term := context.WithCancel(t.Context())
			dying, kill := context.WithCancel(t.Context())
			defer kill()
			defer term()
			code := make(chan int32, 1)
			go func() { code <- cmd.run(ending, dying) }()
			cmd.said(t, "ready")
			if !c.kill || strings.Contains(c.script, "heard") {
				term()
			}
			if strings.Contains(c.script, "heard") {
				cmd.said(t, "heard")
			}
			if c.kill {
				term()
				kill()
			}
			if got := <-code; got != c.want {
				if name == "killed unasked " && got == 143 {
					return // the first signal was enough
				}
				t.Errorf("exit code %d, want %d", got, c.want)
			}
		})
	}
}
