package server

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controllermanageroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// serviceIP is the first address of the services' range: the API server's own certificate names it.
const serviceIP = "10.96.0.1"

// apiServerArgs are the flags of a lab's API server. APF is off (its queues would shape a benchmark), the
// in-flight limits are out of the way, and pods leave a lost node after seconds instead of five minutes. Kubelets of real nodes
// are called by their addresses, because nobody tells a lab their names' meanings. Watches are ended when the server is told to go:
// clients outside the lab, and nodes that are gone without a word, would hold it up for a minute.
func apiServerArgs(p pki, etcd string, address net.IP) []string {
	return []string{
		"--etcd-servers=" + etcd,
		"--bind-address=" + address.String(),
		"--advertise-address=" + address.String(),
		"--endpoint-reconciler-type=none", // see advertise
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--kubelet-client-certificate=" + p.path("admin.crt"),
		"--kubelet-client-key=" + p.path("admin.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--client-ca-file=" + p.path("ca.crt"),
		"--tls-cert-file=" + p.path("apiserver.crt"),
		"--tls-private-key-file=" + p.path("apiserver.key"),
		"--authorization-mode=RBAC",
		"--token-auth-file=" + p.path("tokens.csv"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.path("serviceaccount.key"),
		"--service-account-signing-key-file=" + p.path("serviceaccount.key"),
		"--allow-privileged=true",
		"--enable-priority-and-fairness=false",
		"--max-requests-inflight=4000",
		"--max-mutating-requests-inflight=4000",
		"--default-not-ready-toleration-seconds=5",
		"--default-unreachable-toleration-seconds=5",
		"--profiling=true",
		"--shutdown-watch-termination-grace-period=1s",
	}
}

// controllerManagerArgs are the flags of a lab's controller manager. Node grace is long because the lab itself
// says when a node is lost (a heartbeat that misses its time on a busy machine must not evict anything), while
// what follows from a lost node comes at once.
func controllerManagerArgs(p pki, kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		// As installations have it: policies tell a controller from the administrator.
		"--use-service-account-credentials=true",
		"--leader-elect=false",
		"--secure-port=0",
		"--root-ca-file=" + p.path("ca.crt"),
		"--cluster-signing-cert-file=" + p.path("ca.crt"),
		"--cluster-signing-key-file=" + p.path("ca.key"),
		"--service-account-private-key-file=" + p.path("serviceaccount.key"),
		"--controllers=*,-horizontal-pod-autoscaler-controller,-node-ipam-controller",
		"--kube-api-qps=5000",
		"--kube-api-burst=10000",
		"--concurrent-job-syncs=50",
		"--concurrent-gc-syncs=50",
		"--concurrent-deployment-syncs=20",
		"--concurrent-replicaset-syncs=20",
		"--concurrent-statefulset-syncs=20",
		"--concurrent-cron-job-syncs=10",
		"--concurrent-namespace-syncs=20",
		"--node-monitor-period=1s",
		"--node-monitor-grace-period=2h",
		"--node-eviction-rate=1000",
		"--secondary-node-eviction-rate=1000",
	}
}

// runAPIServer serves on l until ctx ends, and returns when the server has drained. It consumes l.
func runAPIServer(ctx context.Context, l net.Listener, args []string) error {
	o := apiserveroptions.NewServerRunOptions()
	o.SecureServing.Listener = l
	o.SecureServing.BindPort = l.Addr().(*net.TCPAddr).Port
	sets := o.Flags()
	if err := parse(sets, args); err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	completed, err := o.Complete(ctx)
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return fmt.Errorf("kube-apiserver: %w", utilerrors.NewAggregate(errs))
	}
	if err := apiserver.Run(ctx, completed); err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	return nil
}

// runControllerManager runs until ctx ends.
func runControllerManager(ctx context.Context, args []string) error {
	o, err := controllermanageroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	all, off, aliases := controllermanager.KnownControllers(), controllermanager.ControllersDisabledByDefault(), controllermanager.ControllerAliases()
	sets := o.Flags(all, off, aliases)
	if err := parse(sets, args); err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	o.ParsedFlags = &sets
	if err := o.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	c, err := o.Config(ctx, all, off, aliases)
	if err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	if err := controllermanager.Run(ctx, c.Complete()); err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	return nil
}

// runScheduler runs a stock kube-scheduler, which answers to schedulerName default-scheduler, until ctx ends.
func runScheduler(ctx context.Context, kubeconfig string, args []string) error {
	o := scheduleroptions.NewOptions()
	args = append([]string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--kube-api-qps=5000", "--kube-api-burst=10000",
	}, args...)
	if err := parse(*o.Flags, args); err != nil {
		return fmt.Errorf("kube-scheduler: %w", err)
	}
	if err := o.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("kube-scheduler: %w", err)
	}
	c, s, err := scheduler.Setup(ctx, o)
	if err != nil {
		return fmt.Errorf("kube-scheduler: %w", err)
	}
	// Run returns an error whenever its context ends; that end is ours.
	if err := scheduler.Run(ctx, c, s); err != nil && ctx.Err() == nil {
		return fmt.Errorf("kube-scheduler: %w", err)
	}
	return nil
}

// ServeScheduler is a process that is nothing but a stock kube-scheduler, for the cluster of a kubeconfig, until ctx ends. args are further flags
// of kube-scheduler; without them it has its default settings, but for these: it holds no Lease, serves no port, and its client is not paced.
func ServeScheduler(ctx context.Context, kubeconfig string, args []string) error {
	if _, err := stampVersion(); err != nil {
		return err
	}
	return runScheduler(ctx, kubeconfig, args)
}

func parse(sets cliflag.NamedFlagSets, args []string) error {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, s := range sets.FlagSets {
		fs.AddFlagSet(s)
	}
	return fs.Parse(args)
}
