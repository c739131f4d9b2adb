package enginetest

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// tenants says which claim has which device: as the API server says, and by decisions on their way. Promises do not count:
// what is promised is still somebody's.
type tenants map[string]string

// tenantsOf reads who has what in a snapshot.
func tenantsOf(snap *cluster.Snapshot) tenants {
	t := tenants{}
	for key, o := range snap.Objects(cluster.ResourceClaims) { // order: each claim on its own
		if c, ok := o.(*resourcev1.ResourceClaim); ok && c.Status.Allocation != nil {
			_ = t.take(key, c.Status.Allocation)
		}
	}
	snap.EachPod(func(p *cluster.Pod) {
		for i := range p.Allocations {
			if a := &p.Allocations[i]; p.Phase.Holds() {
				_ = t.take(claimKey(p, a), a.Allocation)
			}
		}
	})
	return t
}

// claimKey names the claim that an allocation is for: the object of that name of the pod's, or the one to be made for it.
func claimKey(p *cluster.Pod, a *cluster.ClaimAllocation) string {
	for i := range p.DeviceClaims {
		if p.DeviceClaims[i].Name == a.Name && p.DeviceClaims[i].Object != "" {
			return p.DeviceClaims[i].Object
		}
	}
	return "pod/" + p.UID
}

// take gives a claim its devices, or says which of them is another's. Shares of a device are told apart by their IDs, and
// devices under admin access are nobody's.
func (t tenants) take(claim string, a *resourcev1.AllocationResult) error {
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		if r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		device := r.Driver + "/" + r.Pool + "/" + r.Device
		if r.ShareID != nil {
			device += "/" + string(*r.ShareID)
		}
		if other, ok := t[device]; ok && other != claim {
			return fmt.Errorf("device %s is given to claim %s, and claim %s has it", device, claim, other)
		}
		t[device] = claim
	}
	return nil
}

// claims checks what a bind gives the pod's claims: nobody else's devices, and some to every claim that has none.
func (a *auditor) claims(p *cluster.Pod, in *engine.Intent) error {
	given := map[string]bool{}
	for i := range in.Claims {
		key := claimKey(p, &in.Claims[i])
		given[key] = true
		if err := a.tenants.take(key, in.Claims[i].Allocation); err != nil {
			return err
		}
	}
	for k := range p.Class.Devices {
		if p.Class.Devices[k].Extended {
			continue // where a device plugin has it, there is no claim
		}
		key := p.DeviceClaims[k].Object
		c, _ := a.snap.Object(cluster.ResourceClaims, key).(*resourcev1.ResourceClaim)
		if !given[key] && (c == nil || c.Status.Allocation == nil) {
			return fmt.Errorf("claim %s gets no devices", key)
		}
	}
	return nil
}
