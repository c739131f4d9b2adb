package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// Bounds of what a client can make the server hold.
const (
	MaxLine   = 24 << 20  // bytes of a message: a what-if may bring 10 MiB of manifests
	MaxAnswer = 256 << 10 // bytes of a tool's answer
	maxCalls  = 16        // calls that wait
)

// versions are those of the protocol that are spoken, the latest first. What differs between them this server does not use.
var versions = []string{"2025-06-18", "2025-03-26", "2024-11-05"}

// Tool is what clients may call. It must not change anything.
type Tool struct {
	Name, Title, Description string
	// Input is the JSON Schema of its arguments, an object.
	Input map[string]any
	// Call answers. What it returns is marshalled; what cannot be answered is a *Refusal, or another error, of which clients are told the text.
	Call func(ctx context.Context, arguments json.RawMessage) (any, error)
}

// Refusal is a question that has no answer, as clients are told of it. Field names are stable.
type Refusal struct {
	Kind    string `json:"kind"` // Refusal
	Message string `json:"message"`
	// Object, Field and Rule say what of the question is wrong, if it is the question.
	Object string `json:"object,omitempty"`
	Field  string `json:"field,omitempty"`
	Rule   string `json:"rule,omitempty"`
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// Server serves tools. Set its fields, then call Serve.
type Server struct {
	Name, Version string
	// Instructions tell a model what the tools are for.
	Instructions string
	Tools        []Tool
}

// The codes of JSON-RPC.
const (
	noJSON     = -32700
	noRequest  = -32600
	noMethod   = -32601
	noParams   = -32602
	tooManyNow = -32000
)

type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  *string         `json:"method"`
	Params  json.RawMessage `json:"params"`
}

type answer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *failure        `json:"error,omitempty"`
}

type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// session is one client.
type session struct {
	*Server
	ctx   context.Context
	calls chan call

	mu      sync.Mutex
	out     io.Writer
	broken  error // of writing
	running map[string]context.CancelFunc
}

type call struct {
	ctx       context.Context
	id        json.RawMessage
	tool      *Tool
	arguments json.RawMessage
}

// Serve answers what comes on in, until it ends or ctx does; then all that was asked has been answered, or aborted. It blocks in a read of in even when ctx has ended: close in for that. The error is of reading or writing.
func (s *Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &session{Server: s, ctx: ctx, calls: make(chan call, maxCalls), out: out, running: map[string]context.CancelFunc{}}
	var worker sync.WaitGroup
	worker.Go(func() {
		for k := range c.calls {
			c.run(k)
		}
	})
	err := c.read(in)
	if err != nil {
		cancel() // nobody listens
	}
	close(c.calls)
	worker.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(err, c.broken)
}

// read takes messages in.
func (c *session) read(in io.Reader) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for c.ctx.Err() == nil {
		line, err := readLine(r)
		switch {
		case errors.Is(err, errLong):
			c.fail(nil, noRequest, fmt.Sprintf("a message has more than %d bytes", MaxLine))
		case err != nil && !errors.Is(err, io.EOF):
			return fmt.Errorf("read a message: %w", err)
		case len(bytes.TrimSpace(line)) > 0:
			c.take(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		c.mu.Lock()
		broken := c.broken
		c.mu.Unlock()
		if broken != nil {
			return nil // it is told once
		}
	}
	return nil
}

var errLong = errors.New("a line is too long")

// readLine reads a line; one that is too long is read to its end and dropped.
func readLine(r *bufio.Reader) (line []byte, err error) {
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > MaxLine; !long {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if long && (err == nil || errors.Is(err, io.EOF)) {
			return nil, errors.Join(errLong, err)
		}
		return line, err
	}
}

// take takes one message in.
func (c *session) take(line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		if json.Valid(line) {
			c.fail(nil, noRequest, "a message must be an object of JSON-RPC 2.0; there are no batches")
		} else {
			c.fail(nil, noJSON, "a message must be JSON")
		}
		return
	}
	asks := len(m.ID) > 0 && string(m.ID) != "null"
	if asks && m.ID[0] != '"' && m.ID[0] != '-' && (m.ID[0] < '0' || m.ID[0] > '9') {
		c.fail(nil, noRequest, "an id must be a string or a number")
		return
	}
	if m.Version != "2.0" || m.Method == nil {
		if m.Method != nil || !asks { // else it may be an answer, and nothing was asked
			c.fail(m.ID, noRequest, `a message must say "jsonrpc": "2.0" and a method`)
		}
		return
	}
	if !asks {
		if *m.Method == "notifications/cancelled" {
			c.cancelled(m.Params)
		}
		return
	}
	switch *m.Method {
	case "initialize":
		var p struct {
			ProtocolVersion string `json:"protocolVersion"`
		}
		if json.Unmarshal(m.Params, &p) != nil || !slices.Contains(versions, p.ProtocolVersion) {
			p.ProtocolVersion = versions[0]
		}
		c.say(&answer{ID: m.ID, Result: map[string]any{
			"protocolVersion": p.ProtocolVersion, "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]any{"name": c.Name, "version": c.Version}, "instructions": c.Instructions,
		}})
	case "ping":
		c.say(&answer{ID: m.ID, Result: map[string]any{}})
	case "tools/list":
		list := []any{}
		for i := range c.Tools {
			t := &c.Tools[i]
			list = append(list, map[string]any{
				"name": t.Name, "title": t.Title, "description": t.Description, "inputSchema": t.Input,
				"annotations": map[string]any{"title": t.Title, "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false},
			})
		}
		c.say(&answer{ID: m.ID, Result: map[string]any{"tools": list}})
	case "tools/call":
		c.call(&m)
	default:
		c.fail(m.ID, noMethod, fmt.Sprintf("there is no method %.100q", *m.Method))
	}
}

// call puts a call into the line.
func (c *session) call(m *message) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(m.Params, &p); err != nil {
		c.fail(m.ID, noParams, "params must be an object with name and arguments")
		return
	}
	i := slices.IndexFunc(c.Tools, func(t Tool) bool { return t.Name == p.Name })
	if i < 0 {
		c.fail(m.ID, noParams, fmt.Sprintf("there is no tool %.100q", p.Name))
		return
	}
	if len(p.Arguments) == 0 || string(p.Arguments) == "null" {
		p.Arguments = json.RawMessage("{}")
	}
	id := string(m.ID)
	ctx := c.begin(id)
	if ctx == nil {
		c.fail(m.ID, noRequest, "a call of this id is under way")
		return
	}
	select {
	case c.calls <- call{ctx, m.ID, &c.Tools[i], p.Arguments}:
	default:
		c.done(id)
		c.fail(m.ID, tooManyNow, fmt.Sprintf("%d calls wait already: ask again once they are answered", maxCalls))
	}
}

// begin is the context of a call; nil where one of its id is under way.
func (c *session) begin(id string) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[id] != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.running[id] = cancel
	return ctx
}

// cancelled ends a call that the client wants no more.
func (c *session) cancelled(params json.RawMessage) {
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.running[string(p.ID)]; cancel != nil {
		cancel()
	}
}

func (c *session) done(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.running[id]; cancel != nil {
		cancel()
		delete(c.running, id)
	}
}

// run runs a call, and answers.
func (c *session) run(k call) {
	out, err := ask(&k)
	var text []byte
	if err == nil {
		if text, err = json.Marshal(out); err == nil && len(text) > MaxAnswer {
			err = &Refusal{Message: fmt.Sprintf("the answer has %d bytes, and at most %d are told: ask for less, such as one namespace", len(text), MaxAnswer), Field: "answer", Rule: "is too long"}
		}
	}
	no := false
	if err != nil {
		no = true
		var r *Refusal
		if !errors.As(err, &r) {
			r = &Refusal{Message: err.Error()}
		}
		told := *r
		told.Kind, told.Message = "Refusal", cut(r.Message, 4096)
		text, _ = json.Marshal(told) // strings
	}
	result := map[string]any{"content": []any{map[string]any{"type": "text", "text": string(text)}}, "isError": no}
	if len(text) > 0 && text[0] == '{' {
		result["structuredContent"] = json.RawMessage(text)
	}
	c.done(string(k.id))
	c.say(&answer{ID: k.id, Result: result})
}

// ask calls a tool.
func ask(k *call) (out any, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("a defect: the tool %s panics: %v", k.tool.Name, p)
		}
	}()
	if err := k.ctx.Err(); err != nil {
		return nil, fmt.Errorf("it was cancelled: %w", err)
	}
	return k.tool.Call(k.ctx, k.arguments)
}

// cut is a text of at most so many bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

func (c *session) fail(id json.RawMessage, code int, text string) {
	c.say(&answer{ID: id, Error: &failure{code, text}})
}

// say writes an answer. Who does not listen is told no more.
func (c *session) say(a *answer) {
	if a.Version = "2.0"; len(a.ID) == 0 {
		a.ID = json.RawMessage("null")
	}
	text, err := json.Marshal(a)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.broken == nil {
		_, err = c.out.Write(append(text, '\n'))
	}
	if err != nil && c.broken == nil {
		c.broken = fmt.Errorf("write an answer: %w", err)
	}
}
