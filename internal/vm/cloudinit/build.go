package cloudinit

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// Build makes the files. The same input gives the same bytes. An error of kind vm.Invalid says that the pod's volumes hold more than can
// be told.
func Build(in Input) (*Data, error) {
	if in.Spec == nil {
		return nil, errors.New("cloudinit: there is no Spec")
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	meta, err := in.metaData()
	if err != nil {
		return nil, err
	}
	user, err := in.userData()
	if err != nil {
		return nil, err
	}
	d := &Data{}
	add := func(name string, content []byte) {
		d.Files = append(d.Files, File{Path: name, Content: content, Mode: 0o644})
	}
	network := !in.Spec.CloudInit.ForceDHCP && !slices.ContainsFunc(in.Spec.Blocks, spec.Block.Root) && len(in.Network.Interfaces) > 0
	if in.Spec.CloudInit.Type == spec.ConfigDrive {
		d.Label = "config-2"
		add("openstack/latest/meta_data.json", meta)
		if network {
			text, err := indented(networkData(in.Network))
			if err != nil {
				return nil, err
			}
			add("openstack/latest/network_data.json", text)
		}
		add("openstack/latest/user_data", user)
		return d, nil
	}
	d.Label = "cidata"
	add("meta-data", meta)
	if network {
		text, err := marshalYAML(networkConfig(in.Network))
		if err != nil {
			return nil, err
		}
		add("network-config", text)
	}
	add("user-data", user)
	return d, nil
}

func (in *Input) check() error {
	if len(in.Files) > MaxFiles {
		return vm.Errorf(vm.Invalid, "pod %s: its ConfigMaps, Secrets and single files are %d files: must be at most %d", in.Spec.Pod, len(in.Files), MaxFiles)
	}
	total := 0
	for _, f := range in.Files {
		if !path.IsAbs(f.Path) {
			return fmt.Errorf("cloudinit: file %q: must have an absolute path", f.Path)
		}
		total += len(f.Content)
	}
	if total > MaxFileBytes {
		return vm.Errorf(vm.Invalid, "pod %s: its ConfigMaps, Secrets and single files hold %d bytes: must be at most %d", in.Spec.Pod, total, MaxFileBytes)
	}
	return nil
}

// metaData's instance-id has the pod's UID: a new pod of the same name, on the same persistent root, is a new instance.
func (in *Input) metaData() ([]byte, error) {
	p := in.Spec.Pod
	m := map[string]any{
		"instance-id":    p.Name + "." + p.Namespace + "." + p.UID,
		"local-hostname": p.Hostname,
		"muster":         in.contract(),
	}
	keys := in.Spec.CloudInit.SSHKeys
	if len(keys) > 0 {
		m["public-keys"] = keys
	}
	if in.Spec.CloudInit.Type == spec.ConfigDrive {
		m["uuid"], m["hostname"], m["name"] = in.UUID, p.Hostname, p.Name
		if len(keys) > 0 { // OpenStack's form
			named := map[string]string{}
			for i, key := range keys {
				named[fmt.Sprintf("key-%d", i)] = key
			}
			m["public_keys"] = named
		}
	}
	for key, value := range in.Spec.CloudInit.MetaData {
		m[key] = value
	}
	return indented(m)
}

func (in *Input) contract() Contract {
	c := in.Spec.Container
	out := Contract{Command: c.Command, Args: c.Args, WorkingDir: c.WorkingDir, DNSOptions: in.Network.DNS.Options}
	for _, v := range c.Env {
		out.Env = append(out.Env, v.Name+"="+v.Value)
	}
	for _, s := range in.Shares {
		out.Mounts = append(out.Mounts, ContractMount(s))
	}
	for _, d := range in.Devices {
		out.Devices = append(out.Devices, ContractDevice{Path: d.Path, Sysfs: d.Disk.Sysfs})
	}
	return out
}

// The files that user-data writes beside the volumes'.
const (
	environmentFile = "/etc/cloud/environment"
	mountScript     = "/etc/cloud/mount-volumes.sh"
	linkScript      = "/etc/cloud/symlink-devs.sh"
	perBootDir      = "/var/lib/cloud/scripts/per-boot"
)

func (in *Input) userData() ([]byte, error) {
	if script := in.Spec.CloudInit.Script; script != "" {
		return []byte(strings.ReplaceAll(script, spec.MountScriptToken, in.script(true, true))), nil
	}
	all := spec.Merge(in.generated(), in.Spec.CloudInit.UserData)
	in.relink(all)
	text, err := marshalYAML(all)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		text = nil
	}
	return append([]byte("#cloud-config\n"), text...), nil
}

// generated is the user-data that the pod's volumes and environment need.
func (in *Input) generated() map[string]any {
	out := map[string]any{}
	var files, mounts, commands []any
	write := func(where string, content []byte, mode uint32) {
		files = append(files, map[string]any{
			"path": where, "content": base64.StdEncoding.EncodeToString(content), "encoding": "b64", "permissions": fmt.Sprintf("%04o", mode&0o777),
		})
	}
	for _, f := range in.Files {
		write(f.Path, f.Content, f.Mode)
	}
	if text := in.environment(); text != "" {
		write(environmentFile, []byte(text), 0o644)
	}
	if len(in.Devices) > 0 {
		write(linkScript, []byte(in.script(true, false)), 0o755)
		commands = append(commands, linkScript, "mkdir -p "+perBootDir+" && ln -sf "+linkScript+" "+perBootDir+"/")
	}
	if len(in.Shares)+len(in.FileSystems) > 0 {
		write(mountScript, []byte(in.script(false, true)), 0o755)
		commands = append(commands, mountScript)
	}
	for _, fs := range in.FileSystems {
		if entry, ok := fstab(fs.part(fs.Disk.Link), fs.Path, "auto", fs.ReadOnly); ok {
			mounts = append(mounts, entry)
		}
	}
	for _, s := range in.Shares {
		if entry, ok := fstab(s.Tag, s.Path, "virtiofs", s.ReadOnly); ok {
			mounts = append(mounts, entry)
		}
	}
	for key, list := range map[string][]any{"mounts": mounts, "runcmd": commands, "write_files": files} {
		if len(list) > 0 {
			out[key] = list
		}
	}
	return out
}

// fstab is an entry of cloud-init's mounts. What fstab cannot hold is left to the script.
func fstab(what, where, kind string, readOnly bool) ([]any, bool) {
	if strings.ContainsAny(what+where, " \t#\\") {
		return nil, false
	}
	options := "defaults,nofail"
	if readOnly {
		options = "ro,nofail"
	}
	return []any{what, where, kind, options}, true
}

// part is the partition's link: udev writes -partN.
func (fs FileSystem) part(link string) string {
	if fs.Partition == 0 {
		return link
	}
	return fmt.Sprintf("%s-part%d", link, fs.Partition)
}

// relink lets mounts of the annotations name a block volume by its path in the container.
func (in *Input) relink(user map[string]any) {
	mounts, _ := user["mounts"].([]any)
	for _, entry := range mounts {
		list, _ := entry.([]any)
		if len(list) == 0 {
			continue
		}
		for _, d := range in.Devices {
			if list[0] == d.Path {
				list[0] = d.Disk.Link
			}
		}
	}
}

// environment is the container's, a line each. A value of several lines is in meta-data only: no reader of such a file would understand it.
func (in *Input) environment() string {
	var b strings.Builder
	for _, v := range in.Spec.Container.Env {
		if !strings.ContainsAny(v.Value, "\n\r") {
			fmt.Fprintf(&b, "%s=%s\n", v.Name, v.Value)
		}
	}
	return b.String()
}

// script is a shell script that may run any number of times, in a guest with or without udev.
func (in *Input) script(link, mount bool) string {
	var b strings.Builder
	fmt.Fprint(&b, "#!/bin/sh\n# Written by muster-vm. It may run any number of times.\n")
	if len(in.Devices)+len(in.FileSystems) > 0 {
		fmt.Fprint(&b, `disk() { for d in $1; do [ -e "$d" ] && echo "/dev/${d##*/}" && return; done; return 1; }`+"\n")
	}
	if link {
		for _, d := range in.Devices {
			fmt.Fprintf(&b, "d=$(disk %s) && mkdir -p %s && ln -sfn \"$d\" %s\n", quoted(d.Disk.Sysfs), quoted(path.Dir(d.Path)), quoted(d.Path))
		}
	}
	if mount {
		if len(in.FileSystems) > 0 {
			fmt.Fprint(&b, `part() { case "$1" in *[0-9]) echo "$1p$2";; *) echo "$1$2";; esac; }`+"\n")
		}
		for _, fs := range in.FileSystems {
			where, from, options := quoted(fs.Path), `"$d"`, ""
			if fs.Partition > 0 {
				from = fmt.Sprintf(`"$(part "$d" %d)"`, fs.Partition)
			}
			if fs.ReadOnly {
				options = "-o ro "
			}
			fmt.Fprintf(&b, "mountpoint -q %s || { d=$(disk %s) && mkdir -p %s && mount %s%s %s; }\n", where, quoted(fs.Disk.Sysfs), where, options, from, where)
		}
		for _, s := range in.Shares {
			where, options := quoted(s.Path), ""
			if s.ReadOnly {
				options = "-o ro "
			}
			fmt.Fprintf(&b, "mountpoint -q %s || { mkdir -p %s && mount -t virtiofs %s%s %s; }\n", where, where, options, quoted(s.Tag), where)
		}
	}
	return b.String()
}

// quoted is one word of a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

func marshalYAML(v any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	err := e.Close()
	return b.Bytes(), err
}
