package node

import (
	"context"

	"github.com/muster-scheduler/muster/internal/vm/metrics"
	"github.com/muster-scheduler/muster/internal/vm/runtime"
)

// counted is what a runtime process shows of itself besides its calls: a runtime.Server.
type counted interface {
	Recorded() ([]*runtime.Sandbox, []*runtime.Container)
	HypervisorAway() bool
}

// discarded counts what nobody had any more.
func discarded(to *metrics.Set) func(runtime.Verb) {
	verbs := []string{string(runtime.Kill), string(runtime.Release), string(runtime.Teardown), string(runtime.Clear)}
	count := to.Counter("muster_vm_garbage_collected_total", "What no pod had any more and was taken away, by what was done.", "verb", verbs...)
	return func(v runtime.Verb) { count(string(v)) }
}

// show has a process's pods, machines, images and volumes among its metrics, as they are when they are asked for.
func show(to *metrics.Set, server counted, images runtime.Images, volumes Volumes) {
	to.Gauge("muster_vm_hypervisor_up", "Whether libvirt answers.", "", func() map[string]float64 {
		up := 1.0
		if server.HypervisorAway() {
			up = 0
		}
		return map[string]float64{"": up}
	})
	to.Gauge("muster_vm_sandboxes", "Pods that are not removed, by CRI's state.", "state", func() map[string]float64 {
		out := map[string]float64{"ready": 0, "notready": 0}
		boxes, _ := server.Recorded()
		for _, b := range boxes {
			if b.Phase == runtime.Ready {
				out["ready"]++
			} else {
				out["notready"]++
			}
		}
		return out
	})
	to.Gauge("muster_vm_containers", "Machines that are not removed, by phase.", "phase", func() map[string]float64 {
		out := map[string]float64{}
		for _, p := range []runtime.Phase{runtime.Creating, runtime.Created, runtime.Starting, runtime.Running, runtime.Stopping, runtime.Exited, runtime.Removing} {
			out[string(p)] = 0
		}
		_, containers := server.Recorded()
		for _, c := range containers {
			out[string(c.Phase)]++
		}
		return out
	})
	to.Gauge("muster_vm_images", "Images in the store.", "", func() map[string]float64 {
		return map[string]float64{"": float64(len(images.List("")))}
	})
	to.Gauge("muster_vm_image_bytes", "What images take on the disk.", "", func() map[string]float64 {
		u, err := images.Usage()
		if err != nil {
			return nil
		}
		return map[string]float64{"": float64(u.Bytes)}
	})
	to.Gauge("muster_vm_volumes", "Volumes of machines that are not removed, by kind.", "kind", func() map[string]float64 {
		counts, err := volumes.Manager.Counts()
		if err != nil {
			return nil
		}
		out := map[string]float64{}
		for kind, n := range counts { // order: a map's
			out[kind] = float64(n)
		}
		return out
	})
	to.Gauge("muster_vm_volume_bytes", "What the files of machines' disks take on the node's disk.", "", func() map[string]float64 {
		ids, err := volumes.List(context.Background())
		if err != nil {
			return nil
		}
		var sum uint64
		for _, bytes := range volumes.Usage(context.Background(), ids) {
			sum += bytes
		}
		return map[string]float64{"": float64(sum)}
	})
}
