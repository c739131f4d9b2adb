package roles

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	kaiv1alpha1 "github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/kubebatch"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vcbus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	vcflow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	vcnodeinfo "github.com/muster-scheduler/muster/api/volcano/nodeinfo/v1alpha1"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	vcshard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	vctopology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/controllers/admission"
	"github.com/muster-scheduler/muster/internal/controllers/binder"
	"github.com/muster-scheduler/muster/internal/controllers/reservation"
	"github.com/muster-scheduler/muster/internal/controllers/vcshardstatus"
	"github.com/muster-scheduler/muster/internal/cycles"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/numa"
	"github.com/muster-scheduler/muster/internal/kube/apply"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/feed"
	"github.com/muster-scheduler/muster/internal/kube/filters"
	"github.com/muster-scheduler/muster/internal/kube/filters/podtemplate"
	"github.com/muster-scheduler/muster/internal/kube/links"
	"github.com/muster-scheduler/muster/internal/kube/served"
	"github.com/muster-scheduler/muster/internal/kube/textfile"
	"github.com/muster-scheduler/muster/internal/kube/write"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/scheduler"
	"github.com/muster-scheduler/muster/internal/ui"
)

// Scheme returns the kinds that the roles read and write.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, kaiv1.AddToScheme, kaiv1alpha1.AddToScheme,
		v1alpha2.AddToScheme, queuev2.AddToScheme, v2alpha2.AddToScheme, topologyv1alpha2.AddToScheme,
		vcbatch.AddToScheme, vcbus.AddToScheme, vcscheduling.AddToScheme, kubebatch.AddToScheme, vcflow.AddToScheme, vctopology.AddToScheme, vcshard.AddToScheme, vcnodeinfo.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("build the scheme: %w", err)
		}
	}
	return s, nil
}

// Command is `muster run`: one subcommand per role, and one for all in one process.
func Command(version string) *cobra.Command {
	run := &cobra.Command{
		Use: "run ROLE", Short: "Run a role of the control plane, or all of them in one process",
		Args: cobra.NoArgs, RunE: app.NeedsCommand,
	}
	for _, name := range slices.Concat(Names(), Apart(), []string{All}) {
		s := &Settings{}
		roles, about := Names(), "All roles in one process, sharing one cache; admission only with --admission, nodescale only with --nodescale"
		if r, err := roleOf(name); err == nil {
			roles, about = []string{name}, r.about
		}
		c := &cobra.Command{
			Use: name, Short: about, Args: cobra.NoArgs, SilenceUsage: true,
			RunE: func(c *cobra.Command, _ []string) error {
				ctx, stop := app.SignalContext(c.Context())
				defer stop()
				if r, err := roleOf(name); !c.Flags().Changed("namespace") && (err != nil || r.home == "") {
					s.Namespace = home(os.LookupEnv, serviceAccountNamespace)
				}
				return Run(ctx, roles, s, version)
			},
		}
		c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return app.FlagError(name, c.Flags(), err) })
		for _, role := range roles {
			if err := s.flags(role, c.Flags()); err != nil {
				panic(err) // the embedded ledger is tested; this is a broken build
			}
		}
		run.AddCommand(c)
	}
	return run
}

// process is what the roles of one process share.
type process struct {
	*Settings
	version   string
	names     []string
	log       logr.Logger
	registry  *prometheus.Registry
	config    *rest.Config
	scheme    *runtime.Scheme
	cache     cache.Cache
	client    client.Client
	events    *eventSink
	server    *app.Server
	records   *scheduler.Records
	recorder  *replay.Recorder  // of the scheduler; nil in processes without it
	cycles    *cycles.Server    // likewise, and nil where cycles are not served
	forecasts forecasts         // what is forecast of the scheduler's gangs
	ui        *ui.Answerer      // of the role ui; nil in processes without it
	found     map[string]string // the annotations of the scheduler's Lease; nil without one
	inspector *feed.Inspector   // likewise
	packing   sync.Mutex        // of archives
	group     app.Group
	election  *app.Election // nil: nobody else can stand by
	dog       *app.Watchdog
	has       *served.Watcher // what the API server has
	aside     *aside.Guard    // of the caches
	links     *links.Links    // what the podgrouper tells the scheduler; nil where it writes it
	life      context.Context // until the process is asked to end; for questions that take no context
	end       context.CancelFunc
}

// Run runs the named roles until ctx ends or one of them fails. It logs to standard error and takes over the logs of the
// libraries and GOMAXPROCS, so that only a main program calls it.
func Run(ctx context.Context, names []string, s *Settings, version string) error {
	log, err := app.Logger(os.Stderr, s.Log)
	if err != nil {
		return err
	}
	app.InstallLogger(log)
	if percent := gcPercent(names); percent > 0 && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if n := processors(names); n > 0 {
		app.LimitProcessors(n, os.LookupEnv)
	}
	p, err := newProcess(names, s, version, log)
	if err != nil {
		return err
	}
	return p.run(ctx)
}

// uiGCPercent is for a process that is the role ui alone: beside 500 nodes and 2,000 gangs that wait it peaks at 102 to 105 MiB with it, and at 141 to 145 while
// a forecast is made (BenchmarkRole, BenchmarkRoleForecasts). GOGC overrules it.
const uiGCPercent = 30

// allGCPercent is for a process with all roles. After 4,000 one-GPU Jobs on 500 nodes some 50 MiB are in use; the process had 159 MiB at most in place of the 168
// of Go's 100 %, and collected 98 times in place of 78, of some 30 ms of processor time each (a busy machine, with the profiler on). GOGC overrules it.
const allGCPercent = 80

// gcPercent is at how much growth a process with these roles, and no others, collects its garbage; 0 for what Go has.
func gcPercent(names []string) int {
	switch {
	case slices.Equal(names, []string{UI}):
		return uiGCPercent
	case slices.Equal(names, Names()):
		return allGCPercent
	}
	return 0
}

// processors bounds GOMAXPROCS of a process by the roles in it; 0 is no bound.
func processors(names []string) int {
	if r, err := roleOf(names[0]); err == nil && len(names) == 1 {
		return max(1, r.processors)
	}
	return 0
}

// newProcess puts a process together. Nothing of it runs yet, and nothing has been asked of the API server.
func newProcess(names []string, s *Settings, version string, log logr.Logger) (*process, error) {
	if len(s.SchedulerNames) == 0 || slices.Contains(s.SchedulerNames, "") {
		return nil, fmt.Errorf("--scheduler-name: at least one name, and no empty one")
	}
	for _, name := range s.VolcanoNames {
		if name == "" || slices.Contains(s.SchedulerNames, name) {
			return nil, fmt.Errorf("--volcano-scheduler-name: %q must be a name, and none of --scheduler-name: a pod is of one face", name)
		}
	}
	if err := s.checkVolcano(); err != nil {
		return nil, err
	}
	if err := s.checkKubeBatch(); err != nil {
		return nil, err
	}
	p := &process{
		Settings: s, version: version, names: names, log: log, registry: app.Registry(), records: &scheduler.Records{},
		dog: app.NewWatchdog(s.HungAfter), forecasts: forecasts{now: time.Now},
	}
	if slices.Contains(names, Scheduler) && slices.Contains(names, PodGrouper) {
		p.links = links.New()
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.group.Await = p.await
	if err := p.connect(); err != nil {
		return nil, err
	}
	if err := p.lookAround(); err != nil {
		return nil, err
	}
	memory, ours, err := app.MemoryLimitFromEnv(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	if ours {
		p.group.AddEarly("memory", memory.Run)
	}
	p.server = &app.Server{Metrics: p.registry}
	p.server.AddLiveness("work", p.dog.Check)
	p.server.AddReadiness("cache", func(ctx context.Context) error {
		probe, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		if !p.cache.WaitForCacheSync(probe) {
			return fmt.Errorf("the cache has not synced yet")
		}
		return nil
	})
	p.group.Add("cache", func(ctx context.Context) error { return p.cache.Start(app.Library(ctx)) })
	p.group.Add("events", p.events.run)
	for _, name := range names {
		if r, err := roleOf(name); err == nil && r.wanted != nil && len(names) > 1 && !r.wanted(s) {
			continue
		}
		if err := p.add(name); err != nil {
			return nil, fmt.Errorf("role %s: %w", name, err)
		}
	}
	return p, nil
}

// run opens the listeners, waits until the API server says that it has what the roles need, and runs them.
func (p *process) run(ctx context.Context) error {
	if p.ShowVersion {
		p.log.Info("muster", "version", p.version, "roles", p.names)
	}
	ctx = logr.NewContext(ctx, p.log)
	defer p.end()
	defer context.AfterFunc(ctx, p.end)()
	if err := p.listen(); err != nil {
		return err
	}
	return p.group.Run(ctx)
}

func (p *process) connect() (err error) {
	p.Client.UserAgent = "muster/" + p.version
	if p.config, err = app.RESTConfig(p.Client); err != nil {
		return err
	}
	p.group.AddEarly("credentials", app.WatchCredentials(p.config))
	p.group.AddEarly("absence", app.WatchAbsence(p.config, p.Client))
	if err := app.CountRequests(p.config, p.registry); err != nil {
		return err
	}
	if p.scheme, err = Scheme(); err != nil {
		return err
	}
	if p.aside, err = p.guard(caches); err != nil {
		return err
	}
	o := cache.Options{}
	p.trim(&o)
	if p.cache, err = p.newCache(o); err != nil {
		return err
	}
	if p.client, err = p.newClient(p.config, nil); err != nil {
		return err
	}
	if p.events, err = newEventSink(p.client, p.scheme, p.registry, p.aside); err != nil {
		return err
	}
	return p.elect()
}

// trim has the process's cache keep no more than its roles read.
func (p *process) trim(o *cache.Options) {
	if r, err := roleOf(p.names[0]); err == nil && r.trim != nil {
		r.trim(p.Settings, o)
		return
	}
	feed.Trim(o, p.reads())
}

// reads are what the roles of the process read of what the cache watches.
func (p *process) reads() feed.Reads {
	return feed.Reads{SchedulerNames: slices.Concat(p.SchedulerNames, p.VolcanoNames, p.KubeBatchNames), Notes: slices.Contains(p.names, PodGrouper)}
}

// add prepares a role and puts it into the group.
func (p *process) add(name string) error {
	log := p.log.WithName(name)
	if name == Scheduler {
		t, err := p.turn(app.SchedulerLease(p.SchedulerNames[0], p.Partition))
		if err != nil {
			return err
		}
		p.events.clients[p.SchedulerNames[0]], p.found = t.client, t.notes
		guard, err := p.guard(name)
		if err != nil {
			return err
		}
		lead, err := p.scheduler(t.client, guard)
		if err != nil {
			return err
		}
		p.group.Add(name, t.lead(lead))
		return nil
	}
	r, err := roleOf(name)
	if err != nil {
		return err
	}
	t := p.always()
	if !r.unled {
		if t, err = p.turn(r.lease); err != nil {
			return err
		}
	}
	p.events.clients[name] = t.client
	guard, err := p.guard(name)
	if err != nil {
		return err
	}
	if name == Admission {
		return p.admit(t, log, guard)
	}
	c, err := r.build(p, log, t.client, guard)
	if err != nil {
		return err
	}
	if p.LeaderElect && !r.unled {
		p.group.Add(name+"-standby", func(ctx context.Context) error { return p.warm(ctx, r.watched) })
	}
	p.group.Add(name, t.lead(untilAsked(c.Run)))
	return nil
}

// warm fills the process's cache with what a role will need.
func (p *process) warm(ctx context.Context, kinds []client.Object) error {
	for _, kind := range kinds {
		if _, err := p.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil && !meta.IsNoMatchError(err) && ctx.Err() == nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	<-ctx.Done()
	return nil
}

// admit prepares the admission role: every replica answers, one keeps the certificates. It watches its own few objects
// through a cache of its own, so that it needs no right to see others.
func (p *process) admit(t turn, log logr.Logger, guard *aside.Guard) error {
	o, err := p.admission()
	if err != nil {
		return err
	}
	own, err := p.newCache(o.Watched())
	if err != nil {
		return err
	}
	c, err := admission.New(admission.Deps{Cache: own, Client: t.client, Shard: checkShard, Template: podtemplate.Validate, Log: log, Registry: p.registry, Guard: guard}, o)
	if err != nil {
		return err
	}
	p.server.AddReadiness("webhooks", c.Ready)
	p.group.Add(Admission+"-cache", untilAsked(own.Start))
	p.group.Add(Admission, untilAsked(c.Serve))
	p.group.Add(Admission+"-certificates", t.lead(untilAsked(c.Lead)))
	return p.followGroups(t, log, guard)
}

// followGroups prepares what follows Volcano's resource groups, if there are to be any. That is a cache of its own: the rights to list what it watches are those of one namespace.
func (p *process) followGroups(t turn, log logr.Logger, guard *aside.Guard) error {
	if p.GroupsMap == "" {
		return nil
	}
	ref, err := textfile.ParseRef(p.GroupsMap)
	if err != nil {
		return err
	}
	objects, err := p.newCache(admission.GroupsWatched(ref))
	if err != nil {
		return err
	}
	groups, err := admission.NewGroups(admission.GroupDeps{
		Cache: objects, Client: t.client, Template: podtemplate.Validate, Tell: p.events.recorder(Admission), Log: log.WithName("resource-groups"), Guard: guard,
	}, ref)
	if err != nil {
		return err
	}
	p.group.Add(Admission+"-groups-cache", untilAsked(objects.Start))
	p.group.Add(Admission+"-groups", t.lead(untilAsked(groups.Run)))
	return nil
}

// newBinder builds the binder with all that it lets others prepare.
func (p *process) newBinder(log logr.Logger, c client.Client, guard *aside.Guard) (*binder.Controller, error) {
	o, err := p.binder()
	if err != nil {
		return nil, err
	}
	ro, err := p.reservation(o.Plugins)
	if err != nil {
		return nil, err
	}
	record := p.events.recorder("binder")
	tell := func(pod *corev1.Pod, kind, reason, message string) { record(pod, kind, reason, message) }
	devices, err := reservation.New(reservation.Deps{
		Cache: p.cache, Client: c, Reader: c, Log: log.WithName("devices"), Registry: p.registry, Event: tell, Guard: guard,
	}, ro)
	if err != nil {
		return nil, err
	}
	return binder.New(binder.Deps{
		Cache: p.cache, Client: c, Reader: c, Log: log, Registry: p.registry, Event: tell, Guard: guard,
		Preparers: []binder.Preparer{devices},
	}, o)
}

// untilAsked makes a role's complaints about being stopped while it still waits for its cache a line of the log: a process
// that was told to stop, and stopped, has not failed.
func untilAsked(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := run(ctx)
		if err != nil && ctx.Err() != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("stopped before it was ready", "error", err.Error())
			return nil
		}
		return err
	}
}

// scheduler builds the loop and everything around it.
func (p *process) scheduler(c client.Client, guard *aside.Guard) (func(context.Context) error, error) {
	prof, err := p.profile()
	if err != nil {
		return nil, err
	}
	prof, unknown := profile.Known(prof, p.actions())
	for _, u := range unknown {
		p.log.Error(nil, "a plugin of the configuration is not known and left out", "problem", u.String())
	}
	if err := p.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "muster", Name: "profile_unknown_plugins", Help: "Plugins of the scheduler's configuration that it does not know and leaves out.",
	}, func() float64 { return float64(len(unknown)) })); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	e, err := engine.New(prof, p.actions())
	if err != nil {
		return nil, err
	}
	if err := p.tellKubeBatchFile(); err != nil {
		return nil, err
	}
	for _, w := range e.Warnings {
		p.log.Info("the profile was understood in part", "problem", w)
	}
	metrics, err := scheduler.NewMetrics(p.MetricsNamespace, p.partition().Pool(), p.registry)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if len(p.VolcanoNames) > 0 {
		if err := metrics.ServeVolcano(p.registry); err != nil {
			return nil, fmt.Errorf("register metrics of Volcano's: %w", err)
		}
	}
	fo := p.feed()
	fo.Zones, fo.Drained = prof.Uses(numa.Name), metrics.Drained
	fo.Extended = func() bool { return p.has.Has(served.ExtendedByClaim) }
	fo.Links = p.links
	fo.Broken = func(v any, object client.Object, stack []byte) {
		p.log.WithName(Scheduler).Error(fmt.Errorf("panic: %v", v), "an object could not be read: a defect", "object", fmt.Sprintf("%T %s", object, client.ObjectKeyFromObject(object)), "stack", string(stack))
		guard.About(object)
	}
	f := feed.New(feed.FromCache(p.cache), fo)
	if p.inspector, err = feed.NewInspector(f, p.client, feed.InspectorOptions{Reads: p.reads(), Registry: p.registry, Guard: guard}); err != nil {
		return nil, err
	}
	kit, err := write.New(c, Scheduler, p.registry)
	if err != nil {
		return nil, err
	}
	eo, err := p.evictions()
	if err != nil {
		return nil, err
	}
	pool := apply.NewPool(guard)
	annotations := apply.NewAnnotations(pool, kit, p.grouped)
	event := p.events.recorder(p.SchedulerNames[0])
	events := apply.NewEvents(pool, p.partition().Pool(), event)
	var known atomic.Pointer[cluster.Snapshot]
	fates := &apply.Fates{}
	eo.Latest, eo.Fates, eo.Links = known.Load, fates, p.links
	bo, err := p.binds()
	if err != nil {
		return nil, err
	}
	eo.Written = events.Busy
	bo.Latest, bo.Fates, bo.Bound, bo.Links = known.Load, fates, events.Bound, p.links
	bo.Written = func(after time.Duration) { metrics.Bound(after); events.Busy() }
	bo.Complete = func(b *engine.Bundle, asked bool) {
		if b.Starts { // a pod that is a gang by itself has got it with its Binding
			annotations.Set(b.Gang, b.UID, keys.LastStartAnnotation, cluster.InstantOf(time.Now()))
		}
		switch {
		case asked:
			events.Scheduled(b)
		case len(b.Intents) > 1:
			events.BoundGang(b)
		}
	}
	binds := apply.NewBinds(pool, c, p.cache, bo)
	evictions, nominations := apply.NewEvictions(pool, kit, p.cache, eo), apply.NewNominations(pool, kit, p.cache, apply.NominationOptions{Event: events.OfPodLater})
	if err := p.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "muster", Name: "evicting_bundles", Help: "Decisions whose evictions are being carried out.",
	}, func() float64 { return float64(evictions.Open()) })); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	ro, err := p.statusOptions()
	if err != nil {
		return nil, err
	}
	ro.Event, ro.Bound, ro.Autoscaled = event, events.Last, sync.OnceValue(p.autoscaled)
	statuses := told{apply.NewStatuses(pool, kit, p.cache, ro)}
	statuses = append(statuses, apply.NewUpstreams(pool, kit, p.cache, ro.Settle), apply.NewStrays(pool, kit, p.cache, ro))
	if len(p.VolcanoNames) > 0 {
		statuses = append(statuses, apply.NewGroups(pool, kit, p.cache, ro))
	}
	if len(p.KubeBatchNames) > 0 {
		statuses = append(statuses, apply.NewKubeBatchGroups(pool, kit, p.cache, ro))
	}
	if p.recorder, err = replay.NewRecorder(p.version, prof, p.CSIStorage, p.RecordDecisions); err != nil {
		return nil, fmt.Errorf("--record-decisions: %w", err)
	}
	lo := p.loop()
	lo.Decided, lo.Known = p.recorder.Decided, known.Store
	if p.QueueGates {
		lo.Lifted = apply.NewGates(pool, kit).Publish
	}
	used := []func(engine.Profile){p.recorder.Use}
	var answers *answering
	if p.Explain {
		answers = p.newAnswering(apply.NewAnswers(pool, kit, keys.WhyAnnotation, keys.StartsAnnotation), guard)
	}
	if p.servesCycles() {
		var follow func(engine.Profile)
		if lo.Decided, follow, err = p.newCycles(prof); err != nil {
			return nil, err
		}
		used = append(used, follow)
	}
	var shards runner
	if s := p.sharding(); s.On() {
		if shards, err = vcshardstatus.New(control.Shell{Cache: p.cache, Client: c, Log: p.log.WithName(Scheduler), Registry: p.registry, Guard: guard}, s.Name); err != nil {
			return nil, err
		}
	}
	file, runFile, err := p.followFile(prof, used, guard)
	if err != nil {
		return nil, err
	}
	if file != nil {
		lo.Engines, lo.NodeUse = file, file.measure
	}
	lo.Watch = func(what string) scheduler.Work { return p.dog.Begin(what) }
	lo.Event, lo.Annotated, lo.Later, lo.Records = ro.Event, p.events.annotated(p.SchedulerNames[0]), events.Later, p.records
	past, err := p.usage()
	if err != nil {
		return nil, err
	}
	past.guard = guard
	// A process that waits for its turn follows the cluster, so that its turn begins with what it knows.
	store, turn, handed := scheduler.NewStore(lo), make(chan struct{}), make(chan struct{})
	p.group.Add("feed", untilAsked(f.Run))
	p.group.Add("inspector", p.inspector.Run)
	p.group.Add("standby", func(ctx context.Context) error {
		scheduler.Follow(ctx, turn, f, store)
		close(handed)
		<-ctx.Done()
		return nil
	})
	return func(ctx context.Context) error {
		close(turn) // a process leads once
		p.links.Open(func(labels map[string]string) bool { return f.Watching() && fo.Partition.Includes(labels) })
		select {
		case <-handed:
		case <-ctx.Done():
			return nil
		}
		var g app.Group
		keeper, done, err := past.open(ctx)
		if err != nil {
			return err
		}
		defer done()
		if keeper != nil {
			lo.Usage = keeper
			g.Add("usage", keeper.Run)
		}
		ro.Autoscaled() // asked now, so that no cycle waits for the answer
		loop := scheduler.New(scheduler.Parts{
			Feed: f, Store: store, Engine: e, Binds: binds, Evictions: evictions, Nominations: nominations, Annotations: annotations, Statuses: statuses, Metrics: metrics,
		}, lo)
		g.Add("writers", pool.Run)
		g.Add("loop", loop.Run)
		if file != nil {
			g.Add("scheduler-file", runFile)
			g.Add("node-use", file.measure.Run)
		}
		if shards != nil {
			g.Add("node-shard", untilAsked(shards.Run))
		}
		if answers != nil {
			g.Add("answers", answers.Run)
		}
		return g.Run(ctx)
	}, nil
}

// grouped says whether a gang has a PodGroup, as far as the cache knows.
func (p *process) grouped(gang cluster.Key) bool {
	name := types.NamespacedName{Namespace: gang.Namespace, Name: gang.Name}
	return !apierrors.IsNotFound(p.cache.Get(context.Background(), name, &v2alpha2.PodGroup{}, client.UnsafeDisableDeepCopy))
}

// actions are the actions and plugins of the scheduler.
func (p *process) actions() engine.Registry {
	return filters.Register(builtin.Registry(), filters.Options{StorageCapacity: p.CSIStorage})
}

// listen opens the process's ports.
func (p *process) listen() error {
	type place struct{ flag, address string }
	places := []place{{p.listenFlag(), p.Listen}}
	switch {
	case p.ProbeListen == p.Listen:
	case p.probesGiveWay():
		p.log.Info("probes are answered where metrics are: at their port the scheduler tells its decisions", "address", p.ProbeListen)
	default:
		flag := probeFlag
		if slices.Contains(p.names, VolcanoControllers) {
			flag = volcanoProbeFlag
		}
		places = append(places, place{flag, p.ProbeListen})
	}
	for i, at := range places {
		l, err := app.Listen(at.flag, at.address)
		if err != nil {
			return err
		}
		if l != nil {
			// With port 0 this is the only place that says which one it became.
			p.log.Info("serving", "address", l.Addr().String())
			p.group.AddEarly(fmt.Sprintf("http-%d", i), func(ctx context.Context) error { return p.server.Run(ctx, l) })
		}
	}
	if err := p.tell(); err != nil {
		return err
	}
	if err := p.listenCycles(); err != nil {
		return err
	}
	if err := p.listenUI(); err != nil {
		return err
	}
	if p.Profiler {
		l, err := app.ListenLocal("profiler-port", p.ProfilerPort)
		if err != nil {
			return err
		}
		p.log.V(1).Info("profiling", "address", l.Addr().String())
		profiler := &app.Server{Profiling: true, Local: true}
		p.group.AddEarly("profiler", func(ctx context.Context) error { return profiler.Run(ctx, l) })
	}
	return nil
}

// identified has every answer say which cluster the scheduler is of, once it knows: whoever asks at a port of this machine may mean another.
func (p *process) identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if snap := p.recorder.Latest(); snap != nil {
			if id := replay.Cluster(snap); id != "" {
				w.Header().Set(replay.ClusterHeader, id)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// listenFlag is the flag that says where the process serves metrics.
func (p *process) listenFlag() string {
	switch {
	case slices.Contains(p.names, Scheduler), slices.Contains(p.names, VolcanoControllers):
		return "listen-address"
	case slices.Contains(p.names, Queue):
		return "metrics-listen-address"
	}
	return "metrics-bind-address"
}

// probesGiveWay says whether one process has both of KAI's programs whose ports are the same by default, the scheduler's that tells
// decisions and the others' for probes, and was told nothing else. It then answers probes beside its metrics, where the scheduler does.
func (p *process) probesGiveWay() bool {
	return slices.Contains(p.names, Scheduler) && p.ProbeListen == probeAddress && p.PluginPort == pluginPort && p.Listen != "" && p.Listen != "0"
}

// tell serves what the scheduler remembers of its decisions, to this machine only: there is no authentication. That
// another process has the port is an error only if somebody asked for it: it is no reason not to schedule.
func (p *process) tell() error {
	if p.PluginPort == 0 || !slices.Contains(p.names, Scheduler) {
		return nil
	}
	l, err := app.ListenLocal("plugin-server-port", p.PluginPort)
	if err != nil {
		if p.PluginPort != pluginPort {
			return err
		}
		p.log.Info("decisions and snapshots of this scheduler are not served: who asks at this port is answered by another process", "error", err.Error())
		return nil
	}
	p.log.V(1).Info("telling decisions", "address", l.Addr().String())
	mux := http.NewServeMux()
	mux.Handle("GET /decisions", p.records)
	mux.Handle("GET /snapshot", p.recorder)
	mux.Handle("GET /store", p.inspector)
	prof := p.recorder.Profile()
	if prof.Uses("snapshot") {
		mux.HandleFunc("GET /get-snapshot", p.archive)
	}
	if prof.Uses("reflectjoborder") {
		mux.Handle("GET /get-job-order", scheduler.ServeJobOrder(p.recorder.Latest, prof, p.actions()))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "plugin not found", http.StatusNotFound) })
	teller := &http.Server{Handler: app.Local(p.identified(mux)), ReadHeaderTimeout: 10 * time.Second}
	p.group.AddEarly("decisions", func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { teller.Close() })
		defer stop()
		if err := teller.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}
