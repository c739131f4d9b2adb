package install

import (
	"cmp"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/app"
)

// Leader is the pod that holds a Lease.
type Leader struct {
	// Name and UID are the pod's.
	Name string
	UID  types.UID
	// Address is its IP address, and Node the node that it is on.
	Address, Node string
}

// leads says whether Services of schedulers have the pod that leads as their only endpoint, as KAI's have with several replicas: with KAI's
// names, for what finds the leader there. Otherwise they have all pods.
func (r *renderer) leads() bool {
	return r.kaiNames() && *r.spec.Scheduler.Service.Enabled && *r.spec.Scheduler.Replicas > 1
}

// Leases are those whose holders a rendering has to know (Environment.Leaders), in the namespace of the control plane; none for most.
func Leases(config *kaiv1.Config, shards []kaiv1.SchedulingShard) (namespace string, leases []string) {
	r := newRender(config, shards, Environment{})
	if !r.leads() {
		return r.spec.Namespace, nil
	}
	for i := range r.shards {
		leases = append(leases, r.lease(&r.shards[i]))
	}
	return r.spec.Namespace, leases
}

// lease is that of a shard's scheduler, whose own arguments win.
func (r *renderer) lease(s *kaiv1.SchedulingShard) string {
	names := cmp.Or(s.Spec.Args["scheduler-name"], *r.spec.Global.SchedulerName)
	first, _, _ := strings.Cut(names, ",")
	return app.SchedulerLease(first, cmp.Or(s.Spec.Args["partition-label-value"], s.Spec.PartitionLabelValue))
}

// leader renders the EndpointSlice of a scheduler's Service: the pod that leads, or nobody while nobody does. Such a slice holds addresses of
// one family, so that of IPv6 has another name.
func (r *renderer) leader(w *workload, service string, s *kaiv1.SchedulingShard) {
	o := &discoveryv1.EndpointSlice{
		TypeMeta: kind(discoveryv1.SchemeGroupVersion.String(), "EndpointSlice"),
		ObjectMeta: metav1.ObjectMeta{Namespace: r.spec.Namespace, Name: service + "-leader", Labels: map[string]string{
			// Kubernetes' own controller leaves slices alone that are not its own.
			discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: KAIManager, LabelShard: ShardLabel(w.shard),
		}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To(PortMetrics), Port: ptr.To(int32(*r.spec.Scheduler.SchedulerService.TargetPort)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	if l, known := r.env.Leaders[r.lease(s)]; known {
		if at, err := netip.ParseAddr(l.Address); err == nil && at.Is6() {
			o.AddressType, o.Name = discoveryv1.AddressTypeIPv6, service+"-leader-ipv6"
		}
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{l.Address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}, NodeName: ptr.To(l.Node),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: r.spec.Namespace, Name: l.Name, UID: l.UID},
		})
	}
	r.add(w.role, o)
}
