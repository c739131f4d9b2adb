package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/muster-scheduler/muster/internal/vm"
)

// disk is a good qcow2 image with a disk of 1 MiB. salt makes its content one of its own.
func disk(salt string) []byte {
	b := make([]byte, 3<<16+len(salt))
	copy(b, "QFI\xfb")
	binary.BigEndian.PutUint32(b[4:], 3)
	binary.BigEndian.PutUint32(b[20:], 16)
	binary.BigEndian.PutUint64(b[24:], 1<<20)
	binary.BigEndian.PutUint32(b[36:], 1)
	binary.BigEndian.PutUint64(b[40:], 2<<16)
	binary.BigEndian.PutUint64(b[48:], 1<<16)
	binary.BigEndian.PutUint32(b[56:], 1)
	binary.BigEndian.PutUint32(b[96:], 4)
	binary.BigEndian.PutUint32(b[100:], 104)
	copy(b[3<<16:], salt)
	return b
}

// large is a disk whose bytes are not zeros.
func large(salt string, bytes int) []byte {
	b := disk(salt)
	for seed := []byte(salt); len(b) < bytes; {
		sum := sha256.Sum256(seed)
		seed = sum[:]
		b = append(b, seed...)
	}
	return b
}

func digestOf(b []byte) Digest {
	sum := sha256.Sum256(b)
	return Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// open opens a store in dir that waits for nothing and keeps no space free, and closes it with the test.
func open(t *testing.T, dir string, o Options) *Store {
	t.Helper()
	s := reopen(t, dir, o)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func reopen(t *testing.T, dir string, o Options) *Store {
	t.Helper()
	o.ReserveBytes = max(o.ReserveBytes, 1)
	if o.wait == nil {
		o.wait = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	}
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pull(t *testing.T, s *Store, name string) Image {
	t.Helper()
	got, err := s.Pull(t.Context(), Request{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// refused pulls what has to fail with a kind, and with the texts in the error.
func refused(t *testing.T, s *Store, r Request, kind vm.Kind, texts ...string) {
	t.Helper()
	got, err := s.Pull(t.Context(), r)
	if err == nil {
		t.Fatalf("%s was pulled: %+v", r.Name, got)
	}
	if vm.KindOf(err) != kind {
		t.Errorf("%s: kind %d, want %d: %v", r.Name, vm.KindOf(err), kind, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: the error does not say %q: %v", r.Name, text, err)
		}
	}
}

// holds fails unless the image's file has the bytes, and the mode that it has to have.
func holds(t *testing.T, i Image, want []byte) {
	t.Helper()
	got, err := os.ReadFile(i.Path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes that are not the %d wanted", i.Path, len(got), len(want))
	}
	if i.ID != digestOf(want) || i.Size != int64(len(want)) {
		t.Errorf("image %s of %d bytes, want %s of %d", i.ID, i.Size, digestOf(want), len(want))
	}
	info, err := os.Lstat(i.Path)
	if err != nil || info.Mode() != 0o444 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// files are the names of all files below a store's directory but its lock and index.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, sub := range []string{disksDir, partsDir} {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, sub+"/"+e.Name())
		}
	}
	return names
}

// reg is an in-process registry that counts what it is asked.
type reg struct {
	*httptest.Server
	t    *testing.T
	host string

	mu    sync.Mutex
	asked []string
	// before, if set, may answer a request instead of the registry.
	before func(w http.ResponseWriter, r *http.Request) bool
}

func newReg(t *testing.T) *reg {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r := &reg{t: t}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.asked = append(r.asked, q.Method+" "+q.URL.Path)
		before := r.before
		r.mu.Unlock()
		if before == nil || !before(w, q) {
			inner.ServeHTTP(w, q)
		}
	}))
	t.Cleanup(r.Close)
	r.host = strings.TrimPrefix(r.URL, "http://")
	return r
}

func (r *reg) intercept(before func(http.ResponseWriter, *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = before
}

// count is how many requests there were whose method and path begin and end so.
func (r *reg) count(begin, end string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.asked {
		if strings.HasPrefix(a, begin) && strings.HasSuffix(a, end) {
			n++
		}
	}
	return n
}

func (r *reg) send(method, path, kind string, body []byte) {
	r.t.Helper()
	q, err := http.NewRequest(method, r.URL+path, bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	q.Header.Set("Content-Type", kind)
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode/100 != 2 {
		text, _ := io.ReadAll(a.Body)
		r.t.Fatalf("%s %s: %d %s", method, path, a.StatusCode, text)
	}
}

type layer struct {
	kind, title string
	data        []byte
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      Digest            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    map[string]string `json:"platform,omitempty"`
}

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
	qcow2Type    = "application/vnd.example.disk.v1+qcow2"
)

func (r *reg) blob(repo string, data []byte) Digest {
	r.t.Helper()
	r.send(http.MethodPost, fmt.Sprintf("/v2/%s/blobs/uploads/?digest=%s", repo, digestOf(data)), "application/octet-stream", data)
	return digestOf(data)
}

// push pushes an image of layers, and gives its manifest's digest.
func (r *reg) push(repo, tag string, layers ...layer) Digest {
	r.t.Helper()
	config := []byte("{}")
	m := map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": descriptor{MediaType: "application/vnd.oci.empty.v1+json", Digest: r.blob(repo, config), Size: len(config)},
	}
	all := []descriptor{}
	for _, l := range layers {
		d := descriptor{MediaType: l.kind, Digest: r.blob(repo, l.data), Size: len(l.data)}
		if l.title != "" {
			d.Annotations = map[string]string{"org.opencontainers.image.title": l.title}
		}
		all = append(all, d)
	}
	m["layers"] = all
	return r.manifest(repo, tag, manifestType, m)
}

func (r *reg) manifest(repo, tag, kind string, m any) Digest {
	r.t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		r.t.Fatal(err)
	}
	r.send(http.MethodPut, "/v2/"+repo+"/manifests/"+tag, kind, data)
	return digestOf(data)
}
