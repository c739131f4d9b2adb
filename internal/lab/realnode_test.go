package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// played is a program that speaks as realnode does: it lacks something, or links, and ends when its standard input does.
const played = `#!/bin/sh
case "$1" in
missing) echo root; echo "the program runc (Debian: runc)";;
up) echo "$@" > "$0.args"; echo '{"gateway": "10.86.0.1", "address": "10.86.0.2"}'; cat; echo bye > "$0.ended";;
esac
`

func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "realnode")
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return path
}

func TestRealNodeIsPlayed(t *testing.T) {
	path := program(t, played)
	lacks, err := RealNodeLacks(t.Context(), path)
	if err != nil || len(lacks) != 2 || lacks[1] != "the program runc (Debian: runc)" {
		t.Errorf("lacks %q, %v", lacks, err)
	}
	dir := filepath.Join(t.TempDir(), "node")
	n, err := StartRealNode(t.Context(), RealNodeOptions{Program: path, Name: "real-1", Dir: dir, GPUs: 2, Images: map[string]string{"example/a:1": "a.tar"}, Services: map[string]string{"vm": "exec vm"}, CRI: "/run/vm.sock"})
	if err != nil {
		t.Fatal(err)
	}
	if n.Gateway() != "10.86.0.1" {
		t.Errorf("gateway %q", n.Gateway())
	}
	args, err := os.ReadFile(path + ".args")
	want := "up --leash --name real-1 --dir " + dir + " --kubeconfig " + dir + "/kubeconfig --gpus 2 --image example/a:1=a.tar --service vm=exec vm --cri /run/vm.sock\n"
	if err != nil || string(args) != want {
		t.Errorf("called with %q, %v, want %q", args, err, want)
	}
	cluster := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(cluster, []byte("whose"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Join(&Lab{state: State{Kubeconfig: cluster}}); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "kubeconfig")); err != nil || string(text) != "whose" {
		t.Errorf("the node finds the kubeconfig %q, %v", text, err)
	}
	for range 2 {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(path + ".ended"); err != nil {
		t.Errorf("it did not end by itself: %v", err)
	}
}

func TestRealNodeThatFails(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"before the link": {"#!/bin/sh\necho no way >&2; exit 3\n", "no way"},
		"no program":      {"", "exec format error"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := StartRealNode(t.Context(), RealNodeOptions{Program: program(t, c.text), Name: "real-1", Dir: t.TempDir()})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want one with %q", err, c.want)
			}
		})
	}
	path := program(t, "#!/bin/sh\necho '{\"gateway\": \"10.86.0.1\"}'; echo a part failed >&2; exit 1\n")
	n, err := StartRealNode(t.Context(), RealNodeOptions{Program: path, Name: "real-1", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	<-n.Done()
	if err := n.Stop(); err == nil || !strings.Contains(err.Error(), "a part failed") {
		t.Errorf("it ended with %v", err)
	}
}
