package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/muster-scheduler/muster/internal/vm"
)

func TestPullArtifact(t *testing.T) {
	t.Parallel()
	r := newReg(t)
	want := disk("a")
	digest := r.push("vm/tiny", "1", layer{qcow2Type, "", want}, layer{"application/vnd.example.metadata", "", []byte("notes")})
	dir := t.TempDir()
	s := open(t, dir, Options{Pinned: []string{r.host + "/vm/tiny:1"}})
	var last int64
	got, err := s.Pull(t.Context(), Request{Name: r.host + "/vm/tiny:1", Progress: func(done, _ int64) { last = done }})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, got, want)
	if got.Format != QCOW2 || got.VirtualSize != 1<<20 || !got.Pinned || got.Pulled.IsZero() {
		t.Errorf("image %+v", got)
	}
	if last != int64(len(want)) {
		t.Errorf("progress ended at %d of %d", last, len(want))
	}
	if fmt.Sprint(got.RepoTags) != "["+r.host+"/vm/tiny:1]" || fmt.Sprint(got.RepoDigests) != "["+r.host+"/vm/tiny@"+string(digest)+"]" {
		t.Errorf("tags %v, digests %v", got.RepoTags, got.RepoDigests)
	}
	// By whatever name, it is the same image.
	for _, name := range []string{
		string(got.ID), got.ID.Hex()[:13], r.host + "/vm/tiny:1", "muster-vm/" + r.host + "/vm/tiny:1", r.host + "/vm/tiny@" + string(digest),
		string(digest), r.host + "/vm/tiny:2@" + string(digest), r.host + "/vm/tiny@" + string(got.ID), "oci://" + r.host + "/vm/tiny:1",
	} {
		if i, err := s.Status(name); err != nil || i.ID != got.ID {
			t.Errorf("status of %s: %v, %v", name, i.ID, err)
		}
		if l := s.List(name); len(l) != 1 || l[0].ID != got.ID {
			t.Errorf("list of %s: %v", name, l)
		}
	}
	for _, name := range []string{r.host + "/vm/tiny", r.host + "/vm/tiny:2", r.host + "/vm/other@" + string(digest), "sha256:" + zeros, got.ID.Hex()[:7], "", "../x", "\x00"} {
		if i, err := s.Status(name); vm.KindOf(err) != vm.NotFound {
			t.Errorf("status of %q: %v, %v", name, i.ID, err)
		}
	}
	if left := files(t, dir); len(left) != 1 {
		t.Errorf("files %v", left)
	}
}

func TestPullAgainFetchesNothing(t *testing.T) {
	t.Parallel()
	r := newReg(t)
	r.push("vm/tiny", "1", layer{qcow2Type, "", disk("a")})
	s := open(t, t.TempDir(), Options{})
	first := pull(t, s, r.host+"/vm/tiny:1")
	r.push("vm/tiny", "2", layer{qcow2Type, "", disk("a")})
	r.push("vm/moved", "1", layer{qcow2Type, "", disk("a")}, layer{"application/vnd.example.metadata", "", []byte("notes")})
	pull(t, s, r.host+"/vm/tiny:1")
	pull(t, s, r.host+"/vm/tiny:2")
	last := pull(t, s, r.host+"/vm/moved:1")
	if n := r.count("GET", "/blobs/"+string(first.ID)); n != 1 {
		t.Errorf("the disk was fetched %d times", n)
	}
	if l := s.List(""); len(l) != 1 || len(last.RepoTags) != 3 || len(last.RepoDigests) != 2 {
		t.Errorf("%d images, tags %v, digests %v", len(l), last.RepoTags, last.RepoDigests)
	}
	// A tag that moves leaves its old image.
	r.push("vm/tiny", "1", layer{qcow2Type, "", disk("b")})
	moved := pull(t, s, r.host+"/vm/tiny:1")
	old, err := s.Status(string(first.ID))
	if err != nil || moved.ID == first.ID || len(old.RepoTags) != 2 || len(s.List("")) != 2 {
		t.Errorf("old %+v, %v; new %+v", old, err, moved)
	}
}

func TestPullMediaTypes(t *testing.T) {
	t.Parallel()
	r := newReg(t)
	raw := bytes.Repeat([]byte("raw disk"), 1024)
	for i, test := range []struct {
		layer  layer
		format Format // empty: refused
		says   string
	}{
		{layer{"application/vnd.lfedge.disk.layer.v1+qcow2", "", disk("1")}, QCOW2, ""},
		{layer{"application/vnd.lfedge.disk.layer.v1+raw", "", raw}, Raw, ""},
		{layer{"application/x-qcow2", "", disk("2")}, QCOW2, ""},
		{layer{"application/x-qemu-disk; charset=binary", "", disk("3")}, QCOW2, ""},
		{layer{"application/x-raw-disk-image", "", raw}, Raw, ""},
		{layer{layerType, "tiny.qcow2", disk("4")}, QCOW2, ""},
		{layer{"application/octet-stream", "tiny.img", disk("5")}, QCOW2, ""},
		{layer{"application/octet-stream", "tiny.img", raw}, Raw, ""},
		{layer{qcow2Type, "", raw}, "", "declared as qcow2, and is raw"},
		{layer{"application/x-raw-disk-image", "", disk("6")}, "", "declared as raw, and is qcow2"},
		{layer{"application/octet-stream", "tiny.raw", disk("7")}, "", "declared as raw, and is qcow2"},
		{layer{"application/octet-stream", "README", disk("8")}, "", "no layer that is a disk"},
		{layer{layerType, "", disk("9")}, "", "archive cannot be read"},
	} {
		s := open(t, t.TempDir(), Options{})
		repo := fmt.Sprintf("vm/type%d", i)
		r.push(repo, "1", test.layer)
		if test.format == "" {
			refused(t, s, Request{Name: r.host + "/" + repo + ":1"}, vm.Invalid, repo, test.says)
			continue
		}
		got := pull(t, s, r.host+"/"+repo+":1")
		holds(t, got, test.layer.data)
		if got.Format != test.format {
			t.Errorf("%s %q: %s", test.layer.kind, test.layer.title, got.Format)
		}
	}
	s := open(t, t.TempDir(), Options{})
	r.push("vm/two", "1", layer{qcow2Type, "", disk("1")}, layer{qcow2Type, "", disk("2")})
	refused(t, s, Request{Name: r.host + "/vm/two:1"}, vm.Invalid, "2 layers that are disks")
	r.push("vm/none", "1")
	refused(t, s, Request{Name: r.host + "/vm/none:1"}, vm.Invalid, "no layer that is a disk")
	refused(t, s, Request{Name: r.host + "/vm/absent:1"}, vm.NotFound, "vm/absent:1", "404")
	r.manifest("vm/odd", "1", "application/vnd.example+json", map[string]any{})
	refused(t, s, Request{Name: r.host + "/vm/odd:1"}, vm.Invalid, "media type")
	r.manifest("vm/broken", "1", manifestType, "text")
	refused(t, s, Request{Name: r.host + "/vm/broken:1"}, vm.Invalid, "manifest")
	r.manifest("vm/digestless", "1", manifestType, map[string]any{"layers": []any{map[string]any{"mediaType": qcow2Type, "size": 5}}})
	refused(t, s, Request{Name: r.host + "/vm/digestless:1"}, vm.Invalid, "layers[0]")
}

func TestPullIndex(t *testing.T) {
	t.Parallel()
	r := newReg(t)
	amd, arm := disk("amd64"), disk("arm64")
	list := []descriptor{}
	for arch, d := range map[string][]byte{"amd64": amd, "arm64": arm} {
		digest := r.push("vm/multi", arch, layer{qcow2Type, "", d})
		list = append(list, descriptor{MediaType: manifestType, Digest: digest, Platform: map[string]string{"os": "linux", "architecture": arch}})
	}
	top := r.manifest("vm/multi", "1", indexType, map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": list})
	for arch, want := range map[string][]byte{"amd64": amd, "arm64": arm} {
		got := pull(t, open(t, t.TempDir(), Options{Architecture: arch}), r.host+"/vm/multi:1")
		holds(t, got, want)
		if got.RepoDigests[0] != r.host+"/vm/multi@"+string(top) {
			t.Errorf("digests %v", got.RepoDigests)
		}
	}
	s := open(t, t.TempDir(), Options{Architecture: "riscv64"})
	refused(t, s, Request{Name: r.host + "/vm/multi:1"}, vm.NotFound, "linux/riscv64")
}

type entry struct {
	name string
	kind byte
	data []byte
}

func archive(t *testing.T, pack string, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Size: int64(len(e.data)), Mode: 0o644}
		if e.kind == tar.TypeSymlink || e.kind == tar.TypeLink {
			h.Linkname = "/etc/shadow"
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	switch pack {
	case "gzip":
		z := gzip.NewWriter(&packed)
		_, _ = z.Write(b.Bytes())
		_ = z.Close()
	case "zstd":
		z, err := zstd.NewWriter(&packed)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = z.Write(b.Bytes())
		_ = z.Close()
	default:
		return b.Bytes()
	}
	return packed.Bytes()
}

func TestPullContainerDisk(t *testing.T) {
	t.Parallel()
	r := newReg(t)
	want := disk("container")
	folder, file := entry{"disk/", tar.TypeDir, nil}, entry{"disk/disk.img", tar.TypeReg, want}
	base := layer{"application/vnd.oci.image.layer.v1.tar+gzip", "", archive(t, "gzip", entry{"etc/passwd", tar.TypeReg, []byte("root")})}
	with := func(pack string, entries ...entry) layer {
		kind := layerType
		if pack != "" {
			kind += "+" + pack
		}
		return layer{kind, "", archive(t, pack, entries...)}
	}
	for i, test := range []struct {
		name   string
		layers []layer
		kind   vm.Kind
		says   string // of the refusal; empty: the disk is found
	}{
		{"gzip", []layer{with("gzip", folder, file)}, 0, ""},
		{"zstd", []layer{with("zstd", folder, file)}, 0, ""},
		{"plain", []layer{with("", folder, file)}, 0, ""},
		{"docker's media type", []layer{{"application/vnd.docker.image.rootfs.diff.tar.gzip", "", archive(t, "gzip", file)}}, 0, ""},
		{"below others", []layer{with("gzip", folder, file), base}, 0, ""},
		{"above others", []layer{base, with("gzip", entry{"./disk/disk.img", tar.TypeReg, want})}, 0, ""},
		{"the upper of two", []layer{with("", entry{"disk/old.img", tar.TypeReg, disk("old")}), with("", file)}, 0, ""},
		{"beside a hidden file", []layer{with("", file, entry{"disk/.keep", tar.TypeReg, nil})}, 0, ""},
		{"one of two taken away above", []layer{with("", file, entry{"disk/x.img", tar.TypeReg, disk("x")}), with("", entry{"disk/.wh.x.img", tar.TypeReg, nil})}, 0, ""},
		{"none", []layer{base}, vm.Invalid, "without a file in /disk"},
		{"deeper", []layer{with("", entry{"disk/a/b.img", tar.TypeReg, want})}, vm.Invalid, "without a file in /disk"},
		{"taken away above", []layer{with("", file), with("", entry{"disk/.wh.disk.img", tar.TypeReg, nil})}, vm.Invalid, "without a file in /disk"},
		{"folder taken away above", []layer{with("", file), with("", entry{".wh.disk", tar.TypeReg, nil})}, vm.Invalid, "without a file in /disk"},
		{"two", []layer{with("", file, entry{"disk/other.img", tar.TypeReg, want})}, vm.Invalid, "must hold one file"},
		{"a link", []layer{with("", entry{"disk/disk.img", tar.TypeSymlink, nil})}, vm.Invalid, "regular file"},
		{"a hard link", []layer{with("", entry{"disk/disk.img", tar.TypeLink, nil})}, vm.Invalid, "regular file"},
		{"a device", []layer{with("", entry{"disk/disk.img", tar.TypeBlock, nil})}, vm.Invalid, "regular file"},
		{"declared otherwise", []layer{with("", entry{"disk/disk.raw", tar.TypeReg, want})}, vm.Invalid, "declared as raw"},
		{"cut", []layer{{layerType + "+gzip", "", with("gzip", file).data[:100]}}, vm.Invalid, "archive cannot be read"},
		{"text", []layer{{layerType, "", []byte(strings.Repeat("no archive ", 100))}}, vm.Invalid, "archive cannot be read"},
		{"a bomb", []layer{with("gzip", entry{"disk/disk.img", tar.TypeReg, make([]byte, 8<<20)})}, vm.Exhausted, "8388608 bytes"},
		{"a bomb beside the disk", []layer{with("zstd", entry{"junk", tar.TypeReg, make([]byte, 8<<20)}, file)}, vm.Exhausted, "unpacks to more"},
	} {
		dir := t.TempDir()
		s := open(t, dir, Options{MaxBytes: 4 << 20})
		repo := fmt.Sprintf("vm/c%d", i)
		r.push(repo, "1", test.layers...)
		if test.says != "" {
			refused(t, s, Request{Name: r.host + "/" + repo + ":1"}, test.kind, test.says)
			if left := files(t, dir); len(left) != 0 {
				t.Errorf("%s: files left %v", test.name, left)
			}
			continue
		}
		got, err := s.Pull(t.Context(), Request{Name: r.host + "/" + repo + ":1"})
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		holds(t, got, want)
		if left := files(t, dir); len(left) != 1 {
			t.Errorf("%s: files %v", test.name, left)
		}
		pull(t, s, r.host+"/"+repo+":1")
		if n := r.count("GET", "/v2/"+repo+"/blobs/"+string(digestOf(test.layers[len(test.layers)-1].data))); n > 1 {
			t.Errorf("%s: the layer was fetched %d times", test.name, n)
		}
	}
}

// TestCredentials: each kind gets in where it should, and reaches nobody else.
func TestCredentials(t *testing.T) {
	t.Parallel()
	const user, password, token = "anna", "secret", "bearer-token"
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	r := newReg(t)
	r.push("vm/tiny", "1", layer{qcow2Type, "", disk("a")})
	// Whoever is redirected to must see none of it.
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Authorization") != "" || strings.Contains(fmt.Sprint(q.Header), password) {
			t.Errorf("another host got %v", q.Header)
		}
		_, _ = w.Write(disk("a"))
	}))
	defer other.Close()
	bearer := false
	r.intercept(func(w http.ResponseWriter, q *http.Request) bool {
		given := q.Header.Get("Authorization")
		if q.URL.Path == "/token" {
			_ = q.ParseForm()
			if given == basic || q.Form.Get("refresh_token") == "identity" {
				fmt.Fprintf(w, `{"token":%q}`, token)
			} else {
				w.WriteHeader(http.StatusUnauthorized)
			}
			return true
		}
		if bearer && given != "Bearer "+token {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="s"`, r.URL))
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		if !bearer && given != basic {
			w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		if strings.Contains(q.URL.Path, "/blobs/") {
			http.Redirect(w, q, other.URL+"/elsewhere", http.StatusTemporaryRedirect)
			return true
		}
		return false
	})
	name := r.host + "/vm/tiny:1"
	for _, way := range []string{"basic", "bearer"} {
		bearer = way == "bearer"
		good := map[string]*Auth{
			"password":         {Username: user, Password: password},
			"auth":             {Auth: strings.TrimPrefix(basic, "Basic ")},
			"with the address": {Username: user, Password: password, ServerAddress: "https://" + r.host + "/v1/"},
		}
		if bearer {
			good["registry token"], good["identity token"] = &Auth{RegistryToken: token}, &Auth{IdentityToken: "identity"}
		}
		for what, auth := range good {
			s := open(t, t.TempDir(), Options{})
			if _, err := s.Pull(t.Context(), Request{Name: name, Auth: auth}); err != nil {
				t.Errorf("%s, %s: %v", way, what, err)
			}
		}
		s := open(t, t.TempDir(), Options{})
		for _, auth := range []*Auth{nil, {}, {Username: user, Password: "wrong"}, {Username: user, Password: password, ServerAddress: "other.example"}} {
			refused(t, s, Request{Name: name, Auth: auth}, vm.Invalid, "credentials")
		}
		// The store having it lets nobody in.
		if _, err := s.Pull(t.Context(), Request{Name: name, Auth: good["password"]}); err != nil {
			t.Fatal(err)
		}
		refused(t, s, Request{Name: name}, vm.Invalid, "credentials")
	}
}

func TestMirrors(t *testing.T) {
	t.Parallel()
	mirror := newReg(t)
	want := disk("mirrored")
	digest := mirror.push("cache/vm/tiny", "1", layer{qcow2Type, "", want})
	empty := newReg(t)
	// One mirror is open, the other asks for credentials; neither gets those of the registry.
	for _, r := range []*reg{mirror, empty} {
		r.intercept(func(w http.ResponseWriter, q *http.Request) bool {
			if q.Header.Get("Authorization") != "" {
				t.Error("the mirror got the registry's credentials")
			}
			if r == empty {
				w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
				w.WriteHeader(http.StatusUnauthorized)
			}
			return r == empty
		})
	}
	s := open(t, t.TempDir(), Options{Mirrors: []Mirror{
		{Host: "registry.example", URL: empty.URL}, {Host: "registry.example", URL: mirror.URL + "/cache"}, {Host: "other.example", URL: empty.URL},
	}})
	got, err := s.Pull(t.Context(), Request{Name: "registry.example/vm/tiny:1", Auth: &Auth{Username: "anna", Password: "secret"}})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, got, want)
	if got.RepoDigests[0] != "registry.example/vm/tiny@"+string(digest) {
		t.Errorf("digests %v", got.RepoDigests)
	}
	if empty.count("GET", "/manifests/1") != 1 {
		t.Error("the first mirror was not asked")
	}
	for _, bad := range []Mirror{{"", "http://a"}, {"a", "ftp://b"}, {"a", "b"}, {"a/b", "http://c"}, {"a", "http://u:p@c"}, {"a", "http://c/?x"}, {"a", "http://c/.."}, {"a", "file:///x"}} {
		if _, err := Open(t.TempDir(), Options{Mirrors: []Mirror{bad}}); vm.KindOf(err) != vm.Invalid {
			t.Errorf("mirror %v: %v", bad, err)
		}
	}
}

// TestLyingRegistry: content that is not what its digest says never becomes an image.
func TestLyingRegistry(t *testing.T) {
	t.Parallel()
	r := newReg(t)
	good, evil := disk("good"), disk("evil")
	digest := r.push("vm/tiny", "1", layer{qcow2Type, "", good})
	dir := t.TempDir()
	s := open(t, dir, Options{})
	r.intercept(func(w http.ResponseWriter, q *http.Request) bool {
		if strings.Contains(q.URL.Path, "/blobs/") {
			_, _ = w.Write(evil)
			return true
		}
		return false
	})
	refused(t, s, Request{Name: r.host + "/vm/tiny:1"}, vm.Invalid, string(digestOf(good)), string(digestOf(evil)))
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("files left %v", left)
	}
	r.intercept(func(w http.ResponseWriter, q *http.Request) bool {
		if strings.Contains(q.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", manifestType)
			fmt.Fprint(w, `{"schemaVersion":2,"layers":[]}`)
			return true
		}
		return false
	})
	refused(t, s, Request{Name: r.host + "/vm/tiny@" + string(digest)}, vm.Invalid, string(digest))
	r.intercept(nil)
	holds(t, pull(t, s, r.host+"/vm/tiny@"+string(digest)), good)
	if i, err := s.Status(r.host + "/vm/tiny:1"); err == nil {
		t.Errorf("a tag that nobody asked for: %+v", i)
	}
}

func TestParseChallenge(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`Bearer realm="https://a/t?x=1,2",service="s s",scope="repository:a:pull,push"`: `Bearer map[realm:https://a/t?x=1,2 scope:repository:a:pull,push service:s s]`,
		`bearer Realm = "a\"b" , error=insufficient_scope`:                              `bearer map[error:insufficient_scope realm:a"b]`,
		`Basic`: `Basic map[]`, ``: ` map[]`, `Bearer realm="open`: `Bearer map[realm:open]`, `Bearer realm="x\`: `Bearer map[realm:x\]`, `Bearer =,==`: `Bearer map[:=]`,
	} {
		if scheme, parameters := parseChallenge(in); fmt.Sprint(scheme, " ", parameters) != want {
			t.Errorf("%s: %s %v, want %s", in, scheme, parameters, want)
		}
	}
}

// TestTokenServer: where a registry may send credentials.
func TestTokenServer(t *testing.T) {
	t.Parallel()
	for realm, says := range map[string]string{
		"http://plain.example/token":     "must be a URL of scheme https",
		"file:///etc/shadow":             "must be a URL of scheme https",
		"https://u:p@a.example/":         "must be a URL of scheme https",
		"":                               "must be a URL of scheme https",
		"https://169.254.169.254/latest": "169.254.169.254",
		"https://127.0.0.1/":             "the node itself",
	} {
		c, err := newCaller(&url.URL{Scheme: "https", Host: "registry.example"}, Transport{})
		if err != nil {
			t.Fatal(err)
		}
		a := &authorizer{caller: c, auth: Auth{Username: "anna", Password: "secret"}}
		if _, err := a.answer(t.Context(), []string{fmt.Sprintf("Bearer realm=%q", realm)}); vm.KindOf(err) != vm.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", realm, err)
		}
	}
}
