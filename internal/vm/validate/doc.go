// Package validate looks whether a node can run machines, before a pod finds out. Each check says "ok" and what it saw, or what is wrong and what to do. It
// knows no part of muster-vm: what needs one is given as a function.
//
// A scenario. On a node whose /dev/kvm is there and does not work, control groups, CNI and libvirt are ok, and the self-test boot is not: "nothing was heard of the
// machine within 1m0s", and "use --domain-type qemu, or hardware whose virtualization works".
//
// Checks come one after another, each bounded in time; one that fails, hangs or panics ends none of the others.
package validate
