package server

import (
	"context"
	"fmt"
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// serviceName is that of the API server's own Service, in namespace default.
const serviceName = "kubernetes"

// advertise has the API server's own Service lead to where it listens. The API server could do that by itself, but then its end
// would wait for the end of that.
func advertise(ctx context.Context, client kubernetes.Interface, at netip.AddrPort) error {
	family := discoveryv1.AddressTypeIPv4
	if at.Addr().Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	slices := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: serviceName, Labels: map[string]string{discoveryv1.LabelServiceName: serviceName, discoveryv1.LabelManagedBy: "muster-lab"}},
		AddressType: family,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{at.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(at.Port()))}},
	}
	// One of an earlier lab in this folder may be of another family, which cannot be changed.
	if err := slices.Delete(ctx, serviceName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("advertise the API server: %w", err)
	}
	if at.Addr().IsLoopback() { // it is no valid endpoint
		return nil
	}
	if _, err := slices.Create(ctx, s, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("advertise the API server: %w", err)
	}
	return nil
}
