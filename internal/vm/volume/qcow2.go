package volume

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The layout that is written: https://www.qemu.org/docs/master/interop/qcow2.html, version 3 with clusters of 64 KiB and counters of 16
// bits, which is what qemu-img makes. It is written here and not by qemu-img, so that making a disk starts no program: the file has a
// header, empty tables, and nothing to go wrong.
const (
	clusterBits   = 16
	cluster       = 1 << clusterBits
	sector        = 512
	entriesL2     = cluster / 8
	refsOfBlock   = cluster / 2
	headerLength  = 104
	extBacking    = 0xe2792aca
	flagCopied    = 1 << 63 // the cluster belongs to nobody else
	maxBackingLen = 1023
	maxL1Entries  = 32 << 20 / 8 // QEMU's limit
)

// overlay is an empty disk, or one over another that is only read.
type overlay struct {
	// size is what a guest sees, in bytes: a positive multiple of 512.
	size int64
	// backing is the absolute path of the file below, and backingFormat its format; both are empty for none.
	backing, backingFormat string
	// content is of a disk without a backing file: data at offsets that are multiples of the cluster, in ascending order.
	content []extent
}

// extent is a cluster of content; what the source ends before is zeros.
type extent struct {
	at   int64
	from io.ReaderAt
}

// write writes the disk. The file has to be empty.
func (o overlay) write(w io.WriterAt) error {
	if o.size <= 0 || o.size%sector != 0 {
		return fmt.Errorf("a disk must have a positive multiple of %d bytes, not %d", sector, o.size)
	}
	if len(o.backing) > maxBackingLen || o.backing != "" && !strings.HasPrefix(o.backing, "/") {
		return fmt.Errorf("the backing file's path must be absolute, of at most %d bytes", maxBackingLen)
	}
	l1Entries := ceil(o.size, cluster*entriesL2)
	if l1Entries > maxL1Entries {
		return fmt.Errorf("a disk of %d bytes is larger than QEMU takes", o.size)
	}
	var tables []int64 // the L1 entries that have an L2 table
	for i, e := range o.content {
		if e.at%cluster != 0 || e.at < 0 || e.at >= o.size || i > 0 && e.at <= o.content[i-1].at {
			return errors.New("content must lie in the disk, cluster by cluster")
		}
		if l1 := e.at / (cluster * entriesL2); len(tables) == 0 || tables[len(tables)-1] != l1 {
			tables = append(tables, l1)
		}
	}
	// Header, refcount table, refcount blocks, L1 table, L2 tables, data. The counters count their own clusters too.
	l1Clusters := ceil(l1Entries*8, cluster)
	rest := 1 + l1Clusters + int64(len(tables)) + int64(len(o.content))
	blocks, tableClusters := int64(1), int64(1)
	for {
		all := rest + blocks + tableClusters
		b := ceil(all, refsOfBlock)
		c := ceil(b*8, cluster)
		if b == blocks && c == tableClusters {
			break
		}
		blocks, tableClusters = b, c
	}
	total := rest + blocks + tableClusters
	blocksAt := 1 + tableClusters
	l1At := blocksAt + blocks
	l2At := l1At + l1Clusters
	dataAt := l2At + int64(len(tables))

	head := make([]byte, headerLength, cluster)
	copy(head, "QFI\xfb")
	put32, put64 := binary.BigEndian.PutUint32, binary.BigEndian.PutUint64
	put32(head[4:], 3)
	put32(head[20:], clusterBits)
	put64(head[24:], uint64(o.size))
	put32(head[36:], uint32(l1Entries))
	put64(head[40:], uint64(l1At*cluster))
	put64(head[48:], cluster) // the refcount table follows the header
	put32(head[56:], uint32(tableClusters))
	put32(head[96:], 4) // refcount_order: 16 bits
	put32(head[100:], headerLength)
	if o.backing != "" {
		head = binary.BigEndian.AppendUint32(head, extBacking)
		head = binary.BigEndian.AppendUint32(head, uint32(len(o.backingFormat)))
		head = append(head, o.backingFormat...)
		head = append(head, make([]byte, -len(head)&7)...)
	}
	head = append(head, make([]byte, 8)...) // the end of the extensions
	if o.backing != "" {
		put64(head[8:], uint64(len(head)))
		put32(head[16:], uint32(len(o.backing)))
		head = append(head, o.backing...)
	}

	refs := make([]byte, blocks*cluster)
	for i := range total {
		binary.BigEndian.PutUint16(refs[2*i:], 1)
	}
	refTable := make([]byte, tableClusters*cluster)
	for i := range blocks {
		put64(refTable[8*i:], uint64((blocksAt+i)*cluster))
	}
	l1 := make([]byte, l1Clusters*cluster)
	for i, entry := range tables {
		put64(l1[8*entry:], flagCopied|uint64((l2At+int64(i))*cluster))
	}
	for _, piece := range []struct {
		at   int64
		data []byte
	}{{0, head[:cluster]}, {1, refTable}, {blocksAt, refs}, {l1At, l1}} {
		if _, err := w.WriteAt(piece.data, piece.at*cluster); err != nil {
			return err
		}
	}
	return o.writeContent(w, tables, l2At, dataAt)
}

// writeContent writes L2 tables and data.
func (o overlay) writeContent(w io.WriterAt, tables []int64, l2At, dataAt int64) error {
	l2, buffer := make([]byte, cluster), make([]byte, cluster)
	next := 0
	for i, entry := range tables {
		clear(l2)
		for ; next < len(o.content) && o.content[next].at/(cluster*entriesL2) == entry; next++ {
			e := o.content[next]
			where := (dataAt + int64(next)) * cluster
			binary.BigEndian.PutUint64(l2[e.at/cluster%entriesL2*8:], flagCopied|uint64(where))
			clear(buffer)
			if n, err := e.from.ReadAt(buffer, e.at); n < len(buffer) && !errors.Is(err, io.EOF) {
				return fmt.Errorf("reading content at %d: %w", e.at, err)
			}
			if _, err := w.WriteAt(buffer, where); err != nil {
				return err
			}
		}
		if _, err := w.WriteAt(l2, (l2At+int64(i))*cluster); err != nil {
			return err
		}
	}
	return nil
}

// readOverlay reads back what a disk that was written here is: its size and its backing file.
func readOverlay(r io.ReaderAt) (o overlay, err error) {
	head := make([]byte, headerLength)
	if n, err := r.ReadAt(head, 0); n < len(head) {
		return overlay{}, fmt.Errorf("the header cannot be read: %w", err)
	}
	if string(head[:4]) != "QFI\xfb" || binary.BigEndian.Uint32(head[4:]) != 3 {
		return overlay{}, errors.New("it is no qcow2 image of version 3")
	}
	o.size = int64(binary.BigEndian.Uint64(head[24:]))
	if at, n := binary.BigEndian.Uint64(head[8:]), binary.BigEndian.Uint32(head[16:]); at != 0 {
		if n > maxBackingLen || at > cluster-uint64(n) {
			return overlay{}, errors.New("its backing file's name leaves the header")
		}
		name := make([]byte, n)
		if got, err := r.ReadAt(name, int64(at)); got < len(name) {
			return overlay{}, fmt.Errorf("its backing file's name cannot be read: %w", err)
		}
		o.backing = string(name)
	}
	return o, nil
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }
