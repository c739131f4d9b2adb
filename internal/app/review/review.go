// Package review asks the API server who a caller is and whether he may do something: a TokenReview of the token that came with a request, and a
// SubjectAccessReview of what was asked for. It holds no rights of its own and decides nothing.
//
// Answers count for ten seconds, refusals too: a right that is taken away is gone then. What is remembered is bounded, and of tokens only
// their hashes are.
package review

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// lasts is for how long an answer counts.
	lasts = 10 * time.Second
	// most is how many answers are remembered.
	most = 4096
	// longest is the longest token that is asked about.
	longest = 16 << 10
)

// Refusals. Callers tell them by HTTP: 401 and 403; any other error is that nobody could be asked, 503.
var (
	// ErrWho says that a request does not say whose it is, or says so falsely.
	ErrWho = errors.New("no valid token: send a bearer token that the cluster's API server knows")
	// ErrMayNot says that the caller may not.
	ErrMayNot = errors.New("the right is missing")
)

// Status is the HTTP status of an error of this package.
func Status(err error) int {
	switch {
	case errors.Is(err, ErrWho):
		return http.StatusUnauthorized
	case errors.Is(err, ErrMayNot):
		return http.StatusForbidden
	}
	return http.StatusServiceUnavailable
}

// Reviewer asks. It is safe for concurrent use.
type Reviewer struct {
	// Client creates reviews; it needs no other right.
	Client client.Client
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	mu      sync.Mutex
	answers map[[sha256.Size]byte]answer
}

type answer struct {
	at   time.Time
	user authenticationv1.UserInfo
	err  error // ErrWho, ErrMayNot or nil
}

// Caller is whose request it is, by its bearer token. The error is ErrWho, or that nobody could be asked.
func (r *Reviewer) Caller(req *http.Request) (authenticationv1.UserInfo, error) {
	token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if token = strings.TrimSpace(token); !ok || token == "" || len(token) > longest {
		return authenticationv1.UserInfo{}, ErrWho
	}
	a, err := r.remembered("token\x00"+token, func() (answer, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		if err := r.Client.Create(req.Context(), review); err != nil {
			return answer{}, fmt.Errorf("ask whose a token is: %w", err)
		}
		if !review.Status.Authenticated {
			return answer{err: ErrWho}, nil
		}
		return answer{user: review.Status.User}, nil
	})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return a.user, a.err
}

// Path asks whether a user may use a verb on a path that is no resource, such as get on /cycle. The error wraps ErrMayNot and names the right,
// or says that nobody could be asked.
func (r *Reviewer) Path(ctx context.Context, user authenticationv1.UserInfo, verb, path string) error {
	return r.may(ctx, user, verb+" on the path "+path, authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path}})
}

// Resource asks whether a user may use a verb on a resource of a group; of all namespaces if the namespace is "". Errors as Path's.
func (r *Reviewer) Resource(ctx context.Context, user authenticationv1.UserInfo, verb, group, resource, namespace string) error {
	where := "of the whole cluster"
	if namespace != "" {
		where = "of namespace " + namespace
	}
	return r.may(ctx, user, fmt.Sprintf("%s %s.%s %s", verb, resource, group, where), authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Namespace: namespace},
	})
}

func (r *Reviewer) may(ctx context.Context, user authenticationv1.UserInfo, right string, spec authorizationv1.SubjectAccessReviewSpec) error {
	spec.User, spec.UID, spec.Groups = user.Username, user.UID, user.Groups
	if len(user.Extra) > 0 {
		spec.Extra = map[string]authorizationv1.ExtraValue{}
		for k, v := range user.Extra { // order: into a map
			spec.Extra[k] = authorizationv1.ExtraValue(v)
		}
	}
	a, err := r.remembered("may\x00"+right+"\x00"+fmt.Sprintf("%q %q %q %q", spec.User, spec.UID, spec.Groups, spec.Extra), func() (answer, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		if err := r.Client.Create(ctx, review); err != nil {
			return answer{}, fmt.Errorf("ask whether %s may %s: %w", spec.User, right, err)
		}
		if !review.Status.Allowed || review.Status.Denied {
			return answer{err: fmt.Errorf("%w: %s may not %s", ErrMayNot, spec.User, right)}, nil
		}
		return answer{}, nil
	})
	if err != nil {
		return err
	}
	return a.err
}

// remembered answers a question from memory while that counts, and asks otherwise. An error of asking is not remembered.
func (r *Reviewer) remembered(question string, ask func() (answer, error)) (answer, error) {
	now := time.Now
	if r.Now != nil {
		now = r.Now
	}
	key, at := sha256.Sum256([]byte(question)), now()
	r.mu.Lock()
	a, ok := r.answers[key]
	r.mu.Unlock()
	if ok && at.Sub(a.at) < lasts && !at.Before(a.at) {
		return a, nil
	}
	a, err := ask()
	if err != nil {
		return a, err
	}
	a.at = at
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers == nil || len(r.answers) >= most { // whoever is forgotten is asked about again
		r.answers = map[[sha256.Size]byte]answer{}
	}
	r.answers[key] = a
	return a, nil
}
