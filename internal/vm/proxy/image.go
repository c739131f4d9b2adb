package proxy

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// image serves ImageStatus, PullImage and RemoveImage.
func (p *router) image(ctx context.Context, method string, r rule, req []byte) answer {
	// The three requests have the spec as field 1; a pull has its sandbox as field 3. The removal and the status are read as if they were
	// pulls.
	var m cri.PullImageRequest
	if r.way == pull {
		if err := proto.Unmarshal(req, &m); err != nil {
			return unreadable(method, err)
		}
	} else {
		var s cri.RemoveImageRequest
		if err := proto.Unmarshal(req, &s); err != nil {
			return unreadable(method, err)
		}
		m.Image = s.GetImage()
	}
	at, err := p.ofImage(m.GetImage(), m.GetSandboxConfig())
	if err != nil {
		return failed(err)
	}
	switch {
	case at.b != nil:
		return p.imageAt(ctx, at, method, r, req)
	case r.way == pull:
		return p.imageAt(ctx, place{b: p.primary()}, method, r, req)
	case r.way == imageStatus:
		return p.findImage(ctx, method, m.GetImage().GetImage(), req)
	default:
		return p.removeEverywhere(ctx, method, m.GetImage().GetImage(), req)
	}
}

// imageAt makes a call where the image belongs.
func (p *router) imageAt(ctx context.Context, at place, method string, r rule, req []byte) answer {
	body, err := editStrings(req, []protowire.Number{1, 1}, at.b.strip)
	if err != nil {
		return unreadable(method, err)
	}
	a := at.b.call(outgoing(ctx), method, body)
	if a.err != nil {
		return a
	}
	switch r.way {
	case pull:
		at.b.ask(askImages)
		a.body, err = editStrings(a.body, []protowire.Number{1}, addPrefix(at.prefix))
	case removeImage:
		at.b.ask(askImages)
	case imageStatus:
		a.body, err = editAll(a.body, within(1, imageNames()), addPrefix(at.prefix))
	}
	if err != nil {
		return failed(status.Errorf(codes.Internal, "%s: answer of runtime %q: %v", method, at.b.name, err))
	}
	return a
}

// hasImage tells whether an ImageStatus answer has an image.
func hasImage(body []byte) bool {
	found := false
	err := eachField(body, func(num protowire.Number, typ protowire.Type, _, _ []byte) error {
		found = found || (num == 1 && typ == protowire.BytesType)
		return nil
	})
	return err == nil && found
}

// lost gives the error for an image that a backend is known to have and does not answer about.
func (p *router) lost(b *connection, name string, why error) error {
	if !b.known.any(images, func(body []byte) bool { return isImage(body, name) }) {
		return nil
	}
	return status.Errorf(codes.Unavailable, "image %s is at runtime %q, which does not answer: %v", name, b.name, why)
}

// findImage serves ImageStatus where nothing tells whose the image is: the primary's answer if it has it or fails, else that of the first
// connection that has it.
func (p *router) findImage(ctx context.Context, method, name string, req []byte) answer {
	first := p.primary().call(outgoing(ctx), method, req)
	if first.err == nil && hasImage(first.body) {
		return first
	}
	if first.err != nil && !isID(name) {
		return first
	}
	var doubt error
	answers := p.askEach(ctx, p.others(), method, func(*connection) []byte { return req })
	for i, b := range p.others() {
		a := answers[i]
		if a.err == nil && hasImage(a.body) {
			prefix := ""
			if isID(name) && len(b.prefixes) > 0 {
				prefix = b.prefixes[0] // the names are new to the caller, and have to find their way back
			}
			var err error
			if a.body, err = editAll(a.body, within(1, imageNames()), addPrefix(prefix)); err != nil {
				return failed(status.Errorf(codes.Internal, "%s: answer of runtime %q: %v", method, b.name, err))
			}
			return a
		}
		if a.err != nil && doubt == nil {
			doubt = p.lost(b, name, a.err)
		}
	}
	if first.err == nil && doubt != nil {
		return failed(doubt)
	}
	return first
}

// removeEverywhere serves RemoveImage where nothing tells whose the image is. An id or digest is removed wherever it is, a name where it is
// first found: with the primary, then with the others in order.
func (p *router) removeEverywhere(ctx context.Context, method, name string, req []byte) answer {
	// The statuses are asked for without what the removal's spec says besides the name.
	ask, err := proto.Marshal(&cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
	if err != nil {
		return unreadable(method, err)
	}
	answers := p.askEach(ctx, p.backends, imageService+"ImageStatus", func(*connection) []byte { return ask })
	var removed, failure *answer
	var doubt error
	for i, b := range p.backends {
		a := answers[i]
		if a.err != nil {
			if doubt == nil {
				doubt = p.lost(b, name, a.err)
			}
			if b.primary && !isID(name) {
				return a // it would be the primary's if the primary had it
			}
			continue
		}
		if !hasImage(a.body) || (removed != nil && !isID(name)) {
			continue
		}
		done := b.call(outgoing(ctx), method, req)
		b.ask(askImages)
		if done.err != nil && failure == nil {
			failure = &done
		} else if removed == nil {
			removed = &done
		}
	}
	switch {
	case failure != nil:
		return *failure
	case doubt != nil:
		return failed(doubt)
	case removed != nil:
		return *removed
	default:
		return p.primary().call(outgoing(ctx), method, req)
	}
}
