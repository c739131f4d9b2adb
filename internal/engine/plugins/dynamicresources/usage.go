package dynamicresources

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
)

// usage is what of the devices is taken, as the allocator wants to be told. Every allocation that was added can be
// removed, in any order; one that is added twice has to be removed twice.
type usage struct {
	state  structured.AllocatedState
	whole  map[structured.DeviceID]int
	shares map[structured.SharedDeviceID]int
	pools  map[poolKey]int // how much is taken of each, in all
	shared map[poolKey]int // of that, shares of devices
}

func newUsage() *usage {
	return &usage{
		state: structured.AllocatedState{
			AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity: structured.NewConsumedCapacityCollection(),
		},
		whole: map[structured.DeviceID]int{}, shares: map[structured.SharedDeviceID]int{}, pools: map[poolKey]int{}, shared: map[poolKey]int{},
	}
}

// move adds (by 1) or removes (by -1) what an allocation takes. Devices under admin access are not taken.
func (u *usage) move(a *resourceapi.AllocationResult, by int) {
	if a == nil {
		return
	}
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		if r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		u.pools[poolKey{r.Driver, r.Pool}] += by
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.ShareID == nil {
			if u.whole[id] += by; u.whole[id] == 0 {
				delete(u.whole, id)
				u.state.AllocatedDevices.Delete(id)
			} else {
				u.state.AllocatedDevices.Insert(id)
			}
			continue
		}
		u.shared[poolKey{r.Driver, r.Pool}] += by
		share := structured.MakeSharedDeviceID(id, r.ShareID)
		if u.shares[share] += by; u.shares[share] == 0 {
			delete(u.shares, share)
			u.state.AllocatedSharedDeviceIDs.Delete(share)
		} else {
			u.state.AllocatedSharedDeviceIDs.Insert(share)
		}
		consumed := structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity)
		if by > 0 {
			u.state.AggregatedCapacity.Insert(consumed)
		} else {
			u.state.AggregatedCapacity.Remove(consumed)
		}
	}
}

// free says whether nothing of what an allocation takes is taken. Shares of a device are: their capacity was counted when
// they were given, and stays theirs.
func (u *usage) free(a *resourceapi.AllocationResult) bool {
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		if r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		if u.state.AllocatedDevices.Has(structured.MakeDeviceID(r.Driver, r.Pool, r.Device)) {
			return false
		}
	}
	return true
}
