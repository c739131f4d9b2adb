package lab

import (
	"net"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestProcessAddress(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"10.128.0.1": "127.128.0.1", "10.254.10.10:8080": "127.254.10.10:8080",
		"10.96.0.1:443": "10.96.0.1:443", "127.0.0.1:80": "127.0.0.1:80", "name:80": "name:80", "": "", "[::1]:80": "[::1]:80",
	} {
		if got := ProcessAddress(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	for _, uid := range []types.UID{"", "a", "b", "6dcb8b52-0d7c-4f0e-9a0b-3f7d9f0f4f11"} {
		ip := net.ParseIP(ProcessAddress(PodIP(uid)))
		if ip == nil || !ip.IsLoopback() {
			t.Errorf("the process of pod %q is at %v, which is not this machine", uid, ip)
		}
	}
	if PodIP("a") == PodIP("b") {
		t.Error("two pods have one address")
	}
}
