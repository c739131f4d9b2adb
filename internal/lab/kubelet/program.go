package kubelet

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// Programs are images whose containers run for real, as processes of this machine; all others are only played.
type Programs struct {
	// Paths are the images' entry points: programs of this machine. Which arguments one is started with is said by the container and
	// by nobody else, so that a pod that says too little fails here as it would on a node.
	Paths map[string]string
	// Dir is where each pod gets a folder for its credentials and logs: Dir/NAMESPACE_NAME_UID/CONTAINER.log.
	Dir string
	// Server is the API server's URL, and Authority what it is to be trusted by (PEM).
	Server    string
	Authority []byte
}

const (
	// tokenLife is how long a process's token is good for; no lab lives longer.
	tokenLife = 7 * 24 * time.Hour
	// EnvSimulatedDevice tells a program of Muster's own the UUID of the GPU that it would find.
	EnvSimulatedDevice = "MUSTER_SIMULATED_DEVICE"
)

// runs says whether any container of the pod runs for real.
func (p *Player) runs(obj *corev1.Pod) bool {
	return slices.ContainsFunc(obj.Spec.Containers, func(c corev1.Container) bool { return p.programs.Paths[c.Image] != "" })
}

// launch starts the pod's processes: with the environment that a kubelet makes, a token of the pod's own ServiceAccount, the
// files of its volumes, an address of its own, and the devices that the pod holds. It fails as long as something that they need
// is missing; of a pod that is gone it returns nil.
//
// A process sees the machine's files, not those of an image. So what would be mounted lies in a folder of the pod, and wherever
// the container's arguments or environment name a place below a mount path, they get the one in that folder instead. A program
// that knows such a path by itself does not find it; Muster's own are told every path by a flag.
func (p *Player) launch(ctx context.Context, now pod) (*work, error) {
	full, err := p.client.CoreV1().Pods(now.obj.Namespace).Get(ctx, now.obj.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case full.UID != now.obj.UID: // another one of its name
		return nil, nil
	}
	dir := filepath.Join(p.programs.Dir, full.Namespace+"_"+full.Name+"_"+string(full.UID))
	kubeconfig, err := p.credentials(ctx, full, dir)
	if err != nil {
		return nil, fmt.Errorf("credentials of pod %s/%s: %w", full.Namespace, full.Name, err)
	}
	sources := SourcesOf(ctx, p.client, full.Namespace)
	ip := lab.ProcessAddress(lab.PodIP(full.UID))
	var commands []*command
	for i := range full.Spec.Containers {
		c := &full.Spec.Containers[i]
		program := p.programs.Paths[c.Image]
		if program == "" {
			continue
		}
		env, err := Environment(full, c, sources)
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", full.Namespace, full.Name, err)
		}
		line, err := argv(program, c, env)
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: container %s: %w", full.Namespace, full.Name, c.Name, err)
		}
		places, err := mount(full, c, filepath.Join(dir, "volumes"), sources)
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: container %s: %w", full.Namespace, full.Name, c.Name, err)
		}
		for name, value := range env {
			env[name] = places.translate(value)
		}
		for i := range line[1:] {
			line[1+i] = places.translate(line[1+i])
		}
		env["KUBECONFIG"] = kubeconfig
		env["HOSTNAME"] = full.Name
		env["TMPDIR"] = places.temporary(dir)
		env[lab.EnvListenHost] = ip
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
		cmd := &command{
			name: c.Name, argv: line, env: environ(env), log: filepath.Join(dir, c.Name+".log"), restart: full.Spec.RestartPolicy,
			grace:   time.Duration(ptr.Deref(full.Spec.TerminationGracePeriodSeconds, 30)) * time.Second,
			changed: func() { p.queue.Add(task{pod: full.UID}) },
		}
		asked := func(spec *corev1.Probe) *probe {
			if spec == nil {
				return nil
			}
			return &probe{spec: spec, host: ip, ports: c.Ports, program: program, env: cmd.env, dir: dir}
		}
		cmd.startup, cmd.readiness, cmd.liveness = asked(c.StartupProbe), asked(c.ReadinessProbe), asked(c.LivenessProbe)
		commands = append(commands, cmd)
	}
	return p.begin(ctx, full.UID, commands), nil
}

// argv is a container's command line. A command can only name the image's own program, because an image holds nothing else here.
func argv(program string, c *corev1.Container, env map[string]string) ([]string, error) {
	line := []string{program}
	if len(c.Command) > 0 && filepath.Base(c.Command[0]) != filepath.Base(program) {
		return nil, fmt.Errorf("image %s holds no program %q", c.Image, c.Command[0])
	}
	for _, s := range slices.Concat(c.Command[min(1, len(c.Command)):], c.Args) {
		line = append(line, expansion.Expand(s, expansion.MappingFuncFor(env)))
	}
	return line, nil
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
