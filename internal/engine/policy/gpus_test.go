package policy

import (
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestUnusable checks the measure on nodes that can be counted by hand. Devices have 100 units.
func TestUnusable(t *testing.T) {
	t.Parallel()
	whole := func(n, cpu int64) cluster.Demand {
		return cluster.Demand{Requests: cluster.Resources{cpu, 0, n * 1000, 1}}
	}
	part := func(thousandths cluster.Portion, devices int32) cluster.Demand {
		return cluster.Demand{Requests: cluster.Resources{0, 0, 0, 1}, Share: cluster.Share{Devices: devices, Portion: thousandths * 1000}}
	}
	free := func(gpus, cpu int64, parts ...cluster.DeviceUnits) FreeGPUs {
		return FreeGPUs{Room: cluster.Resources{cpu, 0, gpus * 1000, 10}, Parts: parts, Units: 100}
	}
	for _, c := range []struct {
		name string
		free FreeGPUs
		kind cluster.Demand
		want int64
	}{
		{"all of use", free(4, 8), whole(1, 1), 0},
		{"parts are of no use to whom wants whole ones", free(4, 8, 50, 30), whole(1, 1), 800},
		{"too few at once", free(3, 8, 50), whole(4, 1), 3500},
		{"no CPU left beside them", free(4, 8), whole(1, 16), 4000},
		{"what is smaller than the part", free(1, 8, 50, 30, 20), part(300, 1), 200},
		{"no device with so much left", free(0, 8, 50, 30), part(600, 1), 800},
		{"not on so many devices", free(0, 8, 50, 30), part(300, 3), 800},
		{"on as many", free(1, 8, 50, 30, 10), part(300, 3), 100},
		{"nothing there", free(0, 8), whole(1, 1), 0},
	} {
		if got := c.free.Unusable(&c.kind); got != c.want {
			t.Errorf("%s: %d of %d milli-GPU, want %d", c.name, got, c.free.Total(), c.want)
		}
	}
	m := Mix{Kinds: []cluster.Demand{whole(1, 1), part(300, 1)}, Pods: 4}
	m.Kinds[0].Pods, m.Kinds[1].Pods = 3, 1
	f := free(1, 8, 50, 20)
	if got, want := m.Expected(&f), int64((3*700_000+200_000)/4); got != want {
		t.Errorf("expected fragmentation: %d, want %d millionths", got, want)
	}
}
