package roles

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	"github.com/muster-scheduler/muster/internal/controllers/admission"
	"github.com/muster-scheduler/muster/internal/controllers/binder"
	"github.com/muster-scheduler/muster/internal/controllers/reservation"
	"github.com/muster-scheduler/muster/internal/cycles"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/feed"
	"github.com/muster-scheduler/muster/internal/kube/filters/podtemplate"
	"github.com/muster-scheduler/muster/internal/kube/links"
	"github.com/muster-scheduler/muster/internal/kube/served"
	"github.com/muster-scheduler/muster/internal/kube/textfile"
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
	links     *links.Links    // what the podgrouper, and the teller of Volcano's pods, tell the scheduler; nil where there is neither
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
	if percent, floor := collects(names); percent > 0 && os.Getenv("GOGC") == "" {
		app.CollectAt(percent, floor) // for as long as it lives
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

// allGCPercent is for a process with all roles. After 4,000 one-GPU Jobs on 500 nodes some 48 MiB are in use, and the kernel counts another 58 of the program's own file: the process had
// 145 MiB at most, in place of 157 to 165 at 80 %. GOGC overrules it.
const allGCPercent = 60

// collects is at how much growth a process with these roles, and no others, collects its garbage, and how many bytes it lets be before; 0 for what the program has.
func collects(names []string) (percent int, floor uint64) {
	switch {
	case slices.Equal(names, []string{UI}):
		return ui.GCPercent, ui.GCFloor
	case slices.Equal(names, Names()):
		return allGCPercent, 0
	}
	return 0, 0
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
	if slices.Contains(names, Scheduler) && (slices.Contains(names, PodGrouper) || len(s.VolcanoNames) > 0) {
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
	p.group.Add(Admission+"-volcano", untilAsked(c.Hear))
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
