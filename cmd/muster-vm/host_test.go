package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// TestHost: from other mounts and another network, this program is installed where the process sees it and becomes that, and a program is one of the process's.
func TestHost(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: it needs root")
	}
	dir := t.TempDir()
	// In the place of the node: its folder is a file system that nobody else sees.
	node := exec.CommandContext(t.Context(), "unshare", "-m", "-n", "sh", "-c", `mount --make-rprivate / && mount -t tmpfs tmpfs "$1" && echo "the node's" >"$1/file" && echo begun && exec cat`, "node", dir)
	in, err := node.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = node.Wait() }()
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "begun\n" {
		t.Skip("NOT CHECKED: no namespaces of mounts and network can be made here")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	host := func(args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), self, append([]string{"host", "--of=" + strconv.Itoa(node.Process.Pid)}, args...)...)
		c.Env = []string{asItself + "=1", "PATH=/none", "SSL_CERT_FILE=/none", "KEPT=kept"}
		said, err := c.CombinedOutput()
		return string(said), err
	}
	program := filepath.Join(dir, "a", "bin", "muster-vm")
	for range 2 { // the second replaces the first
		if said, err := host("--install="+program, "--", "muster-vm", "--version"); err != nil || !strings.Contains(said, "version "+version) {
			t.Errorf("%v: %s", err, said)
		}
	}
	if _, err := os.Stat(program); err == nil {
		t.Error("it was installed here, and not on the node")
	}
	if said, err := host("--", "muster-vm", "--version"); err != nil || !strings.Contains(said, "version "+version) {
		t.Errorf("%v: %s", err, said)
	}
	said, err := host("--", "sh", "-c", `cat "$0/file"; stat -c "%a %n" "$0"/a/bin/*; readlink /proc/self/ns/net; echo "$KEPT $SSL_CERT_FILE"`, dir)
	theirs, _ := os.Readlink("/proc/" + strconv.Itoa(node.Process.Pid) + "/ns/net")
	if want := "the node's\n755 " + program + "\n" + theirs + "\nkept \n"; err != nil || said != want {
		t.Errorf("%v: %q, want %q", err, said, want)
	}
	for _, bad := range []struct{ want, args string }{
		{"no-such-program", "-- no-such-program"},
		{"--install", "--install=here -- muster-vm"},
		{"arg", ""},
	} {
		said, err := host(strings.Fields(bad.args)...)
		if err == nil || !strings.Contains(said, bad.want) {
			t.Errorf("%s: %v: %s", bad.args, err, said)
		}
	}
}

// TestChart: the command lines that the chart gives to its pod on nodes are read, and name one folder.
func TestChart(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile("../../deploy/chart/e2e/testdata/everything.golden")
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	for document := range strings.SplitSeq(string(golden), "\n---\n") {
		if strings.Contains(document, "\nkind: DaemonSet\n") {
			document, _, _ = strings.Cut(document, "\n-- ")
			if err := yaml.UnmarshalStrict([]byte(document), &set); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(set.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%d containers", len(set.Spec.Template.Spec.Containers))
	}
	pod := set.Spec.Template.Spec.Containers[0]
	c, rest, err := root().Find(pod.Args)
	if err != nil || c.Name() != "host" {
		t.Fatalf("%q: %v", pod.Args, err)
	}
	if err := c.ParseFlags(rest); err != nil || c.Flags().NArg() < 2 || c.Flags().Arg(0) != "muster-vm" {
		t.Fatalf("%q: %v", pod.Args, err)
	}
	probe := pod.ReadinessProbe.Exec.Command
	if to := c.Flag("install").Value.String(); to != "/data/vm/bin/muster-vm" || probe[0] != to {
		t.Errorf("installed at %s, and looked for at %s", to, probe[0])
	}
	for _, argv := range [][]string{c.Flags().Args()[1:], probe[1:]} {
		c, rest, err := root().Find(argv)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.ParseFlags(rest); err != nil || c.Flags().NArg() > 0 || c.Flag("dir").Value.String() != "/data/vm" {
			t.Errorf("%q: %v, left %q", argv, err, c.Flags().Args())
		}
	}
	if grace := *set.Spec.Template.Spec.TerminationGracePeriodSeconds; grace <= 60 {
		t.Errorf("%d s for two processes, which up gives thirty each", grace)
	}
}
