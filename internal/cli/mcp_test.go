package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/see"
)

// TestTools: each tool answers the JSON of the role ui over a pipe, and what has no answer is a refusal with its field.
func TestTools(t *testing.T) {
	t.Parallel()
	v := fixed(t)
	l := &looker{schedulerNames: []string{"kai-scheduler"}}
	ask := answers(&looks{look: func(context.Context) (*see.Cycle, error) { return v.cycle, nil }}, l)
	for _, c := range []struct {
		tool, arguments string
		no              bool
		says            string
	}{
		{"explain", `{"name":"train"}`, false, `"kind":"Explanation"|"gang":"train"|"remedies":`},
		{"explain", `{"name":"trian"}`, true, "did you mean train?"},
		{"explain", `{}`, true, `"field":"name"`},
		{"explain", `{"name":"train","more":1}`, true, `"field":"more"|is no argument of explain`},
		{"explain", `{"name":7}`, true, `"field":"arguments"`},
		{"explain", `[]`, true, "arguments must be an object"},
		{"explain", `{"name":"train","timeline":true,"inLine":true}`, false, `"word":`},
		{"gangs", `{"namespace":"team"}`, false, `"kind":"GangList"|"gang":"bert"`},
		{"gangs", `{"namespace":"A b"}`, true, `"field":"namespace"`},
		{"queues", `{}`, false, `"kind":"QueueList"|"name":"vision"`},
		{"status", `{}`, false, `"kind":"Glance"|"word":"runs"|"example":"team/bert"`},
		{"what_if", `{"limit":["vision:gpu=32"],"cycles":5}`, false, `"kind":"Consequences"`},
		{"what_if", `{"manifests":"apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {kai.scheduler/queue: vision}}\nspec: {schedulerName: kai-scheduler, containers: [{name: c}]}"}`, false, `"submitted":[{"namespace":"team"`},
		{"what_if", `{}`, true, "nothing would be changed"},
		{"decisions", `{"since":"3d"}`, true, "no journal is kept here"},
	} {
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetIn(strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, c.tool, c.arguments)))
		cmd.SetOut(&out)
		err := serveTools(t.Context(), cmd, "v1", ask, func(ns string) (string, error) {
			if ns == "" {
				ns = "team"
			}
			return ns, nil
		})
		var got struct {
			Result struct {
				IsError bool
				Content []struct{ Text string }
			}
		}
		if err != nil || json.Unmarshal(out.Bytes(), &got) != nil || len(got.Result.Content) != 1 || got.Result.IsError != c.no {
			t.Errorf("%s %s: %v %s", c.tool, c.arguments, err, out.String())
			continue
		}
		for _, word := range strings.Split(c.says, "|") {
			if !strings.Contains(got.Result.Content[0].Text, word) {
				t.Errorf("%s %s does not say %q: %s", c.tool, c.arguments, word, got.Result.Content[0].Text)
			}
		}
	}
	for _, tool := range tools(ask, nil) { // models read the schema
		text, err := json.Marshal(tool.Input)
		if err != nil || tool.Description == "" || !strings.Contains(string(text), `"additionalProperties":false`) {
			t.Errorf("%s: %s, %v", tool.Name, text, err)
		}
	}
}
