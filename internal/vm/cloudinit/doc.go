// Package cloudinit makes what a guest is told at its first boot: meta-data, user-data and the network's configuration, in the form of
// NoCloud or of ConfigDrive, and the ISO that holds them. Build is pure; only WriteISO touches a disk.
//
// A scenario. The pod team/web runs `sh -c "exit 3"` and mounts a ConfigMap at /etc/conf, a directory of the node at /data and a block volume
// at /dev/disk0. testdata/nocloud.txt is what its guest gets: meta-data that names the pod, with the container's command under "muster";
// user-data that writes the ConfigMap's files, mounts the directory by virtiofs and links the block device; and the addresses that CNI gave.
//
// # The guest contract
//
// Meta-data is JSON, and its key "muster" is a Contract: what a guest that is made for this may run instead of just booting. A guest of
// any other kind looks at cloud-init's keys, or at nothing, and works too.
//
// # User-data
//
// What the pod's annotations say is laid over the data of its source, and what the pod's volumes need is added: lists are appended, ours
// first, so that files of the same path are the annotation's. A script replaces all of it, as in Virtlet; then the script has to link
// devices and mount volumes by spec.MountScriptToken, and files of ConfigMaps and Secrets do not reach the guest.
package cloudinit
