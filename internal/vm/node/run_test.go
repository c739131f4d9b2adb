package node

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/vm"
)

// TestConfig: what cannot be is said by name, and nothing is made.
func TestConfig(t *testing.T) {
	t.Parallel()
	for uri, socket := range map[string]string{"qemu:///system": "", "qemu+unix:///system": "", "qemu+unix:///system?socket=/run/x": "/run/x"} {
		if got, err := libvirtAt(uri); err != nil || got.Socket != socket {
			t.Errorf("%s: %+v, %v", uri, got, err)
		}
	}
	for _, uri := range []string{"", "qemu:///session", "qemu://host/system", "qemu+ssh:///system", "qemu+unix:///system?socket=x", "qemu:///system?socket=/x", "xen:///system", "%"} {
		if _, err := libvirtAt(uri); vm.KindOf(err) != vm.Invalid || !strings.Contains(err.Error(), "libvirt URI") {
			t.Errorf("%s: %v", uri, err)
		}
	}
	dir := t.TempDir()
	whole := Config{
		Socket: filepath.Join(dir, "s"), StateDir: filepath.Join(dir, "d"), RunDir: filepath.Join(dir, "r"), NetSocket: "/n", Emulator: "/w", QEMU: "/q",
		LibvirtURI: "qemu:///system", DomainType: "qemu", StreamAddress: "127.0.0.1:0", UID: -1, GID: -1,
	}
	for name, change := range map[string]func(*Config){
		`Emulator "w"`: func(c *Config) { c.Emulator = "w" },
		"StateDir":     func(c *Config) { c.StateDir += "/../x" },
		"domain type":  func(c *Config) { c.DomainType = "" },
		"stream":       func(c *Config) { c.StreamAddress = "0.0.0.0:1" },
		"107":          func(c *Config) { c.RunDir = filepath.Join(dir, strings.Repeat("x", 100)) },
	} {
		c := whole
		change(&c)
		if err := Run(t.Context(), c, logr.Discard()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
