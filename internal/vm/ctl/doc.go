// Package ctl reaches machines from outside of the cluster, through the Kubernetes API and with the rights of who asks: what virtletctl did. It opens no port but on
// the loopback, and runs nothing by a shell.
//
// A scenario. Somebody asks for ssh to cirros@web. The pod is read, a free port of 127.0.0.1 is forwarded to its port 22, and the user's own ssh is run against
// that, with the pod's name as the host's: keys of different pods are not taken for one another's. When ssh ends, so does the forwarding.
//
// A machine's console is the container's attach, which needs no more than the right to it. Its screen and libvirt are on its node: for these a command is run in the pod of muster-vm
// there, which is a right that rules the node.
package ctl
