//go:build linux

package conformity

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// critest runs the suite in the node, with what answers at a socket, and gives all specs.
func (n *node) critest(socket string, args ...string) []spec {
	n.t.Helper()
	program := needs(n.t, "MUSTER_CRITEST_BINARY")
	ctx, cancel := context.WithTimeout(n.t.Context(), most)
	defer cancel()
	report := n.path("report.json")
	c := n.command(ctx, append([]string{
		program, "-runtime-endpoint=unix://" + n.path(socket), "-config=" + n.path("none.yaml"), "-ginkgo.no-color", "-ginkgo.seed=1", "-ginkgo.json-report=" + report, "-test.timeout=0",
	}, args...)...)
	said, err := os.Create(n.path("critest.log"))
	if err != nil {
		n.t.Fatal(err)
	}
	defer said.Close()
	c.Stdout, c.Stderr = said, said
	err = c.Run()
	out, _ := os.ReadFile(said.Name())
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		n.t.Fatalf("critest: %v: %s", err, out)
	}
	text, err := os.ReadFile(report)
	var suites []struct{ SpecReports []spec }
	if err == nil {
		err = json.Unmarshal(text, &suites)
	}
	if err != nil || len(suites) != 1 {
		n.t.Fatalf("critest's report: %d suites, %v; it said: %s", len(suites), err, out[max(0, len(out)-5000):])
	}
	var all []spec
	for _, s := range suites[0].SpecReports {
		if s.LeafNodeType == "It" {
			all = append(all, s)
		}
	}
	return all
}

// most is how long the suite may take.
const most = 40 * time.Minute

// prove runs what a table wants to be run, and says how it went.
func (n *node) prove(file, socket string, args ...string) {
	n.t.Helper()
	rows := table(n.t, file)
	specs := n.critest(socket, append(args, "-ginkgo.focus="+focus(rows))...)
	count := map[string]int{}
	took := map[string]spec{}
	for _, s := range specs {
		took[s.name()] = s
	}
	for _, r := range rows {
		s := took[r.name]
		count[r.verdict]++
		n.t.Logf("%-8s %6.1f s  %s  %s", s.State, s.RunTime.Seconds(), r.name, r.reason)
	}
	n.t.Logf("of %d specs %d have to pass, %d fail for a reason, %d do not apply", len(rows), count[passes], count[fails], count[cannot])
	for _, p := range judge(rows, specs) {
		n.t.Error(p)
	}
}

// TestDirect: the suite, with nothing but muster-vm.
func TestDirect(t *testing.T) {
	needs(t, "MUSTER_CRITEST_BINARY")
	newNode(t, false).prove(direct, "cri.sock")
}

// TestProxied: the suite asks for machines by their RuntimeClass handler, at a node whose other pods are containerd's.
func TestProxied(t *testing.T) {
	needs(t, "MUSTER_CRITEST_BINARY")
	n := newNode(t, true)
	// Names that only machines have: an image of the suite's own name would be containerd's once it was pulled for no pod.
	n.write("images.yaml", "defaultTestContainerImage: registry.k8s.io/vm/tiny:1\nwebServerTestImage: registry.k8s.io/vm/web:1\n")
	n.prove(proxied, "cri.sock", "-runtime-handler=muster-vm", "-test-images-file="+n.path("images.yaml"))
}

// groups are the parts of the suite that say something about containers on this machine: the rest wants images that nobody can make here.
const groups = `Runtime info|PodSandbox runtime should support basic|Idempotence|Container runtime should support (basic|log|adding)|Image Manager|Image Consistency|Image Identifier|Streaming|Networking|Multiple`

// TestContainerd: what the suite makes of containerd through the proxy, with muster-vm beside it, is what it makes of it without.
func TestContainerd(t *testing.T) {
	needs(t, "MUSTER_CRITEST_BINARY")
	n := newNode(t, true)
	without := map[string]spec{}
	for _, s := range n.critest("containerd.sock", "-ginkgo.focus="+groups) {
		without[s.name()] = s
	}
	ran, passed := 0, 0
	for _, s := range n.critest("cri.sock", "-ginkgo.focus="+groups) {
		was := without[s.name()]
		if s.State == "skipped" && was.State == "skipped" {
			continue
		}
		ran++
		if s.State == "passed" {
			passed++
		} else {
			t.Logf("%s: %s: %s", s.State, s.name(), strings.SplitN(s.Failure.Message, "\n", 2)[0])
		}
		if was.State != s.State {
			t.Errorf("%q is %s without the proxy, and %s with it: %s, %s", s.name(), was.State, s.State, was.Failure.Message, s.Failure.Message)
		}
	}
	t.Logf("%d of %d specs pass, with the proxy and without", passed, ran)
	if passed < 51 {
		t.Errorf("so few say little about the proxy")
	}
}
