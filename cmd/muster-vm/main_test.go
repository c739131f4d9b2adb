package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/vm/network/wire"
	"github.com/muster-scheduler/muster/internal/vm/proxy"
)

// patience is how long a process may take here.
const patience = time.Minute

// asItself in the environment lets the test's program be muster-vm.
const asItself = "MUSTER_VM_TEST_AS_ITSELF"

// TestMain lets the test's program be muster-vm: by its name, as libvirt would run it, as the file server that runtime calls, and where it is told to.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == wrapName || len(os.Args) > 1 && os.Args[1] == shareServer || os.Getenv(asItself) != "" {
		os.Exit(run(os.Args))
	}
	os.Exit(m.Run())
}

// TestWrapAsLibvirtRunsIt is the whole way: a process called muster-vm-wrap fetches a descriptor over the socket's protocol, and becomes a program
// that finds it open.
func TestWrapAsLibvirtRunsIt(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "wrap") // short: it is a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, wrapName)
	if err := os.Symlink(self, name); err != nil {
		t.Fatal(err)
	}
	// In QEMU's place: it reads from the descriptor that it is told of.
	qemu := filepath.Join(dir, "qemu")
	script := "#!/bin/sh\nfor a; do case $a in tap,*) fd=${a##*fd=};; esac; done\necho \"$@\" \"key:$VIRTLET_NET_KEY\" \"id:$VIRTLET_CONTAINER_ID\"\ncat <&$fd\n"
	if err := os.WriteFile(qemu, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "net.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan map[string]any, 1)
	go func() {
		defer close(got)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		var q map[string]any
		uc := c.(*net.UnixConn)
		if _, err := wire.Read(uc, &q, 4096, 0); err != nil {
			return
		}
		r, w, err := os.Pipe()
		if err != nil {
			return
		}
		_, _ = w.WriteString("through the tap\n")
		_ = w.Close()
		_ = wire.Write(uc, map[string]any{"taps": []any{map[string]any{"name": "eth0", "mac": "02:00:00:00:00:01", "mtu": 1450, "descriptor": 0}}}, []int{int(r.Fd())})
		_ = r.Close()
		got <- q
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, name, "-S", "-msg", "timestamp=on")
	c.Env = []string{"PATH=/usr/bin:/bin", "VIRTLET_EMULATOR=" + qemu, "VIRTLET_CONTAINER_ID=3f1c", "VIRTLET_NET_KEY=77aa:c0ffee@" + socket}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	for _, want := range []string{"-S -msg timestamp=on -netdev tap,id=muster-net0,fd=", `"mac":"02:00:00:00:00:01"`, "key: id:3f1c\n", "through the tap\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q lacks %q", out, want)
		}
	}
	if q := <-got; q["verb"] != "get" || q["id"] != "77aa" || q["token"] != "c0ffee" {
		t.Errorf("asked %v", q)
	}

	// A bad variable is named where libvirt's log shows it, without the token.
	bad := exec.CommandContext(ctx, name, "-S")
	bad.Env = []string{"VIRTLET_EMULATOR=qemu", "VIRTLET_CONTAINER_ID=3f1c", "VIRTLET_NET_KEY=77aa:c0ffee@net.sock"}
	text, err := bad.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "VIRTLET_EMULATOR") || !strings.Contains(string(text), "VIRTLET_NET_KEY") || strings.Contains(string(text), "c0ffee") {
		t.Errorf("%v: %s", err, text)
	}
	// Nobody is there.
	_ = l.Close()
	alone := exec.CommandContext(ctx, name, "-S")
	alone.Env = c.Env
	if text, err := alone.CombinedOutput(); err == nil || !strings.Contains(string(text), "VIRTLET_NET_KEY: network cards of pod 77aa") {
		t.Errorf("%v: %s", err, text)
	}
}

func TestBackend(t *testing.T) {
	t.Parallel()
	got, err := backend("name=muster-vm,socket=/run/a.sock,handler=muster-vm,handler=b,prefix=virtlet.cloud/")
	want := proxy.Backend{Name: "muster-vm", Socket: "/run/a.sock", Handlers: []string{"muster-vm", "b"}, ImagePrefixes: []string{"virtlet.cloud/"}}
	if err != nil || cmp.Diff(want, got) != "" {
		t.Error(err, cmp.Diff(want, got))
	}
	for _, bad := range []string{"", "name", "name=a", "socket=/a", "name=a,socket=/a,name=b", "name=a,socket=/a,other=b"} {
		if _, err := backend(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestFlags: every flag says what it is for, and a bad one ends the start.
func TestFlags(t *testing.T) {
	t.Parallel()
	names := []string{}
	for _, c := range root().Commands() {
		names = append(names, c.Name())
	}
	for _, want := range []string{"net", "proxy", "runtime", "up", "wrap"} {
		if !slices.Contains(names, want) {
			t.Errorf("%v lack %s", names, want)
		}
	}
	for _, args := range [][]string{
		{"net", "--fallback-dns=x"},
		{"net", "--qemu-uid=4294967295"},
		{"net", "--lease=1s"},
		{"proxy", "--backend=x"},
		{"proxy", "--listen=x"},
		{"net", "rubbish"},
		{},
		{"runtime"},
		{"runtime", "--domain-type=kvm", "--qemu-user=no such user"},
		{"runtime", "--domain-type=qemu", "--qemu-user=0:0", "--libvirt-uri=xen:///"},
		{"up", "--domain-type=guess"},
		{"up", "--domain-type=qemu", "--qemu-user=0:0", "--mirror=x"},
		{"up", "--domain-type=qemu", "--qemu-user=0:0", "--dir=here"},
		{"up", "--domain-type=qemu", "--qemu-user=0:0", "--parts=rest"},
		{"up", "--parts=net"},
		{"up", "--parts=proxy", "--dir=here"},
		{"host"},
	} {
		c := root()
		c.SetArgs(args)
		c.SetOut(new(bytes.Buffer))
		if err := c.ExecuteContext(t.Context()); err == nil {
			t.Errorf("%v is no error", args)
		}
	}
}

// TestSigterm: a process that is told to end does so, without an error.
func TestSigterm(t *testing.T) {
	dir := t.TempDir()
	done := make(chan int, 1)
	go func() {
		done <- run([]string{"muster-vm", "proxy", "--listen", filepath.Join(dir, "a.sock"), "--primary", filepath.Join(dir, "b.sock")})
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for { // it listens as soon as it hears signals, and not before
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "a.sock"))
		if err == nil {
			_ = c.Close()
			break
		}
		select {
		case code := <-done:
			t.Fatalf("it ended with %d", code)
		case <-ctx.Done():
			t.Fatal("it does not listen")
		default:
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case code := <-done:
		if code != 0 {
			t.Errorf("it ended with %d", code)
		}
	case <-ctx.Done():
		t.Fatal("it does not end")
	}
}

// TestUpArguments: each process of up takes the flags that it is given, and the proxy the runtime that they describe.
func TestUpArguments(t *testing.T) {
	t.Parallel()
	for _, primary := range []string{"", "/run/containerd/containerd.sock"} {
		p := places{dir: "/d", cri: "/d/cri.sock", primary: primary, binDir: "/bin", confDir: "/conf", systemd: primary != ""}
		p.machines = machineFlags{domainType: "kvm", libvirt: "qemu:///system", qemu: "/q", qemuUser: "64055:109", virtiofsd: "/a,/b", pods: "/p", mirrors: []string{"docker.io=http://m"}}
		var names []string
		for _, one := range p.processes("/self", "/d/"+wrapName, 64055) {
			names = append(names, one.Name)
			c, rest, err := root().Find(one.Argv[1:])
			if err != nil || c.Name() != one.Name {
				t.Fatalf("%v: %v", one.Argv, err)
			}
			if err := c.ParseFlags(rest); err != nil || c.Flags().NArg() > 0 {
				t.Errorf("%s: %v, left %v", one.Name, err, c.Flags().Args())
			}
			switch one.Name {
			case "net":
				if got := c.Flag("networks-are-ours").Value.String(); got != strconv.FormatBool(primary == "") {
					t.Errorf("networks are ours: %s", got)
				}
			case "runtime":
				if got := c.Flag("mirror").Value.String(); got != "[docker.io=http://m]" {
					t.Errorf("mirrors %s", got)
				}
				if got := c.Flag("systemd-cgroups").Value.String(); got != strconv.FormatBool(p.systemd) {
					t.Errorf("slices %s", got)
				}
			case "proxy":
				texts, err := c.Flags().GetStringArray("backend")
				if primary == "" {
					if err != nil || len(texts) > 0 || c.Flag("primary").Value.String() != "/d/runtime.sock" {
						t.Errorf("alone: %v, %v, %s", err, texts, c.Flag("primary").Value)
					}
					continue
				}
				if err != nil || len(texts) != 1 || c.Flag("primary").Value.String() != primary {
					t.Fatalf("%v, %v, %s", err, texts, c.Flag("primary").Value)
				}
				got, err := backend(texts[0])
				want := proxy.Backend{Name: handler, Socket: "/d/runtime.sock", Handlers: []string{handler}, ImagePrefixes: []string{"muster-vm/", "virtlet.cloud/"}}
				if err != nil || cmp.Diff(want, got) != "" {
					t.Error(err, cmp.Diff(want, got))
				}
			}
		}
		if !slices.Equal(names, []string{"net", "runtime", "proxy"}) {
			t.Error(names)
		}
		p.parts = []string{"runtime", "net"}
		names = nil
		for _, one := range p.processes("/self", "/d/"+wrapName, 64055) {
			names = append(names, one.Name)
		}
		if !slices.Equal(names, []string{"net", "runtime"}) {
			t.Error(names)
		}
	}
}
