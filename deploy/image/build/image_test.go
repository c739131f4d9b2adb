package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// TestSameDigest: the same files, in whatever order, are the same layer, image and archive.
func TestSameDigest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := recipe{name: "muster", title: "Muster", about: "A test"}
	at := &tree{version: "v1", revision: "r", made: noon}
	f := files{{path: "muster", mode: 0o755, body: []byte("program")}, {path: "etc/passwd", mode: 0o644, body: []byte("root")}}
	archive := func(name string, f files) (v1.Hash, []byte) {
		var images []built
		for _, arch := range []string{"amd64", "arm64"} {
			layer, err := f.layer(noon)
			if err != nil {
				t.Fatal(err)
			}
			image, err := r.assemble(at, arch, layer)
			if err != nil {
				t.Fatal(err)
			}
			images = append(images, built{arch: arch, image: image})
		}
		path := filepath.Join(dir, name)
		digest, err := write(path, "muster:v1", images)
		if err != nil {
			t.Fatal(err)
		}
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return digest, body
	}
	one, first := archive("one.tar", f)
	two, second := archive("two.tar", files{f[1], f[0]})
	if one != two || string(first) != string(second) {
		t.Errorf("two builds of one tree are %s and %s, equal bytes: %t", one, two, string(first) == string(second))
	}
	other, _ := archive("three.tar", files{f[0], {path: "etc/passwd", mode: 0o644, body: []byte("toor")}})
	if other == one {
		t.Error("another file is no other image")
	}
}

// TestImage: what is in an archive is an image that a kubelet can run as somebody without rights, with all that it says of itself.
func TestImage(t *testing.T) {
	t.Parallel()
	r := recipe{name: "muster", title: "Muster", about: "A test"}
	layer, err := files{{path: "muster", mode: 0o755, body: []byte("program")}, {path: "tmp", mode: 0o1777, dir: true}}.layer(noon)
	if err != nil {
		t.Fatal(err)
	}
	image, err := r.assemble(&tree{version: "v1", revision: "abc", made: noon}, "amd64", layer)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "muster.tar")
	if _, err := write(path, "muster:v1", []built{{arch: "amd64", image: image}}); err != nil {
		t.Fatal(err)
	}
	lay := filepath.Join(dir, "layout")
	extract(t, path, lay)
	index, err := layout.ImageIndexFromPath(lay)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v1" {
		t.Fatalf("the archive holds %+v", manifest.Manifests)
	}
	// Any other name, and a kubelet's containerd imports the image and does not find it.
	if name := manifest.Manifests[0].Annotations["io.containerd.image.name"]; name != "docker.io/library/muster:v1" {
		t.Errorf("containerd is told the name %q", name)
	}
	got, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := got.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if c.User != "65532:65532" || strings.Join(c.Entrypoint, " ") != "/muster" || c.Cmd != nil || config.Architecture != "amd64" || config.OS != "linux" ||
		c.Labels["org.opencontainers.image.revision"] != "abc" || !config.Created.Equal(noon) {
		t.Errorf("%+v", config)
	}
	layers, err := got.Layers()
	if err != nil {
		t.Fatal(err)
	}
	in, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(noon) {
			t.Errorf("%s is of %d:%d, %s", h.Name, h.Uid, h.Gid, h.ModTime)
		}
	}
}

// TestLock: a line of the lock that cannot be read is named.
func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "packages.lock")
	for _, c := range []struct{ text, want string }{
		{"# nothing\n", "names no package for amd64"},
		{"libc6 2.36 amd64\n", ":1: not a name"},
		{"libc6 2.36 amd64 0011\n", ":1: not a name"},
		{"libc6 2.36 arm64 " + strings.Repeat("0", 64) + "\n", "names no package for amd64"},
		{"libc6 2.36 amd64 " + strings.Repeat("0", 64) + " # why\n", ""},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := locked(path, "amd64")
		if c.want == "" && (err != nil || len(got) != 1) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, %v", c.text, got, err)
		}
	}
}

// TestCertificates: there are about as many authorities as browsers trust, and each is a certificate.
func TestCertificates(t *testing.T) {
	t.Parallel()
	if n := strings.Count(string(certificates()), "BEGIN CERTIFICATE"); n < 50 {
		t.Errorf("%d authorities", n)
	}
}

func extract(t *testing.T, archive, dir string) {
	t.Helper()
	in, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(out, r); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
