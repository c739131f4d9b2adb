package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/diag"
)

// musterVM runs muster-vm in this process.
func musterVM(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	c := root()
	out := new(bytes.Buffer)
	c.SetOut(out)
	c.SetErr(out)
	c.SetIn(strings.NewReader(stdin))
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// TestDiagOfNoNode: where nothing runs and no program is there, every source of Virtlet's still has its place, with why there is nothing.
func TestDiagOfNoNode(t *testing.T) {
	dir, err := os.MkdirTemp("", "diag") // short: there are sockets below it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	t.Setenv("PATH", dir)
	ps := "#!/bin/sh\necho root 1 qemu --password hunter2\necho oh >&2\n"
	if err := os.WriteFile(filepath.Join(dir, "ps"), []byte(ps), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	log := filepath.Join(dir, "up.log")
	if err := os.WriteFile(log, []byte(strings.Repeat("token=hunter2 line\n", 60_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := musterVM(t, "", "diag", "dump", "--json", "--dir", dir, "--cri", filepath.Join(dir, "cri.sock"), "--libvirt-logs", filepath.Join(dir, "none"), "--log", log, "--log", dir)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "hunter2") {
		t.Error("a secret is in the dump")
	}
	out := filepath.Join(dir, "out")
	if said, err := musterVM(t, text, "diag", "unpack", out); err != nil {
		t.Fatal(said, err)
	}
	for file, want := range map[string]string{
		"ip-a.error": "executable file not found", "ip-r.error": "ip:", "psaux.txt": "--password " + diag.Redacted, "netns.error": "no such file", "criproxy/version.error": "cri.sock",
		"criproxy/up.log.txt": "the first ", "libvirt-logs.error": "no such file", "stack/net.error": "net.sock", "stack/runtime.error": "runtime.sock", "stack/proxy.error": "proxy.sock",
		"metadata.error": "runtime.sock", "libvirt-xml.error": "virsh", "leases.error": "net.sock", "garbage.error": "runtime: ", "version.json": "muster-vm",
		"criproxy/" + filepath.Base(dir) + ".error": "must be a file",
	} {
		if got, err := os.ReadFile(filepath.Join(out, file)); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: %.300q, %v, want %q", file, got, err, want)
		}
	}
	for _, args := range [][]string{{"dump"}, {"dump", "--json", "x"}, {"unpack"}, {"unpack", out}, {}, {"gc", "--dir", dir}, {"gc", "--dry-run", "--dir", dir, "-o", "xml"}} {
		if said, err := musterVM(t, text, append([]string{"diag"}, args...)...); err == nil {
			t.Errorf("%v is no error: %s", args, said)
		}
	}
}

// TestTell: a process tells of its goroutines until it ends, and one that cannot does its work all the same.
func TestTell(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "diag")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	c := diag.Client{Socket: filepath.Join(dir, "s")}
	_, end := tell(t.Context(), c.Socket, nil, logr.Discard())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		r, err := part(ctx, c, "stack")
		if err == nil {
			if !strings.Contains(r.Data, "TestTell") {
				t.Error(r.Data)
			}
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if _, err := part(ctx, c, "metadata"); err == nil || !strings.Contains(err.Error(), "has no metadata") {
		t.Error(err)
	}
	end()
	if _, err := c.Dump(ctx); vm.KindOf(err) != vm.Unavailable {
		t.Error(err)
	}
	_, end = tell(t.Context(), dir, nil, logr.Discard())
	end()
}

// inside runs muster-vm as somebody on the node would.
func (n *realNode) inside(args ...string) (string, error) {
	n.t.Helper()
	c := exec.Command("nsenter", append([]string{"-t", fmt.Sprint(n.stage), "-m", "-n", n.path("muster-vm")}, args...)...)
	c.Env = append(os.Environ(), asItself+"=1")
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said.Bytes())
	}
	return string(out), err
}

// look sees a node from outside while a machine runs: its dump has every source and no token, and gc takes what is nobody's and nothing else.
func (n *realNode) look(sandbox, container string) {
	n.t.Helper()
	uri := fmt.Sprintf("qemu+unix:///system?socket=%s/libvirt/libvirt-sock", n.dir)
	text, err := n.inside("diag", "dump", "--json", "--dir", n.path("d"), "--cri", n.path("cri.sock"), "--libvirt-uri", uri, "--log", n.path("up.log"))
	if err != nil {
		n.t.Fatal(err)
	}
	r, err := diag.Read(strings.NewReader(text))
	if err != nil {
		n.t.Fatal(err)
	}
	if err := diag.Unpack(r, n.path("dump")); err != nil {
		n.t.Error(err)
	}
	read := func(name string) string {
		found, _ := filepath.Glob(n.path("dump", name))
		all := ""
		for _, file := range found {
			text, _ := os.ReadFile(file)
			all += string(text)
		}
		return all
	}
	for name, want := range map[string]string{
		"ip-a.txt": "pods0", "ip-r.txt": "10.213.77.0/24", "psaux.txt": "qemu-system", "netns/" + sandbox + ".txt": "169.254.254.2/24", "criproxy/status.json": "RuntimeReady",
		"criproxy/pods.json": sandbox, "criproxy/containers.json": container, "criproxy/up.log.txt": "The CRI is served", "libvirt-logs/muster-*.txt": "starting up libvirt",
		"stack/net.log": "goroutine ", "stack/runtime.log": "goroutine ", "stack/proxy.log": "goroutine ", "metadata/containers/" + container + ".json": `"phase": "running"`,
		"metadata/sandboxes/" + sandbox + ".json": `"phase": "ready"`, "libvirt-xml/muster-*.xml": "VIRTLET_NET_KEY", "leases.json": `"leases"`,
	} {
		if got := read(name); !strings.Contains(got, want) {
			n.t.Errorf("%s lacks %q: %.2000s (%s)", name, want, got, read(strings.TrimSuffix(name, filepath.Ext(name))+".error"))
		}
	}
	if token := regexp.MustCompile(`:[0-9a-f]{64}@/`).FindString(text); token != "" {
		n.t.Errorf("the dump has a token: %s", token)
	}
	collect := func(args ...string) (all []diag.Garbage) {
		text, err := n.inside(append([]string{"diag", "gc", "--dir", n.path("d"), "-o", "json"}, args...)...)
		if err := errors.Join(err, json.Unmarshal([]byte(text), &all)); err != nil {
			n.t.Errorf("gc %v: %v: %s", args, err, text)
		}
		return all
	}
	if all := collect("--dry-run"); len(all) > 0 {
		n.t.Errorf("a node with one pod has garbage: %+v", all)
	}
	stray, disk := n.path("d", "netns", "stray"), n.path("d", "state", "volumes", "stray")
	for _, err := range []error{exec.Command("nsenter", "-t", fmt.Sprint(n.stage), "-m", "touch", stray).Run(), os.MkdirAll(filepath.Join(disk, "000-root"), 0o700)} { //nolint:gosec // a test's paths
		if err != nil {
			n.t.Fatal(err)
		}
	}
	names := func(all []diag.Garbage) (out string) {
		for _, g := range all {
			out += g.Kind + " " + g.ID + "\n"
		}
		return out
	}
	// The sweep of every minute may have been faster with the disk.
	if got := names(collect("--dry-run")); !strings.Contains(got, "remove network namespace "+stray+"\n") || strings.Contains(got, container) || strings.Contains(got, sandbox) {
		n.t.Errorf("a dry run says %s", got)
	}
	if got := names(collect()); !strings.Contains(got, stray) || strings.Contains(got, container) {
		n.t.Errorf("gc says %s", got)
	}
	if _, err := os.Stat(disk); !os.IsNotExist(err) {
		n.t.Errorf("the disk: %v", err)
	}
	if all := collect("--dry-run"); len(all) > 0 {
		n.t.Errorf("after gc there is garbage: %+v", all)
	}
}
