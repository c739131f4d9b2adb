package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// server has a tool for each thing that can become of a call.
func server() *Server {
	tool := func(name string, f func(context.Context, json.RawMessage) (any, error)) Tool {
		return Tool{Name: name, Title: name, Description: "for tests", Input: map[string]any{"type": "object"}, Call: f}
	}
	return &Server{Name: "muster", Version: "v1", Instructions: "ask", Tools: []Tool{
		tool("echo", func(_ context.Context, a json.RawMessage) (any, error) { return map[string]any{"got": a}, nil }),
		tool("list", func(context.Context, json.RawMessage) (any, error) { return []int{1}, nil }),
		tool("refuse", func(context.Context, json.RawMessage) (any, error) {
			return nil, fmt.Errorf("asked: %w", &Refusal{Message: "no gang x", Field: "name"})
		}),
		tool("fail", func(context.Context, json.RawMessage) (any, error) { return nil, errors.New("no cluster") }),
		tool("panic", func(context.Context, json.RawMessage) (any, error) { panic("oh") }),
		tool("long", func(context.Context, json.RawMessage) (any, error) { return strings.Repeat("x", MaxAnswer), nil }),
		tool("wait", func(ctx context.Context, _ json.RawMessage) (any, error) { <-ctx.Done(); return nil, ctx.Err() }),
	}}
}

// TestServe is the protocol, message by message.
func TestServe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{
			"initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"tools":{}},"instructions":"ask","protocolVersion":"2025-03-26","serverInfo":{"name":"muster","version":"v1"}}}`,
		},
		{"a version of the future", `{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2099-01-01"}}`, `"protocolVersion":"2025-06-18"`},
		{"initialized", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""},
		{"ping", `{"jsonrpc":"2.0","id":7,"method":"ping"}`, `{"jsonrpc":"2.0","id":7,"result":{}}`},
		{"list", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"annotations":{"destructiveHint":false,"idempotentHint":true,"openWorldHint":false,"readOnlyHint":true,"title":"echo"},"description":"for tests","inputSchema":{"type":"object"},"name":"echo","title":"echo"}`},
		{
			"call", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":1}}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"{\"got\":{\"a\":1}}","type":"text"}],"isError":false,"structuredContent":{"got":{"a":1}}}}`,
		},
		{"no arguments", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`, `"structuredContent":{"got":{}}`},
		{"no object", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list"}}`, `"result":{"content":[{"text":"[1]","type":"text"}],"isError":false}}`},
		{"refused", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"refuse"}}`, `"isError":true,"structuredContent":{"kind":"Refusal","message":"no gang x","field":"name"}`},
		{"failed", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fail"}}`, `"isError":true,"structuredContent":{"kind":"Refusal","message":"no cluster"}`},
		{"panic", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"panic"}}`, `a defect: the tool panic panics: oh`},
		{"long", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"long"}}`, `the answer has 262146 bytes, and at most 262144 are told`},
		{"no tool", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}}`, `"error":{"code":-32602,"message":"there is no tool \"rm\""}`},
		{"no params", `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, `"code":-32602`},
		{"no method", `{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"there is no method \"resources/list\""}}`},
		{"no JSON", `{`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"a message must be JSON"}}`},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `"code":-32600`},
		{"another protocol", `{"id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600`},
		{"an id that is none", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, `"id":null,"error":{"code":-32600`},
		{"an answer", `{"jsonrpc":"2.0","id":1,"result":{}}`, ""},
		{"an empty line", "", ""},
		{"a long line", strings.Repeat(" ", MaxLine+1), `"message":"a message has more than`},
		{"cancelled", `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"wait"}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`, `context canceled"`},
		{"ping meanwhile", `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"wait"}}` + "\n" + `{"jsonrpc":"2.0","id":10,"method":"ping"}` + "\n" +
			`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"wait"}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`, "a call of this id is under way"},
	} {
		var out bytes.Buffer
		if err := server().Serve(t.Context(), strings.NewReader(c.in+"\n"), &out); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := out.String(); !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestTooMany: more calls than wait are told to come again, and those that wait are answered.
func TestTooMany(t *testing.T) {
	t.Parallel()
	var in strings.Builder
	const n = maxCalls + 10
	for i := range n {
		fmt.Fprintf(&in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wait"}}`+"\n", i)
	}
	for i := range n {
		fmt.Fprintf(&in, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`+"\n", i)
	}
	var out bytes.Buffer
	if err := server().Serve(t.Context(), strings.NewReader(in.String()), &out); err != nil {
		t.Fatal(err)
	}
	answered, told := strings.Count(out.String(), `"isError":true`), strings.Count(out.String(), `"code":-32000`)
	if answered+told != n || answered < maxCalls || told < 9 {
		t.Errorf("%d are answered, %d told to come again", answered, told)
	}
}

// TestNobodyListens: a client that has gone ends the service, with an error; so does a stream that breaks.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	in := strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n", 3)
	r, w := io.Pipe()
	_ = r.Close()
	if err := server().Serve(t.Context(), strings.NewReader(in), w); err == nil || !strings.Contains(err.Error(), "write an answer") {
		t.Errorf("%v", err)
	}
	if err := server().Serve(t.Context(), io.MultiReader(strings.NewReader(in), broken{}), io.Discard); err == nil || !strings.Contains(err.Error(), "read a message") {
		t.Errorf("%v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken") }

// FuzzServe: whatever comes, nothing panics, every line that goes out is an answer, and there are no more of them than lines came in.
func FuzzServe(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"echo","arguments":{"a":[1,2]}}}`, `[]`, `{"id":null}`, "{\n}",
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":[]}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := server()
		s.Tools = s.Tools[:6] // none that waits for ever
		var out bytes.Buffer
		if err := s.Serve(t.Context(), bytes.NewReader(text), &out); err != nil {
			t.Fatal(err)
		}
		lines := 0
		for line := range bytes.Lines(out.Bytes()) {
			lines++
			var a struct {
				Version string          `json:"jsonrpc"`
				ID      json.RawMessage `json:"id"`
				Result  map[string]any  `json:"result"`
				Error   *failure        `json:"error"`
			}
			if err := json.Unmarshal(line, &a); err != nil || a.Version != "2.0" || (a.Result == nil) == (a.Error == nil) || len(a.ID) == 0 {
				t.Errorf("%s: %v", line, err)
			}
		}
		if came := bytes.Count(text, []byte("\n")) + 1; lines > came {
			t.Errorf("%d answers to %d lines", lines, came)
		}
	})
}
