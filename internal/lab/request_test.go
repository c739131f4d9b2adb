package lab

import (
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParseRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, path string
		want         Request
	}{
		{"GET", "/healthz", Request{}},
		{"GET", "/api/v1", Request{}},
		{"GET", "/api/v1/pods?watch=true", Request{Version: "v1", Resource: "pods", Watch: true}},
		{"POST", "/api/v1/namespaces", Request{Version: "v1", Resource: "namespaces"}},
		{"PUT", "/api/v1/namespaces/a/finalize", Request{Version: "v1", Resource: "namespaces", Name: "a", Subresource: "finalize"}},
		{"GET", "/api/v1/namespaces/a", Request{Version: "v1", Resource: "namespaces", Name: "a"}},
		{"POST", "/api/v1/namespaces/a/pods/p/binding", Request{Version: "v1", Resource: "pods", Namespace: "a", Name: "p", Subresource: "binding"}},
		{
			"PATCH", "/apis/scheduling.run.ai/v1alpha2/namespaces/a/bindrequests/b/status",
			Request{Group: "scheduling.run.ai", Version: "v1alpha2", Resource: "bindrequests", Namespace: "a", Name: "b", Subresource: "status"},
		},
		{"GET", "/apis/scheduling.run.ai/v2/queues/q", Request{Group: "scheduling.run.ai", Version: "v2", Resource: "queues", Name: "q"}},
	} {
		c.want.Method = c.method
		got := parseRequest(httptest.NewRequest(c.method, c.path, nil))
		if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Request{}, "URL")); diff != "" {
			t.Errorf("%s %s: %s", c.method, c.path, diff)
		}
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	binding := Request{Method: "POST", Version: "v1", Resource: "pods", Namespace: "a", Name: "p", Subresource: "binding"}
	for _, c := range []struct {
		match Match
		want  bool
	}{
		{Match{}, false},
		{Match{AnySubresource: true}, true},
		{Match{Subresource: "binding"}, true},
		{Match{Method: "POST", Resource: "pods", Subresource: "binding"}, true},
		{Match{Method: "PUT", Resource: "pods", Subresource: "binding"}, false},
		{Match{Resource: "pods"}, false},
		{Match{Group: "x", Resource: "pods", Subresource: "binding"}, false},
		{Match{Namespace: "b", Subresource: "binding"}, false},
		{Match{Name: "p", Subresource: "binding", Where: func(r Request) bool { return r.Version == "v1" }}, true},
		{Match{Name: "p", Subresource: "binding", Where: func(Request) bool { return false }}, false},
	} {
		if got := c.match.matches(binding); got != c.want {
			t.Errorf("%+v: %v, want %v", c.match, got, c.want)
		}
	}
}
