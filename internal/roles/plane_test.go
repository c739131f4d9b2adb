package roles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/muster-scheduler/muster/internal/app"
)

// TestMain silences the libraries: their logger is one for the whole process.
func TestMain(m *testing.M) {
	app.InstallLogger(logr.Discard())
	os.Exit(m.Run())
}

// plane is an API server that knows our kinds, keeps Leases, and never answers a list or a watch: roles start, and wait for
// their caches.
type plane struct {
	*httptest.Server
	t      *testing.T
	file   string // the last kubeconfig
	groups map[schema.GroupVersion][]metav1.APIResource

	mu      sync.Mutex
	refuse  bool          // to give Leases
	visited chan struct{} // closed at the first request while it is away
	once    sync.Once
	gone    bool // it cuts every connection
	mute    bool // it takes every request, and says nothing
	leases  map[string]*coordinationv1.Lease
	version int
	paths   []string      // of all requests but discovery
	writes  []string      // those of them that write, but Leases
	agents  []string      // User-Agent of each
	news    chan struct{} // closed and replaced at each request
}

// newPlane starts one. Without custom it lacks the custom resources.
func newPlane(t *testing.T, custom bool) *plane {
	t.Helper()
	p := &plane{t: t, groups: map[schema.GroupVersion][]metav1.APIResource{}, leases: map[string]*coordinationv1.Lease{}, news: make(chan struct{}), visited: make(chan struct{})}
	s, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	for gvk := range s.AllKnownTypes() {
		ours := strings.HasSuffix(gvk.Group, "run.ai") || strings.HasPrefix(gvk.Group, "kai.")
		if gvk.Version == "__internal" || ours && !custom || strings.HasSuffix(gvk.Kind, "List") || strings.HasSuffix(gvk.Kind, "Options") {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		p.groups[gvk.GroupVersion()] = append(p.groups[gvk.GroupVersion()], metav1.APIResource{Name: plural.Resource, Kind: gvk.Kind, Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch"}})
	}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

// ServeHTTP answers as an API server would.
func (p *plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Trim(r.URL.Path, "/")
	steps := strings.Split(path, "/")
	p.mu.Lock()
	gone, mute := p.gone, p.mute
	p.mu.Unlock()
	if gone {
		p.once.Do(func() { close(p.visited) })
		if mute {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
	switch {
	case path == "api":
		p.answer(w, &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		return
	case path == "version":
		p.answer(w, &version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.0"})
		return
	case path == "apis":
		p.answer(w, p.groupList())
		return
	case steps[0] == "api" && len(steps) == 2, steps[0] == "apis" && len(steps) == 3:
		gv, err := schema.ParseGroupVersion(strings.Join(steps[1:], "/"))
		if err != nil || p.groups[gv] == nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		p.answer(w, &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(), APIResources: p.groups[gv]})
		return
	}
	p.mu.Lock()
	p.paths, p.agents = append(p.paths, path), append(p.agents, r.UserAgent())
	if r.Method != http.MethodGet && !strings.Contains(path, "/leases") {
		p.writes = append(p.writes, r.Method+" "+path)
	}
	close(p.news)
	p.news = make(chan struct{})
	p.mu.Unlock()
	if strings.Contains(path, "/leases") {
		p.lease(w, r)
		return
	}
	<-r.Context().Done()
}

// away has the API server answer nobody, or answer again.
func (p *plane) away(gone, mute bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone, p.mute = gone, mute
}

func (p *plane) groupList() *metav1.APIGroupList {
	byName := map[string]*metav1.APIGroup{}
	for gv := range p.groups {
		if gv.Group == "" {
			continue
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		if byName[gv.Group] == nil {
			byName[gv.Group] = &metav1.APIGroup{Name: gv.Group, PreferredVersion: v}
		}
		byName[gv.Group].Versions = append(byName[gv.Group].Versions, v)
	}
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, g := range byName {
		list.Groups = append(list.Groups, *g)
	}
	return list
}

func (p *plane) lease(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if r.Method == http.MethodGet {
		l := p.leases[strings.Trim(r.URL.Path, "/")]
		if l == nil {
			w.WriteHeader(http.StatusNotFound)
			p.answer(w, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
			return
		}
		p.answer(w, l)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Error(err)
	}
	l := &coordinationv1.Lease{}
	if _, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, l); err != nil {
		p.t.Errorf("a Lease that is none: %v", err)
	}
	p.version++
	l.TypeMeta = metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}
	l.ResourceVersion = fmt.Sprint(p.version)
	name := strings.Trim(r.URL.Path, "/")
	if r.Method == http.MethodPost {
		name += "/" + l.Name
	}
	p.leases[name] = l
	p.answer(w, l)
}

func (p *plane) answer(w http.ResponseWriter, o any) {
	w.Header().Set("Content-Type", "application/json")
	var hungUp *net.OpError // a process that ends does not wait for answers
	if err := json.NewEncoder(w).Encode(o); err != nil && !errors.As(err, &hungUp) {
		p.t.Error(err)
	}
}

// await waits until a request for a path with that part was made.
func (p *plane) await(part string) {
	p.t.Helper()
	give := time.After(20 * time.Second)
	for {
		p.mu.Lock()
		found, news, all := p.asked(part), p.news, slices.Clone(p.paths)
		p.mu.Unlock()
		if found {
			return
		}
		select {
		case <-news:
		case <-give:
			p.t.Fatalf("no request for …%s… among %q", part, all)
		}
	}
}

func (p *plane) asked(part string) bool {
	return slices.ContainsFunc(p.paths, func(path string) bool { return strings.Contains(path, part) })
}

// kubeconfig writes a file that names the plane.
func (p *plane) kubeconfig() string {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), "kubeconfig")
	p.file = file
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}],
users: [{name: u, user: {}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`, p.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// parse reads a command line of a role, or of all.
func parse(t *testing.T, role string, args ...string) *Settings {
	t.Helper()
	s, err := tryParse(role, args...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tryParse(role string, args ...string) (*Settings, error) {
	s := &Settings{}
	fs := pflag.NewFlagSet(role, pflag.ContinueOnError)
	for _, r := range roleNames(role) {
		if err := s.flags(r, fs); err != nil {
			return nil, err
		}
	}
	return s, app.Parse(role, fs, args)
}

func roleNames(role string) []string {
	if role == All {
		return Names()
	}
	return []string{role}
}

// everyRole are the roles, and all of them in one.
func everyRole() []string { return append(Names(), All) }

// quiet are the arguments that keep a process from opening ports that another test may have.
func quiet(role string, more ...string) []string {
	switch role {
	case Scheduler:
		return append(more, "--listen-address=0")
	case Queue:
		return append(more, "--metrics-listen-address=0")
	case Admission, All:
		more = append(more, "--admission", "--webhook-addr=0")
		if role == All {
			more = append(more, "--nodescale")
		}
	}
	return append(more, "--metrics-bind-address=0", "--health-probe-bind-address=0")
}

// logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends.
func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// launch runs a process until the test ends, or until stop, which returns its error.
func launch(t *testing.T, role string, args ...string) (p *process, log *logText, stop func() error) {
	t.Helper()
	s := parse(t, role, args...)
	log = &logText{}
	logger, err := app.Logger(log, s.Log)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = newProcess(roleNames(role), s, "v1.2.3", logger); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(logr.NewContext(t.Context(), logger))
	done := make(chan error, 1)
	go func() { done <- p.run(ctx) }()
	stop = sync.OnceValue(func() error { end(); return <-done })
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("role %s ended with: %v", role, err)
		}
	})
	return p, log, stop
}
