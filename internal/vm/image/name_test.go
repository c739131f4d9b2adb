package image

import (
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/vm"
)

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"

func TestParseName(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in, repository, tagged string
		digest                 Digest
	}{
		{"cirros", "cirros", "cirros:latest", ""},
		{"cirros:0.3.5", "cirros", "cirros:0.3.5", ""},
		{"virtlet.cloud/cirros:1", "cirros", "cirros:1", ""},
		{"muster-vm/registry.example:5000/vm/tiny", "registry.example:5000/vm/tiny", "registry.example:5000/vm/tiny:latest", ""},
		{"localhost/tiny:1", "localhost/tiny", "localhost/tiny:1", ""},
		{"[::1]:5000/tiny:1", "[::1]:5000/tiny", "[::1]:5000/tiny:1", ""},
		{"a.b/c@sha256:" + zeros, "a.b/c", "", "sha256:" + zeros},
		{"a.b/c:1@sha256:" + zeros, "a.b/c", "a.b/c:1", "sha256:" + zeros},
		{"docker.io/cirros", "docker.io/library/cirros", "docker.io/library/cirros:latest", ""},
		{"index.docker.io/library/cirros:1", "docker.io/library/cirros", "docker.io/library/cirros:1", ""},
		{"download.example.com/images/cirros-0.3.5-x86_64-disk.img", "download.example.com/images/cirros-0.3.5-x86_64-disk.img", "download.example.com/images/cirros-0.3.5-x86_64-disk.img:latest", ""},
		{"oci://a.b/c:1", "a.b/c", "a.b/c:1", ""},
		{"https://a.b/C/d.img?x=1", "https://a.b/C/d.img?x=1", "https://a.b/C/d.img?x=1", ""},
		{"https://a.b/d.img@sha256:" + zeros, "https://a.b/d.img", "https://a.b/d.img", "sha256:" + zeros},
	} {
		got, err := ParseName(test.in)
		if err != nil {
			t.Errorf("%s: %v", test.in, err)
			continue
		}
		if got.Repository != test.repository || got.Tagged() != test.tagged || got.Digest != test.digest {
			t.Errorf("%s: repository %q, tagged %q, digest %q", test.in, got.Repository, got.Tagged(), got.Digest)
		}
	}
	for _, in := range []string{
		"", ":", "@", "/", "a//b", "a/../b", "../etc/passwd", "/etc/passwd", "a/", "A", "a:b:c", "a: b", "a\x00", "a\n", "-a", "a b",
		"file:///etc/shadow", "ftp://a/b", "unix:///run/x.sock", "docker://a/b", "://", "https://", "https:///x", "http://user:pass@a.b/c.img", "https://a.b/c#d",
		"https://a b/c", "HTTPS://a.b/c", "json:{}", "nbd:localhost:10809",
		"a@sha256:" + zeros[1:], "a@sha512:" + zeros + zeros, "a@sha256:" + strings.Repeat("F", 64), "sha256:" + zeros + "/a@sha256:x",
		strings.Repeat("a", 256), "a:" + strings.Repeat("b", 129), "https://a.b/" + strings.Repeat("c", 3000),
		"virtlet.cloud/", "virtlet.cloud/virtlet.cloud/..",
	} {
		got, err := ParseName(in)
		if err == nil {
			t.Errorf("%q passed as %+v", in, got)
			continue
		}
		if vm.KindOf(err) != vm.Invalid {
			t.Errorf("%q: kind %d: %v", in, vm.KindOf(err), err)
		}
		if len(err.Error()) > 2000 || strings.ContainsAny(err.Error(), "\x00\n") {
			t.Errorf("%q: the error is no log line: %q", in, err)
		}
	}
}

// FuzzParseName: what passes is said again by String, and no part of it climbs out of a folder or names a scheme other than the three.
func FuzzParseName(f *testing.F) {
	for _, s := range []string{"cirros", "a.b:5000/c/d:tag@sha256:" + zeros, "https://a.b/c.img", "oci://a/b", "virtlet.cloud/x", "file:///x", "a/../b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseName(s)
		if err != nil {
			if vm.KindOf(err) != vm.Invalid {
				t.Fatalf("kind %d: %v", vm.KindOf(err), err)
			}
			return
		}
		if !n.isURL() && (strings.Contains(n.Repository, "..") || strings.HasPrefix(n.Repository, "/") || strings.Contains(n.Repository, "://")) {
			t.Fatalf("%q passed as %+v", s, n)
		}
		if n.Repository == "" || n.Tagged() == "" && n.Digest == "" {
			t.Fatalf("%q has no name in it: %+v", s, n)
		}
		again, err := ParseName(n.String())
		if err != nil || again.Repository != n.Repository || again.Tag != n.Tag || again.Digest != n.Digest {
			t.Fatalf("%q is %+v, and its String %q is %+v, %v", s, n, n.String(), again, err)
		}
	})
}
