package cycles

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/replay"
)

// The annotations of a scheduler's Lease that say where its leader serves its cycles: a URL, and the SHA-256 of the certificate there.
const (
	AnnotationAddress     = "muster.dev/cycles"
	AnnotationFingerprint = "muster.dev/cycles-certificate"
)

// Place is where a scheduler serves its cycles, and the certificate that it has.
type Place struct{ URL, Fingerprint string }

// Notes are the annotations that say so.
func (p Place) Notes() map[string]string {
	return map[string]string{AnnotationAddress: p.URL, AnnotationFingerprint: p.Fingerprint}
}

// PlaceOf reads a Lease. The error says what the scheduler has to do first.
func PlaceOf(l *coordinationv1.Lease) (Place, error) {
	p := Place{l.Annotations[AnnotationAddress], l.Annotations[AnnotationFingerprint]}
	switch {
	case l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "":
		return p, fmt.Errorf("nobody holds the Lease %s/%s: no scheduler leads", l.Namespace, l.Name)
	case p.URL == "" || p.Fingerprint == "":
		return p, fmt.Errorf("the Lease %s/%s does not say where cycles are served: the scheduler runs without --cycle-listen-address", l.Namespace, l.Name)
	}
	return p, nil
}

// Client follows the cycles of one scheduler. Make one with its first fields set; Run follows.
type Client struct {
	// Find says where the scheduler is that leads now; it is asked before each connection.
	Find func(ctx context.Context) (Place, error)
	// Token is the bearer token to show there.
	Token func() (string, error)
	// Changed, if set, is called after each entry that was taken in.
	Changed func(replay.EntryKind)
	// Entry, if set, is called with each entry that was taken in, before Changed; whole makes a keyframe of the latest cycle, which costs O(objects). What it does delays this reader, and so the
	// cycles that are let go by for it.
	Entry func(e *replay.Entry, whole func() (*replay.Entry, error))
	// Pause is the time between two connections; 0 is a second.
	Pause time.Duration

	mu       sync.Mutex
	follower replay.Follower
	heard    time.Time // when an entry last came
	err      error     // why there is no connection; nil while there is one
}

// ErrRefused says that the scheduler does not let this caller read its cycles, or has no room for him. It wraps what it said.
var ErrRefused = errors.New("the scheduler refuses")

// Run follows until ctx ends. A connection that breaks is made anew, to whoever leads then; Latest says what is wrong meanwhile.
func (c *Client) Run(ctx context.Context) error {
	pause := c.Pause
	if pause == 0 {
		pause = time.Second
	}
	for ctx.Err() == nil {
		err := c.once(ctx)
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return nil
}

// silence is how long a scheduler may say nothing: it says every second that it is there.
const silence = 15 * time.Second

// once follows one connection; its error says why it ended.
func (c *Client) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	resp, where, err := c.ask(ctx, http.MethodGet, Path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refused(resp, where)
	}
	lines := bufio.NewReaderSize(resp.Body, 1<<16)
	for {
		text, err := line(lines)
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the scheduler at %s has ended the stream", where)
		}
		if err != nil {
			return fmt.Errorf("follow the scheduler at %s: %w", where, err)
		}
		quiet.Reset(silence)
		e, err := replay.ReadEntry(text)
		if err != nil {
			return err
		}
		kind, err := c.take(e)
		if err != nil {
			return err
		}
		if c.Entry != nil {
			c.Entry(e, c.whole)
		}
		if c.Changed != nil {
			c.Changed(kind)
		}
	}
}

// line reads a line, into memory of its own: a keyframe's is not held for the changes after it. io.EOF: there is no more.
func line(r *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		part, err := r.ReadSlice('\n')
		if text = append(text, part...); err == nil {
			return text, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if len(text) > int(replay.DefaultLimits().Unpacked) {
			return nil, bufio.ErrTooLong
		}
	}
}

// ErrUnwanted says that the scheduler has no use for forecasts.
var ErrUnwanted = errors.New("the scheduler wants no forecasts")

// Tell gives whoever leads now a forecast of its gangs, as JSON. The error wraps ErrUnwanted, or ErrRefused and what the scheduler said.
func (c *Client) Tell(ctx context.Context, outlook []byte) error {
	resp, where, err := c.ask(ctx, http.MethodPost, OutlookPath, bytes.NewReader(outlook))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return ErrUnwanted
	case resp.StatusCode != http.StatusOK:
		return refused(resp, where)
	}
	return nil
}

// ask sends a request to whoever leads now. The connection ends with the answer's body.
func (c *Client) ask(ctx context.Context, method, path string, body io.Reader) (_ *http.Response, where string, err error) {
	place, err := c.Find(ctx)
	if err != nil {
		return nil, "", err
	}
	token, err := c.Token()
	if err != nil {
		return nil, "", err
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(place.URL, "/")+path, body)
	if err != nil {
		return nil, "", fmt.Errorf("ask the scheduler at %.200q: %w", place.URL, err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{TLSClientConfig: Pinned(place.Fingerprint), ForceAttemptHTTP2: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		transport.CloseIdleConnections()
		return nil, "", fmt.Errorf("ask the scheduler at %s: %w", place.URL, err)
	}
	resp.Body = &lastOf{resp.Body, transport}
	return resp, place.URL, nil
}

// lastOf is the body of the one answer of a transport, with which its connection ends.
type lastOf struct {
	io.ReadCloser
	transport *http.Transport
}

func (b *lastOf) Close() error {
	defer b.transport.CloseIdleConnections()
	return b.ReadCloser.Close()
}

// refused is the error of an answer that is none.
func refused(resp *http.Response, where string) error {
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 512)) // what it said is only told
	return fmt.Errorf("%w at %s: %s: %s", ErrRefused, where, resp.Status, strings.TrimSpace(string(said)))
}

func (c *Client) take(e *replay.Entry) (replay.EntryKind, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind, err := c.follower.Add(e)
	if err == nil {
		c.heard, c.err = time.Now(), nil
	}
	return kind, err
}

func (c *Client) whole() (*replay.Entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.follower.Whole()
}

// Latest is the latest cycle, its number, the cluster that it is of, and when the scheduler was last heard of; nil for none. An error says why there is no
// connection now: the cycle is then the last one that came. O(objects).
func (c *Client) Latest() (now *replay.Case, number uint64, cluster string, heard time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	number, _ = c.follower.Cycle()
	return c.follower.Case(), number, c.follower.Cluster(), c.heard, c.err
}

// At is the moment of the latest cycle, zero for none. O(1).
func (c *Client) At() cluster.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.follower.At()
}

// Heard is when the scheduler was last heard of, zero for never, and why there is no connection now, nil while there is one. O(1).
func (c *Client) Heard() (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard, c.err
}

// Missed is how many cycles were left out because this reader was too slow.
func (c *Client) Missed() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, missed := c.follower.Cycle()
	return missed
}

// Pinned is a client's configuration that accepts the one certificate of that hash, whatever it says, and no other.
func Pinned(print string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // the hash is what is verified: it says more than a name and an authority
		VerifyPeerCertificate: func(certs [][]byte, _ [][]*x509.Certificate) error {
			if len(certs) == 0 || Fingerprint(certs[0]) != strings.ToLower(print) {
				return errors.New("its certificate is not the one that was named")
			}
			return nil
		},
	}
}
