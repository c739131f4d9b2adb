package store

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sandboxes gives the sandboxes that pass a filter, in order of id; nil lets all pass. An id in it may be the beginning of one; an id that is of
// none, or of several, passes nothing. Labels have to be there with exactly these values.
func (s *Store) Sandboxes(filter *runtimeapi.PodSandboxFilter) []Sandbox {
	all := s.read().sandboxes
	id, ok := wanted(KindSandbox, all, filter.GetId())
	if !ok {
		return nil
	}
	return sorted(all, Sandbox.clone, func(r Sandbox) bool {
		return (id == "" || r.ID == id) &&
			(filter.GetState() == nil || filter.GetState().GetState() == r.State.CRI()) &&
			labelled(r.Labels, filter.GetLabelSelector())
	})
}

// Containers gives the containers that pass a filter, as Sandboxes does. Both of the filter's ids may be beginnings.
func (s *Store) Containers(filter *runtimeapi.ContainerFilter) []Container {
	now := s.read()
	id, ok := wanted(KindContainer, now.containers, filter.GetId())
	sandbox, there := wanted(KindSandbox, now.sandboxes, filter.GetPodSandboxId())
	if !ok || !there {
		return nil
	}
	return sorted(now.containers, Container.clone, func(r Container) bool {
		return (id == "" || r.ID == id) && (sandbox == "" || r.SandboxID == sandbox) &&
			(filter.GetState() == nil || filter.GetState().GetState() == r.State.CRI()) &&
			labelled(r.Labels, filter.GetLabelSelector())
	})
}

func wanted[T any](kind Kind, all map[string]T, id string) (string, bool) {
	if id == "" {
		return "", true
	}
	id, err := resolve(kind, all, id)
	return id, err == nil
}

func labelled(labels, selector map[string]string) bool {
	for k, want := range selector { // order: all have to be there
		if got, ok := labels[k]; !ok || got != want {
			return false
		}
	}
	return true
}
