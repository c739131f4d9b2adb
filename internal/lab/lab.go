package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// stopGrace is how long a lab may take to end by itself before it is killed.
const stopGrace = 30 * time.Second

// Options say which lab to start. The zero value is a lab without nodes.
type Options struct {
	// Dir is the lab's folder. If it is empty, a temporary one is made, and removed by Stop.
	Dir string
	// Fleet is the set of simulated nodes that are ready when Start returns.
	Fleet Fleet
	// CRDs are YAML documents to install; they are established when Start returns.
	CRDs [][]byte
	// Recorded are objects that are in the API server's store before it starts, as they are: with their UIDs, times and
	// statuses, as somebody recorded them elsewhere. Their namespaces must be among them; nodes that the lab is to play carry
	// LabelPool.
	Recorded []*unstructured.Unstructured
	// KubeScheduler adds a stock kube-scheduler, which answers to schedulerName default-scheduler.
	KubeScheduler bool
	// Split runs the API server as a process of its own, so that KillAPIServer can kill it.
	Split bool
	// Advertise is the address of this machine at which the API server listens instead of loopback, so that real nodes and their
	// pods reach it: by it and, as in any cluster, by Service kubernetes. Whoever reaches the address reaches the API server.
	Advertise string
	// Kubernetes is the minor version that the servers behave like, such as "1.34": its APIs, its feature gates as they are by default,
	// its CEL. It may be up to three older than the one they are, which "" means. What /version says of itself stays; fields are known
	// that the older version did not know.
	Kubernetes string
	// FeatureGates are gates of Kubernetes to switch in all servers, such as "X=true,Y=false". What is not named is as it is in a cluster of
	// that version.
	FeatureGates string
	// APIServerArgs, ControllerManagerArgs and SchedulerArgs are further flags of the servers, such as
	// "--runtime-config=scheduling.k8s.io/v1beta1=true".
	APIServerArgs, ControllerManagerArgs, SchedulerArgs []string
	// Programs are images whose containers run for real, as processes of this machine, each with its entry point: a program's path. The
	// arguments are the container's.
	Programs map[string]string
	// Binary is the muster-lab to run. If it is empty: $MUSTER_LAB_BINARY, or one built from the source tree around
	// the working directory.
	Binary string
	// Logf is told what happens, one line a call; testing.T.Logf fits. It is not called after Stop has returned.
	Logf func(format string, args ...any)
}

// Lab is a running lab. Its methods may be called from several goroutines.
type Lab struct {
	dir    string
	temp   bool
	state  State
	config *rest.Config
	client kubernetes.Interface
	cmd    *exec.Cmd
	leash  io.Closer
	ended  chan struct{} // closed when the process has ended
	err    error         // why, valid then
	stop   sync.Once
}

// Start starts a lab and returns when it is ready: the API server answers, the CRDs are established, the nodes are
// ready, and pods can be made in namespace default. It takes a few seconds, plus those to build the binary. When
// ctx ends, the lab ends. Call Stop to end it earlier and to remove its temporary folder.
func Start(ctx context.Context, o Options) (_ *Lab, err error) {
	logf := o.Logf
	if logf == nil {
		logf = func(string, ...any) {}
	}
	if _, err := o.Fleet.Nodes(); err != nil {
		return nil, fmt.Errorf("start a lab: fleet: %w", err)
	}
	path, err := binary(ctx, o.Binary, logf)
	if err != nil {
		return nil, fmt.Errorf("start a lab: %w", err)
	}
	l := &Lab{dir: o.Dir, ended: make(chan struct{})}
	if l.dir == "" {
		l.temp = true
		if l.dir, err = os.MkdirTemp("", "muster-lab-"); err != nil {
			return nil, fmt.Errorf("start a lab: %w", err)
		}
	}
	defer func() {
		if err != nil && l.temp {
			os.RemoveAll(l.dir)
		}
	}()
	args, err := o.arguments(l.dir)
	if err != nil {
		return nil, fmt.Errorf("start a lab: %w", err)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	// Its own process group: a Ctrl-C at a terminal is for us first, and reaches the lab through Stop or the leash.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if l.leash, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start a lab: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a lab: %w", err)
	}
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start a lab: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a lab: %w", err)
	}
	l.cmd = cmd
	ready := make(chan error, 1)
	go l.attend(out, said, logf, ready)
	if err := <-ready; err != nil {
		l.leash.Close()
		<-l.ended
		return nil, fmt.Errorf("start a lab: %w", errors.Join(err, l.err))
	}
	if err := l.connect(); err != nil {
		return nil, errors.Join(fmt.Errorf("start a lab: %w", err), l.Stop())
	}
	return l, nil
}

// arguments writes what the lab reads into its folder and returns the command line that names it.
func (o Options) arguments(dir string) ([]string, error) {
	args := []string{"up", "--bare", "--leash", "--output=json", "--dir=" + dir}
	in := filepath.Join(dir, "input")
	if err := os.MkdirAll(filepath.Join(in, "crds"), 0o700); err != nil {
		return nil, err
	}
	fleet, err := yaml.Marshal(o.Fleet)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(in, "fleet.yaml")
	if err := os.WriteFile(path, fleet, 0o600); err != nil {
		return nil, err
	}
	args = append(args, "--fleet="+path)
	for i, doc := range o.CRDs {
		if err := os.WriteFile(filepath.Join(in, "crds", fmt.Sprintf("%04d.yaml", i)), doc, 0o600); err != nil {
			return nil, err
		}
	}
	if len(o.CRDs) > 0 {
		args = append(args, "--crds="+filepath.Join(in, "crds"))
	}
	if len(o.Recorded) > 0 {
		list := unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
		for _, r := range o.Recorded {
			list.Items = append(list.Items, *r)
		}
		text, err := list.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("recorded objects: %w", err)
		}
		path := filepath.Join(in, "recorded.json")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--recorded="+path)
	}
	if o.KubeScheduler {
		args = append(args, "--with-kube-scheduler")
	}
	if o.Split {
		args = append(args, "--split")
	}
	if o.Advertise != "" {
		args = append(args, "--advertise="+o.Advertise)
	}
	if o.Kubernetes != "" {
		args = append(args, "--kubernetes="+o.Kubernetes)
	}
	if o.FeatureGates != "" {
		args = append(args, "--feature-gates="+o.FeatureGates)
	}
	for image, path := range o.Programs {
		args = append(args, "--program="+image+"="+path)
	}
	for flag, list := range map[string][]string{
		"--apiserver-arg=": o.APIServerArgs, "--controller-manager-arg=": o.ControllerManagerArgs, "--scheduler-arg=": o.SchedulerArgs,
	} {
		for _, a := range list {
			args = append(args, flag+a)
		}
	}
	return args, nil
}

// attend follows the child until it has ended. It reports once whether it became ready.
func (l *Lab) attend(out, said io.Reader, logf func(string, ...any), ready chan<- error) {
	var wg sync.WaitGroup
	var last bytes.Buffer
	wg.Go(func() {
		lines := bufio.NewScanner(said)
		for lines.Scan() {
			last.Reset()
			last.Write(lines.Bytes())
			logf("lab: %s", lines.Text())
		}
		_, _ = io.Copy(io.Discard, said) // after an overlong line, so that the child never blocks
	})
	wg.Go(func() {
		if err := json.NewDecoder(out).Decode(&l.state); err != nil {
			ready <- errors.New("it ended before it was ready")
		} else {
			ready <- nil
		}
		_, _ = io.Copy(io.Discard, out)
	})
	wg.Wait()
	// The end of Start's context ends the child cleanly, which Wait reports as an error all the same.
	if err := l.cmd.Wait(); !l.cmd.ProcessState.Success() {
		l.err = fmt.Errorf("muster-lab: %w: %s (see %s)", err, last.String(), filepath.Join(l.dir, "logs"))
	}
	close(l.ended)
}

func (l *Lab) connect() error {
	cfg, err := clientcmd.BuildConfigFromFlags("", l.state.Kubeconfig)
	if err != nil {
		return fmt.Errorf("load the lab's kubeconfig: %w", err)
	}
	cfg.QPS = -1
	l.config = cfg
	if l.client, err = kubernetes.NewForConfig(protobuf(cfg)); err != nil {
		return fmt.Errorf("make the lab's client: %w", err)
	}
	return nil
}

func protobuf(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return cfg
}

// Config returns a configuration for clients with an administrator's rights and no limit of rate (QPS -1). The
// caller may change it.
func (l *Lab) Config() *rest.Config { return rest.CopyConfig(l.config) }

// Client returns a client with an administrator's rights and no limit of rate.
func (l *Lab) Client() kubernetes.Interface { return l.client }

// Kubeconfig is the path of the lab's kubeconfig.
func (l *Lab) Kubeconfig() string { return l.state.Kubeconfig }

// Dir is the lab's folder.
func (l *Lab) Dir() string { return l.dir }

// State says where the lab is.
func (l *Lab) State() State { return l.state }

// Status asks the lab how it is.
func (l *Lab) Status(ctx context.Context) (Status, error) { return GetStatus(ctx, l.dir) }

// Rejected returns how many pods, by reason, a kubelet turned away for want of room: each was bound where there
// was none. An empty map means that nobody has overcommitted a node so far.
func (l *Lab) Rejected(ctx context.Context) (map[string]int, error) {
	s, err := l.Status(ctx)
	return s.Rejected, err
}

// Dial connects to the process of a pod by the address that the pod's status shows, or to anything else of this machine. Services
// have no address that leads anywhere: ask the API server to proxy, or choose an endpoint.
func (l *Lab) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, ProcessAddress(address))
}

// Done is closed when the lab has ended, by Stop or otherwise.
func (l *Lab) Done() <-chan struct{} { return l.ended }

// Stop ends the lab, waits until its process is gone (killing it after a grace of 30 s), and removes its folder if
// it was a temporary one. It returns how the lab's end went wrong, if it did; further calls return nil.
func (l *Lab) Stop() error {
	var err error
	l.stop.Do(func() {
		l.leash.Close()
		kill := time.AfterFunc(stopGrace, func() { _ = l.cmd.Process.Kill() })
		<-l.ended
		kill.Stop()
		err = l.err
		if l.temp {
			err = errors.Join(err, os.RemoveAll(l.dir))
		}
	})
	return err
}
