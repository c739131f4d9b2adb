package network

import (
	"context"
	"fmt"
	"path/filepath"
)

// Garbage is something of the network that no pod has.
type Garbage struct {
	// What it is: "network namespace" or "network". ID is its path, or the pod's.
	What string `json:"what"`
	ID   string `json:"id"`
	Why  string `json:"why"`
	// Error is why it is still there.
	Error string `json:"error,omitempty"`
}

// Collect finds namespaces that no record owns, with the links, taps and servers in them, and networks whose removal has failed; unless dry, it takes
// them away. What a call is at work on is none. What CNI's plugins and cache keep for pods that are gone is put in order at the start of the process alone:
// while pods come, the list of those that there are is never whole.
func (m *Manager) Collect(ctx context.Context, dry bool) ([]Garbage, error) {
	there, err := m.machine.listNetns() // before the records: a record is there before its namespace
	if err != nil {
		return nil, fmt.Errorf("network namespaces: %w", err)
	}
	all, err := m.records.all()
	if err != nil {
		return nil, err
	}
	owned := map[string]bool{}
	var out []Garbage
	for _, r := range all {
		owned[r.Netns] = true
		if r.Phase != phaseRemoving || m.busy(r.Pod.ID) {
			continue
		}
		g := Garbage{What: "network", ID: r.Pod.ID, Why: "its removal has failed; it is tried again every minute"}
		if !dry {
			g.Error = said(m.again(ctx, r.Pod.ID))
		}
		out = append(out, g)
	}
	for _, path := range there {
		if owned[path] {
			continue
		}
		g := Garbage{What: "network namespace", ID: path, Why: "no pod has it"}
		if !dry {
			mine, err := m.orphan(ctx, path)
			if !mine && err == nil {
				continue
			}
			g.Error = said(err)
		}
		out = append(out, g)
	}
	return out, nil
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// busy says that a call is at work on a pod.
func (m *Manager) busy(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locks[id] != nil
}

// orphan removes a namespace, if it is still nobody's when it is its pod's turn.
func (m *Manager) orphan(ctx context.Context, path string) (was bool, err error) {
	id := filepath.Base(path)
	unlock, err := m.lock(ctx, id)
	if err != nil {
		return false, err
	}
	defer unlock()
	if _, there, err := m.records.get(id); err != nil || there {
		return false, err
	}
	return true, m.machine.removeNetns(path)
}
