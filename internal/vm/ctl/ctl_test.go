package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/muster-scheduler/muster/internal/vm"
)

// apiServer is one that has pods, with a kubelet's streams.
type apiServer struct {
	pods map[string]*corev1.Pod // by namespace/name
	mu   sync.Mutex
	said []string
}

func (a *apiServer) say(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said = append(a.said, fmt.Sprintf(format, args...))
}

func (a *apiServer) told() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.said
	a.said = nil
	return out
}

func (a *apiServer) PortForward(_ context.Context, name, _ string, port int32, stream io.ReadWriteCloser) error {
	a.say("forward %s %d", name, port)
	defer stream.Close()
	_, err := io.WriteString(stream, "SSH-2.0-tiny\n")
	return err
}

func (a *apiServer) AttachContainer(_ context.Context, name, _, container string, in io.Reader, out, _ io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize) error {
	a.say("attach %s %s stdin=%v tty=%v", name, container, in != nil, tty)
	if _, err := io.WriteString(out, "login: "); err != nil || in == nil {
		return err
	}
	_, err := io.Copy(out, in)
	return err
}

func (a *apiServer) ExecInContainer(_ context.Context, name, _, container string, cmd []string, in io.Reader, out, errs io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	a.say("exec %s %s %q", name, container, cmd)
	if cmd[0] == "fails" {
		_, _ = io.WriteString(errs, "no such domain\n")
		return errors.New("it failed")
	}
	if in != nil {
		_, err := io.Copy(out, in)
		return err
	}
	_, err := io.WriteString(out, "running\n")
	return err
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/")
	if len(parts) == 2 {
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
		for _, p := range a.pods { // order: any
			if p.Namespace == parts[0] && r.URL.Query().Get("fieldSelector") == "spec.nodeName="+p.Spec.NodeName && r.URL.Query().Get("labelSelector") == "app=muster-vm" {
				list.Items = append(list.Items, *p)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
		return
	}
	p := a.pods[parts[0]+"/"+parts[2]]
	if p == nil {
		http.Error(w, "no such pod", http.StatusNotFound)
		return
	}
	verb := ""
	if len(parts) > 3 {
		verb = parts[3]
	}
	const idle = time.Minute
	name, container := p.Name, r.URL.Query().Get("container")
	switch verb {
	case "":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p)
	case "portforward":
		portforward.ServePortForward(w, r, a, name, "", &portforward.V4Options{}, idle, idle, portforward.SupportedProtocols)
	default:
		q := r.URL.Query()
		o := &remotecommand.Options{Stdin: q.Get("stdin") == "true", Stdout: true, Stderr: q.Get("stderr") == "true", TTY: q.Get("tty") == "true"}
		if verb == "attach" {
			remotecommand.ServeAttach(w, r, a, name, "", container, o, idle, idle, remotecommand.SupportedStreamingProtocols)
		} else {
			remotecommand.ServeExec(w, r, a, name, "", container, q["command"], o, idle, idle, remotecommand.SupportedStreamingProtocols)
		}
	}
}

func pod(namespace, name, node string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	p.Spec.Containers = []corev1.Container{{Name: "vm", Stdin: true, TTY: true}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "vm", ContainerID: "muster-vm://c0ffee", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	if change != nil {
		change(p)
	}
	return p
}

func serve(t *testing.T, pods ...*corev1.Pod) (*apiServer, Cluster) {
	t.Helper()
	a := &apiServer{pods: map[string]*corev1.Pod{}}
	for _, p := range pods {
		a.pods[p.Namespace+"/"+p.Name] = p
	}
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	c, err := Open(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	c.Namespace, c.NodeNamespace, c.NodeSelector = "team", "kube-system", "app=muster-vm"
	return a, c
}

// TestMachine: the container that runs is found, and what is not there is said.
func TestMachine(t *testing.T) {
	t.Parallel()
	_, c := serve(t, pod("team", "web", "n1", nil), pod("team", "ended", "n1", func(p *corev1.Pod) {
		p.Status.Phase, p.Status.ContainerStatuses[0].State = corev1.PodSucceeded, corev1.ContainerState{}
	}), pod("team", "odd", "n1", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "muster-vm://../x" }))
	m, err := c.Machine(t.Context(), "web", "")
	if err != nil || m.ID != "c0ffee" || m.Container != "vm" || m.Node != "n1" || !m.Stdin || !m.TTY {
		t.Errorf("%+v, %v", m, err)
	}
	for _, one := range []struct {
		pod, container, want string
		kind                 vm.Kind
	}{{"none", "", "pod team/none", vm.Internal}, {"ended", "", "the pod is Succeeded", vm.Conflict}, {"web", "other", `container "other" does not run`, vm.Conflict}, {"odd", "", "its id is", vm.Invalid}} {
		if _, err := c.Machine(t.Context(), one.pod, one.container); err == nil || !strings.Contains(err.Error(), one.want) || vm.KindOf(err) != one.kind {
			t.Errorf("%s: %v", one.pod, err)
		}
	}
}

// TestConsole: what is typed reaches the machine, what it says is seen, and Ctrl-] leaves; without stdin it can be read.
func TestConsole(t *testing.T) {
	t.Parallel()
	a, c := serve(t, pod("team", "web", "n1", nil), pod("team", "mute", "n1", func(p *corev1.Pod) { p.Spec.Containers[0].Stdin, p.Spec.Containers[0].TTY = false, false }))
	m, err := c.Machine(t.Context(), "web", "")
	if err != nil {
		t.Fatal(err)
	}
	in, typed := io.Pipe()
	seen, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := c.Console(t.Context(), m, Streams{In: in, Out: out, Err: io.Discard})
		_ = out.Close()
		done <- err
	}()
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(seen, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
	}
	expect("login: ")
	if _, err := typed.Write([]byte("cirros\n")); err != nil {
		t.Fatal(err)
	}
	expect("cirros\n")
	go func() { _, _ = typed.Write([]byte{detach}) }()
	go func() { _, _ = io.Copy(io.Discard, seen) }()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if told := a.told(); !slices.Equal(told, []string{"attach web vm stdin=true tty=true"}) {
		t.Error(told)
	}
	if m, err = c.Machine(t.Context(), "mute", ""); err != nil {
		t.Fatal(err)
	}
	var text, said bytes.Buffer
	if err := c.Console(t.Context(), m, Streams{In: strings.NewReader("x"), Out: &text, Err: &said}); err != nil || text.String() != "login: " || !strings.Contains(said.String(), "no stdin") {
		t.Errorf("%v, %q, %q", err, text.String(), said.String())
	}
}

// TestForward: a local port leads to the pod's while it is used, and no longer.
func TestForward(t *testing.T) {
	t.Parallel()
	a, c := serve(t, pod("team", "web", "n1", nil))
	m, err := c.Machine(t.Context(), "web", "")
	if err != nil {
		t.Fatal(err)
	}
	address := ""
	why := errors.New("ssh ended with 1")
	err = c.Forward(t.Context(), m, 22, io.Discard, func(_ context.Context, local int) error {
		address = fmt.Sprintf("127.0.0.1:%d", local)
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		text, err := io.ReadAll(conn)
		if err != nil || string(text) != "SSH-2.0-tiny\n" {
			return fmt.Errorf("%q, %w", text, err)
		}
		return why
	})
	if !errors.Is(err, why) || !slices.Equal(a.told(), []string{"forward web 22"}) {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Error("the port is still there")
	}
	m.Pod = "gone"
	if err := c.Forward(t.Context(), m, 22, io.Discard, nil); err == nil || !strings.Contains(err.Error(), "port 22 of pod team/gone") {
		t.Error(err)
	}
}

// TestOnNode: a command runs in muster-vm's pod on the machine's node, and nowhere else; its failure is told.
func TestOnNode(t *testing.T) {
	t.Parallel()
	a, c := serve(t, pod("kube-system", "vm-1", "n1", nil), pod("kube-system", "vm-2", "n2", nil), pod("kube-system", "vm-3", "n3", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }))
	var out, errs bytes.Buffer
	if err := c.OnNode(t.Context(), "n2", []string{"virsh", "domstate", "a b"}, Streams{Out: &out, Err: &errs}); err != nil || out.String() != "running\n" {
		t.Errorf("%v, %q", err, out.String())
	}
	if told := a.told(); !slices.Equal(told, []string{`exec vm-2 vm ["virsh" "domstate" "a b"]`}) {
		t.Error(told)
	}
	if err := c.OnNode(t.Context(), "n1", []string{"fails"}, Streams{Out: &out, Err: &errs}); err == nil || errs.String() != "no such domain\n" {
		t.Errorf("%v, %q", err, errs.String())
	}
	for _, node := range []string{"n3", "n4"} {
		if err := c.OnNode(t.Context(), node, []string{"virsh"}, Streams{Out: &out}); vm.KindOf(err) != vm.Unavailable {
			t.Error(err)
		}
	}
}

// TestRelay: each connection is a command of its own, and one that fails is told and ends no other.
func TestRelay(t *testing.T) {
	t.Parallel()
	_, c := serve(t, pod("kube-system", "vm-1", "n1", nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ports, done := make(chan int, 1), make(chan error, 1)
	go func() {
		done <- c.Relay(ctx, "n1", []string{"screen"}, 0, io.Discard, func(port int) { ports <- port })
	}()
	address := fmt.Sprintf("127.0.0.1:%d", <-ports)
	for range 2 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		got := make([]byte, 3)
		if _, err := io.WriteString(conn, "RFB"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "RFB" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	m := Machine{Namespace: "team", Pod: "web"}
	if got := strings.Join(SSH(m, "cirros", 4022, []string{"uname", "-a"}), " "); got != "-p 4022 -o HostKeyAlias=web.team.muster-vm -l cirros 127.0.0.1 uname -a" {
		t.Error(got)
	}
	if got := strings.Join(SSH(m, "", 4022, nil), " "); got != "-p 4022 -o HostKeyAlias=web.team.muster-vm 127.0.0.1" {
		t.Error(got)
	}
	domain := func(pod string) (string, error) {
		if pod != "web" {
			return "", errors.New("no such pod")
		}
		return "uuid", nil
	}
	if got, err := Virsh([]string{"dumpxml", "@web", "--security-info"}, domain); err != nil || !slices.Equal(got, []string{"dumpxml", "uuid", "--security-info"}) {
		t.Error(got, err)
	}
	for _, bad := range [][]string{{"list"}, {"dumpxml", "@"}, {"migrate", "@web", "@web"}, {"dumpxml", "@other"}} {
		if got, err := Virsh(bad, domain); err == nil {
			t.Errorf("%v became %v", bad, got)
		}
	}
}
