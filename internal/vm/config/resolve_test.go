package config

import (
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/vm"
)

func find(t *testing.T, all []Value, field string) Value {
	t.Helper()
	for _, v := range all {
		if v.Key.Field == field {
			return v
		}
	}
	t.Fatalf("there is no %s", field)
	return Value{}
}

// TestResolve: one key after another is said by a source that counts over the one before, down to the one that counts most.
func TestResolve(t *testing.T) {
	t.Parallel()
	in := Input{Defaults: map[string]string{"rawDevices": "loop*"}, Node: Node{Name: "n1", Labels: map[string]string{"disks": "nvme", "zone": "a"}}}
	expect := func(step, text, source string) {
		t.Helper()
		got, err := Resolve(in)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if v := find(t, got, "rawDevices"); v.Text != text || v.Source != source || v.Default() != (source == "default") {
			t.Errorf("%s: %q by %q, want %q by %q", step, v.Text, v.Source, text, source)
		}
		if v := find(t, got, "cpuModel"); v.Text != "" || !v.Default() {
			t.Errorf("%s: cpuModel is %+v", step, v)
		}
	}
	with := func(name, value string, priority int64, change func(*Mapping)) {
		m := Mapping{Name: name, Priority: priority, Config: map[string]any{"rawDevices": value}}
		if change != nil {
			change(&m)
		}
		in.Mappings = append([]Mapping{m}, in.Mappings...)
	}
	expect("nothing is said", "loop*", "default")
	with("all", "all*", 0, nil)
	expect("an object for all", "all*", "VirtletConfigMapping all")
	with("before", "before*", 0, nil)
	with("behind", "behind*", 0, nil)
	expect("equal priority", "behind*", "VirtletConfigMapping behind")
	with("negative", "negative*", -1, nil)
	expect("a lower priority", "behind*", "VirtletConfigMapping behind")
	with("a-selected", "selected*", 10, func(m *Mapping) { m.NodeSelector = map[string]string{"disks": "nvme", "zone": "a"} })
	expect("a higher priority", "selected*", "VirtletConfigMapping a-selected")
	with("other-zone", "wrong*", 20, func(m *Mapping) { m.NodeSelector = map[string]string{"disks": "nvme", "zone": "b"} })
	with("no-label", "wrong*", 20, func(m *Mapping) { m.NodeSelector = map[string]string{"none": ""} })
	with("other-node", "wrong*", 20, func(m *Mapping) { m.NodeName = "n2" })
	with("other-broken", "", 20, func(m *Mapping) { m.NodeName = "n2"; m.Config = map[string]any{"nonsense": []any{}} })
	expect("objects for others", "selected*", "VirtletConfigMapping a-selected")
	with("this-node", "mine*", 11, func(m *Mapping) { m.NodeName = "n1" })
	expect("an object for the node", "mine*", "VirtletConfigMapping this-node")
	in.File, in.FileName = []byte("rawDevices: file*\n"), "/etc/v.yaml"
	expect("a file", "file*", "file /etc/v.yaml")
	in.Flags = map[string]string{"raw-devices": "flag*", "dir": "/not/ours"}
	expect("a flag", "flag*", "flag --raw-devices")
	in.Env = []string{"VIRTLET_RAW_DEVICES="}
	expect("an empty variable", "flag*", "flag --raw-devices")
	in.Env = []string{"VIRTLET_RAW_DEVICES=env*", "VIRTLET_RAW_DEVICES=second*"}
	expect("a variable", "env*", "env VIRTLET_RAW_DEVICES")
}

// TestForms: every form of a value that people write comes to one, by whatever name it is given.
func TestForms(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		in                Input
		field, text, from string
	}{
		{Input{Env: []string{"VIRTLET_DISABLE_KVM=Y"}}, "disableKVM", "true", "env VIRTLET_DISABLE_KVM"},
		{Input{Env: []string{"VIRTLET_DISABLE_KVM=0"}}, "disableKVM", "false", "env VIRTLET_DISABLE_KVM"}, // Virtlet: true
		{Input{Flags: map[string]string{"domain-type": "qemu"}}, "disableKVM", "true", "flag --domain-type"},
		{Input{Flags: map[string]string{"domain-type": "kvm", "disable-kvm": "false"}}, "disableKVM", "false", "flag --domain-type"},
		{Input{File: []byte(`{"disableKVM": true, "streamPort": 10010, "logLevel": null}`)}, "disableKVM", "true", "file "},
		{Input{File: []byte(`{"streamPort": 10010}`)}, "streamPort", "10010", "file "},
		{Input{Mappings: []Mapping{{Name: "m", Config: map[string]any{"streamPort": 3.0, "logLevel": int64(2)}}}}, "streamPort", "3", "VirtletConfigMapping m"},
		{Input{File: []byte("imageTranslationConfigsDir: /etc/virtlet/images/")}, "imageTranslationConfigsDir", "/etc/virtlet/images", "file "},
		{Input{Env: []string{"KUBELET_ROOT_DIR=/var/lib/kubelet/pods"}}, "kubeletRootDir", "/var/lib/kubelet/pods", "env KUBELET_ROOT_DIR"},
		{Input{Flags: map[string]string{"kubelet-root-dir": "/p"}}, "kubeletRootDir", "/p", "flag --kubelet-root-dir"},
		{Input{Flags: map[string]string{"raw-devices": ""}}, "rawDevices", "", "flag --raw-devices"},
		{Input{Flags: map[string]string{"v": "03"}}, "logLevel", "3", "flag --v"},
	} {
		got, err := Resolve(one.in)
		if err != nil {
			t.Errorf("%+v: %v", one.in, err)
			continue
		}
		if v := find(t, got, one.field); v.Text != one.text || v.Source != one.from {
			t.Errorf("%+v: %q by %q", one.in, v.Text, v.Source)
		}
	}
	for _, k := range Keys() {
		if k.Field == "disableKVM" && (k.ToOwn("true") != "qemu" || k.ToOwn("false") != "kvm") || k.Field == "cpuModel" && k.ToOwn("x") != "x" {
			t.Error(k.Field)
		}
	}
}

// TestBad: all errors come at once, each with source, key and rule.
func TestBad(t *testing.T) {
	t.Parallel()
	_, err := Resolve(Input{
		Mappings: []Mapping{{Name: "m", Config: map[string]any{"logLevel": 11.0, "streamPort": 0.5, "cpuModel": map[string]any{}, "other": "x"}}},
		File:     []byte("downloadProtocol: ftp\nnothing: 1\ncniPluginDir: ../x\n"), FileName: "/f",
		Flags: map[string]string{"kubelet-root-dir": "/a", "kubelet-pods-dir": "/b", "raw-devices": "../sda", "domain-type": "xen"},
		Env:   []string{"VIRTLET_DISABLE_KVM=perhaps", "VIRTLET_CRI_SOCKET_PATH=/" + strings.Repeat("x", 107), "VIRTLET_LIBVIRT_URI=" + strings.Repeat("x", 5000)},
	})
	if vm.KindOf(err) != vm.Invalid {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{
		`VirtletConfigMapping m: logLevel "11": must be a number from 0 to 10`, `"streamPort": must be a whole number`, `"cpuModel": must be a text`, `VirtletConfigMapping m: "other": there is no such key`,
		`file /f: downloadProtocol "ftp": must be one of`, `file /f: "nothing": there is no such key`, `file /f: cniPluginDir "../x": must be an absolute path`,
		"flags --kubelet-root-dir and --kubelet-pods-dir: they are one setting, kubeletRootDir", `flag --raw-devices: rawDevices "../sda": pattern "../sda"`,
		`flag --domain-type: disableKVM "xen"`, `env VIRTLET_DISABLE_KVM: disableKVM "perhaps": must be true or false`, "env VIRTLET_CRI_SOCKET_PATH", "has 5000 bytes",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
	for _, text := range []string{"- a", "a: [", "a: 1\na: 2", strings.Repeat("#", maxFile+1)} {
		if _, err := Resolve(Input{File: []byte(text), FileName: "/f"}); err == nil || !strings.HasPrefix(err.Error(), "file /f: ") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

// FuzzFile: no file ends the process, and what is taken can be written and is taken again.
func FuzzFile(f *testing.F) {
	f.Add([]byte("rawDevices: loop*\ndisableKVM: y\n"))
	f.Add([]byte(`{"streamPort": 1e3}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Resolve(Input{File: text, FileName: "f"})
		if err != nil {
			return
		}
		for _, v := range got {
			if !v.Default() {
				if again, err := v.Key.judge(v.Text); err != nil || again != v.Text {
					t.Errorf("%s %q: %q, %v", v.Key.Field, v.Text, again, err)
				}
			}
		}
	})
}
