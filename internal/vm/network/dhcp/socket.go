package dhcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Listen opens a packet socket in the network namespace of the calling thread, which stays there: it hears what guests ask that comes
// in by the links with these indices. It keeps the namespace alive until it is closed.
func Listen(links []int) (Conn, error) { return filtered(hears(links)) }

// ListenNetwork is Listen for what neighbours answer that comes in by links which lead to the pod's network.
func ListenNetwork(links []int) (Conn, error) { return filtered(answers(links)) }

func filtered(program []bpf.RawInstruction, err error) (Conn, error) {
	if err != nil {
		return nil, err
	}
	// Of protocol 0 it hears nothing, until filter and protocol are set.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	filter := make([]unix.SockFilter, len(program))
	for i, op := range program {
		filter[i] = unix.SockFilter{Code: op.Op, Jt: op.Jt, Jf: op.Jf, K: op.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("packet socket: filter: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swap(unix.ETH_P_ALL)}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("packet socket: bind: %w", err)
	}
	f := os.NewFile(uintptr(fd), "dhcp")
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	return &socket{file: f, raw: raw}, nil
}

// swap is htons on the machines that this runs on, all of which are little-endian.
func swap(v uint16) uint16 { return v<<8 | v>>8 }

type socket struct {
	file *os.File
	raw  syscall.RawConn
}

func (s *socket) ReadFrame(b []byte) (n, link int, err error) {
	var got error
	err = s.raw.Read(func(fd uintptr) bool {
		var from unix.Sockaddr
		n, from, got = unix.Recvfrom(int(fd), b, 0)
		if ll, ok := from.(*unix.SockaddrLinklayer); ok {
			link = ll.Ifindex
		}
		return !errors.Is(got, unix.EAGAIN) && !errors.Is(got, unix.EINTR)
	})
	if errors.Is(got, unix.ENETDOWN) {
		got, n, link = nil, 0, 0 // a link went; the others are still there
	}
	return n, link, errors.Join(err, got)
}

func (s *socket) WriteFrame(link int, frame []byte) error {
	if len(frame) < ethernetSize {
		return fmt.Errorf("a frame of %d bytes", len(frame))
	}
	protocol := swap(binary.BigEndian.Uint16(frame[12:]))
	var got error
	err := s.raw.Control(func(fd uintptr) {
		// One that does not fit into the tap's queue at once is lost: nobody waits for a guest.
		got = unix.Sendto(int(fd), frame, unix.MSG_DONTWAIT, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link, Halen: 6})
	})
	return errors.Join(err, got)
}

func (s *socket) Close() error { return s.file.Close() }
