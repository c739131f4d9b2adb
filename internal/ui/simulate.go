package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/muster-scheduler/muster/internal/see"
)

const (
	// verbSimulate is the verb on queues.scheduling.run.ai that what-ifs take. It is no verb of the API server's own: nobody has it who was not given it, or everything.
	verbSimulate = "simulate"
	// maxBody bounds a what-if.
	maxBody = 64 << 10
)

// Proposal is a what-if: what somebody would do, and how many decisions are looked at (0: one). Field names are stable.
type Proposal struct {
	see.Thought
	Cycles int    `json:"cycles,omitempty"`
	Shard  string `json:"shard,omitempty"`
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

func wrongNumber(field, text string) error {
	return &see.Refusal{Field: field, Rule: fmt.Sprintf("is %.40q; it must be a number", text)}
}
