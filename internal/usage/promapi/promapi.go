// Package promapi reads the history of usage from a Prometheus server, through its HTTP API.
package promapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/muster-scheduler/muster/internal/usage"
)

// Server is a Prometheus server as a source of usage. It is not safe for concurrent use.
type Server struct {
	api    v1.API
	reader *usage.Reader
	first  string // the expression of the first dimension's capacity, for an error
	closer func()
}

// New returns the server at an address (a URL; a user and password in it are sent along). Nothing is asked of it yet.
func New(c usage.Config, address string) (*Server, error) {
	// Not the process's default transport, so that Close can end its idle connections.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	client, err := api.NewClient(api.Config{Address: address, RoundTripper: transport})
	if err != nil {
		return nil, errors.New("make a client for the Prometheus server: its address is no URL") // which may carry a password
	}
	s := &Server{api: v1.NewAPI(client), first: c.Dimensions[0].Had, closer: transport.CloseIdleConnections}
	s.reader = usage.NewReader(c, s.ask)
	return s, nil
}

// Fetch implements usage.Source. That the server knows nothing of the cluster's capacity is an error.
func (s *Server) Fetch(ctx context.Context, now time.Time) (usage.Shares, error) {
	shares, err := s.reader.Fetch(ctx, now)
	if err != nil {
		return nil, err
	}
	if shares == nil {
		return nil, fmt.Errorf("the Prometheus server has no sample of what the cluster has (%s, nor of the other dimensions): does it scrape kube-state-metrics?", s.first)
	}
	return shares, nil
}

// Close ends idle connections.
func (s *Server) Close() error {
	s.closer()
	return nil
}

func (s *Server) ask(ctx context.Context, query string, at time.Time) (model.Vector, error) {
	value, warnings, err := s.api.Query(ctx, query, at)
	if err != nil {
		return nil, err
	}
	if len(warnings) > 0 {
		logr.FromContextOrDiscard(ctx).V(1).Info("the Prometheus server warns", "query", query, "warnings", warnings)
	}
	vector, ok := value.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("the answer is a %s, not a vector", value.Type())
	}
	return vector, nil
}
