package conformity

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// containers has an image of busybox under every name. Which image it is is in its configuration, with what that image runs and as whom.
func containers(t *testing.T) http.Handler {
	t.Helper()
	r := newRegistry()
	packed, plain := rootfs(t)
	layer := r.blob("application/vnd.oci.image.layer.v1.tar+gzip", packed)
	diff := newRegistry().blob("", plain)["digest"]
	for name, which := range names {
		run := map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{"sh"}, "Labels": map[string]string{"which": which}}
		switch which {
		case "web":
			run["Cmd"] = []string{"httpd", "-f", "-p", "80", "-h", "/www"}
		case "httpd":
			run["Cmd"] = []string{"sh", "-c", "echo httpd; exec httpd -f -p 80 -h /www"}
		case "hostnet":
			run["Cmd"] = []string{"httpd", "-f", "-p", "12003", "-h", "/www"}
		case "pause", "test", "node":
			run["Cmd"] = []string{"sleep", "1000000"}
		case "user-uid":
			run["User"] = "1002"
		case "user-username":
			run["User"] = "www-data"
		case "user-uid-group":
			run["User"] = "1003:users"
		case "user-username-group":
			run["User"] = "www-data:100"
		}
		text, err := json.Marshal(map[string]any{"architecture": "amd64", "os": "linux", "config": run, "rootfs": map[string]any{"type": "layers", "diff_ids": []any{diff}}})
		if err != nil {
			t.Fatal(err)
		}
		r.push(t, r.blob("application/vnd.oci.image.config.v1+json", text), layer, name)
	}
	return r
}

// pgrep prints the processes with a name, and fails if there are none.
const pgrep = `#!/bin/sh
for p in /proc/[0-9]*; do
	[ "$(cat "$p/comm" 2>/dev/null)" = "$1" ] && echo "${p##*/}" && found=yes
done
[ -n "$found" ]
`

// rootfs is a layer with this machine's busybox, which has to be static.
func rootfs(t *testing.T) (packed, plain []byte) {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Skipf("NOT CHECKED: %v", err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command(path, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	put := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin", "etc", "www", "proc", "sys", "dev"} {
		put(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil)
	}
	put(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil)
	put(tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, program)
	for applet := range strings.FieldsSeq(string(list)) {
		if applet != "busybox" && applet != "pgrep" {
			put(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox", Mode: 0o777}, nil)
		}
	}
	put(tar.Header{Typeflag: tar.TypeReg, Name: "bin/pgrep", Mode: 0o755}, []byte(pgrep)) // Debian's busybox has none
	put(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0:root:/:/bin/sh\nwww-data:x:33:33::/:/bin/sh\n"))
	put(tar.Header{Typeflag: tar.TypeReg, Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\nusers:x:100:\nwww-data:x:33:\n"))
	put(tar.Header{Typeflag: tar.TypeReg, Name: "www/index.html", Mode: 0o644}, []byte("a container\n"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return zipped.Bytes(), out.Bytes()
}
