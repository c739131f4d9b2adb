package runtime

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/network"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// RunPodSandbox makes a pod's network. Called again for the same attempt it gives the sandbox that there is.
func (s *Server) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	config := r.GetConfig()
	if config == nil || config.GetMetadata() == nil {
		return nil, vm.Errorf(vm.Invalid, "config: a sandbox needs a configuration with metadata")
	}
	if h := r.GetRuntimeHandler(); h != "" && !slices.Contains(s.opt.Handlers, h) {
		return nil, vm.Errorf(vm.Invalid, "pod %s: runtime handler %q: must be empty or one of %s", &Sandbox{Config: config}, h, strings.Join(s.opt.Handlers, ", "))
	}
	judged, err := spec.Judge(spec.Input{Sandbox: config, Node: s.opt.Limits})
	if err != nil {
		return nil, err
	}
	bandwidth, err := bandwidthOf(config)
	if err != nil {
		return nil, err
	}
	for range 3 { // a sandbox of the same name may go while it is waited for
		box, mine, err := s.reserve(config, r.GetRuntimeHandler())
		if err != nil {
			return nil, err
		}
		if !mine {
			there, err := s.hold(ctx, box)
			if err != nil {
				return nil, err
			}
			if !there {
				continue
			}
			rec := box.rec.Load()
			switch rec.Phase {
			case Ready:
				s.free(box)
				return &runtimeapi.RunPodSandboxResponse{PodSandboxId: rec.ID}, nil
			case Creating: // whoever began did not come to an end, nor back from it
				err = s.dropSandbox(undoing(ctx), box)
				s.free(box)
				if err != nil {
					return nil, err
				}
				continue
			}
			s.free(box)
			return nil, vm.Errorf(vm.Conflict, "pod %s: attempt %d: its sandbox %s has been stopped and not removed", rec, config.GetMetadata().GetAttempt(), rec.ID)
		}
		defer s.free(box)
		if err := s.attach(ctx, box, judged, bandwidth); err != nil {
			if undo := s.dropSandbox(undoing(ctx), box); undo != nil {
				s.log.Error(undo, "what was made for a sandbox could not be taken away yet; it will be tried again", "sandbox", box.rec.Load().ID)
			}
			return nil, err
		}
		return &runtimeapi.RunPodSandboxResponse{PodSandboxId: box.rec.Load().ID}, nil
	}
	return nil, vm.Errorf(vm.Unavailable, "pod %s: its sandbox came and went", &Sandbox{Config: config})
}

// reserve gives the sandbox of a name and attempt: a new one, whose lock is held, or the one that there is.
func (s *Server) reserve(config *runtimeapi.PodSandboxConfig, handler string) (box *sandboxState, mine bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if box := s.names[sandboxKey(config)]; box != nil {
		return box, false, nil
	}
	if len(s.sandboxes) >= s.opt.MaxSandboxes {
		return nil, false, vm.Errorf(vm.Exhausted, "pod %s: this node has %d sandboxes, and may have no more", &Sandbox{Config: config}, len(s.sandboxes))
	}
	box = s.addSandbox(&Sandbox{ID: s.IDs(), Phase: Creating, Handler: handler, Config: keptSandbox(config), Created: s.Clock()})
	box.lock <- struct{}{}
	return box, true, nil
}

// attach makes the network of a new sandbox.
func (s *Server) attach(ctx context.Context, box *sandboxState, judged *spec.Spec, bandwidth *network.Bandwidth) error {
	if err := s.saveSandbox(ctx, box, func(*Sandbox) {}); err != nil {
		return err
	}
	rec := box.rec.Load()
	pod, err := networkPod(rec, judged, bandwidth)
	if err != nil {
		return err
	}
	var got network.Attached
	if err := s.do(ctx, "network of pod "+rec.String(), func(ctx context.Context) (err error) {
		got, err = s.Networks.Add(ctx, pod)
		return err
	}); err != nil {
		return err
	}
	return s.saveSandbox(ctx, box, func(b *Sandbox) { b.Phase, b.Network = Ready, got.Network })
}

// dropSandbox takes away all that a sandbox without containers has, and its record last. Its lock is held.
func (s *Server) dropSandbox(ctx context.Context, box *sandboxState) error {
	rec := box.rec.Load()
	if rec.Phase != Removing { // then it has been released
		if err := s.do(ctx, "network of pod "+rec.String(), func(ctx context.Context) error { return s.Networks.Release(ctx, rec.ID) }); err != nil {
			return err
		}
	}
	if err := s.Records.DeleteSandbox(ctx, rec.ID); err != nil {
		return fmt.Errorf("pod %s: record: %w", rec, err)
	}
	s.mu.Lock()
	delete(s.sandboxes, rec.ID)
	delete(s.names, sandboxKey(rec.Config))
	s.mu.Unlock()
	return nil
}

// held does something to a sandbox with its lock held; nothing where there is none, or none any more.
func (s *Server) held(ctx context.Context, box *sandboxState, do func(context.Context, *sandboxState) error) error {
	if box == nil {
		return nil
	}
	there, err := s.hold(ctx, box)
	if err != nil || !there {
		return err
	}
	defer s.free(box)
	return do(ctx, box)
}

// StopPodSandbox ends what runs in a pod, at once, and gives its network back.
func (s *Server) StopPodSandbox(ctx context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	return &runtimeapi.StopPodSandboxResponse{}, s.held(ctx, s.sandbox(r.GetPodSandboxId()), s.stopSandbox)
}

// stopSandbox brings a sandbox to NotReady. Its lock is held.
func (s *Server) stopSandbox(ctx context.Context, box *sandboxState) error {
	if p := box.rec.Load().Phase; p == NotReady || p == Removing {
		return nil
	}
	if err := s.saveSandbox(ctx, box, func(b *Sandbox) { b.Phase = Stopping }); err != nil {
		return err
	}
	for _, c := range s.of(box) {
		if err := s.endNow(ctx, c); err != nil {
			return err
		}
	}
	rec := box.rec.Load()
	if err := s.do(ctx, "network of pod "+rec.String(), func(ctx context.Context) error { return s.Networks.Release(ctx, rec.ID) }); err != nil {
		return err
	}
	return s.saveSandbox(ctx, box, func(b *Sandbox) { b.Phase = NotReady })
}

// RemovePodSandbox ends what runs in a pod and removes everything of it.
func (s *Server) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	return &runtimeapi.RemovePodSandboxResponse{}, s.held(ctx, s.sandbox(r.GetPodSandboxId()), s.removeSandbox)
}

// removeSandbox removes a sandbox with its containers. Its lock is held.
func (s *Server) removeSandbox(ctx context.Context, box *sandboxState) error {
	if err := s.stopSandbox(ctx, box); err != nil {
		return err
	}
	if err := s.saveSandbox(ctx, box, func(b *Sandbox) { b.Phase = Removing }); err != nil {
		return err
	}
	for _, c := range s.of(box) {
		if err := s.removeContainer(ctx, c); err != nil {
			return err
		}
	}
	return s.dropSandbox(ctx, box)
}

// UpdatePodSandboxResources has nothing to do: the pod's cgroup is the kubelet's, and overhead is no machine's.
func (s *Server) UpdatePodSandboxResources(_ context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	if s.sandbox(r.GetPodSandboxId()) == nil {
		return nil, noSandbox(r.GetPodSandboxId())
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

func noSandbox(id string) error { return vm.Errorf(vm.NotFound, "sandbox %q: there is none", id) }

// networkPod is a sandbox in the network process's words. Of the annotations it leaves out ours, which may be secret and concern no CNI plugin.
func networkPod(rec *Sandbox, judged *spec.Spec, bandwidth *network.Bandwidth) (network.Pod, error) {
	m := rec.Config.GetMetadata()
	pod := network.Pod{
		ID: rec.ID, Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUid(), Hostname: judged.Pod.Hostname, Bandwidth: bandwidth,
		DNS: vm.DNS{Search: rec.Config.GetDnsConfig().GetSearches(), Options: rec.Config.GetDnsConfig().GetOptions()},
	}
	if o := judged.Machine; o.Suspend && o.Index != "" {
		pod.MAC = keptMAC(o.Owner, o.Index)
	}
	for _, server := range rec.Config.GetDnsConfig().GetServers() {
		a, err := netip.ParseAddr(server)
		if err != nil {
			return network.Pod{}, vm.Errorf(vm.Invalid, "pod %s: dns_config.servers %q: must be an IP address", rec, server)
		}
		pod.DNS.Servers = append(pod.DNS.Servers, a)
	}
	for _, p := range judged.Ports {
		mapping := network.PortMapping{Protocol: string(p.Protocol), ContainerPort: p.GuestPort, HostPort: p.HostPort}
		if p.HostIP != "" {
			a, err := netip.ParseAddr(p.HostIP)
			if err != nil {
				return network.Pod{}, vm.Errorf(vm.Invalid, "pod %s: port_mappings.host_ip %q: must be an IP address", rec, p.HostIP)
			}
			mapping.HostIP = a
		}
		pod.PortMappings = append(pod.PortMappings, mapping)
	}
	pod.Annotations = maps.Clone(rec.Config.GetAnnotations())
	maps.DeleteFunc(pod.Annotations, func(k, _ string) bool {
		return strings.HasPrefix(k, "Virtlet") || strings.HasPrefix(k, spec.Own) || strings.HasPrefix(k, "kubectl.kubernetes.io/")
	})
	return pod, nil
}

// The kubelet's annotations for the bandwidth plugin, as quantities of bits a second.
const (
	ingressKey = "kubernetes.io/ingress-bandwidth"
	egressKey  = "kubernetes.io/egress-bandwidth"
	// burst is what may go at once: the most that every version of the plugin takes, as other runtimes have it.
	burst = 1<<31 - 1
)

func bandwidthOf(config *runtimeapi.PodSandboxConfig) (*network.Bandwidth, error) {
	var out network.Bandwidth
	for _, k := range []struct {
		key         string
		rate, burst *uint64
	}{{ingressKey, &out.IngressRate, &out.IngressBurst}, {egressKey, &out.EgressRate, &out.EgressBurst}} {
		text, ok := config.GetAnnotations()[k.key]
		if !ok {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.CmpInt64(1000) < 0 || q.CmpInt64(1e15) > 0 {
			return nil, vm.Errorf(vm.Invalid, "pod %s: %s %q: must be a quantity of bits a second from 1k to 1P", &Sandbox{Config: config}, k.key, spec.Short(text))
		}
		*k.rate, *k.burst = uint64(q.Value()), burst
	}
	if out == (network.Bandwidth{}) {
		return nil, nil
	}
	return &out, nil
}
