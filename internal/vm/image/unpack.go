package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"

	"github.com/muster-scheduler/muster/internal/vm"
)

// A KubeVirt containerDisk is a container image that holds one disk as a file of the folder /disk (https://kubevirt.io/user-guide/storage/disks_and_volumes/#containerdisk). The
// layers are looked at from the top. The first that has a file there decides, and has to have one. Files whose names begin with a dot do not count.

// maxZstdWindow is what a zstd frame may have its decoder remember, in bytes: the format asks decoders for 8 MiB, strong compression takes 128.
const maxZstdWindow = 128 << 20

// Names of files that say what an upper layer takes from those below (OCI image specification, layer.md, "Whiteouts").
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

func (s *Store) pullContainerDisk(ctx context.Context, r *repository, layers []v1.Descriptor, names record, progress func(int64, int64)) (record, error) {
	gone := map[string]bool{}
	for _, layer := range slices.Backward(layers) {
		result, done, err := s.pullArchive(ctx, r, layer, gone, names, progress)
		if err != nil || done {
			return result, err
		}
		if gone[opaque] {
			break
		}
	}
	return record{}, vm.Errorf(vm.Invalid, "it is a container image of %d layers without a file in /disk, and no disk", len(layers))
}

// pullArchive looks for the disk in one layer. gone has the names that upper layers took away, and gets this layer's.
func (s *Store) pullArchive(ctx context.Context, r *repository, layer v1.Descriptor, gone map[string]bool, names record, progress func(int64, int64)) (record, bool, error) {
	key := partKey("blob", layer.Digest.String())
	release, err := s.hold(ctx, key)
	if err != nil {
		return record{}, false, err
	}
	defer release()
	blob, err := s.blob(ctx, r, layer, key, progress)
	if err != nil {
		return record{}, false, err
	}
	disk, declared, err := s.unpack(ctx, blob, key, gone)
	if err != nil {
		if disk != nil {
			disk.discard()
		}
		blob.leave(err)
		return record{}, false, fmt.Errorf("layer %s: %w", layer.Digest, err)
	}
	if disk == nil {
		blob.discard()
		return record{}, false, nil
	}
	result, err := s.take(disk, declared, names)
	blob.discard() // after a crash here it is the rest of a pull, and the next pull knows the image
	return result, err == nil, err
}

// unpack writes the disk of a layer to a file beside it. It gives none if the layer has none.
func (s *Store) unpack(ctx context.Context, blob *part, key string, gone map[string]bool) (disk *part, declared Format, err error) {
	if err := blob.stretch(); err != nil {
		return nil, "", err
	}
	in, end, err := decompress(io.NewSectionReader(blob.f, 0, blob.size))
	if err != nil {
		return nil, "", err
	}
	defer end()
	// An archive may be larger than its disk, and not by much: it is read to its end.
	files := tar.NewReader(&bounded{r: in, left: s.options.MaxBytes + 1<<20, ctx: ctx})
	here := map[string]bool{}
	for {
		header, err := files.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return disk, declared, archiveError(err)
		}
		dir, file := path.Split(strings.TrimPrefix(path.Clean("/"+header.Name), "/"))
		if dir != "disk/" {
			if dir == "" && file == whiteout+"disk" {
				here[opaque] = true
			}
			continue
		}
		if rest, ok := strings.CutPrefix(file, whiteout); ok {
			here[rest] = true
			if file == opaque {
				here[opaque] = true
			}
			continue
		}
		if header.Typeflag == tar.TypeDir || strings.HasPrefix(file, ".") || gone[file] {
			continue
		}
		if header.Typeflag != tar.TypeReg && header.Typeflag != tar.TypeGNUSparse {
			return disk, declared, vm.Errorf(vm.Invalid, "/disk/%s: must be a regular file, and is a link or a device", quote(file))
		}
		if disk != nil {
			return disk, declared, vm.Errorf(vm.Invalid, "/disk must hold one file, and holds %s beside another", quote(file))
		}
		if header.Size > s.options.MaxBytes {
			return disk, declared, vm.Errorf(vm.Exhausted, "/disk/%s: has %d bytes, and this node takes at most %d", quote(file), header.Size, s.options.MaxBytes)
		}
		if disk, err = s.newPart(key); err != nil {
			return nil, "", err
		}
		if err := disk.room(header.Size); err != nil {
			return disk, declared, err
		}
		switch strings.ToLower(path.Ext(file)) {
		case ".qcow2":
			declared = QCOW2
		case ".raw":
			declared = Raw
		}
		if err := disk.copy(files, func() {}); err != nil {
			var broken readError
			if errors.As(err, &broken) {
				return disk, declared, archiveError(broken.error)
			}
			return disk, declared, err
		}
	}
	for name := range here {
		gone[name] = true
	}
	return disk, declared, nil
}

func archiveError(err error) error {
	if vm.KindOf(err) != vm.Internal || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return vm.Errorf(vm.Invalid, "its archive cannot be read: %w", err)
}

// decompress finds out how a layer is packed by its first bytes, whatever its media type says.
func decompress(r io.Reader) (io.Reader, func(), error) {
	in := bufio.NewReaderSize(r, 1<<20)
	first, err := in.Peek(4)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(first, []byte("\x1f\x8b")):
		unzip, err := gzip.NewReader(in)
		if err != nil {
			return nil, nil, archiveError(err)
		}
		return unzip, func() { _ = unzip.Close() }, nil
	case bytes.HasPrefix(first, []byte("\x28\xb5\x2f\xfd")):
		unzip, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, nil, archiveError(err)
		}
		return unzip, unzip.Close, nil
	}
	return in, func() {}, nil
}

// bounded ends a reader that gives more than it may.
type bounded struct {
	r    io.Reader
	left int64
	ctx  context.Context
}

func (b *bounded) Read(p []byte) (int, error) {
	if err := context.Cause(b.ctx); err != nil {
		return 0, err
	}
	if b.left <= 0 {
		return 0, vm.Errorf(vm.Exhausted, "it unpacks to more than this node takes")
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
