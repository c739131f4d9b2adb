package network

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/network/dhcp"
)

// Port is a card as it was joined: the tap that leads to the guest, the veth that leads to the pod's network, and the MAC of the bridge, from
// which DHCP answers.
type Port struct {
	Tap  int
	Veth int
	MAC  string
}

// machine is what the manager does to the machine. Everything can be done again: what is there already is left, what is gone is no error.
type machine interface {
	// makeNetns makes a network namespace that stays, at a path; one that is there by that name is thrown away.
	makeNetns(path string) error
	removeNetns(path string) error
	// alive says whether there is a network namespace at the path.
	alive(path string) bool
	// listNetns are the paths of everything in the folder of namespaces.
	listNetns() ([]string, error)
	// links are those of a namespace.
	links(path string) ([]Link, error)
	// function says which driver a virtual function has. Invalid: the device is none.
	function(pci string) (driver string, err error)
	// giveBack gives virtual functions back to their drivers, whether the namespace is alive or not.
	giveBack(path string, cards []Card) error
	// join makes bridge and tap of each card, and takes the veth's addresses away; a virtual function gets its MAC and the driver of guests. Ports are of the taps.
	join(path string, cards []Card) ([]Port, error)
	// part undoes join: the links are as CNI left them.
	part(path string, cards []Card) error
	// open opens the tap of each card. unix.EBUSY: somebody has one open. The descriptors are the caller's.
	open(path string, cards []Card) ([]int, error)
	// listen opens a socket that hears what guests ask by some taps, and one that hears what is answered by some veths, nil where there are none.
	listen(path string, taps, veths []int) (guests, network dhcp.Conn, err error)
}

// plugins is what the manager has CNI do.
type plugins interface {
	// config is the configuration list in force, whole in itself.
	config() ([]byte, error)
	add(ctx context.Context, conf []byte, a attachment) (*types100.Result, error)
	del(ctx context.Context, conf []byte, a attachment) error
	// orphans removes what the cache has and none of these pods owns, and tells plugins (GC) if the networks are ours alone.
	orphans(ctx context.Context, owned map[string]bool) error
	status(ctx context.Context) error
}

// attachment is a pod as CNI sees it.
type attachment struct {
	id           string
	netns        string
	args         [][2]string
	capabilities map[string]any
}

// Manager has the pods' networks. It is safe for concurrent use: calls for one pod follow each other, those for several run side by side.
type Manager struct {
	machine  machine
	plugins  plugins
	records  records
	netnsDir string
	lease    time.Duration
	fallback []netip.Addr
	maxPods  int
	timeout  time.Duration // of one pod's removal
	log      logr.Logger
	heard    func(event string) // what guests ask by DHCP is told to it

	mu    sync.Mutex
	locks map[string]*podLock
	dhcp  map[string]*dhcp.Server
	count int // of records
}

// podLock is held by the call that a pod is in.
type podLock struct {
	held  chan struct{}
	users int
}

// serverAddress is the bridge's in every pod, and what DHCP calls itself: link-local, so that no network of a pod can have it.
func serverAddress() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, 254, 2}), 24)
}

// lock waits for a pod's turn.
func (m *Manager) lock(ctx context.Context, id string) (unlock func(), err error) {
	m.mu.Lock()
	l := m.locks[id]
	if l == nil {
		l = &podLock{held: make(chan struct{}, 1)}
		m.locks[id] = l
	}
	l.users++
	m.mu.Unlock()
	leave := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(m.locks, id)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, vm.Errorf(vm.Unavailable, "pod %s: another call is under way: %w", id, ctx.Err())
	}
}

// Add makes a pod's network. Where it fails, what was made is removed again.
func (m *Manager) Add(ctx context.Context, pod Pod) (Attached, error) {
	if err := pod.check(); err != nil {
		return Attached{}, err
	}
	unlock, err := m.lock(ctx, pod.ID)
	if err != nil {
		return Attached{}, err
	}
	defer unlock()
	switch old, there, err := m.records.get(pod.ID); {
	case err != nil:
		return Attached{}, err
	case there:
		return Attached{}, vm.Errorf(vm.Conflict, "pod %s (%s/%s) has a network already, which is %s", pod.ID, old.Pod.Namespace, old.Pod.Name, old.Phase)
	}
	conf, err := m.plugins.config()
	if err != nil {
		return Attached{}, err
	}
	if err := m.take(); err != nil {
		return Attached{}, err
	}
	r := record{Phase: phaseAdding, Pod: pod, Conf: conf, Netns: filepath.Join(m.netnsDir, pod.ID)}
	if err := m.records.put(r); err != nil {
		m.give()
		return Attached{}, err
	}
	a, err := m.make(ctx, &r)
	if err != nil {
		err = fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		if undo := m.remove(ctx, r); undo != nil {
			m.log.Error(undo, "What was made for a pod could not be removed; it is tried again", "pod", pod.ID)
		}
		return Attached{}, err
	}
	return a, nil
}

// take counts a pod in, if there is room.
func (m *Manager) take() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count >= m.maxPods {
		return vm.Errorf(vm.Exhausted, "this node has networks for %d pods, and no more are allowed", m.count)
	}
	m.count++
	return nil
}

func (m *Manager) give() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count--
}

// make does the side effects of Add.
func (m *Manager) make(ctx context.Context, r *record) (Attached, error) {
	if err := m.machine.makeNetns(r.Netns); err != nil {
		return Attached{}, err
	}
	result, err := m.plugins.add(ctx, r.Conf, attach(*r))
	if err != nil {
		return Attached{}, err
	}
	links, err := m.machine.links(r.Netns)
	if err != nil {
		return Attached{}, err
	}
	r.Cards, err = cards(result, links, newMAC)
	if err != nil {
		return Attached{}, err
	}
	for i := range r.Cards {
		if c := &r.Cards[i]; r.Pod.MTU > 0 && (c.MTU == 0 || c.MTU > r.Pod.MTU) {
			c.MTU = r.Pod.MTU
		}
	}
	for i := range r.Cards {
		if c := &r.Cards[i]; c.PCI != "" {
			if c.Driver, err = m.machine.function(c.PCI); err != nil {
				return Attached{}, fmt.Errorf("interface %s: %w", c.Name, err)
			}
		}
	}
	r.DNS = resolver(r.Pod.DNS, result)
	// Written before links are changed: whoever removes the pod has to know what they were.
	if err := m.records.put(*r); err != nil {
		return Attached{}, err
	}
	if err := m.join(*r); err != nil {
		return Attached{}, err
	}
	r.Phase = phaseReady
	return m.token(r)
}

// join makes the links of a pod, or what is missing of them, and has DHCP hear the taps that are there now.
func (m *Manager) join(r record) error {
	ports, err := m.machine.join(r.Netns, r.Cards)
	if err != nil {
		return err
	}
	if len(ports) == 0 {
		return nil // all cards are virtual functions: nobody hears their guest
	}
	m.mu.Lock()
	running := m.dhcp[r.Pod.ID]
	m.mu.Unlock()
	taps := make([]int, len(ports))
	for i, p := range ports {
		taps[i] = p.Tap
	}
	if running != nil {
		if slices.Equal(running.Links(), taps) && running.Running() {
			return nil
		}
		m.quiet(r.Pod.ID)
	}
	served, veths, cs := make([]dhcp.Port, len(ports)), []int(nil), tapped(r.Cards)
	for i, p := range ports {
		served[i] = dhcp.Port{Link: p.Tap, MAC: hardware(p.MAC), Card: cs[i].Interface}
		if dhcp.AsksFor(cs[i].Interface) {
			served[i].Outer = p.Veth
			veths = append(veths, p.Veth)
		}
	}
	guests, outside, err := m.machine.listen(r.Netns, taps, veths)
	if err != nil {
		return fmt.Errorf("DHCP: %w", err)
	}
	config := dhcp.Config{Server: serverAddress().Addr(), Lease: m.lease, Hostname: r.Pod.hostname(), DNS: r.DNS, Fallback: m.fallback, Heard: m.heard}
	s := dhcp.Start(guests, outside, config, served, m.log.WithValues("pod", r.Pod.ID))
	m.mu.Lock()
	m.dhcp[r.Pod.ID] = s
	m.mu.Unlock()
	return nil
}

// quiet ends a pod's DHCP.
func (m *Manager) quiet(id string) {
	m.mu.Lock()
	s := m.dhcp[id]
	delete(m.dhcp, id)
	m.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// token makes a new token and writes the record with its hash.
func (m *Manager) token(r *record) (Attached, error) {
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return Attached{}, err
	}
	token := hex.EncodeToString(secret[:])
	r.TokenHash = hash(token)
	if err := m.records.put(*r); err != nil {
		return Attached{}, err
	}
	return Attached{Network: network(r.Cards, r.DNS), Netns: r.Netns, Token: token}, nil
}

func hash(token string) string {
	h := sha256.Sum256([]byte(token))
	return hex.EncodeToString(h[:])
}

// ready is the record of a pod that was added and has not begun to go.
func (m *Manager) ready(id string) (record, error) {
	r, there, err := m.records.get(id)
	switch {
	case err != nil:
		return r, err
	case !there:
		return r, vm.Errorf(vm.NotFound, "there is no network of pod %q", short(id))
	case r.Phase != phaseReady:
		return r, vm.Errorf(vm.Conflict, "the network of pod %s is %s", id, r.Phase)
	case !m.machine.alive(r.Netns):
		return r, vm.Errorf(vm.NotFound, "the network namespace of pod %s is gone: release it", id)
	}
	return r, nil
}

// Get opens the taps of a pod for whoever has its token. The descriptors are the caller's, in the order of cards.
func (m *Manager) Get(ctx context.Context, id, token string) (_ []Tap, fds []int, err error) {
	unlock, err := m.lock(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	r, err := m.ready(id)
	if err != nil {
		return nil, nil, err
	}
	if r.TokenHash == "" {
		return nil, nil, vm.Errorf(vm.Conflict, "the token of pod %s was used: recover the pod for another", id)
	}
	if subtle.ConstantTimeCompare([]byte(hash(token)), []byte(r.TokenHash)) != 1 {
		return nil, nil, vm.Errorf(vm.Invalid, "this is not the token of pod %s", id)
	}
	// Whoever had the taps before may have ended their being persistent.
	if err := m.join(r); err != nil {
		return nil, nil, err
	}
	cs := tapped(r.Cards)
	fds, err = m.machine.open(r.Netns, cs)
	if errors.Is(err, unix.EBUSY) {
		return nil, nil, vm.Errorf(vm.Conflict, "pod %s: another process has its taps: %w", id, err)
	}
	if err != nil {
		return nil, nil, err
	}
	r.TokenHash = ""
	if err := m.records.put(r); err != nil {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return nil, nil, err
	}
	taps := make([]Tap, len(cs))
	for i, c := range cs {
		taps[i] = Tap{Name: c.Name, MAC: c.MAC, MTU: c.MTU, Descriptor: i}
	}
	return taps, fds, nil
}

// Recover makes what is missing of a pod that was added, and a new token.
func (m *Manager) Recover(ctx context.Context, id string) (Attached, error) {
	unlock, err := m.lock(ctx, id)
	if err != nil {
		return Attached{}, err
	}
	defer unlock()
	r, err := m.ready(id)
	if err != nil {
		return Attached{}, err
	}
	if err := m.join(r); err != nil {
		return Attached{}, fmt.Errorf("pod %s: %w", id, err)
	}
	return m.token(&r)
}

// Release removes a pod's network.
func (m *Manager) Release(ctx context.Context, id string) error {
	unlock, err := m.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	r, there, err := m.records.get(id)
	switch {
	case err != nil:
		return err
	case !there:
		return vm.Errorf(vm.NotFound, "there is no network of pod %q", short(id))
	}
	return m.remove(ctx, r)
}

// remove takes away everything of a pod, and its record last. What fails is Unavailable: it is to be tried again.
func (m *Manager) remove(ctx context.Context, r record) error {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	again := func(err error) error {
		return vm.Errorf(vm.Unavailable, "pod %s (%s/%s) is not removed yet: %w", r.Pod.ID, r.Pod.Namespace, r.Pod.Name, err)
	}
	if r.Phase != phaseRemoving {
		r.Phase, r.TokenHash = phaseRemoving, ""
		if err := m.records.put(r); err != nil {
			return again(err)
		}
	}
	m.quiet(r.Pod.ID)
	a := attach(r)
	if err := m.machine.giveBack(r.Netns, r.Cards); err != nil {
		return again(err) // its plugin would look for it in vain
	}
	if m.machine.alive(r.Netns) {
		// Plugins find the links as they made them: some look at addresses to know which rules are theirs.
		if err := m.machine.part(r.Netns, r.Cards); err != nil {
			m.log.Error(err, "A pod's links are not as CNI made them; its plugins are told to delete them all the same", "pod", r.Pod.ID)
		}
	} else {
		a.netns = ""
	}
	if err := m.plugins.del(ctx, r.Conf, a); err != nil {
		return again(err)
	}
	if err := m.machine.removeNetns(r.Netns); err != nil {
		return again(err)
	}
	if err := m.records.remove(r.Pod.ID); err != nil {
		return again(err)
	}
	m.give()
	return nil
}

// List tells of all pods, in the order of ids.
func (m *Manager) List() ([]Listed, error) {
	all, err := m.records.all()
	if err != nil {
		return nil, err
	}
	out := make([]Listed, len(all))
	for i, r := range all {
		out[i] = Listed{
			ID: r.Pod.ID, Namespace: r.Pod.Namespace, Name: r.Pod.Name, UID: r.Pod.UID, State: r.Phase, Netns: r.Netns, Network: network(r.Cards, r.DNS),
		}
		m.mu.Lock()
		s := m.dhcp[r.Pod.ID]
		m.mu.Unlock()
		if s != nil {
			out[i].Leases = s.Leases()
		}
	}
	return out, nil
}

// Status says whether a pod could be added now, as far as CNI knows.
func (m *Manager) Status(ctx context.Context) error { return m.plugins.status(ctx) }

// attach is a pod as CNI is told of it, the same at ADD and DEL. The names of args and capabilities are those that containerd and CRI-O
// use, and CNI's conventions.
func attach(r record) attachment {
	p := r.Pod
	a := attachment{id: p.ID, netns: r.Netns, args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", p.Namespace}, {"K8S_POD_NAME", p.Name}, {"K8S_POD_INFRA_CONTAINER_ID", p.ID}, {"K8S_POD_UID", p.UID},
	}, capabilities: map[string]any{}}
	if len(p.PortMappings) > 0 {
		ports := make([]map[string]any, len(p.PortMappings))
		for i, m := range p.PortMappings {
			ports[i] = map[string]any{"hostPort": m.HostPort, "containerPort": m.ContainerPort, "protocol": m.Protocol}
			if m.HostIP.IsValid() {
				ports[i]["hostIP"] = m.HostIP.String()
			}
		}
		a.capabilities["portMappings"] = ports
	}
	if p.Bandwidth != nil {
		a.capabilities["bandwidth"] = p.Bandwidth
	}
	if len(p.DNS.Servers) > 0 || len(p.DNS.Search) > 0 || len(p.DNS.Options) > 0 {
		a.capabilities["dns"] = map[string]any{"servers": p.DNS.Servers, "searches": p.DNS.Search, "options": p.DNS.Options}
	}
	if p.MAC != "" {
		a.capabilities["mac"] = p.MAC
	}
	if len(p.Annotations) > 0 {
		a.capabilities["io.kubernetes.cri.pod-annotations"] = p.Annotations
	}
	return a
}

// newMAC is a random unicast address that is locally administered.
func newMAC() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[0] = b[0]&^1 | 2
	return hardware6(b)
}
