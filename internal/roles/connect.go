package roles

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/served"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// discoveryLimit is how long the API server may take to say what it serves; it is asked again then.
const discoveryLimit = 5 * time.Second

// request is how long a read or a write may take: the API server gives up on one after as long. Without it, work that waits for an API
// server that hangs would look as if it hung itself.
const request = time.Minute

// toldEvery is the time between two lines about the same refusal.
const toldEvery = 30 * time.Second

// mapper knows what the API server serves. It asks when it is first needed; a patient one until there is an answer. No question
// outlives the process.
func (p *process) mapper(config *rest.Config, patient bool) (meta.RESTMapper, error) {
	config = app.Hurried(p.life, config, discoveryLimit)
	if patient {
		config = app.Hurried(p.life, app.Patient(config), 0)
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("build the client of discovery: %w", err)
	}
	return apiutil.NewDynamicRESTMapper(config, c)
}

// newClient builds a client that writes. Without a mapper it gets one of its own.
func (p *process) newClient(config *rest.Config, mapper meta.RESTMapper) (c client.Client, err error) {
	if mapper == nil {
		if mapper, err = p.mapper(config, false); err != nil {
			return nil, err
		}
	}
	config = app.Waiting(app.Hurried(context.Background(), config, request))
	if c, err = client.New(write.Impatient(config), client.Options{Scheme: p.scheme, Mapper: mapper}); err != nil {
		return nil, fmt.Errorf("build the client: %w", err)
	}
	return c, nil
}

// newCache builds a cache that asks nothing of the API server yet.
func (p *process) newCache(o cache.Options) (cache.Cache, error) {
	mapper, err := p.mapper(p.config, true)
	if err != nil {
		return nil, err
	}
	late := &lateMapper{RESTMapper: mapper}
	o.Scheme, o.Mapper = p.scheme, late
	p.aside.Transforms(&o)
	c, err := cache.New(app.Patient(p.config), o)
	if err != nil {
		return nil, fmt.Errorf("build the cache: %w", err)
	}
	late.built.Store(true)
	return p.aside.Cache(c), nil
}

// lateMapper answers for a cache that is being built, which asks of the kinds with settings of their own whether they lie in
// namespaces. The answer matters for those alone whose settings name some, and these do; to ask the API server would make a process
// wait that has not begun to listen, and take no context.
type lateMapper struct {
	meta.RESTMapper
	built atomic.Bool
}

// RESTMapping tells where objects of a kind are.
func (m *lateMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if m.built.Load() {
		return m.RESTMapper.RESTMapping(gk, versions...)
	}
	return &meta.RESTMapping{Scope: meta.RESTScopeNamespace}, nil
}

// elect prepares the election of leaders, if several processes can stand for it.
func (p *process) elect() error {
	if !p.LeaderElect {
		return nil
	}
	if err := p.lease().Validate(); err != nil {
		return fmt.Errorf("--lease-duration, --renew-deadline, --retry-period: %w", err)
	}
	leases, err := kubernetes.NewForConfig(app.Protobuf(p.config))
	if err != nil {
		return fmt.Errorf("build the client of Leases: %w", err)
	}
	id, err := app.NewIdentity()
	if err != nil {
		return err
	}
	e := app.NewElection(leases, id)
	e.LeaseTimes, e.Alive = p.lease(), p.dog.Alive
	if e.Told, err = app.LeaderGauge(p.registry); err != nil {
		return err
	}
	p.election = &e
	return nil
}

// turn is what a role that may run several times gets: a client that writes while the role's Lease is held, and its time to lead.
type turn struct {
	client client.Client
	notes  map[string]string // of its Lease, see app.Turn; nil without one
	lead   func(lead func(context.Context) error) func(context.Context) error
}

// always is the turn of a role that takes none.
func (p *process) always() turn {
	return turn{p.client, nil, func(lead func(context.Context) error) func(context.Context) error { return lead }}
}

// turn prepares a role to stand for a Lease.
func (p *process) turn(lease string) (turn, error) {
	if p.election == nil {
		return p.always(), nil
	}
	t := p.election.Turn(lease, p.Namespace)
	t.Notes = map[string]string{}
	c, err := p.newClient(t.Fence.Guard(p.config), p.client.RESTMapper())
	if err != nil {
		return turn{}, err
	}
	return turn{c, t.Notes, func(lead func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error { return t.RunLeading(ctx, lead) }
	}}, nil
}

// lookAround prepares what tells the roles, and the log, what the API server has of what they can do without.
func (p *process) lookAround() error {
	d, err := discovery.NewDiscoveryClientForConfig(app.Hurried(p.life, p.config, discoveryLimit))
	if err != nil {
		return fmt.Errorf("build the client that looks at what the API server has: %w", err)
	}
	var prof engine.Profile
	if slices.Contains(p.names, Scheduler) {
		if prof, err = p.profile(); err != nil {
			return fmt.Errorf("role %s: %w", Scheduler, err)
		}
	}
	p.has = served.NewWatcher(d, p.names, prof.Uses)
	p.group.Add("has", p.has.Run)
	return nil
}

// await waits until the API server answers and has what the roles cannot do without, and looks at what it has besides, before the roles
// begin.
func (p *process) await(ctx context.Context) error {
	if err := p.findKinds(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	p.has.First(ctx)
	return nil
}

// findKinds waits until the API server answers, and asks it for the custom resources without which no role works: that they are
// missing is its error. It ends with ctx, without an error.
func (p *process) findKinds(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	told := time.Time{}
	kinds, folder := p.needs()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		missing, err := p.missing(kinds)
		if err == nil && len(missing) > 0 {
			return fmt.Errorf("the cluster at %s does not know %s: install the CustomResourceDefinitions (folder %s) first", p.config.Host, strings.Join(missing, ", "), folder)
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		// That nobody answers is told by app.WatchAbsence.
		if status := apierrors.APIStatus(nil); errors.As(err, &status) && time.Since(told) >= toldEvery {
			log.Info("waiting for the API server to say what it serves; --kubeconfig or $KUBECONFIG name another", "server", p.config.Host, "error", err.Error())
			told = time.Now()
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// nodePools is the kind that Karpenter serves where it buys nodes.
var nodePools = schema.GroupKind{Group: "karpenter.sh", Kind: "NodePool"}

// autoscaled says whether something buys nodes for pods that say Unschedulable, as far as that can be told once: this process
// shows demand for shared GPUs, or the API server knows Karpenter's kinds. Where it cannot say so: yes, which is careful.
func (p *process) autoscaled() bool {
	if slices.Contains(p.names, NodeScale) {
		return true
	}
	_, err := p.client.RESTMapper().RESTMapping(nodePools)
	return !meta.IsNoMatchError(err)
}

// needs are the custom kinds without which the process does not work, and the folder of their definitions.
func (p *process) needs() (kinds []schema.GroupVersionKind, folder string) {
	if r, err := roleOf(p.names[0]); err == nil && r.needs != nil {
		return r.needs, "api/volcano/crds"
	}
	return []schema.GroupVersionKind{v2alpha2.GroupVersion.WithKind("PodGroup"), queuev2.GroupVersion.WithKind("Queue"), v1alpha2.GroupVersion.WithKind("BindRequest")}, "api/crds"
}

// missing lists those of the kinds that the API server does not know. It may take as long as a few questions, but ends with the
// process's life.
func (p *process) missing(kinds []schema.GroupVersionKind) (missing []string, err error) {
	for _, gvk := range kinds {
		_, err := p.client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		switch {
		case meta.IsNoMatchError(err):
			missing = append(missing, gvk.Kind+" ("+gvk.GroupVersion().String()+")")
		case err != nil:
			return nil, err
		}
	}
	return missing, nil
}
