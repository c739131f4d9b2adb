package spec

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm"
)

// pod is a sandbox with annotations, given as key, value, key, value.
func pod(annotations ...string) *runtimeapi.PodSandboxConfig {
	c := &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "team", Uid: "0f1e"},
		Hostname:    "web-0",
		Annotations: map[string]string{},
		Linux:       &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods/pod0f1e"},
	}
	for i := 0; i < len(annotations); i += 2 {
		c.Annotations[annotations[i]] = annotations[i+1]
	}
	return c
}

func container() *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "vm"},
		Image:    &runtimeapi.ImageSpec{Image: "registry.example/fedora:42"},
		LogPath:  "vm/0.log",
		Linux:    &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{}},
	}
}

func judged(t *testing.T, in Input) *Spec {
	t.Helper()
	s, err := Judge(in)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// problems are an error's lines without "pod team/web: ".
func problems(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var all Problems
	if !errors.As(err, &all) || vm.KindOf(err) != vm.Invalid {
		t.Fatalf("%v is no error of kind Invalid that holds Problems", err)
	}
	var out []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		rest, ok := strings.CutPrefix(line, "pod team/web: ")
		if !ok {
			t.Errorf("%q does not begin with the pod", line)
		}
		out = append(out, rest)
	}
	return out
}

// TestAllAtOnce is the scenario of the package's comment.
func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	sandbox := pod(KeyVCPUCount, "many", KeyDiskDriver, "floppy")
	node := runtimeapi.NamespaceMode_NODE
	sandbox.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: node, Pid: node, Ipc: node}}
	sandbox.Linux.Sysctls = map[string]string{"net.core.somaxconn": "1024"}
	_, err := Judge(Input{Sandbox: sandbox})
	want := []string{
		`VirtletDiskDriver "floppy": must be scsi, virtio or nvme`,
		`VirtletVCPUCount "many": must be a whole number, at most 255`,
		`hostIPC: a machine cannot share the host's IPC`,
		`hostNetwork: a machine cannot share the host's network`,
		`hostPID: a machine cannot share the host's processes`,
		`sysctls "net.core.somaxconn": a machine has a kernel of its own, and its image sets that`,
	}
	if d := cmp.Diff(want, problems(t, err)); d != "" {
		t.Error(d)
	}
}

// TestPlainPod: without annotations a pod is a machine with the defaults.
func TestPlainPod(t *testing.T) {
	t.Parallel()
	s := judged(t, Input{Sandbox: pod(), Container: container()})
	want := &Spec{
		Pod: Pod{
			Namespace: "team", Name: "web", UID: "0f1e", Hostname: "web-0", CgroupParent: "/kubepods/pod0f1e",
			Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Container: Container{
			Name: "vm", Image: "registry.example/fedora:42", LogPath: "vm/0.log",
			Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Resources: Resources{VCPUs: 1, Memory: 1 << 30},
		Machine:   Machine{DiskDriver: SCSI, Network: NetworkVirtIO},
		CloudInit: CloudInit{Type: NoCloud, MetaData: map[string]any{}, UserData: map[string]any{}},
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}
}

// TestAnnotations: each annotation, what it does when it is right, and what is said when it is wrong.
// TestHostname: a pod whose sandbox has no host name gets one of its own name, as kubelets make it: no longer than one label of a DNS name may be, and without an end that
// such a label cannot have.
func TestHostname(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 62)
	for name, want := range map[string]string{"web": "web", "web.example": "web.example", long + "bc": long + "b", long + "-bc": long, long + ".-bc": long} { // order: each is a pod of its own
		c := pod()
		c.Hostname, c.Metadata.Name = "", name
		if s := judged(t, Input{Sandbox: c, Container: container()}); s.Pod.Hostname != want {
			t.Errorf("pod %s: host name %q, want %q", name, s.Pod.Hostname, want)
		}
	}
	c := pod()
	c.Hostname = long + "bc.example"
	if s := judged(t, Input{Sandbox: c, Container: container()}); s.Pod.Hostname != c.Hostname {
		t.Errorf("a host name that was given is changed to %q", s.Pod.Hostname)
	}
}

func TestAnnotations(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		a    []string
		// got is looked at where there is no problem.
		got  func(*Spec) any
		want any
		bad  []string
	}{
		{"three CPUs", []string{KeyVCPUCount, "3"}, func(s *Spec) any { return s.Resources.VCPUs }, 3, nil},
		{"no CPU is one", []string{KeyVCPUCount, "-4"}, func(s *Spec) any { return s.Resources.VCPUs }, 1, nil},
		{"too many CPUs", []string{KeyVCPUCount, "256"}, nil, nil, []string{`VirtletVCPUCount "256": must be a whole number, at most 255`}},
		{"nvme", []string{KeyDiskDriver, "nvme"}, func(s *Spec) any { return s.Machine.DiskDriver }, NVMe, nil},
		{"drivers in small letters", []string{KeyDiskDriver, "SCSI"}, nil, nil, []string{`VirtletDiskDriver "SCSI": must be scsi, virtio or nvme`}},
		{"e1000e", []string{KeyNetworkDevice, "e1000e"}, func(s *Spec) any { return s.Machine.Network }, NetworkE1000E, nil},
		{"unknown card", []string{KeyNetworkDevice, "ne2k"}, nil, nil, []string{`VirtletNetworkDevice "ne2k": must be virtio, e1000 or e1000e`}},
		{"host-model", []string{KeyCPUModel, "host-model"}, func(s *Spec) any { return s.Machine.CPUModel }, HostModel, nil},
		{
			"Virtlet's key takes no other model",
			[]string{KeyCPUModel, "EPYC"},
			nil, nil,
			[]string{`VirtletCPUModel "EPYC": must be host-model; vm.muster.dev/cpu-model takes others`},
		},
		{"ours does", []string{OwnCPUModel, "EPYC-Rome-v2"}, func(s *Spec) any { return s.Machine.CPUModel }, "EPYC-Rome-v2", nil},
		{
			"no markup in a model",
			[]string{OwnCPUModel, "<x/>"},
			nil, nil,
			[]string{`vm.muster.dev/cpu-model "<x/>": must be host-model, host-passthrough, maximum or the name of a model`},
		},
		{
			"two models",
			[]string{KeyCPUModel, "host-model", OwnCPUModel, "maximum"},
			nil, nil,
			[]string{`vm.muster.dev/cpu-model "maximum": must not differ from VirtletCPUModel, "host-model"`},
		},
		{"root size", []string{KeyRootVolumeSize, "10Gi"}, func(s *Spec) any { return s.Machine.RootSize }, int64(10 << 30), nil},
		{
			"half a byte",
			[]string{KeyRootVolumeSize, "1.5"},
			nil, nil,
			[]string{`VirtletRootVolumeSize "1.5": must be a whole number of bytes as a quantity, such as 10Gi`},
		},
		{
			"more than there is",
			[]string{KeyRootVolumeSize, "99Ei"},
			nil, nil,
			[]string{`VirtletRootVolumeSize "99Ei": must be at most 1099511627776 bytes on this node`},
		},
		{"an exponent", []string{KeyRootVolumeSize, "1e9"}, func(s *Spec) any { return s.Machine.RootSize }, int64(1_000_000_000), nil},
		{
			"root above the node's limit",
			[]string{KeyRootVolumeSize, "1Pi"},
			nil, nil,
			[]string{`VirtletRootVolumeSize "1Pi": must be at most 1099511627776 bytes on this node`},
		},
		{"UUID", []string{KeySystemUUID, "231700D5C9A65A49B38D0123456789AB"}, func(s *Spec) any { return s.Machine.UUID }, "231700d5-c9a6-5a49-b38d-0123456789ab", nil},
		{
			"no UUID",
			[]string{KeySystemUUID, "231700d5"},
			nil, nil,
			[]string{`VirtletSystemUUID "231700d5": must be a UUID other than zero: 32 hexadecimal digits, with or without hyphens`},
		},
		{"config drive in any case", []string{KeyImageType, "ConfigDrive"}, func(s *Spec) any { return s.CloudInit.Type }, ConfigDrive, nil},
		{"unknown image type", []string{KeyImageType, "ova"}, nil, nil, []string{`VirtletCloudInitImageType "ova": must be nocloud or configdrive`}},
		{"meta-data", []string{KeyMetaData, `{"instance-id": "mine"}`}, func(s *Spec) any { return s.CloudInit.MetaData }, map[string]any{"instance-id": "mine"}, nil},
		{"meta-data is a map", []string{KeyMetaData, `[1]`}, nil, nil, []string{`VirtletCloudInitMetaData "[1]": must be a map of keys to values`}},
		{
			"SSH keys, a line each",
			[]string{KeySSHKeys, "ssh-rsa A a@b\n\n  ssh-ed25519 B\n"},
			func(s *Spec) any { return s.CloudInit.SSHKeys },
			[]string{"ssh-rsa A a@b", "ssh-ed25519 B"},
			nil,
		},
		{"a boolean", []string{KeyForceDHCP, "true"}, func(s *Spec) any { return s.CloudInit.ForceDHCP }, true, nil},
		{"no boolean", []string{KeyForceDHCP, "yes"}, nil, nil, []string{`VirtletForceDHCPNetworkConfig "yes": must be false or true`}},
		{"an own key that there is not", []string{Own + "cpu-modl", "x"}, nil, nil, []string{`vm.muster.dev/cpu-modl "x": there is no such annotation`}},
		{"others' annotations are not looked at", []string{"example.com/x", "<"}, func(s *Spec) any { return s.Pod.Annotations["example.com/x"] }, "<", nil},
		{"a screen", []string{OwnVNC, "true"}, func(s *Spec) any { return s.Machine.VNC }, true, nil},
		{"a script stays as it is", []string{KeyUserDataScript, "#!/bin/sh\necho a: b\n"}, func(s *Spec) any { return s.CloudInit.Script }, "#!/bin/sh\necho a: b\n", nil},
		{
			"a source key without a source",
			[]string{KeyUserDataSourceKey, "x"},
			nil, nil,
			[]string{`VirtletCloudInitUserDataSourceKey "x": needs VirtletCloudInitUserDataSource, which is not set`},
		},
		{"three parts", []string{KeyUserDataSource, "secret/a/b"}, nil, nil, []string{`VirtletCloudInitUserDataSource "secret/a/b": must be configmap/NAME or secret/NAME`}},
		{
			"a Secret that the pod does not mount",
			[]string{KeySSHKeySource, "secret/other"},
			nil, nil,
			[]string{`VirtletSSHKeySource "secret/other": the pod must mount this secret: a machine is told only what its pod can read`},
		},
		{
			"a long value is shortened",
			[]string{KeyDiskDriver, strings.Repeat("x", 500)},
			nil, nil,
			[]string{`VirtletDiskDriver "` + strings.Repeat("x", 48) + `…": must be scsi, virtio or nvme`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, err := Judge(Input{Sandbox: pod(test.a...), Container: container(), Node: Node{MaxRootSize: 1 << 40}})
			if d := cmp.Diff(test.bad, problems(t, err)); d != "" {
				t.Fatal(d)
			}
			if test.got == nil {
				return
			}
			if d := cmp.Diff(test.want, test.got(s)); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestSources: what is told from ConfigMaps and Secrets, and that their contents never stand in an error.
func TestSources(t *testing.T) {
	t.Parallel()
	sources := Sources{
		{Secret, "login"}: {
			"users": []byte("[{name: root}]"), "runcmd": []byte("#!/bin/sh\necho one: two\n"), "count": []byte("3"),
			"ssh_pwauth": []byte("yes"), "b64": []byte("IyEvYmluL3NoCg=="), "authorized_keys": []byte("ssh-rsa S\n"), "other": []byte("ssh-rsa O"),
		},
		{ConfigMap, "broken"}: {"a": []byte("hunter2: [")},
		{ConfigMap, "files"}: {
			"motd": []byte("aGVsbG8="), "motd_path": []byte("/etc/motd"),
			"conf": []byte("a=b"), "conf_path": []byte("/etc/x/../conf"), "conf_encoding": []byte("plain"),
			"lost": []byte("x"),
		},
		{ConfigMap, "good"}: {"a": []byte("aGVsbG8="), "a_path": []byte("/b"), "c": []byte("a=b"), "c_path": []byte("/a"), "c_encoding": []byte("plain")},
	}
	for _, test := range []struct {
		name string
		a    []string
		got  func(*Spec) any
		want any
		bad  []string
	}{
		{
			"each value is YAML, and a script stays whole",
			[]string{KeyUserDataSource, "Secret/login"},
			func(s *Spec) any {
				return []any{s.CloudInit.UserData["users"], s.CloudInit.UserData["runcmd"], s.CloudInit.UserData["count"], s.CloudInit.UserData["ssh_pwauth"]}
			},
			[]any{[]any{map[string]any{"name": "root"}}, "#!/bin/sh\necho one: two\n", int64(3), true},
			nil,
		},
		{
			"the annotation is laid over",
			[]string{KeyUserDataSource, "secret/login", KeyUserData, "{users: [{name: me}], count: 4}"},
			func(s *Spec) any { return []any{s.CloudInit.UserData["users"], s.CloudInit.UserData["count"]} },
			[]any{[]any{map[string]any{"name": "root"}, map[string]any{"name": "me"}}, int64(4)},
			nil,
		},
		{
			"or replaces it",
			[]string{KeyUserDataSource, "secret/login", KeyUserData, "{count: 4}", KeyUserDataOverwrite, "true"},
			func(s *Spec) any { return s.CloudInit.UserData },
			map[string]any{"count": int64(4)},
			nil,
		},
		{
			"one key as the script, whole",
			[]string{KeyUserDataSource, "secret/login", KeyUserDataSourceKey, "runcmd", KeyUserDataScript, "loses"},
			func(s *Spec) any { return s.CloudInit.Script }, "#!/bin/sh\necho one: two\n", nil,
		},
		{
			"in base64",
			[]string{KeyUserDataSource, "secret/login", KeyUserDataSourceKey, "b64", KeyUserDataEncoding, "base64"},
			func(s *Spec) any { return s.CloudInit.Script }, "#!/bin/sh\n", nil,
		},
		{
			"which it is not",
			[]string{KeyUserDataSource, "secret/login", KeyUserDataSourceKey, "runcmd", KeyUserDataEncoding, "base64"},
			nil, nil,
			[]string{`VirtletCloudInitUserDataSourceKey "runcmd": the value of this key of secret/login must be base64`},
		},
		{
			"a key that there is not",
			[]string{KeyUserDataSource, "secret/login", KeyUserDataSourceKey, "x"},
			nil, nil,
			[]string{`VirtletCloudInitUserDataSourceKey "x": secret/login has no such key`},
		},
		{
			"the source's SSH keys first",
			[]string{KeySSHKeySource, "secret/login", KeySSHKeys, "ssh-rsa A"},
			func(s *Spec) any { return s.CloudInit.SSHKeys },
			[]string{"ssh-rsa S", "ssh-rsa A"},
			nil,
		},
		{
			"overwritten",
			[]string{KeySSHKeySource, "secret/login", KeySSHKeys, "ssh-rsa A", KeyUserDataOverwrite, "true"},
			func(s *Spec) any { return s.CloudInit.SSHKeys },
			[]string{"ssh-rsa A"},
			nil,
		},
		{"of another key", []string{KeySSHKeySource, "secret/login/other"}, func(s *Spec) any { return s.CloudInit.SSHKeys }, []string{"ssh-rsa O"}, nil},
		{
			"what a source holds is not told",
			[]string{KeyUserDataSource, "configmap/broken"},
			nil, nil,
			[]string{`VirtletCloudInitUserDataSource "configmap/broken": the value of key "a" must be YAML, in the bounds of user-data`},
		},
		{
			"files",
			[]string{KeyFiles, "configmap/good"},
			func(s *Spec) any { return s.Files },
			[]File{{"/a", []byte("a=b")}, {"/b", []byte("hello")}},
			nil,
		},
		{"files with wrong paths", []string{KeyFiles, "configmap/files"}, nil, nil, []string{
			`VirtletFilesFromDataSource "configmap/files key conf": "conf_path" must be an absolute path, without '..' and control characters`,
			`VirtletFilesFromDataSource "configmap/files key lost": has no "lost_path" beside it`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, err := Judge(Input{Sandbox: pod(test.a...), Container: container(), Sources: sources})
			if d := cmp.Diff(test.bad, problems(t, err)); d != "" {
				t.Fatal(d)
			}
			if test.got == nil {
				return
			}
			if d := cmp.Diff(test.want, test.got(s)); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestWanted: spec says what it wants; what is not well formed is not asked for.
func TestWanted(t *testing.T) {
	t.Parallel()
	got := Wanted(pod(KeyUserDataSource, "secret/b", KeySSHKeySource, "SECRET/b/key", KeyFiles, "configmap/a"))
	if d := cmp.Diff([]Source{{ConfigMap, "a"}, {Secret, "b"}}, got); d != "" {
		t.Error(d)
	}
	if got := Wanted(pod(KeyUserDataSource, "secret/../b", KeySSHKeySource, "node/x")); len(got) != 0 {
		t.Errorf("wanted %v", got)
	}
	// With a sandbox alone there are no sources yet, and that is no problem.
	judged(t, Input{Sandbox: pod(KeyUserDataSource, "secret/b")})
	// Nor is there a limit of memory that NUMA cells could disagree with.
	judged(t, Input{Sandbox: pod(KeyCPUSetting, "numa: {cell: [{cpus: '0', memory: 8, unit: GiB}]}")})
}
