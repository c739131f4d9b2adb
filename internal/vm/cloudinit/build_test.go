package cloudinit

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

var update = flag.Bool("update", false, "write the golden files anew")

func network() vm.Network {
	return vm.Network{
		Interfaces: []vm.Interface{
			{
				Name: "eth0", MAC: "02:00:00:00:00:01", MTU: 1450,
				Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.1.7/24"), netip.MustParsePrefix("fd00:244::7/64")},
				Routes: []vm.Route{
					{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.244.1.1")},
					{Destination: netip.MustParsePrefix("::/0"), Gateway: netip.MustParseAddr("fd00:244::1")},
					{Destination: netip.MustParsePrefix("10.96.0.0/12"), Gateway: netip.MustParseAddr("10.244.1.1")},
					{Destination: netip.MustParsePrefix("10.244.1.0/24")}, // the subnet's own
				},
			},
			{Name: "eth1", MAC: "02:00:00:00:00:02", Routes: []vm.Route{{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.1")}}},
		},
		DNS: vm.DNS{Servers: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, Search: []string{"team.svc.cluster.local", "svc.cluster.local"}},
	}
}

// bare is a pod without volumes or annotations.
func bare() Input {
	return Input{
		Spec: &spec.Spec{
			Pod:       spec.Pod{Namespace: "team", Name: "web", UID: "0f1e", Hostname: "web-0"},
			CloudInit: spec.CloudInit{Type: spec.NoCloud},
		},
		Network: network(),
		UUID:    "231700d5-c9a6-5a49-b38d-0123456789ab",
	}
}

// full is the scenario of the package's comment, and more.
func full() Input {
	in := bare()
	in.Spec.Container = spec.Container{
		Command: []string{"sh", "-c"}, Args: []string{"exit 3"}, WorkingDir: "/srv",
		Env: []spec.EnvVar{{Name: "A", Value: "1 < 2"}, {Name: "KEY", Value: "two\nlines"}},
	}
	in.Spec.CloudInit.SSHKeys = []string{"ssh-ed25519 AAAA me@example"}
	in.Spec.CloudInit.MetaData = map[string]any{"local-hostname": "mine"}
	in.Spec.CloudInit.UserData = map[string]any{
		"runcmd": []any{"touch /tmp/after"}, "mounts": []any{[]any{"/dev/disk0", "/mnt"}}, "users": []any{map[string]any{"name": "root", "lock_passwd": true}},
	}
	in.Files = []File{{Path: "/etc/conf/a", Content: []byte("a=b\n"), Mode: 0o100640}, {Path: "/etc/hosts", Content: []byte("127.0.0.1 web-0\n"), Mode: 0o644}}
	in.Shares = []Share{{Tag: "muster-0", Path: "/data"}, {Tag: "muster-1", Path: "/my data/it's", ReadOnly: true}}
	in.Devices = []Device{{Path: "/dev/disk0", Disk: Disk{Link: "/dev/disk/by-id/virtio-disk0", Sysfs: "/sys/devices/x/virtio*/block/*"}}}
	in.FileSystems = []FileSystem{{Path: "/flex", Partition: 1, Disk: Disk{Link: "/dev/disk/by-id/virtio-flex", Sysfs: "/sys/devices/y/virtio*/block/*"}}}
	return in
}

// text is the data as it stands in a golden file.
func text(d *Data) string {
	var b strings.Builder
	fmt.Fprintf(&b, "label %s\n", d.Label)
	for _, f := range d.Files {
		fmt.Fprintf(&b, "\n-- %s --\n%s", f.Path, f.Content)
	}
	return b.String()
}

// TestGolden: testdata/NAME.txt is what each guest is told. -update writes them anew.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]Input{
		"bare":    bare(),
		"nocloud": full(),
		"configdrive": func() Input {
			in := full()
			in.Spec.CloudInit.Type = spec.ConfigDrive
			return in
		}(),
		"script": func() Input {
			in := full()
			in.Spec.CloudInit.Script = "#!/bin/sh\n" + spec.MountScriptToken + "\necho done\n"
			return in
		}(),
		"root": func() Input { // a persistent root asks for its addresses by DHCP
			in := bare()
			in.Spec.Blocks = []spec.Block{{DevicePath: "/", HostPath: "/dev/loop3"}}
			return in
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := Build(in)
			if err != nil {
				t.Fatal(err)
			}
			got := text(d)
			file := "testdata/" + name + ".txt"
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("%s differs (-file +now); if it is right, run with -update\n%s", file, d)
			}
		})
	}
}

func content(t *testing.T, d *Data, name string) []byte {
	t.Helper()
	for _, f := range d.Files {
		if f.Path == name {
			return f.Content
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}

// TestContract: what a guest reads under "muster" is the container, whatever its words hold.
func TestContract(t *testing.T) {
	t.Parallel()
	in := full()
	in.Network.DNS.Options = []string{"ndots:5"}
	in.Spec.Container.Args = []string{"<&>\"'\\", "ü\n\x01"}
	d, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	var meta struct {
		ID     string   `json:"instance-id"`
		Muster Contract `json:"muster"`
	}
	if err := json.Unmarshal(content(t, d, "meta-data"), &meta); err != nil {
		t.Fatal(err)
	}
	want := Contract{
		Command: []string{"sh", "-c"}, Args: in.Spec.Container.Args, Env: []string{"A=1 < 2", "KEY=two\nlines"}, WorkingDir: "/srv",
		Mounts:  []ContractMount{{"muster-0", "/data", false}, {"muster-1", "/my data/it's", true}},
		Devices: []ContractDevice{{"/dev/disk0", "/sys/devices/x/virtio*/block/*"}}, DNSOptions: []string{"ndots:5"},
	}
	if d := cmp.Diff(want, meta.Muster); d != "" {
		t.Error(d)
	}
	if !strings.Contains(meta.ID, in.Spec.Pod.UID) {
		t.Errorf("instance-id %q has not the pod's UID", meta.ID)
	}
}

// TestUserDataIsReadBack: the guest's reader sees the files' bytes, and the annotation's entries after ours.
func TestUserDataIsReadBack(t *testing.T) {
	t.Parallel()
	in := full()
	in.Files = append(in.Files, File{Path: "/bin/x", Content: []byte{0, 255, '\n'}, Mode: 0o755})
	d, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	user := content(t, d, "user-data")
	if !strings.HasPrefix(string(user), "#cloud-config\n") {
		t.Errorf("user-data begins with %.20q", user)
	}
	m, err := spec.ParseYAMLMap(user)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, entry := range m["write_files"].([]any) {
		f := entry.(map[string]any)
		content, err := base64.StdEncoding.DecodeString(f["content"].(string))
		if err != nil || f["encoding"] != "b64" {
			t.Errorf("%v: %v", f, err)
		}
		got[f["path"].(string)] = f["permissions"].(string) + " " + string(content)
	}
	for name, want := range map[string]string{
		"/etc/conf/a": "0640 a=b\n", "/bin/x": "0755 \x00\xff\n", "/etc/cloud/environment": "0644 A=1 < 2\n",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	runcmd := m["runcmd"].([]any)
	if runcmd[len(runcmd)-1] != "touch /tmp/after" {
		t.Errorf("the annotation's commands are not the last: %v", runcmd)
	}
	mounts := m["mounts"].([]any)
	if last := mounts[len(mounts)-1].([]any); last[0] != "/dev/disk/by-id/virtio-disk0" {
		t.Errorf("a mount of a device's path was not rewritten: %v", last)
	}
	if in.Spec.CloudInit.UserData["mounts"].([]any)[0].([]any)[0] != "/dev/disk0" {
		t.Error("the Spec was changed")
	}
}

// TestBounds: a pod cannot fill the node by what it mounts.
func TestBounds(t *testing.T) {
	t.Parallel()
	in := bare()
	in.Files = []File{{Path: "/a", Content: make([]byte, MaxFileBytes)}, {Path: "/b", Content: []byte{1}}}
	_, err := Build(in)
	if err == nil || vm.KindOf(err) != vm.Invalid || err.Error() != "pod team/web: its ConfigMaps, Secrets and single files hold 8388609 bytes: must be at most 8388608" {
		t.Errorf("%v", err)
	}
	in.Files = make([]File, MaxFiles+1)
	if _, err := Build(in); err == nil || vm.KindOf(err) != vm.Invalid {
		t.Errorf("%v", err)
	}
}

// TestForceDHCP leaves the network to DHCP, in both forms.
func TestForceDHCP(t *testing.T) {
	t.Parallel()
	for _, form := range []spec.ImageType{spec.NoCloud, spec.ConfigDrive} {
		in := bare()
		in.Spec.CloudInit.Type, in.Spec.CloudInit.ForceDHCP = form, true
		d, err := Build(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range d.Files {
			if strings.Contains(f.Path, "network") {
				t.Errorf("%s: there is %s", form, f.Path)
			}
		}
	}
}

// TestScript runs the script that links block volumes, in a shell, twice: it finds each disk by its pattern, and does not mind one that is
// not there.
func TestScript(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("NOT CHECKED: there is no sh")
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sys/0/virtio3/block/vdb"), 0o755); err != nil {
		t.Fatal(err)
	}
	in := bare()
	in.Devices = []Device{
		{Path: dir + "/it's/gone", Disk: Disk{Sysfs: dir + "/sys/1/virtio*/block/*"}},
		{Path: dir + "/it's/data", Disk: Disk{Sysfs: dir + "/sys/0/virtio*/block/*"}},
	}
	in.Spec.CloudInit.Script = "set -u\n" + spec.MountScriptToken
	d, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cmd := exec.Command(shell)
		cmd.Stdin = bytes.NewReader(content(t, d, "user-data"))
		if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
			t.Fatalf("%v: %s", err, said)
		}
	}
	if to, err := os.Readlink(dir + "/it's/data"); err != nil || to != "/dev/vdb" {
		t.Errorf("%q, %v", to, err)
	}
	if _, err := os.Lstat(dir + "/it's/gone"); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}
