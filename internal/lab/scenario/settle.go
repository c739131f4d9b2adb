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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/controllers/reservation"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/enginetest"
	"github.com/muster-scheduler/muster/internal/kube/apply"
	"github.com/muster-scheduler/muster/internal/roles"
)

const (
	// releaseGrace is how long a released pod may take; settle takes it away before.
	releaseGrace = 30 * time.Second
	// quiet is how long nothing may have changed before it is asked whether anything is left to do.
	quiet = 60 * time.Millisecond
	// refusal is how long nothing may have changed before it is believed that the scheduler does not evict whom one that has
	// just started would: it remembers whom it evicted before. It decides at least once a second.
	refusal = 3 * time.Second
)

// Settle implements enginetest.Backend: the roles run, pods that were bound start, pods that were deleted go, until a fresh
// look at the cluster has nothing to decide.
func (b *Backend) Settle() error {
	if err := b.flush(); err != nil {
		return err
	}
	if err := b.reservable(b.ctx); err != nil {
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
		SchedulerNames: b.options.Names(), VolcanoNames: b.options.VolcanoNames(), Namespace: keys.Namespace, MetricsNamespace: keys.MetricsNamespace, Listen: address,
		Period: time.Second, StuckAfter: 2 * time.Minute, NodePoolKey: keys.NodePoolLabel, QueueLabel: keys.QueueLabel,
		RestrictNodes: b.feed.RestrictNodes, GPUWorkerLabel: b.feed.GPUWorkerLabel, CPUWorkerLabel: b.feed.CPUWorkerLabel,
		CSIStorage: b.feed.StorageCapacity, FullHierarchy: !b.options.FlatQueues, Workers: 10, RateLimiterBase: 1, RateLimiterMax: 60,
		ReservationApp: keys.ReservationNamespace, ReservationSpace: keys.ReservationNamespace, ReservationAccount: keys.ReservationNamespace,
		ReservationTimeout: 40, ScalingSpace: keys.ScaleAdjustNamespace, Unschedulable: string(apply.UnschedulableAuto),
	}
	devices := reservation.DefaultOptions()
	s.ReservationSpace, s.ReservationAccount, s.ReservationApp = devices.Namespace, devices.ServiceAccount, devices.App
	s.ReservationImage, s.ReservationTimeout = devices.Image, int(devices.Timeout/time.Second)
	rules := b.profile.Settings
	s.MaxMoved, s.MovedAreFree, s.StaleGrace = rules.ConsolidationVictims, rules.MovedAreFree, rules.StaleGrace
	s.EvictionMode = string(apply.ByEviction)
	if b.store.StuckAfter != 0 {
		s.StuckAfter = b.store.StuckAfter
	}
	if b.options.Shard != nil {
		return nil, nil, fmt.Errorf("settle with a shard section: the operator turns shards into files, and is not here")
	}
	if b.options.Config == "" && b.options.VolcanoConfig == "" {
		return s, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "muster-scenario-")
	if err != nil {
		return nil, nil, fmt.Errorf("write the configuration: %w", err)
	}
	for name, file := range map[string]struct { // order: each is written by itself
		text string
		into *string
	}{"config.yaml": {b.options.Config, &s.SchedulerConf}, "volcano.yaml": {b.options.VolcanoConfig, &s.VolcanoConf}} {
		if file.text == "" {
			continue
		}
		*file.into = filepath.Join(dir, name)
		if err := os.WriteFile(*file.into, []byte(file.text), 0o600); err != nil {
			return nil, nil, fmt.Errorf("write the configuration: %w", err)
		}
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
		go b.follow(ctx, list, w, events)
	}
	var players errgroup.Group
	players.SetLimit(writers)
	defer func() { err = errors.Join(err, players.Wait()) }()
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	left, changed := "the scheduler has not run", time.Now()
	for {
		select {
		case e := <-events:
			if e.Type == watch.Error {
				return fmt.Errorf("watch: %v", e.Object)
			}
			changed = time.Now()
			if p, ok := e.Object.(*v1.Pod); ok && e.Type != watch.Deleted {
				b.playing.Add(1)
				players.Go(func() error {
					defer b.playing.Add(-1)
					return b.play(ctx, p)
				})
			}
			timer.Reset(quiet)
		case <-timer.C:
			if left, err = b.left(ctx, metrics, time.Since(changed) > refusal); err != nil || left == "" {
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

// follow passes on what a watch tells, and begins another when the server ends it, which may happen at any time and would leave the pods
// without kubelets.
func (b *Backend) follow(ctx context.Context, list client.ObjectList, w watch.Interface, events chan<- watch.Event) {
	for {
		for e := range w.ResultChan() {
			select {
			case events <- e:
			case <-ctx.Done():
				w.Stop()
				return
			}
		}
		w.Stop()
		err := await(ctx, fmt.Sprintf("watch %T again", list), func(ctx context.Context) (bool, error) {
			again, err := b.client.Watch(ctx, list)
			if err == nil {
				w = again
			}
			return err == nil, nil
		})
		if err != nil {
			return
		}
	}
}

// play does with a pod what its kubelet would.
func (b *Backend) play(ctx context.Context, p *v1.Pod) error {
	switch {
	case p.DeletionTimestamp != nil && len(p.Finalizers) == 0:
		// This very pod: another of its name may be there by now.
		err := b.client.Delete(ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("end pod %s: %w", p.Name, err)
		}
		if !enginetest.Recreates(p) {
			return nil
		}
		return b.recreate(ctx, p)
	case p.DeletionTimestamp != nil: // something holds it, and a kubelet lets it
	case p.Spec.NodeName != "" && p.Status.Phase == v1.PodPending:
		if err := b.report(ctx, p); err != nil {
			return err
		}
		// A patch without resourceVersion: the binder may write conditions at the same time. And of this very pod: one that takes its place
		// has no node, and would wait for ever if it were said to run.
		body := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`, p.UID)
		err := b.client.Status().Patch(ctx, p, client.RawPatch(types.StrategicMergePatchType, []byte(body)))
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("start pod %s: %w", p.Name, err)
		}
	}
	return nil
}

// recreate does what the controller of a pod that was evicted does, once for each pod.
func (b *Backend) recreate(ctx context.Context, p *v1.Pod) error {
	if _, done := b.replaced.LoadOrStore(p.UID, true); done {
		return nil
	}
	return await(ctx, "take the place of pod "+p.Name, func(ctx context.Context) (bool, error) {
		err := b.client.Create(ctx, enginetest.Recreate(p, time.Now()))
		return err == nil, ignoreExists(err)
	})
}

// ignoreExists drops the error that says that the old pod is not gone yet.
func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// left says what is still to be done, "" for nothing. Decisions that evict do not count when the scheduler has refused them.
func (b *Backend) left(ctx context.Context, metrics string, refused bool) (string, error) {
	switch told := ask(ctx, metrics); {
	case told[runs] == "" || told[runs] == "0":
		return "the scheduler has not run", nil
	case told[evicting] != "0":
		return "pods are being evicted", nil // the API server takes its time with several pods of one budget
	}
	if b.playing.Load() > 0 { // nobody begins while this looks
		return "a pod is being started, ended or made anew", nil
	}
	snap, plans, trace, err := b.look()
	if err != nil {
		return "", err
	}
	for i := range plans {
		for _, bundle := range plans[i].Bundles {
			if bundle.Eviction == nil || !refused {
				return "gang " + bundle.Gang.String() + " could go", nil
			}
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
		if t.Diagnosis == nil || t.Placed+t.Nominated > 0 || t.Gang.Face != kai.Face {
			continue // gangs of other faces are tried again and again
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

// The metrics that say whether the scheduler is at work.
const (
	runs     = "muster_scheduler_runs_total"
	evicting = "muster_evicting_bundles"
)

// ask returns what the process at that address says of them; nothing while it does not answer.
func ask(ctx context.Context, metrics string) map[string]string {
	told := map[string]string{}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, metrics, http.NoBody)
	if err != nil {
		return told
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return told
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		for _, name := range [...]string{runs, evicting} {
			if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
				told[name] = value
			}
		}
	}
	return told
}
