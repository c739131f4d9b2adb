package install

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// TestLeader: with KAI's names and several replicas of schedulers, each one's Service selects nobody, and an EndpointSlice of KAI's name has
// the holder of its Lease; of an address of IPv6 it is of that family. Otherwise Services select pods, and nobody asks who leads.
func TestLeader(t *testing.T) {
	t.Parallel()
	shards := []kaiv1.SchedulingShard{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}, {ObjectMeta: metav1.ObjectMeta{Name: "c"}}}
	shards[1].Spec.PartitionLabelValue = "gold"
	shards[2].Spec.Args = map[string]string{"partition-label-value": "tin", "scheduler-name": "other,more"}
	for name, c := range map[string]struct {
		names    string
		replicas int32
		leaders  map[string]Leader
		want     []string // slice, family, port, addresses and pod
	}{
		"our names":   {replicas: 2},
		"one replica": {names: "true", replicas: 1},
		"nobody": {names: "true", replicas: 2, want: []string{
			"kai-scheduler-a-leader IPv4 8080 ", "kai-scheduler-b-leader IPv4 8080 ", "kai-scheduler-c-leader IPv4 8080 ",
		}},
		"each has one": {
			names: "true", replicas: 2,
			leaders: map[string]Leader{
				"kai-scheduler": {Name: "p", UID: "1", Address: "10.0.0.1", Node: "n"}, "kai-scheduler-gold": {Name: "q", Address: "fd00::2", Node: "n"},
				"other-tin": {Name: "r", Address: "10.0.0.3", Node: "n"}, "kai-scheduler-tin": {Name: "s", Address: "10.0.0.4", Node: "n"},
			},
			want: []string{"kai-scheduler-a-leader IPv4 8080 10.0.0.1 p", "kai-scheduler-b-leader-ipv6 IPv6 8080 fd00::2 q", "kai-scheduler-c-leader IPv4 8080 10.0.0.3 r"},
		},
	} {
		config := &kaiv1.Config{ObjectMeta: metav1.ObjectMeta{Name: kaiv1.ConfigName, Annotations: map[string]string{AnnotationKAINames: c.names}}}
		if c.names == "" {
			config.Annotations = nil
		}
		config.Spec.Scheduler = &kaiv1.Scheduler{Replicas: ptr.To(c.replicas)}
		env := testEnvironment()
		env.SchedulerFlags = append(env.SchedulerFlags, "partition-label-value", "scheduler-name")
		env.Leaders = c.leaders
		objects, _, err := Render(config, shards, env)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		services := map[string]bool{} // whether they select pods
		for _, o := range objects {
			switch o := o.(type) {
			case *discoveryv1.EndpointSlice:
				text := []string{}
				for _, e := range o.Endpoints {
					text = append(text, e.Addresses[0], e.TargetRef.Name)
					if !*e.Conditions.Ready || *e.NodeName != "n" {
						t.Errorf("%s: endpoint %+v", name, e)
					}
				}
				got = append(got, o.Name+" "+string(o.AddressType)+" 8080 "+strings.Join(text, " "))
				if *o.Ports[0].Port != 8080 || *o.Ports[0].Name != "http-metrics" || o.Labels["endpointslice.kubernetes.io/managed-by"] != "kai-operator" || !strings.HasPrefix(o.Name, o.Labels["kubernetes.io/service-name"]+"-leader") {
					t.Errorf("%s: %s: ports %v, labels %v", name, o.Name, o.Ports, o.Labels)
				}
			case *corev1.Service:
				services[o.Name] = len(o.Spec.Selector) > 0
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for service, selects := range services {
			if follows := strings.HasPrefix(service, "kai-scheduler-") && c.want != nil; selects == follows {
				t.Errorf("%s: Service %s selects pods: %v", name, service, selects)
			}
		}
		namespace, leases := Leases(config, shards)
		if want := []string{"kai-scheduler", "kai-scheduler-gold", "other-tin"}; namespace != "kai-scheduler" || c.want == nil && leases != nil || c.want != nil && !slices.Equal(leases, want) {
			t.Errorf("%s: Leases %s %v", name, namespace, leases)
		}
	}
}
