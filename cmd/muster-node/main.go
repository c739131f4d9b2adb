// Command muster-node is what runs on nodes: it tells the control plane which GPU a reservation pod holds, and in which NUMA
// zones the kubelet has put pods. It is a binary of its own because it talks to the GPU driver, which needs cgo.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/controllers/nodedevice"
	"github.com/muster-scheduler/muster/internal/controllers/nodezones"
)

// version is set at link time.
var version = "dev"

// envSimulated is the UUID of a GPU that is to be reported instead of a real one, for clusters that only play at having GPUs.
const envSimulated = "MUSTER_SIMULATED_DEVICE"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "muster-node:", err)
		stop()
		os.Exit(1)
	}
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use: "muster-node", Short: "The parts of Muster that run on nodes", Version: version,
		SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs, RunE: app.NeedsCommand,
	}
	c.AddCommand(reservation(), numaExporter())
	return c
}

// process is what both commands are made of.
type process struct {
	client app.ClientOptions
	log    app.LogOptions
}

func (p *process) bind(c *cobra.Command) {
	app.BindClientFlags(c.Flags(), &p.client)
	app.BindZapFlags(c.Flags(), &p.log)
}

// start returns the process's context, with its logger, and its client.
func (p *process) start(ctx context.Context, name string) (context.Context, client.Client, error) {
	log, err := app.Logger(os.Stderr, p.log)
	if err != nil {
		return nil, nil, err
	}
	app.InstallLogger(log)
	p.client.UserAgent = "muster-" + name
	config, err := app.RESTConfig(p.client)
	if err != nil {
		return nil, nil, err
	}
	// Pods are all that is read or written here; nothing need be asked of the server to know where they are.
	pods := meta.NewDefaultRESTMapper(nil)
	pods.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	config = app.Waiting(app.Hurried(context.Background(), app.Protobuf(config), request))
	c, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme, Mapper: pods})
	if err != nil {
		return nil, nil, fmt.Errorf("client for the API server: %w", err)
	}
	return logr.NewContext(ctx, log.WithName(name)), c, nil
}

// request is how long a read or a write may take, as long as the API server lets one. Without it, one that hangs would hang us.
const request = time.Minute

func reservation() *cobra.Command {
	p := process{client: app.DefaultClientOptions()}
	simulated := os.Getenv(envSimulated)
	cmd := &cobra.Command{
		Use: "reservation", Short: "Report which GPU this pod holds, and keep it until told to go", Args: cobra.NoArgs,
		Long: "Runs in a reservation pod. Which pod that is stands in POD_NAMESPACE and POD_NAME. The pod must see exactly one GPU, whose\n" +
			"UUID is written into the pod's annotation run.ai/reserve_for_gpu_index, unless it is there already.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, c, err := p.start(cmd.Context(), "reservation")
			if err != nil {
				return err
			}
			devices := nodedevice.Devices(driver{})
			if simulated != "" {
				devices = nodedevice.Simulated(simulated)
			}
			return nodedevice.Run(ctx, c, types.NamespacedName{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME")}, devices)
		},
	}
	p.bind(cmd)
	cmd.Flags().StringVar(&simulated, "simulated-device", simulated, "UUID to report instead of a real GPU's (default: $"+envSimulated+")")
	return cmd
}

// exporterDefaults are KAI's.
func exporterDefaults() nodezones.Options {
	return nodezones.Options{Socket: "/var/lib/kubelet/pod-resources/kubelet.sock", Sysfs: "/sys", Poll: time.Second, Resync: time.Minute}
}

func numaExporter() *cobra.Command {
	p := process{client: app.ClientOptions{QPS: 50, Burst: 100}}
	o := exporterDefaults()
	probes := ""
	cmd := &cobra.Command{
		Use: "numa-exporter", Short: "Write into pods' annotations which NUMA zones the kubelet gave them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Node == "" {
				o.Node = os.Getenv("NODE_NAME")
			}
			if err := o.Validate(); err != nil {
				return err
			}
			ctx, c, err := p.start(cmd.Context(), "numa-placement-exporter")
			if err != nil {
				return err
			}
			dog := app.NewWatchdog(app.DefaultHungAfter)
			o.Watch = dog.During
			e, err := nodezones.New(o, c)
			if err != nil {
				return err
			}
			defer func() { _ = e.Close() }()
			var g app.Group
			g.Add("exporter", e.Run)
			if err := serve(&g, probes, dog); err != nil {
				return err
			}
			return g.Run(ctx)
		},
	}
	p.bind(cmd)
	cmd.Flags().StringVar(&probes, probeFlag, probes, "`address` where /healthz says whether the exporter hangs; empty or 0: none")
	exporterFlags(cmd.Flags(), &o)
	return cmd
}

const probeFlag = "health-probe-bind-address"

// serve adds what answers probes to a group: /healthz fails while work that dog watches hangs, which only a restart ends. That the
// kubelet or the API server does not answer is none of that.
func serve(g *app.Group, address string, dog *app.Watchdog) error {
	l, err := app.Listen(probeFlag, address)
	if l == nil || err != nil {
		return err
	}
	s := &app.Server{}
	s.AddLiveness("work", dog.Check)
	g.AddEarly("http", func(ctx context.Context) error { return s.Run(ctx, l) })
	return nil
}

// exporterFlags declares KAI's flags, with the values of o as defaults.
func exporterFlags(f *pflag.FlagSet, o *nodezones.Options) {
	f.StringVar(&o.Node, "node-name", "", "name of this node (default: $NODE_NAME)")
	f.StringVar(&o.Socket, "podresources-socket", o.Socket, "the kubelet's podresources socket")
	f.StringVar(&o.Sysfs, "sysfs-root", o.Sysfs, "where the kernel's sysfs is mounted")
	f.DurationVar(&o.Poll, "poll-interval", o.Poll, "time between two questions to the kubelet")
	f.DurationVar(&o.Resync, "drift-resync-interval", o.Resync, "time between two looks at the annotations themselves; 0: never")
}
