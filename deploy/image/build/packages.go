package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// pkg is a package of Debian's that an image holds, as the lock names it.
type pkg struct {
	name, version, arch, sum string
	control                  []byte // what it says of itself
}

// locked reads the packages for an architecture from the lock: a line is a name, a version, an architecture, and the sha256 of the
// package's file.
func locked(lock, arch string) ([]pkg, error) {
	text, err := os.ReadFile(lock)
	if err != nil {
		return nil, fmt.Errorf("packages: %w", err)
	}
	var out []pkg
	for number, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
			continue
		case len(words) != 4 || len(words[3]) != hex.EncodedLen(sha256.Size):
			return nil, fmt.Errorf("%s:%d: not a name, a version, an architecture and a sha256", lock, number+1)
		case words[2] == arch:
			out = append(out, pkg{name: words[0], version: words[1], arch: words[2], sum: words[3]})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s names no package for %s", lock, arch)
	}
	return out, nil
}

// errGone says that a package is not to be had any more: the archive keeps the newest of each release only.
var errGone = errors.New("the package's archive has another version by now: look at what changed, and write that into deploy/image/packages.lock")

// fetch returns the files of packages, which it has downloaded by the machine's own sources, and proved.
func fetch(ctx context.Context, packages []pkg, work string) (files, error) {
	var out files
	for _, tool := range [...]string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("packages are fetched by the machine's own sources: %w", err)
		}
	}
	sources, err := sourcesFor(ctx, packages[0].arch, work)
	if err != nil {
		return nil, err
	}
	for i := range packages {
		p := &packages[i]
		dir := filepath.Join(work, p.name+"-"+p.arch)
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // apt's own user reads it
			return nil, fmt.Errorf("package %s: %w", p.name, err)
		}
		c := exec.CommandContext(ctx, "apt-get", append(sources, "download", "-qq", p.name+":"+p.arch+"="+p.version)...)
		c.Dir = dir
		if said, err := c.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("package %s %s: %w (%s)", p.name, p.version, errGone, strings.TrimSpace(string(said)))
		}
		found, err := filepath.Glob(filepath.Join(dir, "*.deb"))
		if err != nil || len(found) != 1 {
			return nil, fmt.Errorf("package %s: %d files were downloaded", p.name, len(found))
		}
		body, err := os.ReadFile(found[0])
		if err != nil {
			return nil, fmt.Errorf("package %s: %w", p.name, err)
		}
		if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != p.sum {
			return nil, fmt.Errorf("package %s %s: its sha256 is %x, and the lock says %s", p.name, p.version, sum, p.sum)
		}
		got, err := p.unpack(ctx, found[0])
		if err != nil {
			return nil, fmt.Errorf("package %s: %w", p.name, err)
		}
		out = append(out, got...)
	}
	return out, nil
}

// sourcesFor are the options with which apt-get knows the packages of an architecture: for another than this machine's, the machine's sources
// are read anew, into the folder of the build, so that nothing of the machine changes.
func sourcesFor(ctx context.Context, arch, work string) ([]string, error) {
	if arch == runtime.GOARCH {
		return nil, nil
	}
	dir := filepath.Join(work, "apt-"+arch)
	for _, sub := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil { //nolint:gosec // apt's own user writes there
			return nil, fmt.Errorf("packages for %s: %w", arch, err)
		}
	}
	options := []string{
		"-oAPT::Architecture=" + arch, "-oAPT::Architectures=" + arch, "-oDir::State::lists=" + filepath.Join(dir, "lists"),
		"-oDir::State::status=/dev/null", "-oDir::Cache=" + filepath.Join(dir, "cache"), "-oAPT::Sandbox::User=",
	}
	if said, err := exec.CommandContext(ctx, "apt-get", append(options, "update", "-qq")...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the sources' packages for %s: %w (%s)", arch, err, strings.TrimSpace(string(said)))
	}
	return options, nil
}

// unpack returns what of a package belongs into an image: libraries and licenses, and what it says of itself where scanners of images
// look for it.
func (p *pkg) unpack(ctx context.Context, deb string) (files, error) {
	control, err := exec.CommandContext(ctx, "dpkg-deb", "--field", deb).Output()
	if err != nil {
		return nil, fmt.Errorf("what it says of itself: %w", err)
	}
	p.control = control
	out := files{{path: "var/lib/dpkg/status.d/" + p.name, mode: 0o644, body: control}}
	data, err := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb).Output()
	if err != nil {
		return nil, fmt.Errorf("its files: %w", err)
	}
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("its files: %w", err)
		}
		name := path.Clean(h.Name)
		if !belongs(name) {
			continue
		}
		x := file{path: name, mode: h.Mode & 0o777}
		switch h.Typeflag {
		case tar.TypeReg:
			if x.body, err = io.ReadAll(r); err != nil {
				return nil, fmt.Errorf("its file %s: %w", name, err)
			}
		case tar.TypeSymlink:
			x.link = h.Linkname
		default:
			continue
		}
		out = append(out, x)
	}
}

// belongs says whether a file of a package is of use to a program that nobody logs in beside.
func belongs(name string) bool {
	dir := path.Dir(name)
	return strings.HasPrefix(name, "lib") && strings.Contains(path.Base(name), ".so") && !strings.Contains(dir, "gconv") ||
		strings.HasPrefix(name, "usr/share/doc/") && path.Base(name) == "copyright"
}

// covers checks that a program needs no newer C library than the one it is put beside: it was linked against this machine's.
func covers(program string, f files) error {
	needs, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("the program's needs: %w", err)
	}
	defer needs.Close() //nolint:errcheck // it was only read
	symbols, err := needs.ImportedSymbols()
	if err != nil {
		return fmt.Errorf("the program's needs: %w", err)
	}
	libraries := map[string][]byte{}
	for _, x := range f {
		libraries[path.Base(x.path)] = x.body
	}
	for _, s := range symbols {
		if s.Library == "" {
			continue
		}
		body, ok := libraries[s.Library]
		switch {
		case !ok:
			return fmt.Errorf("the program needs %s, which is in no package of the lock", s.Library)
		case !bytes.Contains(body, append([]byte(s.Version), 0)):
			return fmt.Errorf("the program needs %s %s, which is newer than that of the lock: build on the release that the lock is for", s.Library, s.Version)
		}
	}
	return nil
}
