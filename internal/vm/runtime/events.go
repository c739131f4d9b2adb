package runtime

import (
	"sync"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm"
)

// The bounds of who listens: a kubelet, and somebody with crictl.
const (
	maxListeners = 16
	backlog      = 1024
)

// hub gives events to all who listen. Nobody waits for a listener: one that is too slow is let go, and lists again.
type hub struct {
	mu        sync.Mutex
	closed    bool
	listeners map[chan *runtimeapi.ContainerEventResponse]bool
}

func (h *hub) join() (chan *runtimeapi.ContainerEventResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, vm.Errorf(vm.Unavailable, "events: the runtime is ending")
	}
	if len(h.listeners) >= maxListeners {
		return nil, vm.Errorf(vm.Exhausted, "events: %d listen already", maxListeners)
	}
	if h.listeners == nil {
		h.listeners = map[chan *runtimeapi.ContainerEventResponse]bool{}
	}
	ch := make(chan *runtimeapi.ContainerEventResponse, backlog)
	h.listeners[ch] = true
	return ch, nil
}

func (h *hub) leave(ch chan *runtimeapi.ContainerEventResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners[ch] {
		delete(h.listeners, ch)
		close(ch)
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for ch := range h.listeners {
		delete(h.listeners, ch)
		close(ch)
	}
}

func (h *hub) tell(e *runtimeapi.ContainerEventResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.listeners {
		select {
		case ch <- e:
		default:
			delete(h.listeners, ch)
			close(ch)
		}
	}
}

// announce tells of a container, with all that there is to say of its pod, so that a kubelet need not ask.
func (s *Server) announce(box *sandboxState, id string, what runtimeapi.ContainerEventType) {
	s.hub.tell(&runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: what, CreatedAt: s.Clock().UnixNano(),
		PodSandboxStatus: sandboxStatus(box.rec.Load()), ContainersStatuses: s.statuses(box),
	})
}

// GetContainerEvents tells what happens from now on, until the caller goes or is too slow.
func (s *Server) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	events, err := s.hub.join()
	if err != nil {
		return err
	}
	defer s.hub.leave(events)
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return vm.Errorf(vm.Unavailable, "events: they were not read fast enough, or the runtime is ending")
			}
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
