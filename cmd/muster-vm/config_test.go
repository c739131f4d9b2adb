package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/vm/config"
)

// TestSettingsReachProcesses: each of Virtlet's keys that is taken, set in a file, is in what a process of up is started with, as that process reads it.
func TestSettingsReachProcesses(t *testing.T) {
	t.Parallel()
	for field, one := range map[string]struct{ value, process, flag, want string }{
		"downloadProtocol":             {"http", "runtime", "image-download-protocol", "http"},
		"imageTranslationConfigsDir":   {"/etc/virtlet/images", "runtime", "translation-dir", "/etc/virtlet/images"},
		"skipImageTranslation":         {"true", "runtime", "skip-image-translation", "true"},
		"libvirtURI":                   {"qemu+unix:///system?socket=/s", "runtime", "libvirt-uri", "qemu+unix:///system?socket=/s"},
		"rawDevices":                   {"'sd*,nvme*'", "runtime", "raw-devices", "sd*,nvme*"},
		"criSocketPath":                {"/run/virtlet.sock", "proxy", "listen", "/run/virtlet.sock"},
		"disableKVM":                   {"true", "runtime", "domain-type", "qemu"},
		"cniPluginDir":                 {"/cni/bin", "net", "cni-bin-dir", "[/cni/bin]"},
		"cniConfigDir":                 {"/cni/conf", "net", "cni-conf-dir", "/cni/conf"},
		"enableRegexpImageTranslation": {"false", "runtime", "enable-regexp-image-translation", "false"},
		"cpuModel":                     {"host-model", "runtime", "cpu-model", "host-model"},
		"streamPort":                   {"10010", "runtime", "stream-port", "10010"},
		"kubeletRootDir":               {"/pods", "runtime", "kubelet-pods-dir", "/pods"},
		"logLevel":                     {"3", "net", "zap-log-level", "3"},
	} {
		file := filepath.Join(t.TempDir(), "virtlet.yaml")
		if err := os.WriteFile(file, []byte(field+": "+one.value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var p places
		var v virtletFlags
		c := &cobra.Command{}
		p.bind(c.Flags())
		v.bind(c.Flags())
		if err := c.Flags().Set("config", file); err != nil {
			t.Fatal(err)
		}
		if _, err := v.resolve(t.Context(), c.Flags(), p.dir, logr.Discard()); err != nil {
			t.Errorf("%s: %v", field, err)
			continue
		}
		found := false
		for _, process := range p.processes("/self", "/wrap", 1) {
			if process.Name != one.process {
				continue
			}
			found = true
			if one.flag == "zap-log-level" { // it keeps no text
				if !slices.Contains(process.Argv, "--zap-log-level="+one.want) {
					t.Errorf("%s: %v", field, process.Argv)
				}
				continue
			}
			sub, rest, err := root().Find(process.Argv[1:])
			if err != nil {
				t.Fatal(err)
			}
			if err := sub.ParseFlags(rest); err != nil {
				t.Fatal(err)
			}
			if got := sub.Flag(one.flag).Value.String(); got != one.want {
				t.Errorf("%s: %s has --%s=%q, want %q", field, one.process, one.flag, got, one.want)
			}
		}
		if !found {
			t.Errorf("%s: there is no process %s", field, one.process)
		}
	}
}

// TestMachineSettings: what runtime is told becomes its settings.
func TestMachineSettings(t *testing.T) {
	t.Parallel()
	m := machineFlags{domainType: "kvm", qemuUser: "1:2", protocol: "http", translations: "/t", rawDevices: "sd*,nvme*", cpuModel: "host-model", streamPort: 10010}
	c, err := m.check()
	if err != nil || c.Images.DownloadProtocol != "http" || c.Images.TranslationDir != "/t" || !c.Images.ExactOnly || !slices.Equal(c.RawDevices, []string{"sd*", "nvme*"}) ||
		c.Limits.CPUModel != "host-model" || c.StreamAddress != "127.0.0.1:10010" {
		t.Errorf("%+v, %v", c, err)
	}
	m.skipTranslation, m.regexps, m.rawDevices = true, true, ""
	if c, err := m.check(); err != nil || c.Images.TranslationDir != "" || c.Images.ExactOnly || c.RawDevices == nil || len(c.RawDevices) > 0 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, change := range []func(*machineFlags){func(m *machineFlags) { m.cpuModel = "pentium" }, func(m *machineFlags) { m.streamPort = 65536 }} {
		bad := m
		change(&bad)
		if _, err := bad.check(); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// TestConfigDump: every value has its source, in each format, and nothing is set that has no effect.
func TestConfigDump(t *testing.T) {
	t.Setenv("VIRTLET_DISABLE_KVM", "y")
	t.Setenv("VIRTLET_RAW_DEVICES", "nvme*")
	t.Setenv("KUBE_NODE_NAME", "n1")
	dump := func(args ...string) (string, error) {
		c := root()
		out := new(bytes.Buffer)
		c.SetOut(out)
		c.SetArgs(append([]string{"config", "dump", "--dir", t.TempDir()}, args...))
		err := c.ExecuteContext(t.Context())
		return out.String(), err
	}
	text, err := dump("-o", "json", "--raw-devices=loop*", "--stream-port=1", "--mirror=a=http://b")
	if err != nil {
		t.Fatal(err)
	}
	var all []setting
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]setting{}
	for _, s := range all {
		got[s.Key] = s
	}
	for key, want := range map[string]string{
		"disableKVM": "true by env VIRTLET_DISABLE_KVM", "rawDevices": "nvme* by env VIRTLET_RAW_DEVICES", "streamPort": "1 by flag --stream-port",
		"libvirtURI": "qemu:///system by default", "mirror": "[a=http://b] by flag --mirror", "node-name": "n1 by default", "imageDir": " by default",
	} {
		if s := got[key]; s.Value+" by "+s.Source != want {
			t.Errorf("%s: %q by %q, want %s", key, s.Value, s.Source, want)
		}
	}
	if got["imageDir"].Without == "" || got["imageDir"].Flag != "" || got["disableKVM"].Flag != "--domain-type" {
		t.Errorf("%+v", got)
	}
	for _, k := range config.Keys() {
		if _, ok := got[k.Field]; !ok {
			t.Errorf("it lacks %s", k.Field)
		}
	}
	text, err = dump("-o", "yaml", "--raw-devices=loop*", "--stream-port=1", "--mirror=a=http://b")
	var again []setting
	if err := yaml.Unmarshal([]byte(text), &again); err != nil {
		t.Fatal(err)
	}
	if err != nil || len(again) != len(all) {
		t.Errorf("%v: %s", err, text)
	}
	if text, err = dump(); err != nil || !strings.Contains(text, "VIRTLET_DISABLE_KVM") {
		t.Errorf("%v: %s", err, text)
	}
	for _, args := range [][]string{
		{"-o", "xml"}, {"--config", "/no/such/file"}, {"--config", t.TempDir()}, {"--kubeconfig", "/no/such/file"}, {"--domain-type=kvm", "--disable-kvm"}, {"--calico-subnet-size=33"}, {"rubbish"},
	} {
		if text, err := dump(args...); err == nil {
			t.Errorf("%v is no error: %s", args, text)
		}
	}
}
