package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/image"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// Options are a Server's settings. The zero value of each means its default.
type Options struct {
	// Version of this program.
	Version string
	// Handlers are the runtime handlers that are answered to, besides none. Default: muster-vm.
	Handlers []string
	// Limits are what pods may ask for, Domain the facts of the node that domains are made with.
	Limits spec.Node
	Domain domain.Node
	// SystemdCgroups says that the kubelet's cgroup driver is systemd.
	SystemdCgroups bool
	// MaxSandboxes bounds the pods of the node, MaxContainers a pod's containers, ended ones included. Defaults: 1024, 256.
	MaxSandboxes, MaxContainers int
	// Press is how often the power button is pressed. Default 5 s.
	Press time.Duration
	// Patience is how long one side effect may take. Default 1 min. Volumes and pulls have their callers' deadline.
	Patience time.Duration
	// Sweep is how often everything is reconciled. Default 1 min.
	Sweep time.Duration
	// Retry is how long to wait for a hypervisor that is gone before it is tried again. Default 1 s.
	Retry time.Duration
	// Streams serves Exec, Attach and PortForward: see Streaming. Without it they are Unimplemented.
	Streams func(streaming.Runtime) (streaming.Server, error)
	// Called, if set, is told of each call that has ended: the method's last name, how long it took, and gRPC's word for its error, "" for none. A watch of events is none: it
	// lasts as long as whoever watches.
	Called func(method string, took time.Duration, code string)
	// Discarded, if set, is told what was done about garbage each time that was done.
	Discarded func(Verb)
}

// Server is the CRI's runtime service and image service.
type Server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	Parts
	opt     Options
	log     logr.Logger
	streams streaming.Server
	hub     hub
	away    atomic.Pointer[string] // why the hypervisor cannot be reached; nil: it can
	work    sync.WaitGroup
	mending chan struct{} // a token: one mend at a time
	ctx     context.Context
	end     context.CancelFunc

	mu         sync.RWMutex
	sandboxes  map[string]*sandboxState
	containers map[string]*containerState
	names      map[string]*sandboxState   // by namespace/name/uid/attempt
	machines   map[string]*containerState // by UUID: whose machine it was last
}

// sandboxState is a record and who works on it.
type sandboxState struct {
	lock       chan struct{} // a token: whoever has it changes the pod
	rec        atomic.Pointer[Sandbox]
	containers []*containerState // guarded by Server.mu; replaced, not changed
}

// containerState is a record and who works on it.
type containerState struct {
	box   *sandboxState
	rec   atomic.Pointer[Container]
	write sync.Mutex    // held while a record is written
	ended chan struct{} // closed once Exited is recorded
	// finishing is held while a machine's end is written down, forgetting while the hypervisor forgets it.
	finishing, forgetting sync.Mutex

	poke    sync.Mutex
	poked   bool
	looking bool

	last atomic.Pointer[usage]
}

// New makes a server of the records that there are. Run has to be called for it to follow the hypervisor.
func New(ctx context.Context, parts Parts, opt Options, log logr.Logger) (*Server, error) {
	if t := opt.Domain.DomainType; t != "kvm" && t != "qemu" {
		return nil, vm.Errorf(vm.Invalid, "domain type %q: must be kvm or qemu", t)
	}
	if len(opt.Handlers) == 0 {
		opt.Handlers = []string{"muster-vm"}
	}
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{{&opt.Press, 5 * time.Second}, {&opt.Patience, time.Minute}, {&opt.Sweep, time.Minute}, {&opt.Retry, time.Second}} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	if opt.MaxSandboxes <= 0 {
		opt.MaxSandboxes = 1024
	}
	if opt.MaxContainers <= 0 {
		opt.MaxContainers = 256
	}
	s := &Server{
		Parts: parts, opt: opt, log: log, mending: make(chan struct{}, 1),
		sandboxes: map[string]*sandboxState{}, containers: map[string]*containerState{}, names: map[string]*sandboxState{}, machines: map[string]*containerState{},
	}
	s.ctx, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.away.Store(new("it has not been asked yet"))
	boxes, cs, err := parts.Records.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	for _, b := range boxes {
		s.addSandbox(b)
	}
	for _, c := range cs {
		box := s.sandboxes[c.SandboxID]
		if box == nil { // cannot be: a sandbox goes last
			log.Error(nil, "a container without a sandbox is forgotten; what it had goes as garbage", "container", c.ID, "sandbox", c.SandboxID)
			if err := parts.Records.DeleteContainer(ctx, c.ID); err != nil {
				return nil, fmt.Errorf("records: %w", err)
			}
			continue
		}
		s.addContainer(box, c)
	}
	if opt.Streams != nil {
		if s.streams, err = opt.Streams(streamer{s}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Register puts the services on a gRPC server that was made with Interceptors.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	runtimeapi.RegisterRuntimeServiceServer(to, s)
	runtimeapi.RegisterImageServiceServer(to, s)
}

// Interceptors are what a gRPC server needs so that errors have their codes and a defect ends one call.
func (s *Server) Interceptors() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(s.unary), grpc.ChainStreamInterceptor(s.stream)}
}

// Run follows the hypervisor and keeps everything reconciled until ctx ends, and then waits for what this server began. Machines run on.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	sweep := time.NewTicker(s.opt.Sweep)
	defer sweep.Stop()
	s.start(func() { s.follow(s.ctx) })
	if s.streams != nil {
		stopped := context.AfterFunc(s.ctx, func() { _ = s.streams.Stop() })
		defer stopped()
		s.start(func() {
			if err := s.streams.Start(true); err != nil && s.ctx.Err() == nil {
				s.log.Error(err, "exec, attach and port-forward are not served")
			}
		})
	}
	for {
		select {
		case <-sweep.C:
			if err := s.mend(s.ctx); err != nil {
				s.log.V(1).Info("not everything could be reconciled", "error", err.Error())
			}
		case <-s.ctx.Done():
			s.hub.close()
			s.work.Wait()
			return nil
		}
	}
}

// start runs f, which ends when s.ctx does.
func (s *Server) start(f func()) {
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		f()
	}()
}

// ImagesInUse gives the ids of the images that containers are made from, those under way included: image.Options.InUse.
func (s *Server) ImagesInUse() ([]image.Digest, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []image.Digest
	for _, c := range s.containers {
		if id := image.Digest(c.rec.Load().ImageID); !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out, nil
}

func sandboxKey(c *runtimeapi.PodSandboxConfig) string {
	m := c.GetMetadata()
	return fmt.Sprintf("%q/%q/%q/%d", m.GetNamespace(), m.GetName(), m.GetUid(), m.GetAttempt())
}

func (s *Server) addSandbox(b *Sandbox) *sandboxState {
	box := &sandboxState{lock: make(chan struct{}, 1)}
	box.rec.Store(b)
	s.sandboxes[b.ID] = box
	s.names[sandboxKey(b.Config)] = box
	return box
}

func (s *Server) addContainer(box *sandboxState, r *Container) *containerState {
	c := &containerState{box: box, ended: make(chan struct{})}
	c.rec.Store(r)
	if r.Phase == Exited || r.Phase == Removing {
		close(c.ended)
	}
	s.containers[r.ID] = c
	if r.live() || s.machines[r.UUID] == nil {
		s.machines[r.UUID] = c
	}
	box.containers = append(slices.Clip(box.containers), c)
	return c
}

func (s *Server) sandbox(id string) *sandboxState {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.sandboxes[id]
}

func (s *Server) container(id string) *containerState {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.containers[id]
}

// of gives a sandbox's containers, in the order in which they were created.
func (s *Server) of(box *sandboxState) []*containerState {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return box.containers
}

// hold takes a sandbox's lock. It is false if the sandbox is gone by then. Whoever got true calls free.
func (s *Server) hold(ctx context.Context, box *sandboxState) (bool, error) {
	select {
	case box.lock <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("pod %s: another call is at work on it: %w", box.rec.Load(), ctx.Err())
	}
	if s.sandbox(box.rec.Load().ID) != box {
		s.free(box)
		return false, nil
	}
	return true, nil
}

// tryHold is hold for those who do not wait.
func (s *Server) tryHold(box *sandboxState) bool {
	select {
	case box.lock <- struct{}{}:
	default:
		return false
	}
	if s.sandbox(box.rec.Load().ID) != box {
		s.free(box)
		return false
	}
	return true
}

func (*Server) free(box *sandboxState) { <-box.lock }

// patient bounds one side effect.
func (s *Server) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.opt.Patience)
}

// do is one side effect within the patience. Its error says which it was.
func (s *Server) do(ctx context.Context, what string, f func(context.Context) error) error {
	bounded, cancel := s.patient(ctx)
	defer cancel()
	if err := f(bounded); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return vm.Errorf(vm.Unavailable, "%s: no answer within %v", what, s.opt.Patience)
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// undoing is for taking back what a call did that then failed: its caller may have given up.
func undoing(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// saveSandbox changes a record. The sandbox's lock is held.
func (s *Server) saveSandbox(ctx context.Context, box *sandboxState, change func(*Sandbox)) error {
	next := *box.rec.Load()
	change(&next)
	if err := s.Records.SaveSandbox(ctx, &next); err != nil {
		return fmt.Errorf("pod %s: record: %w", &next, err)
	}
	box.rec.Store(&next)
	return nil
}

// errUnchanged is what a change gives that finds nothing to do.
var errUnchanged = errors.New("unchanged")

// saveContainer changes a record; change may refuse. Both holders of the sandbox's lock and those who saw a machine end do this.
func (s *Server) saveContainer(ctx context.Context, c *containerState, change func(*Container) error) error {
	c.write.Lock()
	defer c.write.Unlock()
	next := *c.rec.Load()
	if err := change(&next); err != nil {
		return err
	}
	if err := s.Records.SaveContainer(ctx, &next); err != nil {
		return fmt.Errorf("pod %s: container %q: record: %w", c.box.rec.Load(), next.Name, err)
	}
	was := c.rec.Swap(&next)
	if next.Phase == Exited && was.Phase != Exited {
		close(c.ended)
	}
	return nil
}

// phase is saveContainer for a change of phase alone.
func (s *Server) phase(ctx context.Context, c *containerState, p Phase) error {
	return s.saveContainer(ctx, c, func(r *Container) error { r.Phase = p; return nil })
}

// problem names pod and container before an error that does not name the pod itself.
func (c *containerState) problem(err error) error {
	if strings.HasPrefix(err.Error(), "pod "+c.box.rec.Load().String()+": ") {
		return err
	}
	return fmt.Errorf("pod %s: container %q: %w", c.box.rec.Load(), c.rec.Load().Name, err)
}
