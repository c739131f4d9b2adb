package dhcp

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// Offsets and values of Ethernet (RFC 894), IPv4 (RFC 791), IPv6 (RFC 8200) and UDP (RFC 768).
const (
	ethernetSize = 14
	ipSize       = 20
	ipSize6      = 40
	udpSize      = 8
	etherIPv4    = 0x0800
	etherIPv6    = 0x86dd
	protocolUDP  = 17
	protocolICMP = 58 // of IPv6
	serverPort   = 67
	clientPort   = 68
	serverPort6  = 547
	clientPort6  = 546
	fragmentMask = 0x3fff // the flag "more fragments" and the offset
	offsetMask   = 0x1fff
)

// payload finds the DHCP message in an Ethernet frame to a server's port. The UDP checksum is not looked at: a guest that offloads it
// leaves it unfinished, and between it and us there is only memory.
func payload(frame []byte) ([]byte, bool) {
	if len(frame) < ethernetSize+ipSize+udpSize || binary.BigEndian.Uint16(frame[12:]) != etherIPv4 {
		return nil, false
	}
	ip := frame[ethernetSize:]
	size, total := int(ip[0]&0xf)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if ip[0]>>4 != 4 || size < ipSize || total > len(ip) || total < size+udpSize || ip[9] != protocolUDP || binary.BigEndian.Uint16(ip[6:])&fragmentMask != 0 {
		return nil, false
	}
	udp := ip[size:total]
	length := int(binary.BigEndian.Uint16(udp[4:]))
	if binary.BigEndian.Uint16(udp[2:]) != serverPort || length < udpSize || length > len(udp) {
		return nil, false
	}
	return udp[udpSize:length], true
}

// frame puts a message to a client's port into UDP, IPv4 and Ethernet.
func frame(to, from net.HardwareAddr, dst, src netip.Addr, message []byte) []byte {
	f := make([]byte, ethernetSize+ipSize+udpSize+len(message))
	copy(f, to)
	copy(f[6:], from)
	binary.BigEndian.PutUint16(f[12:], etherIPv4)
	ip := f[ethernetSize:]
	ip[0], ip[1], ip[8], ip[9] = 0x45, 0x10, 64, protocolUDP // low delay, as DHCP servers mark it
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:16], src.AsSlice())
	copy(ip[16:20], dst.AsSlice())
	binary.BigEndian.PutUint16(ip[10:], ^sum(0, ip[:ipSize]))
	udp := ip[ipSize:]
	binary.BigEndian.PutUint16(udp[0:], serverPort)
	binary.BigEndian.PutUint16(udp[2:], clientPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	copy(udp[udpSize:], message)
	// The pseudo-header: both addresses, protocol, length.
	check := ^sum(uint32(protocolUDP)+uint32(len(udp))+uint32(sum(0, ip[12:20])), udp)
	if check == 0 {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(udp[6:], check)
	return f
}

// sum is the Internet checksum's (RFC 1071), not yet complemented.
func sum(s uint32, b []byte) uint16 {
	for ; len(b) > 1; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// packet6 finds what an Ethernet frame carries of one protocol over IPv6, without extension headers. As above, checksums are not looked at.
func packet6(frame []byte, protocol byte) (src netip.Addr, hops byte, payload []byte, ok bool) {
	if len(frame) < ethernetSize+ipSize6 || binary.BigEndian.Uint16(frame[12:]) != etherIPv6 {
		return src, 0, nil, false
	}
	ip := frame[ethernetSize:]
	length := int(binary.BigEndian.Uint16(ip[4:]))
	if ip[0]>>4 != 6 || ip[6] != protocol || ipSize6+length > len(ip) {
		return src, 0, nil, false
	}
	src, _ = netip.AddrFromSlice(ip[8:24])
	return src, ip[7], ip[ipSize6 : ipSize6+length], true
}

// payload6 finds the DHCPv6 message in a frame to the server's port, and the link-local address that it is from.
func payload6(frame []byte) (src netip.Addr, message []byte, ok bool) {
	src, _, udp, ok := packet6(frame, protocolUDP)
	if !ok || len(udp) < udpSize || !src.IsLinkLocalUnicast() {
		return src, nil, false
	}
	length := int(binary.BigEndian.Uint16(udp[4:]))
	if binary.BigEndian.Uint16(udp[2:]) != serverPort6 || length < udpSize || length > len(udp) {
		return src, nil, false
	}
	return src, udp[udpSize:length], true
}

// udp6 puts a message to a client's port into UDP, without its checksum.
func udp6(message []byte) []byte {
	out := make([]byte, udpSize, udpSize+len(message))
	binary.BigEndian.PutUint16(out[0:], serverPort6)
	binary.BigEndian.PutUint16(out[2:], clientPort6)
	binary.BigEndian.PutUint16(out[4:], uint16(udpSize+len(message)))
	return append(out, message...)
}

// frame6 puts a packet of UDP or ICMPv6 into IPv6 and Ethernet, and its checksum into it, which is zero before.
func frame6(to, from net.HardwareAddr, dst, src netip.Addr, protocol byte, payload []byte) []byte {
	f := make([]byte, ethernetSize+ipSize6+len(payload))
	copy(f, to)
	copy(f[6:], from)
	binary.BigEndian.PutUint16(f[12:], etherIPv6)
	ip := f[ethernetSize:]
	ip[0], ip[6], ip[7] = 0x60, protocol, ndHops
	binary.BigEndian.PutUint16(ip[4:], uint16(len(payload)))
	copy(ip[8:24], src.AsSlice())
	copy(ip[24:40], dst.AsSlice())
	copy(ip[ipSize6:], payload)
	at := ipSize6 + 2
	if protocol == protocolUDP {
		at = ipSize6 + 6
	}
	check := ^sum(uint32(protocol)+uint32(len(payload))+uint32(sum(0, ip[8:40])), ip[ipSize6:])
	if check == 0 && protocol == protocolUDP {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(ip[at:], check)
	return f
}
