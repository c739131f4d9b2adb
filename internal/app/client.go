package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ClientOptions say which API server to talk to and how fast.
type ClientOptions struct {
	// Kubeconfig is a file. Empty means: in a pod the cluster around it, elsewhere $KUBECONFIG or the user's own default file.
	Kubeconfig string
	// Context names a context of the kubeconfig; empty is its current one.
	Context string
	// QPS bounds requests per second of each client; negative is unlimited.
	QPS float32
	// Burst is how many requests may run ahead of QPS.
	Burst int
	// UserAgent is what the API server's audit log shows, such as "muster-binder".
	UserAgent string
}

// DefaultClientOptions are KAI's: 50 requests per second, bursts of 300.
func DefaultClientOptions() ClientOptions { return ClientOptions{QPS: 50, Burst: 300} }

// BindClientFlags declares --kubeconfig, --qps and --burst with the values of o as defaults.
func BindClientFlags(fs *pflag.FlagSet, o *ClientOptions) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "file that names the API server; empty: the cluster this runs in, else the user's default")
	fs.Float32Var(&o.QPS, "qps", o.QPS, "requests per second to the API server; negative is unlimited")
	fs.IntVar(&o.Burst, "burst", o.Burst, "requests that may run ahead of --qps")
}

// RESTConfig finds the API server. The result speaks JSON, which custom resources need; see Protobuf for core types.
func RESTConfig(o ClientOptions) (*rest.Config, error) {
	if o.QPS > 0 && o.Burst < 1 {
		return nil, fmt.Errorf("client burst %d: it must be 1 or more when qps is limited", o.Burst)
	}
	config, err := load(o)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = o.QPS, o.Burst
	if o.UserAgent != "" {
		config.UserAgent = o.UserAgent
	}
	return config, nil
}

func load(o ClientOptions) (*rest.Config, error) {
	if o.Kubeconfig == "" && o.Context == "" {
		config, err := rest.InClusterConfig()
		if err == nil {
			return config, nil
		}
		if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, fmt.Errorf("read this pod's service account: %w", err)
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no API server: not in a cluster, and no kubeconfig (use --kubeconfig or set KUBECONFIG)")
	}
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return config, nil
}

// Protobuf is a copy of config for clients of core types only: smaller and about five times cheaper to decode than JSON. Answers
// in JSON are still understood.
func Protobuf(config *rest.Config) *rest.Config {
	out := rest.CopyConfig(config)
	out.ContentType = runtime.ContentTypeProtobuf
	out.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return out
}

// ErrUnauthorized is what the role of WatchCredentials returns when the API server refuses this process for long.
var ErrUnauthorized = errors.New("the API server has refused our credentials (401), and nothing else, for " + unauthorizedFor.String() + ": a restart reads fresh ones")

// unauthorizedFor is for how long 401 may be the only answer. Credentials are renewed within that, and an API server that cannot
// judge them for want of its own storage says 401 too.
const unauthorizedFor = time.Minute

// WatchCredentials makes every client built from config afterwards ask once more, with the token as its file has it now, when it hears
// a 401; and returns a role that ends with ErrUnauthorized when there has been no other answer for a minute. A process whose
// credentials are gone cannot do its work and exits.
func WatchCredentials(config *rest.Config) (role func(context.Context) error) {
	refused := make(chan struct{})
	var mu sync.Mutex
	var since time.Time // the first 401 of those in a row; zero for none
	ended := false
	judge := func(status int) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case status != http.StatusUnauthorized:
			if status < http.StatusInternalServerError { // a proxy's words about an API server that is away say nothing
				since = time.Time{}
			}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= unauthorizedFor && !ended:
			ended = true
			close(refused)
		}
	}
	file := config.BearerTokenFile
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && resp.StatusCode == http.StatusUnauthorized {
				if again := withFreshToken(r, file); again != nil {
					discard(resp)
					resp, err = next.RoundTrip(again)
				}
			}
			if err == nil {
				judge(resp.StatusCode)
			}
			return resp, err
		})
	})
	return func(ctx context.Context) error {
		select {
		case <-refused:
			return ErrUnauthorized
		case <-ctx.Done():
			return nil
		}
	}
}

// withFreshToken is the request with the token that the file has by now; nil if it is the one that was sent, or the request cannot be
// sent again.
func withFreshToken(r *http.Request, file string) *http.Request {
	if file == "" || r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return nil
	}
	text, err := os.ReadFile(file)
	header := "Bearer " + strings.TrimSpace(string(text))
	if err != nil || header == r.Header.Get("Authorization") {
		return nil
	}
	again := r.Clone(r.Context())
	again.Header.Set("Authorization", header)
	if r.GetBody != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return nil
		}
	}
	return again
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
