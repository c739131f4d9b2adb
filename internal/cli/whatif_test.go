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
		thought
		says string // in the answer, or in the error
	}{
		"limit":       {thought{limit: []string{"vision:gpu=16"}, cordon: []string{"n1"}}, "set the gpu limit of queue vision to 16"},
		"nodes":       {thought{nodes: "3", like: "n1"}, "starts: team/wide (queue language): room for 3 pods instead of 0"},
		"delete":      {thought{gangs: []string{"team/bert"}}, "delete gang team/bert"},
		"priority":    {thought{priority: []string{"vision=7"}}, "set the priority of queue vision to 7"},
		"weight":      {thought{weight: []string{"vision:gpu=2.5"}}, "set the gpu weight of queue vision to 2.5"},
		"unlimited":   {thought{quota: []string{"vision:memory=unlimited"}}, "set the memory quota of queue vision to unlimited"},
		"nothing":     {thought{}, "nothing would be changed"},
		"no amount":   {thought{quota: []string{"vision:gpu=many"}}, `--quota "vision:gpu=many": "many" is no amount`},
		"negative":    {thought{quota: []string{"vision:gpu=-1"}}, `"-1" is no amount`},
		"too much":    {thought{quota: []string{"vision:gpu=9e18"}}, "more than there can be"},
		"no resource": {thought{limit: []string{"vision:gold=1"}}, `"gold" is no resource`},
		"no queue":    {thought{limit: []string{"lost:gpu=1"}}, "queue lost: does not exist"},
		"form":        {thought{limit: []string{"vision"}}, "it must be QUEUE:RESOURCE=AMOUNT"},
		"no like":     {thought{nodes: "3"}, "--add-nodes and --like go together"},
		"no gang":     {thought{gangs: []string{"team/none"}}, "gang team/none: does not exist"},
		"no name":     {thought{gangs: []string{"none"}}, "it must be NAMESPACE/NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := ""
			changes, err := c.changes(v.snap)
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
