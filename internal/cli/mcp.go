package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/mcp"
	"github.com/muster-scheduler/muster/internal/see"
	"github.com/muster-scheduler/muster/internal/ui"
)

func newMCP(d Deps) *cobra.Command {
	l := &looker{deps: d}
	c := &cobra.Command{
		Use: "mcp", Short: "Serve what muster says to programs by the Model Context Protocol, over standard input and output", Args: cobra.NoArgs,
		Long: "Serve what muster says to programs, such as assistants, by the Model Context Protocol over standard input and output: the tools explain, gangs,\n" +
			"queues, status, what_if and decisions, with the JSON of the role ui. They read with the rights of the kubeconfig's user, and write nothing. With\n" +
			"--ui they ask the role; otherwise the command looks at the cluster itself, at most every five seconds while somebody asks.\n\n" +
			"Exit status: 0 the client has closed its end, 1 a stream broke.",
		Example: "  muster mcp\n  muster mcp --ui https://muster-ui.example",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := app.SignalContext(c.Context())
			defer stop()
			ask := l.here()
			if l.role.url != "" {
				ask = l.there
			}
			return serveTools(ctx, c, d.Version, ask, l.namespace)
		},
	}
	l.flags(c)
	l.role.flags(c)
	_ = c.Flags().MarkHidden("output") // it is JSON
	return c
}

// asks asks the API of the role ui, whoever answers: GET, or POST where there is a body. The error is an *mcp.Refusal where there is no answer.
type asks func(ctx context.Context, path string, body []byte) (json.RawMessage, error)

// serveTools serves until the client goes.
func serveTools(ctx context.Context, c *cobra.Command, version string, ask asks, namespace func(string) (string, error)) error {
	s := &mcp.Server{
		Name: "muster", Version: version, Tools: tools(ask, namespace),
		Instructions: "Why work of a Kubernetes cluster scheduled by Muster waits, and what would change that. Begin with gangs or explain. Nothing is written by any tool; names of what you may not read are not told.",
	}
	// Whoever interrupts the command ends it: the read that is under way ends with the process.
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, c.InOrStdin(), c.OutOrStdout()) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return nil
	}
}

// arguments are those of all tools.
type arguments struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Shard     string `json:"shard"`
	Since     string `json:"since"`
	Gang      string `json:"gang"`
	Last      int    `json:"last"`
	InLine    bool   `json:"inLine"`
	Timeline  bool   `json:"timeline"`
	ui.Proposal
}

// tools are what clients may call.
func tools(ask asks, namespace func(string) (string, error)) []mcp.Tool {
	text := func(about string) map[string]any { return map[string]any{"type": "string", "description": about} }
	flag := func(about string) map[string]any { return map[string]any{"type": "boolean", "description": about} }
	number := func(about string) map[string]any {
		return map[string]any{"type": "integer", "minimum": 0, "description": about}
	}
	texts := func(about string) map[string]any {
		return map[string]any{"type": "array", "items": map[string]any{"type": "string"}, "description": about}
	}
	ns := text("Namespace; without one all that you may read. Whoever may not read all has to name one.")
	shard := text("Partition value of a shard; without one all shards.")
	tool := func(name, title, about string, input map[string]any, required []string, call func(context.Context, *arguments) (any, error)) mcp.Tool {
		schema := map[string]any{"type": "object", "properties": input, "additionalProperties": false}
		if len(required) > 0 {
			schema["required"] = required
		}
		return mcp.Tool{Name: name, Title: title, Description: about, Input: schema, Call: func(ctx context.Context, raw json.RawMessage) (any, error) {
			given := map[string]json.RawMessage{}
			if err := json.Unmarshal(raw, &given); err != nil {
				return nil, &mcp.Refusal{Message: "arguments must be an object", Field: "arguments", Rule: "must be an object"}
			}
			for field := range given { // order: any of them is at fault
				if input[field] == nil {
					return nil, &mcp.Refusal{Message: fmt.Sprintf("%.100q is no argument of %s", field, name), Field: cutTo(field, 100), Rule: "is no argument of " + name}
				}
			}
			var a arguments
			if err := json.Unmarshal(raw, &a); err != nil {
				return nil, &mcp.Refusal{Message: fmt.Sprintf("arguments: %.200s", err), Field: "arguments", Rule: "do not have the types of the schema"}
			}
			return call(ctx, &a)
		}}
	}
	get := func(ctx context.Context, path string, q url.Values) (any, error) {
		for k := range q { // order: what is not said is left out
			if q.Get(k) == "" {
				q.Del(k)
			}
		}
		if len(q) > 0 {
			path += "?" + q.Encode()
		}
		return ask(ctx, path, nil)
	}
	list := func(path string) func(context.Context, *arguments) (any, error) {
		return func(ctx context.Context, a *arguments) (any, error) {
			return get(ctx, path, url.Values{"namespace": {a.Namespace}, "shard": {a.Shard}})
		}
	}
	return []mcp.Tool{
		tool("explain", "Why does it wait?", "Why one gang (a job, a pod) waits, in one word (starting, in line, blocked, never) with reason and numbers, and what would change that: remedies, by whom, at what cost.", map[string]any{
			"namespace": text("Namespace; without one the kubeconfig's."), "name": text("Name of the gang, of the workload (train, Job train) or of a pod."), "shard": shard,
			"inLine": flag("Prove that remedies hold at the gang's turn, everybody waiting; takes longer."), "timeline": flag("Also what became of it, where a journal is kept."), "since": text("How far back the timeline goes, such as 36h or 3d."),
		}, []string{"name"}, func(ctx context.Context, a *arguments) (any, error) {
			ns, err := namespace(a.Namespace)
			if err != nil {
				return nil, err
			}
			q := url.Values{"shard": {a.Shard}, "since": {a.Since}}
			if a.InLine {
				q.Set("inLine", "true")
			}
			if a.Timeline {
				q.Set("timeline", "true")
			}
			return get(ctx, "/namespaces/"+url.PathEscape(ns)+"/gangs/"+url.PathEscape(a.Name), q)
		}),
		tool("gangs", "Gangs", "Gangs with their words, reasons, pods and turns.", map[string]any{"namespace": ns, "shard": shard}, nil, list("/gangs")),
		tool("queues", "Queues", "The tree of queues: quota, limit, fair share, what they use and ask for, gangs that wait.", map[string]any{"namespace": ns, "shard": shard}, nil, list("/queues")),
		tool("status", "Status", "At a glance: gangs by word and reason, with an example of each to explain.", map[string]any{"namespace": ns, "shard": shard}, nil, func(ctx context.Context, a *arguments) (any, error) {
			out, err := list("/gangs")(ctx, a)
			if err != nil {
				return nil, err
			}
			return sumUp(out.(json.RawMessage))
		}),
		tool("what_if", "What if?", "What the scheduler would do if something were changed, beside what it does without; tried in a copy. Takes the right to simulate queues.", map[string]any{
			"quota": texts("Quotas to set, each as QUEUE:RESOURCE=AMOUNT, such as vision:gpu=32."), "limit": texts("Limits, likewise."), "weight": texts("Weights over quota, likewise."), "priority": texts("Priorities of queues, each as QUEUE=NUMBER."),
			"addNodes": number("How many nodes are added that are like the one of like."), "like": text("Node to copy."), "cordon": texts("Nodes that take no more pods."), "delete": texts("Gangs that are deleted, each as NAMESPACE/NAME."),
			"manifests": text("YAML to submit: Pod, Job, PyTorchJob, JobSet, PodGroup."), "namespace": text("Namespace of manifests that name none; without one the kubeconfig's."),
			"cycles": number("Decisions to look at; 0: one."), "shard": text("Partition value of the shard."),
		}, nil, func(ctx context.Context, a *arguments) (any, error) {
			p := a.Proposal
			if p.Namespace, p.Shard = a.Namespace, a.Shard; p.Manifests != "" {
				var err error
				if p.Namespace, err = namespace(a.Namespace); err != nil {
					return nil, err
				}
			}
			body, err := json.Marshal(&p)
			if err != nil {
				return nil, fmt.Errorf("ask what if: %w", err)
			}
			return ask(ctx, "/what-if", body)
		}),
		tool("decisions", "Decisions", "What was decided lately, from the journal of the role ui: bound, evicted for whom and why, reasons that changed, and what is missing.", map[string]any{
			"namespace": ns, "gang": text("Only of gangs, or of jobs, of this name."), "since": text("How far back, such as 36h or 3d; a day if it is not said."), "last": number("At most so many, to 1000."),
		}, nil, func(ctx context.Context, a *arguments) (any, error) {
			q := url.Values{"namespace": {a.Namespace}, "gang": {a.Gang}, "since": {a.Since}}
			if a.Last > 0 {
				q.Set("last", strconv.Itoa(a.Last))
			}
			return get(ctx, "/decisions", q)
		}),
	}
}

// cutTo is a text of at most so many bytes.
func cutTo(text string, most int) string {
	return strings.ToValidUTF8(text[:min(most, len(text))], "")
}

// Glance is gangs by word and reason. Field names are stable.
type Glance struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // Glance
	// Cycles are those of the shards that it was said of; Away are shards that gave no answer, and why.
	Cycles []see.Origin  `json:"cycles"`
	Away   []string      `json:"away,omitempty"`
	Gangs  int           `json:"gangs"`
	Groups []GlanceGroup `json:"groups"`
}

// GlanceGroup are the gangs of one word and reason. Word is runs for those of which nothing waits, and waits where there was no time to find it out.
type GlanceGroup struct {
	Word   string `json:"word"`
	Reason string `json:"reason,omitempty"`
	Gangs  int    `json:"gangs"`
	// Running and Waiting count pods.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// Example names one of them, as namespace/name.
	Example string `json:"example"`
}

// sumUp sums lists of gangs up.
func sumUp(text json.RawMessage) (*Glance, error) {
	var lists struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &lists); err != nil {
		return nil, fmt.Errorf("read a list of gangs: %w", err)
	}
	out := &Glance{APIVersion: see.APIVersion, Kind: "Glance", Cycles: []see.Origin{}, Groups: []GlanceGroup{}}
	at := map[[2]string]int{}
	for _, one := range lists.Items {
		var l struct {
			see.GangList
			Object  string `json:"object"` // of a refusal
			Message string `json:"message"`
		}
		if err := json.Unmarshal(one, &l); err != nil {
			return nil, fmt.Errorf("read a list of gangs: %w", err)
		}
		if l.Kind != "GangList" {
			out.Away = append(out.Away, l.Object+": "+l.Message)
			continue
		}
		out.Cycles = append(out.Cycles, l.Cycle)
		for i := range l.Items {
			g := &l.Items[i]
			word := cmp.Or(string(g.Word), "runs")
			if g.Unasked {
				word = "waits"
			}
			k := [2]string{word, g.Reason}
			n, there := at[k]
			if !there {
				n = len(out.Groups)
				at[k] = n
				out.Groups = append(out.Groups, GlanceGroup{Word: word, Reason: g.Reason, Example: g.Namespace + "/" + g.Gang})
			}
			of := &out.Groups[n]
			of.Gangs++
			of.Running += g.Pods.Running
			of.Waiting += g.Pods.Pending + g.Pods.Gated
			out.Gangs++
		}
	}
	return out, nil
}

// refusalOf is what the API refuses, for clients.
func refusalOf(text []byte, otherwise string) error {
	var no ui.Refused
	if json.Unmarshal(text, &no) != nil || no.Message == "" {
		no.Message = otherwise
	}
	if no.RetryAfterSeconds > 0 {
		no.Message += fmt.Sprintf("; ask again in %d s", no.RetryAfterSeconds)
	}
	return &mcp.Refusal{Message: no.Message, Object: no.Object, Field: no.Field, Rule: no.Rule}
}

// there asks the role.
func (l *looker) there(ctx context.Context, path string, body []byte) (json.RawMessage, error) {
	text, code, err := l.role.fetch(ctx, l.client, path, body)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, refusalOf(text, fmt.Sprintf("the role ui at %s answers %d", l.role.url, code))
	}
	return text, nil
}

// here answers as the role would, from looks at the cluster.
func (l *looker) here() asks {
	return answers(&looks{look: func(ctx context.Context) (*see.Cycle, error) {
		v, err := l.look(ctx)
		if err != nil {
			return nil, err
		}
		return v.cycle, nil
	}}, l)
}

// answers are those of pages of this machine.
func answers(cycles ui.Cycles, l *looker) asks {
	secret := rand.Text()
	h := localAnswerer(cycles, secret).Submits(l.schedulerNames, l.partition.Key).Handler()
	return func(ctx context.Context, path string, body []byte) (json.RawMessage, error) {
		method := http.MethodGet
		if body != nil {
			method = http.MethodPost
		}
		r, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1"+ui.API+path, bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("ask: %w", err)
		}
		r.Header.Set("Content-Type", "application/json")
		ui.Knows(r, secret)
		w := &held{header: http.Header{}, code: http.StatusOK}
		h.ServeHTTP(w, r)
		switch {
		case w.Len() >= maxAnswer:
			return nil, errors.New("the answer is too long")
		case w.code != http.StatusOK:
			return nil, refusalOf(w.Bytes(), http.StatusText(w.code))
		}
		return w.Bytes(), nil
	}
}

// held holds an answer.
type held struct {
	bytes.Buffer
	header http.Header
	code   int
}

// Header implements http.ResponseWriter.
func (h *held) Header() http.Header { return h.header }

// WriteHeader implements http.ResponseWriter.
func (h *held) WriteHeader(code int) { h.code = code }
