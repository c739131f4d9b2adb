package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/write"
	"github.com/muster-scheduler/muster/internal/profile"
)

const (
	// settle is how long a change waits for others that come with it.
	settle = 50 * time.Millisecond
	// period is the longest time between two looks: nodes and the GPU operator's policy are asked, not watched.
	period = 5 * time.Minute
	// retryMin and retryMax bound the wait after a look that failed.
	retryMin = 500 * time.Millisecond
	retryMax = 30 * time.Second
)

// Deps are what the role needs of the process around it.
type Deps struct {
	// Config is the API server's, for the role's own caches: it watches its own objects and no others.
	Config *rest.Config
	// Scheme knows Config and SchedulingShard.
	Scheme *runtime.Scheme
	// Client reads and writes past the caches.
	Client client.Client
	// Log takes the role's messages.
	Log logr.Logger
	// Registry takes the role's metrics; nil for none.
	Registry prometheus.Registerer
	// Guard sets aside what ends in a defect, and has hung work noticed; nil: nobody is told.
	Guard *aside.Guard
	// Event records an event; nil for nobody.
	Event func(o client.Object, kind, reason, message string)
}

// Options are the role's settings.
type Options struct {
	// Repository and Tag are those of images that Config does not say them of: the environment's MS_REPOSITORY and MS_TAG.
	Repository, Tag string
	// Digests are those of these images, by install.Program and install.NodeProgram: the environment's MS_DIGEST and MS_NODE_DIGEST.
	Digests map[string]string
	// PullSecret is a further pull secret of all pods. Flag --image-pull-secret.
	PullSecret string
	// SchedulerFlags are the names of the scheduler's flags; nil: any.
	SchedulerFlags []string
	// Check refuses a profile that the scheduler would refuse, and says what it does not know; nil: nothing.
	Check func(profile.Shard, engine.Profile) ([]profile.Unknown, error)
}

// Controller is the operator role.
type Controller struct {
	deps    Deps
	options Options
	kit     *write.Kit
}

// New returns the role, not yet running.
func New(deps Deps, o Options) (*Controller, error) {
	kit, err := write.New(deps.Client, "operator", deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("operator role: %w", err)
	}
	if deps.Event == nil {
		deps.Event = func(client.Object, string, string, string) {}
	}
	return &Controller{deps: deps, options: o, kit: kit}, nil
}

// Run keeps the installation as it is asked for until ctx ends, which is no error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	w := newAPIClient(c, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	defer w.close()
	if err := w.open(ctx); err != nil {
		return fmt.Errorf("operator role: %w", err)
	}
	r := &reconciler{api: w.api(), warned: map[string]string{}, log: c.deps.Log, guarded: time.Now()}
	retry := retryMin
	for {
		var again time.Duration
		err := c.deps.Guard.Do(ctx, "a look", "the installation", func(ctx context.Context) (err error) {
			again, err = r.reconcile(ctx)
			return err
		})
		if ctx.Err() != nil {
			return nil
		}
		wait := period
		switch {
		case err != nil:
			c.deps.Log.Info("not all could be done; trying again", "error", err.Error(), "after", retry.String())
			wait, retry = retry, min(2*retry, retryMax)
		case again > 0:
			wait, retry = min(again, period), retryMin
		default:
			retry = retryMin
		}
		if err := pause(ctx, wait, wake); err != nil {
			return nil //nolint:nilerr // the end of ctx is none
		}
	}
}

// pause waits for a time or for a wake, and then for what comes with it.
func pause(ctx context.Context, wait time.Duration, wake <-chan struct{}) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	case <-wake:
	}
	timer.Reset(settle)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	return nil
}
