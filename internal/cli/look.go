package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1alpha1 "github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/plugins/numa"
	"github.com/muster-scheduler/muster/internal/kube/feed"
	"github.com/muster-scheduler/muster/internal/kube/served"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/see"
)

// Deps are what the commands cannot know by themselves.
type Deps struct {
	// Registry returns the actions and plugins that the scheduler has; storageCapacity is its --schedule-csi-storage.
	Registry func(storageCapacity bool) engine.Registry
	// Version goes into the user agent.
	Version string
	// SchedulerFlags are the names of the scheduler's flags, for `muster render`.
	SchedulerFlags []string
}

// New returns the commands that look at a cluster: status, queue, gang, explain, what-if, decisions, ui, mcp; and render and version, which look at none.
// They read, and write nothing.
func New(d Deps) []*cobra.Command {
	return []*cobra.Command{newStatus(d), newQueue(d), newGang(d), newExplain(d), newWhatIf(d), newDecisions(d), newUI(d), newMCP(d), newRender(d), newVersion(d)}
}

// looker makes one look at a cluster, as its flags say.
type looker struct {
	deps   Deps
	client app.ClientOptions
	output string

	role           remote
	schedulerConf  string
	schedulerNames []string
	partition      kai.Partition
	restrict       bool
	cpu, gpu, mig  string
	csi            bool
}

// flags declares the flags that all looks share. Those of the scheduler have its names and defaults: what the scheduler was
// started with makes the answer its own.
func (l *looker) flags(c *cobra.Command) {
	fs := c.Flags()
	l.client = app.ClientOptions{QPS: -1, UserAgent: "muster/" + l.deps.Version}
	clientFlags(fs, &l.client)
	fs.StringVarP(&l.output, "output", "o", "table", "table, json or yaml")
	fs.StringVar(&l.schedulerConf, "scheduler-conf", "", "the scheduler's configuration file; empty: the built-in one")
	fs.StringSliceVar(&l.schedulerNames, "scheduler-name", []string{keys.SchedulerName}, "spec.schedulerName of the pods that are the scheduler's")
	fs.StringVar(&l.partition.Key, "nodepool-label-key", keys.NodePoolLabel, "label by which shards divide nodes, queues and gangs")
	fs.StringVar(&l.partition.Value, "partition-label-value", "", "the shard's value of that label; empty for objects without it")
	fs.BoolVar(&l.restrict, "restrict-node-scheduling", false, "the scheduler places GPU pods only on GPU workers and other pods only on CPU workers")
	fs.StringVar(&l.cpu, "cpu-worker-node-label-key", keys.CPUWorkerNodeLabel, "label of CPU workers")
	fs.StringVar(&l.gpu, "gpu-worker-node-label-key", keys.GPUWorkerNodeLabel, "label of GPU workers")
	fs.StringVar(&l.mig, "mig-worker-node-label-key", keys.MIGWorkerNodeLabel, "label that says whether the GPUs of a node are cut into MIG slices")
	fs.BoolVar(&l.csi, "schedule-csi-storage", false, "the scheduler takes the capacity CSI drivers publish into account")
	for _, name := range []string{"nodepool-label-key", "restrict-node-scheduling", "cpu-worker-node-label-key", "gpu-worker-node-label-key", "mig-worker-node-label-key", "schedule-csi-storage"} {
		fs.Lookup(name).Hidden = true
	}
}

// view is a cluster at one moment, and what the scheduler makes of it.
type view struct {
	snap  *cluster.Snapshot
	cycle *see.Cycle
	trace *engine.Trace                                            // of a whole run
	names []string                                                 // scheduler names
	pod   func(namespace, name string) (*v1.Pod, error)            // reads one pod as it is
	group func(namespace, name string) (*v2alpha2.PodGroup, error) // reads one PodGroup as it is
}

// look reads the cluster once and runs the engine on it.
func (l *looker) look(ctx context.Context) (*view, error) {
	if err := form.Check(l.output); err != nil {
		return nil, err
	}
	prof := profile.BuiltIn()
	if l.schedulerConf != "" {
		text, err := os.ReadFile(l.schedulerConf)
		if err != nil {
			return nil, fmt.Errorf("--scheduler-conf: %w", err)
		}
		if prof, err = profile.Parse(text); err != nil {
			return nil, fmt.Errorf("%s: %w", l.schedulerConf, err)
		}
	}
	c, config, err := dial(l.client, kinds()...)
	if err != nil {
		return nil, err
	}
	o := feed.Options{
		SchedulerNames: l.schedulerNames, Partition: l.partition, RestrictNodes: l.restrict, GPUWorkerLabel: l.gpu,
		CPUWorkerLabel: l.cpu, MIGWorkerLabel: l.mig, StorageCapacity: l.csi, Zones: prof.Uses(numa.Name),
	}
	has, err := lookAt(config)
	if err != nil {
		return nil, advise(err, config.Host)
	}
	o.Extended = func() bool { return has.Has(served.ExtendedByClaim) }
	store := cluster.NewStore(cluster.Options{StuckAfter: 2 * time.Minute, DefaultQueue: keys.DefaultQueue})
	if err := feed.Rebuild(ctx, c, o, store); err != nil {
		return nil, advise(err, config.Host)
	}
	v, err := newView(ctx, see.NewCycle(store.Snapshot(cluster.InstantOf(time.Now())), prof, l.deps.Registry(l.csi)))
	if err != nil {
		return nil, err
	}
	v.names = l.schedulerNames
	v.pod = func(namespace, name string) (*v1.Pod, error) {
		var p v1.Pod
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &p); err != nil {
			return nil, advise(err, config.Host)
		}
		return &p, nil
	}
	v.group = func(namespace, name string) (*v2alpha2.PodGroup, error) {
		var g v2alpha2.PodGroup
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &g); err != nil {
			return nil, advise(err, config.Host)
		}
		return &g, nil
	}
	return v, nil
}

// newView has the engine decide on a cycle.
func newView(ctx context.Context, c *see.Cycle) (*view, error) {
	run, err := c.Look(ctx)
	if err != nil {
		return nil, err
	}
	return &view{snap: run.Snapshot(), cycle: c, trace: run.Trace(), names: []string{keys.SchedulerName}}, nil
}

// now is what a run without actions says: queues as they stand.
func (v *view) now(ctx context.Context) (*engine.Trace, error) {
	idle := v.cycle.Case.Profile
	idle.Actions = nil
	e, err := engine.New(idle, v.cycle.Registry)
	if err != nil {
		return nil, err
	}
	t := e.Run(ctx, v.snap, func(engine.Plan) {}).Trace
	return &t, nil
}

// kinds are those that commands read.
func kinds() []func(*runtime.Scheme) error {
	return []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kaiv1alpha1.AddToScheme, v1alpha2.AddToScheme, queuev2.AddToScheme, v2alpha2.AddToScheme, topologyv1alpha2.AddToScheme}
}

// dial makes a client for an API server's objects of some kinds.
func dial(o app.ClientOptions, kinds ...func(*runtime.Scheme) error) (client.Client, *rest.Config, error) {
	config, err := app.RESTConfig(o)
	if err != nil {
		return nil, nil, err
	}
	scheme, err := schemeOf(kinds...)
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, advise(err, config.Host)
	}
	return c, config, nil
}

func schemeOf(kinds ...func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range kinds {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build the scheme: %w", err)
		}
	}
	return scheme, nil
}

// clientFlags declares those that say which API server is meant.
func clientFlags(fs *pflag.FlagSet, o *app.ClientOptions) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "file that names the API server; empty: $KUBECONFIG or the user's default")
	fs.StringVar(&o.Context, "context", "", "context of the kubeconfig; empty: its current one")
}

// namespace is the one that -n names, or the kubeconfig's.
func (l *looker) namespace(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = l.client.Kubeconfig
	ns, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: l.client.Context}).Namespace()
	if err != nil {
		return "", fmt.Errorf("read kubeconfig: %w", err)
	}
	return ns, nil
}

// advise says what to do about an error of the API server.
func advise(err error, host string) error {
	var nobody *net.OpError
	switch {
	case meta.IsNoMatchError(err) || strings.Contains(err.Error(), "no matches for kind") ||
		apierrors.IsNotFound(err) && strings.Contains(err.Error(), "the server could not find the requested resource"):
		return fmt.Errorf("%w\n%s does not have Muster's custom resources. Install them first: kubectl apply -f api/crds", err, host)
	case apierrors.IsForbidden(err):
		return &Forbidden{Right: missingRight(err)}
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w\n%s does not accept the credentials of the kubeconfig: log in again", err, host)
	case errors.As(err, &nobody):
		return fmt.Errorf("%w\nnothing answers at %s: is this the right cluster (--kubeconfig, --context), and is it up?", err, host)
	}
	return err
}

// Forbidden says which right is missing, and names no other.
type Forbidden struct{ Right string }

func (f *Forbidden) Error() string { return "you may not " + f.Right }

// missingRight is the right that an API server refused for want of: "list nodes of the whole cluster".
func missingRight(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}
	text := status.Status().Message
	if _, rest, ok := strings.Cut(text, "cannot "); ok { // what authorizers say: User "u" cannot list resource "nodes" in API group "" at the cluster scope
		return strings.TrimSpace(strings.NewReplacer(`resource "`, "", `" in API group ""`, "", `" in API group "`, ".", `" at`, " at", `" in the`, " in the").Replace(rest))
	}
	return text
}
