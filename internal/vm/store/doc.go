// Package store is what the runtime remembers: its sandboxes, its containers, and what it is about to do to one of them. It is one file
// (bbolt) that one process has open. Reconcile compares it with what is there at a start, and says what to do.
//
// A scenario. The kubelet asks for a container. The runtime puts an Intent: create container c1, with the files and the domain that it is going to
// make. It makes the disk and dies. When it starts again, Reconcile finds an intent without an end and answers: remove the disk, drop the
// intent, "the container was never told to the kubelet, which asks again". testdata/reconcile.txt has more of them.
//
// # An intent before each side effect
//
// Whoever changes something outside the store writes first what that will be, and in the transaction that ends it, takes the intent away
// and puts the records that say how it ended. So a record is there only when what it speaks of is whole, and everything that is
// there belongs to a record or to an intent. An object has one intent at a time. This is what is found after a crash, and becomes of it:
//
//	create sandbox     undone: the network is released, files go
//	stop sandbox       done: its machines end, its network is released
//	remove sandbox     done: the same, and its containers and files go
//	create container   undone: the domain and the files go
//	start container    whatever libvirt says: it runs, it has ended, or it never ran and is still Created; one that
//	                   was not let go on yet is ended
//	stop container     gone on with until the deadline that the intent has
//	remove container   done
//
// # What is kept, and what is not
//
// No secret is written. A kubelet puts values of Secrets into a container's environment, and by $(NAME) into its command and arguments; so
// none of the three is kept, neither is what a data source says. Nothing after CreateContainer needs them: that call has the whole
// configuration, and the ISO that it makes of it is one of the files that the container owns. A creation that was cut short is
// therefore undone, never gone on with: the kubelet asks again and tells everything again. Of annotations, those whose value is data for the guest are kept by name
// only, with Withheld as their value; which those are, the caller says, and kubectl's copy of the whole manifest is always one. What is kept is
// written out field by field in SandboxOf and ContainerOf, so that a new field of the CRI is left out until somebody decides.
//
// # Versions
//
// The file has a format, a number. A program reads those up to its own and brings an older one up to date in one transaction; one that is newer
// is refused and left as it is. Within a format no field is added: records are read strictly, because a program that drops a field that it
// does not know would lose it at the next write.
//
// # A damaged file
//
// Each record has a checksum, and before the database is opened its pages are walked, so that a damaged file is an error and neither a wrong
// record nor a panic. It is refused, a copy is kept beside it, and the error says what to do. It is never replaced by itself: with no
// records, every machine of the node would belong to nobody and end.
package store
