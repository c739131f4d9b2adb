// Package node puts the parts of the container runtime together for one node, and is where their words are translated: what package runtime asks for
// in its contract.go, the parts give in their own terms. It decides nothing that a pod can see.
//
// A scenario. Run opens the records, the image store, the volumes and libvirt, makes a runtime.Server of them and serves the CRI at a socket. A guest says
// "login: " and writes 7 to its exit port: the console that was opened before the machine started has both in files of the container's folder. Run is
// killed, and started again: the machine runs on, its console is opened where it was, and when it ends its code is 7.
package node
