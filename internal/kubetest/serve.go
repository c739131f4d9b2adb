package kubetest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/version"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// request is one that is about objects.
type request struct {
	*http.Request
	call  Call
	kind  *Kind
	table *table
	key   types.NamespacedName // the object's, or its namespace alone
	body  []byte
}

// ServeHTTP answers as an API server does. One that serves a network knows processes by the first word of their User-Agent, and lets
// none crash.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	steps := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if s.discovery(w, steps) {
		return
	}
	in, err := s.parse(r, steps)
	if errors.Is(err, errNoPath) {
		http.NotFound(w, r)
		return
	}
	if err != nil {
		fail(w, err)
		return
	}
	p, _ := r.Context().Value(processKey{}).(*Process)
	in.call.Process, _, _ = strings.Cut(r.UserAgent(), "/")
	crashAfter := false
	if p != nil {
		in.call.Process = p.name
		if writes(r.Method) {
			crash := false
			if in.call.Write, crash, crashAfter = p.count(); crash {
				p.Kill()
				panic(http.ErrAbortHandler)
			}
		}
	}
	s.mu.Lock()
	if writes(r.Method) {
		s.writes = append(s.writes, in.call)
	}
	outcome := s.judge(in.call)
	s.mu.Unlock()
	if outcome.Delay > 0 {
		wait(r.Context(), outcome.Delay)
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler)
		}
	}
	if (outcome.Err != nil || outcome.Hang) && !outcome.Done {
		outcome.end(w, r)
		return
	}
	if in.call.Verb == "watch" {
		s.watch(w, in)
		return
	}
	answer, code, err := s.do(in)
	switch {
	case crashAfter:
		p.Kill()
		panic(http.ErrAbortHandler)
	case outcome.Err != nil || outcome.Hang:
		outcome.end(w, r)
	case err != nil:
		fail(w, err)
	default:
		send(w, code, answer)
	}
}

// end is how a call ends that gets no answer of its own.
func (o Outcome) end(w http.ResponseWriter, r *http.Request) {
	if o.Hang {
		<-r.Context().Done()
	}
	if o.Hang || statusOf(o.Err) == nil {
		panic(http.ErrAbortHandler)
	}
	fail(w, o.Err)
}

// do serves what is no watch, one at a time.
func (s *Server) do(in *request) (answer any, code int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch in.call.Verb {
	case "get":
		have := in.table.objects[in.key]
		if have == nil {
			return nil, 0, in.notFound()
		}
		return in.form()(have), http.StatusOK, nil
	case "list":
		answer, err = s.list(in)
		return answer, http.StatusOK, err
	case "create":
		switch in.call.Subresource {
		case "binding":
			answer, err = s.bind(in)
		case "eviction":
			answer, err = s.evict(in)
		default:
			answer, err = s.create(in)
		}
		return answer, http.StatusCreated, err
	case "update", "patch", "apply":
		return s.change(in)
	case "delete":
		answer, err = s.remove(in)
		return answer, http.StatusOK, err
	}
	return nil, 0, apierrors.NewMethodNotSupported(in.kind.groupResource(), in.call.Verb)
}

// errNoPath says that nothing is served at a path.
var errNoPath = errors.New("404 page not found")

// parse says what a request is about.
func (s *Server) parse(r *http.Request, steps []string) (*request, error) {
	var gv schema.GroupVersion
	switch {
	case len(steps) > 2 && steps[0] == "api":
		gv, steps = schema.GroupVersion{Version: steps[1]}, steps[2:]
	case len(steps) > 3 && steps[0] == "apis":
		gv, steps = schema.GroupVersion{Group: steps[1], Version: steps[2]}, steps[3:]
	default:
		return nil, errNoPath
	}
	in := &request{Request: r}
	if steps[0] == "namespaces" && len(steps) > 2 && steps[2] != "status" && steps[2] != "finalize" {
		in.key.Namespace, steps = steps[1], steps[2:]
	}
	in.table = s.tables[schema.GroupResource{Group: gv.Group, Resource: steps[0]}]
	for _, k := range s.served() {
		if k.GroupVersion() == gv && k.Plural == steps[0] {
			in.kind = &k
		}
	}
	if in.kind == nil || len(steps) > 3 {
		return nil, errNoPath
	}
	if len(steps) > 1 {
		in.key.Name = steps[1]
	}
	if len(steps) > 2 {
		in.call.Subresource = steps[2]
		pod := in.kind.GroupVersionKind == schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
		if !(steps[2] == "status" && in.kind.Status || pod && (steps[2] == "binding" || steps[2] == "eviction")) {
			return nil, errNoPath
		}
	}
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && (query.Get("watch") == "true" || query.Get("watch") == "1"):
		in.call.Verb = "watch"
	case r.Method == http.MethodGet && in.key.Name == "":
		in.call.Verb = "list"
	case r.Method == http.MethodGet:
		in.call.Verb = "get"
	case r.Method == http.MethodPost && (in.key.Name == "" || in.call.Subresource != ""):
		in.call.Verb = "create"
	case r.Method == http.MethodPut && in.key.Name != "":
		in.call.Verb = "update"
	case r.Method == http.MethodPatch && in.key.Name != "":
		in.call.Verb = "patch"
		if types.PatchType(r.Header.Get("Content-Type")) == types.ApplyYAMLPatchType {
			in.call.Verb = "apply"
		}
	case r.Method == http.MethodDelete && in.key.Name != "":
		in.call.Verb = "delete"
	default:
		return nil, apierrors.NewMethodNotSupported(in.kind.groupResource(), strings.ToLower(r.Method))
	}
	var err error
	if in.body, err = io.ReadAll(r.Body); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	in.call.Kind, in.call.Namespace, in.call.Name, in.call.Body, in.call.At = in.kind.Kind, in.key.Namespace, in.key.Name, in.body, time.Now()
	if in.call.Verb == "create" && in.key.Name == "" {
		u, err := in.object()
		if err != nil {
			return nil, err
		}
		in.call.Name = u.GetName()
		if in.call.Name == "" {
			in.call.Name = u.GetGenerateName() + "*"
		}
	}
	return in, nil
}

// object is the one that was sent.
func (in *request) object() (object, error) {
	body := in.body
	if strings.HasPrefix(in.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		typed, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if body, err = json.Marshal(typed); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal(body, &u.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return u, nil
}

func (in *request) notFound() error {
	return apierrors.NewNotFound(in.kind.groupResource(), in.key.Name)
}

// form is what the client wants of objects: all, or their metadata alone.
func (in *request) form() func(object) map[string]any {
	if !strings.Contains(in.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return in.whole
	}
	return func(u object) map[string]any {
		return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": u.Object["metadata"]}
	}
}

// whole is an object in the version that the request is about.
func (in *request) whole(u object) map[string]any {
	if in.kind.GroupVersion().String() == u.GetAPIVersion() {
		return u.Object
	}
	other := u.DeepCopy()
	other.SetGroupVersionKind(in.kind.GroupVersionKind)
	return other.Object
}

// discovery answers what is about no object; false if the request is about one.
func (s *Server) discovery(w http.ResponseWriter, steps []string) bool {
	var answer any
	switch path := strings.Join(steps, "/"); {
	case path == "version":
		answer = &version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.0"}
	case path == "api":
		answer = &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case path == "apis":
		answer = s.groups()
	case steps[0] == "api" && len(steps) == 2, steps[0] == "apis" && len(steps) == 3:
		gv, err := schema.ParseGroupVersion(strings.Join(steps[1:], "/"))
		list := s.resources(gv)
		if err != nil || list == nil {
			http.NotFound(w, nil)
			return true
		}
		answer = list
	default:
		return false
	}
	send(w, http.StatusOK, answer)
	return true
}

func send(w http.ResponseWriter, code int, answer any) {
	body, err := json.Marshal(answer)
	if err != nil {
		panic(fmt.Sprintf("kubetest: %v", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // who has gone needs no answer
}

func fail(w http.ResponseWriter, err error) {
	answered := statusOf(err)
	if answered == nil {
		answered = apierrors.NewInternalError(err)
	}
	status := answered.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	send(w, int(status.Code), &status)
}
