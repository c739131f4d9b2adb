package runtime

import (
	"net"

	"k8s.io/cri-streaming/pkg/streaming"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Streaming is Options.Streams for a server at an address of the node, "127.0.0.1:10010". Only the node itself can reach it: whoever has a URL of it has
// what the URL is for, once, within a minute; kubelets pass streams on.
// Port 0 is one that is free. Run serves it.
func Streaming(address string) func(streaming.Runtime) (streaming.Server, error) {
	return func(r streaming.Runtime) (streaming.Server, error) {
		host, _, err := net.SplitHostPort(address)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			return nil, vm.Errorf(vm.Invalid, "stream address %q: must be a loopback address and a port", address)
		}
		config := streaming.DefaultConfig
		config.Addr = address
		return streaming.NewServer(config, r)
	}
}
