package cli

import (
	"strings"
	"testing"

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
