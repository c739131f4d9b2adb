package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm"
)

func openTest(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError checks kind and text.
func wantError(t *testing.T, err error, kind vm.Kind, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if vm.KindOf(err) != kind {
		t.Errorf("kind %d, want %d: %v", vm.KindOf(err), kind, err)
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
}

func fullSandbox() Sandbox {
	s := testSandbox("s1", Ready, "/s/s1")
	s.DNS = DNS{Servers: []string{"10.0.0.1"}, Searches: []string{"svc"}, Options: []string{"ndots:5"}}
	s.Ports = []Port{{Protocol: 1, ContainerPort: 80, HostPort: 8080, HostIP: "::1"}}
	s.Labels, s.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
	s.Overhead = &Resources{CPUShares: 2, HugePages: []HugePage{{"2MB", 1}}, Unified: map[string]string{"x": "y"}}
	s.Network = vm.Network{Interfaces: []vm.Interface{{Name: "eth0", MAC: "02:00:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/24")}}}}
	return s
}

// TestSurvives: what was written is there after the store was closed and opened, and what was given out is the caller's own.
func TestSurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vm.db")
	s := openTest(t, path)
	sandbox, container := fullSandbox(), testContainer("c1", "s1", Created, "1", "/c/c1")
	container.Mounts = []Mount{{"/data", "/host", true, 1}}
	must(t, s.Update(func(tx *Tx) error {
		must(t, tx.PutSandbox(sandbox))
		must(t, tx.PutContainer(container))
		return tx.Begin(Intent{Kind: KindContainer, ID: "c1", Act: Start, At: testTime})
	}))
	got, err := s.Sandbox("s1")
	must(t, err)
	got.Labels["a"], got.Network.Interfaces[0].Name, got.Overhead.Unified["x"] = "changed", "changed", "changed"
	must(t, s.Close())
	again := openTest(t, path)
	if got, err := again.Sandbox("s1"); err != nil || !reflect.DeepEqual(got, sandbox) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, sandbox)
	}
	if got, err := again.Container("c"); err != nil || !reflect.DeepEqual(got, container) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, container)
	}
	if got := again.Intents(); len(got) != 1 || got[0].String() != "start container c1" || !got[0].At.Equal(testTime) {
		t.Errorf("intents %v", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestWhole: a transaction that fails leaves nothing, in memory or in the file.
func TestWhole(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "vm.db"))
	err := s.Update(func(tx *Tx) error {
		must(t, tx.PutSandbox(fullSandbox()))
		if _, ok := tx.Sandbox("s1"); !ok {
			t.Error("a transaction does not see what it wrote")
		}
		return tx.PutContainer(testContainer("c1", "s9", Created, "1"))
	})
	wantError(t, err, vm.NotFound, "container c1", "sandbox s9")
	must(t, s.load())
	if all := s.Sandboxes(nil); len(all) != 0 {
		t.Errorf("left: %v", all)
	}
}

// TestRefused: what cannot be is refused, with object, field and rule.
func TestRefused(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "vm.db"))
	must(t, s.Update(func(tx *Tx) error {
		must(t, tx.PutSandbox(testSandbox("s1", Ready)))
		must(t, tx.PutContainer(testContainer("c1", "s1", Running, "1")))
		return tx.Begin(Intent{Kind: KindContainer, ID: "c1", Act: Stop, At: testTime})
	}))
	for _, c := range []struct {
		name string
		do   func(*Tx) error
		kind vm.Kind
		says []string
	}{
		{"id", func(tx *Tx) error { return tx.PutSandbox(testSandbox("../x", Ready)) }, vm.Invalid, []string{"sandbox ../x", "id"}},
		{"files", func(tx *Tx) error { return tx.PutSandbox(testSandbox("s2", Ready, "/a/../b")) }, vm.Invalid, []string{"sandbox s2", "files", "/a/../b"}},
		{"the root", func(tx *Tx) error { return tx.PutSandbox(testSandbox("s2", Ready, "/")) }, vm.Invalid, []string{"files"}},
		{"state", func(tx *Tx) error { return tx.PutSandbox(testSandbox("s2", "odd")) }, vm.Invalid, []string{"state", "odd"}},
		{"reserved sandbox", func(tx *Tx) error {
			r := testSandbox("s2", Ready)
			r.UID = "uid-s1"
			return tx.PutSandbox(r)
		}, vm.Conflict, []string{"s2", "attempt 0", "is sandbox s1"}},
		{"reserved container", func(tx *Tx) error {
			r := testContainer("c2", "s1", Created, "2")
			r.Name = "vm-c1"
			return tx.PutContainer(r)
		}, vm.Conflict, []string{"c2", "is container c1"}},
		{"domain of another", func(tx *Tx) error { return tx.PutContainer(testContainer("c2", "s1", Created, "1")) }, vm.Conflict, []string{"domain", "container c1's"}},
		{"domain", func(tx *Tx) error {
			r := testContainer("c2", "s1", Created, "1")
			r.Domain = "x"
			return tx.PutContainer(r)
		}, vm.Invalid, []string{"c2", "domain"}},
		{"back", func(tx *Tx) error { return tx.PutContainer(testContainer("c1", "s1", Created, "1")) }, vm.Conflict, []string{"c1", "cannot become created"}},
		{
			"two intents", func(tx *Tx) error { return tx.Begin(Intent{Kind: KindContainer, ID: "c1", Act: Remove, At: testTime}) }, vm.Conflict,
			[]string{"remove container c1", "stop container c1", "2026-11-23T12:00:00Z"},
		},
		{"create what is there", func(tx *Tx) error {
			tx.End(KindContainer, "c1")
			return tx.Begin(Intent{Kind: KindContainer, ID: "c1", Act: Create, SandboxID: "s1", Domain: testUUID("1")})
		}, vm.Conflict, []string{"it is there"}},
		{"stop what is not", func(tx *Tx) error { return tx.Begin(Intent{Kind: KindSandbox, ID: "s9", Act: Stop}) }, vm.NotFound, []string{"stop sandbox s9"}},
		{"start a sandbox", func(tx *Tx) error { return tx.Begin(Intent{Kind: KindSandbox, ID: "s1", Act: Start}) }, vm.Invalid, []string{"act", "start"}},
		{"sandbox with containers", func(tx *Tx) error { tx.DeleteSandbox("s1"); return nil }, vm.Conflict, []string{"container c1 is left"}},
		{"sandbox with a creation", func(tx *Tx) error {
			must(t, tx.PutSandbox(testSandbox("s3", Ready)))
			must(t, tx.Begin(Intent{Kind: KindContainer, ID: "c3", Act: Create, SandboxID: "s3", Domain: testUUID("3")}))
			tx.DeleteSandbox("s3")
			return nil
		}, vm.Conflict, []string{"create container c3 is under way"}},
		{"too large", func(tx *Tx) error {
			r := testSandbox("s2", Ready)
			r.Labels = map[string]string{"x": strings.Repeat("x", maxRecord)}
			return tx.PutSandbox(r)
		}, vm.Invalid, []string{"s2", "at most 4194304"}},
	} {
		t.Run(c.name, func(t *testing.T) { wantError(t, s.Update(c.do), c.kind, c.says...) })
	}
	if got := s.Containers(nil); len(got) != 1 || got[0].State != Running {
		t.Errorf("after all that was refused: %v", got)
	}
	over := testContainer("c1", "s1", Exited, "1")
	must(t, s.Update(func(tx *Tx) error {
		must(t, tx.PutContainer(over))
		return tx.PutContainer(testContainer("c2", "s1", Created, "1")) // the next attempt of a pod that sets its machine's UUID
	}))
}

// TestFind: an id, and the beginning of one id alone.
func TestFind(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "vm.db"))
	must(t, s.Update(func(tx *Tx) error {
		for _, id := range []string{"ab", "abc1", "abc2", "x1"} {
			must(t, tx.PutSandbox(testSandbox(id, Ready)))
		}
		return nil
	}))
	for given, want := range map[string]string{"ab": "ab", "abc1": "abc1", "x": "x1"} {
		if got, err := s.Sandbox(given); err != nil || got.ID != want {
			t.Errorf("%q is %q, %v; want %q", given, got.ID, err, want)
		}
	}
	_, err := s.Sandbox("abc")
	wantError(t, err, vm.Invalid, `sandbox "abc"`, "2 begin so", "abc1", "abc2")
	for _, none := range []string{"", "q", "x11"} {
		_, err := s.Sandbox(none)
		wantError(t, err, vm.NotFound, "there is none")
	}
}

// TestLists: the filters of ListPodSandbox and ListContainers, against their plain definition.
func TestLists(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "vm.db"))
	r := rand.New(rand.NewPCG(1, 2))
	label := func() map[string]string {
		m := map[string]string{}
		for _, k := range []string{"a", "b"} {
			if r.IntN(2) == 0 {
				m[k] = fmt.Sprint(r.IntN(2))
			}
		}
		return m
	}
	must(t, s.Update(func(tx *Tx) error {
		for i := range 20 {
			box := testSandbox(fmt.Sprintf("s%02d", i), []SandboxState{Ready, NotReady}[r.IntN(2)])
			box.Labels = label()
			must(t, tx.PutSandbox(box))
			for j := range r.IntN(3) {
				c := testContainer(fmt.Sprintf("c%02d%d", i, j), box.ID, []ContainerState{Created, Running, Exited}[r.IntN(3)], fmt.Sprint(i*10+j))
				c.Labels = label()
				must(t, tx.PutContainer(c))
			}
		}
		return nil
	}))
	ids := []string{"", "", "", "s0", "s01", "s", "c010", "c01", "zzz"}
	for range 500 {
		f := &runtimeapi.PodSandboxFilter{Id: ids[r.IntN(len(ids))], LabelSelector: label()}
		if r.IntN(2) == 0 {
			f.State = &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState(r.IntN(2))}
		}
		matching := func(id, prefix string, all []string) bool {
			n := 0
			for _, o := range all {
				if strings.HasPrefix(o, prefix) {
					n++
				}
			}
			return prefix == "" || id == prefix || n == 1 && strings.HasPrefix(id, prefix)
		}
		has := func(labels, want map[string]string) bool {
			for k, v := range want {
				if got, ok := labels[k]; !ok || got != v {
					return false
				}
			}
			return true
		}
		var boxes, containers, want []string
		for _, b := range s.Sandboxes(nil) {
			boxes = append(boxes, b.ID)
		}
		for _, c := range s.Containers(nil) {
			containers = append(containers, c.ID)
		}
		for _, b := range s.Sandboxes(nil) {
			if matching(b.ID, f.Id, boxes) && has(b.Labels, f.LabelSelector) && (f.State == nil || f.State.State == b.State.CRI()) {
				want = append(want, b.ID)
			}
		}
		var got []string
		for _, b := range s.Sandboxes(f) {
			got = append(got, b.ID)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%v: %v, want %v", f, got, want)
		}
		g := &runtimeapi.ContainerFilter{Id: ids[r.IntN(len(ids))], PodSandboxId: ids[r.IntN(len(ids))], LabelSelector: label()}
		if r.IntN(2) == 0 {
			g.State = &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState(r.IntN(4))}
		}
		want, got = nil, nil
		for _, c := range s.Containers(nil) {
			if matching(c.ID, g.Id, containers) && matching(c.SandboxID, g.PodSandboxId, boxes) && has(c.Labels, g.LabelSelector) && (g.State == nil || g.State.State == c.State.CRI()) {
				want = append(want, c.ID)
			}
		}
		for _, c := range s.Containers(g) {
			got = append(got, c.ID)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%v: %v, want %v", g, got, want)
		}
	}
}

// TestNoSecret: nothing that may come from a Secret is in the file.
func TestNoSecret(t *testing.T) {
	const canary = "hunter2-canary"
	path := filepath.Join(t.TempDir(), "vm.db")
	s := openTest(t, path)
	sandbox := SandboxOf(&runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "team", Uid: "u"},
		Annotations: map[string]string{
			"VirtletCloudInitUserData": "password: " + canary, "kubectl.kubernetes.io/last-applied-configuration": canary, "VirtletVCPUCount": "2",
		},
	}, "muster-vm", []string{"VirtletCloudInitUserData"})
	sandbox.ID, sandbox.State, sandbox.CreatedAt = "s1", Ready, testTime
	container := ContainerOf(&runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}, Image: &runtimeapi.ImageSpec{Image: "tiny"},
		Command: []string{"login", canary}, Args: []string{"--password=" + canary}, WorkingDir: "/" + canary,
		Envs:        []*runtimeapi.KeyValue{{Key: "PASSWORD", Value: []byte(canary)}},
		Annotations: map[string]string{"VirtletCloudInitUserData": canary},
		Mounts:      []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/host"}},
	}, []string{"VirtletCloudInitUserData"})
	container.ID, container.SandboxID, container.State, container.Domain, container.CreatedAt = "c1", "s1", Created, testUUID("1"), testTime
	must(t, s.Update(func(tx *Tx) error {
		must(t, tx.PutSandbox(sandbox))
		return tx.PutContainer(container)
	}))
	must(t, s.Close())
	raw, err := os.ReadFile(path)
	must(t, err)
	if bytes.Contains(raw, []byte(canary)) {
		t.Error("the file holds a secret")
	}
	got, err := openTest(t, path).Sandbox("s1")
	must(t, err)
	if got.Annotations["VirtletCloudInitUserData"] != Withheld || got.Annotations["VirtletVCPUCount"] != "2" {
		t.Errorf("annotations %v", got.Annotations)
	}
}

// TestVersions: a later version reads an earlier file and brings it up to date at once; an earlier version refuses a later file by name, and leaves it as it is.
func TestVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vm.db")
	s := openTest(t, path)
	must(t, s.Update(func(tx *Tx) error { return tx.PutSandbox(fullSandbox()) }))
	must(t, s.Close())
	broken := append(formats(), format{2, func(tx *bbolt.Tx) error {
		must(t, tx.DeleteBucket([]byte(bucketSandboxes)))
		return os.ErrInvalid
	}})
	if _, err := open(path, broken); err == nil || !strings.Contains(err.Error(), "from format 1 to 2") {
		t.Fatalf("an upgrade that fails: %v", err)
	}
	later := append(formats(), format{2, func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketSandboxes))
		var r Sandbox
		if err := decode([]byte("s1"), b.Get([]byte("s1")), &r); err != nil {
			return err
		}
		r.Hostname = "upgraded"
		v, err := encode("s1", r)
		if err != nil {
			return err
		}
		return b.Put([]byte("s1"), v)
	}})
	s, err := open(path, later)
	must(t, err)
	if got, err := s.Sandbox("s1"); err != nil || got.Hostname != "upgraded" {
		t.Errorf("after the upgrade: %v, %v", got, err)
	}
	must(t, s.Close())
	before, err := os.ReadFile(path)
	must(t, err)
	_, err = Open(path)
	wantError(t, err, vm.Invalid, path, "format 2", "up to 1", "a later version wrote it")
	after, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(before, after) {
		t.Error("a file that was refused has changed")
	}
	s, err = open(path, later)
	must(t, err)
	must(t, s.Close())
}

// TestGoldenFormat: testdata/format1.json is what records look like in format 1. Later versions read it. -update writes it anew, which only a new format may need.
func TestGoldenFormat(t *testing.T) {
	const file = "testdata/format1.json"
	container := testContainer("c1", "s1", Exited, "1", "/c/c1")
	container.Mounts, container.ExitCode, container.Reason = []Mount{{"/data", "/host", true, 1}}, 3, ReasonError
	intent := Intent{Kind: KindContainer, ID: "c2", Act: Create, At: testTime, SandboxID: "s1", Domain: testUUID("2"), Files: []string{"/c/c2"}}
	var out bytes.Buffer
	sandbox := fullSandbox()
	for _, r := range []struct {
		key    string
		record any
	}{{"s1", &sandbox}, {"c1", &container}, {intent.key(), &intent}} {
		v, err := encode(r.key, r.record)
		must(t, err)
		fmt.Fprintf(&out, "%s\n", v)
	}
	if *update {
		must(t, os.WriteFile(file, out.Bytes(), 0o644))
	}
	text, err := os.ReadFile(file)
	must(t, err)
	if !bytes.Equal(text, out.Bytes()) {
		t.Errorf("format 1 is now\n%s\nbut was\n%s\na change needs a new format and an upgrade", out.Bytes(), text)
	}
	lines := bytes.Split(text, []byte("\n"))
	var s Sandbox
	var c Container
	var i Intent
	must(t, decode([]byte("s1"), lines[0], &s))
	must(t, decode([]byte("c1"), lines[1], &c))
	must(t, decode([]byte(intent.key()), lines[2], &i))
	if !reflect.DeepEqual(s, sandbox) || !reflect.DeepEqual(c, container) || !reflect.DeepEqual(i, intent) {
		t.Errorf("read back: %+v\n%+v\n%+v", s, c, i)
	}
	if err := decode([]byte("s1"), encodeText("s1", []byte(`{"id":"s1","new":1}`)), &s); err == nil || !strings.Contains(err.Error(), "new") {
		t.Errorf("a field that is not known: %v", err)
	}
}

// TestInUse: a second process is told so.
func TestInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vm.db")
	openTest(t, path)
	_, err := Open(path)
	wantError(t, err, vm.Unavailable, path, "is another runtime running?")
}

// TestDamaged: whatever bits of the file turn, opening it ends in the same records or in an error that says what to do, with a copy kept; never in a panic, never in
// other records, and the file is as it was.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "vm.db")
	s := openTest(t, path)
	for i := range 60 {
		must(t, s.Update(func(tx *Tx) error {
			box := fullSandbox()
			box.ID, box.UID = fmt.Sprintf("s%d", i), fmt.Sprint(i)
			must(t, tx.PutSandbox(box))
			if i%7 == 3 {
				tx.DeleteContainer(fmt.Sprintf("c%d", i-2))
				tx.DeleteSandbox(fmt.Sprintf("s%d", i-2))
			}
			return tx.PutContainer(testContainer(fmt.Sprintf("c%d", i), box.ID, Created, fmt.Sprint(i)))
		}))
	}
	want := s.Facts()
	must(t, s.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	r := rand.New(rand.NewPCG(3, 4))
	refused, opened := 0, 0
	for round := range 400 {
		damaged := bytes.Clone(whole)
		switch {
		case round < 20:
			damaged = damaged[:r.IntN(len(damaged))]
		case round < 200: // the heads of pages, where numbers of pages are
			at := r.IntN(len(damaged)/4096)*4096 + r.IntN(96)
			damaged[at] ^= 1 << r.IntN(8)
		default:
			for range 1 + r.IntN(3) {
				damaged[r.IntN(len(damaged))] ^= 1 << r.IntN(8)
			}
		}
		path := filepath.Join(dir, fmt.Sprintf("d%d.db", round))
		must(t, os.WriteFile(path, damaged, 0o600))
		s, err := Open(path)
		if err == nil {
			opened++
			if got := s.Facts(); !reflect.DeepEqual(got, want) {
				t.Fatalf("round %d: other records", round)
			}
			must(t, s.Update(func(tx *Tx) error { return tx.PutSandbox(testSandbox("new", Ready)) }))
			must(t, s.Close())
			continue
		}
		refused++
		if !strings.Contains(err.Error(), "later version") {
			wantError(t, err, vm.Internal, path, "is damaged", "a copy is "+path+".damaged-", "move it away")
			copies, _ := filepath.Glob(path + ".damaged-*")
			if len(copies) != 1 {
				t.Fatalf("round %d: copies %v", round, copies)
			}
			if kept, err := os.ReadFile(copies[0]); err != nil || !bytes.Equal(kept, damaged) {
				t.Fatalf("round %d: the copy differs: %v", round, err)
			}
			_, _ = Open(path)
			if again, _ := filepath.Glob(path + ".damaged-*"); len(again) != 1 {
				t.Fatalf("round %d: a second start made another copy", round)
			}
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, damaged) {
			t.Fatalf("round %d: the file has changed: %v", round, err)
		}
	}
	t.Logf("%d refused, %d opened with the same records", refused, opened)
	if refused < 100 {
		t.Errorf("only %d of 400 were refused", refused)
	}
}

// FuzzPages: no file ends the walk in a panic or keeps it going.
func FuzzPages(f *testing.F) {
	path := filepath.Join(f.TempDir(), "vm.db")
	s, err := Open(path)
	if err != nil {
		f.Fatal(err)
	}
	if err := s.Update(func(tx *Tx) error { return tx.PutSandbox(fullSandbox()) }); err != nil {
		f.Fatal(err)
	}
	_ = s.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole[:16384])
	f.Add([]byte{})
	f.Fuzz(func(_ *testing.T, b []byte) { _ = check(bytes.NewReader(b), int64(len(b)), 1) })
}

// BenchmarkUpdate is one state change among 500 pods, on the disk when it returns.
func BenchmarkUpdate(b *testing.B) {
	s, err := Open(filepath.Join(b.TempDir(), "vm.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it was measured
	w := manyWorlds(500)
	if err := s.Update(func(tx *Tx) error {
		for _, r := range w.sandboxes {
			if err := tx.PutSandbox(r); err != nil {
				return err
			}
		}
		for _, r := range w.containers {
			if err := tx.PutContainer(r); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := s.Update(func(tx *Tx) error { return tx.PutSandbox(w.sandboxes["s7"]) }); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkList is a list of 500 containers.
func BenchmarkList(b *testing.B) {
	s := &Store{now: state{containers: manyWorlds(500).containers}}
	for b.Loop() {
		if len(s.Containers(nil)) != 500 {
			b.Fatal("not all")
		}
	}
}

// TestCreateCutShort: what an opening that died left beside the file does not matter.
func TestCreateCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vm.db")
	must(t, os.WriteFile(path+".new", []byte("half"), 0o600))
	s := openTest(t, path)
	must(t, s.Update(func(tx *Tx) error { return tx.PutSandbox(testSandbox("s1", Ready)) }))
	if _, err := os.Stat(path + ".new"); err == nil {
		t.Error("it is still there")
	}
}
