package conformity

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// Where the registries answer, in the node.
const (
	machinePort   = 5000
	containerPort = 5001
)

// hosts are the registries that they are asked in place of.
var hosts = []string{"registry.k8s.io", "k8s.gcr.io", "gcr.io"}

// names are the images of the suite, and the one that containerd holds a pod's namespaces with, each with which image it is: those with the same word are one.
var names = map[string]string{
	"e2e-test-images/busybox:1.29-2":                              "busybox",
	"e2e-test-images/httpd:2.4.39-4":                              "httpd",
	"e2e-test-images/nginx:1.14-2":                                "web",
	"node/pause:1":                                                "node",
	"pause:3.9":                                                   "pause",
	"k8s-staging-cri-tools/test-image-latest:latest":              "latest",
	"k8s-staging-cri-tools/test-image-tag:test":                   "test",
	"k8s-staging-cri-tools/test-image-tag:all":                    "all",
	"k8s-staging-cri-tools/test-image-1:latest":                   "one",
	"k8s-staging-cri-tools/test-image-2:latest":                   "two",
	"k8s-staging-cri-tools/test-image-3:latest":                   "three",
	"k8s-staging-cri-tools/test-image-tags:1":                     "tags",
	"k8s-staging-cri-tools/test-image-tags:2":                     "tags",
	"k8s-staging-cri-tools/test-image-tags:3":                     "tags",
	"k8s-staging-cri-tools/hostnet-nginx-amd64:latest":            "hostnet",
	"k8s-staging-cri-tools/test-image-user-uid:latest":            "user-uid",
	"k8s-staging-cri-tools/test-image-user-username:latest":       "user-username",
	"k8s-staging-cri-tools/test-image-user-uid-group:latest":      "user-uid-group",
	"k8s-staging-cri-tools/test-image-user-username-group:latest": "user-username-group",
}

const manifestType = "application/vnd.oci.image.manifest.v1+json"

// registry serves images for reading, as OCI's distribution specification has it.
type registry struct {
	blobs map[string][]byte // by digest
	tags  map[string]string // REPOSITORY:TAG to a manifest's digest
}

func newRegistry() *registry {
	return &registry{map[string][]byte{}, map[string]string{}}
}

// blob keeps what there is, and gives its descriptor.
func (r *registry) blob(kind string, content []byte) map[string]any {
	sum := sha256.Sum256(content)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	r.blobs[digest] = content
	return map[string]any{"mediaType": kind, "digest": digest, "size": len(content)}
}

// push makes an image of a configuration and one layer.
func (r *registry) push(t *testing.T, config, layer map[string]any, tag string) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []any{layer}})
	if err != nil {
		t.Fatal(err)
	}
	r.tags[tag] = r.blob(manifestType, text)["digest"].(string)
}

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	path := strings.TrimPrefix(q.URL.Path, "/v2/")
	if path == "" {
		return
	}
	if repo, digest, ok := strings.Cut(path, "/blobs/"); ok && repo != "" {
		r.give(w, q, "application/octet-stream", digest)
		return
	}
	if repo, what, ok := strings.Cut(path, "/manifests/"); ok {
		if !strings.HasPrefix(what, "sha256:") {
			what = r.tags[repo+":"+what]
		}
		r.give(w, q, manifestType, what)
		return
	}
	http.NotFound(w, q)
}

func (r *registry) give(w http.ResponseWriter, q *http.Request, kind, digest string) {
	content, ok := r.blobs[digest]
	if !ok {
		http.NotFound(w, q)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Docker-Content-Digest", digest)
	http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(content))
}

// machines has the disk under every name: the same, but for a word after its end, which no machine reads.
func machines(t *testing.T, disk string) http.Handler {
	t.Helper()
	content, err := os.ReadFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	r := newRegistry()
	config := r.blob("application/vnd.oci.empty.v1+json", []byte("{}"))
	add := func(name, which string) {
		tail := make([]byte, 512)
		copy(tail, which)
		r.push(t, config, r.blob("application/x-qcow2", append(append([]byte(nil), content...), tail...)), name)
	}
	for name, which := range names {
		add(name, which)
	}
	add("vm/tiny:1", "vm-tiny")
	add("vm/web:1", "vm-web")
	return r
}
