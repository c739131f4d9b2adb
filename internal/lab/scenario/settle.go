package scenario

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/roles"
)

const (
	// releaseGrace is how long a released pod may take; settle takes it away before.
	releaseGrace = 30 * time.Second
	// quiet is how long nothing may have changed before it is asked whether anything is left to do.
	quiet = 60 * time.Millisecond
)

// Settle implements enginetest.Backend: the roles run, pods that were bound start, pods that were deleted go, until a fresh
// look at the cluster has nothing to decide.
func (b *Backend) Settle() error {
	if err := b.flush(); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	address, err := freeAddress()
	if err != nil {
		return err
	}
	s, clean, err := b.settings(address)
	if err != nil {
		return err
	}
	defer clean()
	ended := make(chan error, 1)
	go func() { ended <- roles.Run(ctx, []string{roles.Scheduler, roles.Binder}, s, "scenario") }()
	err = b.attend(ctx, "http://"+address+"/metrics", ended)
	stop()
	if errors.Is(err, errEnded) {
		return err
	}
	return errors.Join(err, <-ended)
}

// errEnded says that the roles gave up.
var errEnded = errors.New("the roles ended by themselves")

// freeAddress returns one nobody listens at.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// settings are the flags of a process with the scenario's options.
func (b *Backend) settings(address string) (*roles.Settings, func(), error) {
	s := &roles.Settings{
		Client:         app.ClientOptions{Kubeconfig: b.kubeconfig, QPS: -1},
		Log:            app.LogOptions{Format: app.LogText},
		SchedulerNames: b.options.Names(), Namespace: keys.Namespace, MetricsNamespace: keys.MetricsNamespace, Listen: address,
		Period: time.Second, StuckAfter: 2 * time.Minute, NodePoolKey: keys.NodePoolLabel, QueueLabel: keys.QueueLabel,
		RestrictNodes: b.feed.RestrictNodes, GPUWorkerLabel: b.feed.GPUWorkerLabel, CPUWorkerLabel: b.feed.CPUWorkerLabel,
		CSIStorage: b.feed.StorageCapacity, FullHierarchy: !b.options.FlatQueues, Workers: 10, RateLimiterBase: 1, RateLimiterMax: 60,
	}
	if b.store.StuckAfter != 0 {
		s.StuckAfter = time.Duration(b.store.StuckAfter)
	}
	if b.options.Shard != nil {
		return nil, nil, fmt.Errorf("settle with a shard section: the operator turns shards into files, and is not here")
	}
	if b.options.Config == "" {
		return s, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "muster-scenario-")
	if err != nil {
		return nil, nil, fmt.Errorf("write the configuration: %w", err)
	}
	s.SchedulerConf = filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(s.SchedulerConf, []byte(b.options.Config), 0o600); err != nil {
		return nil, nil, fmt.Errorf("write the configuration: %w", err)
	}
	return s, func() { _ = os.RemoveAll(dir) }, nil
}

// attend plays the kubelets until the cluster has settled.
func (b *Backend) attend(ctx context.Context, metrics string, ended <-chan error) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events := make(chan watch.Event)
	for _, list := range []client.ObjectList{&v1.PodList{}, &v1alpha2.BindRequestList{}, &v2alpha2.PodGroupList{}} {
		w, err := b.client.Watch(ctx, list)
		if err != nil {
			return fmt.Errorf("watch %T: %w", list, err)
		}
		go func() {
			defer w.Stop()
			for e := range w.ResultChan() {
				select {
				case events <- e:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	var players errgroup.Group
	players.SetLimit(writers)
	defer func() { err = errors.Join(err, players.Wait()) }()
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	left := "the scheduler has not run"
	for {
		select {
		case e := <-events:
			if e.Type == watch.Error {
				return fmt.Errorf("watch: %v", e.Object)
			}
			if p, ok := e.Object.(*v1.Pod); ok && e.Type != watch.Deleted {
				players.Go(func() error { return b.play(ctx, p) })
			}
			timer.Reset(quiet)
		case <-timer.C:
			if left, err = b.left(ctx, metrics); err != nil || left == "" {
				return err
			}
			timer.Reset(quiet)
		case err := <-ended:
			return errors.Join(errEnded, err)
		case <-ctx.Done():
			return fmt.Errorf("not settled after %v: %s", patience, left)
		}
	}
}

// play does with a pod what its kubelet would.
func (b *Backend) play(ctx context.Context, p *v1.Pod) error {
	switch {
	case p.DeletionTimestamp != nil && len(p.Finalizers) == 0:
		return b.remove(ctx, p)
	case p.DeletionTimestamp != nil: // something holds it, and a kubelet lets it
	case p.Spec.NodeName != "" && p.Status.Phase == v1.PodPending:
		// A patch without resourceVersion: the binder may write conditions at the same time.
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Running"}}`))
		if err := b.client.Status().Patch(ctx, p, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("start pod %s: %w", p.Name, err)
		}
	}
	return nil
}

// left says what is still to be done, "" for nothing.
func (b *Backend) left(ctx context.Context, metrics string) (string, error) {
	if !ran(ctx, metrics) {
		return "the scheduler has not run", nil
	}
	snap, plans, trace, err := b.look()
	if err != nil {
		return "", err
	}
	for i := range plans {
		for _, bundle := range plans[i].Bundles {
			return "gang " + bundle.Gang.String() + " could go", nil
		}
	}
	left := ""
	snap.EachPod(func(p *cluster.Pod) {
		switch p.Phase {
		case cluster.Binding, cluster.Bound, cluster.Releasing:
			left = fmt.Sprintf("pod %s/%s is %s", p.Namespace, p.Name, p.Phase)
		}
	})
	if left != "" {
		return left, nil
	}
	return b.unmarked(ctx, trace)
}

// unmarked names a gang that was tried in vain, is not to be tried again, and does not say so yet.
func (b *Backend) unmarked(ctx context.Context, trace *engine.Trace) (string, error) {
	for i := range trace.Gangs {
		t := &trace.Gangs[i]
		if t.Diagnosis == nil || t.Placed+t.Nominated > 0 {
			continue
		}
		var pg v2alpha2.PodGroup
		if err := b.client.Get(ctx, client.ObjectKey{Namespace: t.Gang.Namespace, Name: t.Gang.Name}, &pg); err != nil {
			return "", fmt.Errorf("read gang %s: %w", t.Gang, err)
		}
		if n := pg.Spec.SchedulingBackoff; n != nil && *n == v2alpha2.SingleSchedulingBackoff && len(pg.Status.SchedulingConditions) == 0 {
			return "gang " + t.Gang.String() + " is not marked as tried", nil
		}
	}
	return "", nil
}

// ran says whether the process at that address has decided at least once.
func ran(ctx context.Context, metrics string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, metrics, http.NoBody)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "muster_scheduler_runs_total "); ok {
			return value != "0"
		}
	}
	return false
}
