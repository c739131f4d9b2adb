package proxy

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// router decides where calls go and makes answers of several.
type router struct {
	config   Config
	log      logr.Logger
	backends []*connection // the primary first
	words    map[string]*connection
	wordList []string // sorted
	store    *store
	// ending ends when the proxy is asked to: streams without an end have one then.
	ending context.Context
	now    func() time.Time
}

// handle serves one call of any method, and counts it. Streams of events are not counted: they last as long as who reads them. What callers write is no label.
func (p *router) handle(_ any, ss grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(ss)
	if !ok {
		return status.Error(codes.Internal, "a call without a method")
	}
	began := time.Now()
	err := p.serveCall(ss, method)
	r, ok := rules[method]
	switch {
	case !ok:
		method = "other"
	case r.way == events:
		return err
	}
	code := ""
	if err != nil {
		code = status.Code(err).String()
	}
	p.config.Metrics.Call(method[strings.LastIndexByte(method, '/')+1:], time.Since(began), code)
	return err
}

// serveCall serves one call.
func (p *router) serveCall(ss grpc.ServerStream, method string) error {
	if len(p.backends) == 1 {
		ctx, cancel := context.WithCancel(ss.Context())
		defer cancel()
		if rules[method].way == events {
			defer context.AfterFunc(p.ending, cancel)()
		}
		return p.primary().pipe(ctx, ss, method)
	}
	var f frame
	if err := ss.RecvMsg(&f); err != nil {
		return status.Errorf(codes.InvalidArgument, "%s: no request: %v", method, err)
	}
	r, ok := rules[method]
	if !ok {
		b := p.ofUnknownMethod(f.body)
		if b == nil && listLike(method) {
			return status.Errorf(codes.Unimplemented, "%s: this proxy does not know the method, which may be a list; the primary's answer would leave out the pods of %s", method, strings.Join(p.names(), ", "))
		}
		if b == nil {
			b = p.primary()
		}
		return b.pipe(ss.Context(), ss, method, f.body)
	}
	if r.way == toAllStreams {
		return p.mergeStreams(ss, method, r, f.body)
	}
	if r.way == events {
		return p.events(ss, method, f.body)
	}
	a := p.unary(ss.Context(), method, r, f.body)
	if len(a.header) > 0 {
		if err := ss.SetHeader(a.header); err != nil {
			return err
		}
	}
	ss.SetTrailer(a.trailer)
	if a.err != nil {
		return a.err
	}
	return ss.SendMsg(&frame{body: a.body})
}

// listLike tells by its name whether a method may be a list. Of such a method a kubelet takes the answer for everything, and takes
// Unimplemented for the older method that it then uses.
func listLike(method string) bool {
	name := method[strings.LastIndexByte(method, '/')+1:]
	return strings.HasPrefix(name, "List") || strings.HasPrefix(name, "Stream")
}

// names are those of the backends beside the primary.
func (p *router) names() []string {
	var out []string
	for _, b := range p.others() {
		out = append(out, b.name)
	}
	return out
}

// unary answers one call with one message each way.
func (p *router) unary(ctx context.Context, method string, r rule, req []byte) answer {
	switch r.way {
	case toAll:
		return p.mergeLists(ctx, method, r, req)
	case stateRun:
		return p.run(ctx, method, req)
	case toSandbox, toContainer:
		return p.owned(ctx, method, r, req)
	case imageStatus, pull, removeImage:
		return p.image(ctx, method, r, req)
	case statusOfAll:
		return p.status(ctx, method, req)
	case configureAll:
		return p.configure(ctx, method, req)
	default:
		return p.primary().call(outgoing(ctx), method, req)
	}
}

func failed(err error) answer { return answer{err: err} }

// unreadable is the error for a request that is no message of its method.
func unreadable(method string, err error) answer {
	return failed(status.Errorf(codes.InvalidArgument, "%s: request: %v", method, err))
}

// stateRun serves RunPodSandbox.
func (p *router) run(ctx context.Context, method string, body []byte) answer {
	var req cri.RunPodSandboxRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return unreadable(method, err)
	}
	b, err := p.ofSandbox(&req)
	if err != nil {
		return failed(err)
	}
	a := b.call(outgoing(ctx), method, body)
	if id := stringField(a.body, 1); a.err == nil && id != "" {
		p.created(b, sandboxes, id, &cri.PodSandbox{
			Id: id, Metadata: req.GetConfig().GetMetadata(), CreatedAt: p.now().UnixNano(),
			Labels: req.GetConfig().GetLabels(), Annotations: req.GetConfig().GetAnnotations(), RuntimeHandler: req.GetRuntimeHandler(),
		})
	}
	return a
}

// created remembers what a backend has just made, as its next list will show it, before the caller learns its id.
func (p *router) created(b *connection, kind kind, id string, as proto.Message) {
	body, err := proto.Marshal(as)
	if err != nil {
		p.log.Error(err, "What was created cannot be remembered", "runtime", b.name, "id", id)
		return
	}
	b.known.put(kind, id, body)
	p.store.flush()
}

// owned serves the methods whose request begins with the id of a sandbox or container.
func (p *router) owned(ctx context.Context, method string, r rule, req []byte) answer {
	kind := sandboxes
	if r.way == toContainer {
		kind = containers
	}
	id := stringField(req, 1)
	b, err := p.ofID(ctx, kind, id)
	if err != nil {
		return failed(err)
	}
	if method == runtimeService+"CreateContainer" {
		return p.createContainer(ctx, b, method, req)
	}
	a := b.call(outgoing(ctx), method, req)
	if a.err != nil {
		return a
	}
	switch method {
	case runtimeService + "StopPodSandbox":
		b.known.edit(sandboxes, id, setState(3, int32(cri.PodSandboxState_SANDBOX_NOTREADY)))
		p.store.soon()
	case runtimeService + "RemovePodSandbox":
		b.known.drop(sandboxes, id)
		for _, c := range b.known.list(containers, func(body []byte) bool { return stringField(body, 2) == id }) {
			b.known.drop(containers, stringField(c, 1))
		}
		p.store.soon()
	case runtimeService + "StartContainer":
		b.known.edit(containers, id, setState(6, int32(cri.ContainerState_CONTAINER_RUNNING)))
		p.store.soon()
	case runtimeService + "StopContainer":
		b.known.edit(containers, id, setState(6, int32(cri.ContainerState_CONTAINER_EXITED)))
		p.store.soon()
	case runtimeService + "RemoveContainer":
		b.known.drop(containers, id)
		p.store.soon()
	case runtimeService + "Exec", runtimeService + "Attach", runtimeService + "PortForward":
		body, err := editStrings(a.body, []protowire.Number{1}, withHost)
		if err != nil {
			return failed(status.Errorf(codes.Internal, "%s: answer of runtime %q: %v", method, b.name, err))
		}
		a.body = body
	}
	return a
}

// setState appends an enumeration's value to an item, which replaces what the item had.
func setState(num protowire.Number, state int32) func([]byte) []byte {
	return func(body []byte) []byte {
		return protowire.AppendVarint(protowire.AppendTag(body, num, protowire.VarintType), uint64(state))
	}
}

// withHost completes a streaming URL that names a port and no host. The kubelet, which dials it, is on this machine.
func withHost(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Hostname() != "" || u.Port() == "" {
		return s
	}
	u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	return u.String()
}

// createContainer strips the backend's prefixes from the names of images in the request.
func (p *router) createContainer(ctx context.Context, b *connection, method string, body []byte) answer {
	var req cri.CreateContainerRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return unreadable(method, err)
	}
	if len(b.prefixes) > 0 {
		// config.image.image and config.mounts.image.image. What the user wrote (user_specified_image) stays as it was written.
		edited, err := editAll(body, [][]protowire.Number{{2, 2, 1}, {2, 7, 9, 1}}, b.strip)
		if err != nil {
			return unreadable(method, err)
		}
		body = edited
	}
	a := b.call(outgoing(ctx), method, body)
	if id := stringField(a.body, 1); a.err == nil && id != "" {
		c := req.GetConfig()
		p.created(b, containers, id, &cri.Container{
			Id: id, PodSandboxId: req.GetPodSandboxId(), Metadata: c.GetMetadata(), Image: c.GetImage(), ImageRef: c.GetImage().GetImage(),
			ImageId: c.GetImage().GetImage(), State: cri.ContainerState_CONTAINER_CREATED, CreatedAt: p.now().UnixNano(),
			Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
		})
	}
	return a
}

// greetLoop asks a backend for what it has whenever it is greeted, until ctx ends.
func (p *router) greetLoop(ctx context.Context, b *connection) {
	for len(p.backends) > 1 { // alone, nothing needs to be known
		var g greeting
		select {
		case <-ctx.Done():
			return
		case g = <-b.greet:
		}
		all := []kind{sandboxes, containers, images}
		if g == askImages {
			all = all[images:]
		}
		err := p.greet(ctx, b, all, g == askAll)
		if ctx.Err() == nil && err != nil {
			p.log.Info("A runtime is connected and does not say what it has", "runtime", b.name, "err", err.Error())
		} else if g == askAll && err == nil {
			p.log.Info("A runtime is connected", "runtime", b.name)
		}
		p.store.soon()
		b.greetings.Add(1)
	}
}

// greetWait bounds a list that nobody waits for.
const greetWait = 30 * time.Second

func (p *router) greet(ctx context.Context, b *connection, all []kind, isNew bool) error {
	ctx, cancel := context.WithTimeout(ctx, greetWait)
	defer cancel()
	var errs []error
	for _, k := range all {
		errs = append(errs, b.learn(ctx, k))
	}
	if req := p.store.runtimeConfig(); isNew && !b.primary && req != nil {
		if a := b.call(ctx, runtimeService+"UpdateRuntimeConfig", req); a.err != nil && status.Code(a.err) != codes.Unimplemented {
			errs = append(errs, a.err)
		}
	}
	return errors.Join(errs...)
}
