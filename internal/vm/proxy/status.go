package proxy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// status serves Status: the primary's answer, less the handlers that go elsewhere, with what is to be said of the others.
func (p *router) status(ctx context.Context, method string, req []byte) answer {
	// The primary has the caller's own deadline: it alone decides whether there is an answer.
	first := make(chan answer, 1)
	go func() { first <- p.primary().call(outgoing(ctx), method, req) }()
	answers := p.howOthersAre(ctx, method, req)
	a := <-first
	if a.err != nil {
		return a
	}
	body, err := withoutHandlers(a.body, func(name string) bool { return p.byHandler(name) != p.primary() })
	if err != nil {
		return failed(status.Errorf(codes.Internal, "%s: answer of the primary runtime: %v", method, err))
	}
	more := &cri.StatusResponse{Status: &cri.RuntimeStatus{}, Info: map[string]string{}}
	for i, b := range p.others() {
		said := answers[i]
		var theirs cri.StatusResponse
		if said.err == nil {
			said.err = proto.Unmarshal(said.body, &theirs)
		}
		more.Status.Conditions = append(more.Status.Conditions, condition(b, &theirs, said.err))
		for key, value := range theirs.GetInfo() {
			more.Info[b.name+"/"+key] = value
		}
		more.RuntimeHandlers = append(more.RuntimeHandlers, b.theirHandlers()...)
	}
	// A message after a message adds to its lists and maps, and to its status's conditions.
	added, err := proto.MarshalOptions{Deterministic: true}.Marshal(more)
	if err != nil {
		return failed(status.Errorf(codes.Internal, "%s: %v", method, err))
	}
	a.body = append(body, added...)
	return a
}

// howOthersAre are the answers to Status of the backends beside the primary: what each said lately, or else what it says now. A verbose
// question is asked of all.
func (p *router) howOthersAre(ctx context.Context, method string, req []byte) []answer {
	others := p.others()
	answers := make([]answer, len(others))
	var asked []*connection
	var at []int
	for i, b := range others {
		if said, lately := b.saidLately(p.now().Add(-2 * p.config.StatusEvery)); lately && len(req) == 0 {
			answers[i] = said
			continue
		}
		asked, at = append(asked, b), append(at, i)
	}
	for k, said := range p.askEach(ctx, asked, method, func(*connection) []byte { return req }) {
		answers[at[k]] = said
		asked[k].said(said, len(req) == 0, p.now())
	}
	return answers
}

// said keeps what came of a Status.
func (b *connection) said(a answer, plain bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.err == nil {
		b.status = a.body
	}
	if plain {
		b.plain, b.plainAt = a, now
	}
}

// saidLately is what came of the last Status that was not verbose, if that is after a moment and the backend is still there.
func (b *connection) saidLately(since time.Time) (_ answer, lately bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plain, b.plainAt.After(since) && b.conn.GetState() == connectivity.Ready
}

// watchStatus asks a backend how it is, again and again until ctx ends.
func (p *router) watchStatus(ctx context.Context, b *connection) {
	every := time.NewTicker(p.config.StatusEvery)
	defer every.Stop()
	for {
		within, cancel := context.WithTimeout(ctx, p.config.ListTimeout)
		a := b.call(within, runtimeService+"Status", nil)
		cancel()
		b.said(a, true, p.now())
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// condition says how a backend is. It has a type of its own: a node is ready when the primary is.
func condition(b *connection, s *cri.StatusResponse, err error) *cri.RuntimeCondition {
	c := &cri.RuntimeCondition{Type: ConditionPrefix + b.name, Status: true, Reason: "Ready"}
	if err != nil {
		c.Status, c.Reason, c.Message = false, status.Code(err).String(), fmt.Sprintf("runtime %q: %v", b.name, err)
		return c
	}
	for _, want := range []string{cri.RuntimeReady, cri.NetworkReady} {
		i := slices.IndexFunc(s.GetStatus().GetConditions(), func(c *cri.RuntimeCondition) bool { return c.GetType() == want })
		if i < 0 {
			c.Status, c.Reason, c.Message = false, "ConditionMissing", fmt.Sprintf("runtime %q: its status has no condition %s", b.name, want)
			return c
		}
		if theirs := s.GetStatus().GetConditions()[i]; !theirs.GetStatus() {
			c.Status, c.Reason = false, theirs.GetReason()
			c.Message = fmt.Sprintf("runtime %q: %s is false: %s", b.name, want, theirs.GetMessage())
			return c
		}
	}
	return c
}

// theirHandlers are the declared handlers of a backend with the features that it last told of them. One that does not answer keeps them: the
// pods of a handler that a node lacks would be refused.
func (b *connection) theirHandlers() []*cri.RuntimeHandler {
	b.mu.Lock()
	defer b.mu.Unlock()
	var last cri.StatusResponse
	have := map[string]*cri.RuntimeHandler{}
	if proto.Unmarshal(b.status, &last) == nil {
		for _, h := range last.GetRuntimeHandlers() {
			have[h.GetName()] = h
		}
	}
	own := map[string]*cri.RuntimeHandler{}
	for _, name := range b.handlers {
		own[name] = have[name]
		if own[name] == nil {
			own[name] = &cri.RuntimeHandler{Name: name}
		}
	}
	var out []*cri.RuntimeHandler
	for _, name := range slices.Sorted(maps.Keys(own)) {
		out = append(out, own[name])
	}
	return out
}

// withoutHandlers leaves out the runtime_handlers (field 3) of those names.
func withoutHandlers(body []byte, drop func(name string) bool) ([]byte, error) {
	out := make([]byte, 0, len(body))
	err := eachField(body, func(num protowire.Number, typ protowire.Type, whole, content []byte) error {
		if num != 3 || typ != protowire.BytesType || !drop(stringField(content, 1)) {
			out = append(out, whole...)
		}
		return nil
	})
	return out, err
}

// configure serves UpdateRuntimeConfig: all are told, and the primary answers.
func (p *router) configure(ctx context.Context, method string, req []byte) answer {
	p.store.setRuntimeConfig(req)
	first := make(chan answer, 1)
	go func() { first <- p.primary().call(outgoing(ctx), method, req) }()
	answers := p.askEach(ctx, p.others(), method, func(*connection) []byte { return req })
	for i, b := range p.others() {
		if err := answers[i].err; err != nil && status.Code(err) != codes.Unimplemented {
			p.log.Info("A runtime was not told the runtime configuration; it is when it is back", "runtime", b.name, "err", err.Error())
		}
	}
	return <-first
}
