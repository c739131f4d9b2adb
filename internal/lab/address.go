package lab

import (
	"fmt"
	"hash/fnv"
	"net"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// EnvListenHost tells a program that a lab runs for real the address it listens at where its flags name none: each pod has
// one of its own, so that two replicas can have the same port.
const EnvListenHost = "MUSTER_LISTEN_HOST"

// PodIP is the address that a pod of that UID shows in its status: in 10.128.0.0/9, stable, and with a chance of one in
// millions another pod's too.
func PodIP(uid types.UID) string {
	h := fnv.New32a()
	h.Write([]byte(uid))
	v := h.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", 128+byte(v>>16)%127, byte(v>>8), 1+byte(v)%254)
}

// ProcessAddress is where on this machine the process of a pod listens that shows address (a host, or a host and port): the
// same in 127.128.0.0/9. An API server takes no loopback address for an endpoint, and no other can be had without rights; so
// the status shows the one, and whoever dials (Lab.Dial, the API server's own calls) translates it. What is no pod's address
// stays as it is.
func ProcessAddress(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if ip := net.ParseIP(host).To4(); ip != nil && ip[0] == 10 && ip[1] >= 128 {
		return "127" + strings.TrimPrefix(address, "10")
	}
	return address
}
