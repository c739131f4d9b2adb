package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/muster-scheduler/muster/internal/vm"
)

const (
	// outputLimit is what each output of a command may have: a message of the CRI holds both.
	outputLimit = 4 << 20
	// agentPause is between two attempts to reach an agent.
	agentPause = 250 * time.Millisecond
	// maxCommand is how many bytes a command may have: what the agent reads in one line.
	maxCommand = 128 << 10
	// maxInput is how many bytes of input a command may have, which the agent takes at once.
	maxInput = 1 << 20
)

// Output is what a command in a guest wrote, and its exit code (128 and the signal, where one ended it).
type Output struct {
	Stdout, Stderr []byte
	ExitCode       int32
}

// running gives a container whose machine runs.
func (s *Server) running(id string) (*containerState, error) {
	c := s.container(id)
	if c == nil {
		return nil, noContainer(id)
	}
	if r := c.rec.Load(); !r.ran() {
		return nil, c.problem(vm.Errorf(vm.Conflict, "it is %s, and does not run", r.Phase))
	}
	return c, nil
}

// exec runs a command by the guest agent.
func (s *Server) exec(ctx context.Context, c *containerState, command []string, input []byte, timeout time.Duration) (Output, error) {
	return s.asked(ctx, c, command, timeout, func(ctx context.Context, uuid string) (Output, error) {
		return s.Agent.Exec(ctx, uuid, command, input, outputLimit)
	})
}

// asked has the guest agent do something with a command, waiting for an agent that does not answer yet until ctx ends. timeout is what ctx's end is called.
func (s *Server) asked(ctx context.Context, c *containerState, command []string, timeout time.Duration, do func(ctx context.Context, uuid string) (Output, error)) (Output, error) {
	if err := mayRun(c, command); err != nil {
		return Output{}, err
	}
	tick := time.NewTicker(agentPause)
	defer tick.Stop()
	var last error
	for {
		out, err := do(ctx, c.rec.Load().UUID)
		switch {
		case err == nil:
			return out, nil
		case ctx.Err() == nil && vm.KindOf(err) != vm.Unavailable:
			return Output{}, c.problem(err)
		case ctx.Err() == nil:
			last = err
		}
		select {
		case <-tick.C:
			continue
		case <-c.ended:
			return Output{}, c.problem(vm.Errorf(vm.Conflict, "its machine has ended"))
		case <-ctx.Done():
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && last != nil {
			return Output{}, c.problem(fmt.Errorf("the guest agent did not answer within %v (%w): %v", timeout, ctx.Err(), last)) //nolint:errorlint // the kind is the deadline's
		}
		return Output{}, c.problem(fmt.Errorf("the command did not end within %v: %w", timeout, ctx.Err()))
	}
}

// mayRun is an error unless the agent can read a command.
func mayRun(c *containerState, command []string) error {
	size := 0
	for _, word := range command {
		size += len(word) + 1
	}
	if len(command) == 0 || command[0] == "" || size > maxCommand {
		return c.problem(vm.Errorf(vm.Invalid, "cmd: must have a first word, and at most %d bytes", maxCommand))
	}
	return nil
}

// ExecSync runs a command in the guest.
func (s *Server) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	c, err := s.running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	timeout := farAway
	if seconds := r.GetTimeout(); seconds > 0 && seconds < int64(farAway/time.Second) {
		timeout = time.Duration(seconds) * time.Second
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := s.exec(bounded, c, r.GetCmd(), nil, timeout)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ExecSyncResponse{Stdout: out.Stdout, Stderr: out.Stderr, ExitCode: out.ExitCode}, nil
}

// Exec gives the URL of a command to be run.
func (s *Server) Exec(_ context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	c, err := s.running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := mayRun(c, r.GetCmd()); err != nil {
		return nil, err
	}
	if s.streams == nil {
		return s.UnimplementedRuntimeServiceServer.Exec(context.TODO(), nil)
	}
	return s.streams.GetExec(r)
}

// Attach gives the URL of the machine's console.
func (s *Server) Attach(_ context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	c, err := s.running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := c.mayType(r.GetStdin()); err != nil {
		return nil, err
	}
	if s.streams == nil {
		return s.UnimplementedRuntimeServiceServer.Attach(context.TODO(), nil)
	}
	return s.streams.GetAttach(r)
}

// PortForward gives the URL of a way to the pod's ports.
func (s *Server) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	if _, err := s.reachable(r.GetPodSandboxId()); err != nil {
		return nil, err
	}
	if s.streams == nil {
		return s.UnimplementedRuntimeServiceServer.PortForward(context.TODO(), nil)
	}
	return s.streams.GetPortForward(r)
}

// reachable gives a pod's first address.
func (s *Server) reachable(id string) (netip.Addr, error) {
	box := s.sandbox(id)
	if box == nil {
		return netip.Addr{}, noSandbox(id)
	}
	b := box.rec.Load()
	all := b.addresses()
	if b.Phase != Ready || len(all) == 0 {
		return netip.Addr{}, vm.Errorf(vm.Conflict, "pod %s: it is not ready, or has no address", b)
	}
	return netip.ParseAddr(all[0])
}

// streamer is what the streaming server calls.
type streamer struct{ s *Server }

// ExitError is a command's exit code other than 0, in the form that the streaming server passes on.
type ExitError struct{ Code int }

// Error says the code.
func (e ExitError) Error() string { return fmt.Sprintf("command terminated with exit code %d", e.Code) }

// String is Error.
func (e ExitError) String() string { return e.Error() }

// Exited is true.
func (ExitError) Exited() bool { return true }

// ExitStatus is the code.
func (e ExitError) ExitStatus() int { return e.Code }

// Exec runs a command once its input has ended, and writes what it wrote when it has ended itself: the agent takes and gives each at once. On a terminal it carries both as they come.
func (x streamer) Exec(ctx context.Context, id string, cmd []string, stdin io.Reader, stdout, stderr io.WriteCloser, tty bool, sizes <-chan remotecommand.TerminalSize) error {
	c, err := x.s.running(id)
	if err != nil {
		return err
	}
	if tty {
		return x.terminal(ctx, c, cmd, stdin, stdout, sizes)
	}
	input, err := c.input(ctx, stdin)
	if err != nil {
		return err
	}
	out, err := x.s.exec(ctx, c, cmd, input, farAway)
	if err != nil {
		return err
	}
	for _, o := range []struct {
		to   io.Writer
		text []byte
	}{{stdout, out.Stdout}, {stderr, out.Stderr}} {
		if o.to == nil || len(o.text) == 0 {
			continue
		}
		if _, err := o.to.Write(o.text); err != nil {
			return err
		}
	}
	if out.ExitCode != 0 {
		return ExitError{int(out.ExitCode)}
	}
	return nil
}

// terminal runs a command on a terminal of its own, until it ends, or its machine does.
func (x streamer) terminal(ctx context.Context, c *containerState, cmd []string, in io.Reader, out io.Writer, sizes <-chan remotecommand.TerminalSize) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	columns := make(chan [2]uint16, 1)
	go func() { // ends with this function
		for {
			select {
			case <-c.ended:
				cancel(vm.Errorf(vm.Conflict, "its machine has ended"))
				return
			case <-ctx.Done():
				return
			case size, ok := <-sizes:
				if !ok {
					sizes = nil
					continue
				}
				select {
				case <-columns: // the last one counts
				default:
				}
				columns <- [2]uint16{size.Width, size.Height}
			}
		}
	}()
	done, err := x.s.asked(ctx, c, cmd, farAway, func(ctx context.Context, uuid string) (Output, error) {
		code, err := x.s.Agent.Terminal(ctx, uuid, cmd, in, out, columns)
		return Output{ExitCode: code}, err
	})
	if err == nil && done.ExitCode != 0 {
		return ExitError{int(done.ExitCode)}
	}
	return err
}

// input reads a command's input to its end; nil where there is none.
func (c *containerState) input(ctx context.Context, from io.Reader) ([]byte, error) {
	if from == nil {
		return nil, nil
	}
	type read struct {
		text []byte
		err  error
	}
	all := make(chan read, 1)
	go func() { // ends when the stream does, which the caller closes after this function
		text, err := io.ReadAll(io.LimitReader(from, maxInput+1))
		all <- read{text, err}
	}()
	select {
	case r := <-all:
		if r.err == nil && len(r.text) > maxInput {
			r.err = vm.Errorf(vm.Invalid, "exec: its input has more than %d bytes, which is what the guest agent is given", maxInput)
		}
		if r.err != nil {
			return nil, c.problem(r.err)
		}
		return r.text, nil
	case <-c.ended:
		return nil, c.problem(vm.Errorf(vm.Conflict, "its machine has ended"))
	case <-ctx.Done():
		return nil, c.problem(ctx.Err())
	}
}

// mayType is an error if somebody wants to type at a console whose container did not ask for input: a getty may give a root shell to who does, and a person who
// may attach is told so instead of typing into nothing.
func (c *containerState) mayType(wants bool) error {
	if wants && !c.rec.Load().Stdin {
		return c.problem(vm.Errorf(vm.Invalid, "attach: stdin: the container has none (stdin: true), so that its console can only be read"))
	}
	return nil
}

// Attach leads to the console. Its size is the guest's own affair.
func (x streamer) Attach(ctx context.Context, id string, stdin io.Reader, stdout, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	c, err := x.s.running(id)
	if err != nil {
		return err
	}
	if err := c.mayType(stdin != nil); err != nil {
		return err
	}
	var to io.Writer
	if stdout != nil {
		to = stdout
	}
	if err := x.s.Consoles.Attach(ctx, id, stdin, to); err != nil {
		return c.problem(err)
	}
	return nil
}

// PortForward connects a stream to a port of the guest.
func (x streamer) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	address, err := x.s.reachable(id)
	if err != nil {
		return err
	}
	if port < 1 || port > 65535 {
		return vm.Errorf(vm.Invalid, "port %d: must be 1 to 65535", port)
	}
	var conn net.Conn
	if err := x.s.do(ctx, "port-forward", func(ctx context.Context) (err error) {
		conn, err = x.s.Host.Dial(ctx, netip.AddrPortFrom(address, uint16(port)))
		return err
	}); err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close(); _ = stream.Close() })
	defer stop()
	go func() { // ends when the stream does, which the caller closes after this function
		_, _ = io.Copy(conn, stream)
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	if _, err := io.Copy(stream, conn); err != nil && ctx.Err() == nil {
		return fmt.Errorf("port %d: %w", port, err)
	}
	return nil
}

var _ streaming.Runtime = streamer{}
