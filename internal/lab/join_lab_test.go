//go:build lab

package lab_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/lab"
)

// TestJoin is what a real node needs of a lab, with a kubelet of which only the logs are there: the API server is where it was told to
// listen, Service kubernetes leads there, the kubelet is called by its node's address and knows who calls, what is bound to the
// node is its own, and a node that goes on watching does not hold up the lab's end.
func TestJoin(t *testing.T) {
	address := ownAddress(t)
	l := start(t, lab.Options{Advertise: address, Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "played", Count: 1}}}})
	ctx, c := t.Context(), l.Client()
	if at, err := url.Parse(l.Config().Host); err != nil || at.Hostname() != address {
		t.Fatalf("the API server is at %s (%v), want %s", l.Config().Host, err, address)
	}
	until(t, "Service kubernetes leads to the API server", func(ctx context.Context) (bool, error) {
		all, err := c.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
		if err != nil || len(all.Items) != 1 || len(all.Items[0].Endpoints) != 1 {
			return false, err
		}
		return slices.Equal(all.Items[0].Endpoints[0].Addresses, []string{address}), nil
	})

	_, err := c.CoreV1().Nodes().Watch(context.WithoutCancel(ctx), metav1.ListOptions{}) // nobody ends it
	check(t, err)
	kubelet := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s asked for %s", r.TLS.PeerCertificates[0].Subject.CommonName, r.URL.Path)
	}))
	kubelet.Listener.Close()
	kubelet.Listener, err = net.Listen("tcp", net.JoinHostPort(address, "0"))
	check(t, err)
	kubelet.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	kubelet.StartTLS()
	defer kubelet.Close()
	_, err = c.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "real"}}, metav1.CreateOptions{})
	check(t, err)
	status := fmt.Sprintf(`{"status": {"addresses": [{"type": "Hostname", "address": "real"}, {"type": "InternalIP", "address": %q}], "daemonEndpoints": {"kubeletEndpoint": {"Port": %d}}}}`,
		address, kubelet.Listener.Addr().(*net.TCPAddr).Port)
	_, err = c.CoreV1().Nodes().Patch(ctx, "real", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	check(t, err)
	bind(t, l, "mine", "real", nil)
	said, err := c.CoreV1().Pods("default").GetLogs("mine", &corev1.PodLogOptions{}).DoRaw(ctx)
	if want := "muster-lab-admin asked for /containerLogs/default/mine/main"; err != nil || string(said) != want {
		t.Errorf("the log of a pod on a real node is %q (%v), want %q", said, err, want)
	}

	// What the lab plays, it has played by now.
	await(t, l, bind(t, l, "played", "played-0", nil), func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	mine, err := c.CoreV1().Pods("default").Get(ctx, "mine", metav1.GetOptions{})
	check(t, err)
	if mine.Status.Phase != corev1.PodPending || mine.Status.PodIP != "" {
		t.Errorf("the lab plays a pod on a real node: %+v", mine.Status)
	}
	if _, err := c.CoordinationV1().Leases("kube-node-lease").Get(ctx, "real", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the lab renews the Lease of a real node: %v", err)
	}
}

// ownAddress is an address of this machine that is not loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	check(t, err)
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("NOT CHECKED: this machine has no address but loopback")
	return ""
}
