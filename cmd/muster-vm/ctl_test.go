package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/vm/runtime"
)

// TestCtl: what cannot be is said by name before anything is reached, and a screen's socket is found where the runtime has it.
func TestCtl(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/team/pods/web") {
			http.Error(w, "no such pod", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"team"},"spec":{"nodeName":"n1","containers":[{"name":"vm"}]},
			"status":{"phase":"Running","containerStatuses":[{"name":"vm","containerID":"muster-vm://c0ffee","state":{"running":{}}}]}}`)
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{}}]}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct{ args, want string }{
		{"ssh none", "pod team/none"},
		{"ssh root@web --port=0", "--port 0"},
		{"ssh root@web", "port 22 of pod team/web"},
		{"console none", "pod team/none"},
		{"vnc web", `annotation vm.muster.dev/vnc must be "true"`},
		{"vnc web 70000", `port "70000"`},
		{"virsh list", "must have an argument @POD"},
		{"virsh dumpxml -- @none", "pod team/none"},
		{"virsh dumpxml -- @web", "pods of muster-vm in muster-vm"},
		{"ssh web -c other", `container "other" does not run`},
		{"ssh", "arg"},
		{"screen", "arg"},
	} {
		said, err := musterVM(t, "", append([]string{"ctl", "--kubeconfig", kubeconfig, "-n", "team"}, strings.Fields(one.args)...)...)
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: %v, %s", one.args, err, said)
		}
	}
	dir, err := os.MkdirTemp("", "ctl") // short: it is a socket's path
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	folders, err := runtime.OpenFolders(runtime.DiskFolders{Dir: filepath.Join(dir, "c"), Sockets: filepath.Join(dir, "run", "s"), UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := musterVM(t, "", "ctl", "screen", "--node-dir", dir, "c0ffee"); err == nil || !strings.Contains(err.Error(), "screen of container c0ffee") {
		t.Error(err)
	}
	if err := os.MkdirAll(filepath.Dir(folders.Screen("c0ffee")), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", folders.Screen("c0ffee"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		got, _ := io.ReadAll(c)
		_, _ = fmt.Fprintf(c, "RFB heard %s", got)
	}()
	if said, err := musterVM(t, "hello", "ctl", "screen", "--node-dir", dir, "c0ffee"); err != nil || said != "RFB heard hello" {
		t.Errorf("%q, %v", said, err)
	}
}

// TestExitCode: a program that was run for a person ends this one as it ended.
func TestExitCode(t *testing.T) {
	t.Parallel()
	ended := new(exec.ExitError)
	if err := exec.CommandContext(t.Context(), "sh", "-c", "exit 7").Run(); !errors.As(err, &ended) {
		t.Fatal(err)
	}
	if got := exitCode("muster-vm", fmt.Errorf("ssh: %w", asItEnded{ended}), io.Discard); got != 7 {
		t.Errorf("%d", got)
	}
	if got := exitCode("muster-vm", fmt.Errorf("mkfs: %w", ended), io.Discard); got != 1 {
		t.Errorf("%d", got)
	}
	var said strings.Builder
	if got := exitCode("muster-vm", errors.New("no such pod"), &said); got != 1 || said.String() != "muster-vm: no such pod\n" {
		t.Errorf("%d, %q", got, said.String())
	}
	if got := exitCode("muster-vm", nil, &said); got != 0 {
		t.Errorf("%d", got)
	}
}
