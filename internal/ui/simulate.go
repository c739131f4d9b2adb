package ui

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/submit"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/see"
)

const (
	// verbSimulate is the verb on queues.scheduling.run.ai that what-ifs take. It is no verb of the API server's own: nobody has it who was not given it, or everything.
	verbSimulate = "simulate"
	// maxBody bounds a what-if as JSON, which has no more than twice the manifests' bytes, maxForm one that is a form.
	maxBody, maxForm = 2*submit.MaxBytes + 64<<10, 1 << 20
	// bodyWithin is how long a body may take to come once it is read.
	bodyWithin = 10 * time.Second
)

// Proposal is a what-if: what somebody would do, and how many decisions are looked at (0: one). Field names are stable.
type Proposal struct {
	see.Thought
	Cycles int    `json:"cycles,omitempty"`
	Shard  string `json:"shard,omitempty"`
	// Manifests are submitted as they would be applied, at most 10 MiB; Namespace is that of those which name none.
	Manifests string `json:"manifests,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// Submits says for which scheduler manifests are read: by which values of spec.schedulerName pods are its, none for KAI's, and by which label shards are told apart, "" for KAI's. It returns the Answerer.
func (a *Answerer) Submits(schedulerNames []string, shardLabel string) *Answerer {
	a.schedulerNames, a.shardLabel = schedulerNames, cmp.Or(shardLabel, keys.NodePoolLabel)
	return a
}

// slow is a body that has its time from when it is read: whoever sent it may have waited for his turn before.
type slow struct {
	io.ReadCloser
	from *http.ResponseController
}

func (s *slow) Read(p []byte) (int, error) {
	if s.from != nil {
		_ = s.from.SetReadDeadline(time.Now().Add(bodyWithin)) // where that cannot be said, the server's own holds
		s.from = nil
	}
	return s.ReadCloser.Read(p)
}

// bounded bounds the body of a request, in bytes and time.
func bounded(w http.ResponseWriter, r *http.Request, most int64) {
	r.Body = &slow{http.MaxBytesReader(w, r.Body, most), http.NewResponseController(w)}
}

// readBody reads the body of a question, which must be JSON, and says so: a form of another site cannot.
func readBody(r *http.Request, into any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &see.Refusal{Field: "Content-Type", Rule: "must be application/json"}
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return &see.Refusal{Field: "body", Rule: "cannot be read"}
	}
	if len(text) > maxBody {
		return &see.Refusal{Field: "body", Rule: fmt.Sprintf("is longer than %d bytes", maxBody)}
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return &see.Refusal{Field: "body", Rule: fmt.Sprintf("is no what-if: %.200s", err)}
	}
	return nil
}

// simulated says what changes would do, within the viewer's scope. It takes the right to simulate queues; gangs that he may not read he cannot have deleted.
func (a *Answerer) simulated(q *question, s *Proposal) (*see.Consequences, error) {
	if err := q.viewer.review.Resource(q.Context(), q.viewer.user, verbSimulate, groupWork, "queues", ""); err != nil {
		return nil, err
	}
	for _, g := range s.Delete {
		if ns, _, ok := strings.Cut(g, "/"); ok {
			if err := q.viewer.gangs("kai", ns); err != nil {
				return nil, err // before anything is looked for
			}
		}
	}
	c, complete, err := a.look(q.Context(), s.Shard)
	if err != nil {
		return nil, err
	}
	run, err := c.Look(q.Context())
	if err != nil {
		return nil, err
	}
	for i, g := range s.Delete { // as people call them
		if ns, name, ok := strings.Cut(g, "/"); ok {
			key, err := c.Find(q.Context(), ns, name)
			if err != nil {
				return nil, err
			}
			if err := q.viewer.gangs(key.Face, ns); err != nil {
				return nil, err
			}
			s.Delete[i] = ns + "/" + key.Name
		}
	}
	if s.Manifests != "" {
		if s.Submit, err = a.submitted(q, s, run.Snapshot()); err != nil {
			return nil, err
		}
	}
	changes, err := s.Changes(run.Snapshot())
	if err != nil {
		return nil, err
	}
	o, err := see.WhatIf(q.Context(), c, changes, see.Horizon{Cycles: s.Cycles})
	if err != nil {
		return nil, err
	}
	o = o.Within(c.Scope(q.viewer.may))
	complete(&o.Cycle)
	return o, nil
}

// submitted is the change that manifests are. Into a namespace of which the viewer may not get the podgroups nothing is submitted: he would be told of them.
func (a *Answerer) submitted(q *question, s *Proposal, snap *cluster.Snapshot) (*explain.Change, error) {
	sub, err := submit.Read([]byte(s.Manifests), snap, submit.Options{
		Namespace: s.Namespace, SchedulerNames: a.schedulerNames, Partition: kai.Partition{Key: a.shardLabel, Value: s.Shard},
		Allow: func(ns string) error { return q.viewer.gangs("kai", ns) },
	})
	var no *submit.Refusal
	if errors.As(err, &no) {
		return nil, &see.Refusal{Object: no.Object, Field: no.Field, Rule: no.Rule}
	}
	if err != nil {
		return nil, err
	}
	return explain.NewGangs(sub.Gangs, sub.Pods, sub.Events), nil
}

func wrongNumber(field, text string) error {
	return &see.Refusal{Field: field, Rule: fmt.Sprintf("is %.40q; it must be a number", text)}
}
