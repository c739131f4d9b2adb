// Package image gets the disks that VMs start from, judges them, and keeps them. It answers: which file, of which format and size, is the image of
// this name; and why not. It knows nothing of CRI, Kubernetes objects or VMs.
//
// # Where a name comes from
//
// The first of these rules that holds decides. It looks at the name without tag and digest, as Virtlet did, so that the tag which a
// kubelet adds changes nothing. The prefixes "muster-vm/" and "virtlet.cloud/" say which runtime a name is for, and are cut off before.
//
//  1. A name with a scheme says it itself: oci:// a registry, https:// and http:// a URL. Kubelets let no such name pass; other clients may use them.
//  2. A translation (VirtletImageMapping objects, Virtlet's files) that matches: its URL. Exact names of all mappings come before all
//     regexps. Within each, objects come before files, mappings in the order of their names (the caller's, for objects), rules in the
//     order in which they are written. Regexps match whole names. A translation's URL may be oci:// too.
//  3. A name whose last component ends in .qcow2, .img or .raw is a URL without its scheme (Options.DownloadProtocol).
//  4. Any other name is a registry's, with docker.io for those that name no host.
//
// Options.DefaultSource replaces rules 3 and 4: SourceURL is what Virtlet did. A name without a host is not looked for by rules 3 and 4 while a
// mapping cannot be read: somebody else could offer it there.
//
// A digest in a name is the manifest's for a registry, and the disk file's for a URL.
//
// # What is taken
//
// From a registry: an artifact with one layer that is a disk (see diskTypes and plainTypes), or a containerDisk as KubeVirt has them. From a URL: the disk
// itself. qcow2 is taken as package qcow2 says. Raw is what has the magic number of no other format that is known, and whole sectors. The format
// follows from the content alone; a media type or a file's name that says otherwise is an error.
//
// # Where no request goes
//
// Requests go by http and https, to no link-local, multicast or metadata address, whatever name or redirect leads there, and to the node itself only from a
// registry's name, a mirror or a translation, and by redirects from there. (A proxy that is configured may be anywhere, and resolves names itself.) https is
// never left for http, but for a URL whose name has a digest. Registries are asked with TLS, but for localhost and http:// mirrors. Credentials
// and client certificates go to the host that they are for, and not where it redirects to; a registry's token server gets what the protocol
// gives it, and may not redirect.
//
// # The store
//
// One directory: disks by digest, parts of pulls, and an index that is exchanged by renaming. A file has its last name only when it was
// verified and synced, and an image is in the index only when its file has that name, so that after a crash there is the image or there is not. What is left
// over is a rest of a pull, which the next pull goes on with, or garbage (GC).
//
// Differences from Virtlet, each on purpose: regexps are anchored; order is defined; unknown fields and unusable certificates of translations are
// errors; redirects lose credentials; a page of HTML is no disk; a name can be a registry's. The image's id is its digest everywhere.
package image
