package binder

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

// drawer keeps claims in memory, with versions. meddle, if set, is called before each write.
type drawer struct {
	claims   map[string]*resourcev1.ResourceClaim
	extended *corev1.PodExtendedResourceClaimStatus
	writes   int
	meddle   func(n int)
	refuse   error
}

func (d *drawer) deviceClaim(_ context.Context, name types.NamespacedName, _ bool) (*resourcev1.ResourceClaim, error) {
	return d.claims[name.Name], nil
}

func (d *drawer) writeClaim(_ context.Context, before, after *resourcev1.ResourceClaim) error {
	d.writes++
	if d.meddle != nil {
		d.meddle(d.writes)
	}
	if d.refuse != nil {
		return d.refuse
	}
	have := d.claims[before.Name]
	if have == nil || have.ResourceVersion != before.ResourceVersion {
		return errStale
	}
	d.put(after.DeepCopy())
	return nil
}

func (d *drawer) put(c *resourcev1.ResourceClaim) {
	v, _ := strconv.Atoi(c.ResourceVersion)
	c.ResourceVersion = strconv.Itoa(v + 1)
	d.claims[c.Name] = c
}

func (d *drawer) createClaim(_ context.Context, c *resourcev1.ResourceClaim) error {
	if d.claims[c.Name] == nil {
		d.put(c.DeepCopy())
	}
	return nil
}

func (d *drawer) deleteClaim(_ context.Context, c *resourcev1.ResourceClaim) error {
	delete(d.claims, c.Name)
	return nil
}

func (d *drawer) setExtended(_ context.Context, _ *corev1.Pod, s *corev1.PodExtendedResourceClaimStatus) error {
	d.extended = s
	return nil
}

func (d *drawer) node(_ context.Context, name string) (*corev1.Node, error) {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

func onNode(node, device string) *resourcev1.AllocationResult {
	return &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d", Pool: node, Device: device}}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}},
	}
}

// claimant returns a pod with a claim that it shares and one that was made for it, and the request that gives both devices.
func claimant(d *drawer) (*corev1.Pod, *schedulingv1alpha2.BindRequest) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p", UID: "u"}}
	shared, made := "shared", "p-made"
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: &shared}, {Name: "b", ResourceClaimTemplateName: new("t")}}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: &made}}
	d.claims = map[string]*resourcev1.ResourceClaim{}
	d.put(&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: shared}})
	d.put(&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: made, OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: "u", Controller: new(true)}}}})
	r := &schedulingv1alpha2.BindRequest{}
	r.Spec.SelectedNode = "n1"
	r.Spec.ResourceClaimAllocations = []schedulingv1alpha2.ResourceClaimAllocation{{Name: "a", Allocation: onNode("n1", "d0")}, {Name: "b", Allocation: onNode("n1", "d1")}}
	return pod, r
}

// holds says what the claims hold: device and users.
func (d *drawer) holds() map[string]string {
	out := map[string]string{}
	for name, c := range d.claims { // order: a set
		text := "nothing"
		if a := c.Status.Allocation; a != nil {
			text = a.Devices.Results[0].Pool + "/" + a.Devices.Results[0].Device
		}
		for _, u := range c.Status.ReservedFor {
			text += " " + string(u.UID)
		}
		out[name] = text
	}
	return out
}

func TestClaims(t *testing.T) {
	t.Parallel()
	ofGroup := []metav1.OwnerReference{{APIVersion: "scheduling.k8s.io/v1beta1", Kind: "PodGroup", Name: "group", UID: "g", Controller: new(true)}}
	ctx := context.Background()
	clock := func() time.Time { return time.Unix(1_700_000_000, 0) }

	t.Run("given, and taken back", func(t *testing.T) {
		t.Parallel()
		d := &drawer{}
		pod, r := claimant(d)
		p := claims{d, clock}
		for range 2 { // it may be asked again
			if ready, err := p.Prepare(ctx, r, pod); !ready || err != nil {
				t.Fatal(ready, err)
			}
		}
		if diff := cmp.Diff(map[string]string{"shared": "n1/d0 u", "p-made": "n1/d1 u"}, d.holds()); diff != "" {
			t.Error(diff)
		}
		if f := d.claims["shared"].Finalizers; len(f) != 1 || f[0] != resourcev1.Finalizer {
			t.Errorf("finalizers %v: nobody would take the devices back", f)
		}
		if err := p.Undo(ctx, r, pod); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"shared": "nothing", "p-made": "nothing"}, d.holds()); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("undo leaves what others use", func(t *testing.T) {
		t.Parallel()
		d := &drawer{}
		pod, r := claimant(d)
		p := claims{d, clock}
		if _, err := p.Prepare(ctx, r, pod); err != nil {
			t.Fatal(err)
		}
		c := d.claims["shared"].DeepCopy()
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "q", UID: "v"})
		d.put(c)
		if err := p.Undo(ctx, r, pod); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"shared": "n1/d0 v", "p-made": "nothing"}, d.holds()); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("a claim of the PodGroup", func(t *testing.T) {
		t.Parallel()
		d := &drawer{}
		pod, r := claimant(d)
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("group")}
		d.claims["p-made"].OwnerReferences = ofGroup
		p := claims{d, clock}
		if ready, err := p.Prepare(ctx, r, pod); !ready || err != nil {
			t.Fatal(ready, err)
		}
		other, r2 := pod.DeepCopy(), &schedulingv1alpha2.BindRequest{}
		other.Name, other.UID, r2.Spec.SelectedNode = "q", "v", "n1"
		if ready, err := p.Prepare(ctx, r2, other); !ready || err != nil {
			t.Fatal(ready, err)
		}
		if err := p.Undo(ctx, r, pod); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"shared": "n1/d0 v", "p-made": "n1/d1 v"}, d.holds()); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("others write, too", func(t *testing.T) {
		t.Parallel()
		d := &drawer{}
		pod, r := claimant(d)
		d.meddle = func(n int) {
			if n == 1 { // another pod of the claim is faster, with the devices of the same decision
				c := d.claims["shared"].DeepCopy()
				c.Status.Allocation = onNode("n1", "d0")
				c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "q", UID: "v"}}
				d.put(c)
			}
		}
		if ready, err := (claims{d, clock}).Prepare(ctx, r, pod); !ready || err != nil {
			t.Fatal(ready, err)
		}
		if diff := cmp.Diff(map[string]string{"shared": "n1/d0 v u", "p-made": "n1/d1 u"}, d.holds()); diff != "" {
			t.Error(diff)
		}
	})

	refused := []struct {
		name, want string
		edit       func(*drawer, *corev1.Pod, *schedulingv1alpha2.BindRequest)
	}{
		{"no devices", "the request chooses none", func(_ *drawer, _ *corev1.Pod, r *schedulingv1alpha2.BindRequest) {
			r.Spec.ResourceClaimAllocations = nil
		}},
		{"gone", "does not exist", func(d *drawer, _ *corev1.Pod, _ *schedulingv1alpha2.BindRequest) { delete(d.claims, "shared") }},
		{"not made", "has not been made", func(_ *drawer, p *corev1.Pod, _ *schedulingv1alpha2.BindRequest) {
			p.Status.ResourceClaimStatuses = nil
		}},
		{"another pod's", "was made neither for this pod nor for its PodGroup", func(d *drawer, _ *corev1.Pod, _ *schedulingv1alpha2.BindRequest) {
			d.claims["p-made"].OwnerReferences[0].UID = "w"
		}},
		{"another PodGroup's", "was made neither for this pod nor for its PodGroup", func(d *drawer, p *corev1.Pod, _ *schedulingv1alpha2.BindRequest) {
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("other")}
			d.claims["p-made"].OwnerReferences = ofGroup
		}},
		{"elsewhere", "cannot be reached from node n1", func(d *drawer, _ *corev1.Pod, _ *schedulingv1alpha2.BindRequest) {
			d.claims["shared"].Status.Allocation = onNode("n2", "d0")
		}},
		{"full", "is used by 256 pods", func(d *drawer, _ *corev1.Pod, _ *schedulingv1alpha2.BindRequest) {
			for i := range resourcev1.ResourceClaimReservedForMaxSize {
				d.claims["shared"].Status.ReservedFor = append(d.claims["shared"].Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{UID: types.UID(strconv.Itoa(i))})
			}
		}},
	}
	for _, row := range refused {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			d := &drawer{}
			pod, r := claimant(d)
			row.edit(d, pod, r)
			_, err := (claims{d, clock}).Prepare(ctx, r, pod)
			if err == nil || !strings.Contains(err.Error(), row.want) || saysNothing(err) {
				t.Errorf("got %v, want a verdict with %q", err, row.want)
			}
		})
	}

	t.Run("an update that fails is tried again", func(t *testing.T) {
		t.Parallel()
		d := &drawer{refuse: errors.New("connection refused")}
		pod, r := claimant(d)
		if _, err := (claims{d, clock}).Prepare(ctx, r, pod); err == nil || !saysNothing(err) {
			t.Errorf("got %v", err)
		}
	})

	t.Run("extended resources", func(t *testing.T) {
		t.Parallel()
		d := &drawer{claims: map[string]*resourcev1.ResourceClaim{}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p", UID: "u"}}
		r := &schedulingv1alpha2.BindRequest{}
		r.Spec.SelectedNode = "n1"
		mapping := []corev1.ContainerExtendedResourceRequest{{ContainerName: "main", ResourceName: "x/gpu", RequestName: "container-0-request-0"}}
		r.Spec.ExtendedResourceClaimAllocation = &schedulingv1alpha2.ExtendedResourceClaimAllocation{
			Allocation: onNode("n1", "d0"), DeviceRequests: []resourcev1.DeviceRequest{{Name: "container-0-request-0"}}, ContainerMappings: mapping,
		}
		p := claims{d, clock}
		for range 2 {
			if ready, err := p.Prepare(ctx, r, pod); !ready || err != nil {
				t.Fatal(ready, err)
			}
		}
		want := &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "p-extended-resources-u", RequestMappings: mapping}
		if diff := cmp.Diff(want, d.extended); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]string{"p-extended-resources-u": "n1/d0 u"}, d.holds()); diff != "" {
			t.Error(diff)
		}
		pod.Status.ExtendedResourceClaimStatus = d.extended
		if err := p.Undo(ctx, r, pod); err != nil || len(d.claims) != 0 || d.extended != nil {
			t.Errorf("left: %v %v, %v", d.holds(), d.extended, err)
		}
	})

	t.Run("devices that their driver makes ready", func(t *testing.T) {
		t.Parallel()
		d := &drawer{}
		pod, r := claimant(d)
		result := &r.Spec.ResourceClaimAllocations[0].Allocation.Devices.Results[0]
		result.BindingConditions, result.BindingFailureConditions = []string{"Ready"}, []string{"Broken"}
		p := claims{d, clock}
		if ready, err := p.Prepare(ctx, r, pod); ready || err != nil {
			t.Fatal("not waited for", ready, err)
		}
		if d.claims["shared"].Status.Allocation.AllocationTimestamp == nil {
			t.Error("no time of allocation")
		}
		report := func(kind string) {
			c := d.claims["shared"].DeepCopy()
			c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "d", Pool: "n1", Device: "d0", Conditions: []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue}}}}
			d.put(c)
		}
		report("Ready")
		if ready, err := p.Prepare(ctx, r, pod); !ready || err != nil {
			t.Fatal(ready, err)
		}
		report("Broken")
		if _, err := p.Prepare(ctx, r, pod); err == nil || saysNothing(err) {
			t.Errorf("got %v, want a verdict", err)
		}
		if err := p.Undo(ctx, r, pod); err != nil || d.holds()["shared"] != "nothing" {
			t.Error(d.holds(), err)
		}
	})
}
