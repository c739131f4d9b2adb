package main

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"sigs.k8s.io/yaml"
)

// imagesEnv names the environment variable with the folder of the archives. Without it there is nothing to run.
const imagesEnv = "MUSTER_IMAGES"

const root = "../../.."

// goldens are the files that hold every kind of pod that Muster makes, or that its chart makes; the tests beside them keep them so. Each
// place of the code that makes a container is named with the files that hold its pods.
var goldens = map[string]string{
	"internal/install/render.go":              "internal/install/testdata/*.txtar",
	"internal/install/components.go":          "internal/install/testdata/*.txtar",
	"internal/controllers/reservation/pod.go": "internal/controllers/reservation/testdata/pod.yaml",
	"internal/controllers/nodescale/pod.go":   "internal/controllers/nodescale/testdata/pod.yaml",
	"deploy/chart/muster/templates":           "deploy/chart/e2e/testdata/*.golden",
}

// tenants are the places that put a container into a tenant's own pod, of an image of his: nothing of ours is run in it. Nobody runs the PodTemplates of resource groups, which a policy
// reads.
var tenants = map[string]bool{"internal/controllers/vcjob/frameworks.go": true, "internal/cli/vcctl/jobrun.go": true, "internal/controllers/admission/volcano/groups.go": true}

// TestEveryContainerIsRun: no other place of the product makes a container with an image. muster-vm, whose containers are machines, makes no pods.
func TestEveryContainerIsRun(t *testing.T) {
	t.Parallel()
	for _, top := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(name string, d fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(root, name)
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(rel, "internal/lab/") || strings.HasPrefix(rel, "internal/vm/") || strings.Contains(rel, "enginetest/") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				lit, ok := n.(*ast.CompositeLit)
				if !ok {
					return true
				}
				has := func(field string) bool {
					return slices.ContainsFunc(lit.Elts, func(e ast.Expr) bool {
						kv, ok := e.(*ast.KeyValueExpr)
						id, named := (*ast.Ident)(nil), false
						if ok {
							id, named = kv.Key.(*ast.Ident)
						}
						return named && id.Name == field
					})
				}
				// A container: corev1.Container{…}, or an element of a list of them.
				kind, isContainer := lit.Type.(*ast.SelectorExpr)
				if has("Image") && has("Name") && (lit.Type == nil || isContainer && kind.Sel.Name == "Container") && goldens[rel] == "" && !tenants[rel] {
					t.Errorf("%s makes a container whose command line no golden file holds", rel)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The part of Kubernetes' objects that says what is run.
type (
	object struct {
		Kind     string
		Metadata struct{ Name, Namespace string }
		Data     map[string]string
		Spec     struct {
			podSpec
			Template *struct{ Spec podSpec }
		}
	}
	podSpec struct {
		InitContainers, Containers []container
		SecurityContext            security
		Volumes                    []volume
	}
	security struct {
		RunAsUser              *int
		RunAsNonRoot           bool
		ReadOnlyRootFilesystem bool
	}
	container struct {
		Name, Image     string
		Command, Args   []string
		Env             []variable
		SecurityContext security
		VolumeMounts    []struct{ Name, MountPath string }
	}
	variable struct {
		Name, Value string
		ValueFrom   *struct {
			FieldRef     *struct{ FieldPath string }
			SecretKeyRef *struct{ Name string }
		}
	}
	volume struct {
		Name      string
		ConfigMap *struct{ Name string }
		Secret    *struct{ SecretName string }
		EmptyDir  *struct{}
		HostPath  *struct{ Path string }
		Claim     *struct{} `json:"persistentVolumeClaim"`
	}
)

// line is one command line, and what its container finds.
type line struct {
	program  string
	argv     []string // after the image's entry point
	env      []string
	user     int // -1: the image's
	notRoot  bool
	readOnly bool
	files    map[string]string // by path
	folders  []string          // that it may write to
	sockets  []string          // the kubelet's
	from     string
}

// TestCommandLines runs every command line that the operator, the controllers and the chart give to our images, in the images: each program in
// its own image's files and no others, as the user it is run as in a cluster, with what a kubelet would mount. A command line is accepted
// when the program, having read all it was given, asks the API server something (or the kubelet, which the exporter asks first); who is to
// end at once has to end well. muster-vm becomes a process of the node, which an image's files are not: TestCommandLineOfVM reads its line.
func TestCommandLines(t *testing.T) {
	dir := os.Getenv(imagesEnv)
	if dir == "" {
		t.Skip("NOT CHECKED: " + imagesEnv + " names no folder of images (make test-image)")
	}
	lines := readLines(t)
	api := newAPI(t)
	for _, program := range []string{"muster", "muster-node"} {
		for arch, image := range open(t, filepath.Join(dir, program+".tar")) {
			runner, ok := emulator(t, arch)
			if !ok {
				t.Logf("NOT CHECKED: %s for %s: this machine is %s, and has no qemu-%s-static", program, arch, runtime.GOARCH, machines[arch])
				continue
			}
			h := unpack(t, image, runner)
			for i, l := range lines {
				if l.program == program {
					begun := time.Now()
					said := h.run(t, api, i, l)
					t.Logf("%s %s, user %d, %s: %s\n    /%s %s\n    (%s)", program, arch, h.user(l), time.Since(begun).Round(time.Millisecond), said, program, strings.Join(l.argv, " "), l.from)
				}
			}
		}
	}
}

// readLines are the command lines of the golden files, each once.
func readLines(t *testing.T) []line {
	t.Helper()
	known := map[string]int{}
	var out []line
	for _, pattern := range slices.Compact(slices.Sorted(maps.Values(goldens))) {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: no such file: %v", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			rel, _ := filepath.Rel(root, name)
			found := 0
			for _, l := range parse(t, rel, string(text)) {
				found++
				key := fmt.Sprint(l.program, l.argv, l.env, l.user, l.files)
				if i, ok := known[key]; ok {
					out[i].from += ", " + l.from
					continue
				}
				known[key] = len(out)
				out = append(out, l)
			}
			if found == 0 {
				t.Errorf("%s holds no container", rel)
			}
		}
	}
	return out
}

var (
	// parts are documents, and the sections of files that hold several.
	parts = regexp.MustCompile(`(?m)^(---|-- .+ --)\n`)
	// ofKind tells objects from other text.
	ofKind          = regexp.MustCompile(`(?m)^kind: (\w+)$`)
	listsContainers = regexp.MustCompile(`(?m)^ *(initC|ephemeralC|c)ontainers:$`)
)

func parse(t *testing.T, name, text string) []line {
	t.Helper()
	var objects []object
	configs := map[string]map[string]string{}
	for _, document := range parts.Split(text, -1) {
		kind := ofKind.FindStringSubmatch(document)
		if kind == nil || kind[1] != "ConfigMap" && !listsContainers.MatchString(document) {
			continue
		}
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%s: %s: %v", name, kind[1], err)
		}
		if o.Kind == "ConfigMap" {
			configs[o.Metadata.Name] = o.Data
			continue
		}
		if o.Spec.Template != nil {
			o.Spec.podSpec = o.Spec.Template.Spec
		}
		if len(o.Spec.Containers) == 0 {
			t.Errorf("%s: %s %s lists containers where this test does not look", name, o.Kind, o.Metadata.Name)
		}
		objects = append(objects, o)
	}
	var out []line
	for _, o := range objects {
		for _, c := range slices.Concat(o.Spec.InitContainers, o.Spec.Containers) {
			l, err := lineOf(&o, &c, configs)
			if err != nil {
				t.Fatalf("%s: %s %s: container %s: %v", name, o.Kind, o.Metadata.Name, c.Name, err)
			}
			l.from = name + " " + o.Metadata.Name
			out = append(out, l)
		}
	}
	return out
}

func lineOf(o *object, c *container, configs map[string]map[string]string) (line, error) {
	pod := o.Spec.SecurityContext
	l := line{
		program: programOf(c), argv: c.Args, user: -1, files: map[string]string{},
		notRoot: pod.RunAsNonRoot || c.SecurityContext.RunAsNonRoot, readOnly: c.SecurityContext.ReadOnlyRootFilesystem,
	}
	if len(c.Command) > 0 {
		return line{}, fmt.Errorf("command %q: this test runs entry points", c.Command)
	}
	for _, u := range []*int{pod.RunAsUser, c.SecurityContext.RunAsUser} {
		if u != nil {
			l.user = *u
		}
	}
	for _, v := range c.Env {
		switch f := v.ValueFrom; {
		case f == nil:
			l.env = append(l.env, v.Name+"="+v.Value)
		case f.FieldRef != nil:
			value, ok := map[string]string{"metadata.namespace": o.Metadata.Namespace, "metadata.name": o.Metadata.Name, "spec.nodeName": "node"}[f.FieldRef.FieldPath]
			if !ok {
				return line{}, fmt.Errorf("field %s: this test does not know it", f.FieldRef.FieldPath)
			}
			l.env = append(l.env, v.Name+"="+value)
		case f.SecretKeyRef != nil: // of all that is in Secrets here, addresses are read
			l.env = append(l.env, v.Name+"=http://127.0.0.1:1")
		default:
			return line{}, fmt.Errorf("variable %s: this test does not know where it is from", v.Name)
		}
	}
	for _, m := range c.VolumeMounts {
		i := slices.IndexFunc(o.Spec.Volumes, func(v volume) bool { return v.Name == m.Name })
		if i < 0 {
			return line{}, fmt.Errorf("there is no volume %s", m.Name)
		}
		switch v := o.Spec.Volumes[i]; {
		case v.ConfigMap != nil:
			data, ok := configs[v.ConfigMap.Name]
			if !ok && m.MountPath == "/etc/kube-batch" { // the administrator's, which nothing renders
				data, ok = map[string]string{"kube-batch.conf": "actions: \"allocate, backfill\"\ntiers:\n- plugins:\n  - name: gang\n"}, true
			}
			if !ok {
				return line{}, fmt.Errorf("there is no ConfigMap %s", v.ConfigMap.Name)
			}
			for key, value := range data {
				l.files[path.Join(m.MountPath, key)] = value
			}
		case v.Secret != nil && m.Name == "tls":
			cert, key, err := pair()
			if err != nil {
				return line{}, err
			}
			l.files[path.Join(m.MountPath, "tls.crt")], l.files[path.Join(m.MountPath, "tls.key")] = cert, key
		case v.EmptyDir != nil || v.Claim != nil:
			l.folders = append(l.folders, m.MountPath)
		case v.HostPath != nil && m.Name == "sysfs":
			l.files[path.Join(m.MountPath, "devices/system/node/node0/cpulist")] = "0\n"
		case v.HostPath != nil && m.Name == "podresources":
			for _, a := range c.Args {
				if _, socket, ok := strings.Cut(a, "--podresources-socket="); ok && strings.HasPrefix(socket, m.MountPath) {
					l.sockets = append(l.sockets, socket)
				}
			}
		default:
			return line{}, fmt.Errorf("volume %s: this test does not know its kind", m.Name)
		}
	}
	return l, nil
}

// programOf is the image's program. An image that has another name, in somebody's own registry, is known by what it is told to run.
func programOf(c *container) string {
	name, _, _ := strings.Cut(path.Base(c.Image), ":")
	switch {
	case name == "muster" || name == "muster-node" || name == "muster-vm":
		return name
	case len(c.Args) > 0 && c.Args[0] == "run":
		return "muster"
	case len(c.Args) > 0 && c.Args[0] == "host":
		return "muster-vm"
	}
	return "muster-node"
}

// open are the images of an archive, by architecture.
func open(t *testing.T, archive string) map[string]v1.Image {
	t.Helper()
	dir := t.TempDir()
	extract(t, archive, dir)
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]v1.Image{}
	var walk func(v1.ImageIndex)
	walk = func(index v1.ImageIndex) {
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range manifest.Manifests {
			if m.MediaType.IsIndex() {
				inner, err := index.ImageIndex(m.Digest)
				if err != nil {
					t.Fatal(err)
				}
				walk(inner)
				continue
			}
			image, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			out[m.Platform.Architecture] = image
		}
	}
	walk(index)
	if len(out) == 0 {
		t.Fatalf("%s holds no image", archive)
	}
	return out
}

// machines are architectures as qemu calls them.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// emulator is what programs of an architecture run in here: nothing on a machine of that architecture.
func emulator(t *testing.T, arch string) (string, bool) {
	t.Helper()
	if arch == runtime.GOARCH {
		return "", true
	}
	found, err := exec.LookPath("qemu-" + machines[arch] + "-static")
	return found, err == nil
}

// unpacked is the unpacked files of an image.
type unpacked struct {
	dir    string
	config v1.Config
	runner string
}

func unpack(t *testing.T, image v1.Image, runner string) *unpacked {
	t.Helper()
	dir, err := os.MkdirTemp("", "image") // a short name: it begins the paths of sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // others live there
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	in := mutate.Extract(image)
	defer in.Close()
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		where := filepath.Join(dir, filepath.Clean("/"+h.Name))
		mode := os.FileMode(h.Mode).Perm() //nolint:gosec // of a file
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(where, 0o755) //nolint:gosec // as an image's are
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, where)
			mode = 0
		default:
			var body []byte
			if body, err = io.ReadAll(r); err == nil {
				err = place(where, body)
			}
		}
		if err == nil && mode != 0 {
			err = os.Chmod(where, mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h := &unpacked{dir: dir, config: config.Config}
	if runner != "" {
		body, err := os.ReadFile(runner)
		if err != nil {
			t.Fatal(err)
		}
		h.runner = "/" + filepath.Base(runner)
		h.put(t, h.runner, string(body))
		if err := os.Chmod(filepath.Join(dir, h.runner), 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	return h
}

func place(name string, body []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // as an image's are
		return err
	}
	return os.WriteFile(name, body, 0o644) //nolint:gosec // for whom it is run as
}

// put writes a file into the image.
func (h *unpacked) put(t *testing.T, name, body string) {
	t.Helper()
	if err := place(filepath.Join(h.dir, name), []byte(body)); err != nil {
		t.Fatal(err)
	}
}

// user is who a line is run as.
func (h *unpacked) user(l line) int {
	if l.user >= 0 {
		return l.user
	}
	first, _, _ := strings.Cut(h.config.User, ":")
	n, err := strconv.Atoi(first)
	if err != nil {
		return 0 // a kubelet takes no name for somebody who is not root
	}
	return n
}

const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// run runs a line until it has shown that it is accepted, and returns how it did.
func (h *unpacked) run(t *testing.T, a *api, number int, l line) string {
	t.Helper()
	if l.notRoot && h.user(l) == 0 {
		t.Errorf("%s: a kubelet would not start it: it may not be root, and the image's user is %q", l.from, h.config.User)
	}
	token := fmt.Sprintf("token-%d", number)
	asked := a.expect(token)
	h.put(t, account+"/token", token)
	h.put(t, account+"/ca.crt", a.authority)
	h.put(t, account+"/namespace", "ns")
	for name, body := range l.files {
		h.put(t, name, body)
	}
	for _, name := range slices.Sorted(maps.Keys(l.files)) {
		defer os.Remove(filepath.Join(h.dir, name)) //nolint:errcheck // goes with the image
	}
	tmp := os.FileMode(0o777) | os.ModeSticky
	if l.readOnly {
		tmp = 0o555
	}
	if err := os.Chmod(filepath.Join(h.dir, "tmp"), tmp); err != nil {
		t.Fatal(err)
	}
	for _, name := range l.folders {
		where := filepath.Join(h.dir, name)
		if err := os.MkdirAll(where, 0o777); err != nil { //nolint:gosec // a volume
			t.Fatal(err)
		}
		if err := os.Chmod(where, 0o777); err != nil { //nolint:gosec // a volume
			t.Fatal(err)
		}
		defer os.RemoveAll(where) //nolint:errcheck // goes with the image
	}
	for _, name := range l.sockets {
		where := filepath.Join(h.dir, name)
		if err := os.MkdirAll(filepath.Dir(where), 0o755); err != nil { //nolint:gosec // a node's
			t.Fatal(err)
		}
		s, err := net.Listen("unix", where)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		go func() {
			if c, err := s.Accept(); err == nil {
				defer c.Close()
				asked <- "asks the kubelet at " + name
			}
		}()
	}

	argv := slices.Concat(h.config.Entrypoint, l.argv)
	if h.runner != "" {
		argv = append([]string{h.runner}, argv...)
	}
	var said bytes.Buffer
	c := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	c.Dir, c.Stdout, c.Stderr = h.config.WorkingDir, &said, &said
	c.Env = slices.Concat(h.config.Env, l.env, a.env, []string{fmt.Sprintf("MUSTER_LISTEN_HOST=127.77.%d.%d", number/250, 1+number%250)})
	user := h.user(l)
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: h.dir, Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}} //nolint:gosec // both are small
	if os.Getuid() != 0 {                                                                                                      // root of its own world
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getgid(), Size: 1}}
		c.SysProcAttr.Credential.NoSetGroups = true
	}
	if err := c.Start(); err != nil {
		if os.Getuid() != 0 && errors.Is(err, os.ErrPermission) {
			t.Skipf("NOT CHECKED: without root, and without leave to be root of a world of one's own, an image cannot be entered: %v", err)
		}
		t.Fatalf("/%s %s: %v", l.program, strings.Join(l.argv, " "), err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	end := func() {
		_ = c.Process.Kill()
		<-ended
	}
	atOnce := len(l.argv) == 1 && l.argv[0] == "scalingpod"
	select {
	case what := <-asked:
		end()
		if atOnce {
			t.Errorf("%s: it %s, and should have ended at once", l.from, what)
		}
		return what
	case err := <-ended:
		if !atOnce || err != nil {
			t.Errorf("%s: /%s %s ended (%v), having asked nobody anything, and said:\n%s", l.from, l.program, strings.Join(l.argv, " "), err, said.String())
		}
		return "has ended"
	case <-time.After(5 * time.Minute): // what is broken need not be waited for longer
		end()
		t.Errorf("%s: /%s %s neither asks anybody anything nor ends, and said:\n%s", l.from, l.program, strings.Join(l.argv, " "), said.String())
		return "hangs"
	}
}

// api is an API server that answers nobody, and tells who has asked what.
type api struct {
	env       []string
	authority string
	waits     chan wait
}

type wait struct {
	token string
	asked chan string
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{waits: make(chan wait, 1)}
	s := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		w := <-a.waits
		a.waits <- w
		if r.Header.Get("Authorization") == "Bearer "+w.token {
			select {
			case w.asked <- "asks the API server: " + r.Method + " " + r.URL.Path + " as " + r.UserAgent():
			default: // it has asked before
			}
		}
		<-r.Context().Done()
	}))
	s.Config.ErrorLog = nil
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a.env = []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
	a.authority = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return a
}

// expect has the returned channel told what somebody with the token asks first.
func (a *api) expect(token string) chan string {
	select {
	case <-a.waits:
	default:
	}
	asked := make(chan string, 2)
	a.waits <- wait{token: token, asked: asked}
	return asked
}

// pair makes a certificate and its key, as a Secret of the type kubernetes.io/tls has them.
func pair() (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"muster-ui"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	text := func(kind string, data []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}
	return text("CERTIFICATE", signed), text("PRIVATE KEY", secret), nil
}
