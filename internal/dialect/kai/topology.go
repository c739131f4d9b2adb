package kai

import (
	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// Topology returns the event that makes the model know t as it is.
func Topology(t *v1alpha1.Topology) cluster.TopologyState {
	st := cluster.TopologyState{Name: t.Name, UID: string(t.UID), Levels: make([]cluster.Level, len(t.Spec.Levels))}
	for i, l := range t.Spec.Levels {
		st.Levels[i] = cluster.Level{Label: l.NodeLabel, Alias: l.Alias}
	}
	return st
}
