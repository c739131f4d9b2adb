package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// imageNames are where an item of an image list has names: repo_tags, repo_digests, spec.image.
func imageNames() [][]protowire.Number { return [][]protowire.Number{{2}, {3}, {7, 1}} }

// within puts a field number before each path.
func within(num protowire.Number, paths [][]protowire.Number) [][]protowire.Number {
	out := make([][]protowire.Number, len(paths))
	for i, path := range paths {
		out[i] = append([]protowire.Number{num}, path...)
	}
	return out
}

// addPrefix puts a prefix before names, and leaves ids and digests.
func addPrefix(prefix string) func(string) string {
	return func(name string) string {
		if prefix == "" || name == "" || isID(name) {
			return name
		}
		return prefix + name
	}
}

// shown are a backend's list items as the caller gets them: images by names that find their way back.
func (b *connection) shown(r rule, body []byte) ([]byte, error) {
	if !r.keeps || r.kind != images || len(b.prefixes) == 0 {
		return body, nil
	}
	return editAll(body, within(1, imageNames()), addPrefix(b.prefixes[0]))
}

// asked is a list's request as a backend gets it.
func (b *connection) asked(r rule, req []byte) []byte {
	if !r.keeps || r.kind != images || len(b.prefixes) == 0 {
		return req
	}
	if edited, err := editStrings(req, []protowire.Number{1, 1, 1}, b.strip); err == nil {
		return edited
	}
	return req
}

// whom are the backends of a list: all, or the owner of the id in its filter.
func (p *router) whom(r rule, req []byte) []*connection {
	if !r.keeps || r.kind == images || wholeList(req) {
		return p.backends
	}
	var f []byte // both filters have the item's id as field 1; a container's has its sandbox's as field 3
	err := eachField(req, func(num protowire.Number, typ protowire.Type, _, content []byte) error {
		if num == 1 && typ == protowire.BytesType {
			f = append(f, content...)
		}
		return nil
	})
	if err != nil {
		return p.backends
	}
	owner := p.knownOwner(r.kind, stringField(f, 1))
	if owner == nil && r.kind == containers {
		owner = p.knownOwner(sandboxes, stringField(f, 3))
	}
	if owner == nil {
		return p.backends
	}
	return []*connection{owner}
}

// remembered gives what is known instead of the answer of a backend that failed: list items as messages of the answer, without those that
// skip. The error is the list's.
func (p *router) remembered(b *connection, r rule, req []byte, why error, skip map[string]struct{}) ([]byte, error) {
	switch t := b.known.trusted(r.kind); {
	case t == heard, t == assumed && b.gone(why):
	default:
		return nil, status.Errorf(codes.Unavailable, "runtime %q has not said since this proxy knows it which %s it has, and does not answer: %v", b.name, r.kind, why)
	}
	match, err := filter(r.kind, b.asked(r, req))
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "filter of %s: %v", r.kind, err)
	}
	var body []byte
	for _, it := range b.known.list(r.kind, match) {
		if _, ok := skip[stringField(it, 1)]; !ok {
			body = appendItem(body, it)
		}
	}
	return b.shown(r, body)
}

// say logs a backend's failing lists once, and their end.
func (p *router) say(b *connection, method string, err error) {
	if err == nil {
		if b.failing.CompareAndSwap(true, false) {
			p.log.Info("A runtime answers lists again", "runtime", b.name)
		}
		return
	}
	if b.failing.CompareAndSwap(false, true) {
		p.log.Info("A runtime does not answer a list. What it is known to have is given", "runtime", b.name, "method", method, "err", err.Error())
	}
}

// mergeLists asks all for a list and puts the answers together. Two messages one after the other are the message with the fields of both, so
// that fields which are not known here are kept.
func (p *router) mergeLists(ctx context.Context, method string, r rule, req []byte) answer {
	whom := p.whom(r, req)
	since := make([]uint64, len(whom))
	for i, b := range whom {
		since[i] = b.known.mark()
	}
	answers := p.askEach(ctx, whom, method, func(b *connection) []byte { return b.asked(r, req) })
	if err := ctx.Err(); err != nil {
		return failed(status.FromContextError(err).Err())
	}
	var out answer
	var stale []string
	failures := 0
	for i, b := range whom {
		a := answers[i]
		if b.primary {
			out.header, out.trailer = a.header, a.trailer
		}
		if a.err != nil {
			if b.primary && (r.needsPrimary || status.Code(a.err) == codes.Unimplemented) {
				return a
			}
			failures++
			if out.err == nil {
				out.err = a.err
			}
			if status.Code(a.err) != codes.Unimplemented {
				p.say(b, method, a.err)
				stale = append(stale, b.name)
			}
			if r.keeps {
				body, err := p.remembered(b, r, req, a.err, nil)
				if err != nil {
					return failed(err)
				}
				out.body = append(out.body, body...)
			}
			continue
		}
		p.say(b, method, nil)
		if r.keeps && wholeList(req) {
			if list, err := listItems(a.body); err == nil {
				b.known.replace(r.kind, list, since[i])
				p.store.soon()
			}
		}
		body, err := b.shown(r, a.body)
		if err == nil && !b.primary {
			switch method {
			case runtimeService + "ListMetricDescriptors":
				body, err = newNames(body, out.body)
			case imageService + "ImageFsInfo":
				body, err = sameFields(body, out.body)
			}
		}
		if err != nil {
			return failed(status.Errorf(codes.Internal, "%s: answer of runtime %q: %v", method, b.name, err))
		}
		if out.body == nil {
			out.body = body
		} else {
			out.body = append(out.body, body...)
		}
	}
	if failures < len(whom) || r.keeps {
		out.err = nil
	}
	if out.err == nil && len(stale) > 0 {
		out.trailer = metadata.Join(out.trailer, metadata.MD{StaleTrailer: stale})
	}
	return out
}

// sameFields leaves out fields of which the other message has none. A kubelet takes the first file system of each list to be the primary's,
// also where the primary, being older, does not have that list.
func sameFields(body, as []byte) ([]byte, error) {
	have := map[protowire.Number]struct{}{}
	if err := eachField(as, func(num protowire.Number, _ protowire.Type, _, _ []byte) error {
		have[num] = struct{}{}
		return nil
	}); err != nil {
		return nil, err
	}
	var out []byte
	err := eachField(body, func(num protowire.Number, _ protowire.Type, whole, _ []byte) error {
		if _, ok := have[num]; ok {
			out = append(out, whole...)
		}
		return nil
	})
	return out, err
}

// newNames leaves out items whose name (field 1) one of the other list has: of two descriptors of a metric a kubelet takes the last, and it
// should be the primary's.
func newNames(body, than []byte) ([]byte, error) {
	have := map[string]struct{}{}
	old, err := listItems(than)
	if err != nil {
		return nil, err
	}
	for _, it := range old {
		have[stringField(it, 1)] = struct{}{}
	}
	var out []byte
	err = eachField(body, func(num protowire.Number, typ protowire.Type, whole, content []byte) error {
		if num == 1 && typ == protowire.BytesType {
			if _, ok := have[stringField(content, 1)]; ok {
				return nil
			}
		}
		out = append(out, whole...)
		return nil
	})
	return out, err
}

// stream is the caller's side of a stream that several backends write to.
type stream struct {
	mu sync.Mutex
	ss grpc.ServerStream
}

func (s *stream) send(body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ss.SendMsg(&frame{body: body})
}

// open starts a stream of one message from the caller.
func (b *connection) open(ctx context.Context, method string, req []byte) (grpc.ClientStream, error) {
	cs, err := b.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return nil, err
	}
	if err := cs.SendMsg(&frame{body: req}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err // after io.EOF the reason is what is received
	}
	return cs, cs.CloseSend()
}

// mergeStreams passes on the streams of all as they come. The others begin when the primary has: that it lacks the method can
// be said only before anything else.
func (p *router) mergeStreams(ss grpc.ServerStream, method string, r rule, req []byte) error {
	ctx, cancel := context.WithCancel(outgoing(ss.Context()))
	defer cancel()
	out := &stream{ss: ss}
	whom := p.whom(r, req)
	results := make(chan error, len(whom))
	begun := make(chan struct{})
	var begin sync.Once
	var mu sync.Mutex
	var stale []string
	for _, b := range whom {
		started := func() {
			if b.primary || len(whom) == 1 {
				begin.Do(func() { close(begun) })
			}
		}
		go func() {
			if !b.primary && len(whom) > 1 {
				select {
				case <-begun:
				case <-ctx.Done():
					results <- ctx.Err()
					return
				}
			}
			failing, err := p.streamOne(ctx, b, method, r, req, out, started)
			if failing {
				mu.Lock()
				stale = append(stale, b.name)
				mu.Unlock()
			}
			if err == nil {
				started()
			}
			results <- err
		}()
	}
	var first error
	for range whom {
		if err := <-results; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	if err := ss.Context().Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if first == nil && len(stale) > 0 {
		ss.SetTrailer(metadata.MD{StaleTrailer: stale})
	}
	return first
}

// streamOne passes on one backend's part of a streaming list: its stream, else its plain list, else what it is known to have. started is
// called once it is clear that the backend has the method, or does not answer. failing: it did not give its part itself. An error ends the
// whole.
func (p *router) streamOne(ctx context.Context, b *connection, method string, r rule, req []byte, out *stream, started func()) (failing bool, err error) {
	since := b.known.mark()
	told := map[string]struct{}{}
	var list [][]byte
	pass := func(body []byte) error {
		if r.keeps {
			items, err := listItems(body)
			if err != nil {
				return status.Errorf(codes.Internal, "%s: answer of runtime %q: %v", method, b.name, err)
			}
			for _, it := range items {
				told[stringField(it, 1)] = struct{}{}
				list = append(list, bytes.Clone(it))
			}
		}
		body, err := b.shown(r, body)
		if err != nil {
			return status.Errorf(codes.Internal, "%s: answer of runtime %q: %v", method, b.name, err)
		}
		return out.send(body)
	}
	why, err := p.receive(ctx, b, method, b.asked(r, req), func(body []byte) error {
		started()
		return pass(body)
	})
	if err != nil {
		return false, err
	}
	if status.Code(why) == codes.Unimplemented && len(told) == 0 {
		if b.primary {
			return false, why
		}
		a := p.askEach(ctx, []*connection{b}, r.plain, func(*connection) []byte { return b.asked(r, req) })[0]
		if why = a.err; why == nil {
			if err := pass(a.body); err != nil {
				return false, err
			}
		}
	}
	if ctx.Err() != nil {
		return false, status.FromContextError(ctx.Err()).Err()
	}
	lacks := status.Code(why) == codes.Unimplemented
	if why == nil || !lacks {
		p.say(b, method, why)
	}
	if why == nil {
		if r.keeps && wholeList(req) {
			b.known.replace(r.kind, list, since)
			p.store.soon()
		}
		return false, nil
	}
	if r.keeps {
		body, err := p.remembered(b, r, req, why, told)
		if err != nil {
			return false, err
		}
		if len(body) > 0 {
			started()
			if err := out.send(body); err != nil {
				return false, err
			}
		}
	}
	return !lacks, nil
}

// receive reads a stream to its end. why is the backend's failure, which silence for longer than its share is too; err is that of pass.
func (p *router) receive(ctx context.Context, b *connection, method string, req []byte, pass func([]byte) error) (why, err error) {
	patience := p.patience(ctx, b)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := status.Errorf(codes.DeadlineExceeded, "no message for %v", patience)
	timer := time.AfterFunc(patience, func() { cancel(silent) })
	defer timer.Stop()
	cs, why := b.open(ctx, method, req)
	for why == nil {
		var f frame
		if why = cs.RecvMsg(&f); why != nil {
			break
		}
		timer.Stop() // a slow reader is not the backend's silence
		if err := pass(f.body); err != nil {
			return nil, err
		}
		timer.Reset(patience)
	}
	if errors.Is(why, io.EOF) {
		return nil, nil
	}
	if cause := context.Cause(ctx); errors.Is(cause, silent) {
		why = cause
	}
	return why, nil
}

// events puts the event streams of all together until one ends.
func (p *router) events(ss grpc.ServerStream, method string, req []byte) error {
	ctx, cancel := context.WithCancel(outgoing(ss.Context()))
	defer cancel()
	out := &stream{ss: ss}
	ends := make(chan error, len(p.backends))
	for _, b := range p.backends {
		go func() { ends <- p.eventsOf(ctx, b, method, req, out) }()
	}
	var err error
	left := len(p.backends)
	select {
	case err = <-ends:
		left--
	case <-p.ending.Done():
		err = status.Error(codes.Unavailable, "the proxy ends")
	}
	cancel()
	for range left {
		if other := <-ends; err == nil {
			err = other
		}
	}
	return err
}

// eventsOf passes on one backend's events. It never returns nil.
func (p *router) eventsOf(ctx context.Context, b *connection, method string, req []byte, out *stream) error {
	cs, err := b.open(ctx, method, req)
	for err == nil {
		var f frame
		if err = cs.RecvMsg(&f); err == nil {
			err = out.send(f.body)
		}
	}
	if errors.Is(err, io.EOF) {
		return status.Errorf(codes.Unavailable, "runtime %q has ended its events", b.name)
	}
	if b.primary || ctx.Err() != nil || status.Code(err) != codes.Unavailable || !b.leaves(ctx) {
		return err
	}
	// It is away. The others' events go on; when it is back the caller has to list what it missed.
	for {
		state := b.conn.GetState()
		if state == connectivity.Ready {
			return status.Errorf(codes.Unavailable, "runtime %q is back; its events have to be asked for anew", b.name)
		}
		if !b.conn.WaitForStateChange(ctx, state) {
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}
