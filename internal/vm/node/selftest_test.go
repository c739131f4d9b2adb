package node

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/domain"
)

// TestBootSector: QEMU alone starts the disk, hears the word once, and the machine powers itself off.
func TestBootSector(t *testing.T) {
	t.Parallel()
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skipf("NOT CHECKED: %v", err)
	}
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, bootSector(), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, qemu, "-accel", "tcg", "-m", "32", "-machine", "pc", "-display", "none", "-nodefaults", "-serial", "stdio", "-no-reboot",
		"-drive", "file="+disk+",format=raw,if=ide").Output()
	if err != nil || bytes.Count(out, []byte(selfTestWord)) != 1 {
		t.Errorf("%v: %.200q", err, out)
	}
}

// TestSelfTestMachine: the machine is described as a pod's is, its files are QEMU's, and nothing stays when libvirt is not there.
func TestSelfTestMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := Config{StateDir: dir, LibvirtURI: "qemu+unix:///system?socket=" + filepath.Join(dir, "no.sock"), DomainType: "qemu", QEMU: "/bin/qemu", UID: -1, GID: -1}
	files := filepath.Join(dir, "x")
	if err := os.Mkdir(files, 0o700); err != nil {
		t.Fatal(err)
	}
	in, err := c.selfTestMachine(files, "/bin/muster-vm")
	if err != nil {
		t.Fatal(err)
	}
	xml, err := domain.XML(in)
	if err != nil || !strings.Contains(xml, `<domain type="qemu"`) || !strings.Contains(xml, files+"/disk") || !strings.Contains(xml, `value="/bin/qemu"`) || strings.Contains(xml, "NET_KEY") {
		t.Errorf("%v: %s", err, xml)
	}
	if err := os.RemoveAll(files); err != nil {
		t.Fatal(err)
	}
	if _, err := SelfTest(t.Context(), c, "/bin/muster-vm"); vm.KindOf(err) != vm.Unavailable {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if _, _, err := LibvirtVersions(t.Context(), c.LibvirtURI); vm.KindOf(err) != vm.Unavailable {
		t.Error(err)
	}
}

// TestHeard: what a machine that is wrong said is in the error.
func TestHeard(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(file, []byte("No bootable device."), 0o600); err != nil {
		t.Fatal(err)
	}
	why := errors.New("too long")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, why)
	defer cancel()
	if err := heard(ctx, file); !errors.Is(err, why) || !strings.Contains(err.Error(), "No bootable device.") {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte("x"+selfTestWord), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := heard(t.Context(), file); err != nil {
		t.Error(err)
	}
}
