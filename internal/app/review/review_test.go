package review

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// authority answers reviews: the token jane's is Jane's, who may get /cycle, and get podgroups of namespace team.
type authority struct {
	client.Client
	asked []string
	away  bool
}

func (a *authority) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	if a.away {
		return errors.New("nobody there")
	}
	switch o := o.(type) {
	case *authenticationv1.TokenReview:
		a.asked = append(a.asked, "token "+o.Spec.Token)
		if o.Status.Authenticated = o.Spec.Token == "janes"; o.Status.Authenticated {
			o.Status.User = authenticationv1.UserInfo{Username: "jane", Groups: []string{"team"}}
		}
	case *authorizationv1.SubjectAccessReview:
		s := &o.Spec
		if p := s.NonResourceAttributes; p != nil {
			a.asked = append(a.asked, s.User+" "+p.Verb+" "+p.Path)
			o.Status.Allowed = s.User == "jane" && p.Verb == "get" && p.Path == "/cycle"
		} else {
			r := s.ResourceAttributes
			a.asked = append(a.asked, s.User+" "+r.Verb+" "+r.Resource+"."+r.Group+" "+r.Namespace)
			o.Status.Allowed = s.User == "jane" && r.Resource == "podgroups" && r.Group == "scheduling.run.ai" && r.Namespace == "team"
		}
	}
	return nil
}

func request(header string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	return r
}

// TestReview: who has no good token is nobody; what a caller may is the API server's word, asked for by group and resource, and counts for ten
// seconds; that nobody could be asked is no refusal, and is not remembered.
func TestReview(t *testing.T) {
	t.Parallel()
	a, now := &authority{}, time.Unix(1000, 0)
	r := &Reviewer{Client: a, Now: func() time.Time { return now }}
	for _, header := range []string{"", "Basic janes", "Bearer ", "Bearer foes", "Bearer " + strings.Repeat("x", 17<<10)} {
		if _, err := r.Caller(request(header)); !errors.Is(err, ErrWho) || Status(err) != http.StatusUnauthorized {
			t.Errorf("%.20q: %v", header, err)
		}
	}
	if len(a.asked) != 1 {
		t.Errorf("asked %q", a.asked)
	}
	a.away = true
	if _, err := r.Caller(request("Bearer janes")); err == nil || Status(err) != http.StatusServiceUnavailable {
		t.Errorf("nobody could be asked: %v", err)
	}
	a.away = false
	jane, err := r.Caller(request("Bearer janes"))
	if err != nil || jane.Username != "jane" {
		t.Fatalf("%+v, %v", jane, err)
	}
	for range 3 {
		if err := r.Path(t.Context(), jane, "get", "/cycle"); err != nil {
			t.Error(err)
		}
		if err := r.Resource(t.Context(), jane, "get", "scheduling.run.ai", "podgroups", "team"); err != nil {
			t.Error(err)
		}
		err := r.Resource(t.Context(), jane, "get", "scheduling.run.ai", "podgroups", "other")
		if !errors.Is(err, ErrMayNot) || Status(err) != http.StatusForbidden || !strings.Contains(err.Error(), "jane may not get podgroups.scheduling.run.ai of namespace other") {
			t.Error(err)
		}
	}
	if len(a.asked) != 5 {
		t.Errorf("asked %q", a.asked)
	}
	now = now.Add(lasts)
	if err := r.Path(t.Context(), jane, "get", "/cycle"); err != nil || len(a.asked) != 6 {
		t.Errorf("after ten seconds: %v, asked %q", err, a.asked)
	}
	now = now.Add(-time.Hour) // a clock that is set back
	if err := r.Path(t.Context(), jane, "get", "/cycle"); err != nil || len(a.asked) != 7 {
		t.Errorf("%v, asked %q", err, a.asked)
	}
}
