package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Source is where a name comes from that has no scheme and that no translation knows.
type Source string

// Sources.
const (
	// SourceByName takes names that end in .qcow2, .img or .raw for URLs, and all others for a registry's.
	SourceByName Source = "name"
	// SourceRegistry takes all names for a registry's.
	SourceRegistry Source = "registry"
	// SourceURL takes all names for URLs, as Virtlet does.
	SourceURL Source = "url"
)

// Request is a pull.
type Request struct {
	// Name is the image's: see ParseName.
	Name string
	// Auth are credentials for a registry; nil for none. URLs never get them.
	Auth *Auth
	// Progress, if not nil, is called now and then with the bytes of the file under way that have come, and how many it has, or -1. It must be quick, and
	// may still be called once when ctx has ended Pull.
	Progress func(done, total int64)
}

// flight is a pull that several callers may wait for.
type flight struct {
	cancel  context.CancelCauseFunc
	done    chan struct{}
	image   Image
	err     error
	waiting map[*Request]bool
}

// errNobody ends a pull that nobody waits for any longer.
var errNobody = errors.New("nobody waits for it any longer")

// Pull gets an image, and gives it as it is in the store then. A registry, and a server that told a validator, are asked whether what the store has is still what they have.
// Pulls of one name with the same credentials are one. One that ends early leaves what came for the next.
//
// Errors name the image. Invalid: the name, the image or the credentials are refused, and trying again will not help. NotFound: there is no such
// image. Unavailable: a server or ctx. Exhausted: a limit of Options, or the disk is full.
func (s *Store) Pull(ctx context.Context, request Request) (Image, error) {
	name, err := ParseName(request.Name)
	if err != nil {
		return Image{}, err
	}
	f := s.join(name, &request)
	select {
	case <-f.done:
	case <-ctx.Done():
		s.mu.Lock()
		delete(f.waiting, &request)
		if len(f.waiting) == 0 {
			f.cancel(errNobody)
		}
		s.mu.Unlock()
		return Image{}, vm.Errorf(vm.Unavailable, "image %s: %w", quote(name.String()), context.Cause(ctx))
	}
	if f.err != nil {
		return Image{}, fmt.Errorf("image %s: %w", quote(name.String()), f.err)
	}
	return f.image, nil
}

// join finds the pull of a name, or starts one.
func (s *Store) join(name Name, request *Request) *flight {
	key := name.scheme + " " + name.String() + " " + request.Auth.fingerprint()
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.flights[key]; f != nil && len(f.waiting) > 0 {
		f.waiting[request] = true
		return f
	}
	f := &flight{done: make(chan struct{}), waiting: map[*Request]bool{request: true}}
	if s.ended.Err() != nil {
		f.err = vm.Errorf(vm.Unavailable, "the image store is closed")
		close(f.done)
		return f
	}
	s.flights[key] = f
	base, end := context.WithTimeout(s.ended, s.options.PullTimeout)
	ctx, cancel := context.WithCancelCause(base)
	f.cancel = cancel
	s.running.Go(func() {
		defer end()
		image, err := s.fly(ctx, name, request.Auth, func(done, total int64) { s.report(f, done, total) })
		s.mu.Lock()
		defer s.mu.Unlock()
		f.image, f.err = image, err
		if s.flights[key] == f {
			delete(s.flights, key)
		}
		close(f.done)
	})
	return f
}

func (s *Store) report(f *flight, done, total int64) {
	s.mu.Lock()
	var tell []func(int64, int64)
	for request := range f.waiting {
		if request.Progress != nil {
			tell = append(tell, request.Progress)
		}
	}
	s.mu.Unlock()
	for _, progress := range tell {
		progress(done, total)
	}
}

// fingerprint keeps pulls with different credentials apart: who has none must not wait for the image of who has.
func (a *Auth) fingerprint() string {
	if a == nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{a.Username, a.Password, a.Auth, a.ServerAddress, a.IdentityToken, a.RegistryToken}))
	return hex.EncodeToString(sum[:])
}

// fly does a pull. A defect that an image brings out ends the pull and not the process.
func (s *Store) fly(ctx context.Context, name Name, auth *Auth, progress func(int64, int64)) (image Image, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = vm.Errorf(vm.Internal, "a defect: %v\n%s", r, debug.Stack())
		}
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = vm.Errorf(vm.Unavailable, "%w (%w)", err, cause)
		}
	}()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return Image{}, context.Cause(ctx)
	}
	from, err := s.source(name)
	if err != nil {
		return Image{}, err
	}
	var names record
	if tag := name.Tagged(); tag != "" && name.Digest == "" {
		names.Tags = []string{tag}
	}
	var r record
	if from.reference.Repository != "" {
		r, err = s.pullRegistry(ctx, names, name, from.reference, auth, progress)
	} else {
		r, err = s.pullURL(ctx, names, name, from, progress)
	}
	if err != nil {
		if from.rule != "" {
			err = fmt.Errorf("%s: %w", from.rule, err)
		}
		return Image{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.image(r), nil
}

// place is where an image comes from: a registry's reference, or a URL.
type place struct {
	reference Name
	url       string
	transport Transport
	trusted   bool   // the node's administrator wrote it
	rule      string // which did, for errors
}

// source decides where a name comes from. See the package's description.
func (s *Store) source(name Name) (place, error) {
	switch {
	case name.isURL():
		return place{url: name.Repository}, nil
	case name.scheme == schemeOCI:
		return place{reference: name}, nil
	}
	mappings, broken := s.mappings()
	if t, ok := translate(mappings, name.Repository, !s.options.ExactOnly); ok {
		to := place{url: t.url, transport: t.transport, trusted: true, rule: t.from}
		scheme, _, hasScheme := strings.Cut(t.url, "://")
		switch {
		case !hasScheme:
			to.url = s.options.DownloadProtocol + "://" + t.url
		case scheme == schemeOCI:
			reference, err := ParseName(t.url)
			if err != nil {
				return place{}, fmt.Errorf("%s: %w", t.from, err)
			}
			if reference.Digest == "" && name.Digest != "" {
				reference.Digest = name.Digest
			}
			to.reference, to.url = reference, ""
		}
		return to, nil
	}
	if host, _ := splitHost(name.Repository); host == "" && len(broken) > 0 {
		// A name without a host means what a translation says. Were it looked for elsewhere instead, anybody could offer it there.
		return place{}, vm.Errorf(vm.Unavailable, "no translation knows it, and some could not be read: %w", errors.Join(broken...))
	}
	if s.options.DefaultSource == SourceURL || s.options.DefaultSource == SourceByName && name.namesFile() {
		return place{url: s.options.DownloadProtocol + "://" + name.Repository}, nil
	}
	return place{reference: name}, nil
}

// mappings gives the mappings in the order in which they count, and what is wrong with those that are left out.
func (s *Store) mappings() ([]Mapping, []error) {
	var (
		good   []Mapping
		broken []error
	)
	if s.options.Mappings != nil {
		given, err := s.options.Mappings()
		if err != nil {
			broken = append(broken, err)
		}
		for _, m := range given {
			if err := m.Validate(); err != nil {
				broken = append(broken, err)
				continue
			}
			good = append(good, m)
		}
	}
	files, errs := readMappings(s.options.TranslationDir)
	return append(good, files...), append(broken, errs...)
}

func (s *Store) pullURL(ctx context.Context, names record, name Name, from place, progress func(int64, int64)) (record, error) {
	if name.Digest != "" {
		names.Digests = []string{name.With(name.Digest)}
		known, ok, err := s.known(names, func(r record) bool { return r.ID == name.Digest })
		if ok || err != nil {
			return known, err
		}
	}
	u, err := url.Parse(from.url)
	if err != nil || u.Hostname() == "" || u.Scheme != schemeHTTP && u.Scheme != schemeHTTPS {
		return record{}, vm.Errorf(vm.Invalid, "its URL must be of scheme http or https, and have a host")
	}
	c, err := newCaller(u, from.transport)
	if err != nil {
		return record{}, err
	}
	defer c.close()
	c.loopback = from.trusted || s.options.AllowLoopbackURLs
	c.plain = c.plain || name.Digest != "" // what has a digest may come by any way
	where := partKey("url", from.url)
	key := partKey("url", from.url, string(name.Digest))
	release, err := s.hold(ctx, key)
	if err != nil {
		return record{}, err
	}
	defer release()
	p, err := s.openPart(ctx, key)
	if err != nil {
		return record{}, err
	}
	have := ""
	if name.Digest == "" { // else what the store has is not what is asked for
		have = s.validator(where)
	}
	err = s.fetch(ctx, p, download{
		client: c.client(c, from.transport.timeout()), url: from.url, digest: name.Digest, size: -1, have: have, disk: true, progress: progress,
	})
	same := func(r record) bool { return r.origin(where) != "" }
	if errors.Is(err, errUnchanged) {
		p.discard()
		return s.again(names, name, same)
	}
	if err != nil {
		p.leave(err)
		return record{}, err
	}
	names.Digests = []string{name.With(p.digest())}
	if v := p.state.Validator; v != "" {
		names.Origins = []origin{{URL: where, Validator: v}}
	}
	return s.take(p, "", names)
}

// again gives names to an image that a URL still has.
func (s *Store) again(names record, name Name, same func(record) bool) (record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.index.Images {
		if same(r) && s.present(r.ID, r.Size) {
			r.Tags, r.Digests = names.Tags, []string{name.With(r.ID)}
			return s.add(r)
		}
	}
	return record{}, vm.Errorf(vm.Unavailable, "it was removed while the server was asked for changes")
}

// validator gives what the server of a URL called the content that the store has from there, or nothing.
func (s *Store) validator(where string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.index.Images {
		if v := r.origin(where); v != "" && s.present(r.ID, r.Size) {
			return v
		}
	}
	return ""
}

func (r record) origin(where string) string {
	for _, o := range r.Origins {
		if o.URL == where {
			return o.Validator
		}
	}
	return ""
}

// hold waits until nobody else writes the part of a key, and keeps others and GC from it until release.
func (s *Store) hold(ctx context.Context, key string) (release func(), err error) {
	for {
		s.mu.Lock()
		before := s.busy[key]
		if before == nil {
			mine := make(chan struct{})
			s.busy[key] = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.busy, key)
				close(mine)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
