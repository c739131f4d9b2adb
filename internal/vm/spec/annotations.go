package spec

import (
	"fmt"
	"strings"
)

// Own is the prefix of Muster's own keys.
const Own = "vm.muster.dev/"

// The keys that Virtlet had.
const (
	KeyVCPUCount         = "VirtletVCPUCount"
	KeyDiskDriver        = "VirtletDiskDriver"
	KeyCPUModel          = "VirtletCPUModel"
	KeyCPUSetting        = "VirtletLibvirtCPUSetting"
	KeyRootVolumeSize    = "VirtletRootVolumeSize"
	KeySystemUUID        = "VirtletSystemUUID"
	KeyImageType         = "VirtletCloudInitImageType"
	KeyMetaData          = "VirtletCloudInitMetaData"
	KeyUserData          = "VirtletCloudInitUserData"
	KeyUserDataOverwrite = "VirtletCloudInitUserDataOverwrite"
	KeyUserDataScript    = "VirtletCloudInitUserDataScript"
	KeyUserDataSource    = "VirtletCloudInitUserDataSource"
	KeyUserDataSourceKey = "VirtletCloudInitUserDataSourceKey"
	KeyUserDataEncoding  = "VirtletCloudInitUserDataSourceEncoding"
	KeySSHKeys           = "VirtletSSHKeys"
	KeySSHKeySource      = "VirtletSSHKeySource"
	KeyFiles             = "VirtletFilesFromDataSource"
	KeyChownMounts       = "VirtletChown9pfsMounts"
	KeyForceDHCP         = "VirtletForceDHCPNetworkConfig"
	KeyNetworkDevice     = "VirtletNetworkDevice"
	KeyTargetRuntime     = "kubernetes.io/target-runtime"
)

// Muster's own keys.
const (
	OwnCPUModel  = Own + "cpu-model"
	OwnVNC       = Own + "vnc"
	OwnOnStop    = Own + "on-stop"
	OwnSuspendTo = Own + "suspend-to"
	OwnOwner     = Own + "owner"
)

// keyGrace is where the kubelet tells a container the pod's grace, in seconds.
const keyGrace = "io.kubernetes.pod.terminationGracePeriod"

// MountScriptToken is what stands for the script that links block devices and mounts volumes in a user-data script.
const MountScriptToken = "@virtlet-mount-script@"

// Annotation is one row of the table of annotations.
type Annotation struct {
	Key string
	// Holds says which values there are, Default what its absence means, Does what it does.
	Holds, Default, Does string
	// Differs says where it means something else than in Virtlet, and why; "" for the same. Of Muster's own keys it says nothing.
	Differs string
}

// Annotations is the table of all annotations of a pod that muster-vm reads, Virtlet's first. It is a new slice at each call.
func Annotations() []Annotation {
	return []Annotation{
		{KeyVCPUCount, "whole number, at most 255", "1", "CPUs of the machine; 0 and less is 1", "the node may set a lower limit"},
		{KeyDiskDriver, "`scsi`, `virtio`, `nvme`", "`scsi`", "bus of the machine's disks", "`nvme` is new"},
		{
			KeyCPUModel, "`host-model`", "the node's", "the host's CPU model, nested virtualization included where the host has it",
			"the feature for nested virtualization is required only where the host has it: elsewhere such a machine could not start",
		},
		{
			KeyCPUSetting, "YAML of libvirt's `cpu` element, by field names in any case", "", "the whole `cpu` element; wins over a CPU model",
			"an unknown field or value is an error, as is a topology or memory that is not the machine's; distances and caches of NUMA cells are not taken",
		},
		{KeyRootVolumeSize, "quantity", "the image's size", "size of the root disk, if larger than the image's", "the node may set an upper limit"},
		{
			KeySystemUUID, "UUID", "made from the container's id", "UUID of domain and SMBIOS; must be the only one on its node",
			"it is not the container's id, which is random",
		},
		{KeyImageType, "`nocloud`, `configdrive`, in any case", "`nocloud`", "form of the first-boot data", ""},
		{KeyMetaData, "YAML or JSON map", "", "its keys replace generated meta-data", ""},
		{KeyUserData, "YAML or JSON map", "", "merged over the source's user-data: maps key by key, lists appended, else replaced", ""},
		{KeyUserDataOverwrite, "`true`, `false`", "`false`", "user-data replaces the source's instead; so do SSH keys", "any other value is an error, where Virtlet took it for false"},
		{KeyUserDataScript, "text", "", "the whole user-data; `" + MountScriptToken + "` in it becomes a script that links block devices and mounts volumes", ""},
		{
			KeyUserDataSource, "`configmap/NAME`, `secret/NAME`", "", "each key of it, its value read as YAML, is a key of the user-data",
			"only of a ConfigMap or Secret that the pod mounts; a value that begins with `#!` stays one text; a value that is not YAML is an error, where Virtlet dropped it",
		},
		{
			KeyUserDataSourceKey, "key of the source", "", "that key's value is the script, as if in " + KeyUserDataScript + ", and wins over it",
			"the value is taken as it is: Virtlet read it as YAML first, and lost all but the last line of many scripts",
		},
		{KeyUserDataEncoding, "`plain`, `base64`", "`plain`", "how that value is written", "a wrong value is an error without a source key too"},
		{KeySSHKeys, "keys, one a line", "", "added to the source's", ""},
		{KeySSHKeySource, "`KIND/NAME[/KEY]`", "key `authorized_keys`", "SSH keys, one a line", "only of what the pod mounts"},
		{
			KeyFiles, "`KIND/NAME`", "", "files written into the root before the first boot: key `X` has the content, `X_path` the path, `X_encoding` is `base64` or `plain`",
			"only of what the pod mounts; a path must be absolute, without `..`; the image needs an ext2, ext3 or ext4 file system with `/etc`, and the same file is not written again into a persistent root that holds its image",
		},
		{KeyChownMounts, "`true`, `false`", "`false`", "nothing", "virtiofs keeps owners as they are, so nothing has to be given away"},
		{KeyForceDHCP, "`true`, `false`", "`false`", "leaves the network configuration out of the first-boot data", "any other value is an error"},
		{KeyNetworkDevice, "`virtio`, `e1000`, `e1000e`", "`virtio`", "model of the network cards", ""},
		{KeyTargetRuntime, "name of a runtime", "", "where the proxy sends a pod without RuntimeClass", "a RuntimeClass wins over it"},
		{OwnCPUModel, "`host-model`, `host-passthrough`, `maximum`, or a model of libvirt's", "the node's", "CPU model; not together with " + KeyCPUModel, ""},
		{OwnVNC, "`true`, `false`", "`false`", "a screen, over a socket of the node", ""},
		{
			OwnOnStop, "`shutdown`, `suspend`", "`shutdown`",
			"what a stop with grace does: end the machine, or save it with its memory so that the pod which replaces this one resumes it. " +
				"With virtiofs mounts, NVMe disks or passed-through devices, or with more memory than can be saved in the grace, it is refused", "",
		},
		{
			OwnSuspendTo, "mountPath of a claim", "",
			"the claim that keeps the machine while no pod has it; needed by, and only with, `" + OwnOnStop + ": suspend`. The guest does not see it", "",
		},
		{
			OwnOwner, "`UID` or `UID/INDEX`", "of a Job's pod: the Job's, and its completion index",
			"whose machine it is, and which of its owner's: the pod that has the same resumes it. Needed by a pod that is suspended and is no Job's", "",
		},
	}
}

// Table is the table of annotations as Markdown.
func Table() string {
	var virtlet, own strings.Builder
	fmt.Fprint(&virtlet, "| annotation | holds | default | does | unlike Virtlet |\n|---|---|---|---|---|\n")
	fmt.Fprint(&own, "| annotation | holds | default | does |\n|---|---|---|---|\n")
	for _, a := range Annotations() {
		if strings.HasPrefix(a.Key, Own) {
			fmt.Fprintf(&own, "| `%s` | %s | %s | %s |\n", a.Key, a.Holds, a.Default, a.Does)
		} else {
			fmt.Fprintf(&virtlet, "| `%s` | %s | %s | %s | %s |\n", a.Key, a.Holds, a.Default, a.Does, a.Differs)
		}
	}
	return virtlet.String() + "\n" + own.String()
}
