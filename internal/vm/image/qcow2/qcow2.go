// Package qcow2 reads the header of a qcow2 disk image and refuses what a stranger's image may not have. It answers one question: can this
// file be given to QEMU, read-only and with its format said, without QEMU opening any other file, asking for a key, or being sent to places that the
// file does not have? It does not follow the tables to the data: a wrong entry there is an I/O error of one guest and nothing more.
//
// The format is that of https://www.qemu.org/docs/master/interop/qcow2.html; limits that QEMU has beyond it are named where they are used.
package qcow2

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Magic are the first four bytes of every qcow image, of version 1 too.
const Magic = "QFI\xfb"

// Limits that QEMU has and the format does not.
const (
	maxClusterBits   = 21           // 2 MiB
	maxL1Bytes       = 32 << 20     // of the active table, and of a snapshot's
	maxRefcountBytes = 8 << 20      // of the refcount table
	maxSnapshots     = 65536        // of one image
	maxSnapshotBytes = 1024 * 65536 // of the table that lists them
	maxBitmaps       = 65535        // of one image
	maxBitmapBytes   = 1024 * 65535 // of the directory that lists them
	sector           = 512          // what a disk's size is a multiple of
	v2Length         = 72           // of version 2's header
	v3Length         = 104          // of version 3's, at the least
)

// Bits of incompatible_features.
const (
	bitDirty = 1 << iota
	bitCorrupt
	bitExternalData
	bitCompression
	bitExtendedL2
	knownIncompatible = bitDirty | bitCorrupt | bitExternalData | bitCompression | bitExtendedL2
)

// Types of header extensions.
const (
	extEnd          = 0
	extBackingName  = 0xe2792aca
	extBitmaps      = 0x23852875
	extEncryption   = 0x0537be77
	extExternalData = 0x44415441
)

// Header is what callers need of a good image's header.
type Header struct {
	// Version is 2 or 3.
	Version int
	// VirtualSize is the size of the disk that a guest sees, in bytes: a positive multiple of 512.
	VirtualSize int64
	// ClusterBits is the binary logarithm of the cluster size in bytes: 9 to 21.
	ClusterBits int
	// Snapshots is the number of internal snapshots. A guest never sees them.
	Snapshots int
}

// RefusedError says which field of an image breaks which rule.
type RefusedError struct {
	// Field is the name that the format's description has for it.
	Field string
	// Rule is what the field has to be, with its value where that helps.
	Rule string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("qcow2 field %s: %s", e.Field, e.Rule) }

func refuse(field, format string, args ...any) error {
	return &RefusedError{Field: field, Rule: fmt.Sprintf(format, args...)}
}

// Read judges an image of size bytes. What it refuses is a *RefusedError; any other error is one of r. It reads at most
// the first cluster and the snapshot table.
func Read(r io.ReaderAt, size int64) (Header, error) {
	p := parser{r: r, size: size}
	fixed := make([]byte, v2Length)
	if err := p.read(fixed, 0, "magic"); err != nil {
		return Header{}, err
	}
	if string(fixed[:4]) != Magic {
		return Header{}, refuse("magic", "must be %q", Magic)
	}
	version := be32(fixed[4:])
	if version != 2 && version != 3 {
		return Header{}, refuse("version", "must be 2 or 3, is %d", version)
	}
	bits := be32(fixed[20:])
	if bits < 9 || bits > maxClusterBits {
		return Header{}, refuse("cluster_bits", "must be 9 to %d, is %d", maxClusterBits, bits)
	}
	p.cluster = 1 << bits
	length, l2Entry := int64(v2Length), int64(8)
	if version == 3 {
		var err error
		if length, l2Entry, err = p.version3(bits); err != nil {
			return Header{}, err
		}
	}
	if err := foreign(fixed); err != nil {
		return Header{}, err
	}
	virtual := be64(fixed[24:])
	if virtual == 0 || virtual > 1<<61 || virtual%sector != 0 {
		return Header{}, refuse("size", "must be a positive multiple of %d, and at most 2^61, is %d", sector, virtual)
	}
	if err := p.tables(fixed, int64(virtual), l2Entry); err != nil {
		return Header{}, err
	}
	if err := p.extensions(length); err != nil {
		return Header{}, err
	}
	snapshots := be32(fixed[60:])
	if err := p.snapshots(snapshots, be64(fixed[64:])); err != nil {
		return Header{}, err
	}
	return Header{Version: int(version), VirtualSize: int64(virtual), ClusterBits: int(bits), Snapshots: int(snapshots)}, nil
}

// foreign refuses what would have QEMU open another file or ask for a key.
func foreign(fixed []byte) error {
	if offset := be64(fixed[8:]); offset != 0 {
		return refuse("backing_file_offset", "an image may have no backing file, this names one at %d", offset)
	}
	if method := be32(fixed[32:]); method != 0 {
		return refuse("crypt_method", "an image may not be encrypted, this has method %d", method)
	}
	return nil
}

type parser struct {
	r       io.ReaderAt
	size    int64 // of the file
	cluster int64 // in bytes
}

// read fills b from an offset; field is blamed when the file is too short.
func (p *parser) read(b []byte, at int64, field string) error {
	if at < 0 || at > p.size || int64(len(b)) > p.size-at {
		return refuse(field, "the file ends before it: %d bytes at %d, and the file has %d", len(b), at, p.size)
	}
	n, err := p.r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("reading %d bytes at %d: %w", len(b), at, err)
}

// version3 judges the fields that version 2 lacks, and gives the header's length and the size of an L2 entry.
func (p *parser) version3(bits uint32) (length, l2Entry int64, err error) {
	more := make([]byte, v3Length-v2Length)
	if err := p.read(more, v2Length, "header_length"); err != nil {
		return 0, 0, err
	}
	incompatible, autoclear := be64(more), be64(more[16:])
	order, declared := be32(more[24:]), be32(more[28:])
	switch {
	case incompatible&^uint64(knownIncompatible) != 0:
		return 0, 0, refuse("incompatible_features", "bits 0 to 4 are known, this sets %#x", incompatible)
	case incompatible&bitExternalData != 0:
		return 0, 0, refuse("incompatible_features", "an image may have no external data file (bit 2)")
	case incompatible&bitCorrupt != 0:
		return 0, 0, refuse("incompatible_features", "the image says that it is corrupt (bit 1)")
	case autoclear&2 != 0:
		return 0, 0, refuse("autoclear_features", "an image may have no external data file (bit 1)")
	case order > 6:
		return 0, 0, refuse("refcount_order", "must be 0 to 6, is %d", order)
	case declared < v3Length || declared%8 != 0 || int64(declared) > p.cluster:
		return 0, 0, refuse("header_length", "must be a multiple of 8 from %d to the cluster size %d, is %d", v3Length, p.cluster, declared)
	}
	l2Entry = 8
	if incompatible&bitExtendedL2 != 0 {
		l2Entry = 16
		if bits < 14 {
			return 0, 0, refuse("cluster_bits", "must be at least 14 with extended L2 entries, is %d", bits)
		}
	}
	compression := byte(0)
	if declared > v3Length {
		one := make([]byte, 1)
		if err := p.read(one, v3Length, "compression_type"); err != nil {
			return 0, 0, err
		}
		compression = one[0]
	}
	if compression > 1 || (compression != 0) != (incompatible&bitCompression != 0) {
		return 0, 0, refuse("compression_type", "must be 0, or 1 together with incompatible feature bit 3, is %d", compression)
	}
	return int64(declared), l2Entry, nil
}

// within refuses a table that is not aligned to a cluster, lies in the header or leaves the file.
func (p *parser) within(field string, offset uint64, bytes int64) error {
	switch {
	case offset%uint64(p.cluster) != 0:
		return refuse(field, "must be a multiple of the cluster size %d, is %d", p.cluster, offset)
	case offset == 0:
		return refuse(field, "must not be 0, where the header is")
	case offset > uint64(p.size) || bytes > p.size-int64(offset):
		return refuse(field, "the table of %d bytes at %d leaves the file of %d", bytes, offset, p.size)
	}
	return nil
}

// tables judges the active L1 table and the refcount table.
func (p *parser) tables(fixed []byte, virtual, l2Entry int64) error {
	entries := int64(be32(fixed[36:]))
	if entries*8 > maxL1Bytes {
		return refuse("l1_size", "QEMU takes at most %d entries, this has %d", maxL1Bytes/8, entries)
	}
	covers := p.cluster * (p.cluster / l2Entry) // bytes of the disk that one entry leads to: at most 2^39
	if need := (virtual-1)/covers + 1; entries < need {
		return refuse("l1_size", "a disk of %d bytes needs %d entries, this has %d", virtual, need, entries)
	}
	if err := p.within("l1_table_offset", be64(fixed[40:]), entries*8); err != nil {
		return err
	}
	clusters := int64(be32(fixed[56:]))
	if clusters == 0 || clusters > maxRefcountBytes/p.cluster && clusters != 1 {
		return refuse("refcount_table_clusters", "must be 1 to %d, is %d", max(1, maxRefcountBytes/p.cluster), clusters)
	}
	return p.within("refcount_table_offset", be64(fixed[48:]), clusters*p.cluster)
}

// extensions walks the header extensions, which lie between the header and the end of the first cluster. Every step goes forward by
// 8 bytes or more.
func (p *parser) extensions(at int64) error {
	const field = "header extensions"
	end := min(p.cluster, p.size)
	seen := map[uint32]bool{}
	for head := make([]byte, 8); at+8 <= end; {
		if err := p.read(head, at, field); err != nil {
			return err
		}
		kind, length := be32(head), int64(be32(head[4:]))
		at += 8
		if kind == extEnd {
			return nil
		}
		if length > end-at {
			return refuse(field, "extension %#x of %d bytes at %d leaves the first cluster", kind, length, at)
		}
		switch kind {
		case extExternalData:
			return refuse(field, "an image may have no external data file, extension %#x names one", kind)
		case extEncryption:
			return refuse(field, "an image may not be encrypted, extension %#x points to a key", kind)
		case extBackingName, extBitmaps:
			if seen[kind] {
				return refuse(field, "extension %#x is there twice", kind)
			}
			seen[kind] = true
		}
		if kind == extBitmaps {
			if err := p.bitmaps(at, length); err != nil {
				return err
			}
		}
		at += (length + 7) &^ 7
	}
	return nil // an area that is full to its end needs no end mark
}

func (p *parser) bitmaps(at, length int64) error {
	const field = "bitmaps extension"
	if length != 24 {
		return refuse(field, "must have 24 bytes, has %d", length)
	}
	b := make([]byte, 24)
	if err := p.read(b, at, field); err != nil {
		return err
	}
	number, bytes := be32(b), be64(b[8:])
	if number == 0 || number > maxBitmaps {
		return refuse(field, "nb_bitmaps must be 1 to %d, is %d", maxBitmaps, number)
	}
	if bytes > maxBitmapBytes {
		return refuse(field, "bitmap_directory_size must be at most %d, is %d", maxBitmapBytes, bytes)
	}
	return p.within(field+": bitmap_directory_offset", be64(b[16:]), int64(bytes))
}

// snapshots walks the snapshot table: QEMU reads it whenever it opens the image.
func (p *parser) snapshots(number uint32, offset uint64) error {
	if number == 0 {
		return nil
	}
	if number > maxSnapshots {
		return refuse("nb_snapshots", "QEMU takes at most %d, this has %d", maxSnapshots, number)
	}
	const fixedBytes = 40
	if err := p.within("snapshots_offset", offset, int64(number)*fixedBytes); err != nil {
		return err
	}
	table := io.NewSectionReader(p.r, int64(offset), min(p.size-int64(offset), maxSnapshotBytes))
	in := bufio.NewReaderSize(table, 64<<10)
	var at int64
	for i := range number {
		head := make([]byte, fixedBytes)
		if _, err := io.ReadFull(in, head); err != nil {
			return p.short(err, i, number)
		}
		rest := int64(be16(head[12:])) + int64(be16(head[14:])) + int64(be32(head[36:]))
		at += fixedBytes
		padding := -(at + rest) & 7
		if rest > table.Size()-at {
			return refuse("snapshots_offset", "snapshot %d of %d leaves the table or the file", i+1, number)
		}
		l1 := int64(be32(head[8:]))
		if l1*8 > maxL1Bytes {
			return refuse("snapshots_offset", "snapshot %d of %d: its l1_size must be at most %d, is %d", i+1, number, maxL1Bytes/8, l1)
		}
		if l1 > 0 {
			if err := p.within(fmt.Sprintf("snapshot %d: l1_table_offset", i+1), be64(head), l1*8); err != nil {
				return err
			}
		}
		if i+1 == number {
			padding = 0 // the file may end with the last name
		}
		if _, err := io.CopyN(io.Discard, in, rest+padding); err != nil {
			return p.short(err, i, number)
		}
		at += rest + padding
	}
	return nil
}

func (p *parser) short(err error, i, number uint32) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return refuse("snapshots_offset", "snapshot %d of %d leaves the table or the file", i+1, number)
	}
	return fmt.Errorf("reading snapshot %d: %w", i+1, err)
}

func be16(b []byte) uint16 { return binary.BigEndian.Uint16(b) }
func be32(b []byte) uint32 { return binary.BigEndian.Uint32(b) }
func be64(b []byte) uint64 { return binary.BigEndian.Uint64(b) }
