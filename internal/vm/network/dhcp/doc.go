// Package dhcp answers the DHCP of the guests of one pod, of both families: each card gets the addresses that CNI gave it. There is nothing
// to allocate, so that the answer is a pure function of card and question (RFC 2131, 2132, 3397, 3442; RFC 8415, 3646), and nothing to forget.
//
//	tap ──frame──► packet socket ──► parse ──► Answer, Answer6, advertisements ──► frame ──► the same tap
//
// The server hears only taps: what a filter in the kernel lets through is UDP to the ports 67 and 547 that a guest sent, and its questions for
// IPv6's routers. Its answers go into the tap by which the question came, never to a bridge. Leaks is the filter that keeps the same packets
// from going further.
//
// IPv6 has its routes from advertisements alone (RFC 4861, 4191), whose source is the router. CNI's gateways mostly have an address of the
// pod's subnet and a link-local one that nobody says, so that a guest is told a stand-in, with the gateway's MAC as the neighbour behind it.
// The server asks the pod's network for that MAC, as the guest would, and answers the guest when it asks for the stand-in. Packets then go
// to the gateway itself.
//
// A guest can send what it likes: a malformed packet is dropped in silence, a flood is read at a bounded rate and otherwise left to the
// socket's buffer.
package dhcp
