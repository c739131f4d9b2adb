package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Bounds of one download. A try that brought bytes is not counted among those in vain.
const (
	maxVain  = 5
	maxTries = 1000
	firstGap = 500 * time.Millisecond
	lastGap  = 8 * time.Second
)

// download is one file to be fetched over HTTP into a part.
type download struct {
	client *http.Client
	url    string
	accept string
	// digest and size of the content; empty and -1 where they are not known.
	digest Digest
	size   int64
	// have is the validator of content that the store has.
	have string
	// disk is set for what should be a disk: a page for people is refused early.
	disk     bool
	progress func(done, total int64)
}

// errUnchanged says that the server still has what download.have names.
var errUnchanged = errors.New("not modified")

// errStalled ends a request whose body stands still.
var errStalled = errors.New("no bytes came for too long")

// fetch fills a part, going on where it stands, over as many requests as it takes. What it has broken off stays in the part for a later try; what
// turned out to be wrong does not.
func (s *Store) fetch(ctx context.Context, p *part, d download) error {
	gap, again := firstGap, false
	for try, vain := 0, 0; ; try++ {
		before := p.size
		err := s.request(ctx, p, &d)
		if err == nil {
			if d.digest == "" || p.digest() == d.digest {
				return nil
			}
			err = vm.Errorf(vm.Invalid, "its digest is %s, and %s is asked for", p.digest(), d.digest)
			if before == 0 || again {
				return err
			}
			// It came in pieces: one of them may be of something else.
			again = true
			if err := p.reset(""); err != nil {
				return err
			}
			continue
		}
		if vm.KindOf(err) != vm.Unavailable || context.Cause(ctx) != nil {
			return err
		}
		if vain++; p.size > before {
			vain, gap = 0, firstGap
			if err := p.checkpoint(); err != nil {
				return err
			}
		}
		if vain >= maxVain || try >= maxTries {
			return err
		}
		if err := s.options.wait(ctx, gap); err != nil {
			return err
		}
		gap = min(2*gap, lastGap)
	}
}

// request makes one request and appends what it brings. Unavailable errors are worth another try.
func (s *Store) request(ctx context.Context, p *part, d *download) error {
	if d.size >= 0 && p.size == d.size && p.size > 0 {
		return nil
	}
	if p.size > 0 && (d.digest == "" && p.state.Validator == "" || d.size >= 0 && p.size > d.size) {
		if err := p.reset(""); err != nil { // nobody could tell whether the rest belongs to it
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, nil)
	if err != nil {
		return vm.Errorf(vm.Invalid, "%w", withoutURL(err))
	}
	r.Header.Set("Accept-Encoding", "identity") // a range of something packed on the way would be of the packed bytes
	if d.accept != "" {
		r.Header.Set("Accept", d.accept)
	}
	conditions(r.Header, p, d)
	stall := time.AfterFunc(s.options.StallTimeout+headerTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	response, err := d.client.Do(r)
	if err != nil {
		return transient(ctx, err)
	}
	defer response.Body.Close()
	total, err := p.begin(response, d)
	if err != nil || total == p.size && total > 0 {
		return err
	}
	if err := p.room(total - p.size); err != nil {
		return err
	}
	d.progress(p.size, total)
	body := &stalling{r: response.Body, timer: stall, limit: s.options.StallTimeout}
	if total >= 0 {
		body.r = io.LimitReader(response.Body, total-p.size)
	}
	err = p.copy(body, func() { d.progress(p.size, total) })
	var broken readError
	switch {
	case errors.As(err, &broken):
		return transient(ctx, broken.error)
	case err != nil:
		return err
	case total >= 0 && p.size < total:
		return vm.Errorf(vm.Unavailable, "the server ended after %d of %d bytes", p.size, total)
	}
	return nil
}

// conditions asks for the rest of what is in the part, or for nothing if the store has it.
func conditions(h http.Header, p *part, d *download) {
	switch {
	case p.size > 0:
		last := ""
		if d.size > 0 {
			last = fmt.Sprint(d.size - 1)
		}
		h.Set("Range", fmt.Sprintf("bytes=%d-%s", p.size, last))
		if d.digest == "" {
			h.Set("If-Range", p.state.Validator)
		}
	case strings.HasPrefix(d.have, `"`):
		h.Set("If-None-Match", d.have)
	case d.have != "":
		h.Set("If-Modified-Since", d.have)
	}
}

// begin judges the head of a response, readies the part for its body, and gives the size of the whole, or -1.
func (p *part) begin(response *http.Response, d *download) (int64, error) {
	total := int64(-1)
	switch response.StatusCode {
	case http.StatusOK:
		total = response.ContentLength
		if err := p.reset(validator(response.Header)); err != nil {
			return 0, err
		}
	case http.StatusPartialContent:
		var first, last int64
		if n, _ := fmt.Sscanf(response.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &total); n != 3 || first != p.size || last < first || last != total-1 {
			if err := p.reset(""); err != nil {
				return 0, err
			}
			return 0, vm.Errorf(vm.Unavailable, "the server answered with another range than was asked for: %s", quote(response.Header.Get("Content-Range")))
		}
	case http.StatusRequestedRangeNotSatisfiable:
		if n, _ := fmt.Sscanf(response.Header.Get("Content-Range"), "bytes */%d", &total); n == 1 && total == p.size && p.state.Validator != "" {
			return total, nil // all of it came before
		}
		if err := p.reset(""); err != nil {
			return 0, err
		}
		return 0, vm.Errorf(vm.Unavailable, "the server refused the range that was asked for")
	case http.StatusNotModified:
		if p.size == 0 && d.have != "" {
			return 0, errUnchanged
		}
		return 0, vm.Errorf(vm.Unavailable, "the server answered 304 to a request without that condition")
	default:
		return 0, badStatus(response)
	}
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return 0, vm.Errorf(vm.Invalid, "the server packed it (Content-Encoding %s) although it was asked not to", quote(encoding))
	}
	if kind := response.Header.Get("Content-Type"); d.disk && strings.HasPrefix(strings.ToLower(kind), "text/html") {
		return 0, vm.Errorf(vm.Invalid, "the server sent a page (Content-Type %s) and no disk", quote(kind))
	}
	if d.size >= 0 && total >= 0 && total != d.size {
		return 0, vm.Errorf(vm.Invalid, "the server says that it has %d bytes, and %d are asked for", total, d.size)
	}
	if total < 0 {
		total = d.size
	}
	if total > p.s.options.MaxBytes {
		return 0, vm.Errorf(vm.Exhausted, "it has %d bytes, and this node takes at most %d", total, p.s.options.MaxBytes)
	}
	return total, nil
}

// validator gives what a later request can name the content by: a strong entity tag, or a date that RFC 9110, section 8.8.2.2, lets pass for one.
func validator(h http.Header) string {
	if tag := h.Get("ETag"); strings.HasPrefix(tag, `"`) && len(tag) < 1024 {
		return tag
	}
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return ""
	}
	if date, err := http.ParseTime(h.Get("Date")); err != nil || date.Sub(modified) < time.Second {
		return ""
	}
	return modified.UTC().Format(http.TimeFormat)
}

// badStatus gives a response that is none of the good ones the kind that says what to do.
func badStatus(response *http.Response) error {
	kind, status := vm.Invalid, response.StatusCode
	switch {
	case status == http.StatusNotFound || status == http.StatusGone:
		kind = vm.NotFound
	case status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests:
		kind = vm.Unavailable
	}
	text := fmt.Sprintf("the server %s answered %d", quote(response.Request.URL.Host), status)
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		text += ": it wants other credentials, or there is no such image"
	}
	return vm.Errorf(kind, "%s", text)
}

// transient gives an error of a request its kind: what was refused here stays so, all else may pass.
func transient(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
		err = cause
	}
	err = withoutURL(err)
	if kind := vm.KindOf(err); kind != vm.Internal {
		return vm.Errorf(kind, "%w", err)
	}
	return vm.Errorf(vm.Unavailable, "%w", err)
}

// withoutURL takes a URL out of an error: it may hold credentials, in its query too.
func withoutURL(err error) error {
	var at *url.Error
	if !errors.As(err, &at) {
		return err
	}
	host := "the server"
	if u, parsed := url.Parse(at.URL); parsed == nil {
		host = quote(u.Host)
	}
	return fmt.Errorf("asking %s: %w", host, at.Err)
}

// stalling ends its request if nothing comes for a while.
type stalling struct {
	r     io.Reader
	timer *time.Timer
	limit time.Duration
}

func (s *stalling) Read(b []byte) (int, error) {
	s.timer.Reset(s.limit)
	defer s.timer.Stop() // the disk may take its time
	return s.r.Read(b)
}
