// Package network owns the network of every pod that is a machine, in a process of its own: it makes the pod's network namespace, has CNI
// plugins fill it, puts a tap beside what they made, answers the guest's DHCP, and hands the tap's file descriptor to whoever starts QEMU.
//
//	runtime ── Add, Recover, Release, List, Status ──┐
//	                                                 ├─ unix socket ─ Server ─ Manager ─┬─ plugins (CNI)
//	wrapper ── Get(token) ◄── descriptors ───────────┘                                  ├─ machine (namespaces, links, taps)
//	                                                                                    ├─ dhcp, one goroutine a pod
//	                                                                                    └─ store (bbolt)
//
//	          the pod's network namespace
//	          ┌──────────────────────────────────────────────────────────────┐
//	node ─────┼─ eth0 (a MAC of ours) ── br0 169.254.254.2/24 ── tap0 ── QEMU │  the guest's card has the MAC and the addresses
//	          │      ▲ no DHCP passes           no DHCP passes ▲ ▲           │  that CNI gave to eth0
//	          └──────────────────────────────────────────────────│───────────┘
//	                                                  packet socket of the DHCP server
//
// What holds:
//
//   - A pod is whole or gone. Its record is written before its first side effect and deleted after the last of its removal; what the process
//     finds half made when it starts, it removes: namespaces, links, CNI's reservations.
//   - A restart closes no tap and forgets no address. Taps are persistent and their descriptors belong to QEMU alone: this process opens one
//     only to hand it over. Addresses are CNI's and stand in the record.
//   - Whoever holds a tap holds it alone. A tap that QEMU still has cannot be handed over again (Conflict).
//   - Get needs the token that Add or Recover made last, once. The database has its hash.
//   - DHCP never leaves the pod in either direction, nor do solicitations and advertisements of routers. The server hears a guest by a packet
//     socket on the tap, before the bridge, and answers into the tap; a traffic-control filter ends all of them, of both families, that enter
//     the bridge by the tap or by the veth. A unicast renewal, which a guest sends to its default gateway's MAC, is heard all the same.
//
// The guest gets both families by DHCP and by its first-boot data. IPv6's routers it learns from advertisements that the DHCP server makes of
// CNI's routes and sends into the tap alone: no address is made of them (no SLAAC), as the pod's are CNI's. A gateway that is no link-local
// address is told as a stand-in with the gateway's MAC, which the server asks the pod's network for, as the guest would.
//
// A virtual function (SR-IOV) is passed through: it gets the card's MAC by its physical function, and the driver vfio-pci, and its own driver
// and its place in the namespace back before CNI takes it away. No DHCP of ours reaches its guest, which has its addresses by first-boot data. On hardware NOT
// CHECKED. Other links than veths and functions are refused with an error that names them.
//
// The folder of namespaces belongs to this package alone: what is in it without a record is removed at the start. Where the process and
// its callers have mount namespaces of their own, that folder has to be on a mount which propagates both ways.
package network
