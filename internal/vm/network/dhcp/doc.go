// Package dhcp answers the DHCP (IPv4) of the guests of one pod: each card gets the one address that CNI gave it. There is nothing to
// allocate, so that the answer is a pure function of card and question (RFC 2131, 2132, 3397, 3442), and nothing to forget.
//
//	tap ──frame──► packet socket ──► parse ──► Answer ──► frame ──► the same tap
//
// The server hears only taps: what a filter in the kernel lets through is UDP to port 67 that a guest sent. Its answers go into the tap by
// which the question came, never to a bridge. Leaks is the filter that keeps the same packets from going further.
//
// A guest can send what it likes: a malformed packet is dropped in silence, a flood is read at a bounded rate and otherwise left to the
// socket's buffer.
package dhcp
