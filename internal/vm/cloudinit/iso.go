package cloudinit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
)

// WriteISO writes the data as an ISO 9660 image with Rock Ridge names to a new file of mode 0600, which replaces what has that name in
// one step. The same data gives the same bytes: all times are 1980-01-01, and everything is root's. What it writes on the way lies in a
// directory of its own beside the file, which only this user can read, and which is gone when it returns.
func WriteISO(name string, d *Data) (err error) {
	work, err := os.MkdirTemp(filepath.Dir(name), ".iso-*")
	if err != nil {
		return err
	}
	defer func() {
		if gone := os.RemoveAll(work); err == nil {
			err = gone
		}
	}()
	tree := filepath.Join(work, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	for _, f := range d.Files {
		if !filepath.IsLocal(f.Path) {
			return fmt.Errorf("cloudinit: file %q: must be a relative path", f.Path)
		}
		where := filepath.Join(tree, f.Path)
		if err := os.MkdirAll(filepath.Dir(where), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(where, f.Content, 0o600); err != nil {
			return err
		}
	}
	image := filepath.Join(work, "image")
	if err := makeISO(image, tree, d.Label); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return os.Rename(image, name)
}

func makeISO(name, tree, label string) error {
	out, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	fs, err := iso9660.Create(file.New(out, false), 0, 0, sector, tree)
	if err != nil {
		return err
	}
	if err := fs.Finalize(iso9660.FinalizeOptions{RockRidge: true, VolumeIdentifier: label}); err != nil {
		return err
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return err
	}
	image, err := io.ReadAll(out)
	if err != nil {
		return err
	}
	if err := settle(image); err != nil {
		return err
	}
	if _, err := out.WriteAt(image, 0); err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return err
	}
	return out.Close()
}

const sector = 2048

var errForm = errors.New("the image is not as expected")

// settle takes out of an image what is of this moment and this user: times, owners, modes. Offsets are ECMA-119's (8.4 and 9.1), entries
// SUSP's and Rock Ridge's (IEEE P1282: PX, TF).
func settle(image []byte) error {
	const pvd = 16 * sector
	if len(image) < pvd+sector || string(image[pvd+1:pvd+6]) != "CD001" {
		return errForm
	}
	for i := range 3 { // creation, modification, effective
		at := pvd + 813 + 17*[]int{0, 1, 3}[i]
		copy(image[at:at+17], "1980010100000000\x00")
	}
	copy(image[pvd+847:pvd+864], "0000000000000000\x00") // never expires
	root := image[pvd+156 : pvd+190]
	settleRecord(root)
	return settleDir(image, root, 0)
}

// settleDir goes through a directory and those below it.
func settleDir(image, record []byte, depth int) error {
	start := int(binary.LittleEndian.Uint32(record[2:])) * sector
	size := int(binary.LittleEndian.Uint32(record[10:]))
	if depth > 8 || start < 0 || size < 0 || start+size > len(image) {
		return errForm
	}
	dir := image[start : start+size]
	for at, entry := 0, 0; at < len(dir); {
		n := int(dir[at])
		if n == 0 { // the rest of the sector is empty
			at = (at/sector + 1) * sector
			continue
		}
		if n < 34 || at+n > len(dir) {
			return errForm
		}
		r := dir[at : at+n]
		settleRecord(r)
		name := int(r[32])
		system := 33 + name + (1 - name%2)
		if system > n {
			return errForm
		}
		isDir := r[25]&2 != 0
		settleSystem(r[system:], isDir)
		if isDir && entry >= 2 { // the first two are the directory and its parent
			if err := settleDir(image, r, depth+1); err != nil {
				return err
			}
		}
		at, entry = at+n, entry+1
	}
	return nil
}

func settleRecord(r []byte) { copy(r[18:25], []byte{80, 1, 1, 0, 0, 0, 0}) }

// settleSystem goes through the system use entries of one record.
func settleSystem(area []byte, isDir bool) {
	for len(area) >= 4 {
		n := int(area[2])
		if n < 4 || n > len(area) {
			return
		}
		entry := area[:n]
		switch string(entry[:2]) {
		case "TF":
			width, form := 7, []byte{80, 1, 1, 0, 0, 0, 0}
			if n > 4 && entry[4]&0x80 != 0 {
				width, form = 17, []byte("1980010100000000\x00")
			}
			for at := 5; at+width <= n; at += width {
				copy(entry[at:], form)
			}
		case "PX":
			mode, links := uint32(0o100400), uint32(1) // it can hold Secrets
			if isDir {
				mode, links = 0o040555, 2
			}
			for i, n := range []uint32{mode, links, 0, 0} { // user and group are root's
				if at := 4 + 8*i; at+8 <= len(entry) {
					binary.LittleEndian.PutUint32(entry[at:], n)
					binary.BigEndian.PutUint32(entry[at+4:], n)
				}
			}
		}
		area = area[n:]
	}
}
