// Package proxy gives a kubelet one CRI endpoint (v1, a unix socket) over several container runtimes. The primary is the runtime that the
// node had before; a pod goes to another only when it says so. The package knows the CRI and nothing of what the runtimes run.
//
// Messages are bytes. A call passes whole, with metadata, deadline, trailers and status details, whether or not the proxy knows its
// method, its fields or its stream; only the fields that say where it belongs are read, and only names of images are ever rewritten, in
// place. With no backend beside the primary everything passes as it is.
//
// # Where a call goes
//
// A sandbox goes by its runtime_handler: to the backend that declares it, and to the primary where none does. Without a handler, by the
// annotation kubernetes.io/target-runtime, whose value is a word of a backend: its name, one of its handlers, or one of its image
// prefixes without the slash. Another value is InvalidArgument. Without either, to the primary. Containers go where their sandbox is.
//
// An image goes by its spec's runtime_handler; by the same annotation in the spec (a kubelet of 1.36 puts the pod's there); by the
// annotation of the sandbox that it is pulled for, or where that sandbox runs (found by the pod's UID); by a prefix of its name, such as
// "muster-vm/". Where nothing tells, a pull goes to the primary, and for status and removal the primary is asked first, then the others
// in order. Ids and bare digests are looked for everywhere: status is the first answer that has the image, removal removes it wherever it
// is. A backend's prefix is stripped on the way in. In answers of the image service the names of a backend have its first prefix, the
// prefix that the request had, or none if the request found its way without. Containers' names of images are as the backend gives them.
//
// A method that the proxy does not know goes to the owner of the id in its first field, if that is one that it knows, else to the
// primary. One that may be a list by its name (List…, Stream…) and has no such id is Unimplemented while there are other backends: the
// primary's answer would leave out their pods, and a kubelet falls back to the list that it used before.
//
// # Ids, and what a restart does
//
// Ids are never changed: what a kubelet remembers of the primary's pods stays valid when the proxy is put before it, and when it is taken
// away again (for which the other backends' pods have to be gone, because nobody lists them then). Which runtime an id belongs to is
// known from answers (of creation and of lists). An id that is not known is asked for at every backend but the primary; what none has is
// the primary's. So nothing but a cache is lost when the proxy dies at any moment, and runtimes stay the only authority on what exists.
// Ids are random in every runtime, and no two share one.
//
// # A backend that does not answer
//
// Lists are asked of every backend at once, each with a deadline (Config.ListTimeout; for the primary three quarters of the caller's),
// and their answers are put one after the other, the primary's first. A kubelet takes a pod that a list leaves out for gone: it would end
// a deletion while the pod still runs, call a Job's pod failed, and forget which images needed credentials. So for a backend that fails,
// lists of sandboxes, containers and images give what it is known to have, for as long as it is away, in its last known states. There is
// no state for "not known now" that a kubelet takes for that: it replaces sandboxes that are not ready and kills containers in
// CONTAINER_UNKNOWN. What marks such an answer is the trailer muster-stale-backends, and the backend's condition in Status. Calls about a
// pod of it fail with Unavailable, upon which a kubelet leaves the pod as it is and tries again. Statistics and metrics of it are left
// out; ImageFsInfo fails without the primary, whose file systems a kubelet takes the first ones to be.
//
// What a backend has is what its last whole list said and what the calls since have done (created, started, stopped, removed). It is
// written to Config.State: creations before they are answered, the rest soon after. So a proxy that starts while a backend is away goes
// on:
//
//	what happens                               what a kubelet sees until the backend is back
//	killed between creation and writing it     an error instead of an id. It tries again, which the backend's absence prevents; its
//	                                           next list has the first
//	killed between a removal, or a change of   the pod, or its older state; calls about it fail
//	state, and writing it
//	the state file is damaged                  failing lists, until each backend has answered once
//
// A state file that does not exist means a new node: no pod can have gone to the other backends, and one that cannot be reached (a
// runtime may be a pod itself) has none. This never holds for the primary, which may have pods from before. So the file must not be
// deleted while a backend that has pods is away.
//
// What runs does not outlive a boot, so the file is best in a folder that does not either (/run), where writing it is cheap, too.
//
// # Answers that are made of several
//
// Status is the primary's, RuntimeReady and NetworkReady included, so that no other runtime makes a node NotReady. Each backend adds a
// condition Backend/NAME, its declared handlers with their features, and in verbose answers its info as NAME/KEY. How it is, is asked every five
// seconds by the proxy, so that a kubelet waits for the primary alone; one that is away is told at once. Version, RuntimeConfig
// are the primary's. UpdateRuntimeConfig goes to all, and again to a backend that comes back; the primary's answer counts.
// GetContainerEvents puts all streams together: if one ends or a backend comes back, the whole ends, because events were missed and a
// kubelet lists again when its stream ends. If one backend has no events the call is Unimplemented, and a kubelet lists instead.
// Streaming lists (StreamPodSandboxes and others) fall back to the plain list for a backend that lacks them; if the primary lacks them,
// so does the proxy. URLs of Exec, Attach and PortForward pass; one that names a port but no host gets 127.0.0.1.
package proxy
