package roles

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/controllers/nodescale"
	"github.com/muster-scheduler/muster/internal/controllers/podgroup"
	"github.com/muster-scheduler/muster/internal/controllers/podgrouper"
	"github.com/muster-scheduler/muster/internal/controllers/queue"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/control"
)

// role is a row of the table of roles. Its rights are install.Rules of its name, which a test holds against the row.
type role struct {
	name, about string
	// kai is the program of KAI whose flags it takes; "" for none.
	kai string
	// lease is that of its turn; "" for the scheduler, each of whose shards has one, and for who takes no turn.
	lease string
	// home is the namespace of its Lease by default, wherever it runs; "" for that of its pod.
	home string
	// needs are the custom kinds without which it does not work, in a folder of this repository; none: those of api/crds.
	needs []schema.GroupVersionKind
	// trim has the cache keep no more than it reads, if it is no part of All; nil: what any role of All reads.
	trim func(*Settings, *cache.Options)
	// apart says that it is no part of All.
	apart bool
	// unled says that it takes no turn: every process of it works, and it has no Lease.
	unled bool
	// wanted says whether it runs where all roles run in one process; nil: always.
	wanted func(*Settings) bool
	// processors bounds GOMAXPROCS of a process of its own; 0 is 1, the scheduler's too, whose engine is one goroutine.
	processors int
	// watched are the kinds that it watches when it leads, and before that so as to know them when its turn comes. One that is missing
	// here only makes a takeover longer.
	watched []client.Object
	// flags declares its own flags.
	flags func(*Settings, *pflag.FlagSet)
	// build makes what runs while it leads; nil for the scheduler and for admission, which are more than that.
	build func(p *process, log logr.Logger, c client.Client, guard *aside.Guard) (runner, error)
}

type runner interface {
	Run(ctx context.Context) error
}

// table lists the roles, in the order in which they are started and listed.
func table() []role {
	return []role{
		{
			name: Scheduler, about: "Decide: watch the cluster, run the engine, write BindRequests and reasons", kai: "scheduler",
			flags: (*Settings).schedulerFlags,
		},
		{
			name: Binder, about: "Execute BindRequests: prepare, bind, roll back", kai: "binder", lease: keys.LeaseBinder,
			watched: []client.Object{
				&corev1.Node{}, &storagev1.StorageClass{}, &corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}, &resourcev1.ResourceClaim{},
				&corev1.Pod{}, &v1alpha2.BindRequest{},
			},
			flags: (*Settings).binderFlags,
			build: func(p *process, log logr.Logger, c client.Client, guard *aside.Guard) (runner, error) {
				return p.newBinder(log, c, guard)
			},
		},
		{
			name: PodGrouper, about: "Turn workloads into PodGroups", kai: "podgrouper", lease: keys.LeasePodGrouper,
			watched: []client.Object{&corev1.Pod{}, &v2alpha2.PodGroup{}},
			flags:   (*Settings).podGrouperFlags,
			build: func(p *process, log logr.Logger, c client.Client, guard *aside.Guard) (runner, error) {
				o, err := p.podgrouper()
				if err != nil {
					return nil, err
				}
				kinds, err := discovery.NewDiscoveryClientForConfig(p.config)
				if err != nil {
					return nil, fmt.Errorf("build the client of kinds: %w", err)
				}
				return podgrouper.New(podgrouper.Deps{
					Cache: p.cache, Client: c, Reader: c, Event: p.events.recorder("podgrouper"),
					Log: log, Discovery: kinds, Registry: p.registry, Guard: guard, Links: p.links,
				}, o)
			},
		},
		{
			name: PodGroup, about: "Keep the status of PodGroups", kai: "podgroupcontroller", lease: keys.LeasePodGroupController,
			watched: []client.Object{&schedulingv1.PriorityClass{}, &corev1.Node{}, &queuev2.Queue{}, &v2alpha2.PodGroup{}, &corev1.Pod{}},
			flags:   (*Settings).podGroupFlags,
			build: func(p *process, log logr.Logger, c client.Client, guard *aside.Guard) (runner, error) {
				return podgroup.New(p.shell(log, c, guard), p.links, p.podgroup())
			},
		},
		{
			name: Queue, about: "Keep the status and metrics of queues", kai: "queuecontroller", lease: keys.LeaseQueueController,
			watched: []client.Object{&queuev2.Queue{}, &v2alpha2.PodGroup{}},
			flags:   (*Settings).queueFlags,
			build: func(p *process, log logr.Logger, c client.Client, guard *aside.Guard) (runner, error) {
				return queue.New(p.shell(log, c, guard), p.queue())
			},
		},
		{
			name: Admission, about: "Check and complete pods, and check queues, PodGroups and shards, before they exist", kai: "admission",
			lease:      keys.LeaseAdmission,
			wanted:     func(s *Settings) bool { return s.WithAdmission }, // it needs a port, certificates and the API server's consent
			processors: 2,                                                 // the API server waits for it
			flags:      (*Settings).admissionFlags,
		},
		{
			name: NodeScale, about: "Let a cluster autoscaler see the demand for shared GPUs", kai: "nodescaleadjuster", lease: keys.LeaseNodeScaleAdjuster,
			wanted:  func(s *Settings) bool { return s.WithNodeScale }, // it is of use only beside an autoscaler
			watched: []client.Object{&v2alpha2.PodGroup{}, &v1alpha2.BindRequest{}, &corev1.Pod{}},
			flags:   (*Settings).nodeScaleFlags,
			build: func(p *process, log logr.Logger, c client.Client, guard *aside.Guard) (runner, error) {
				return nodescale.New(p.shell(log, c, guard), p.actions().NodesHelp(), p.nodescale())
			},
		},
		{
			name: Operator, about: "Install what a Config and SchedulingShards ask for, and keep it so", kai: "operator", lease: keys.LeaseOperator,
			apart: true,
			flags: (*Settings).operatorFlags,
			build: func(p *process, log logr.Logger, c client.Client, guard *aside.Guard) (runner, error) {
				return p.newOperator(log, c, guard)
			},
		},
		volcanoRole(), uiRole(),
	}
}

// shell is what the process gives a controller.
func (p *process) shell(log logr.Logger, c client.Client, guard *aside.Guard) control.Shell {
	return control.Shell{Cache: p.cache, Client: c, Log: log, Registry: p.registry, Guard: guard}
}

// roleOf is the row of a role; an error if there is none of that name.
func roleOf(name string) (role, error) {
	for _, r := range table() {
		if r.name == name {
			return r, nil
		}
	}
	return role{}, fmt.Errorf("unknown role %q; known: %v", name, append(Names(), Apart()...))
}

// rolesNamed are those of the roles that are apart, or of the others.
func rolesNamed(apart bool) (out []string) {
	for _, r := range table() {
		if r.apart == apart {
			out = append(out, r.name)
		}
	}
	return out
}
