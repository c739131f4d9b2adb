package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nobody is who programs run as: a number, because a kubelet can only check a number against runAsNonRoot. It is the one that
// others use for images without anything in them, so that files of volumes can be shared with those.
const nobody = 65532

// recipe is what an image is made of.
type recipe struct {
	name     string // of the image, and of its program
	title    string
	about    string
	cgo      bool
	packages bool // it needs those of the lock
}

// recipes are the images there are.
func recipes() []recipe {
	return []recipe{
		{name: "muster", title: "Muster", about: "Scheduling for AI and batch work: every role of the control plane, and the command line"},
		{
			name: "muster-node", title: "Muster on nodes", about: "What runs on nodes: reports which GPU a reservation pod holds, and in which NUMA zones pods are",
			cgo: true, packages: true,
		},
		{name: "muster-vm", title: "Muster's machines", about: "What runs on nodes whose pods may be virtual machines: it puts itself there, and becomes a process of the node"},
	}
}

// compilers are Debian's C compilers for other machines than this one.
var compilers = map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}

// compiler is the C compiler for an architecture, $CC or gcc for this machine's, with the C library's headers.
func compiler(ctx context.Context, arch string) (string, error) {
	name := cmp.Or(os.Getenv("CC"), "gcc")
	if arch != runtime.GOARCH {
		name = compilers[arch]
	}
	probe := exec.CommandContext(ctx, name, "-x", "c", "-fsyntax-only", "-")
	probe.Stdin = strings.NewReader("#include <stdlib.h>\n")
	if out, err := probe.CombinedOutput(); err != nil {
		return "", fmt.Errorf("a program that loads a C library needs a C compiler for %s and the library's headers (Debian: gcc and libc6-dev; for another machine gcc-aarch64-linux-gnu and libc6-dev-arm64-cross, or gcc-x86-64-linux-gnu and libc6-dev-amd64-cross; --arch asks for fewer images): %w %s",
			arch, err, bytes.TrimSpace(out))
	}
	return name, nil
}

// build makes the image for one architecture.
func (r *recipe) build(ctx context.Context, t *tree, arch, work string) (built, error) {
	program, err := r.compile(ctx, t, arch, work)
	if err != nil {
		return built{}, err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return built{}, fmt.Errorf("what the program is made of: %w", err)
	}
	var lower []v1.Layer
	var packages []pkg
	if r.packages {
		packages, err = locked(filepath.Join(t.root, "deploy", "image", "packages.lock"), arch)
		if err != nil {
			return built{}, err
		}
		files, err := fetch(ctx, packages, work)
		if err != nil {
			return built{}, err
		}
		if err := covers(program, files); err != nil {
			return built{}, err
		}
		layer, err := files.layer(t.made)
		if err != nil {
			return built{}, err
		}
		lower = append(lower, layer)
	}
	bill, err := r.bill(t, info, packages, arch, program)
	if err != nil {
		return built{}, err
	}
	files, err := r.files(t, program, bill)
	if err != nil {
		return built{}, err
	}
	layer, err := files.layer(t.made)
	if err != nil {
		return built{}, err
	}
	image, err := r.assemble(t, arch, append(lower, layer)...)
	return built{arch: arch, image: image, bill: bill}, err
}

// compile builds the program. Where the tree lies, and what git thinks of it, is in no program.
func (r *recipe) compile(ctx context.Context, t *tree, arch, work string) (string, error) {
	out := filepath.Join(work, r.name+"-"+arch)
	cgo := []string{"CGO_ENABLED=0"}
	if r.cgo {
		cc, err := compiler(ctx, arch)
		if err != nil {
			return "", err
		}
		cgo = []string{"CGO_ENABLED=1", "CC=" + cc}
	}
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", out, "-ldflags", "-s -w -buildid= -X main.version="+t.version, "./cmd/"+r.name)
	c.Dir, c.Stderr = t.root, os.Stderr
	c.Env = append(slices.Concat(os.Environ(), cgo), "GOOS=linux", "GOARCH="+arch, "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=local")
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("build %s: %w", r.name, err)
	}
	return out, nil
}

// files are what the image holds besides packages.
func (r *recipe) files(t *tree, program string, bill []byte) (files, error) {
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	license, err := os.ReadFile(filepath.Join(t.root, "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("read the license: %w", err)
	}
	return files{
		{path: r.name, mode: 0o755, body: binary},
		{path: "etc/passwd", mode: 0o644, body: fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%[1]d:%[1]d:nonroot:/:/sbin/nologin\n", nobody)},
		{path: "etc/group", mode: 0o644, body: fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", nobody)},
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, body: certificates()},
		{path: "tmp", mode: 0o1777, dir: true},
		{path: "usr/share/doc/" + r.name + "/LICENSE", mode: 0o644, body: license},
		{path: "usr/share/sbom/" + r.name + ".spdx.json", mode: 0o644, body: bill},
	}, nil
}

// assemble puts layers together, and says what the image is.
func (r *recipe) assemble(t *tree, arch string, layers ...v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var add []mutate.Addendum
	for _, l := range layers {
		add = append(add, mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: t.made}, CreatedBy: "deploy/image/build"}})
	}
	image, err := mutate.Append(image, add...)
	if err != nil {
		return nil, fmt.Errorf("layers: %w", err)
	}
	labels := map[string]string{
		"org.opencontainers.image.title":       r.title,
		"org.opencontainers.image.description": r.about,
		"org.opencontainers.image.version":     t.version,
		"org.opencontainers.image.revision":    t.revision,
		"org.opencontainers.image.created":     t.made.Format("2006-01-02T15:04:05Z"),
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
	config := &v1.ConfigFile{}
	if had, err := image.ConfigFile(); err == nil {
		config = had.DeepCopy()
	}
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: t.made}
	config.Config = v1.Config{
		User: fmt.Sprintf("%[1]d:%[1]d", nobody), Entrypoint: []string{"/" + r.name}, WorkingDir: "/", Labels: labels,
		Env: []string{"PATH=/", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
	}
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	annotated, ok := mutate.Annotations(image, labels).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("an image with annotations is no image")
	}
	return annotated, nil
}

// modules are the Go modules that a program is made of, as its bill names them.
func modules(info *debug.BuildInfo) []*debug.Module {
	var out []*debug.Module
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if !strings.HasPrefix(m.Path, ".") {
			out = append(out, m)
		}
	}
	return out
}
