package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/vm/validate"
)

// TestValidateOfNoNode: where nothing is there, every check says what to do, and the command fails.
func TestValidateOfNoNode(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "validate") // short: there is a socket below it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	args := []string{
		"validate", "-o", "json", "--domain-type=qemu", fmt.Sprintf("--qemu-user=%d:%d", os.Getuid(), os.Getgid()), "--dir", filepath.Join(dir, "d"), "--host-root", dir, "--qemu", filepath.Join(dir, "qemu"),
		"--cni-conf-dir", dir, "--cni-bin-dir", dir, "--libvirt-uri", "qemu+unix:///system?socket=" + filepath.Join(dir, "no.sock"),
	}
	text, err := musterVM(t, "", args...)
	if err == nil || !strings.Contains(err.Error(), "not ready") {
		t.Fatal(err)
	}
	var all []validate.Finding
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&all); err != nil {
		t.Fatal(err, text)
	}
	got := map[string]validate.Finding{}
	for _, f := range all {
		got[f.Check] = f
		if !f.OK && (f.Wrong == "" || f.Do == "") {
			t.Errorf("%+v", f)
		}
	}
	for check, want := range map[string]string{
		"cgroup": "neither version 2", "kernel": "/dev/net/tun is no device", "programs": filepath.Join(dir, "qemu") + ", for machines", "cni": "no CNI configuration in " + dir,
		"libvirt": "libvirtd does not answer", "boot": "libvirtd does not answer",
	} {
		if f := got[check]; f.OK || !strings.Contains(f.Wrong, want) {
			t.Errorf("%s: %+v", check, f)
		}
	}
	if text, _ := musterVM(t, "", append(args, "--no-boot", "-o", "text")...); strings.Contains(text, "boot") || !strings.Contains(text, "FAIL  libvirt: ") || !strings.Contains(text, "\n      do: ") {
		t.Error(text)
	}
	for _, args := range [][]string{{"validate"}, {"validate", "--domain-type=qemu", "--qemu-user=0:0", "-o", "xml"}, {"validate", "x"}} {
		if _, err := musterVM(t, "", args...); err == nil || strings.Contains(err.Error(), "not ready") {
			t.Errorf("%v: %v", args, err)
		}
	}
	for have, ok := range map[string]bool{"9.0.0": true, "8.9.9": false, "10.0.1": true, "": false} {
		if err := atLeast("libvirt", have, 9, 0); (err == nil) != ok {
			t.Errorf("%q: %v", have, err)
		}
	}
}

// validates sees the node that a machine runs on: every check is ok, the boot of another machine included, which the runtime lets be and which leaves nothing.
func (n *realNode) validates(qemu, plugins string) {
	n.t.Helper()
	uri := fmt.Sprintf("qemu+unix:///system?socket=%s/libvirt/libvirt-sock", n.dir)
	text, err := n.inside("validate", "--domain-type", "qemu", "--dir", n.path("d"), "--qemu", qemu, "--libvirt-uri", uri, "--cni-bin-dir", plugins, "--cni-conf-dir", n.path("cni"))
	if err != nil {
		n.t.Errorf("%v: %s", err, text)
	}
	n.t.Logf("validate:\n%s", text)
	for _, want := range []string{"ok    user", "ok    cgroup", "ok    kernel", "ok    programs", "ok    reach", `ok    cni: network "pods"`, "ok    libvirt: libvirt ", "ok    boot: a machine of type qemu ran after"} {
		if !strings.Contains(text, want) {
			n.t.Errorf("it lacks %q", want)
		}
	}
	if left, err := filepath.Glob(n.path("d", "state", "self-test-*")); err != nil || len(left) > 0 {
		n.t.Errorf("it left %v, %v", left, err)
	}
	if other := n.process("/state/self-test-"); other != 0 {
		n.t.Errorf("its machine is left, process %d", other)
	}
}
