package qcow2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// minimal is an image of one cluster size of 64 KiB with a disk of 1 MiB: header, refcount table, L1 table, in that order.
func minimal() []byte {
	b := make([]byte, 3<<16)
	copy(b, Magic)
	put32(b, 4, 3)
	put32(b, 20, 16)
	put64(b, 24, 1<<20)
	put32(b, 36, 1)
	put64(b, 40, 2<<16)
	put64(b, 48, 1<<16)
	put32(b, 56, 1)
	put32(b, 96, 4)
	put32(b, 100, 104)
	return b
}

func put16(b []byte, at int, v uint16) { binary.BigEndian.PutUint16(b[at:], v) }
func put32(b []byte, at int, v uint32) { binary.BigEndian.PutUint32(b[at:], v) }
func put64(b []byte, at int, v uint64) { binary.BigEndian.PutUint64(b[at:], v) }

func TestRead(t *testing.T) {
	t.Parallel()
	extension := func(b []byte, kind, length uint32) { put32(b, 104, kind); put32(b, 108, length) }
	snapshot := func(b []byte) []byte { // a fourth cluster with a table of one entry, whose name is four bytes
		b = append(b, make([]byte, 1<<16)...)
		put32(b, 60, 1)
		put64(b, 64, 3<<16)
		put64(b, 3<<16, 2<<16)
		put32(b, 3<<16+8, 1)
		put16(b, 3<<16+14, 4)
		return b
	}
	for _, test := range []struct {
		name   string
		change func([]byte) []byte
		field  string // of the refusal; empty: it is good
	}{
		{"as made", func(b []byte) []byte { return b }, ""},
		{"version 2", func(b []byte) []byte { put32(b, 4, 2); return b }, ""},
		{"L1 table ends with the file", func(b []byte) []byte { return b[:2<<16+8] }, ""},
		{"dirty", func(b []byte) []byte { put64(b, 72, bitDirty); return b }, ""},
		{"unknown compatible feature", func(b []byte) []byte { put64(b, 80, 1<<40); return b }, ""},
		{"zstd", func(b []byte) []byte { put64(b, 72, bitCompression); put32(b, 100, 112); b[104] = 1; return b }, ""},
		{"unknown extension", func(b []byte) []byte { extension(b, 0x1234, 5); return b }, ""},
		{"one snapshot", snapshot, ""},
		{"extended L2", func(b []byte) []byte { put64(b, 72, bitExtendedL2); return b }, ""},

		{"nothing", func([]byte) []byte { return nil }, "magic"},
		{"three bytes", func(b []byte) []byte { return b[:3] }, "magic"},
		{"other magic", func(b []byte) []byte { b[0] = 'q'; return b }, "magic"},
		{"version 1", func(b []byte) []byte { put32(b, 4, 1); return b }, "version"},
		{"version 4", func(b []byte) []byte { put32(b, 4, 4); return b }, "version"},
		{"header cut", func(b []byte) []byte { return b[:100] }, "header_length"},
		{"backing file", func(b []byte) []byte { put64(b, 8, 1024); put32(b, 16, 11); copy(b[1024:], "/etc/shadow"); return b }, "backing_file_offset"},
		{"backing file beyond the file", func(b []byte) []byte { put64(b, 8, 1<<63); return b }, "backing_file_offset"},
		{"backing file of version 2", func(b []byte) []byte { put32(b, 4, 2); put64(b, 8, 1024); return b }, "backing_file_offset"},
		{"external data", func(b []byte) []byte { put64(b, 72, bitExternalData); return b }, "incompatible_features"},
		{"raw external data", func(b []byte) []byte { put64(b, 88, 2); return b }, "autoclear_features"},
		{"name of external data alone", func(b []byte) []byte { extension(b, extExternalData, 8); return b }, "header extensions"},
		{"AES", func(b []byte) []byte { put32(b, 32, 1); return b }, "crypt_method"},
		{"LUKS", func(b []byte) []byte { put32(b, 32, 2); return b }, "crypt_method"},
		{"pointer to a key alone", func(b []byte) []byte { extension(b, extEncryption, 16); return b }, "header extensions"},
		{"unknown incompatible feature", func(b []byte) []byte { put64(b, 72, 1<<5); return b }, "incompatible_features"},
		{"highest incompatible feature", func(b []byte) []byte { put64(b, 72, 1<<63); return b }, "incompatible_features"},
		{"corrupt", func(b []byte) []byte { put64(b, 72, bitCorrupt); return b }, "incompatible_features"},
		{"clusters of 256 bytes", func(b []byte) []byte { put32(b, 20, 8); return b }, "cluster_bits"},
		{"clusters of 4 MiB", func(b []byte) []byte { put32(b, 20, 22); return b }, "cluster_bits"},
		{"clusters of 2^32 bits", func(b []byte) []byte { put32(b, 20, 1<<31); return b }, "cluster_bits"},
		{"extended L2 in small clusters", func(b []byte) []byte { put64(b, 72, bitExtendedL2); put32(b, 20, 13); return b }, "cluster_bits"},
		{"no size", func(b []byte) []byte { put64(b, 24, 0); return b }, "size"},
		{"half a sector", func(b []byte) []byte { put64(b, 24, 1<<20+256); return b }, "size"},
		{"negative size", func(b []byte) []byte { put64(b, 24, 1<<63); return b }, "size"},
		{"L1 too short", func(b []byte) []byte { put64(b, 24, 1<<40); return b }, "l1_size"},
		{"L1 too long", func(b []byte) []byte { put32(b, 36, 1<<31); return b }, "l1_size"},
		{"L1 beyond the file", func(b []byte) []byte { put64(b, 40, 3<<16); return b }, "l1_table_offset"},
		{"L1 far beyond the file", func(b []byte) []byte { put64(b, 40, 0xffffffffffff0000); return b }, "l1_table_offset"},
		{"L1 not aligned", func(b []byte) []byte { put64(b, 40, 2<<16+8); return b }, "l1_table_offset"},
		{"L1 in the header", func(b []byte) []byte { put64(b, 40, 0); return b }, "l1_table_offset"},
		{"refcounts beyond the file", func(b []byte) []byte { put32(b, 56, 3); return b }, "refcount_table_offset"},
		{"refcounts in the header", func(b []byte) []byte { put64(b, 48, 0); return b }, "refcount_table_offset"},
		{"no refcounts", func(b []byte) []byte { put32(b, 56, 0); return b }, "refcount_table_clusters"},
		{"too many refcounts", func(b []byte) []byte { put32(b, 56, 1<<31); return b }, "refcount_table_clusters"},
		{"wide refcounts", func(b []byte) []byte { put32(b, 96, 7); return b }, "refcount_order"},
		{"short header", func(b []byte) []byte { put32(b, 100, 96); return b }, "header_length"},
		{"odd header", func(b []byte) []byte { put32(b, 100, 105); return b }, "header_length"},
		{"long header", func(b []byte) []byte { put32(b, 100, 1<<16+8); return b }, "header_length"},
		{"compression without its bit", func(b []byte) []byte { put32(b, 100, 112); b[104] = 1; return b }, "compression_type"},
		{"bit without compression", func(b []byte) []byte { put64(b, 72, bitCompression); return b }, "compression_type"},
		{"unknown compression", func(b []byte) []byte { put64(b, 72, bitCompression); put32(b, 100, 112); b[104] = 2; return b }, "compression_type"},
		{"extension leaves the cluster", func(b []byte) []byte { extension(b, 0x1234, 1<<16); return b }, "header extensions"},
		{"extension of 4 GiB", func(b []byte) []byte { extension(b, 0x1234, 0xffffffff); return b }, "header extensions"},
		{"bitmaps of no size", func(b []byte) []byte { extension(b, extBitmaps, 8); return b }, "bitmaps extension"},
		{"bitmaps beyond the file", func(b []byte) []byte {
			extension(b, extBitmaps, 24)
			put32(b, 112, 1)
			put64(b, 120, 1<<16)
			put64(b, 128, 3<<16)
			return b
		}, "bitmaps extension: bitmap_directory_offset"},
		{"too many snapshots", func(b []byte) []byte { put32(b, 60, maxSnapshots+1); return b }, "nb_snapshots"},
		{"snapshots beyond the file", func(b []byte) []byte { put32(b, 60, 1); put64(b, 64, 3<<16); return b }, "snapshots_offset"},
		{"snapshots not aligned", func(b []byte) []byte { put32(b, 60, 1); put64(b, 64, 77); return b }, "snapshots_offset"},
		{"snapshot's L1 beyond the file", func(b []byte) []byte { b = snapshot(b); put64(b, 3<<16, 4<<16); return b }, "snapshot 1: l1_table_offset"},
		{"snapshot's L1 too long", func(b []byte) []byte { b = snapshot(b); put32(b, 3<<16+8, 1<<30); return b }, "snapshots_offset"},
		{"snapshot's extra data leaves the file", func(b []byte) []byte { b = snapshot(b); put32(b, 3<<16+36, 1<<17); return b }, "snapshots_offset"},
		{"second snapshot has no room", func(b []byte) []byte { b = snapshot(b); put32(b, 60, 2); return b[:3<<16+80] }, "snapshots_offset"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := test.change(minimal())
			got, err := Read(bytes.NewReader(b), int64(len(b)))
			if test.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				if got.VirtualSize != 1<<20 || got.ClusterBits != 16 {
					t.Errorf("header %+v", got)
				}
				return
			}
			var refused *RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("header %+v and error %v, want a refusal of %s", got, err, test.field)
			}
			if refused.Field != test.field {
				t.Errorf("refused for %q (%v), want %s", refused.Field, err, test.field)
			}
		})
	}
}

// FuzzRead: whatever is read, there is an answer; what is good has no door to another file, by the format's own offsets.
func FuzzRead(f *testing.F) {
	good := minimal()[:2<<16+8]
	f.Add(good[:200], int64(len(good)))
	for _, at := range []int{4, 8, 20, 24, 32, 36, 40, 48, 56, 60, 64, 72, 96, 100, 104} {
		b := bytes.Clone(good[:200])
		b[at] ^= 0xff
		f.Add(b, int64(len(good)))
	}
	f.Fuzz(func(t *testing.T, head []byte, size int64) {
		if size < 0 || size > 8<<20 {
			size = int64(len(head))
		}
		b := make([]byte, size)
		copy(b, head)
		got, err := Read(bytes.NewReader(b), size)
		if err != nil {
			return
		}
		if binary.BigEndian.Uint64(b[8:]) != 0 || binary.BigEndian.Uint32(b[32:]) != 0 {
			t.Errorf("%+v: an image with a backing file or encryption passed", got)
		}
		if got.Version == 3 && binary.BigEndian.Uint64(b[72:])&4 != 0 {
			t.Errorf("%+v: an image with an external data file passed", got)
		}
		if got.VirtualSize <= 0 || got.VirtualSize%512 != 0 {
			t.Errorf("%+v: a disk of no whole sectors passed", got)
		}
	})
}
