package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Names in the store's directory.
const (
	disksDir  = "disks" // the disks, each by the hexadecimal digits of its digest
	partsDir  = "parts" // what is being pulled
	indexFile = "index.json"
	lockFile  = "lock"
	temporary = ".tmp"
)

const (
	indexVersion  = 1
	maxIndexBytes = 64 << 20
	minPrefix     = 8 // hexadecimal digits of a shortened id
)

// record is an image as the index has it.
type record struct {
	ID          Digest    `json:"id"`
	Format      Format    `json:"format"`
	VirtualSize int64     `json:"virtualSize"`
	Size        int64     `json:"size"`
	Tags        []string  `json:"tags,omitempty"`    // sorted
	Digests     []string  `json:"digests,omitempty"` // sorted
	Pulled      time.Time `json:"pulled"`
	// Origins are the URLs that had this content, so that a server is asked whether it still has.
	Origins []origin `json:"origins,omitempty"`
}

// origin is a URL by its digest, because URLs may hold credentials, and what the server calls its content.
type origin struct {
	URL       string `json:"url"`
	Validator string `json:"validator"`
}

// index is all that the store knows. It is never changed in place: a copy is written, and then taken for the truth.
type index struct {
	Version int      `json:"version"`
	Images  []record `json:"images"` // by id
}

func (x index) clone() index {
	x.Images = slices.Clone(x.Images)
	for i := range x.Images {
		r := &x.Images[i]
		r.Tags, r.Digests, r.Origins = slices.Clone(r.Tags), slices.Clone(r.Digests), slices.Clone(r.Origins)
	}
	return x
}

func (x index) byID(id Digest) int {
	return slices.IndexFunc(x.Images, func(r record) bool { return r.ID == id })
}

// find gives the place of the image that a reference means, or -1: an id, the beginning of an id, a digest that a registry knows the image by, or a
// name with tag or digest.
func (x index) find(reference string) int {
	if digest, err := ParseDigest(reference); err == nil {
		if i := x.byID(digest); i >= 0 {
			return i
		}
		return slices.IndexFunc(x.Images, func(r record) bool {
			return slices.ContainsFunc(r.Digests, func(d string) bool { return strings.HasSuffix(d, "@"+reference) })
		})
	}
	if name, err := ParseName(reference); err == nil {
		if i := slices.IndexFunc(x.Images, func(r record) bool { return r.has(name) }); i >= 0 {
			return i
		}
	}
	short := strings.TrimPrefix(reference, sha256Prefix)
	if len(short) < minPrefix || !isHex(short) {
		return -1
	}
	begins := func(r record) bool { return strings.HasPrefix(r.ID.Hex(), short) }
	i := slices.IndexFunc(x.Images, begins)
	if i >= 0 && slices.ContainsFunc(x.Images[i+1:], begins) {
		return -1 // it may mean two
	}
	return i
}

// has reports whether a record goes by a name. A digest in the name counts more than the tag beside it, and may be the disk's own.
func (r record) has(n Name) bool {
	if n.Digest == "" {
		return slices.Contains(r.Tags, n.Tagged())
	}
	if slices.Contains(r.Digests, n.With(n.Digest)) {
		return true
	}
	return r.ID == n.Digest && slices.ContainsFunc(append(slices.Clone(r.Tags), r.Digests...), func(s string) bool {
		known, err := ParseName(s)
		return err == nil && known.Repository == n.Repository
	})
}

// add puts a record in, or its names to those of the same content. A tag and a URL have one image: others lose them.
func (x index) add(r record) (index, record) {
	x = x.clone()
	for i := range x.Images {
		other := &x.Images[i]
		other.Tags = slices.DeleteFunc(other.Tags, func(t string) bool { return slices.Contains(r.Tags, t) })
		if other.ID != r.ID {
			other.Origins = without(other.Origins, r.Origins)
		}
	}
	i := x.byID(r.ID)
	if i < 0 {
		i, _ = slices.BinarySearchFunc(x.Images, r.ID, func(a record, id Digest) int { return strings.Compare(string(a.ID), string(id)) })
		x.Images = slices.Insert(x.Images, i, record{ID: r.ID})
	}
	old := x.Images[i]
	r.Tags = union(old.Tags, r.Tags)
	r.Digests = union(old.Digests, r.Digests)
	r.Origins = append(without(old.Origins, r.Origins), r.Origins...)
	x.Images[i] = r
	return x, r
}

func without(all, gone []origin) []origin {
	return slices.DeleteFunc(slices.Clone(all), func(o origin) bool {
		return slices.ContainsFunc(gone, func(g origin) bool { return g.URL == o.URL })
	})
}

func union(a, b []string) []string {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}

// readIndex reads and checks the index. No index is an empty one.
func readIndex(fs fileSystem) (index, error) {
	f, err := fs.Open(indexFile, false)
	if errors.Is(err, os.ErrNotExist) {
		return index{Version: indexVersion}, nil
	}
	if err != nil {
		return index{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxIndexBytes+1))
	if err != nil {
		return index{}, err
	}
	var x index
	if err := json.Unmarshal(data, &x); err != nil {
		return index{}, fmt.Errorf("%s: %w", indexFile, err)
	}
	if x.Version != indexVersion {
		return index{}, fmt.Errorf("%s: version must be %d, is %d: another version of this program wrote it", indexFile, indexVersion, x.Version)
	}
	for _, r := range x.Images {
		if _, err := ParseDigest(string(r.ID)); err != nil || r.Format != QCOW2 && r.Format != Raw {
			return index{}, fmt.Errorf("%s: image %s: must have a digest for an id, and the format qcow2 or raw", indexFile, quote(string(r.ID)))
		}
	}
	return x, nil
}

// writeFile puts data in the place of a file: who reads it, after a crash too, finds the old or the new.
func writeFile(fs fileSystem, dir, name string, data []byte) error {
	if err := fs.Remove(name + temporary); err != nil {
		return err
	}
	f, err := fs.Create(name+temporary, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = fs.Rename(name+temporary, name)
	}
	if err == nil {
		err = fs.SyncDir(dir)
	}
	return full(err)
}

// full gives an error its kind, where the disk's space is the reason.
func full(err error) error {
	if isFull(err) {
		return vm.Errorf(vm.Exhausted, "the image store's filesystem is full: %w", err)
	}
	return err
}
