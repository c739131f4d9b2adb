package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/muster-scheduler/muster/internal/app/review"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// Reviewer says whose a request is and what he may; package review asks the API server.
type Reviewer interface {
	Caller(*http.Request) (authenticationv1.UserInfo, error)
	Resource(ctx context.Context, user authenticationv1.UserInfo, verb, group, resource, namespace string) error
}

// groups are the API groups of the PodGroups of each face; a tree of them is read by whoever may read them. A gang of a face that is not there is nobody's to read.
var groups = map[string][]string{
	"kai": {"scheduling.run.ai"}, "volcano": {"scheduling.volcano.sh"}, "upstream": {"scheduling.k8s.io"}, "composite": {"scheduling.k8s.io"},
	"kubebatch": {"scheduling.incubator.k8s.io", "scheduling.sigs.dev"}, // a gang may be of either: whoever may get those of both
}

const (
	groupWork = "scheduling.run.ai"
	// maxNamespaces is about how many namespaces is asked for one answer; of what is in others no name is told.
	maxNamespaces = 64
)

// viewer is who asks one question, and what is known of his rights. It is not safe for concurrent use.
type viewer struct {
	ctx    context.Context
	user   authenticationv1.UserInfo
	review Reviewer
	known  map[string]error
	asked  int
	broken error // nobody could be asked; the answer must not go out
}

// gangs says whether the viewer may get the PodGroups of a face in a namespace: nil, an error that wraps review.ErrMayNot, or that nobody could be asked.
func (v *viewer) gangs(face, namespace string) error {
	of, ok := groups[face]
	if !ok {
		return review.ErrMayNot
	}
	for _, group := range of {
		err := v.ask(group, "")
		if errors.Is(err, review.ErrMayNot) {
			err = v.ask(group, namespace)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *viewer) ask(group, namespace string) error {
	key := group + "/" + namespace
	if err, ok := v.known[key]; ok {
		return err
	}
	if v.asked++; v.asked > maxNamespaces {
		return review.ErrMayNot
	}
	err := v.review.Resource(v.ctx, v.user, "get", group, "podgroups", namespace)
	if err != nil && !errors.Is(err, review.ErrMayNot) && v.broken == nil {
		v.broken = err
	}
	v.known[key] = err
	return err
}

// may is the viewer's scope: whether names of a namespace may be told him.
func (v *viewer) may(namespace string) bool { return v.gangs("kai", namespace) == nil }

// gang says whether he may read about a gang.
func (v *viewer) gang(k cluster.Key) bool {
	return v.may(k.Namespace) && v.gangs(k.Face, k.Namespace) == nil
}

// list says whether he may list objects of the whole cluster.
func (v *viewer) list(group, resource string) error {
	return v.review.Resource(v.ctx, v.user, "list", group, resource, "")
}

// reviewed is the error of a review: a right that is missing, or that nobody could be asked.
func reviewed(err error) error {
	if errors.Is(err, review.ErrMayNot) {
		return err
	}
	return fmt.Errorf("%w: %w", errReview, err)
}
