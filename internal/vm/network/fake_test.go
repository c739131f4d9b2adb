package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/network/dhcp"
)

// fakeHost is a machine and its plugins as the manager may see them, made of maps. It outlives managers, as a machine outlives processes.
type fakeHost struct {
	mu       sync.Mutex
	netns    map[string]*space
	attached map[string]bool // by pod id: what plugins and their cache keep
	sockets  int             // DHCP sockets that are open
	dead     bool            // the process was killed: nothing that it does has an effect
	steps    int             // changes so far
	killAt   int             // the change at which the process is killed; 0: never
	after    bool            // killed after the change, not before it
	delFails error
	addFails error
	noIPs    bool
	held     map[string]bool // taps that QEMU has, by namespace
}

type space struct {
	veth   bool // as CNI made it
	joined int  // cards that have their bridge and tap
	index  int  // of the tap
}

var errKilled = errors.New("killed")

func newFakeHost() *fakeHost {
	return &fakeHost{netns: map[string]*space{}, attached: map[string]bool{}, held: map[string]bool{}}
}

// step is one change of the world, which a kill may come before or after.
func (w *fakeHost) step(change func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return errKilled
	}
	w.steps++
	if w.steps == w.killAt && !w.after {
		w.dead = true
		return errKilled
	}
	change()
	if w.steps == w.killAt {
		w.dead = true
		return errKilled
	}
	return nil
}

// revive is the machine after the process was killed: its sockets are closed.
func (w *fakeHost) revive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead, w.killAt, w.steps, w.sockets = false, 0, 0, 0
}

// left is everything that pods have left in the world.
func (w *fakeHost) left() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(slices.Sorted(maps.Keys(w.netns)), slices.Sorted(maps.Keys(w.attached)), w.sockets)
}

func (w *fakeHost) makeNetns(path string) error {
	return w.step(func() { w.netns[path] = &space{} })
}

func (w *fakeHost) removeNetns(path string) error {
	return w.step(func() { delete(w.netns, path) })
}

func (w *fakeHost) alive(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.netns[path] != nil
}

func (w *fakeHost) listNetns() ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.netns)), nil
}

func (w *fakeHost) links(path string) ([]Link, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.netns[path]
	if w.dead || s == nil {
		return nil, errKilled
	}
	if !s.veth {
		return nil, nil
	}
	return []Link{{Name: "eth0", Index: 2, Kind: "veth", MAC: "0a:58:0a:59:00:02", MTU: 1450, Addresses: []netip.Prefix{netip.MustParsePrefix("10.89.0.2/24")}}}, nil
}

func (w *fakeHost) join(path string, cards []Card) ([]Port, error) {
	var out []Port
	for i := range cards {
		if err := w.step(func() {
			s := w.netns[path]
			if s.joined <= i {
				s.joined, s.index = i+1, s.index+10
			}
			out = append(out, Port{Tap: s.index, MAC: "02:00:00:00:00:01"})
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (*fakeHost) function(string) (string, error) { return "", errors.New("there are none") }

func (*fakeHost) giveBack(string, []Card) error { return nil }

func (w *fakeHost) part(path string, _ []Card) error {
	return w.step(func() { w.netns[path].joined = 0 })
}

func (w *fakeHost) open(path string, cards []Card) (fds []int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, errKilled
	}
	if w.held[path] {
		return nil, fmt.Errorf("tap0: %w", unix.EBUSY)
	}
	for range cards {
		fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

func (w *fakeHost) listen(string, []int, []int) (guests, network dhcp.Conn, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, nil, errKilled
	}
	w.sockets++
	return &fakeConn{w: w, closed: make(chan struct{})}, nil, nil
}

type fakeConn struct {
	w      *fakeHost
	closed chan struct{}
	once   sync.Once
}

func (c *fakeConn) ReadFrame([]byte) (int, int, error) {
	<-c.closed
	return 0, 0, os.ErrClosed
}
func (*fakeConn) WriteFrame(int, []byte) error { return nil }
func (c *fakeConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		if !c.w.dead {
			c.w.sockets--
		}
	})
	return nil
}

// fakePlugins are the plugins of a world.
type fakePlugins struct{ *fakeHost }

func (fakePlugins) config() ([]byte, error) { return []byte(`{"name":"n"}`), nil }

func (p fakePlugins) add(_ context.Context, _ []byte, a attachment) (*types100.Result, error) {
	if p.addFails != nil {
		return nil, p.addFails
	}
	err := p.step(func() {
		p.attached[a.id] = true
		if s := p.netns[a.netns]; s != nil {
			s.veth = true
		}
	})
	r := &types100.Result{IPs: []*types100.IPConfig{{Address: net.IPNet{IP: net.IP{10, 89, 0, 2}, Mask: net.CIDRMask(24, 32)}}}}
	if p.noIPs {
		r.IPs = nil
	}
	return r, err
}

func (p fakePlugins) del(_ context.Context, _ []byte, a attachment) error {
	p.mu.Lock()
	fails := p.delFails
	p.mu.Unlock()
	if fails != nil {
		return fails
	}
	return p.step(func() {
		delete(p.attached, a.id)
		if s := p.netns[a.netns]; s != nil {
			s.veth = false
		}
	})
}

func (p fakePlugins) orphans(_ context.Context, owned map[string]bool) error {
	return p.step(func() { maps.DeleteFunc(p.attached, func(id string, _ bool) bool { return !owned[id] }) })
}

func (fakePlugins) status(context.Context) error { return nil }

// killed has the world's kills come at the database's writes too.
type killed struct {
	*boltRecords
	w *fakeHost
}

func (k killed) put(r record) (err error) {
	step := k.w.step(func() { err = k.boltRecords.put(r) })
	return errors.Join(step, err)
}

func (k killed) remove(id string) (err error) {
	step := k.w.step(func() { err = k.boltRecords.remove(id) })
	return errors.Join(step, err)
}

// bench is a manager on a world, over a database in a folder.
type bench struct {
	*Manager
	t   *testing.T
	w   *fakeHost
	db  *boltRecords
	dir string
}

func begin(t *testing.T, w *fakeHost, dir string) *bench {
	t.Helper()
	db, err := openRecords(filepath.Join(dir, "network.db"))
	if err != nil {
		t.Fatal(err)
	}
	// fsync is the disk's matter, and hundreds of them take a while.
	db.db.NoSync = true
	c := Config{NetnsDir: "/netns", Lease: time.Hour, MaxPods: 4, CNITimeout: time.Minute}
	b := &bench{Manager: newManager(c, w, fakePlugins{w}, killed{db, w}, logr.Discard()), t: t, w: w, db: db, dir: dir}
	return b
}

// end is the end of the process, however it comes.
func (b *bench) end() {
	b.silence()
	if err := b.db.close(); err != nil {
		b.t.Fatal(err)
	}
}

func pod(id string) Pod {
	return Pod{ID: id, Namespace: "team-a", Name: "web-0", UID: "uid-" + id, Annotations: map[string]string{"a": "b"}, PortMappings: []PortMapping{{Protocol: "tcp", ContainerPort: 80, HostPort: 8080}}}
}

func kind(t *testing.T, err error, want vm.Kind) {
	t.Helper()
	if err == nil || vm.KindOf(err) != want {
		t.Fatalf("error %v of kind %d, want kind %d", err, vm.KindOf(err), want)
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
