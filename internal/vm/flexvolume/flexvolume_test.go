package flexvolume

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fake are mounts that are only written down; what lies in a directory that is mounted over stays visible.
type fake struct {
	mounts  map[string]int
	refuses error
}

func (f *fake) Mounted(dir string) (bool, error) { return f.mounts[dir] > 0, nil }

func (f *fake) Mount(dir string) error {
	if f.refuses != nil {
		return f.refuses
	}
	f.mounts[dir]++
	return nil
}

func (f *fake) Unmount(dir string) error {
	f.mounts[dir]--
	return os.Remove(filepath.Join(dir, FileName))
}

func newFake() *fake { return &fake{mounts: map[string]int{}} }

// call is one call of a kubelet, its answer read as kubelets read it.
func call(t *testing.T, m Mounts, args ...string) (response, int) {
	t.Helper()
	var out bytes.Buffer
	code := Run(args, m, &out)
	var r response
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%q: %v", out.String(), err)
	}
	if (code == 0) != (r.Status == success) {
		t.Errorf("exit code %d with status %s", code, r.Status)
	}
	return r, code
}

func where(t *testing.T, name string) string {
	return filepath.Join(t.TempDir(), "pods", "0f1e", "volumes", DirName, name)
}

// TestScenario is that of the package's comment.
func TestScenario(t *testing.T) {
	t.Parallel()
	m, dir := newFake(), where(t, "scratch")
	if r, _ := call(t, m, "mount", dir, `{"type":"qcow2","capacity":"2GiB","kubernetes.io/readwrite":"rw"}`); r.Status != success {
		t.Fatal(r)
	}
	v, err := Read(dir)
	if err != nil || v.UUID == "" || v.Capacity != 2<<30 || v.Partition != 1 || v.ReadOnly {
		t.Fatalf("%+v %v", v, err)
	}
	info, err := os.Lstat(filepath.Join(dir, FileName))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v %v: only its owner may read a key", info.Mode(), err)
	}
	if r, _ := call(t, m, "mount", dir, `{"type":"qcow2","capacity":"2GiB","kubernetes.io/readwrite":"rw"}`); r.Status != success || m.mounts[dir] != 1 {
		t.Errorf("again: %v, mounted %d times", r, m.mounts[dir])
	}
	if again, err := Read(dir); err != nil || again.UUID != v.UUID {
		t.Errorf("again: %+v %v", again, err)
	}
	for range 2 { // what is gone goes again
		if r, _ := call(t, m, "unmount", dir); r.Status != success || m.mounts[dir] != 0 {
			t.Error(r, m.mounts)
		}
	}
	r, _ := call(t, m, "mount", dir, `{"type":"qcow2","capacity":"much"}`)
	want := `mount scratch: option capacity "much": must be a positive whole number with a unit of libvirt's, such as 10GiB`
	if r.Status != failure || r.Message != want {
		t.Error(r)
	}
	if len(m.mounts) != 1 || m.mounts[dir] != 0 {
		t.Error("a refused volume is mounted")
	}
}

// TestProtocol: what kubelets may call, and what they hear.
func TestProtocol(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"init"}, `{"status":"Success","capabilities":{"attach":false,"fsGroup":false,"requiresFSResize":false,"selinuxRelabel":false,"supportsMetrics":false}}`},
		{[]string{"attach", "{}", "node"}, `{"status":"Success"}`},
		{[]string{"waitforattach", "/dev/x", "{}"}, `{"status":"Success"}`},
		{[]string{"detach", "x", "node"}, `{"status":"Success"}`},
		{[]string{"isattached", "{}", "node"}, `{"status":"Success","attached":true}`},
		{[]string{"getvolumename", "{}"}, `{"status":"Not supported"}`},
		{[]string{"mountdevice", "/x", "/dev/x", "{}"}, `{"status":"Not supported"}`},
		{[]string{"unmountdevice", "/x"}, `{"status":"Not supported"}`},
		{[]string{"expandvolume"}, `{"status":"Not supported"}`},
		{[]string{"expandfs"}, `{"status":"Not supported"}`},
		{[]string{""}, `{"status":"Not supported"}`},
		{nil, `{"status":"Failure","message":"a call must be given: init, mount or unmount"}`},
		{[]string{"mount"}, `{"status":"Failure","message":"mount: must have 2 arguments, a directory and options, has 0"}`},
		{[]string{"unmount", "/a", "/b"}, `{"status":"Failure","message":"unmount: must have 1 argument, a directory, has 2"}`},
		{[]string{"unmount", "/etc"}, `{"status":"Failure","message":"unmount etc: directory \"/etc\": must be an absolute path that ends in virtlet~flexvolume_driver/NAME, without '..'"}`},
		{[]string{"mount", "/x/virtlet~flexvolume_driver/../y", "{}"}, `{"status":"Failure","message":"mount y: directory \"/x/virtlet~flexvolume_driver/../y\": must be an absolute path that ends in virtlet~flexvolume_driver/NAME, without '..'"}`},
	} {
		var out bytes.Buffer
		Run(c.args, newFake(), &out)
		if d := cmp.Diff(c.want+"\n", out.String()); d != "" {
			t.Errorf("%q: %s", c.args, d)
		}
	}
}

// TestCalled: by name, or by subcommand.
func TestCalled(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"": "no", "muster-vm": "no", "muster-vm runtime": "no", "/usr/bin/muster-vm flexvolume": "[]", "muster-vm flexvolume init": "[init]",
		"/plugins/virtlet~flexvolume_driver/flexvolume_driver mount /d {}": "[mount /d {}]", "flexvolume_driver": "[]", "muster-vm runtime flexvolume": "no",
	} {
		got := "no"
		if args, ok := Called(strings.Fields(line)); ok {
			got = fmt.Sprint(args)
		}
		if got != want {
			t.Errorf("%q: %s, must be %s", line, got, want)
		}
	}
}

// TestOptions: what each type takes.
func TestOptions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Volume{
		`{"type":"qcow2"}`: {Type: QCOW2, Capacity: 1_024_000_000, Partition: 1},
		`{"type":"qcow2","capacity":"7","part":"0","kubernetes.io/readwrite":"ro"}`: {Type: QCOW2, Capacity: 7, ReadOnly: true},
		`{"type":"qcow2","capacity":" 3 MB "}`:                                      {Type: QCOW2, Capacity: 3_000_000, Partition: 1},
		`{"type":"qcow2","capacity":"3k"}`:                                          {Type: QCOW2, Capacity: 3072, Partition: 1},
		`{"type":"raw","path":"/dev/disk/by-id/x","part":"128"}`:                    {Type: Raw, Path: "/dev/disk/by-id/x", Partition: 128},
		`{"type":"ceph","monitor":"10.0.0.1:6789, [fd00::1]:6789","pool":"p","volume":"v","user":"admin","secret":"AAEC","protocol":"rbd"}`: {Type: Ceph, Partition: 1, Ceph: &CephVolume{
			Monitors: []Monitor{{"10.0.0.1", 6789}, {"fd00::1", 6789}}, Pool: "p", Image: "v", User: "admin", Key: []byte{0, 1, 2},
		}},
		`{"type":"ceph","monitor":"mon:1","pool":"p","volume":"v","user":"u","kubernetes.io/secret/secret":"QUFFQwo="}`: {Type: Ceph, Partition: 1, Ceph: &CephVolume{
			Monitors: []Monitor{{"mon", 1}}, Pool: "p", Image: "v", User: "u", Key: []byte{0, 1, 2},
		}},
		`{"type":"ceph","monitor":"mon:1","pool":"p","volume":"v"}`: {Type: Ceph, Partition: 1, Ceph: &CephVolume{Monitors: []Monitor{{"mon", 1}}, Pool: "p", Image: "v"}},
	} {
		got, err := Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}

// TestBadOptions: the key and the rule, all at once, and no secret.
func TestBadOptions(t *testing.T) {
	t.Parallel()
	const size = "must be a positive whole number with a unit of libvirt's, such as 10GiB"
	for text, want := range map[string]string{
		``:                                   "options: must be a JSON object",
		`null`:                               "options: must be a JSON object",
		`["type"]`:                           "options: must be a JSON object",
		`{}`:                                 `option type "": must be qcow2, raw or ceph`,
		`{"type":7}`:                         "option type: must be a string",
		`{"type":"floppy","part":"x"}`:       `option part "x": must be a partition's number, 0 to 128; 0 is the whole disk; option type "floppy": must be qcow2, raw or ceph`,
		`{"type":"qcow2","capcity":"1"}`:     `option capcity: a volume of type qcow2 has no such option`,
		`{"type":"qcow2","path":"/dev/sda"}`: `option path: a volume of type qcow2 has no such option`,
		`{"type":"qcow2","capacity":"0"}`:    `option capacity "0": ` + size,
		`{"type":"qcow2","capacity":"9E"}`:   `option capacity "9E": ` + size,
		`{"type":"qcow2","capacity":"1XB"}`:  `option capacity "1XB": ` + size,
		`{"type":"qcow2","capacity":"-1"}`:   `option capacity "-1": ` + size,
		`{"type":"raw"}`:                     `option path "": must be a path below /dev, without '..'`,
		`{"type":"raw","path":"/dev/../etc/shadow"}`:                                               `option path "/dev/../etc/shadow": must be a path below /dev, without '..'`,
		`{"type":"raw","path":"/etc/shadow"}`:                                                      `option path "/etc/shadow": must be a path below /dev, without '..'`,
		`{"type":"raw","path":"/dev/a\nb"}`:                                                        `option path "/dev/a?b": must be a path below /dev, without '..'`,
		`{"type":"ceph","monitor":"mon:1","pool":"p/q","volume":"v","user":"u","secret":"geheim"}`: `option pool "p/q": must be 1 to 96 letters, digits, '.', '_' and '-'; option secret: must be the user's key in base64`,
		`{"type":"ceph","monitor":"mon","pool":"p","volume":"v:conf=/etc/passwd"}`:                 `option volume "v:conf=/etc/passwd": must be 1 to 96 letters, digits, '.', '_' and '-'; option monitor "mon": must be HOST:PORT, or several with commas between`,
		`{"type":"ceph","monitor":"m:1","pool":"p","volume":"v","user":"u"}`:                       `option secret: user and secret must be set together`,
		`{"type":"ceph","monitor":"m:1","pool":"p","volume":"v","secret":"AAEC"}`:                  `option secret: user and secret must be set together`,
		`{"type":"ceph","monitor":"m:1","pool":"p","volume":"v","protocol":"nbd"}`:                 `option protocol "nbd": must be rbd`,
	} {
		_, err := Parse([]byte(text))
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
	if _, err := Parse(bytes.Repeat([]byte{' '}, MaxOptions+1)); err == nil || !strings.Contains(err.Error(), "at most 65536 bytes") {
		t.Error(err)
	}
}

// TestBrokenOff: a mount that broke off is taken up; one that fails leaves nothing mounted.
func TestBrokenOff(t *testing.T) {
	t.Parallel()
	m, dir := newFake(), where(t, "v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m.mounts[dir] = 1 // and no file
	if err := os.WriteFile(filepath.Join(dir, FileName+".part"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, _ := call(t, m, "mount", dir, `{"type":"qcow2"}`); r.Status != success || m.mounts[dir] != 1 {
		t.Fatal(r, m.mounts)
	}
	first, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r, _ := call(t, m, "mount", dir, `{"type":"qcow2","capacity":"1G"}`); r.Status != success {
		t.Fatal(r)
	}
	if v, err := Read(dir); err != nil || v.Capacity != 1<<30 || v.UUID == first.UUID {
		t.Errorf("other options: %+v %v", v, err)
	}
	m.refuses = errors.New("no room")
	if r, _ := call(t, m, "mount", where(t, "w"), `{"type":"qcow2"}`); r.Status != failure || r.Message != "mount w: no room" {
		t.Error(r)
	}
}

// TestReadFollowsNothing: a link in a volume's directory leads nowhere.
func TestReadFollowsNothing(t *testing.T) {
	t.Parallel()
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(secret, []byte(`{"type":"qcow2"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, FileName)); err != nil {
		t.Fatal(err)
	}
	if v, err := Read(dir); err == nil {
		t.Errorf("%+v", v)
	}
}

// TestReal: the memory file system, as root.
func TestReal(t *testing.T) {
	t.Parallel()
	dir := where(t, "real")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m := Machine{}
	if err := m.Mount(dir); errors.Is(err, os.ErrPermission) {
		t.Skip("NOT CHECKED: mounting needs root")
	} else if err != nil {
		t.Fatal(err)
	}
	if err := m.Unmount(dir); err != nil {
		t.Fatal(err)
	}
	if r, _ := call(t, m, "mount", dir, `{"type":"qcow2"}`); r.Status != success {
		t.Fatal(r)
	}
	if on, err := m.Mounted(dir); err != nil || !on {
		t.Error(on, err)
	}
	if info, err := os.Lstat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
	if _, err := Read(dir); err != nil {
		t.Error(err)
	}
	if r, _ := call(t, m, "unmount", dir); r.Status != success {
		t.Fatal(r)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
	if on, err := m.Mounted(dir); err != nil || on {
		t.Error(on, err)
	}
}

// FuzzParse: whatever a pod's author writes, the answer is one JSON object, a good volume is a possible one, and no error tells the key.
func FuzzParse(f *testing.F) {
	f.Add(`{"type":"qcow2","capacity":"9223372036854775807"}`)
	f.Add(`{"type":"raw","path":"/dev//loop0"}`)
	f.Add(`{"type":"ceph","monitor":"[::1]:1","pool":"p","volume":"v","user":"u","secret":"SECRETSECRET!"}`)
	f.Add("{\"type\":\"\xff\"}")
	f.Fuzz(func(t *testing.T, text string) {
		var out bytes.Buffer
		m := newFake()
		m.refuses = errors.New("refused")
		Run([]string{"mount", "/nowhere/" + DirName + "/../x", text}, m, &out)
		if !json.Valid(out.Bytes()) {
			t.Fatalf("%q", out.String())
		}
		v, err := Parse([]byte(text))
		if err != nil {
			if strings.Contains(err.Error(), "SECRETSECRET") {
				t.Fatal(err)
			}
			if _, err := json.Marshal(response{Message: err.Error()}); err != nil {
				t.Fatal(err)
			}
			return
		}
		if v.Partition < 0 || v.Partition > maxPartition || v.Type == QCOW2 && v.Capacity <= 0 || v.Type == Raw && !strings.HasPrefix(v.Path, "/dev/") || (v.Type == Ceph) != (v.Ceph != nil) {
			t.Fatalf("%q %+v", text, v)
		}
	})
}
