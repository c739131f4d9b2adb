package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/image/qcow2"
)

// Format is a disk's format. It is always given to QEMU by name: QEMU must never guess, because a guest can write a header.
type Format string

// Formats that are taken.
const (
	QCOW2 Format = "qcow2"
	Raw   Format = "raw"
)

const sectorBytes = 512

// magic is how another format is known. at counts from the end where it is negative.
type magic struct {
	at     int64
	bytes  string
	format string
}

// foreign formats: those that QEMU knows (block/*.c name the same constants), and what people forget to unpack. Raw disks that begin so are refused,
// declared or not: no machine boots from them, and nobody is to find out what happens if a part of the node takes them for what they look like.
var foreign = []magic{
	{0, qcow2.Magic, "qcow"},
	{0, "KDMV", "vmdk"},
	{0, "COWD", "vmdk"},
	{0, "# Disk DescriptorFile", "vmdk"},
	{0x40, "\x7f\x10\xda\xbe", "vdi"},
	{0, "QED\x00", "qed"},
	{0, "vhdxfile", "vhdx"},
	{0, "conectix", "vhd"},
	{-512, "conectix", "vhd"},
	{-512, "koly", "dmg"},
	{0, "LUKS\xba\xbe", "luks"},
	{0, "SKUL\xba\xbe", "luks"},
	{0, "WithoutFreeSpace", "parallels"},
	{0, "WithouFreSpacExt", "parallels"},
	{0, "Bochs Virtual HD Image", "bochs"},
	{0, "#!/bin/sh\n#V2.0 Format\n", "cloop"},
	{0, "OOOM", "cow"},
	{0, "\x1f\x8b", "gzip"},
	{0, "\xfd7zXZ\x00", "xz"},
	{0, "\x28\xb5\x2f\xfd", "zstd"},
	{0, "BZh", "bzip2"},
	{0, "PK\x03\x04", "zip"},
	{0, "7z\xbc\xaf\x27\x1c", "7z"},
}

// judge tells the format and the size of the disk in a file of size bytes, or why it is refused. declared may be empty. The format depends on
// the file's content alone, so that one content has one format; what is declared is a second condition.
func judge(f io.ReaderAt, size int64, declared Format, most int64) (Format, int64, error) {
	format, err := looksLike(f, size)
	if err != nil {
		return "", 0, err
	}
	virtual := size
	switch format {
	case "qcow":
		header, err := qcow2.Read(f, size)
		var refused *qcow2.RefusedError
		if errors.As(err, &refused) {
			return "", 0, vm.Errorf(vm.Invalid, "%w", err)
		} else if err != nil {
			return "", 0, err
		}
		virtual, format = header.VirtualSize, string(QCOW2)
	case "":
		if size == 0 || size%sectorBytes != 0 {
			return "", 0, vm.Errorf(vm.Invalid, "it is no qcow2 image, and a raw disk must be a positive multiple of %d bytes, this has %d", sectorBytes, size)
		}
		format = string(Raw)
	default:
		return "", 0, vm.Errorf(vm.Invalid, "it is in the format %s, and must be qcow2 or raw", format)
	}
	if declared != "" && string(declared) != format {
		return "", 0, vm.Errorf(vm.Invalid, "it is declared as %s, and is %s", declared, format)
	}
	if virtual > most {
		return "", 0, vm.Errorf(vm.Exhausted, "its disk has %d bytes, and this node takes at most %d", virtual, most)
	}
	return Format(format), virtual, nil
}

func looksLike(f io.ReaderAt, size int64) (string, error) {
	const longest = 64
	b := make([]byte, longest)
	for _, m := range foreign {
		at := m.at
		if at < 0 {
			at += size
		}
		if at < 0 || at+int64(len(m.bytes)) > size {
			continue
		}
		b := b[:len(m.bytes)]
		if n, err := f.ReadAt(b, at); n < len(b) {
			return "", fmt.Errorf("reading %d bytes at %d: %w", len(b), at, err)
		}
		if bytes.Equal(b, []byte(m.bytes)) {
			return m.format, nil
		}
	}
	return "", nil
}
