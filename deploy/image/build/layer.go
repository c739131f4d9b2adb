package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// file is one in an image. All belong to root: a program without rights can change nothing of its own image.
type file struct {
	path string // without the first slash
	mode int64
	body []byte
	dir  bool
	link string // where a symbolic link leads
}

type files []file

// layer is the files, and the folders on their way, as a layer: in the order of their names, all of one time.
func (f files) layer(at time.Time) (v1.Layer, error) {
	known := map[string]bool{}
	var all files
	for _, x := range f {
		known[x.path] = true
		all = append(all, x)
	}
	for _, x := range f {
		for dir := path.Dir(x.path); dir != "."; dir = path.Dir(dir) {
			if !known[dir] {
				known[dir] = true
				all = append(all, file{path: dir, mode: 0o755, dir: true})
			}
		}
	}
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.path, b.path) })
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, x := range all {
		h := &tar.Header{Name: x.path, Mode: x.mode, ModTime: at, Typeflag: tar.TypeReg, Size: int64(len(x.body)), Format: tar.FormatPAX}
		switch {
		case x.dir:
			h.Name, h.Typeflag = x.path+"/", tar.TypeDir
		case x.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, x.link
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("layer: %s: %w", x.path, err)
		}
		if _, err := w.Write(x.body); err != nil {
			return nil, fmt.Errorf("layer: %s: %w", x.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	return layer, nil
}

// certificates are those of public authorities, in PEM. Authorities that are trusted under conditions which a file cannot say are left
// out: what the program itself would refuse, a file would let pass.
func certificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) //nolint:errcheck // a buffer takes all
	}
	return out.Bytes()
}
