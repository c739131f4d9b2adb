package ctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Cluster is where machines are looked for.
type Cluster struct {
	Config *rest.Config
	Client kubernetes.Interface
	// Namespace is the pods'.
	Namespace string
	// NodeNamespace and NodeSelector find the pods of muster-vm, one on each node, and NodeContainer which of their containers; "" is the first.
	NodeNamespace, NodeSelector, NodeContainer string
}

// Open makes a cluster's client.
func Open(c *rest.Config) (Cluster, error) {
	client, err := kubernetes.NewForConfig(c)
	return Cluster{Config: c, Client: client}, err
}

// Machine is a pod's machine that runs.
type Machine struct {
	Namespace, Pod, Container, Node string
	// ID is the container's, without the runtime's name before it.
	ID          string
	Annotations map[string]string
	// Stdin and TTY are what the container's spec says.
	Stdin, TTY bool
}

var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

// Machine finds the machine of a pod: its container that runs, or the named one. Conflict: it does not run. That it is a machine cannot be seen from outside.
func (c Cluster) Machine(ctx context.Context, pod, container string) (Machine, error) {
	p, err := c.Client.CoreV1().Pods(c.Namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return Machine{}, fmt.Errorf("pod %s/%s: %w", c.Namespace, pod, err)
	}
	m := Machine{Namespace: c.Namespace, Pod: pod, Node: p.Spec.NodeName, Annotations: p.Annotations}
	for _, s := range append(append([]corev1.ContainerStatus{}, p.Status.ContainerStatuses...), p.Status.InitContainerStatuses...) {
		if s.State.Running == nil || container != "" && s.Name != container || m.Container != "" {
			continue
		}
		_, m.ID, _ = strings.Cut(s.ContainerID, "://")
		m.Container = s.Name
	}
	switch {
	case m.Container == "" && container != "":
		return m, vm.Errorf(vm.Conflict, "pod %s/%s: container %q does not run", c.Namespace, pod, container)
	case m.Container == "":
		return m, vm.Errorf(vm.Conflict, "pod %s/%s: no container runs; the pod is %s", c.Namespace, pod, p.Status.Phase)
	case !idForm.MatchString(m.ID):
		return m, vm.Errorf(vm.Invalid, "pod %s/%s: container %s: its id is %.140q", c.Namespace, pod, m.Container, m.ID)
	}
	for _, s := range append(append([]corev1.Container{}, p.Spec.Containers...), p.Spec.InitContainers...) {
		if s.Name == m.Container {
			m.Stdin, m.TTY = s.Stdin, s.TTY
		}
	}
	return m, nil
}

// Streams are a person's.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// detach is the key Ctrl-], which leaves a console.
const detach = 0x1d

// Console attaches to a machine's serial console until the person presses Ctrl-], the machine ends or ctx does. Without stdin in the container's spec a console can
// only be read.
func (c Cluster) Console(ctx context.Context, m Machine, s Streams) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := &corev1.PodAttachOptions{Container: m.Container, Stdin: m.Stdin && s.In != nil, Stdout: true, TTY: m.TTY}
	streams := remotecommand.StreamOptions{Stdout: s.Out, Tty: m.TTY}
	var left sync.Once
	gone := make(chan struct{})
	if o.Stdin {
		streams.Stdin = &leaver{from: s.In, leave: func() { left.Do(func() { close(gone); cancel() }) }}
	} else {
		fmt.Fprintf(s.Err, "pod %s/%s: container %s has no stdin: what you type is not sent\n", m.Namespace, m.Pod, m.Container)
	}
	err := c.stream(ctx, m.Namespace, m.Pod, "attach", o, streams)
	select {
	case <-gone:
		return nil
	default:
		return err
	}
}

// leaver ends at the key that leaves.
type leaver struct {
	from  io.Reader
	leave func()
}

func (l *leaver) Read(p []byte) (int, error) {
	n, err := l.from.Read(p)
	if i := bytes.IndexByte(p[:n], detach); i >= 0 {
		l.leave()
		return i, io.EOF
	}
	return n, err
}

// stream calls exec or attach.
func (c Cluster) stream(ctx context.Context, namespace, pod, verb string, options any, streams remotecommand.StreamOptions) error {
	// Only the URL is made here: exec, attach and portforward are requests of their own.
	r := c.Client.CoreV1().RESTClient().Get().Resource("pods").Namespace(namespace).Name(pod).SubResource(verb)
	switch o := options.(type) {
	case *corev1.PodAttachOptions:
		r = r.VersionedParams(o, scheme.ParameterCodec)
	case *corev1.PodExecOptions:
		r = r.VersionedParams(o, scheme.ParameterCodec)
	}
	old, err := remotecommand.NewSPDYExecutor(c.Config, http.MethodPost, r.URL())
	if err != nil {
		return err
	}
	now, err := remotecommand.NewWebSocketExecutor(c.Config, http.MethodGet, r.URL().String())
	if err != nil {
		return err
	}
	both, err := remotecommand.NewFallbackExecutor(now, old, older)
	if err != nil {
		return err
	}
	if err := both.StreamWithContext(ctx, streams); err != nil {
		return fmt.Errorf("%s of pod %s/%s: %w", verb, namespace, pod, err)
	}
	return nil
}

// older says that a server does not know what was tried first.
func older(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
}

// Forward forwards a free port of 127.0.0.1 to a port of a pod while use runs, which is given it.
func (c Cluster) Forward(ctx context.Context, m Machine, port int, errs io.Writer, use func(ctx context.Context, local int) error) error {
	u := c.Client.CoreV1().RESTClient().Get().Resource("pods").Namespace(m.Namespace).Name(m.Pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return err
	}
	now, err := portforward.NewSPDYOverWebsocketDialer(u, c.Config)
	if err != nil {
		return err
	}
	dialer := portforward.NewFallbackDialer(now, spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u), older)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan struct{})
	f, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, ctx.Done(), ready, io.Discard, errs)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return fmt.Errorf("port %d of pod %s/%s: %w", port, m.Namespace, m.Pod, or(err, ctx.Err()))
	}
	ports, err := f.GetPorts()
	if err == nil {
		err = use(ctx, int(ports[0].Local))
	}
	cancel()
	if bad := <-ended; err == nil && bad != nil && !errors.Is(bad, portforward.ErrLostConnectionToPod) {
		err = fmt.Errorf("port %d of pod %s/%s: %w", port, m.Namespace, m.Pod, bad)
	}
	return err
}

func or(a, b error) error {
	if a != nil {
		return a
	}
	if b != nil {
		return b
	}
	return errors.New("it ended at once")
}

// OnNode runs a command in the pod of muster-vm on a node. Unavailable: there is none that runs.
func (c Cluster) OnNode(ctx context.Context, node string, argv []string, s Streams) error {
	pods, err := c.Client.CoreV1().Pods(c.NodeNamespace).List(ctx, metav1.ListOptions{LabelSelector: c.NodeSelector, FieldSelector: "spec.nodeName=" + node, Limit: 50})
	if err != nil {
		return fmt.Errorf("pods of muster-vm in %s: %w", c.NodeNamespace, err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil || p.Spec.NodeName != node {
			continue
		}
		o := &corev1.PodExecOptions{Container: c.NodeContainer, Command: argv, Stdin: s.In != nil, Stdout: true, Stderr: s.Err != nil}
		if o.Container == "" && len(p.Spec.Containers) > 0 {
			o.Container = p.Spec.Containers[0].Name
		}
		return c.stream(ctx, p.Namespace, p.Name, "exec", o, remotecommand.StreamOptions{Stdin: s.In, Stdout: s.Out, Stderr: s.Err})
	}
	return vm.Errorf(vm.Unavailable, "node %q: no pod with %q runs there in namespace %s", node, c.NodeSelector, c.NodeNamespace)
}

// Relay serves a port of 127.0.0.1: each connection is a command on a node, whose input and output it is. 0 is a free port; listening is told the port. It ends with ctx.
func (c Cluster) Relay(ctx context.Context, node string, argv []string, port int, errs io.Writer, listening func(port int)) error {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	var mu sync.Mutex
	room := make(chan struct{}, 16) // a screen has few watchers
	listening(l.Addr().(*net.TCPAddr).Port)
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return conn.Close()
		}
		all.Go(func() {
			defer func() { <-room }()
			own, cancel := context.WithCancel(ctx)
			defer cancel()
			end := context.AfterFunc(own, func() { _ = conn.Close() })
			defer end()
			var said bytes.Buffer
			err := c.OnNode(own, node, argv, Streams{In: &ended{conn, cancel}, Out: conn, Err: &said})
			if err != nil && ctx.Err() == nil && own.Err() == nil {
				mu.Lock()
				fmt.Fprintf(errs, "%v: %s\n", err, bytes.TrimSpace(said.Bytes()))
				mu.Unlock()
			}
		})
	}
}

// ended calls end when nothing more can be read.
type ended struct {
	io.Reader
	end func()
}

func (e *ended) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err != nil {
		e.end()
	}
	return n, err
}

// SSH gives the arguments of ssh to a machine behind a local port. whom is a user, or "".
func SSH(m Machine, whom string, local int, args []string) []string {
	out := []string{"-p", fmt.Sprint(local), "-o", "HostKeyAlias=" + m.Pod + "." + m.Namespace + ".muster-vm"}
	if whom != "" {
		out = append(out, "-l", whom)
	}
	return append(append(out, "127.0.0.1"), args...)
}

// Virsh replaces the argument @POD by the machine's domain: exactly one argument must be so. It gives the pod's name.
func Virsh(args []string, domain func(pod string) (string, error)) ([]string, error) {
	out := append([]string{}, args...)
	pods := 0
	for i, a := range args {
		pod, is := strings.CutPrefix(a, "@")
		if !is {
			continue
		}
		if pods++; pod == "" || pods > 1 {
			return nil, vm.Errorf(vm.Invalid, "argument %q: must be @ and a pod's name, once", a)
		}
		name, err := domain(pod)
		if err != nil {
			return nil, err
		}
		out[i] = name
	}
	if pods == 0 {
		return nil, vm.Errorf(vm.Invalid, "must have an argument @POD, which says on which node virsh is run")
	}
	return out, nil
}
