package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/muster-scheduler/muster/internal/lab"
	"github.com/muster-scheduler/muster/internal/lab/disk"
	"github.com/muster-scheduler/muster/internal/lab/kubelet"
	"github.com/muster-scheduler/muster/internal/lab/operator"
)

// Config says which lab to run.
type Config struct {
	// Dir is the lab's folder; everything it writes lies below it. It is made if it is missing, and a lab that was
	// stopped in it is continued, with its objects, unless the machine itself stopped (see Durable).
	Dir string
	// Fleet is the set of simulated nodes. Nodes that exist already are left as they are.
	Fleet lab.Fleet
	// CRDs are YAML documents to install before the lab is ready.
	CRDs [][]byte
	// Recorded are objects that are there before anything starts, as they are: with their UIDs, times and statuses. Namespaces
	// of theirs are among them.
	Recorded []*unstructured.Unstructured
	// Objects without a namespace are created before the lab is ready, unless they exist.
	Objects []*unstructured.Unstructured
	// Scheduler adds a stock kube-scheduler, which answers to default-scheduler.
	Scheduler bool
	// Split runs the API server as a process of its own, which can be killed and is started again.
	Split bool
	// Advertise is the address where the API server listens, and which real nodes' pods find as Service kubernetes; 127.0.0.1,
	// which none of them reaches, if it is empty.
	Advertise string
	// Durable makes etcd sync to disk. Without it a lab survives its own end but not the machine's.
	Durable bool
	// Kubeconfig, if set, is a second place to write the kubeconfig to.
	Kubeconfig string
	// Kubernetes is the minor version that the servers behave like, such as 1.34; "" for the one that they are.
	Kubernetes string
	// FeatureGates are gates of Kubernetes as its servers' flag of that name has them, such as "X=true,Y=false", for all servers; "" for none.
	FeatureGates string
	// APIServerArgs, ControllerManagerArgs and SchedulerArgs are appended to the flags of the servers.
	APIServerArgs, ControllerManagerArgs, SchedulerArgs []string
	// Programs are the images whose containers run for real, and the entry point of each: a program of this machine by its path.
	Programs map[string]string
	// Progress is told what happens, one line a call.
	Progress func(format string, args ...any)
	// Ready is called once, when the lab is ready.
	Ready func(lab.State)
}

// stopGrace is how long the servers may take to end. It is bounded because an API server waits for the end of
// requests that a client may hold open; etcd is closed in any case.
const stopGrace = 15 * time.Second

// Run starts a lab and returns when ctx ends and everything has stopped, or when a part of it fails.
//
// The servers keep global state (feature gates, metrics, configz, klog), so that a process can hold one lab only,
// and once. Where Kubernetes itself calls os.Exit (klog.Fatal on an unrecoverable error), the whole process ends;
// its last words are in logs/servers.log.
func Run(ctx context.Context, c Config) (err error) {
	started := time.Now()
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return fmt.Errorf("find the lab's folder: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o700); err != nil {
		return fmt.Errorf("make the lab's folder: %w", err)
	}
	lock, err := lab.Lock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	_ = os.Remove(lab.StatePath(dir)) // of an earlier lab in this folder
	version, err := stampVersion()
	if err != nil {
		return err
	}
	common, err := emulate(version, c.Kubernetes)
	if err != nil {
		return err
	}
	if c.FeatureGates != "" {
		common = append(common, "--feature-gates="+c.FeatureGates)
	}
	for _, args := range []*[]string{&c.APIServerArgs, &c.ControllerManagerArgs, &c.SchedulerArgs} {
		*args = slices.Concat(common, *args)
	}
	closeLog, err := logTo(filepath.Join(dir, "logs", "servers.log"))
	if err != nil {
		return err
	}
	defer closeLog()
	address := net.ParseIP(cmp.Or(c.Advertise, "127.0.0.1"))
	if address == nil || address.IsUnspecified() {
		return fmt.Errorf("%q is no address to advertise", c.Advertise)
	}
	p := pki{dir: filepath.Join(dir, "pki")}
	if err := p.ensure(address); err != nil {
		return err
	}

	endpoint, write, stopEtcd, err := startEtcd(ctx, dir, c.Durable)
	if err != nil {
		return err
	}
	defer stopEtcd()
	if err := store(ctx, c.Recorded, write); err != nil {
		return err
	}
	c.Progress("etcd answers after %s", since(started))

	listener, err := net.Listen("tcp", net.JoinHostPort(address.String(), "0"))
	if err != nil {
		return fmt.Errorf("listen for the API server: %w", err)
	}
	url := "https://" + listener.Addr().String()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	for _, path := range []string{kubeconfig, c.Kubeconfig} {
		if path == "" {
			continue
		}
		if err := p.kubeconfig(path, url); err != nil {
			return err
		}
	}

	pods, err := newEgress(dir, p)
	if err != nil {
		return err
	}
	// The API server outlives the others, so that they can take their leave of it.
	back := newGroup(context.WithoutCancel(ctx))
	front := newGroup(ctx)
	args := slices.Concat(apiServerArgs(p, endpoint, address), pods.flags(), c.APIServerArgs)
	back.run("the proxy to pods", pods.serve)
	_ = os.Remove(lab.APIServerPIDPath(dir)) // of an earlier lab in this folder
	back.run("kube-apiserver", func(ctx context.Context) error {
		if c.Split {
			if err := listener.Close(); err != nil { // the children listen there
				return fmt.Errorf("kube-apiserver: %w", err)
			}
			return superviseAPIServer(ctx, dir, listener.Addr().String(), args)
		}
		return runAPIServer(ctx, listener, args)
	})
	defer func() { err = errors.Join(err, back.stop(stopGrace)) }()
	defer func() { err = errors.Join(err, front.stop(stopGrace)) }()

	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("load the lab's kubeconfig: %w", err)
	}
	cfg.QPS = -1
	state := lab.State{PID: os.Getpid(), Server: url, Kubeconfig: kubeconfig, Version: version, Emulates: c.Kubernetes, Started: started}
	failed := make(chan error, 1)
	ready := make(chan error, 1)
	bootCtx, cancelBoot := context.WithCancel(ctx)
	defer cancelBoot()
	go func() {
		select {
		case err := <-back.failed:
			failed <- err
		case err := <-front.failed:
			failed <- err
		case <-ctx.Done():
			failed <- nil
		}
		cancelBoot()
	}()
	at := listener.Addr().(*net.TCPAddr).AddrPort()
	go func() { ready <- boot(bootCtx, c, dir, kubeconfig, at, cfg, p, front, &state) }()
	if err := <-ready; err != nil {
		select {
		case ferr := <-failed:
			if ctx.Err() != nil {
				return nil // stopped while it started
			}
			return ferr
		default:
			return err
		}
	}
	if c.Ready != nil {
		c.Ready(state)
	}
	return <-failed
}

// boot brings everything up behind an API server that has just been started, and fills in state.
func boot(ctx context.Context, c Config, dir, kubeconfig string, at netip.AddrPort, cfg *rest.Config, p pki, g *group, state *lab.State) error {
	client, err := kubernetes.NewForConfig(protobuf(cfg))
	if err != nil {
		return fmt.Errorf("make the lab's client: %w", err)
	}
	if err := awaitAPI(ctx, client); err != nil {
		return err
	}
	if err := advertise(ctx, client, at); err != nil {
		return err
	}
	c.Progress("kube-apiserver %s answers at %s after %s", state.Serves(), state.Server, since(state.Started))

	// Before the controller manager: its garbage collector looks for new kinds only every 30 s, and until then leaves
	// behind what objects of such a kind own.
	if err := lab.InstallCRDs(ctx, cfg, c.CRDs); err != nil {
		return err
	}
	if len(c.CRDs) > 0 {
		c.Progress("CRDs are established after %s", since(state.Started))
	}
	g.run("kube-controller-manager", func(ctx context.Context) error {
		return runControllerManager(ctx, append(controllerManagerArgs(p, kubeconfig), c.ControllerManagerArgs...))
	})
	if c.Scheduler {
		g.run("kube-scheduler", func(ctx context.Context) error {
			return runScheduler(ctx, kubeconfig, c.SchedulerArgs)
		})
	}
	// Kubelets are nodes to the API server, and not the administrator: what may be said by nodes alone is refused from him.
	asNodes := rest.CopyConfig(cfg)
	asNodes.Impersonate = rest.ImpersonationConfig{UserName: "lab-kubelets", Groups: []string{"system:nodes", "system:masters"}}
	kubelets, err := kubernetes.NewForConfig(protobuf(asNodes))
	if err != nil {
		return fmt.Errorf("make the client of the kubelets: %w", err)
	}
	player := kubelet.New(kubelets, kubelet.Programs{Paths: c.Programs, Dir: filepath.Join(dir, "pods"), Server: cfg.Host, Authority: cfg.CAData})
	g.run("kubelet player", player.Run)
	g.run("operator player", func(ctx context.Context) error { return operator.Run(ctx, cfg, operator.Table()) })
	g.run("disk player", func(ctx context.Context) error { return disk.Run(ctx, client, c.Fleet.Storage) })
	url, err := serve(g, dir, player)
	if err != nil {
		return err
	}
	state.StatusURL, state.MetricsURL = url+"/status", url+"/metrics"
	if err := lab.WriteState(dir, *state); err != nil {
		return err
	}
	// Pods of a namespace are refused until the controller manager has made its ServiceAccount.
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the default ServiceAccount: %w", err)
	}
	c.Progress("kube-controller-manager works after %s", since(state.Started))
	nodes, err := c.Fleet.Nodes()
	if err != nil {
		return fmt.Errorf("make the fleet: %w", err)
	}
	if err := lab.InstallNodes(ctx, client, nodes); err != nil {
		return err
	}
	c.Progress("%d nodes are ready after %s", len(nodes), since(state.Started))
	if err := lab.InstallObjects(ctx, cfg, c.Objects); err != nil {
		return err
	}
	published, err := c.Fleet.Published()
	if err != nil {
		return fmt.Errorf("make the fleet: %w", err)
	}
	if err := lab.Publish(ctx, cfg, published); err != nil {
		return err
	}
	state.Ready = true
	return lab.WriteState(dir, *state)
}

func awaitAPI(ctx context.Context, client kubernetes.Interface) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the API server: %w", err)
	}
	return nil
}

// serve answers GET /status and /metrics on a loopback port until the group stops, and returns its URL.
func serve(g *group, dir string, player *kubelet.Player) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for status requests: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		state, err := lab.ReadState(dir)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		s := player.Stats()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(lab.Status{State: state, Nodes: s.Nodes, NodesReady: s.NodesReady, Pods: s.Pods, Rejected: s.Rejected})
	})
	registry := prometheus.NewRegistry()
	if err := registry.Register(player.Capacity()); err != nil {
		return "", errors.Join(fmt.Errorf("register the nodes' capacity: %w", err), l.Close())
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	g.run("status", func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { srv.Close() })
		defer stop()
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve status: %w", err)
		}
		return nil
	})
	return "http://" + l.Addr().String(), nil
}

func protobuf(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return cfg
}

// logTo sends what the servers log through klog to a file, and to it alone.
func logTo(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the servers' log: %w", err)
	}
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	for _, kv := range [][2]string{{"logtostderr", "false"}, {"stderrthreshold", "FATAL"}, {"one_output", "true"}, {"v", "0"}} {
		if err := fs.Set(kv[0], kv[1]); err != nil {
			return nil, fmt.Errorf("set up the servers' log: %w", err)
		}
	}
	klog.SetOutput(f)
	return func() {
		klog.Flush()
		klog.SetOutput(io.Discard)
		f.Close()
	}, nil
}

func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }

// group runs functions that should last until it is stopped; an earlier end of one is a failure of the lab.
type group struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	failed chan error
}

func newGroup(ctx context.Context) *group {
	g := &group{failed: make(chan error, 1)}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

func (g *group) run(name string, f func(context.Context) error) {
	g.wg.Go(func() {
		err := f(g.ctx)
		if g.ctx.Err() != nil {
			return
		}
		if err == nil {
			err = fmt.Errorf("%s ended by itself", name)
		}
		select {
		case g.failed <- err:
		default:
		}
	})
}

// stop ends what runs and waits for it, at most grace.
func (g *group) stop(grace time.Duration) error {
	g.cancel()
	done := make(chan struct{})
	go func() { g.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(grace):
		return fmt.Errorf("the lab's servers did not end within %s", grace)
	}
}
