package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
)

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// TestLife is a pod's whole life with two machines one after the other.
func TestLife(t *testing.T) {
	t.Parallel()
	ctx, w := t.Context(), newFakeHost()
	b := begin(t, w, t.TempDir())
	defer b.end()
	before := w.left()
	a, err := b.Add(ctx, pod("p1"))
	if err != nil {
		t.Fatal(err)
	}
	if a.Netns != "/netns/p1" || len(a.Network.Interfaces) != 1 || a.Network.Interfaces[0].MAC != "0a:58:0a:59:00:02" || len(a.Token) != 64 {
		t.Fatalf("added %s", text(t, a))
	}
	_, err = b.Add(ctx, pod("p1"))
	kind(t, err, vm.Conflict)
	_, _, err = b.Get(ctx, "p1", strings.Repeat("0", 64))
	kind(t, err, vm.Invalid)
	_, _, err = b.Get(ctx, "p2", a.Token)
	kind(t, err, vm.NotFound)
	taps, fds, err := b.Get(ctx, "p1", a.Token)
	if err != nil {
		t.Fatal(err)
	}
	closeAll(fds)
	if len(taps) != 1 || taps[0].MAC != "0a:58:0a:59:00:02" || taps[0].MTU != 1450 {
		t.Errorf("taps %+v", taps)
	}
	_, _, err = b.Get(ctx, "p1", a.Token)
	kind(t, err, vm.Conflict)
	again, err := b.Recover(ctx, "p1")
	if err != nil {
		t.Fatal(err)
	}
	if again.Token == a.Token {
		t.Error("a recovered pod has the token of before")
	}
	_, _, err = b.Get(ctx, "p1", a.Token)
	kind(t, err, vm.Invalid)
	// QEMU of before still has the tap: the token is not spent on that.
	w.held["/netns/p1"] = true
	_, _, err = b.Get(ctx, "p1", again.Token)
	kind(t, err, vm.Conflict)
	if !strings.Contains(err.Error(), "p1") || !errors.Is(err, unix.EBUSY) {
		t.Errorf("error %q names no pod or hides why", err)
	}
	w.held["/netns/p1"] = false
	_, fds, err = b.Get(ctx, "p1", again.Token)
	if err != nil {
		t.Fatal(err)
	}
	closeAll(fds)
	if err := b.Release(ctx, "p1"); err != nil {
		t.Fatal(err)
	}
	kind(t, b.Release(ctx, "p1"), vm.NotFound)
	_, err = b.Recover(ctx, "p1")
	kind(t, err, vm.NotFound)
	if after := w.left(); after != before {
		t.Errorf("left %s, was %s", after, before)
	}
}

// TestRestart: what lives goes on with its DHCP and its token; what the machine lost is removed.
func TestRestart(t *testing.T) {
	t.Parallel()
	ctx, w, dir := t.Context(), newFakeHost(), t.TempDir()
	b := begin(t, w, dir)
	kept, err := b.Add(ctx, pod("kept"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Add(ctx, pod("lost")); err != nil {
		t.Fatal(err)
	}
	b.end()
	delete(w.netns, "/netns/lost")
	w.netns["/netns/nobody"], w.attached["nobody"] = &space{}, true
	b = begin(t, w, dir)
	defer b.end()
	if err := b.reconcile(ctx); err != nil {
		t.Fatal(err)
	}
	if got, want := w.left(), "[/netns/kept] [kept] 1"; got != want {
		t.Errorf("left %s, want %s", got, want)
	}
	l, err := b.List()
	if err != nil || len(l) != 1 || l[0].ID != "kept" || l[0].State != phaseReady || l[0].UID != "uid-kept" {
		t.Errorf("list %+v, %v", l, err)
	}
	_, fds, err := b.Get(ctx, "kept", kept.Token)
	if err != nil {
		t.Errorf("the token of before the restart: %v", err)
	}
	closeAll(fds)
	raw, err := os.ReadFile(dir + "/network.db")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), kept.Token) {
		t.Error("the token is in the database")
	}
}

// TestFailures: an Add that fails leaves nothing; a removal that fails is kept, and done when it can be.
func TestFailures(t *testing.T) {
	t.Parallel()
	ctx, w := t.Context(), newFakeHost()
	b := begin(t, w, t.TempDir())
	defer b.end()
	before := w.left()
	w.addFails = vm.Errorf(vm.Unavailable, "no address left")
	_, err := b.Add(ctx, pod("p"))
	kind(t, err, vm.Unavailable)
	if !strings.Contains(err.Error(), "team-a/web-0") {
		t.Errorf("error %q does not name the pod", err)
	}
	w.addFails, w.noIPs = nil, true
	_, err = b.Add(ctx, pod("p"))
	kind(t, err, vm.Internal)
	w.noIPs = false
	if after := w.left(); after != before {
		t.Errorf("failed adds left %s, was %s", after, before)
	}
	if _, err := b.Add(ctx, pod("p")); err != nil {
		t.Fatal(err)
	}
	w.delFails = errors.New("the plugin's agent restarts")
	kind(t, b.Release(ctx, "p"), vm.Unavailable)
	_, err = b.Recover(ctx, "p")
	kind(t, err, vm.Conflict)
	if err := b.tidy(ctx); err == nil {
		t.Error("what cannot be removed was removed")
	}
	w.delFails = nil
	if err := b.tidy(ctx); err != nil {
		t.Fatal(err)
	}
	if after := w.left(); after != before {
		t.Errorf("left %s, was %s", after, before)
	}
	// A defect in Add leaves its record; the pod goes with the next round.
	must(t, b.take())
	must(t, b.records.put(record{Phase: phaseAdding, Pod: pod("d"), Netns: "/netns/d"}))
	must(t, b.tidy(ctx))
	if l, err := b.List(); err != nil || len(l) != 0 {
		t.Errorf("after a defect there is %+v, %v", l, err)
	}
	for i := range 4 {
		if _, err := b.Add(ctx, pod(fmt.Sprint("n", i))); err != nil {
			t.Fatal(err)
		}
	}
	_, err = b.Add(ctx, pod("n4"))
	kind(t, err, vm.Exhausted)
	if err := b.Release(ctx, "n0"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Add(ctx, pod("n4")); err != nil {
		t.Errorf("a pod that has room: %v", err)
	}
}

// TestKills ends the process before and after every single change of a pod's life, and starts it again each time: what is there then is
// whole, and once it is released nothing is left. The changes are the database's writes as well as the machine's.
func TestKills(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	life := func(b *bench) {
		a, err := b.Add(ctx, pod("p"))
		if err != nil {
			return
		}
		_, fds, err := b.Get(ctx, "p", a.Token)
		closeAll(fds)
		if err != nil {
			return
		}
		if _, err := b.Recover(ctx, "p"); err != nil {
			return
		}
		_ = b.Release(ctx, "p")
	}
	w := newFakeHost()
	b := begin(t, w, t.TempDir())
	life(b)
	b.end()
	changes := w.steps
	if changes < 12 {
		t.Fatalf("a life has %d changes; the test counts too few", changes)
	}
	whole, gone := 0, 0
	for n := 1; n <= changes; n++ {
		for _, after := range []bool{false, true} {
			name := fmt.Sprintf("change %d of %d, after it: %v", n, changes, after)
			w, dir := newFakeHost(), t.TempDir()
			b := begin(t, w, dir)
			w.killAt, w.after = n, after
			life(b)
			if !w.dead {
				t.Fatalf("%s: it lives", name)
			}
			b.end()
			w.revive()
			b = begin(t, w, dir)
			if err := b.reconcile(ctx); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			l, err := b.List()
			if err != nil {
				t.Fatal(err)
			}
			switch left := w.left(); {
			case len(l) == 0 && left == "[] [] 0":
				gone++
			case len(l) == 1 && l[0].State == phaseReady && left == "[/netns/p] [p] 1" && w.netns["/netns/p"].joined == 1:
				whole++
				a, err := b.Recover(ctx, "p")
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				_, fds, err := b.Get(ctx, "p", a.Token)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				closeAll(fds)
				if err := b.Release(ctx, "p"); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			default:
				t.Errorf("%s: listed %+v, left %s", name, l, left)
			}
			if left := w.left(); left != "[] [] 0" {
				t.Errorf("%s: left %s in the end", name, left)
			}
			b.end()
		}
	}
	if whole == 0 || gone == 0 {
		t.Errorf("%d kills left the pod whole, %d left nothing: both have to happen", whole, gone)
	}
}

// TestSideBySide: many callers at once, for the same pods; each pod is whole or gone, and nothing is left.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	ctx, w := context.WithoutCancel(t.Context()), newFakeHost()
	b := begin(t, w, t.TempDir())
	defer b.end()
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			id := fmt.Sprint("p", i%3)
			switch a, err := b.Add(ctx, pod(id)); {
			case err == nil:
				_, fds, _ := b.Get(ctx, id, a.Token)
				closeAll(fds)
				_ = b.Release(ctx, id)
			case vm.KindOf(err) != vm.Conflict:
				t.Errorf("%s: %v", id, err)
			default:
				if _, err := b.Recover(ctx, id); err != nil && vm.KindOf(err) != vm.NotFound && vm.KindOf(err) != vm.Conflict {
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	all.Wait()
	if left := w.left(); left != "[] [] 0" {
		t.Errorf("left %s", left)
	}
	if len(b.locks) != 0 || b.count != 0 {
		t.Errorf("%d locks and a count of %d are left", len(b.locks), b.count)
	}
}

// TestCheckPod: each rule, with the field in the error.
func TestCheckPod(t *testing.T) {
	t.Parallel()
	good := pod("p1")
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		field  string
		change func(*Pod)
	}{
		{"id", func(p *Pod) { p.ID = "../etc" }},
		{"id", func(p *Pod) { p.ID = ".." }},
		{"id", func(p *Pod) { p.ID = "" }},
		{"id", func(p *Pod) { p.ID = "a/b" }},
		{"id", func(p *Pod) { p.ID = strings.Repeat("a", 129) }},
		{"namespace", func(p *Pod) { p.Namespace = "a;K8S_POD_NAME=x" }},
		{"name", func(p *Pod) { p.Name = "" }},
		{"uid", func(p *Pod) { p.UID = "x=y" }},
		{"hostname", func(p *Pod) { p.Hostname = "a b" }},
		{"portMappings[0].protocol", func(p *Pod) { p.PortMappings = []PortMapping{{Protocol: "TCP", ContainerPort: 1, HostPort: 1}} }},
		{"portMappings[0].hostPort", func(p *Pod) { p.PortMappings = []PortMapping{{Protocol: "tcp", ContainerPort: 1}} }},
		{"portMappings[0].containerPort", func(p *Pod) { p.PortMappings = []PortMapping{{Protocol: "tcp", ContainerPort: 65536, HostPort: 1}} }},
		{"portMappings", func(p *Pod) { p.PortMappings = make([]PortMapping, 257) }},
		{"annotations", func(p *Pod) { p.Annotations = map[string]string{"a": strings.Repeat("b", 1<<18)} }},
		{"mtu", func(p *Pod) { p.MTU = 100 }},
		{"mac", func(p *Pod) { p.MAC = "01:00:00:00:00:01" }},
		{"mac", func(p *Pod) { p.MAC = "x" }},
		{"dns.search[0]", func(p *Pod) { p.DNS.Search = []string{"a b"} }},
		{"dns.search", func(p *Pod) { p.DNS.Search = make([]string, 33) }},
		{"dns.options[0]", func(p *Pod) { p.DNS.Options = []string{"ndots:5\nnameserver 1.2.3.4"} }},
	} {
		p := pod("p1")
		test.change(&p)
		err := p.check()
		if err == nil || vm.KindOf(err) != vm.Invalid || !strings.Contains(err.Error(), " "+test.field+": ") {
			t.Errorf("%s: error %v", test.field, err)
		}
	}
	p := pod("p1")
	p.Name = strings.Repeat("x", 1<<20)
	if err := p.check(); err == nil || len(err.Error()) > 500 {
		t.Error("an error quotes at length")
	}
}
