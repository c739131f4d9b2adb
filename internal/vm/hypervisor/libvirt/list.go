package libvirt

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/muster-scheduler/muster/internal/vm/hypervisor"
)

func uuidOf(d golibvirt.Domain) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", d.UUID[:4], d.UUID[4:6], d.UUID[6:8], d.UUID[8:10], d.UUID[10:])
}

// stateOf puts libvirt's states into our words.
func stateOf(s golibvirt.DomainState, reason int32) (hypervisor.State, hypervisor.Reason) {
	switch s {
	case golibvirt.DomainRunning, golibvirt.DomainBlocked, golibvirt.DomainShutdown:
		return hypervisor.Running, hypervisor.Unknown
	case golibvirt.DomainShutoff:
		switch golibvirt.DomainShutoffReason(reason) {
		case golibvirt.DomainShutoffShutdown:
			return hypervisor.Off, hypervisor.ShutDown
		case golibvirt.DomainShutoffDestroyed:
			return hypervisor.Off, hypervisor.Destroyed
		case golibvirt.DomainShutoffCrashed:
			return hypervisor.Off, hypervisor.Crashed
		case golibvirt.DomainShutoffSaved:
			return hypervisor.Off, hypervisor.Saved
		case golibvirt.DomainShutoffFailed:
			return hypervisor.Off, hypervisor.Failed
		}
		return hypervisor.Off, hypervisor.Unknown
	case golibvirt.DomainCrashed:
		return hypervisor.Paused, hypervisor.Crashed
	case golibvirt.DomainPmsuspended:
		return hypervisor.Paused, hypervisor.Asleep
	case golibvirt.DomainPaused:
		switch golibvirt.DomainPausedReason(reason) {
		case golibvirt.DomainPausedUser, golibvirt.DomainPausedStartingUp,
			golibvirt.DomainPausedMigration, golibvirt.DomainPausedFromSnapshot: // so libvirt calls one that was restored and not let go
			return hypervisor.Paused, hypervisor.Held
		case golibvirt.DomainPausedIoerror:
			return hypervisor.Paused, hypervisor.IOError
		case golibvirt.DomainPausedCrashed:
			return hypervisor.Paused, hypervisor.Crashed
		case golibvirt.DomainPausedSave, golibvirt.DomainPausedDump, golibvirt.DomainPausedSnapshot, golibvirt.DomainPausedShuttingDown:
			return hypervisor.Paused, hypervisor.Busy
		}
	}
	return hypervisor.Paused, hypervisor.Unknown
}

// ours lists the domains that are ours.
func (h *Hypervisor) ours(l *link) ([]golibvirt.Domain, map[golibvirt.UUID]hypervisor.Owner, error) {
	all, _, err := l.ConnectListAllDomains(1, 0)
	if err != nil {
		return nil, nil, err
	}
	owners, out := map[golibvirt.UUID]hypervisor.Owner{}, []golibvirt.Domain{}
	for _, d := range all {
		h.mu.Lock()
		o, ok := h.owners[d.UUID]
		h.mu.Unlock()
		if !ok {
			if o, err = h.owner(l, d); err != nil {
				return nil, nil, err
			}
		}
		if owners[d.UUID] = o; o.Container != "" {
			out = append(out, d)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.owners { // order: each is looked at alone
		if _, ok := owners[id]; !ok {
			delete(h.owners, id)
		}
	}
	return out, owners, nil
}

func (h *Hypervisor) list(l *link) ([]hypervisor.Machine, error) {
	domains, owners, err := h.ours(l)
	if err != nil || len(domains) == 0 {
		return nil, err
	}
	records, err := l.ConnectGetAllDomainStats(domains, uint32(golibvirt.DomainStatsState), uint32(golibvirt.ConnectGetAllDomainsStatsNowait))
	if err != nil {
		return nil, err
	}
	var out []hypervisor.Machine
	for _, r := range records {
		o := owners[r.Dom.UUID]
		if o.Container == "" {
			continue
		}
		p := parameters(r.Params)
		m := hypervisor.Machine{UUID: uuidOf(r.Dom), Name: r.Dom.Name, Owner: o}
		m.State, m.Reason = stateOf(golibvirt.DomainState(p.number("state.state")), int32(p.number("state.reason")))
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b hypervisor.Machine) int { return cmp.Compare(a.UUID, b.UUID) })
	return out, nil
}

// List is hypervisor.Hypervisor's.
func (h *Hypervisor) List(ctx context.Context) (out []hypervisor.Machine, err error) {
	err = h.quick(ctx, "list machines", func(l *link) (err error) {
		out, err = h.list(l)
		return err
	})
	return out, err
}

// Stats is hypervisor.Hypervisor's.
func (h *Hypervisor) Stats(ctx context.Context) ([]hypervisor.Stats, error) {
	var out []hypervisor.Stats
	err := h.quick(ctx, "stats of machines", func(l *link) error {
		domains, owners, err := h.ours(l)
		if err != nil || len(domains) == 0 {
			return err
		}
		const what = golibvirt.DomainStatsState | golibvirt.DomainStatsCPUTotal | golibvirt.DomainStatsBalloon
		records, err := l.ConnectGetAllDomainStats(domains, uint32(what), uint32(golibvirt.ConnectGetAllDomainsStatsNowait))
		if err != nil {
			return err
		}
		for _, r := range records {
			p := parameters(r.Params)
			if state, _ := stateOf(golibvirt.DomainState(p.number("state.state")), 0); owners[r.Dom.UUID].Container == "" || state == hypervisor.Off {
				continue
			}
			out = append(out, p.stats(uuidOf(r.Dom)))
		}
		slices.SortFunc(out, func(a, b hypervisor.Stats) int { return cmp.Compare(a.UUID, b.UUID) })
		return nil
	})
	return out, err
}

// values are a record's parameters by name.
type values map[string]any

func parameters(params []golibvirt.TypedParam) values {
	v := make(values, len(params))
	for _, p := range params {
		v[p.Field] = p.Value.I
	}
	return v
}

// number is a parameter's value; 0 where there is none, or it is negative.
func (v values) number(name string) uint64 {
	switch n := v[name].(type) {
	case int32:
		return uint64(max(n, 0))
	case uint32:
		return uint64(n)
	case int64:
		return uint64(max(n, 0))
	case uint64:
		return n
	}
	return 0
}

func (v values) stats(uuid string) hypervisor.Stats {
	return hypervisor.Stats{UUID: uuid, CPUTime: v.number("cpu.time"), Resident: v.number("balloon.rss") << 10}
}
