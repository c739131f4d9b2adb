package proxy

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// byHandler gives the backend that declares a handler, else the primary.
func (p *router) byHandler(handler string) *connection {
	for _, b := range p.others() {
		if b.owns(handler) {
			return b
		}
	}
	return p.primary()
}

// byAnnotation gives the backend that annotations ask for, nil if they ask for none. whose says in an error whose annotations they are.
func (p *router) byAnnotation(annotations map[string]string, whose string) (*connection, error) {
	value := annotations[TargetAnnotation]
	if value == "" {
		return nil, nil
	}
	if b, ok := p.words[value]; ok {
		return b, nil
	}
	return nil, status.Errorf(codes.InvalidArgument, "%s: annotation %s: unknown runtime %q; known are %s", whose, TargetAnnotation, value, strings.Join(p.wordList, ", "))
}

// ofSandbox gives the backend of a sandbox that is to be run.
func (p *router) ofSandbox(req *cri.RunPodSandboxRequest) (*connection, error) {
	if h := req.GetRuntimeHandler(); h != "" {
		return p.byHandler(h), nil
	}
	b, err := p.byAnnotation(req.GetConfig().GetAnnotations(), podName(req.GetConfig().GetMetadata()))
	if b == nil && err == nil {
		b = p.primary()
	}
	return b, err
}

func podName(m *cri.PodSandboxMetadata) string {
	return "pod " + m.GetNamespace() + "/" + m.GetName()
}

// ofID gives the owner of a sandbox or container. An id that no answer has told yet is asked for; what no other backend has is the
// primary's. It fails only where a backend that does not answer might have it.
func (p *router) ofID(ctx context.Context, kind kind, id string) (*connection, error) {
	if b := p.knownOwner(kind, id); b != nil {
		return b, nil
	}
	if id == "" {
		return p.primary(), nil
	}
	method := runtimeService + "PodSandboxStatus"
	if kind == containers {
		method = runtimeService + "ContainerStatus"
	}
	req := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), id)
	answers := p.askEach(ctx, p.others(), method, func(*connection) []byte { return req })
	var doubt *connection
	var why error
	for i, b := range p.others() {
		switch a := answers[i]; {
		case a.err == nil:
			return b, nil
		case status.Code(a.err) == codes.NotFound:
		case b.gone(a.err) && b.known.trusted(kind) != unknown:
			// It is away, and what it had is known: this id is not of it.
		default:
			doubt, why = b, a.err
		}
	}
	if doubt == nil {
		return p.primary(), nil
	}
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if a := p.askEach(ctx, p.backends[:1], method, func(*connection) []byte { return req })[0]; a.err == nil {
		return p.primary(), nil
	}
	return nil, status.Errorf(codes.Unavailable, "%s %q: not known here, and runtime %q, which may have it, does not answer: %v", kind.one(), id, doubt.name, why)
}

// knownOwner gives the backend that is known to have an id, nil if none is.
func (p *router) knownOwner(kind kind, id string) *connection {
	for _, b := range p.backends {
		if b.known.has(kind, id) {
			return b
		}
	}
	return nil
}

// ofUnknownMethod guesses by the id in the first field of a message that nobody here can read; nil if there is none that is known.
func (p *router) ofUnknownMethod(msg []byte) *connection {
	if id := stringField(msg, 1); id != "" {
		for _, k := range []kind{sandboxes, containers} {
			if b := p.knownOwner(k, id); b != nil {
				return b
			}
		}
	}
	return nil
}

// place is where an image belongs.
type place struct {
	// b is nil where nothing tells.
	b *connection
	// prefix is what names in the answer get.
	prefix string
}

// ofImage places an image. sandbox is that of a pull, else nil.
func (p *router) ofImage(spec *cri.ImageSpec, sandbox *cri.PodSandboxConfig) (place, error) {
	at := func(b *connection) place { return place{b: b, prefix: b.prefix(spec.GetImage())} }
	if h := spec.GetRuntimeHandler(); h != "" {
		return at(p.byHandler(h)), nil
	}
	b, err := p.byAnnotation(spec.GetAnnotations(), "image "+spec.GetImage())
	if b == nil && err == nil {
		b, err = p.byAnnotation(sandbox.GetAnnotations(), podName(sandbox.GetMetadata()))
	}
	if err != nil {
		return place{}, err
	}
	if b != nil {
		return at(b), nil
	}
	if uid := sandbox.GetMetadata().GetUid(); uid != "" {
		for _, b := range p.others() {
			ours := b.known.any(sandboxes, func(body []byte) bool {
				var s cri.PodSandbox
				return proto.Unmarshal(body, &s) == nil && s.GetMetadata().GetUid() == uid
			})
			if ours {
				return at(b), nil
			}
		}
	}
	for _, b := range p.others() {
		if b.prefix(spec.GetImage()) != "" {
			return at(b), nil
		}
	}
	return place{}, nil
}

// digestOf gives the algorithm and the hexadecimal part of an image's id or bare digest, "" where the name is neither.
func digestOf(name string) (algorithm, digest string) {
	algorithm, digest, ok := strings.Cut(name, ":")
	if !ok {
		algorithm, digest = "sha256", name
	}
	hex := func(c rune) bool { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') }
	if !strings.HasPrefix(algorithm, "sha") || len(digest) < 64 || strings.ContainsFunc(digest, func(c rune) bool { return !hex(c) }) {
		return "", ""
	}
	return algorithm, digest
}

// isID tells ids and bare digests ("sha256:…", or 64 hexadecimal digits) from names.
func isID(name string) bool {
	_, digest := digestOf(name)
	return digest != ""
}

// sameID compares an image's id with a name, which may lack the id's algorithm or have it where the id does not.
func sameID(id, name string) bool {
	a, d := digestOf(id)
	b, e := digestOf(name)
	return id == name || (d != "" && a == b && d == e)
}

// patience is how long one backend may take for its part in an answer that is made of several. The primary has what its caller gave it, so
// that a busy node's own runtime is not cut short where it would not be without a proxy.
func (p *router) patience(ctx context.Context, b *connection) time.Duration {
	d := p.config.ListTimeout
	if b.primary {
		d = primaryPatience
	}
	if end, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(end)*3/4)
	}
	return d
}

// primaryPatience is for callers without a deadline of their own, and no shorter than the two minutes of a kubelet.
const primaryPatience = 2 * time.Minute

// askEach asks backends at once, each with its deadline, and gives the answers in their order. One that is known to be away costs no time.
func (p *router) askEach(ctx context.Context, whom []*connection, method string, req func(*connection) []byte) []answer {
	answers := make([]answer, len(whom))
	ctx = outgoing(ctx)
	done := make(chan struct{}, len(whom))
	ask := func(i int) {
		ctx, cancel := context.WithTimeout(ctx, p.patience(ctx, whom[i]))
		defer cancel()
		answers[i] = whom[i].call(ctx, method, req(whom[i]))
		done <- struct{}{}
	}
	// The first is asked by this goroutine: often it is the only one.
	for i := 1; i < len(whom); i++ {
		go ask(i)
	}
	if len(whom) > 0 {
		ask(0)
	}
	for range whom {
		<-done
	}
	return answers
}

// others are the backends beside the primary.
func (p *router) others() []*connection { return p.backends[1:] }

func (p *router) primary() *connection { return p.backends[0] }
