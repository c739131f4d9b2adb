package main

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// write puts the images of one name into an OCI archive, and returns the digest under which all of them can be had: that of an index if
// there are several, so that each machine finds its own.
func write(path, name string, images []built) (v1.Hash, error) {
	dir, err := os.MkdirTemp("", "muster-layout-")
	if err != nil {
		return v1.Hash{}, fmt.Errorf("folder for the layout: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	lay, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return v1.Hash{}, fmt.Errorf("layout: %w", err)
	}
	_, tag, _ := strings.Cut(name, ":")
	// containerd takes the name as it is, and its CRI finds only what is called by a whole name.
	names := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": "docker.io/library/" + name})
	var digest v1.Hash
	if len(images) == 1 {
		b := images[0]
		if digest, err = b.image.Digest(); err == nil {
			err = lay.AppendImage(b.image, names, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: b.arch}))
		}
	} else {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, b := range images {
			index = mutate.AppendManifests(index, mutate.IndexAddendum{
				Add: b.image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: b.arch}},
			})
		}
		if digest, err = index.Digest(); err == nil {
			err = lay.AppendIndex(index, names)
		}
	}
	if err != nil {
		return v1.Hash{}, fmt.Errorf("layout: %w", err)
	}
	return digest, pack(dir, path)
}

// pack writes a folder into a tar file, in the order of names, without times.
func pack(dir, path string) (err error) {
	var names []string
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, p)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	slices.Sort(names)
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	defer func() {
		if e := out.Close(); err == nil && e != nil {
			err = fmt.Errorf("archive: %w", e)
		}
	}()
	w := tar.NewWriter(out)
	for _, name := range names {
		if err := add(w, dir, name); err != nil {
			return fmt.Errorf("archive: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return nil
}

func add(w *tar.Writer, dir, name string) error {
	rel, err := filepath.Rel(dir, name)
	if err != nil {
		return err
	}
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was only read
	info, err := in.Stat()
	if err != nil {
		return err
	}
	h := &tar.Header{Name: filepath.ToSlash(rel), Mode: 0o644, Size: info.Size(), ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}
