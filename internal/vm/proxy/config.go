package proxy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/vm/metrics"
)

const (
	// TargetAnnotation names the backend of a pod without a runtime handler. The key is the one that Virtlet's users have in their pods.
	TargetAnnotation = "kubernetes.io/target-runtime"
	// StaleTrailer is in the trailer of a list that has last known items: the names of the backends that did not answer.
	StaleTrailer = "muster-stale-backends"
	// ConditionPrefix begins the type of the condition that Status has of each backend; its name follows.
	ConditionPrefix = "Backend/"

	primaryName = "primary"
)

// Config says where the proxy listens and what stands behind it.
type Config struct {
	// Listen is the path of the socket that the kubelet is given. A leading "unix://" is legal here and in the other sockets.
	Listen string
	// Mode is the socket's: 0600, which 0 stands for, or 0660.
	Mode os.FileMode
	// Primary is the socket of the runtime that has every pod which names no other.
	Primary string
	// Backends are the other runtimes, in the order in which they are asked. There may be none.
	Backends []Backend
	// State is the file in which outlives a restart what backends have. Its folder must exist. One process at a time may have
	// it open. Empty: a proxy that starts while a backend is away fails lists until it is back.
	State string
	// ListTimeout bounds how long a backend beside the primary may hold up an answer that is made of several: default 3 s. The primary may
	// take as long as the caller waits. Each gets at most three quarters of what the caller's own deadline leaves.
	ListTimeout time.Duration
	// StatusEvery is how often the backends beside the primary are asked how they are: default 5 s. What one said counts for twice as long, so
	// that Status waits for the primary alone. Below 0: they are asked whenever Status is asked for.
	StatusEvery time.Duration
	// Grace is how long calls under way may go on when the proxy is asked to end: default 5 s.
	Grace time.Duration
	// Metrics has this process's calls, and which runtimes are there. nil: nobody counts.
	Metrics *metrics.Set `json:"-"`
	// Ready, if set, is called once calls are answered.
	Ready func() `json:"-"`
}

// Backend is one runtime beside the primary.
type Backend struct {
	// Name is its word in annotations, conditions and messages, and the key of what is known of it in Config.State: a lower-case DNS
	// label or several with dots. A backend that gets another name is a new one.
	Name string
	// Socket is the path of its CRI socket; both services are there.
	Socket string
	// Handlers are the runtime handlers that are its own.
	Handlers []string
	// ImagePrefixes are what begins the names of its images, each with a slash at the end ("virtlet.cloud/"). Answers use the first.
	ImagePrefixes []string
}

// words are the values of the target annotation that mean the backend.
func (b Backend) words() []string {
	out := append([]string{b.Name}, b.Handlers...)
	for _, p := range b.ImagePrefixes {
		out = append(out, strings.TrimSuffix(p, "/"))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func nameSyntax() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
}

func socketPath(s string) string { return strings.TrimPrefix(s, "unix://") }

// complete checks the configuration and fills in its defaults. The error names every field that breaks a rule.
func (c Config) complete() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("proxy configuration: "+format, args...))
	}

	owner := map[string]string{} // socket → field
	socket := func(field string, path *string) {
		*path = socketPath(*path)
		if !filepath.IsAbs(*path) {
			bad("%s: %q is not an absolute path of a socket", field, *path)
			return
		}
		*path = filepath.Clean(*path)
		if other := owner[*path]; other != "" {
			bad("%s: %q is already %s", field, *path, other)
		}
		owner[*path] = field
	}
	socket("Listen", &c.Listen)
	socket("Primary", &c.Primary)

	c.Backends = slices.Clone(c.Backends)
	means := map[string]string{} // word → backend
	names := map[string]bool{primaryName: true}
	var prefixes []string
	for i := range c.Backends {
		b := &c.Backends[i]
		field := fmt.Sprintf("Backends[%d]", i)
		if len(b.Name) > 63 || !nameSyntax().MatchString(b.Name) {
			bad("%s.Name: %q is not a lower-case DNS name of at most 63 characters", field, b.Name)
		}
		if names[b.Name] {
			bad("%s.Name: %q is taken", field, b.Name)
		}
		names[b.Name] = true
		socket(field+".Socket", &b.Socket)
		for _, h := range b.Handlers {
			if h == "" {
				bad("%s.Handlers: the empty handler is always the primary's", field)
			}
		}
		for _, p := range b.ImagePrefixes {
			if len(p) < 2 || !strings.HasSuffix(p, "/") || strings.HasPrefix(p, "/") {
				bad("%s.ImagePrefixes: %q does not end in a slash with a name before it", field, p)
			}
			for _, other := range prefixes {
				if strings.HasPrefix(p, other) || strings.HasPrefix(other, p) {
					bad("%s.ImagePrefixes: %q and %q begin the same names", field, p, other)
				}
			}
			prefixes = append(prefixes, p)
		}
		for _, w := range b.words() {
			if other := means[w]; other != "" && other != b.Name {
				bad("%s: %q (name, handler or image prefix) already means backend %q", field, w, other)
			}
			means[w] = b.Name
		}
	}
	switch c.Mode {
	case 0:
		c.Mode = 0o600
	case 0o600, 0o660:
	default:
		bad("Mode: %04o is neither 0600 nor 0660", c.Mode)
	}
	if c.State != "" && !filepath.IsAbs(c.State) {
		bad("State: %q is not an absolute path", c.State)
	}
	positive := func(field string, d *time.Duration, standard time.Duration) {
		if *d == 0 {
			*d = standard
		}
		if *d < 0 {
			bad("%s: %v is negative", field, *d)
		}
	}
	positive("ListTimeout", &c.ListTimeout, 3*time.Second)
	if c.StatusEvery == 0 {
		c.StatusEvery = 5 * time.Second
	}
	positive("Grace", &c.Grace, 5*time.Second)
	return c, errors.Join(errs...)
}
