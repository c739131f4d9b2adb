package dhcp

import (
	"fmt"

	"golang.org/x/net/bpf"
)

// What traffic control does with what a filter returns in direct-action mode (linux/pkt_cls.h): −1 goes on, 2 drops.
const (
	goesOn = 0xffffffff
	drops  = 2
)

// Leaks is a program for a traffic-control classifier (cls_bpf, direct action) at the ingress of a link: it drops every first fragment
// and every whole packet of UDP to a port of DHCP, 67 and 68 of IPv4, 546 and 547 of IPv6, and what asks for routers and advertises them:
// a guest has the addresses and routes that CNI gave it, and no others. Behind extension headers of IPv6 it does not look.
func Leaks() ([]bpf.RawInstruction, error) {
	return bpf.Assemble(leakFilter())
}

func leakFilter() []bpf.Instruction {
	const pass, drop = 20, 21 // where the program ends
	at := 0
	var p []bpf.Instruction
	add := func(i bpf.Instruction) { p = append(p, i); at++ }
	// jump compares, and goes to one of two places further on.
	jump := func(cond bpf.JumpTest, val uint32, yes, no int) {
		add(bpf.JumpIf{Cond: cond, Val: val, SkipTrue: uint8(yes - at - 1), SkipFalse: uint8(no - at - 1)})
	}
	add(bpf.LoadAbsolute{Off: 12, Size: 2})          // 0
	jump(bpf.JumpEqual, etherIPv4, 2, 10)            // 1
	add(bpf.LoadAbsolute{Off: 14 + 9, Size: 1})      // 2
	jump(bpf.JumpEqual, protocolUDP, 4, pass)        // 3
	add(bpf.LoadAbsolute{Off: 14 + 6, Size: 2})      // 4
	jump(bpf.JumpBitsSet, offsetMask, pass, 6)       // 5
	add(bpf.LoadMemShift{Off: 14})                   // 6
	add(bpf.LoadIndirect{Off: 14 + 2, Size: 2})      // 7
	jump(bpf.JumpEqual, serverPort, drop, 9)         // 8
	jump(bpf.JumpEqual, clientPort, drop, pass)      // 9
	jump(bpf.JumpEqual, etherIPv6, 11, pass)         // 10
	add(bpf.LoadAbsolute{Off: 14 + 6, Size: 1})      // 11
	jump(bpf.JumpEqual, protocolUDP, 13, 16)         // 12
	add(bpf.LoadAbsolute{Off: 14 + 40 + 2, Size: 2}) // 13
	jump(bpf.JumpEqual, clientPort6, drop, 15)       // 14
	jump(bpf.JumpEqual, serverPort6, drop, pass)     // 15
	jump(bpf.JumpEqual, protocolICMP, 17, pass)      // 16
	add(bpf.LoadAbsolute{Off: 14 + 40, Size: 1})     // 17
	jump(bpf.JumpEqual, ndSolicitation, drop, 19)    // 18
	jump(bpf.JumpEqual, ndAdvertisement, drop, pass) // 19
	add(bpf.RetConstant{Val: goesOn})                // 20
	add(bpf.RetConstant{Val: drops})                 // 21
	return p
}

// hears is the filter of the server's packet socket: whole, untagged packets that came in by one of some links, which ask by DHCP or for
// a router, or for the neighbour that a guest takes for its router.
func hears(links []int) ([]bpf.RawInstruction, error) {
	return filter(links, []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherIPv4, SkipFalse: 5},
		bpf.LoadAbsolute{Off: 14 + 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: protocolUDP, SkipFalse: 17},
		bpf.LoadMemShift{Off: 14},
		bpf.LoadIndirect{Off: 14 + 2, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: serverPort, SkipTrue: 13, SkipFalse: 14},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherIPv6, SkipFalse: 13},
		bpf.LoadAbsolute{Off: 14 + 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: protocolUDP, SkipFalse: 2},
		bpf.LoadAbsolute{Off: 14 + 40 + 2, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: serverPort6, SkipTrue: 8, SkipFalse: 9},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: protocolICMP, SkipFalse: 8},
		bpf.LoadAbsolute{Off: 14 + 40, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: ndSolicitation, SkipTrue: 5},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: ndNeighbour, SkipFalse: 5},
		bpf.LoadAbsolute{Off: 14 + 40 + 8, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: standInHigh, SkipFalse: 3},
		bpf.LoadAbsolute{Off: 14 + 40 + 16, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: standInLow, SkipFalse: 1},
		bpf.RetConstant{Val: 0x10000},
		bpf.RetConstant{Val: 0},
	})
}

// answers is the filter of the socket by which gateways are asked for: what neighbours say of themselves.
func answers(links []int) ([]bpf.RawInstruction, error) {
	return filter(links, []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherIPv6, SkipFalse: 5},
		bpf.LoadAbsolute{Off: 14 + 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: protocolICMP, SkipFalse: 3},
		bpf.LoadAbsolute{Off: 14 + 40, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: ndNeighbourIs, SkipFalse: 1},
		bpf.RetConstant{Val: 0x10000},
		bpf.RetConstant{Val: 0},
	})
}

// filter puts before a program that only whole, untagged packets are looked at, which came in by one of some links.
func filter(links []int, program []bpf.Instruction) ([]bpf.RawInstruction, error) {
	if len(links) == 0 || len(links) > 64 {
		return nil, fmt.Errorf("a DHCP server hears 1 to 64 links, not %d", len(links))
	}
	const outgoing = 4 // PACKET_OUTGOING of linux/if_packet.h
	refuse := bpf.RetConstant{Val: 0}
	p := []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtInterfaceIndex}}
	for i, index := range links {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(index), SkipTrue: uint8(len(links) - i)})
	}
	p = append(p, refuse,
		bpf.LoadExtension{Num: bpf.ExtType}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: outgoing, SkipFalse: 1}, refuse,
		bpf.LoadExtension{Num: bpf.ExtVLANTagPresent}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, refuse)
	return bpf.Assemble(append(p, program...))
}
