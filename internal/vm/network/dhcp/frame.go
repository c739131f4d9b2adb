package dhcp

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// Offsets and values of Ethernet (RFC 894), IPv4 (RFC 791) and UDP (RFC 768).
const (
	ethernetSize = 14
	ipSize       = 20
	udpSize      = 8
	etherIPv4    = 0x0800
	etherIPv6    = 0x86dd
	protocolUDP  = 17
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
