// Package flexvolume is Virtlet's volume driver for kubelets, virtlet/flexvolume_driver: disks that a pod's volumes describe. The driver mounts
// nothing that a container could use. It leaves the volume's options, judged, in a file of the volume's directory; package volume reads it
// there (Read) and makes a disk of it when the pod's machine is made.
//
// A scenario. A pod has a volume "scratch" with the driver's name and the options {"type": "qcow2", "capacity": "2GiB"}. The kubelet calls
//
//	flexvolume_driver mount /var/lib/kubelet/pods/UID/volumes/virtlet~flexvolume_driver/scratch '{"type":"qcow2","capacity":"2GiB",…}'
//
// and gets {"status":"Success"}. In that directory is then a memory file system of root's own, and in it virtlet-flexvolume.json. With a
// capacity of "much" the kubelet gets, and the pod's event shows,
//
//	{"status":"Failure","message":"mount scratch: option capacity \"much\": must be a positive whole number with a unit of libvirt's, such as 10GiB"}
//
// # Options
//
//	type      qcow2: a disk of its own that goes with the pod; raw: a block device of the node; ceph: a volume of a Ceph cluster
//	part      the partition that a mount of the volume is: 0 to 128, 0 is the whole disk, default 1
//	capacity  of qcow2: a number with a unit of libvirt's (none or B, K or KiB, KB, M, MB, …), default 1024MB
//	path      of raw: below /dev; which ones a pod may have is the node's configuration, and package volume's to judge
//	monitor, pool, volume, user, secret, protocol   of ceph: monitors are HOST:PORT, several with commas between; secret is the
//	          user's key in base64, and can come from the Secret that the volume's secretRef names, under the key "secret"
//
// Unlike in Virtlet an option that is none of these is an error, the options never lie on a disk (they can hold a key), and init says that
// nothing is attached, so that kubelets need not be told to attach volumes themselves.
package flexvolume
