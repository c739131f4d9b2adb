package volume

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/cloudinit"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

var update = flag.Bool("update", false, "write the golden files anew")

// inputs are what the other parts make of volumes.
func inputs(t *testing.T, r Request, v *Volumes) (xml string, data *cloudinit.Data) {
	t.Helper()
	disks := append(slices.Clone(v.Disks), domain.Disk{Role: domain.FirstBoot, Format: "raw", File: "/run/vm/cidata.iso", Serial: "cidata"})
	d, err := domain.Build(domain.Input{
		Spec: r.Spec, ContainerID: "3f1c", SandboxID: "77aa", Disks: disks, Shares: v.Shares,
		Paths: domain.Paths{Serial: "/run/vm/serial.sock", Exit: "/run/vm/exit"},
		Node:  domain.Node{DomainType: "qemu", Emulator: "/usr/lib/muster/muster-vm-wrap", QEMU: "/usr/bin/qemu-system-x86_64"},
	})
	if err != nil {
		t.Fatalf("package domain does not take it: %v", err)
	}
	xml, err = d.Marshal()
	must(t, err)
	data, err = cloudinit.Build(cloudinit.Input{Spec: r.Spec, UUID: "u", Files: v.Files, Shares: v.Mounts, Devices: v.Devices, FileSystems: v.FileSystems})
	if err != nil {
		t.Fatalf("package cloudinit does not take it: %v", err)
	}
	return xml, data
}

// TestGolden: testdata/NAME.txt is what packages domain and cloudinit are given, and what they make of it. -update writes them anew.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		driver     spec.DiskDriver
		persistent bool
	}{"scsi": {spec.SCSI, false}, "virtio": {spec.VirtIO, false}, "nvme": {spec.NVMe, false}, "persistent": {spec.SCSI, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeHost(t)
			r := w.everything("3f1c", "0f1e", c.persistent)
			r.Spec.Machine.DiskDriver = c.driver
			if c.driver == spec.NVMe { // QEMU has no such disk
				must(t, os.RemoveAll(r.Spec.Mounts[5].HostPath))
				r.Spec.Mounts = r.Spec.Mounts[:5]
			}
			v, err := w.alive().Setup(t.Context(), r)
			must(t, err)
			given, err := json.MarshalIndent(v, "", "  ")
			must(t, err)
			xml, data := inputs(t, r, v)
			got := "given\n" + string(given) + "\n\ndomain\n" + xml
			for _, f := range data.Files {
				got += "\n\nfirst boot: " + f.Path + "\n" + string(f.Content)
			}
			got = strings.ReplaceAll(got, w.base, "BASE") + "\n"
			file := filepath.Join("testdata", name+".txt")
			if *update {
				must(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			want, err := os.ReadFile(file)
			must(t, err)
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("%s (after looking: go test -update): %s", file, d)
			}
		})
	}
}

// TestAgain: the same call gives the same, and keeps what a guest has written; what is torn down is gone, twice.
func TestAgain(t *testing.T) {
	t.Parallel()
	for _, persistent := range []bool{false, true} {
		w := newFakeHost(t)
		r := w.everything("3f1c", "0f1e", persistent)
		first, err := w.alive().Setup(t.Context(), r)
		must(t, err)
		disk := first.Disks[0].File + first.Disks[0].Block
		f, err := os.OpenFile(disk, os.O_RDWR, 0)
		must(t, err)
		_, err = f.WriteAt([]byte("a guest wrote this"), 40<<10)
		must(t, err)
		f.Close()
		again, err := w.alive().Setup(t.Context(), r)
		must(t, err)
		if d := cmp.Diff(first, again); d != "" {
			t.Error(d)
		}
		if b, err := os.ReadFile(disk); err != nil || !bytes.Contains(b, []byte("a guest wrote this")) {
			t.Errorf("what a guest wrote is gone: %v", err)
		}
		m := w.alive()
		if ids, err := m.List(); err != nil || !slices.Equal(ids, []string{"3f1c"}) {
			t.Error(ids, err)
		}
		if pids, err := m.Processes("3f1c"); err != nil || len(pids) != 2 {
			t.Error(pids, err)
		}
		for range 2 {
			must(t, m.Teardown(t.Context(), "3f1c"))
			if left := w.clean(); left != "" {
				t.Errorf("left:\n%s", left)
			}
		}
	}
}

// lives runs act in processes that die at each call that changes something, before it and after it.
func lives(t *testing.T, act func(t *testing.T, m *mortal, done func(whole bool))) {
	t.Helper()
	for _, after := range []bool{false, true} {
		for at := 1; ; at++ {
			m := &mortal{at: at, after: after}
			act(t, m, func(whole bool) {
				if t.Failed() {
					t.Fatalf("died at call %d, after %v: %s", at, after, m.last)
				}
			})
			if !m.dead {
				if at < 10 {
					t.Fatalf("only %d calls", at)
				}
				break
			}
		}
	}
}

// TestCrashSettingUp: wherever a process dies, the next goes on to the same volumes, or takes everything away.
func TestCrashSettingUp(t *testing.T) {
	t.Parallel()
	for _, persistent := range []bool{false, true} {
		for _, goOn := range []bool{true, false} {
			t.Run(fmt.Sprintf("persistent=%v,go-on=%v", persistent, goOn), func(t *testing.T) {
				t.Parallel()
				lives(t, func(t *testing.T, m *mortal, done func(bool)) {
					w := newFakeHost(t)
					defer os.RemoveAll(w.base)
					r := w.everything("3f1c", "0f1e", persistent)
					want := w.image("tiny", 9)
					_, err := w.manager(m).Setup(t.Context(), r)
					if !m.dead {
						must(t, err)
					} else if err == nil {
						t.Error("it died, and said nothing")
					}
					next := w.alive()
					if goOn {
						v, err := next.Setup(t.Context(), r)
						must(t, err)
						inputs(t, r, v)
						if persistent {
							holdsRoot(t, w.path("dev", "root-0f1e"), want, "injected")
						}
						for _, d := range v.Disks {
							if d.File != "" {
								if _, err := os.Stat(d.File); err != nil {
									t.Error(err)
								}
							}
						}
						if len(w.secrets) != 1 || len(w.serving) != 2 {
							t.Errorf("secrets %v, servers %v", w.secrets, w.serving)
						}
						if !persistent { // what the guest sees
							below, err := os.Open(r.Image.Path)
							must(t, err)
							if got := readQCOW2(t, v.Disks[0].File, below); string(got[injectedAt:injectedAt+8]) != "injected" || !bytes.Equal(got[:9], []byte("tiny|tiny")) {
								t.Errorf("the root holds %q", got[:120])
							}
							below.Close()
						}
					} else if ids, err := next.List(); err != nil || len(ids) == 0 && w.clean() != "" {
						t.Errorf("nobody would find %q: %v", w.clean(), err)
					}
					must(t, next.Teardown(t.Context(), "3f1c"))
					if left := w.clean(); left != "" {
						t.Errorf("left:\n%s", left)
					}
					done(!m.dead)
				})
			})
		}
	}
}

// TestCrashTearingDown: wherever a process dies, the next takes the rest away; and a half can be set up again.
func TestCrashTearingDown(t *testing.T) {
	t.Parallel()
	lives(t, func(t *testing.T, m *mortal, done func(bool)) {
		w := newFakeHost(t)
		defer os.RemoveAll(w.base)
		r := w.everything("3f1c", "0f1e", false)
		_, err := w.alive().Setup(t.Context(), r)
		must(t, err)
		_ = w.manager(m).Teardown(t.Context(), "3f1c")
		next := w.alive()
		if m.dead && m.at%2 == 0 {
			v, err := next.Setup(t.Context(), r)
			must(t, err)
			inputs(t, r, v)
		}
		must(t, next.Teardown(t.Context(), "3f1c"))
		if left := w.clean(); left != "" {
			t.Errorf("left:\n%s", left)
		}
		done(!m.dead)
	})
}

// TestUndone: whatever fails midway, nothing is left, unless a machine may run: then all of it is.
func TestUndone(t *testing.T) {
	t.Parallel()
	for _, ready := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			for at := 1; ; at++ {
				w := newFakeHost(t)
				r := w.everything("3f1c", "0f1e", false)
				if ready {
					_, err := w.alive().Setup(t.Context(), r)
					must(t, err)
				}
				before := w.clean()
				m := &mortal{at: at, after: after, once: true}
				_, err := w.manager(m).Setup(t.Context(), r)
				if m.calls < at {
					must(t, err)
					break
				}
				if !errors.Is(err, errFailed) || !strings.HasPrefix(err.Error(), "pod team/web: ") {
					t.Errorf("call %d (%s): %v", at, m.last, err)
				}
				if left := w.clean(); left != before && (!ready || !strings.Contains(left, partSuffix)) {
					t.Errorf("call %d (%s) after %v: before:\n%s\nleft:\n%s", at, m.last, after, before, left)
				}
				must(t, os.RemoveAll(w.base))
				if t.Failed() {
					return
				}
			}
		}
	}
}

// TestReverse: what is undone goes in the reverse order of its making.
func TestReverse(t *testing.T) {
	t.Parallel()
	w := newFakeHost(t)
	r := w.everything("3f1c", "0f1e", false)
	_, err := w.alive().Setup(t.Context(), r)
	must(t, err)
	m := &recorder{host: &fakeMachine{w: w}}
	must(t, w.alive(func(o *Options) { o.host = m }).Teardown(t.Context(), "3f1c"))
	var dirs []string
	for _, p := range m.removed {
		if name := filepath.Base(p); siteName.MatchString(name) {
			dirs = append(dirs, name)
		}
	}
	want := []string{"008-share", "007-share", "004-flex", "003-flex", "002-block", "001-block", "000-root"}
	if d := cmp.Diff(want, dirs); d != "" {
		t.Error(d)
	}
}

type recorder struct {
	host
	removed []string
}

func (r *recorder) Remove(p string) error {
	r.removed = append(r.removed, p)
	return r.host.Remove(p)
}

// TestOneStays: a volume that cannot go keeps no other; the next call goes on.
func TestOneStays(t *testing.T) {
	t.Parallel()
	w := newFakeHost(t)
	r := w.everything("3f1c", "0f1e", false)
	_, err := w.alive().Setup(t.Context(), r)
	must(t, err)
	err = w.alive(func(o *Options) { o.Secrets = nil }).Teardown(t.Context(), "3f1c")
	if err == nil || !strings.Contains(err.Error(), "container 3f1c: 003-flex: it has a secret") {
		t.Error(err)
	}
	want := []string{"v/3f1c", "v/3f1c/003-flex", "v/3f1c/003-flex/secret", "v/3f1c/pod"}
	if d := cmp.Diff(want, w.files()); d != "" {
		t.Error(d)
	}
	must(t, w.alive().Teardown(t.Context(), "3f1c"))
	if left := w.clean(); left != "" {
		t.Error(left)
	}
}

// TestClaims: a device that is written is one machine's.
func TestClaims(t *testing.T) {
	t.Parallel()
	w := newFakeHost(t)
	d := w.device("disk", 1<<20)
	of := func(id, uid string, blocks ...spec.Block) Request {
		r := w.everything(id, uid, false)
		r.Spec.Blocks, r.Spec.Mounts = blocks, nil
		must(t, os.RemoveAll(w.path("pods", uid)))
		return r
	}
	rw, ro := spec.Block{DevicePath: "/dev/a", HostPath: d}, spec.Block{DevicePath: "/dev/a", HostPath: d, ReadOnly: true}
	m := w.alive()
	conflict := func(r Request, text string, kind vm.Kind) {
		t.Helper()
		if _, err := m.Setup(t.Context(), r); err == nil || vm.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: must be of kind %d, with %q", err, kind, text)
		}
	}
	_, err := m.Setup(t.Context(), of("a1", "pod-a", rw))
	must(t, err)
	const taken = "pod team/web: device /dev/a: the device belongs to the machine of container a1, of pod pod-a"
	conflict(of("b1", "pod-b", rw), taken, vm.Conflict)
	conflict(of("b1", "pod-b", ro), taken, vm.Conflict)
	if _, err := m.Setup(t.Context(), of("a2", "pod-a", rw)); err != nil {
		t.Errorf("the next machine of the pod: %v", err)
	}
	must(t, m.Teardown(t.Context(), "a1"))
	must(t, m.Teardown(t.Context(), "a2"))
	for _, id := range []string{"b1", "c1"} { // many may read
		_, err := m.Setup(t.Context(), of(id, "pod-"+id, ro))
		must(t, err)
	}
	conflict(of("a3", "pod-a", rw), "belongs to the machine of container b1", vm.Conflict)
	must(t, m.Teardown(t.Context(), "b1"))
	must(t, m.Teardown(t.Context(), "c1"))
	conflict(of("a3", "pod-a", rw, spec.Block{DevicePath: "/dev/b", HostPath: d}), "device /dev/b: it is the same device as another of the pod's", vm.Invalid)
	w.busy[d] = true
	conflict(of("a3", "pod-a", rw), "is mounted on the node", vm.Conflict)
	if left := w.clean(); left != "" {
		t.Error(left)
	}
}

// TestInUse: nothing of a machine that may run is taken away.
func TestInUse(t *testing.T) {
	t.Parallel()
	w := newFakeHost(t)
	_, err := w.alive().Setup(t.Context(), w.everything("3f1c", "0f1e", false))
	must(t, err)
	before := w.clean()
	used, broken := true, error(nil)
	m := w.alive(func(o *Options) { o.InUse = func(string) (bool, error) { return used, broken } })
	if err := m.Teardown(t.Context(), "3f1c"); err == nil || vm.KindOf(err) != vm.Conflict {
		t.Error(err)
	}
	used, broken = false, errors.New("libvirt does not answer")
	if err := m.Teardown(t.Context(), "3f1c"); !errors.Is(err, broken) {
		t.Error(err)
	}
	if d := cmp.Diff(before, w.clean()); d != "" {
		t.Error(d)
	}
}

// TestRefused: what cannot be is said by name, and nothing is left of it.
func TestRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(w *fakeHost, r *Request){
		`container id "../x": must be 1 to 64 letters`: func(_ *fakeHost, r *Request) { r.ID = "../x" },
		`pod team/web: uid "..": must be 1 to 64`:      func(_ *fakeHost, r *Request) { r.Spec.Pod.UID = ".." },
		`device /dev/data: BASE/srv/file: must be a block device, is a regular file`: func(w *fakeHost, r *Request) {
			r.Spec.Blocks[0].HostPath = w.write("x", 0o644, "srv", "file")
		},
		`device /dev/data: BASE/srv: must be a block device, is a directory`: func(w *fakeHost, r *Request) { r.Spec.Blocks[0].HostPath = w.path("srv") },
		`device /dev/data: /dev/null: must be a block device, is a character device`: func(_ *fakeHost, r *Request) {
			r.Spec.Blocks[0].HostPath = "/dev/null"
		},
		`device /: BASE/dev/small has 4608 bytes: must have at least 5120`: func(w *fakeHost, r *Request) {
			r.Spec.Blocks[0] = spec.Block{DevicePath: "/", HostPath: w.device("small", 4608)}
		},
		`FlexVolume bad: option capacity "x": must be a positive`: func(w *fakeHost, _ *Request) { w.flex("0f1e", "bad", `{"type":"qcow2","capacity":"x"}`) },
		`FlexVolume small: option capacity: is 1 bytes, must be at least 8388608`: func(w *fakeHost, _ *Request) {
			w.flex("0f1e", "small", `{"type":"qcow2","capacity":"1"}`)
		},
		`FlexVolume large: option capacity: is 2199023255552 bytes, must be at most 1099511627776`: func(w *fakeHost, _ *Request) {
			w.flex("0f1e", "large", `{"type":"qcow2","capacity":"2T"}`)
		},
		`FlexVolume raw: option path "/dev/sda": must be one of this node's raw devices, loop*`: func(w *fakeHost, _ *Request) {
			w.flex("0f1e", "raw", `{"type":"raw","path":"/dev/sda"}`)
		},
		`mount /data: /dev/null: must be a directory or a regular file, is a character device`: func(_ *fakeHost, r *Request) { r.Spec.Mounts[2].HostPath = "/dev/null" },
		`mount /data: BASE/srv/a,b: must hold no comma`: func(w *fakeHost, r *Request) {
			r.Spec.Mounts[2].HostPath = filepath.Dir(w.write("", 0o644, "srv", "a,b", "c"))
		},
		`a machine can share at most 31 directories`: func(_ *fakeHost, r *Request) {
			for range 30 {
				r.Spec.Mounts = append(r.Spec.Mounts, r.Spec.Mounts[2])
			}
		},
		`the SCSI controller has room for 26`: func(w *fakeHost, r *Request) {
			for i := range 25 {
				r.Spec.Blocks = append(r.Spec.Blocks, spec.Block{DevicePath: fmt.Sprint("/dev/", i), HostPath: w.device(fmt.Sprint(i), 512)})
			}
		},
		`root: its disk has 2199023255552 bytes, and this node makes at most`: func(_ *fakeHost, r *Request) { r.Spec.Machine.RootSize = 2 << 40 },
	} {
		w := newFakeHost(t)
		r := w.everything("3f1c", "0f1e", false)
		change(w, &r)
		_, err := w.alive().Setup(t.Context(), r)
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), w.base, "BASE"), want) {
			t.Errorf("%v\nmust contain %s", err, want)
		} else if kind := vm.KindOf(err); kind != vm.Invalid && kind != vm.Exhausted {
			t.Errorf("%v: is of kind %d", err, kind)
		}
		if left := w.clean(); left != "" {
			t.Errorf("%s: left:\n%s", want, left)
		}
	}
}

// TestOtherContainer: a container's directory is one pod's and one disk's.
func TestOtherContainer(t *testing.T) {
	t.Parallel()
	w := newFakeHost(t)
	_, err := w.alive().Setup(t.Context(), w.everything("3f1c", "0f1e", false))
	must(t, err)
	before := w.clean()
	for _, r := range []Request{w.everything("3f1c", "other", false), w.everything("3f1c", "0f1e", false)} {
		r.Spec.Machine.RootSize *= 2
		if _, err := w.alive().Setup(t.Context(), r); vm.KindOf(err) != vm.Conflict {
			t.Error(err)
		}
	}
	if d := cmp.Diff(before, w.clean()); d != "" {
		t.Error(d)
	}
}

// TestStories: any sequence of setups, teardowns and deaths leaves nothing when everything that is listed was torn down, and what is ready stays whole.
func TestStories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		w := newFakeHost(t)
		defer os.RemoveAll(w.base)
		ready := map[string]Request{}
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			n := rapid.IntRange(0, 2).Draw(r, "container")
			id, uid := fmt.Sprint("c", n), fmt.Sprint("pod-", n%2)
			m := &mortal{at: rapid.IntRange(0, 90).Draw(r, "death"), after: rapid.Bool().Draw(r, "after"), once: rapid.Bool().Draw(r, "only fails")}
			if rapid.Bool().Draw(r, "setup") {
				q, was := ready[id]
				if !was {
					q = w.everything(id, uid, rapid.Bool().Draw(r, "persistent"))
				}
				if _, err := w.manager(m).Setup(t.Context(), q); err == nil {
					ready[id] = q
				}
			} else {
				delete(ready, id)
				_ = w.manager(m).Teardown(t.Context(), id)
			}
		}
		next := w.alive()
		for id, q := range ready { // order: each is its own
			v, err := next.Setup(t.Context(), q)
			if err != nil {
				r.Fatalf("%s was ready: %v", id, err)
			}
			inputs(t, q, v)
		}
		ids, err := next.List()
		must(t, err)
		for _, id := range ids {
			must(t, next.Teardown(t.Context(), id))
		}
		if left := w.clean(); left != "" {
			r.Fatalf("left:\n%s", left)
		}
	})
}

// TestTogether: two calls about one container wait for each other; others do not.
func TestTogether(t *testing.T) {
	t.Parallel()
	w := newFakeHost(t)
	r := w.everything("3f1c", "0f1e", false)
	inside, goOn := make(chan struct{}), make(chan struct{})
	m := w.alive(func(o *Options) {
		o.Secrets = nil
		o.InUse = func(id string) (bool, error) {
			if id == "slow" {
				close(inside)
				<-goOn
			}
			return false, nil
		}
	})
	r.Spec.Mounts = nil
	must(t, os.RemoveAll(w.path("pods", "0f1e", "volumes", "virtlet~flexvolume_driver")))
	gone := make(chan error, 1)
	go func() { gone <- m.Teardown(t.Context(), "slow") }()
	<-inside
	_, err := m.Setup(t.Context(), r)
	must(t, err)
	ctx, cancel := contextThatEnded(t)
	defer cancel()
	if err := m.Teardown(ctx, "slow"); !errors.Is(err, ctx.Err()) {
		t.Error(err)
	}
	close(goOn)
	must(t, <-gone)
}
