package libvirt_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor/conformance"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor/libvirt"
)

const qemu = "/usr/bin/qemu-system-x86_64"

// stage keeps a mount namespace in which libvirtd has folders of its own, and starts one there for each line that it reads. There is no /dev/kvm: where
// it is there and does not work, libvirt asks QEMU anew before each call.
const stage = `set -e
mount --make-rprivate /
mkdir "$1/dev"
mount -t tmpfs tmpfs "$1/dev"
for n in null zero full random urandom tty ptmx; do touch "$1/dev/$n"; mount --bind /dev/$n "$1/dev/$n"; done
for n in pts shm; do mkdir "$1/dev/$n"; mount --rbind /dev/$n "$1/dev/$n"; done
mount --rbind "$1/dev" /dev
for d in /run/libvirt /etc/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt; do mkdir -p $d; mount -t tmpfs tmpfs $d; done
cat > /etc/libvirt/qemu.conf <<END
stdio_handler = "file"
namespaces = []
END
cat > "$1/libvirtd.conf" <<END
unix_sock_dir = "$1"
auth_unix_rw = "none"
auth_unix_ro = "none"
host_uuid = "5d3b1c1e-6c0f-4d6b-9c39-0d1d3c4c5b6a"
END
echo ready
while read line; do libvirtd -f "$1/libvirtd.conf" -p "$1/libvirtd.pid" >>"$1/log" 2>&1 & echo $!; done`

// daemon is a libvirtd of the test's own.
type daemon struct {
	dir    string
	stage  *exec.Cmd
	orders io.WriteCloser
	says   *bufio.Scanner
	pid    int
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	if os.Getenv("MUSTER_VM_MACHINES") == "" {
		t.Skip("NOT CHECKED: real machines; make test-vm does")
	}
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: it needs root")
	}
	for _, program := range []string{"libvirtd", qemu, "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("NOT CHECKED: %v", err)
		}
	}
	dir, err := os.MkdirTemp("", "libvirtd") // short: it is a socket's path
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{dir: dir, stage: exec.Command("unshare", "-m", "sh", "-c", stage, "stage", dir)}
	if d.orders, err = d.stage.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := d.stage.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.says = bufio.NewScanner(out)
	d.stage.Stderr = os.Stderr
	if err := d.stage.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.stop()
		_ = d.orders.Close()
		_ = d.stage.Wait() // it says how a libvirtd that was killed ended
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("libvirtd: %s", log)
		}
		_ = os.RemoveAll(dir)
	})
	if !d.says.Scan() || d.says.Text() != "ready" {
		t.Skip("NOT CHECKED: no mount namespace can be made here")
	}
	d.start(t)
	return d
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "libvirt-sock") }

func (d *daemon) start(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(d.orders, "start\n"); err != nil || !d.says.Scan() {
		t.Fatal("the stage is gone", err)
	}
	var err error
	if d.pid, err = strconv.Atoi(d.says.Text()); err != nil {
		t.Fatal(err)
	}
}

// stop ends libvirtd without a word. Its machines live on.
func (d *daemon) stop() {
	if d.pid > 0 {
		_ = syscall.Kill(d.pid, syscall.SIGKILL)
		d.pid = 0
	}
	_ = os.Remove(d.socket())
}

// raw is a connection that knows nothing of ours.
func (d *daemon) raw(t *testing.T) *golibvirt.Libvirt {
	t.Helper()
	l := golibvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(d.socket())))
	if err := l.Connect(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Disconnect() })
	return l
}

func (d *daemon) xml(uuid, name, container string) string {
	owner := ""
	if container != "" {
		owner = fmt.Sprintf(`<metadata><owner xmlns=%q container=%q sandbox="sandbox" pod="team/web" uid="uid"/></metadata>`, hypervisor.Namespace, container)
	}
	return fmt.Sprintf(`<domain type="qemu"><name>%s</name><uuid>%s</uuid>%s<memory unit="KiB">65536</memory><vcpu>1</vcpu>
<os><type arch="x86_64" machine="pc">hvm</type></os><features><acpi/></features><on_crash>destroy</on_crash><on_poweroff>destroy</on_poweroff>
<devices><emulator>%s</emulator><controller type="usb" model="none"/>
<serial type="unix"><source mode="connect" path="%s"><reconnect enabled="yes" timeout="1"/><seclabel model="dac" relabel="no"/></source></serial>
<channel type="unix"><source mode="bind"/><target type="virtio" name="org.qemu.guest_agent.0"/></channel>
<memballoon model="virtio"/></devices></domain>`, name, uuid, owner, qemu, d.console())
}

func (d *daemon) console() string { return filepath.Join(d.dir, "serial.sock") }

func (d *daemon) open(t *testing.T) *libvirt.Hypervisor {
	t.Helper()
	pids := fmt.Sprintf("/proc/%d/root/run/libvirt/qemu", d.stage.Process.Pid)
	h := libvirt.Open(context.Background(), libvirt.Options{Socket: d.socket(), PIDs: pids})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a cleanup calls this too
	defer cancel()
	events := h.Events(ctx)
	for {
		_, err := h.List(ctx)
		if err == nil {
			return h
		}
		if _, ok := <-events; !ok { // a Resync comes with each connection
			t.Fatalf("libvirtd does not come up: %v", err)
		}
	}
}

// TestConformance runs the suite against a libvirtd and QEMU of its own, with software for a processor.
func TestConformance(t *testing.T) {
	d := newDaemon(t)
	conformance.Run(t, conformance.Subject{
		Connect: func(t *testing.T) hypervisor.Hypervisor { return d.open(t) },
		XML:     d.xml, Console: d.console(),
		Kill: func(t *testing.T, _ string, pid int) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
		Foreign: func(t *testing.T, uuid, name string) func() bool {
			l := d.raw(t)
			dom, err := l.DomainDefineXMLFlags(d.xml(uuid, name, ""), 0)
			if err == nil {
				_, err = l.DomainCreateWithFlags(dom, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = l.DomainDestroyFlags(dom, 0)
				_ = l.DomainUndefineFlags(dom, 0)
			})
			return func() bool {
				s, _, err := l.DomainGetState(dom, 0)
				return err == nil && golibvirt.DomainState(s) == golibvirt.DomainRunning
			}
		},
		Interrupt: func(t *testing.T) func() {
			d.stop()
			return func() { d.start(t) }
		},
	})
	if left := strings.TrimSpace(leftover(d.dir)); left != "" {
		t.Errorf("machines are left: %s", left)
	}
}

// TestSecrets: a key is in libvirtd's memory, where no client reads it and no file has it; it can be replaced, it goes when it is told to and with libvirtd, and what is somebody else's is left.
func TestSecrets(t *testing.T) {
	d := newDaemon(t)
	h := d.open(t)
	defer h.Close()
	keys := libvirt.Secrets{Of: h}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const uuid, foreign = "5f3b2d1e-0000-5000-8000-000000000001", "5f3b2d1e-0000-5000-8000-000000000002"
	usage := "joe-" + uuid + "-vol"
	for _, value := range []string{"first key", "second key"} {
		if err := keys.Define(ctx, uuid, usage, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	l := d.raw(t)
	there, err := l.SecretLookupByUsage(int32(golibvirt.SecretUsageTypeCeph), usage)
	if err != nil {
		t.Fatal(err)
	}
	if value, err := l.SecretGetValue(there, 0); err == nil {
		t.Errorf("anybody reads it: %q", value)
	}
	if text, err := l.SecretGetXMLDesc(there, 0); err != nil || !strings.Contains(text, "ephemeral='yes'") || !strings.Contains(text, "private='yes'") {
		t.Errorf("%s, %v", text, err)
	}
	other, err := l.SecretDefineXML("<secret ephemeral='yes' private='no'><uuid>"+foreign+"</uuid><usage type='ceph'><name>theirs</name></usage></secret>", 0)
	if err == nil {
		err = l.SecretSetValue(other, []byte("their key"), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := keys.Define(ctx, foreign, "joe-"+foreign+"-vol", []byte("x")); vm.KindOf(err) != vm.Conflict {
		t.Errorf("somebody else's is replaced: %v", err)
	}
	if err := keys.Define(ctx, foreign, "theirs", []byte("x")); vm.KindOf(err) != vm.Invalid {
		t.Errorf("a usage without the UUID: %v", err)
	}
	for range 2 {
		if err := errors.Join(keys.Undefine(ctx, uuid), keys.Undefine(ctx, foreign)); err != nil {
			t.Fatal(err)
		}
	}
	if value, err := l.SecretGetValue(other, 0); err != nil || string(value) != "their key" {
		t.Errorf("somebody else's: %q, %v", value, err)
	}
	if _, err := l.SecretLookupByUsage(int32(golibvirt.SecretUsageTypeCeph), usage); err == nil {
		t.Error("it has not gone")
	}
}

// leftover are the processes whose arguments name a folder.
func leftover(dir string) string {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var out strings.Builder
	for _, p := range all {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), filepath.Join(dir, "serial.sock")) {
			out.WriteString(p + " ")
		}
	}
	return out.String()
}
