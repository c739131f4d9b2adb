package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// Options say what to show and where.
type Options struct {
	// Nodes and GPUs (of each node) are the size of the cluster. Nodes is a multiple of 8, and at least 16, so that
	// every team's quota is an eighth of it.
	Nodes, GPUs int
	// Dir is an empty or new folder for everything the demo writes; it is kept. If it is empty, a temporary one is
	// made, and removed when all went well.
	Dir string
	// LabBinary is the muster-lab to run. Empty: the one beside this program, else the one in $PATH.
	LabBinary string
	// MusterBinary is the muster to run. Empty: this program.
	MusterBinary string
	// Patience is how long each sentence of the story may take to come true, and each child to start.
	Patience time.Duration
	// Keep leaves the cluster up after the story, until ctx ends.
	Keep bool
	// Out is where the story is told. Live says that it is a terminal.
	Out  io.Writer
	Live bool
}

// DefaultOptions are 64 nodes with 8 GPUs each, and two minutes of patience.
func DefaultOptions() Options {
	return Options{Nodes: 64, GPUs: 8, Patience: 2 * time.Minute, Out: os.Stdout}
}

func (o *Options) check() error {
	switch {
	case o.Nodes < 16 || o.Nodes%8 != 0:
		return fmt.Errorf("--nodes is %d; it must be a multiple of 8, and at least 16", o.Nodes)
	case o.Nodes > 1000:
		return fmt.Errorf("--nodes is %d; the story is told on at most 1000", o.Nodes)
	case o.GPUs < 1 || o.GPUs > 64:
		return fmt.Errorf("--gpus is %d; it must be from 1 to 64", o.GPUs)
	case o.Patience <= 0:
		return fmt.Errorf("--timeout is %s; it must be more than 0", o.Patience)
	}
	if o.MusterBinary == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		o.MusterBinary = self
	}
	if o.LabBinary == "" {
		beside := filepath.Join(filepath.Dir(o.MusterBinary), "muster-lab")
		if _, err := os.Stat(beside); err == nil {
			o.LabBinary = beside
		} else if o.LabBinary, err = exec.LookPath("muster-lab"); err != nil {
			return fmt.Errorf("no muster-lab beside %s nor in $PATH: build it with `make build`, or name it with --lab-binary", o.MusterBinary)
		}
	}
	return nil
}

// folder makes the demo's folder and says whether it is a temporary one.
func (o *Options) folder() (dir string, temporary bool, err error) {
	if o.Dir == "" {
		dir, err = os.MkdirTemp("", "muster-demo-")
		if err != nil {
			return "", false, fmt.Errorf("make the demo's folder: %w", err)
		}
		temporary = true
	} else {
		if dir, err = filepath.Abs(o.Dir); err != nil {
			return "", false, fmt.Errorf("--dir: %w", err)
		}
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			return "", false, fmt.Errorf("--dir: %s is not empty; the story begins with a new cluster", dir)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "manifests"), 0o755); err != nil {
		return "", false, fmt.Errorf("make the demo's folder: %w", err)
	}
	return dir, temporary, nil
}

// Run tells the story and returns nil if all of it came true. The cluster and Muster have stopped when it returns.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	dir, temporary, err := o.folder()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &story{
		narrator: &narrator{out: o.Out, live: o.Live, begun: time.Now()},
		sizes:    sizes{Nodes: o.Nodes, PerNode: o.GPUs},
		dir:      dir, o: o, gone: cancel,
	}
	told := s.tell(ctx)
	took := time.Since(s.begun)
	if told == nil && o.Keep {
		told = s.keep(ctx)
	}
	if told != nil && ctx.Err() != nil && !childEnded(ctx) {
		told = errors.New("interrupted")
	}
	// The story's own watches end first: an API server waits for those that are open when it stops.
	cancel(nil)
	stopped := s.stop()
	if told == nil && stopped == nil {
		s.summary(took)
		if temporary {
			return os.RemoveAll(dir)
		}
		return nil
	}
	return fmt.Errorf("%w\n  logs: %s\n        %s\n        %s", errors.Join(told, stopped),
		s.log("muster"), s.log("lab"), filepath.Join(dir, "lab", "logs"))
}

func (s *story) log(name string) string { return filepath.Join(s.dir, name+".log") }

// labState is what muster-lab prints once it is ready, as far as it matters here.
type labState struct {
	Kubeconfig string `json:"kubeconfig"`
	Version    string `json:"version"`
}

// startLab returns when the lab is ready.
func (s *story) startLab(ctx context.Context) (labState, error) {
	c, out, err := start("muster-lab", s.log("lab"), s.progress, s.gone, s.o.LabBinary, "up", "--bare", "--leash", "--output=json",
		"--dir="+filepath.Join(s.dir, "lab"), "--workload-crds",
		fmt.Sprintf("--nodes=%d", s.Nodes), fmt.Sprintf("--gpus=%d", s.PerNode), fmt.Sprintf("--racks=%d", max(2, s.Nodes/8)))
	if err != nil {
		return labState{}, err
	}
	s.children = append(s.children, c)
	ready := make(chan labState, 1)
	go func() {
		var state labState
		if json.NewDecoder(out).Decode(&state) == nil {
			ready <- state
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	state, err := receive(ctx, s.o.Patience, ready)
	if err != nil {
		return labState{}, fmt.Errorf("start the lab: %w", err)
	}
	return state, nil
}

// startMuster returns when Muster listens, with its address.
func (s *story) startMuster(ctx context.Context, kubeconfig string) (string, error) {
	address := make(chan string, 1)
	c, out, err := start("muster", s.log("muster"), func(line string) {
		if a, ok := servingAt(line); ok {
			select {
			case address <- a:
			default:
			}
		}
	}, s.gone, s.o.MusterBinary, "run", "all", "--kubeconfig="+kubeconfig, "--namespace="+keys.Namespace, "--qps=1000", "--burst=2000",
		"--listen-address=127.0.0.1:0", "--health-probe-bind-address=0")
	if err != nil {
		return "", err
	}
	s.children = append(s.children, c)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	a, err := receive(ctx, s.o.Patience, address)
	if err != nil {
		return "", fmt.Errorf("start Muster: %w", err)
	}
	return a, nil
}

// servingAt finds the address in the line that a process of Muster logs when it listens.
func servingAt(line string) (string, bool) {
	if !strings.Contains(line, "msg=serving ") {
		return "", false
	}
	for _, field := range strings.Fields(line) {
		if a, ok := strings.CutPrefix(field, "address="); ok {
			return a, true
		}
	}
	return "", false
}

// keep waits for the end of ctx; only the user may bring it about.
func (s *story) keep(ctx context.Context) error {
	fmt.Fprintf(s.out, "\nThe cluster stays up. Use it with\n\n  export KUBECONFIG=%s\n\nManifests and logs are in %s.\nCtrl-C stops it.\n", s.kubeconfig, s.dir)
	<-ctx.Done()
	if childEnded(ctx) {
		return context.Cause(ctx)
	}
	fmt.Fprintln(s.out, "\nStopping.")
	return nil
}

// stop ends the children, the last one first.
func (s *story) stop() error {
	var errs []error
	for i := len(s.children) - 1; i >= 0; i-- {
		errs = append(errs, s.children[i].stop())
	}
	s.children = nil
	return errors.Join(errs...)
}
