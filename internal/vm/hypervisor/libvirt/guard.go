package libvirt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// libvirt's packets: length, program, version, procedure, type, serial, status; all 4 bytes, big-endian. The length counts itself.
const (
	packetHeader = 28
	// maxPacket is libvirt's own bound (VIR_NET_MESSAGE_MAX, 32 MiB) with its header.
	maxPacket = 32<<20 + 4 + packetHeader
	// maxEvents is how many events may wait to be taken.
	maxEvents = 1 << 16

	remoteProgram = 0x20008086
	qemuProgram   = 0x20008087

	typeCall, typeReply, typeMessage = 0, 1, 2
	statusOK, statusError            = 0, 1

	procLifecycle = 318
)

type procedure struct{ program, number uint32 }

// shapes are the answers to the calls that are made here, as they are taken apart: i is 4 bytes, h 8, u 16, s a string, p a typed parameter,
// and brackets are around what is repeated. What may follow is not looked at by anybody. A call that is not here has no answer.
var shapes = map[procedure]string{
	{remoteProgram, 1}:   "",    // connect open
	{remoteProgram, 2}:   "",    // connect close
	{remoteProgram, 4}:   "h",   // version
	{remoteProgram, 10}:  "sui", // create a machine that nobody keeps
	{remoteProgram, 14}:  "s",
	{remoteProgram, 24}:  "sui", // lookup by UUID
	{remoteProgram, 28}:  "",
	{remoteProgram, 66}:  "[i]", // ways to authenticate
	{remoteProgram, 70}:  "i",
	{remoteProgram, 141}: "uis", // a secret by UUID
	{remoteProgram, 142}: "uis", // define one
	{remoteProgram, 144}: "",    // its value
	{remoteProgram, 146}: "",    // undefine it
	{remoteProgram, 157}: "h",
	{remoteProgram, 196}: "sui", // create
	{remoteProgram, 199}: "",
	{remoteProgram, 204}: "",
	{remoteProgram, 212}: "ii", // state
	{remoteProgram, 219}: "",
	{remoteProgram, 225}: "",
	{remoteProgram, 231}: "",
	{remoteProgram, 232}: "",
	{remoteProgram, 233}: "",
	{remoteProgram, 234}: "",
	{remoteProgram, 258}: "",
	{remoteProgram, 265}: "s",        // metadata
	{remoteProgram, 273}: "[sui]i",   // list
	{remoteProgram, 279}: "",         // emulator pin
	{remoteProgram, 316}: "i",        // register for events
	{remoteProgram, 317}: "",         // and undo it
	{remoteProgram, 344}: "[sui[p]]", // stats
	{remoteProgram, 350}: "sui",      // define
	{qemuProgram, 3}:     "[s]",      // agent
}

// errorShape is how far an error is taken apart, eventShape a lifecycle event.
const (
	errorShape = "iiis"
	eventShape = "isuiii"
)

var errShort = errors.New("it is shorter than it says")

// fits says whether a body has a shape, and gives what is left of it.
func fits(shape string, body []byte) ([]byte, error) {
	for i := 0; i < len(shape); i++ {
		var err error
		switch shape[i] {
		case 'i':
			body, err = skip(body, 4)
		case 'h':
			body, err = skip(body, 8)
		case 'u':
			body, err = skip(body, 16)
		case 's':
			body, err = skipString(body)
		case 'p':
			body, err = skipParameter(body)
		case '[':
			end := i + 1
			for depth := 1; ; end++ {
				switch shape[end] {
				case '[':
					depth++
				case ']':
					depth--
				}
				if depth == 0 {
					break
				}
			}
			if len(body) < 4 {
				return nil, errShort
			}
			n := binary.BigEndian.Uint32(body)
			body = body[4:]
			for ; n > 0 && err == nil; n-- { // each takes 4 bytes at least, so this ends with the body
				body, err = fits(shape[i+1:end], body)
			}
			i = end
		}
		if err != nil {
			return nil, err
		}
	}
	return body, nil
}

func skip(body []byte, n int) ([]byte, error) {
	if len(body) < n {
		return nil, errShort
	}
	return body[n:], nil
}

func skipString(body []byte) ([]byte, error) {
	if len(body) < 4 {
		return nil, errShort
	}
	n := uint64(binary.BigEndian.Uint32(body))
	padded := (n + 3) &^ 3
	if uint64(len(body)-4) < padded {
		return nil, errShort
	}
	return body[4+padded:], nil
}

// skipParameter passes a name, a kind, and a value whose size the kind says.
func skipParameter(body []byte) ([]byte, error) {
	body, err := skipString(body)
	if err != nil || len(body) < 4 {
		return nil, errShort
	}
	kind := binary.BigEndian.Uint32(body)
	switch body = body[4:]; kind {
	case 1, 2, 6:
		return skip(body, 4)
	case 3, 4, 5:
		return skip(body, 8)
	case 7:
		return skipString(body)
	}
	return nil, fmt.Errorf("a parameter of kind %d", kind)
}

// guard is a connection that lets only packets through which answer something and are what they say. Its reader is one goroutine, and its writers
// hold a lock of the library's.
type guard struct {
	net.Conn
	// dead is closed when the connection cannot be read any more.
	dead   chan struct{}
	events atomic.Int64 // those that passed and were not taken

	mu      sync.Mutex
	asked   map[int32]procedure
	why     error
	leaving int // bytes of a packet that are still to be written

	ready bytes.Reader
	frame bytes.Buffer
}

func newGuard(c net.Conn) *guard {
	return &guard{Conn: c, dead: make(chan struct{}), asked: map[int32]procedure{}}
}

// Write notes what is asked. The library flushes after each packet, so a packet begins a Write, with its header whole. A connection that cannot
// be written is closed, and the caller learns that as one who waits for an answer: the library would wait for ever for one who gave up
// sending while the answer came.
func (g *guard) Write(b []byte) (int, error) {
	g.mu.Lock()
	if g.leaving == 0 && len(b) >= packetHeader {
		g.leaving = int(binary.BigEndian.Uint32(b))
		g.asked[int32(binary.BigEndian.Uint32(b[20:]))] = procedure{binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[12:])}
	}
	g.leaving = max(g.leaving-len(b), 0)
	g.mu.Unlock()
	if _, err := g.Conn.Write(b); err != nil {
		_ = g.Conn.Close()
	}
	return len(b), nil
}

// Read gives whole packets that passed, byte by byte.
func (g *guard) Read(b []byte) (int, error) {
	for g.ready.Len() == 0 {
		ok, err := g.next()
		if err != nil {
			g.fail(err)
			return 0, io.EOF
		}
		if ok {
			g.ready.Reset(g.frame.Bytes())
		}
	}
	return g.ready.Read(b)
}

// next reads a packet, and says whether it is for the library.
func (g *guard) next() (bool, error) {
	g.frame.Reset()
	if g.frame.Cap() > 1<<20 {
		g.frame = bytes.Buffer{}
	}
	// Memory is taken as bytes come, not as they are announced.
	if _, err := io.CopyN(&g.frame, g.Conn, 4); err != nil {
		return false, err
	}
	size := binary.BigEndian.Uint32(g.frame.Bytes())
	if size < packetHeader || size > maxPacket {
		return false, fmt.Errorf("libvirtd sent a packet of %d bytes; %d to %d are possible", size, packetHeader, maxPacket)
	}
	if _, err := io.CopyN(&g.frame, g.Conn, int64(size-4)); err != nil {
		return false, err
	}
	b := g.frame.Bytes()
	word := func(i int) uint32 { return binary.BigEndian.Uint32(b[4*i:]) }
	p := procedure{word(1), word(3)}
	kind, serial, status := word(4), int32(word(5)), word(6)
	if word(2) != 1 {
		return false, fmt.Errorf("libvirtd sent a packet of version %d", word(2))
	}
	shape := ""
	switch kind {
	case typeMessage:
		if p != (procedure{remoteProgram, procLifecycle}) {
			return false, nil // such as keep-alive, which was not asked for
		}
		if g.events.Add(1) > maxEvents {
			return false, errors.New("libvirtd sends more events than can be followed")
		}
		shape = eventShape
	case typeReply:
		g.mu.Lock()
		asked, ok := g.asked[serial]
		delete(g.asked, serial)
		g.mu.Unlock()
		if !ok || asked != p {
			return false, fmt.Errorf("libvirtd answered what nobody asked: procedure %d of program %#x", p.number, p.program)
		}
		if shape, ok = shapes[p]; !ok {
			return false, fmt.Errorf("libvirtd answered procedure %d of program %#x, which is not known", p.number, p.program)
		}
		if status == statusError {
			shape = errorShape
		} else if status != statusOK {
			return false, fmt.Errorf("libvirtd answered with status %d", status)
		}
	default:
		return false, fmt.Errorf("libvirtd sent a packet of type %d", kind)
	}
	if _, err := fits(shape, b[packetHeader:]); err != nil {
		return false, fmt.Errorf("libvirtd's answer of procedure %d is malformed: %w", p.number, err)
	}
	return true, nil
}

func (g *guard) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why == nil {
		g.why = err
		_ = g.Conn.Close() // fails only if it is closed
		close(g.dead)
	}
}

// Close ends the connection. It may be called again, which the library does.
func (g *guard) Close() error {
	_ = g.Conn.Close()
	return nil
}

// reason is why the connection is dead.
func (g *guard) reason() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why
}
