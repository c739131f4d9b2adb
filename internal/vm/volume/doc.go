// Package volume makes of what a pod mounts what its machine gets: disks, files of the first-boot data, and directories that are shared; and takes
// all of it away again. Setup gives the inputs of packages domain and cloudinit; Teardown needs nothing but the container's id.
//
// A scenario. The container 3f1c of pod team/web mounts a ConfigMap at /etc/conf, a read-only directory of the node at /data and a block volume at
// /dev/data, and has a FlexVolume of type qcow2 at /scratch. testdata/scsi.txt is what its machine gets: the root sda, the block volume sdb, the
// FlexVolume's disk with the file system that the guest mounts, the ConfigMap's files, and a share with the tag muster-0. In the directory are then
//
//	3f1c/pod                           whose it is: the pod's UID
//	3f1c/000-root/root.qcow2           an empty disk over the image
//	3f1c/001-block/disk                a special file of the block device, QEMU's own
//	3f1c/002-flex/volume.qcow2
//	3f1c/003-share/{lock,pid}          the file server, whose socket is in another directory
//	3f1c/ready
//
// # Kinds
//
// Each kind has the same three steps (see volume in volume.go): setup makes what is handed over, or finds it made; write fills it, when everything is
// set up; teardown takes away what is not a file of the volume's directory. The bus of disks is package domain's matter (Places): no kind knows it.
//
//	root        a qcow2 disk over the image, written here: see qcow2.go. It is as large as VirtletRootVolumeSize, if that is more than the image
//	persistent  a block device with devicePath "/": Virtlet's header in its first sector, the image from the second on, which the
//	            guest gets as a slice of the device. The header is there only while the image is whole: it goes before the copy
//	            begins, and comes when the copy is synced. A device with another header, or none, is written anew, as in Virtlet; one with a header
//	            of another version is refused
//	block       a block device as a disk
//	flex        a FlexVolume (package flexvolume): a disk with one ext4 partition, a block device of the node's list, or a volume of Ceph's
//	directory   a configMap, secret, projected or downward volume: its files, as they are now
//	single file one file, as it is now
//	share       any other directory, by virtiofs
//
// # Files in the root
//
// Files that the pod's annotation names are written into the root before anything boots from it, by debugfs: see inject.go. It takes the first ext2, ext3 or
// ext4 file system with a directory /etc, on the disk itself, in a primary partition of an MBR or in a GPT. Images without one (logical volumes, other
// file systems, one that was not unmounted) are refused by name. Files have mode 0644 and are root's.
//
// # What holds
//
// What is made lies in a directory of the container's, or is named by a file there that was written first. A process may die before or
// after any step: the next Setup goes on, or Teardown takes the half away (TestCrash…, TestStories). Where Setup fails, it undoes what it made, last things
// first; but when all had been made before, it undoes nothing, because the machine may run.
//
// No file outside of the pod's volumes is read: links are followed only within the volume that they lie in, files are opened before they are
// judged and never twice, and how much is read is bounded over all of a pod.
//
// A block device is given to QEMU as a special file of its own, with QEMU's owner: nobody's permissions in /dev are changed, none have to be
// given back, and what was judged is what is opened. A device that is written by one pod's machine is refused to other pods, and so is one
// that the node has mounted.
//
// A file server has its own session and survives this process. A read-only share is a read-only mount in a mount namespace of the server's: it
// is nowhere else, and goes with the server.
package volume
