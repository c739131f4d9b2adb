package nodezones

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/kube/aside"
)

// zonePrefix and a zone's number are the zone's name, here and in NodeResourceTopologies.
const zonePrefix = "node-"

// placements returns what each pod was given, as the text of its annotation. A pod that was given nothing of a zone of
// its own (shared CPUs only, devices that belong to no zone or to several) is left out. Memory that was taken from several
// zones together counts for each of them in equal parts.
func placements(guard *aside.Guard, r *podresources.ListPodResourcesResponse, zoneOf map[int64]int64) (map[types.NamespacedName]string, error) {
	out := map[types.NamespacedName]string{}
	for _, p := range r.GetPodResources() {
		name := types.NamespacedName{Namespace: p.GetNamespace(), Name: p.GetName()}
		var text string
		err := guard.Catch("a placement", name, func() (err error) {
			text, err = placement(p, zoneOf)
			return err
		})
		switch {
		case errors.Is(err, aside.ErrDefect): // of this pod; the others' are written
		case err != nil:
			return nil, fmt.Errorf("placement of pod %s: %w", name, err)
		case text != "":
			out[name] = text
		}
	}
	return out, nil
}

// placement is the text of one pod's annotation; "" for none.
func placement(p *podresources.PodResources, zoneOf map[int64]int64) (string, error) {
	sums := map[int64]map[corev1.ResourceName]int64{}
	add := func(zone int64, name string, x int64) {
		if x <= 0 || name == "" {
			return
		}
		if sums[zone] == nil {
			sums[zone] = map[corev1.ResourceName]int64{}
		}
		sums[zone][corev1.ResourceName(name)] += x
	}
	for _, c := range p.GetContainers() {
		for _, cpu := range c.GetCpuIds() {
			if zone, ok := zoneOf[cpu]; ok {
				add(zone, string(corev1.ResourceCPU), 1)
			}
		}
		for _, d := range c.GetDevices() {
			if zones := d.GetTopology().GetNodes(); len(zones) == 1 {
				add(zones[0].GetID(), d.GetResourceName(), int64(len(d.GetDeviceIds())))
			}
		}
		for _, m := range c.GetMemory() {
			kind := m.GetMemoryType()
			if kind == "" {
				kind = string(corev1.ResourceMemory)
			}
			zones := m.GetTopology().GetNodes()
			for _, z := range zones {
				add(z.GetID(), kind, int64(m.GetSize()/uint64(len(zones))))
			}
		}
	}
	if len(sums) == 0 {
		return "", nil
	}
	list := make([]v1alpha2.NUMAZonePlacement, 0, len(sums))
	for _, zone := range slices.Sorted(maps.Keys(sums)) {
		z := v1alpha2.NUMAZonePlacement{Zone: zonePrefix + strconv.FormatInt(zone, 10), Amount: corev1.ResourceList{}}
		for name, x := range sums[zone] {
			format := resource.DecimalSI
			if name == corev1.ResourceMemory {
				format = resource.BinarySI
			}
			z.Amount[name] = *resource.NewQuantity(x, format)
		}
		list = append(list, z)
	}
	text, err := json.Marshal(list)
	return string(text), err
}
