// Package wire carries messages and file descriptors over a unix stream socket, one frame at a time:
//
//	"MVN"  version (1 byte, 1)  length of the body (4 bytes, big-endian)  body (JSON)
//
// Descriptors travel beside the first byte of their frame (SCM_RIGHTS), sent by one sendmsg. A reader says how long a body and how many
// descriptors it takes; what is beyond that is an error, and every descriptor that came is closed. Deadlines belong to the caller, who
// owns the connection; after an error it is of no more use.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Version is the only version of the frame that there is.
const Version = 1

// MaxDescriptors is how many descriptors a frame has at most.
const MaxDescriptors = 64

const headerSize = 8

// ErrMalformed is a frame that no honest peer sends: the connection is to be closed.
var ErrMalformed = errors.New("malformed frame")

// Write sends a value as JSON, with descriptors, which stay the caller's.
func Write(c *net.UnixConn, v any, descriptors []int) error {
	if len(descriptors) > MaxDescriptors {
		return fmt.Errorf("a frame has at most %d descriptors, not %d", MaxDescriptors, len(descriptors))
	}
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("frame: %w", err)
	}
	if uint64(len(body)) > 1<<32-1 {
		return fmt.Errorf("frame: a body of %d bytes is too long", len(body))
	}
	f := append([]byte{'M', 'V', 'N', Version}, binary.BigEndian.AppendUint32(nil, uint32(len(body)))...)
	f = append(f, body...)
	var beside []byte
	if len(descriptors) > 0 {
		beside = unix.UnixRights(descriptors...)
	}
	n, m, err := c.WriteMsgUnix(f, beside, nil)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if m != len(beside) {
		return fmt.Errorf("send: descriptors were not sent whole")
	}
	// A long body may not fit into the socket at once. Descriptors have gone with its first byte.
	if n < len(f) {
		if _, err := c.Write(f[n:]); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

// Read receives one frame into v, of at most maxBody bytes and maxDescriptors descriptors. It returns the descriptors as files that close on
// exec. io.EOF means that the peer closed the connection between frames.
func Read(c *net.UnixConn, v any, maxBody, maxDescriptors int) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			for _, f := range files {
				_ = f.Close()
			}
			files = nil
		}
	}()
	var header [headerSize]byte
	for got := 0; got < headerSize; {
		n, more, err := receive(c, header[got:])
		files = append(files, more...)
		if err != nil {
			if got > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return files, err
		}
		got += n
		if len(files) > maxDescriptors {
			return files, fmt.Errorf("%w: more than %d descriptors", ErrMalformed, maxDescriptors)
		}
	}
	if string(header[:3]) != "MVN" {
		return files, fmt.Errorf("%w: it does not begin with MVN", ErrMalformed)
	}
	if header[3] != Version {
		return files, fmt.Errorf("%w: version %d; this end speaks %d", ErrMalformed, header[3], Version)
	}
	size := binary.BigEndian.Uint32(header[4:])
	if uint64(size) > uint64(maxBody) {
		return files, fmt.Errorf("%w: a body of %d bytes; at most %d are taken", ErrMalformed, size, maxBody)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return files, err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return files, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return files, nil
}

// receive reads some bytes with the descriptors that came beside them.
func receive(c *net.UnixConn, b []byte) (int, []*os.File, error) {
	beside := make([]byte, unix.CmsgSpace(4*MaxDescriptors))
	n, m, flags, _, err := c.ReadMsgUnix(b, beside)
	var files []*os.File
	messages, parseErr := unix.ParseSocketControlMessage(beside[:max(m, 0)])
	for i := range messages {
		if fds, rightsErr := unix.ParseUnixRights(&messages[i]); rightsErr == nil {
			for _, fd := range fds {
				files = append(files, os.NewFile(uintptr(fd), "received"))
			}
		}
	}
	switch {
	case err != nil:
		return n, files, err
	case n == 0:
		return 0, files, io.EOF
	case parseErr != nil:
		return n, files, fmt.Errorf("%w: control message: %w", ErrMalformed, parseErr)
	case flags&unix.MSG_CTRUNC != 0:
		return n, files, fmt.Errorf("%w: more than %d descriptors", ErrMalformed, MaxDescriptors)
	}
	return n, files, nil
}
