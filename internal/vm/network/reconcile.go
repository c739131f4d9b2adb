package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// How many pods are looked at side by side at the start.
const atOnce = 8

// reconcile makes records and machine agree, at the start, before the first call: what was half made or half removed goes, what no record
// owns goes, and DHCP goes on for what lives. What fails is logged and tried again later: one pod's trouble keeps no other waiting. An
// error means that nothing can be known.
func (m *Manager) reconcile(ctx context.Context) error {
	all, err := m.records.all()
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.count = len(all)
	m.mu.Unlock()
	owned, paths := map[string]bool{}, map[string]bool{}
	for _, r := range all {
		owned[r.Pod.ID], paths[r.Netns] = true, true
	}
	var working sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for _, r := range all {
		room <- struct{}{}
		working.Add(1)
		go func() {
			defer working.Done()
			defer func() { <-room }()
			if err := m.settle(ctx, r); err != nil {
				m.log.Error(err, "A pod's network could not be put in order; it is tried again when it is recovered or released", "pod", r.Pod.ID)
			}
		}()
	}
	working.Wait()
	there, err := m.machine.listNetns()
	if err != nil {
		return fmt.Errorf("network namespaces: %w", err)
	}
	for _, path := range there {
		if paths[path] {
			continue
		}
		m.log.Info("A network namespace that no pod owns is removed", "path", path)
		if err := m.machine.removeNetns(path); err != nil {
			m.log.Error(err, "A network namespace that no pod owns could not be removed", "path", path)
		}
	}
	if err := m.plugins.orphans(ctx, owned); err != nil {
		m.log.Error(err, "What CNI keeps for pods that are gone could not be removed whole")
	}
	return nil
}

// settle brings one record and the machine together.
func (m *Manager) settle(ctx context.Context, r record) error {
	unlock, err := m.lock(ctx, r.Pod.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if r.Phase != phaseReady || !m.machine.alive(r.Netns) {
		m.log.Info("A pod's network that is not whole is removed", "pod", r.Pod.ID, "phase", r.Phase)
		return m.remove(ctx, r)
	}
	return m.join(r)
}

// tidy tries again, once, to remove the pods whose removal failed, or whose Add ended in a defect.
func (m *Manager) tidy(ctx context.Context) error {
	all, err := m.records.all()
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range all {
		if r.Phase == phaseReady || ctx.Err() != nil {
			continue
		}
		errs = append(errs, m.again(ctx, r.Pod.ID))
	}
	return errors.Join(errs...)
}

func (m *Manager) again(ctx context.Context, id string) error {
	unlock, err := m.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	r, there, err := m.records.get(id)
	if err != nil || !there || r.Phase == phaseReady {
		return err
	}
	return m.remove(ctx, r)
}

// janitor is tidy, every so often, until the first context ends; what it does then may go on until the second does.
func (m *Manager) janitor(until, ops context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-until.Done():
			return
		case <-tick.C:
			if err := m.tidy(ops); err != nil {
				m.log.Error(err, "Pods could not be removed yet")
			}
		}
	}
}

// silence ends all DHCP servers. Links, taps and addresses stay.
func (m *Manager) silence() {
	m.mu.Lock()
	ids := slices.Collect(maps.Keys(m.dhcp))
	m.mu.Unlock()
	for _, id := range ids {
		m.quiet(id)
	}
}

func hardware(mac string) net.HardwareAddr {
	a, err := net.ParseMAC(mac)
	if err != nil {
		return make(net.HardwareAddr, 6)
	}
	return a
}

func hardware6(b [6]byte) string { return net.HardwareAddr(b[:]).String() }
