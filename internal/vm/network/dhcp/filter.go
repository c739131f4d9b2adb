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
// and every whole packet of UDP to a port of DHCP, 67 and 68 of IPv4, 546 and 547 of IPv6. Behind extension headers of IPv6 it does
// not look.
func Leaks() ([]bpf.RawInstruction, error) {
	return bpf.Assemble(leakFilter())
}

func leakFilter() []bpf.Instruction {
	const pass, drop = 16, 17 // where the program ends
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
	jump(bpf.JumpEqual, protocolUDP, 13, pass)       // 12
	add(bpf.LoadAbsolute{Off: 14 + 40 + 2, Size: 2}) // 13
	jump(bpf.JumpEqual, clientPort6, drop, 15)       // 14
	jump(bpf.JumpEqual, serverPort6, drop, pass)     // 15
	add(bpf.RetConstant{Val: goesOn})                // 16
	add(bpf.RetConstant{Val: drops})                 // 17
	return p
}

// hears is the filter of the server's packet socket: whole, untagged UDP packets to port 67 that came in by one of some links.
func hears(links []int) ([]bpf.RawInstruction, error) {
	if len(links) == 0 || len(links) > 64 {
		return nil, fmt.Errorf("a DHCP server hears 1 to 64 links, not %d", len(links))
	}
	const outgoing = 4 // PACKET_OUTGOING of linux/if_packet.h
	n := len(links)
	end := n + 13 // where the program refuses; one before, it accepts
	var p []bpf.Instruction
	need := func(cond bpf.JumpTest, val uint32) {
		p = append(p, bpf.JumpIf{Cond: cond, Val: val, SkipFalse: uint8(end - len(p) - 1)})
	}
	p = append(p, bpf.LoadExtension{Num: bpf.ExtInterfaceIndex})
	for i, index := range links {
		skip := bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(index), SkipTrue: uint8(n - i - 1)}
		if i == n-1 {
			skip.SkipFalse = uint8(end - len(p) - 1)
		}
		p = append(p, skip)
	}
	p = append(p, bpf.LoadExtension{Num: bpf.ExtType})
	need(bpf.JumpNotEqual, outgoing)
	p = append(p, bpf.LoadExtension{Num: bpf.ExtVLANTagPresent})
	need(bpf.JumpEqual, 0)
	p = append(p, bpf.LoadAbsolute{Off: 12, Size: 2})
	need(bpf.JumpEqual, etherIPv4)
	p = append(p, bpf.LoadAbsolute{Off: 14 + 9, Size: 1})
	need(bpf.JumpEqual, protocolUDP)
	p = append(p, bpf.LoadMemShift{Off: 14}, bpf.LoadIndirect{Off: 14 + 2, Size: 2})
	need(bpf.JumpEqual, serverPort)
	p = append(p, bpf.RetConstant{Val: 0x10000}, bpf.RetConstant{Val: 0})
	if len(p) != end+1 {
		return nil, fmt.Errorf("a filter of %d instructions that should have %d", len(p), end+1)
	}
	return bpf.Assemble(p)
}
