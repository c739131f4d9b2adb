// Package runtime is muster-vm's container runtime: a server of the CRI v1 whose containers are virtual machines. It is where the parts meet:
// it judges nothing, builds no XML and runs no process itself, but says who does what in which order, and keeps the records that make
// this order survive a crash. What it needs of each part is in contract.go.
//
// A scenario. testdata/life.txtar shows a pod from its first call to its last: what the kubelet calls, what it is answered, and what happens
// on the node for it. Every scenario there is read, and checked, as a conversation.
//
// # A pod has one machine at a time
//
// A sandbox is the pod's network. A container is a machine on it: init containers boot one after another on the same taps. A second container
// while one runs is refused by name. A container is started once; its machine's end is its own.
//
//	CreateContainer   image, judged Spec, volumes, first-boot data           nothing runs, everything is there
//	StartContainer    console, token for the taps, define, start held,       in the pod's cgroup before the first instruction
//	                  into the pod's cgroup, let go
//	StopContainer     power button every 5 s; at the deadline, destroy
//	the end           log written, exit code read, record, undefine
//	RemoveContainer   volumes, folder, cgroup, record
//
// The exit code is the decimal line that the guest wrote to its port dev.muster.exit; without one, 0 after a power-off, 137 when
// it was destroyed (or lost: the node went down), 139 when it crashed.
//
// # Suspended machines
//
// A pod can ask that its machine is saved when it is stopped with grace. StopContainer then saves it to the node, its end puts it on the pod's claim, and CreateContainer and StartContainer of the pod
// that replaces the pod begin from there: suspend.go has the order of it.
//
// # Crashes
//
// An intent is recorded before the first side effect of everything (Phase), so that what exists without a record is nobody's. At the start, when
// the hypervisor comes back, and every minute, Reconcile compares records with what is there, and says what to do: machines that ran
// run on, what was half done is undone or finished, what no record owns goes. It is a pure function.
//
// # Who waits for whom
//
// Calls that change a pod wait for each other, and for those of no other pod: each sandbox has a lock. StopContainer does not hold it while it
// waits for the guest. Lists and statuses wait for nobody: they read the records in memory, which events of the hypervisor
// keep true. While a part is gone they go on; calls that need it fail with Unavailable, and Status says so.
package runtime
