package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/dialect/submit"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/see"
)

// TestWhatIfFlags: flags become changes, and what they bring about is told; what cannot be read is named with its flag and the rule.
func TestWhatIfFlags(t *testing.T) {
	t.Parallel()
	v := fixed(t)
	for name, c := range map[string]struct {
		see.Thought
		says string // in the answer, or in the error
	}{
		"limit":       {see.Thought{Limit: []string{"vision:gpu=16"}, Cordon: []string{"n1"}}, "set the gpu limit of queue vision to 16"},
		"nodes":       {see.Thought{AddNodes: 3, Like: "n1"}, "starts: team/wide (queue language): room for 3 pods instead of 0"},
		"delete":      {see.Thought{Delete: []string{"team/bert"}}, "delete gang team/bert"},
		"priority":    {see.Thought{Priority: []string{"vision=7"}}, "set the priority of queue vision to 7"},
		"weight":      {see.Thought{Weight: []string{"vision:gpu=2.5"}}, "set the gpu weight of queue vision to 2.5"},
		"unlimited":   {see.Thought{Quota: []string{"vision:memory=unlimited"}}, "set the memory quota of queue vision to unlimited"},
		"nothing":     {see.Thought{}, "nothing would be changed"},
		"no amount":   {see.Thought{Quota: []string{"vision:gpu=many"}}, `quota "vision:gpu=many" "many" is no amount`},
		"negative":    {see.Thought{Quota: []string{"vision:gpu=-1"}}, `"-1" is no amount`},
		"too much":    {see.Thought{Quota: []string{"vision:gpu=9e18"}}, "more than there can be"},
		"no resource": {see.Thought{Limit: []string{"vision:gold=1"}}, `"gold" is no resource`},
		"no queue":    {see.Thought{Limit: []string{"lost:gpu=1"}}, "queue lost: does not exist"},
		"form":        {see.Thought{Limit: []string{"vision"}}, `limit "vision" must be QUEUE:RESOURCE=AMOUNT`},
		"no like":     {see.Thought{AddNodes: 3}, "and like go together"},
		"no gang":     {see.Thought{Delete: []string{"team/none"}}, "gang team/none: does not exist"},
		"no name":     {see.Thought{Delete: []string{"none"}}, "must be NAMESPACE/NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := ""
			changes, err := c.Changes(v.snap)
			if err == nil {
				var o *see.Consequences
				if o, err = see.WhatIf(t.Context(), v.cycle, changes, see.Horizon{}); err == nil {
					said = o.Text()
				}
			}
			if err != nil {
				said = err.Error()
			}
			if !strings.Contains(said, c.says) {
				t.Errorf("%q is not in %s", c.says, said)
			}
		})
	}
}

// TestSubmit: manifests become gangs, each with its word, and the exit status says whether all start, wait, never would, or cannot be read.
func TestSubmit(t *testing.T) {
	t.Parallel()
	const job = `apiVersion: batch/v1
kind: Job
metadata: {name: fresh, labels: {kai.scheduler/queue: QUEUE}, annotations: {kai.scheduler/batch-min-member: "COUNT"}}
spec: {parallelism: COUNT, template: {spec: {schedulerName: kai-scheduler, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
`
	v := fixed(t)
	l := &looker{schedulerNames: []string{"kai-scheduler"}}
	for name, c := range map[string]struct {
		text string
		code int
		says string
	}{
		"starts": {strings.NewReplacer("COUNT", "1", "QUEUE", "language", "{nvidia.com/gpu: 1}", "{cpu: 1m}").Replace(job), 0, "team/fresh (queue language): starting; room for 1 of 1 pods"},
		"waits":  {strings.NewReplacer("COUNT", "16", "QUEUE", "language").Replace(job), 3, "team/fresh (queue language): "},
		"never":  {strings.NewReplacer("COUNT", "400", "QUEUE", "language").Replace(job), 4, "team/fresh (queue language): never"},
		"bad":    {strings.NewReplacer("COUNT", "many", "QUEUE", "language").Replace(job), 5, "Job team/fresh: "},
		"other":  {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n", 5, "is of a kind that is not simulated"},
	} {
		said := ""
		change, err := l.submitted(v, []byte(c.text), "team")
		if err == nil {
			var o *see.Consequences
			if o, err = see.WhatIf(t.Context(), v.cycle, []*explain.Change{change}, see.Horizon{Cycles: 5}); err != nil {
				t.Fatal(err)
			}
			said, err = o.Text(), ending(o.Submitted)
		} else {
			said = err.Error()
		}
		code := 0
		var ends interface{ ExitCode() int }
		if errors.As(err, &ends) {
			code = ends.ExitCode()
		}
		if code != c.code || !strings.Contains(said, c.says) {
			t.Errorf("%s: status %d, %v\n%s", name, code, err, said)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "job.yaml")
	if err := os.WriteFile(file, []byte("a: 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := readSubmitted([]string{file, "-"}, strings.NewReader("b: 2"))
	if err != nil || string(text) != "\n---\na: 1\n---\nb: 2" {
		t.Errorf("%q, %v", text, err)
	}
	var bad *BadManifests
	if _, err := readSubmitted([]string{filepath.Join(dir, "none")}, nil); !errors.As(err, &bad) || bad.ExitCode() != 5 {
		t.Errorf("no file: %v", err)
	}
	if text, err := readSubmitted([]string{"-"}, io.LimitReader(endless{}, 1<<30)); err != nil || len(text) != submit.MaxBytes+1 {
		t.Errorf("a long file: %d bytes, %v", len(text), err)
	}
}

// endless is a file without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
