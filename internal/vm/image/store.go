package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Options are a store's settings. The zero value of each means its default.
type Options struct {
	// MaxVirtualBytes bounds the disk that a guest sees. Default 1 TiB.
	MaxVirtualBytes int64
	// MaxBytes bounds what one pull transfers, and what one file unpacks to. Default 64 GiB.
	MaxBytes int64
	// ReserveBytes stay free on the store's filesystem. Default 1 GiB.
	ReserveBytes int64
	// MaxPulls is how many pulls run at once; more wait. Default 8.
	MaxPulls int
	// PullTimeout bounds one pull, waiting included. Default 2 hours.
	PullTimeout time.Duration
	// StallTimeout ends a request whose body stands still; it is then tried again. Default 1 minute.
	StallTimeout time.Duration
	// PartAge is how old the rest of a pull that broke off has to be before GC takes it. Default 24 hours.
	PartAge time.Duration
	// Architecture is what is chosen from an image index, in Go's words. Default: this program's.
	Architecture string

	// DefaultSource is where names without a scheme that no translation knows come from. Default SourceByName.
	DefaultSource Source
	// DownloadProtocol is the scheme of URLs that have none: "https", the default, or "http".
	DownloadProtocol string
	// AllowLoopbackURLs lets names that are URLs lead to the node itself.
	AllowLoopbackURLs bool
	// TranslationDir holds Virtlet's translation files, *.yaml and *.yml. It is read again for every pull. Default: none.
	TranslationDir string
	// Mappings gives the specs of VirtletImageMapping objects, in the order in which they count; all count before files. It is called for every pull.
	Mappings func() ([]Mapping, error)
	// ExactOnly has rules with a regexp match nothing.
	ExactOnly bool
	// Mirrors are asked for a registry's images before it, in this order.
	Mirrors []Mirror

	// Pinned are names, as in Pull, of images that the kubelet is asked not to collect.
	Pinned []string
	// InUse gives the ids of images that disks of VMs are based on, those being made included. It is called with the store locked, and must
	// not call it. Default: none is in use.
	InUse func() ([]Digest, error)

	// Now is the clock. Default time.Now.
	Now func() time.Time
	// wait waits before a request is tried again.
	wait func(context.Context, time.Duration) error
	// checkpoint is how many bytes are written between two syncs.
	checkpoint int64
	// files wraps the directory, for tests.
	files func(fileSystem) fileSystem
}

// Mirror has the images of a registry.
type Mirror struct {
	// Host is the registry's, as in names: "registry.k8s.io", "docker.io".
	Host string
	// URL of the mirror: http or https, host, and maybe a path that comes before each repository.
	URL string
}

// Image is an image that the store holds.
type Image struct {
	// ID is the digest of the disk file. It is what CRI calls the image's id, and one for all names of the content.
	ID Digest
	// RepoTags and RepoDigests are sorted. One of them may be empty. The digests are of manifests for registries, of the disk for URLs.
	RepoTags, RepoDigests []string
	// Path of the disk file: absolute if the store's directory was given so. It can be read by everybody and written by nobody.
	Path string
	// Format has to be given to QEMU.
	Format Format
	// VirtualSize is the size of the disk that a guest sees, Size that of the file, in bytes. Both are positive.
	VirtualSize, Size int64
	// Pulled is when the content came.
	Pulled time.Time
	// Pinned is what Options say.
	Pinned bool
}

// Store holds disk images below one directory. Its methods may be called from many goroutines.
type Store struct {
	dir     string
	options Options
	pinned  []Name
	fs      fileSystem
	root    *os.Root
	lock    *os.File
	slots   chan struct{} // one for each pull under way

	mu      sync.Mutex
	index   index
	flights map[string]*flight       // pulls, by name and credentials
	busy    map[string]chan struct{} // parts that somebody writes, by key; closed when they do no longer
	running sync.WaitGroup
	ended   context.Context
	end     context.CancelFunc
}

// Open opens the store in a directory, which it makes if need be. A directory has one store at a time: a second gets Unavailable. Errors of
// options are Invalid, all at once.
func Open(dir string, options Options) (*Store, error) {
	s := &Store{dir: dir, options: options, flights: map[string]*flight{}, busy: map[string]chan struct{}{}}
	if err := s.defaults(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		err = os.MkdirAll(dir, 0o755)
		if err == nil {
			err = os.Chmod(dir, 0o755) // QEMU's user has to get through, whatever the process's umask
		}
		if err != nil {
			return nil, fmt.Errorf("image store: %w", err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	s.root, s.fs = root, directory{root}
	if options.files != nil {
		s.fs = options.files(s.fs)
	}
	if err := s.start(); err != nil {
		_ = s.root.Close()
		if s.lock != nil {
			s.lock.Close()
		}
		return nil, fmt.Errorf("image store %s: %w", quote(dir), err)
	}
	s.slots = make(chan struct{}, s.options.MaxPulls)
	s.ended, s.end = context.WithCancel(context.Background())
	return s, nil
}

func (s *Store) start() error {
	lock, err := s.root.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	s.lock = lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return vm.Errorf(vm.Unavailable, "another process has it: %w", err)
	}
	// QEMU's user has to reach the disks; what is half pulled is nobody's business.
	if err := s.fs.Mkdir(disksDir, 0o755); err != nil {
		return err
	}
	if err := s.fs.Mkdir(partsDir, 0o700); err != nil {
		return err
	}
	if s.index, err = readIndex(s.fs); err != nil {
		return err
	}
	// Somebody may have removed a disk by hand. Its image is then to be pulled again.
	s.index.Images = slices.DeleteFunc(s.index.Images, func(r record) bool { return !s.present(r.ID, r.Size) })
	return nil
}

func (s *Store) defaults() error {
	o := &s.options
	set(&o.MaxVirtualBytes, 1<<40)
	set(&o.MaxBytes, 64<<30)
	set(&o.ReserveBytes, 1<<30)
	set(&o.MaxPulls, 8)
	set(&o.PullTimeout, 2*time.Hour)
	set(&o.StallTimeout, time.Minute)
	set(&o.PartAge, 24*time.Hour)
	set(&o.Architecture, runtime.GOARCH)
	set(&o.DefaultSource, SourceByName)
	set(&o.DownloadProtocol, schemeHTTPS)
	set(&o.checkpoint, 64<<20)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.wait == nil {
		o.wait = wait
	}
	var errs []error
	for name, v := range map[string]int64{
		"MaxVirtualBytes": o.MaxVirtualBytes, "MaxBytes": o.MaxBytes, "ReserveBytes": o.ReserveBytes, "MaxPulls": int64(o.MaxPulls),
		"PullTimeout": int64(o.PullTimeout), "StallTimeout": int64(o.StallTimeout), "PartAge": int64(o.PartAge),
	} {
		if v < 0 {
			errs = append(errs, vm.Errorf(vm.Invalid, "image store: %s must not be negative", name))
		}
	}
	if o.DownloadProtocol != schemeHTTP && o.DownloadProtocol != schemeHTTPS {
		errs = append(errs, vm.Errorf(vm.Invalid, "image store: DownloadProtocol %s: must be http or https", quote(o.DownloadProtocol)))
	}
	if !slices.Contains([]Source{SourceByName, SourceRegistry, SourceURL}, o.DefaultSource) {
		errs = append(errs, vm.Errorf(vm.Invalid, "image store: DefaultSource %s: must be %s, %s or %s", quote(string(o.DefaultSource)), SourceByName, SourceRegistry, SourceURL))
	}
	for _, m := range o.Mirrors {
		if _, err := m.endpoint(); err != nil {
			errs = append(errs, err)
		}
	}
	for _, p := range o.Pinned {
		name, err := ParseName(p)
		if err != nil {
			errs = append(errs, err)
		}
		s.pinned = append(s.pinned, name)
	}
	return errors.Join(errs...)
}

func set[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends all pulls, waits for them, and lets go of the directory. Images stay.
func (s *Store) Close() error {
	s.mu.Lock()
	s.end() // no pull starts from here on
	s.mu.Unlock()
	s.running.Wait()
	return errors.Join(s.lock.Close(), s.root.Close())
}

// Status gives the image that a reference means: an id, at least eight digits of one, a name with tag, a name with digest, or a digest alone. The error is
// NotFound where there is none, also for references that can be no name.
func (s *Store) Status(reference string) (Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.index.find(reference)
	if i < 0 {
		return Image{}, vm.Errorf(vm.NotFound, "image %s: the node does not have it", quote(reference))
	}
	return s.image(s.index.Images[i]), nil
}

// List gives the image that a reference means, or all, by id, if the reference is empty. What is not there is no error.
func (s *Store) List(reference string) []Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	var images []Image
	if reference != "" {
		if i := s.index.find(reference); i >= 0 {
			images = append(images, s.image(s.index.Images[i]))
		}
		return images
	}
	for _, r := range s.index.Images {
		images = append(images, s.image(r))
	}
	return images
}

func (s *Store) image(r record) Image {
	return Image{
		ID: r.ID, RepoTags: slices.Clone(r.Tags), RepoDigests: slices.Clone(r.Digests), Format: r.Format, VirtualSize: r.VirtualSize, Size: r.Size, Pulled: r.Pulled,
		Path:   filepath.Join(s.dir, diskPath(r.ID)),
		Pinned: slices.ContainsFunc(s.pinned, r.has),
	}
}

func diskPath(id Digest) string { return filepath.Join(disksDir, id.Hex()) }

// Remove removes the image that a reference means, with all its names, as CRI has it: what is not there is no error. The file of an image
// that is in use stays until GC finds that it no longer is.
func (s *Store) Remove(reference string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.index.find(reference)
	if i < 0 {
		return nil
	}
	id := s.index.Images[i].ID
	next := s.index.clone()
	next.Images = slices.Delete(next.Images, i, i+1)
	if err := s.write(next); err != nil {
		return fmt.Errorf("image %s: removing: %w", quote(reference), err)
	}
	used, err := s.used()
	if err != nil || used[id] {
		return nil // GC asks again
	}
	if err := s.fs.Remove(diskPath(id)); err != nil {
		return fmt.Errorf("image %s: removing: %w", quote(reference), err)
	}
	return nil
}

// write makes an index the truth. The store is locked.
func (s *Store) write(next index) error {
	data, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := writeFile(s.fs, ".", indexFile, append(data, '\n')); err != nil {
		// It may have come to the rename, or not.
		if now, readErr := readIndex(s.fs); readErr == nil {
			s.index = now
		}
		return err
	}
	s.index = next
	return nil
}

// used gives the ids that the caller holds. The store is locked.
func (s *Store) used() (map[Digest]bool, error) {
	used := map[Digest]bool{}
	if s.options.InUse == nil {
		return used, nil
	}
	ids, err := s.options.InUse()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		used[id] = true
	}
	return used, nil
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
