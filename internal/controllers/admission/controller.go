package admission

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/app/gate"
	"github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

const (
	// check is how often the certificates and configurations are looked at when nothing is heard of them: a few reads. Only the
	// two configurations that are not watched, and a clock that says it is time for new certificates, wait for it.
	check = 15 * time.Second
	// retryMin and retryMax bound the wait after a failed write.
	retryMin = 200 * time.Millisecond
	retryMax = 10 * time.Second
	// linger is how long reviews are still answered after the role was asked to end: until then an API server may be led here,
	// as it takes a moment until a Service no longer leads to a pod that is deleted.
	linger = 4 * time.Second
	// stopGrace is how long reviews under way may take when the role ends.
	stopGrace = 5 * time.Second
)

// Deps are what the role needs of the process around it.
type Deps struct {
	// Cache watches the role's own objects and no others; see Watched. It is started by the process.
	Cache cache.Cache
	// Client reads and writes these objects, past the cache. It lists Queues and PodGroups, too.
	Client client.Client
	// Shard judges SchedulingShards; nil takes them all.
	Shard ShardCheck
	// Template judges the pod templates of Volcano's Jobs; nil takes them all.
	Template volcano.TemplateCheck
	// Log takes the role's messages.
	Log logr.Logger
	// Registry takes the role's metrics; nil for none.
	Registry prometheus.Registerer
	// Guard sets aside what ends in a defect, and has hung work noticed; nil: nobody is told.
	Guard *aside.Guard
	// Clock tells the age of certificates; nil is the real one.
	Clock clock.WithTicker
}

// Controller is the admission role: Serve and Hear in every replica, Lead in one.
type Controller struct {
	deps    Deps
	options Options
	hosts   []string // names and addresses by which the API server calls us
	handler *Handler
	heard   *heard         // of Volcano's queues and PodGroups
	clients *x509.CertPool // who may ask; nil for anybody
	kit     *write.Kit
	// Of Lead alone: the user that this process is, "" while unknown; when a policy was last made or changed, or else the start; and whether
	// there are none of older versions any more.
	self    string
	guarded time.Time
	alone   bool

	certificate atomic.Pointer[tls.Certificate]
	address     atomic.Pointer[net.TCPAddr]
}

// New checks the options and returns the role, not yet running.
func New(deps Deps, o Options) (*Controller, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.AuthorizeQueues {
		o.StampQueue = o.QueueLabel
	}
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	h := &heard{}
	handler, err := NewHandler(o.Rules, Sources{
		Queues: listQueues(deps.Client), Groups: listGroups(deps.Client), Group: findGroup(deps.Client), Shard: deps.Shard, QueueLabel: o.QueueLabel,
		Volcano: readVolcano(deps.Client, h, deps.Template),
	}, deps.Registry)
	if err != nil {
		return nil, err
	}
	handler.guard = deps.Guard
	kit, err := write.New(deps.Client, "admission", deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("admission role: %w", err)
	}
	clients, err := o.clients()
	if err != nil {
		return nil, err
	}
	base := service + "." + o.Namespace
	c := &Controller{guarded: deps.Clock.Now(), deps: deps, options: o, handler: handler, heard: h, clients: clients, kit: kit, hosts: []string{base + ".svc", base, base + ".svc.cluster.local"}}
	if o.URL != "" {
		u, err := url.Parse(o.URL)
		if err != nil {
			return nil, fmt.Errorf("admission role: --webhook-url: %w", err)
		}
		c.hosts = append(c.hosts, u.Hostname())
	}
	return c, nil
}

// Watched says which objects the role's cache has to watch: each by its name, so that no right to read others is needed, and where
// Volcano's face is on its queues and PodGroups, of which little is kept. A watch can select one name of a kind: the configurations of
// Queues and PodGroups are looked at every so often instead.
func (o *Options) Watched() cache.Options {
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	by := map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{o.Namespace: {FieldSelector: named(o.Secret)}}},
		&admissionregv1.MutatingWebhookConfiguration{}:   {Field: named(o.Mutating)},
		&admissionregv1.ValidatingWebhookConfiguration{}: {Field: named(o.Validating)},
	}
	if len(o.Volcano) > 0 {
		by[&v1beta1.Queue{}], by[&v1beta1.PodGroup{}] = cache.ByObject{Transform: trimHeard}, cache.ByObject{Transform: trimHeard}
	}
	return cache.Options{ByObject: by}
}

// listQueues reads all queues, past any cache: what a review says must be so.
func listQueues(c client.Client) func(context.Context) (Forest, error) {
	return func(ctx context.Context) (Forest, error) {
		var list v2.QueueList
		if err := c.List(ctx, &list); err != nil {
			return nil, fmt.Errorf("list Queues: %w", err)
		}
		out := make(Forest, len(list.Items))
		for i := range list.Items {
			out[list.Items[i].Name] = &list.Items[i]
		}
		return out, nil
	}
}

// listGroups looks for PodGroups of a queue, page by page, until there are more than are shown.
func listGroups(c client.Client) func(context.Context, string) ([]string, bool, error) {
	const page, shown = 500, 3
	return func(ctx context.Context, queue string) (names []string, more bool, err error) {
		var list v2alpha2.PodGroupList
		for {
			if err := c.List(ctx, &list, client.Limit(page), client.Continue(list.Continue)); err != nil {
				return nil, false, fmt.Errorf("list PodGroups: %w", err)
			}
			for i := range list.Items {
				pg := &list.Items[i]
				if pg.Spec.Queue != queue || pg.DeletionTimestamp != nil {
					continue
				}
				if len(names) == shown {
					return names, true, nil
				}
				names = append(names, pg.Namespace+"/"+pg.Name)
			}
			if list.Continue == "" {
				return names, false, nil
			}
		}
	}
}

// findGroup reads one PodGroup, past any cache; nil where there is none. It lists, for which the role has the right.
func findGroup(c client.Client) func(ctx context.Context, namespace, name string) (*v2alpha2.PodGroup, error) {
	return func(ctx context.Context, namespace, name string) (*v2alpha2.PodGroup, error) {
		var list v2alpha2.PodGroupList
		if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name}); err != nil {
			return nil, fmt.Errorf("read PodGroup %s/%s: %w", namespace, name, err)
		}
		for i := range list.Items {
			if list.Items[i].Name == name {
				return &list.Items[i], nil
			}
		}
		return nil, nil
	}
}

// Serve answers reviews until ctx ends, which is no error: with the certificate in the Secret, as soon as there is one, and with
// each that follows. Behind a Service it goes on for some seconds more, so that a replica can be replaced without a review lost.
func (c *Controller) Serve(ctx context.Context) error {
	l, err := net.Listen("tcp", net.JoinHostPort(c.options.Host, strconv.Itoa(c.options.Port)))
	if err != nil {
		return fmt.Errorf("admission role: --webhook-addr: %w; choose another with --webhook-addr=PORT", err)
	}
	if at, ok := l.Addr().(*net.TCPAddr); ok {
		c.address.Store(at)
	}
	c.deps.Log.Info("serving webhooks", "address", l.Addr().String())
	stop, err := c.watch(ctx, &corev1.Secret{}, func(o any) {
		if s, ok := o.(*corev1.Secret); ok {
			c.load(s.Data)
		}
	})
	if err != nil {
		l.Close()
		return err
	}
	defer stop()
	return c.answer(ctx, l)
}

// answer serves on l, which it closes, until ctx ends and for linger beyond. Meanwhile every answer asks the API server not to come
// again on the same connection: a new one is led to whom the Service still knows. Without that it would keep the one it has, and
// lose what it sends in the moment in which that is closed.
func (c *Controller) answer(ctx context.Context, l net.Listener) error {
	var leaving atomic.Bool
	server := c.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if leaving.Load() {
			w.Header().Set("Connection", "close") // of HTTP/2, too: net/http makes it a GOAWAY
		}
		c.handler.ServeHTTP(w, r)
	}))
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(gate.New(l, peerConnections, allConnections), "", "") }()
	select {
	case err := <-failed:
		return fmt.Errorf("admission role: serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	if c.options.URL == "" {
		timer := c.deps.Clock.NewTimer(linger)
		defer timer.Stop()
		leaving.Store(true)
		select {
		case err := <-failed:
			return fmt.Errorf("admission role: serve %s: %w", l.Addr(), err)
		case <-timer.C():
		}
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if server.Shutdown(stopping) != nil {
		_ = server.Close() // who keeps a connection open does not keep us from ending
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admission role: serve %s: %w", l.Addr(), err)
	}
	return nil
}

// server answers with a handler, and bounds what a client can make it hold.
func (c *Controller) server(h http.Handler) *http.Server {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerWithin, ReadTimeout: headerWithin + bodyWithin, WriteTimeout: 2 * answerWithin, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: maxHeader, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams}, ConnContext: gate.Known,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if cert := c.certificate.Load(); cert != nil {
				return cert, nil
			}
			return nil, errNoCertificate
		}},
		ErrorLog: discarded(c.deps.Log),
	}
	if c.clients != nil {
		server.TLSConfig.ClientAuth, server.TLSConfig.ClientCAs = tls.RequireAndVerifyClientCert, c.clients
	}
	return server
}

var errNoCertificate = errors.New("there is no certificate yet")

// Ready is nil when reviews are answered.
func (c *Controller) Ready(context.Context) error {
	if c.address.Load() == nil {
		return errors.New("the webhooks are not served yet")
	}
	if c.certificate.Load() == nil {
		return errNoCertificate
	}
	return nil
}

// load takes a Secret's certificate into use. A broken one changes nothing: the leader replaces it.
func (c *Controller) load(data map[string][]byte) {
	if len(data[keyServing]) == 0 {
		return
	}
	cert, err := tls.X509KeyPair(data[keyServing], data[keyServingKey])
	if err != nil {
		c.deps.Log.Info("the certificate cannot be used", "secret", c.options.Secret, "error", err.Error())
		return
	}
	c.certificate.Store(&cert)
}

// watch calls seen for each object of a kind, now and at each change, until stop.
func (c *Controller) watch(ctx context.Context, kind client.Object, seen func(any)) (stop func(), err error) {
	informer, err := c.deps.Cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("admission role: watch %T: %w", kind, err)
	}
	handle, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_, o any) { seen(o) }, DeleteFunc: seen,
	})
	if err != nil {
		return nil, fmt.Errorf("admission role: watch %T: %w", kind, err)
	}
	return func() { _ = informer.RemoveEventHandler(handle) }, nil
}
