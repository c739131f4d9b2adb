// Command realnode is a real node for a lab: containerd, runc, a kubelet and kube-proxy, joined to the lab's API server beside its
// simulated nodes, so that what only a real node does (images, probes, volumes, grace, Services, logs) can be seen.
//
// The node is a machine of its own as far as Linux lets one be: it has its own mounts, processes, network, host name and a part of
// the machine's cgroups. So it needs root and changes nothing of the machine but for a link to the node and a route to its pods,
// and everything of it, pods included, ends with this process, however that ends.
//
// It can have more programs than those, and its kubelet another endpoint than containerd's: a runtime that stands before it.
//
// containerd, runc, the CNI plugins, iptables, mount and busybox are the machine's own programs; the kubelet, kube-proxy and the
// plugin that offers simulated GPUs are in this one, which starts itself:
//
//	up          the outside: link, cgroups, folder
//	init        process 1 of the node: nothing but a parent to orphans
//	run         mounts, addresses, and the node's programs until one of them ends
//	kubelet     Kubernetes' own, likewise kube-proxy
//
// It is a module of its own because a kubelet needs hundreds of packages that Muster does not.
package main
