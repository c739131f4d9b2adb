package wrap_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/wrap"
)

var update = flag.Bool("update", false, "write testdata anew")

// libvirts are libvirt's arguments and environment of a machine, as far as they matter here.
func libvirts(more ...string) (argv, env []string) {
	argv = []string{
		"/usr/lib/muster/muster-vm-wrap", "-name", "guest=muster-fd37bf73-7293-vm,debug-threads=on", "-S",
		"-device", `{"driver":"virtio-scsi-pci","id":"scsi0","bus":"pci.0","addr":"0x3"}`, "-msg", "timestamp=on",
	}
	env = []string{"LC_ALL=C", "PATH=/usr/bin:/bin", "HOME=/var/lib/libvirt/qemu/domain-1", "VIRTLET_EMULATOR=/usr/bin/qemu-system-x86_64", "VIRTLET_CONTAINER_ID=3f1c"}
	return argv, append(env, more...)
}

func text(c wrap.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "path %s\n", c.Path)
	for _, a := range c.Argv {
		fmt.Fprintf(&b, "arg  %s\n", a)
	}
	for _, e := range c.Env {
		fmt.Fprintf(&b, "env  %s\n", e)
	}
	fmt.Fprintf(&b, "inherit %v\ncpus %v\n", c.Inherit, c.CPUs)
	return b.String()
}

func TestGolden(t *testing.T) {
	t.Parallel()
	const key = "VIRTLET_NET_KEY=77aa:c0ffee@/run/muster/net.sock"
	for name, c := range map[string]struct {
		env   []string
		cards []wrap.Card
		probe bool
	}{
		"probe":   {probe: true},
		"no-card": {},
		"one": {
			env:   []string{key, "VIRTLET_CONTAINER_LOG_PATH=/var/log/pods/team_web_0f1e/vm/0.log", "VIRTLET_NETWORK_DEVICE=virtio"},
			cards: []wrap.Card{{Name: "eth0", MAC: "02:42:0a:00:00:02", MTU: 1450, Descriptor: 7}},
		},
		"two-e1000e": {
			env: []string{key, "VIRTLET_NETWORK_DEVICE=e1000e", "VIRTLET_CPUSETS=0-2,5,5"},
			cards: []wrap.Card{
				{Name: "eth0", MAC: "02:42:0a:00:00:02", MTU: 9000, Descriptor: 9},
				{Name: "net1", MAC: "02:42:0a:00:00:03", Descriptor: 4},
			},
		},
	} {
		argv, env := libvirts(c.env...)
		if c.probe {
			argv, env = []string{"muster-vm-wrap", "-S", "-machine", "none,accel=tcg"}, []string{"PATH=/bin", "VIRTLET_CPUSETS=rubbish"}
		}
		before := slices.Concat(argv, env)
		r, err := wrap.Read(env)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := wrap.Build(r, argv, c.cards, "/usr/libexec/qemu-kvm")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(before, slices.Concat(argv, env)); diff != "" {
			t.Errorf("%s: what was given is changed: %s", name, diff)
		}
		file := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(text(got)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), text(got)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

// TestBadInput: each is an error that names the variable, and says nothing of a token.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"VIRTLET_EMULATOR=", "VIRTLET_EMULATOR=qemu", "VIRTLET_EMULATOR=/usr/bin/../qemu", "VIRTLET_EMULATOR=/usr/bin/q\nemu",
		"VIRTLET_CONTAINER_ID=", "VIRTLET_CONTAINER_ID=../x", "VIRTLET_CONTAINER_ID=" + strings.Repeat("a", 129),
		"VIRTLET_CONTAINER_LOG_PATH=", "VIRTLET_CONTAINER_LOG_PATH=0.log",
		"VIRTLET_NET_KEY=", "VIRTLET_NET_KEY=secret", "VIRTLET_NET_KEY=a:secret", "VIRTLET_NET_KEY=/:secret@/run/s", "VIRTLET_NET_KEY=a:@/run/s",
		"VIRTLET_NET_KEY=a:secret@", "VIRTLET_NET_KEY=a:secret@s", "VIRTLET_NET_KEY=a:secret@/" + strings.Repeat("s", 107), "VIRTLET_NET_KEY=a:secret secret@/s",
		"VIRTLET_NETWORK_DEVICE=", "VIRTLET_NETWORK_DEVICE=rtl8139", "VIRTLET_NETWORK_DEVICE=virtio,romfile=/etc/passwd",
		"VIRTLET_CPUSETS=", "VIRTLET_CPUSETS=3-1", "VIRTLET_CPUSETS=0-", "VIRTLET_CPUSETS=-1", "VIRTLET_CPUSETS=0,,1", "VIRTLET_CPUSETS=1024", "VIRTLET_CPUSETS=99999",
	} {
		_, env := libvirts()
		name, _, _ := strings.Cut(bad, "=")
		env = append([]string{bad}, slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") })...)
		_, err := wrap.Read(env)
		if err == nil || !strings.HasPrefix(err.Error(), name+": ") || strings.Contains(err.Error(), "secret") || len(err.Error()) > 300 {
			t.Errorf("%q: %v", bad, err)
		}
	}
	_, err := wrap.Read([]string{"VIRTLET_EMULATOR=q", "VIRTLET_CPUSETS=x"})
	for _, name := range []string{"VIRTLET_EMULATOR", "VIRTLET_CPUSETS", "VIRTLET_CONTAINER_ID"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named by %v", name, err)
		}
	}
	argv, env := libvirts("VIRTLET_NET_KEY=a:b@/c")
	r, err := wrap.Read(env)
	if err != nil {
		t.Fatal(err)
	}
	good := wrap.Card{Name: "eth0", MAC: "02:00:00:00:00:01", Descriptor: 3}
	for what, cards := range map[string][]wrap.Card{
		"MAC":             {{Name: "eth0", MAC: "02:00:00:00:00:01,x", Descriptor: 3}},
		"MTU":             {{Name: "eth0", MAC: good.MAC, MTU: 1, Descriptor: 3}},
		"stdin":           {{Name: "eth0", MAC: good.MAC}},
		"one for two":     {good, good},
		"more than a bus": slices.Repeat([]wrap.Card{good}, 17),
	} {
		if _, err := wrap.Build(r, argv, cards, ""); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if _, err := wrap.Build(wrap.Request{}, argv, nil, ""); err == nil {
		t.Error("a probe without QEMU is no error")
	}
	if _, err := wrap.Build(r, nil, nil, ""); err == nil {
		t.Error("no arguments are no error")
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	k := wrap.Key{ID: "77aa.x_y", Token: "ab-12_", Socket: "/run/a@b:c/net.sock"}
	if got, err := wrap.ParseKey(k.String()); err != nil || got != k {
		t.Errorf("%+v became %+v, %v", k, got, err)
	}
}

// TestRun has the shell do all but the last step.
func TestRun(t *testing.T) {
	t.Parallel()
	emulator := filepath.Join(t.TempDir(), "qemu")
	if err := os.WriteFile(emulator, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	argv, env := libvirts("VIRTLET_NET_KEY=77aa:secret@/run/net.sock", "VIRTLET_CPUSETS=0-1023")
	env = append([]string{"VIRTLET_EMULATOR=" + emulator}, env...)
	var fetched []*os.File
	ran := 0
	stop := errors.New("here the test goes on")
	shell := wrap.Shell{
		Fetch: func(_ context.Context, k wrap.Key) ([]wrap.Card, []*os.File, error) {
			if k != (wrap.Key{ID: "77aa", Token: "secret", Socket: "/run/net.sock"}) {
				t.Errorf("key %+v", k)
			}
			r, w, err := os.Pipe()
			fetched = []*os.File{r, w}
			return []wrap.Card{{Name: "eth0", MAC: "02:00:00:00:00:01", Descriptor: 1}, {Name: "net1", MAC: "02:00:00:00:00:02"}}, fetched, err
		},
		Exec: func(path string, argv, env []string) error {
			ran++
			for i, f := range []*os.File{fetched[1], fetched[0]} {
				fd := f.Fd()
				if flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
					t.Errorf("descriptor %d would be closed: %d %v", fd, flags, err)
				}
				if want := fmt.Sprintf("tap,id=muster-net%d,fd=%d", i, fd); !slices.Contains(argv, want) {
					t.Errorf("%q lacks %s", argv, want)
				}
			}
			if path != emulator || argv[0] != emulator || slices.ContainsFunc(env, func(v string) bool { return strings.Contains(v, "secret") }) {
				t.Errorf("%s %q %q", path, argv, env)
			}
			return stop
		},
	}
	if err := wrap.Run(t.Context(), shell, argv, env); !errors.Is(err, stop) || ran != 1 {
		t.Fatalf("%v, %d times", err, ran)
	}
	for _, f := range fetched {
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a descriptor was left open: %v", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		env  []string
		want string
	}{
		"itself":      {[]string{"VIRTLET_EMULATOR=" + self, "VIRTLET_CONTAINER_ID=a"}, "VIRTLET_EMULATOR"},
		"nowhere":     {[]string{"VIRTLET_EMULATOR=/nonexistent/qemu", "VIRTLET_CONTAINER_ID=a"}, "VIRTLET_EMULATOR"},
		"a folder":    {[]string{"VIRTLET_EMULATOR=/", "VIRTLET_CONTAINER_ID=a"}, "VIRTLET_EMULATOR"},
		"not allowed": {[]string{"VIRTLET_EMULATOR=" + emulator, "VIRTLET_CONTAINER_ID=a", "VIRTLET_NET_KEY=a:b@/c"}, "VIRTLET_NET_KEY"},
	} {
		s := shell
		s.Fetch = func(context.Context, wrap.Key) ([]wrap.Card, []*os.File, error) {
			return nil, nil, vm.Errorf(vm.Conflict, "the token was used")
		}
		if err := wrap.Run(t.Context(), s, argv, c.env); err == nil || !strings.HasPrefix(err.Error(), c.want) || ran != 1 {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A probe is passed on as it is.
	probe := wrap.Shell{Emulators: []string{"/nonexistent/qemu", emulator}, Exec: func(path string, argv, env []string) error {
		if path != emulator || !slices.Equal(argv, []string{emulator, "-S"}) || !slices.Equal(env, []string{"A=b"}) {
			t.Errorf("%s %q %q", path, argv, env)
		}
		return stop
	}}
	if err := wrap.Run(t.Context(), probe, []string{"wrap", "-S"}, []string{"A=b"}); !errors.Is(err, stop) {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	_, env := libvirts("VIRTLET_NET_KEY=a:b@/c", "VIRTLET_CPUSETS=0-3,8")
	f.Add(strings.Join(env, "\x00"))
	f.Fuzz(func(t *testing.T, env string) {
		r, err := wrap.Read(strings.Split(env, "\x00"))
		if err != nil {
			return
		}
		c, err := wrap.Build(r, []string{"wrap", "-S"}, nil, "/usr/bin/qemu")
		if err != nil || !filepath.IsAbs(c.Path) || len(c.Argv) != 2 || len(c.CPUs) > 1024 {
			t.Errorf("%+v %v", c, err)
		}
	})
}
