package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/prometheus/prometheus/util/compression"
)

// A segment of a journal of Prometheus' database is pages of fragments: kind and flags (1 byte), length (2), CRC-32C of the data (4),
// data. Source: docs/format/wal.md of its tsdb. (Its own reader brings in packages for tests.)
const (
	page         = 32 << 10
	fragmentHead = 7

	kindMask   = 7
	kindEmpty  = 0 // the rest of the page is zero
	kindWhole  = 1
	kindFirst  = 2
	kindMiddle = 3
	kindLast   = 4
	flagSnappy = 1 << 3
	flagZstd   = 1 << 4
)

// readSegment visits each record of a segment; it is valid during the visit. torn says what is wrong with the record after the last one
// that is whole, if there is such; err is a failure to read, or the visitor's.
func readSegment(r io.Reader, visit func(rec []byte) error) (torn, err error) {
	table := crc32.MakeTable(crc32.Castagnoli)
	packed := compression.NewSyncDecodeBuffer()
	buf := make([]byte, page)
	var rec []byte
	inside := false
	for {
		n, err := io.ReadFull(r, buf)
		if errors.Is(err, io.EOF) && !inside {
			return nil, nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if n == 0 {
			return errors.New("its end is missing"), nil
		}
		for rest := buf[:n]; len(rest) > 0 && rest[0]&kindMask != kindEmpty; {
			if len(rest) < fragmentHead {
				return errors.New("half a header"), nil
			}
			head, length, sum := rest[0], int(binary.BigEndian.Uint16(rest[1:])), binary.BigEndian.Uint32(rest[3:])
			rest = rest[fragmentHead:]
			if length > len(rest) {
				return fmt.Errorf("%d bytes of %d", len(rest), length), nil
			}
			if got := crc32.Checksum(rest[:length], table); got != sum {
				return fmt.Errorf("its checksum is %x, not %x", got, sum), nil
			}
			kind := head & kindMask
			if begins := kind == kindWhole || kind == kindFirst; begins == inside || kind > kindLast {
				return fmt.Errorf("a fragment of kind %d in the wrong place", kind), nil
			}
			if !inside {
				rec = rec[:0]
			}
			rec = append(rec, rest[:length]...)
			rest = rest[length:]
			if inside = kind == kindFirst || kind == kindMiddle; inside {
				continue
			}
			form := compression.None
			switch {
			case head&flagSnappy != 0:
				form = compression.Snappy
			case head&flagZstd != 0:
				form = compression.Zstd
			}
			plain, err := compression.Decode(form, rec, packed)
			if err != nil {
				return err, nil
			}
			if err := visit(plain); err != nil {
				return nil, err
			}
		}
	}
}
