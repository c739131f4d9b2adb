package kubelet

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// Programs are images whose containers run for real, as processes of this machine; all others are only played.
type Programs struct {
	// Commands are what an image starts when its container says nothing else: a program of this machine by its path, and
	// its arguments. A container's command replaces the arguments, its args are appended.
	Commands map[string][]string
	// Dir is where each pod gets a folder for its credentials and logs: Dir/NAMESPACE_NAME_UID/CONTAINER.log.
	Dir string
	// Server is the API server's URL, and Authority what it is to be trusted by (PEM).
	Server    string
	Authority []byte
}

const (
	// tokenLife is how long a process's token is good for; no lab lives longer.
	tokenLife = 7 * 24 * time.Hour
	// restartMin and restartMax bound the wait before a container that ended is started again.
	restartMin = 200 * time.Millisecond
	restartMax = 10 * time.Second
	// EnvSimulatedDevice tells a program of Muster's own the UUID of the GPU that it would find.
	EnvSimulatedDevice = "MUSTER_SIMULATED_DEVICE"
)

// runs says whether any container of the pod runs for real.
func (p *Player) runs(obj *corev1.Pod) bool {
	return slices.ContainsFunc(obj.Spec.Containers, func(c corev1.Container) bool { return p.programs.Commands[c.Image] != nil })
}

// work is the processes of one pod.
type work struct {
	term, kill func() // ask to end, once; end
	done       chan struct{}
	code       int32 // of the first container that ended badly, or 0; valid when done is closed
}

// over says whether every process has ended for good.
func (w *work) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// launch starts the pod's processes: with the environment that a kubelet makes, a token of the pod's own ServiceAccount, and the
// devices that the pod holds. It fails as long as something the environment needs is missing.
func (p *Player) launch(ctx context.Context, now pod) (*work, error) {
	full, err := p.client.CoreV1().Pods(now.obj.Namespace).Get(ctx, now.obj.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if full.UID != now.obj.UID {
		return nil, fmt.Errorf("pod %s/%s is another one by now", full.Namespace, full.Name)
	}
	dir := filepath.Join(p.programs.Dir, full.Namespace+"_"+full.Name+"_"+string(full.UID))
	kubeconfig, err := p.credentials(ctx, full, dir)
	if err != nil {
		return nil, fmt.Errorf("credentials of pod %s/%s: %w", full.Namespace, full.Name, err)
	}
	var commands []*command
	for i := range full.Spec.Containers {
		c := &full.Spec.Containers[i]
		image := p.programs.Commands[c.Image]
		if image == nil {
			continue
		}
		env, err := Environment(full, c, SourcesOf(ctx, p.client, full.Namespace))
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", full.Namespace, full.Name, err)
		}
		env["KUBECONFIG"] = kubeconfig
		var uuids []string
		for _, index := range now.devices {
			uuids = append(uuids, DeviceUUID(full.Spec.NodeName, index))
		}
		if len(uuids) > 0 {
			env[keys.VisibleDevicesEnv] = strings.Join(uuids, ",")
			if len(uuids) == 1 {
				env[EnvSimulatedDevice] = uuids[0]
			}
		}
		commands = append(commands, &command{argv: argv(image, c, env), env: environ(env), log: filepath.Join(dir, c.Name+".log"), restart: full.Spec.RestartPolicy})
	}
	return p.begin(ctx, full.UID, commands), nil
}

// argv is a container's command line.
func argv(image []string, c *corev1.Container, env map[string]string) []string {
	expand := func(list []string) (out []string) {
		for _, s := range list {
			out = append(out, expansion.Expand(s, expansion.MappingFuncFor(env)))
		}
		return out
	}
	switch {
	case len(c.Command) > 0:
		return slices.Concat(image[:1], expand(c.Command[1:]), expand(c.Args))
	case len(c.Args) > 0:
		return slices.Concat(image, expand(c.Args))
	}
	return image
}

func environ(env map[string]string) (out []string) {
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

// credentials writes a kubeconfig with a token that is good as long as the pod exists, and returns its path. A process does not
// look for a token where a container has it mounted: that place belongs to the machine.
func (p *Player) credentials(ctx context.Context, full *corev1.Pod, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	account := full.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	token, err := p.client.CoreV1().ServiceAccounts(full.Namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: ptr.To(int64(tokenLife / time.Second)),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: full.Name, UID: full.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: pod
clusters: [{name: lab, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: pod, user: {token: %q}}]
contexts: [{name: pod, context: {cluster: lab, user: pod, namespace: %q}}]
`, p.programs.Server, base64.StdEncoding.EncodeToString(p.programs.Authority), token.Status.Token, full.Namespace)
	path := filepath.Join(dir, "kubeconfig")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// command is one container's process.
type command struct {
	argv, env []string
	log       string // file
	restart   corev1.RestartPolicy
}

// begin runs the commands of a pod until each has ended for good, and then has a worker look at the pod. The end of ctx kills them.
func (p *Player) begin(ctx context.Context, pod types.UID, commands []*command) *work {
	ending, end := context.WithCancel(ctx)
	dying, die := context.WithCancel(ctx)
	w := &work{term: end, kill: die, done: make(chan struct{})}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, c := range commands {
		all.Go(func() {
			code := c.run(ending, dying)
			mu.Lock()
			defer mu.Unlock()
			if w.code == 0 {
				w.code = code
			}
		})
	}
	p.works.Go(func() {
		all.Wait()
		end()
		die()
		close(w.done)
		p.queue.Add(task{pod: pod})
	})
	return w
}

// run runs the process, again and again as its restart policy says, until ending ends, which the process is told by SIGTERM, or
// dying, which kills it. It returns the last exit code, as a shell counts.
func (c *command) run(ending, dying context.Context) int32 {
	for wait := restartMin; ; wait = min(2*wait, restartMax) {
		code := c.once(ending, dying)
		again := c.restart == corev1.RestartPolicyAlways || c.restart == corev1.RestartPolicyOnFailure && code != 0
		if !again || ending.Err() != nil {
			return code
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ending.Done():
			timer.Stop()
			return code
		}
	}
}

// once runs the process once.
func (c *command) once(ending, dying context.Context) int32 {
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 128
	}
	defer out.Close()
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = c.env, out, out, filepath.Dir(c.log)
	// Should the lab die, so does the process: the signal comes when the thread that started it ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	begun, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		begun <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-begun; err != nil {
		fmt.Fprintf(out, "start %s: %v\n", c.argv[0], err)
		return 128
	}
	asked := ending.Done()
	for {
		select {
		case err := <-ended:
			return exitCode(err)
		case <-asked:
			_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if it has just ended
			asked = nil
		case <-dying.Done():
			_ = cmd.Process.Kill()
			return exitCode(<-ended)
		}
	}
}

func exitCode(err error) int32 {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		return 128
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int32(status.Signal())
	}
	return int32(exit.ExitCode())
}
