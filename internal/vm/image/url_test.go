package image

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
)

// server serves one content with an entity tag, and can break connections.
type server struct {
	*httptest.Server
	content atomic.Pointer[[]byte]
	// cuts is how many responses end early, after cutAt bytes each.
	cuts, cutAt atomic.Int64
	requests    atomic.Int64
	bytes       atomic.Int64
	noTag       atomic.Bool
	noRange     atomic.Bool
	plain       atomic.Bool // no content length
	last        atomic.Pointer[http.Request]
}

func newServer(t *testing.T, content []byte) *server {
	t.Helper()
	s := &server{}
	s.content.Store(&content)
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

type cutting struct {
	http.ResponseWriter
	s    *server
	left int64
}

func (c *cutting) Write(b []byte) (int, error) {
	b2 := b[:min(int64(len(b)), c.left)]
	n, err := c.ResponseWriter.Write(b2)
	c.left -= int64(n)
	c.s.bytes.Add(int64(n))
	if err == nil && len(b2) < len(b) {
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	s.last.Store(r)
	content := *s.content.Load()
	if !s.noTag.Load() {
		w.Header().Set("ETag", `"`+string(digestOf(content))+`"`)
	}
	if s.noRange.Load() {
		r.Header.Del("Range")
	}
	c := &cutting{ResponseWriter: w, s: s, left: 1 << 40}
	if s.cuts.Add(-1) >= 0 {
		c.left = s.cutAt.Load()
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if s.plain.Load() {
		w.(http.Flusher).Flush()
		_, _ = c.Write(content)
		return
	}
	http.ServeContent(c, r, "", time.Time{}, bytes.NewReader(content))
}

func (s *server) host() string { return strings.TrimPrefix(s.URL, "http://") }

// mapped is a store for which the name "tiny" is what a server has.
func mapped(t *testing.T, dir, to string, o Options) *Store {
	t.Helper()
	o.Mappings = func() ([]Mapping, error) {
		return []Mapping{{Name: "m", Translations: []Rule{{Name: "tiny", URL: to}}}}, nil
	}
	return open(t, dir, o)
}

func TestPullURL(t *testing.T) {
	t.Parallel()
	want := large("u", 1<<20)
	w := newServer(t, want)
	dir := t.TempDir()
	s := mapped(t, dir, w.URL+"/x", Options{DownloadProtocol: "http", AllowLoopbackURLs: true})
	got := pull(t, s, "virtlet.cloud/tiny")
	holds(t, got, want)
	if fmt.Sprint(got.RepoTags, got.RepoDigests) != fmt.Sprintf("[tiny:latest] [tiny@%s]", got.ID) {
		t.Errorf("tags %v, digests %v", got.RepoTags, got.RepoDigests)
	}
	before := w.bytes.Load()
	pull(t, s, "tiny:1") // the tag means nothing to a translation
	if again := pull(t, s, "tiny"); again.ID != got.ID || len(again.RepoTags) != 2 || w.bytes.Load() != before {
		t.Errorf("%+v after %d bytes more", again, w.bytes.Load()-before)
	}
	// The name as URL, with the server's port, and a digest.
	for _, name := range []string{w.host() + "/images/tiny.qcow2", w.URL + "/images/tiny", w.host() + "/images/tiny.img@" + string(got.ID)} {
		if i := pull(t, s, name); i.ID != got.ID {
			t.Errorf("%s: %+v", name, i)
		}
	}
	requests := w.requests.Load()
	pull(t, s, w.host()+"/images/tiny.img@"+string(got.ID))
	if w.requests.Load() != requests {
		t.Error("the server was asked for what the digest says")
	}
	wrong := "sha256:" + zeros
	refused(t, s, Request{Name: "tiny@" + wrong}, vm.Invalid, wrong, string(got.ID), "tiny", "translations[0]")
	// New content behind the same URL.
	next := large("v", 1<<20)
	w.content.Store(&next)
	if i := pull(t, s, "tiny"); i.ID != digestOf(next) || len(s.List("")) != 2 {
		t.Errorf("%+v", i)
	}
	w.content.Store(&want)
	if i := pull(t, s, "tiny"); i.ID != got.ID {
		t.Errorf("%+v", i)
	}
	if left := files(t, dir); len(left) != 2 {
		t.Errorf("files %v", left)
	}
}

// TestResume: what came is not fetched twice, within a pull and after one that failed, and never joined with something else.
func TestResume(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	want := large("r", size)
	for _, test := range []struct {
		name  string
		setup func(*server)
		most  int64 // bytes that the server may have sent in all; 0: any
	}{
		{"whole", func(*server) {}, int64(len(want))},
		{"broken twice", func(w *server) { w.cuts.Store(2) }, int64(len(want)) + 2*chunkBytes},
		{"no ranges", func(w *server) { w.cuts.Store(2); w.noRange.Store(true) }, 0},
		{"no tag", func(w *server) { w.cuts.Store(2); w.noTag.Store(true) }, 0},
		{"no length", func(w *server) { w.plain.Store(true) }, int64(len(want))},
	} {
		w := newServer(t, want)
		w.cutAt.Store(size / 3)
		test.setup(w)
		s := mapped(t, t.TempDir(), w.URL, Options{})
		holds(t, pull(t, s, "tiny"), want)
		if got := w.bytes.Load(); test.most > 0 && got > test.most {
			t.Errorf("%s: the server sent %d bytes of %d", test.name, got, len(want))
		}
	}
	// The server dies for good, the store ends, and both come back.
	for _, changed := range []bool{false, true} {
		w := newServer(t, want)
		w.cutAt.Store(size / 8)
		w.cuts.Store(3)
		dir := t.TempDir()
		attempts := 0
		s := reopen(t, dir, Options{Mappings: func() ([]Mapping, error) {
			return []Mapping{{Name: "m", Translations: []Rule{{Name: "tiny", URL: w.URL}}}}, nil
		}, wait: func(context.Context, time.Duration) error {
			if attempts++; attempts == 3 {
				return fmt.Errorf("the end")
			}
			return nil
		}})
		if _, err := s.Pull(t.Context(), Request{Name: "tiny"}); err == nil {
			t.Fatal("pulled from a dead server")
		}
		_ = s.Close()
		if left := files(t, dir); len(left) != 2 {
			t.Fatalf("files %v, want a part and its state", left)
		}
		content := want
		if changed {
			content = large("changed", size)
			w.content.Store(&content)
		}
		w.cuts.Store(0)
		before := w.bytes.Load()
		holds(t, pull(t, mapped(t, dir, w.URL, Options{}), "tiny"), content)
		if got := w.bytes.Load() - before; !changed && got > size-size/4 {
			t.Errorf("%d bytes of %d were fetched again", got, size)
		}
		if left := files(t, dir); len(left) != 1 {
			t.Errorf("files %v", left)
		}
	}
}

func TestResumeBlob(t *testing.T) {
	t.Parallel()
	want := large("blob", 1<<20)
	r := newReg(t)
	r.push("vm/tiny", "1", layer{qcow2Type, "", want})
	cut, ranges := 2, []string{}
	r.intercept(func(w http.ResponseWriter, q *http.Request) bool {
		if q.Method != http.MethodGet || !strings.Contains(q.URL.Path, "/blobs/") {
			return false
		}
		ranges = append(ranges, q.Header.Get("Range"))
		if cut--; cut < 0 {
			return false
		}
		var from int
		_, _ = fmt.Sscanf(q.Header.Get("Range"), "bytes=%d-", &from)
		if from > 0 {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(want)-1, len(want)))
			w.WriteHeader(http.StatusPartialContent)
		} else {
			w.Header().Set("Content-Length", fmt.Sprint(len(want)))
		}
		_, _ = w.Write(want[from : from+300000])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	holds(t, pull(t, open(t, t.TempDir(), Options{}), r.host+"/vm/tiny:1"), want)
	if len(ranges) != 3 || ranges[0] != "" || !strings.HasPrefix(ranges[1], "bytes=") || !strings.HasSuffix(ranges[2], fmt.Sprintf("-%d", len(want)-1)) {
		t.Errorf("ranges %q", ranges)
	}
}

func TestBadServers(t *testing.T) {
	t.Parallel()
	answer := func(f http.HandlerFunc) string {
		w := httptest.NewServer(f)
		t.Cleanup(w.Close)
		return w.URL
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, test := range map[string]struct {
		url  string
		kind vm.Kind
		says string
	}{
		"404":         {answer(status(404)), vm.NotFound, "404"},
		"401":         {answer(status(401)), vm.Invalid, "credentials"},
		"400":         {answer(status(400)), vm.Invalid, "400"},
		"500":         {answer(status(500)), vm.Unavailable, "500"},
		"429":         {answer(status(429)), vm.Unavailable, "429"},
		"304 for all": {answer(status(304)), vm.Unavailable, "304"},
		"206 for all": {answer(status(206)), vm.Unavailable, "another range"},
		"416 for all": {answer(status(416)), vm.Unavailable, "range"},
		"a page": {answer(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, "<html>")
		}), vm.Invalid, "page"},
		"packed anyway": {answer(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(disk(""))
		}), vm.Invalid, "Content-Encoding"},
		"text":    {answer(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }), vm.Invalid, "raw disk must be a positive multiple of 512"},
		"nothing": {answer(func(http.ResponseWriter, *http.Request) {}), vm.Invalid, "raw disk"},
		"endless": {answer(func(w http.ResponseWriter, _ *http.Request) {
			for b := make([]byte, 1<<20); ; {
				if _, err := w.Write(b); err != nil {
					return
				}
			}
		}), vm.Exhausted, "more than the 4194304 bytes"},
		"large": {answer(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "5000000000") }), vm.Exhausted, "5000000000 bytes"},
		"too short": {answer(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4096")
			fmt.Fprint(w, "x")
		}), vm.Unavailable, ""},
		"nobody": {"http://127.0.0.1:1", vm.Unavailable, "127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := mapped(t, dir, test.url, Options{MaxBytes: 4 << 20})
			refused(t, s, Request{Name: "tiny"}, test.kind, "tiny", test.says)
			for _, left := range files(t, dir) {
				if info, err := os.Stat(filepath.Join(dir, left)); err == nil && test.kind != vm.Unavailable {
					t.Errorf("left %s of %d bytes", left, info.Size())
				}
			}
		})
	}
}

// TestHostileDisks: what QEMU would follow out of the file is refused from any source, with the image's name, the field and the rule.
func TestHostileDisks(t *testing.T) {
	t.Parallel()
	with := func(at int, b ...byte) []byte {
		d := disk("hostile")
		copy(d[at:], b)
		return d
	}
	raw := func(magic string) []byte { return append([]byte(magic), make([]byte, 4096-len(magic))...) }
	for name, test := range map[string]struct {
		content []byte
		says    string
	}{
		"backing file":       {with(8, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 11), "backing_file_offset"},
		"external data file": {with(79, 4), "external data file"},
		"AES":                {with(35, 1), "crypt_method"},
		"LUKS inside":        {with(35, 2), "crypt_method"},
		"unknown feature":    {with(72, 0x80), "incompatible_features"},
		"large clusters":     {with(23, 40), "cluster_bits"},
		"qcow1":              {with(7, 1), "version"},
		"table outside":      {with(40, 0x7f), "l1_table_offset"},
		"vmdk":               {raw("KDMV"), "vmdk"},
		"vmdk text":          {raw("# Disk DescriptorFile\nversion=1\nRW 63 FLAT \"/etc/shadow\" 0\n"), "vmdk"},
		"vdi":                {append(make([]byte, 0x40), raw("\x7f\x10\xda\xbe")[:4096-0x40]...), "vdi"},
		"qed":                {raw("QED\x00"), "qed"},
		"vhdx":               {raw("vhdxfile"), "vhdx"},
		"vhd":                {append(make([]byte, 4096-512), raw("conectix")[:512]...), "vhd"},
		"luks":               {raw("LUKS\xba\xbe"), "luks"},
		"gzip":               {raw("\x1f\x8b"), "gzip"},
		"xz":                 {raw("\xfd7zXZ\x00"), "xz"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newServer(t, test.content)
			dir := t.TempDir()
			refused(t, mapped(t, dir, w.URL, Options{}), Request{Name: "tiny"}, vm.Invalid, `image "tiny:latest"`, test.says)
			if left := files(t, dir); len(left) != 0 {
				t.Errorf("files left %v", left)
			}
		})
	}
	w := newServer(t, disk("x"))
	refused(t, mapped(t, t.TempDir(), w.URL, Options{MaxVirtualBytes: 1<<20 - 1}), Request{Name: "tiny"}, vm.Exhausted, "1048576 bytes", "1048575")
}

// TestNowhere: where no request goes, whoever says so.
func TestNowhere(t *testing.T) {
	t.Parallel()
	var to atomic.Pointer[string]
	var asked atomic.Int64
	secret := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); _, _ = w.Write(disk("secret")) }))
	defer secret.Close()
	redirecting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", *to.Load())
		w.WriteHeader(http.StatusFound)
	}))
	defer redirecting.Close()
	s := mapped(t, t.TempDir(), redirecting.URL, Options{DownloadProtocol: "http"})
	for _, location := range []string{
		"file:///etc/shadow", "unix:///run/containerd.sock", "ftp://a.example/x", "http://169.254.169.254/latest/meta-data", "http://[fe80::1]/x",
		"http://[::ffff:169.254.169.254]/x", "http://0.0.0.0/x", "http://[fd00:ec2::254]/x", "http://100.100.100.200/x", "http://224.0.0.1/x", redirecting.URL + "/again",
	} {
		to.Store(&location)
		refused(t, s, Request{Name: "tiny"}, vm.Invalid, "tiny")
	}
	for _, name := range []string{"169.254.169.254/latest/meta-data.img", "http://169.254.169.254/x", "http://[fe80::1%25lo]/x", secret.URL + "/x", strings.TrimPrefix(secret.URL, "http://") + "/x.img", "http://localhost:1/x", "http://0.0.0.0/x.img"} {
		refused(t, s, Request{Name: name}, vm.Invalid, "")
	}
	if asked.Load() != 0 {
		t.Error("the node itself was asked")
	}
	// What a host's name leads to is judged where it is dialled, and redirects judge it anew.
	c, err := newCaller(&url.URL{Scheme: "http", Host: "public.example"}, Transport{})
	if err != nil {
		t.Fatal(err)
	}
	c.loopback = true
	for host, addresses := range map[string]map[string]bool{
		"public.example": {"192.0.2.1": true, "10.0.0.1": true, "169.254.1.1": false, "::ffff:169.254.1.1": false, "fe80::1": false},
		"other.example":  {"192.0.2.1": true, "127.0.0.1": false, "::1": false, "::": false},
	} {
		for address, may := range addresses {
			if err := c.mayReach(host, netip.MustParseAddr(address)); (err == nil) != may {
				t.Errorf("%s at %s: %v", host, address, err)
			}
		}
	}
}

// TestSecretsStay: credentials of a URL go to its host, and not to where it redirects to, nor into an error.
func TestSecretsStay(t *testing.T) {
	t.Parallel()
	want := disk("s")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || strings.Contains(fmt.Sprint(r.Header), "secret") {
			t.Errorf("another host got %v", r.Header)
		}
		_, _ = w.Write(want)
	}))
	defer other.Close()
	var fail atomic.Bool
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "anna" || password != "secret" {
			t.Errorf("the host itself got %v", r.Header)
		}
		if fail.Load() {
			http.Redirect(w, r, "http://127.0.0.1:1/?sig=secret", http.StatusFound)
			return
		}
		http.Redirect(w, r, other.URL, http.StatusFound)
	}))
	defer first.Close()
	to := strings.Replace(first.URL, "http://", "http://anna:secret@", 1) + "/?token=secret"
	dir := t.TempDir()
	s := mapped(t, dir, to, Options{})
	holds(t, pull(t, s, "tiny"), want)
	index, err := os.ReadFile(filepath.Join(dir, indexFile))
	if err != nil || strings.Contains(string(index), "secret") {
		t.Errorf("the index: %s, %v", index, err)
	}
	fail.Store(true)
	_, err = s.Pull(t.Context(), Request{Name: "tiny"})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error: %v", err)
	}
}
