package journal

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A frame is an entry in a file:
//
//	length of the head, of the body; CRC-32C of both; CRC-32C of these twelve bytes    (16 bytes, little endian)
//	the head: the entry as JSON, packed                                                  the body: a line of a stream, packed; only cycles have one
const frameHead = 16

// maxFrame bounds a head and a body, packed, and maxUnpacked what they unpack to.
const maxFrame, maxUnpacked = 256 << 20, 1 << 30

// errFrame says that no whole frame is there.
var errFrame = errors.New("no whole entry")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// packer packs one text after another. It is a megabyte, which is not to be made for each entry of a busy cluster; the zero value is ready.
type packer struct{ z *flate.Writer }

// pack writes what write writes, packed.
func (p *packer) pack(w io.Writer, write func(io.Writer) error) error {
	if p.z == nil {
		p.z, _ = flate.NewWriter(nil, flate.BestSpeed) // an error is of a level that there is not
	}
	p.z.Reset(w)
	if err := write(p.z); err != nil {
		return err
	}
	return p.z.Close()
}

// frame prints an entry; body, if there is one, writes its body.
func (p *packer) frame(e *Entry, body func(io.Writer) error) ([]byte, error) {
	head, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("write an entry: %w", err)
	}
	b := bytes.NewBuffer(make([]byte, frameHead, 4096))
	if err := p.pack(b, func(w io.Writer) error {
		_, err := w.Write(head)
		return err
	}); err != nil {
		return nil, fmt.Errorf("pack an entry: %w", err)
	}
	n := b.Len() - frameHead
	if body != nil {
		if err := p.pack(b, body); err != nil {
			return nil, fmt.Errorf("pack an entry: %w", err)
		}
	}
	out := b.Bytes()
	m := len(out) - frameHead - n
	if n > maxFrame || m > maxFrame {
		return nil, fmt.Errorf("an entry of %d bytes is longer than one may be", len(out))
	}
	binary.LittleEndian.PutUint32(out, uint32(n))
	binary.LittleEndian.PutUint32(out[4:], uint32(m))
	binary.LittleEndian.PutUint32(out[8:], crc32.Checksum(out[frameHead:], castagnoli))
	binary.LittleEndian.PutUint32(out[12:], crc32.Checksum(out[:12], castagnoli))
	return out, nil
}

// framed is a frame as it was read.
type framed struct {
	Entry
	body []byte // packed
	size int64
}

// line unpacks the body.
func (f *framed) line() ([]byte, error) { return unpack(f.body) }

func unpack(packed []byte) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), maxUnpacked))
	if err != nil {
		return nil, fmt.Errorf("unpack an entry: %w", err)
	}
	return text, nil
}

// readFrame reads the next frame. io.EOF: there is nothing more; errFrame: what is there is no whole one. left is how much of the file is left.
func readFrame(r io.Reader, left int64) (*framed, error) {
	var head [frameHead]byte
	if left == 0 {
		return nil, io.EOF
	}
	if left < frameHead {
		return nil, errFrame
	}
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, ended(err)
	}
	n, m := int64(binary.LittleEndian.Uint32(head[:])), int64(binary.LittleEndian.Uint32(head[4:]))
	if binary.LittleEndian.Uint32(head[12:]) != crc32.Checksum(head[:12], castagnoli) || n > maxFrame || m > maxFrame || n+m > left-frameHead {
		return nil, errFrame
	}
	both := make([]byte, n+m)
	if _, err := io.ReadFull(r, both); err != nil {
		return nil, ended(err)
	}
	if binary.LittleEndian.Uint32(head[8:]) != crc32.Checksum(both, castagnoli) {
		return nil, errFrame
	}
	text, err := unpack(both[:n])
	if err != nil {
		return nil, errFrame
	}
	f := &framed{body: both[n:], size: frameHead + n + m}
	if err := json.Unmarshal(text, &f.Entry); err != nil {
		return nil, errFrame
	}
	return f, nil
}

// ended is errFrame for a file that ended; other errors are the disk's.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errFrame
	}
	return err
}
