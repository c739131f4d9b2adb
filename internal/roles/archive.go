package roles

import (
	"bytes"
	"net/http"

	"github.com/muster-scheduler/muster/internal/engine/plugins/numa"
	"github.com/muster-scheduler/muster/internal/replay/kaizip"
)

// archive answers KAI's /get-snapshot: the cluster as the process's cache has it, in KAI's archive.
func (p *process) archive(w http.ResponseWriter, req *http.Request) {
	snap, prof := p.recorder.Latest(), p.recorder.Profile()
	if snap == nil {
		http.Error(w, "there has been no cycle yet", http.StatusServiceUnavailable)
		return
	}
	p.packing.Lock() // one at a time: an archive of a large cluster takes much memory
	defer p.packing.Unlock()
	s := &kaizip.Source{Reader: p.cache, Profile: prof, Params: p.params(), Now: snap.Now.Time()}
	if !p.CSIStorage {
		s.Without = append(s.Without, "CSIStorageCapacity") // asking would start a watch
	}
	if !prof.Uses(numa.Name) {
		s.Without = append(s.Without, "NodeResourceTopology")
	}
	var b bytes.Buffer
	if err := kaizip.Write(req.Context(), &b, s); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/zip")
	w.Header().Set("Content-Disposition", `attachment; filename="snapshot.zip"`)
	_, _ = w.Write(b.Bytes()) // the reader has gone
}

// params are the scheduler's flags as KAI's archives tell them.
func (s *Settings) params() kaizip.Params {
	p := kaizip.DefaultParams()
	p.SchedulerName, p.RestrictSchedulingNodes = s.SchedulerNames[0], s.RestrictNodes
	p.PartitionParams = kaizip.Partition{NodePoolLabelKey: s.NodePoolKey, NodePoolLabelValue: s.Partition}
	p.MaxNumberConsolidationPreemptees, p.AllowConsolidatingReclaim = s.MaxMoved, s.MovedAreFree
	p.ScheduleCSIStorage, p.FullHierarchyFairness, p.QueueLabelKey = s.CSIStorage, s.FullHierarchy, s.QueueLabel
	p.GlobalDefaultStalenessGracePeriod, p.SchedulePeriod, p.StuckInReleasingThreshold = s.StaleGrace, s.Period, s.StuckAfter
	p.DetailedFitErrors, p.UpdatePodEvictionCondition = s.DetailedReasons, s.MarkEvictions
	return p
}
