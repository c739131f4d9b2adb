package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/vm/config/cluster"
	"github.com/muster-scheduler/muster/internal/vm/diag"
	"github.com/muster-scheduler/muster/internal/vm/image"
	"github.com/muster-scheduler/muster/internal/vm/metrics"
	"github.com/muster-scheduler/muster/internal/vm/node"
	"github.com/muster-scheduler/muster/internal/vm/spec"
	"github.com/muster-scheduler/muster/internal/vm/suspend"
	"github.com/muster-scheduler/muster/internal/vm/up"
	"github.com/muster-scheduler/muster/internal/vm/volume"
)

// The name of the subcommand that becomes a file server, and the name that pods' RuntimeClass has.
const (
	shareServer = "share-server"
	handler     = "muster-vm"
	// suspendKeyEnv is where a pod may have the key from a Secret.
	suspendKeyEnv = "MUSTER_VM_SUSPEND_KEY"
)

// machineFlags are those that runtime and up have in common.
type machineFlags struct {
	domainType, libvirt, qemu, qemuUser, virtiofsd, pods string
	translations, protocol, rawDevices, cpuModel         string
	suspendKey                                           string
	streamPort                                           int
	skipTranslation, regexps                             bool
	mirrors                                              []string
}

func (m *machineFlags) bind(f *pflag.FlagSet) {
	f.StringVar(&m.domainType, "domain-type", "", "kvm, or qemu for machines without hardware's help; needed, and never guessed")
	f.StringVar(&m.libvirt, "libvirt-uri", "qemu:///system", "libvirt's connection: qemu:///system, or qemu+unix:///system?socket=PATH")
	f.StringVar(&m.qemu, "qemu", "/usr/bin/qemu-system-x86_64", "path of QEMU")
	f.StringVar(&m.qemuUser, "qemu-user", "libvirt-qemu", "user that libvirt runs QEMU as: a name, or UID:GID")
	f.StringVar(&m.virtiofsd, "virtiofsd", "/usr/libexec/virtiofsd,/usr/lib/qemu/virtiofsd", "paths of virtiofsd: the first that is there serves directories to guests; where none is, pods that mount one are refused")
	f.StringVar(&m.pods, "kubelet-pods-dir", "/var/lib/kubelet/pods", "the kubelet's folder of pods")
	f.StringVar(&m.translations, "translation-dir", "", "folder of Virtlet's image translation files")
	f.BoolVar(&m.skipTranslation, "skip-image-translation", false, "use no translation files, and no VirtletImageMapping objects")
	f.BoolVar(&m.regexps, "enable-regexp-image-translation", true, "let translations have regular expressions")
	f.StringVar(&m.protocol, "image-download-protocol", "https", "scheme of image names that are URLs without one: https or http")
	f.StringVar(&m.rawDevices, "raw-devices", "loop*", "patterns of names below /dev, with commas between, that FlexVolumes of type raw may have")
	f.StringVar(&m.cpuModel, "cpu-model", "", "CPU model of machines that name none: host-model, or empty for QEMU's")
	f.IntVar(&m.streamPort, "stream-port", 0, "port of 127.0.0.1 where exec, attach and port-forward are served to the node itself; 0 for one that is free")
	f.StringVar(&m.suspendKey, "suspend-key", "", "file with 32 bytes in hexadecimal, the same on all nodes where a suspended machine can be resumed (or the key itself in "+suspendKeyEnv+
		"); empty for a key of this node's own, which is made")
	f.StringArrayVar(&m.mirrors, "mirror", nil, "HOST=URL: where a registry's images are asked for first; may be repeated")
}

// args are the flags as another process of this program takes them.
func (m *machineFlags) args() []string {
	out := []string{
		"--domain-type=" + m.domainType, "--libvirt-uri=" + m.libvirt, "--qemu=" + m.qemu, "--qemu-user=" + m.qemuUser, "--virtiofsd=" + m.virtiofsd,
		"--kubelet-pods-dir=" + m.pods, "--translation-dir=" + m.translations, fmt.Sprintf("--skip-image-translation=%t", m.skipTranslation),
		fmt.Sprintf("--enable-regexp-image-translation=%t", m.regexps), "--image-download-protocol=" + m.protocol, "--raw-devices=" + m.rawDevices,
		"--cpu-model=" + m.cpuModel, fmt.Sprintf("--stream-port=%d", m.streamPort), "--suspend-key=" + m.suspendKey,
	}
	for _, s := range m.mirrors {
		out = append(out, "--mirror="+s)
	}
	return out
}

// check is said by whoever is asked to start, not by a process that is started again and again.
func (m *machineFlags) check() (c node.Config, err error) {
	if m.domainType != "kvm" && m.domainType != "qemu" {
		return c, fmt.Errorf("--domain-type %q: must be kvm or qemu", m.domainType)
	}
	c = node.Config{DomainType: m.domainType, LibvirtURI: m.libvirt, QEMU: m.qemu, PodsDir: m.pods, StreamAddress: fmt.Sprintf("127.0.0.1:%d", m.streamPort)}
	if m.streamPort < 0 || m.streamPort > 65535 {
		return c, fmt.Errorf("--stream-port %d: must be from 0 to 65535", m.streamPort)
	}
	if m.cpuModel != "" && m.cpuModel != spec.HostModel {
		return c, fmt.Errorf("--cpu-model %q: must be empty or %s", m.cpuModel, spec.HostModel)
	}
	c.Limits.CPUModel, c.RawDevices = m.cpuModel, []string{}
	if m.rawDevices != "" {
		c.RawDevices = strings.Split(m.rawDevices, ",")
	}
	c.Images.DownloadProtocol, c.Images.ExactOnly = m.protocol, !m.regexps
	if !m.skipTranslation {
		c.Images.TranslationDir = m.translations
	}
	if c.UID, c.GID, err = owner(m.qemuUser); err != nil {
		return c, fmt.Errorf("--qemu-user %q: %w", m.qemuUser, err)
	}
	for p := range strings.SplitSeq(m.virtiofsd, ",") {
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && c.Virtiofsd == "" {
			c.Virtiofsd = p
		}
	}
	key := []byte(os.Getenv(suspendKeyEnv))
	if m.suspendKey != "" {
		if key, err = os.ReadFile(m.suspendKey); err != nil {
			return c, fmt.Errorf("--suspend-key: %w", err)
		}
	}
	if len(key) > 0 {
		if c.SuspendKey, err = suspend.ParseKey(string(key)); err != nil {
			return c, fmt.Errorf("--suspend-key %q, %s: %w", m.suspendKey, suspendKeyEnv, err)
		}
	}
	for _, text := range m.mirrors {
		host, url, ok := strings.Cut(text, "=")
		if !ok || host == "" || url == "" {
			return c, fmt.Errorf("--mirror %q: must be HOST=URL", text)
		}
		c.Images.Mirrors = append(c.Images.Mirrors, image.Mirror{Host: host, URL: url})
	}
	return c, nil
}

func owner(text string) (uid, gid int, err error) {
	u, g, ok := strings.Cut(text, ":")
	if !ok {
		found, err := user.Lookup(text)
		if err != nil {
			return 0, 0, err
		}
		u, g = found.Uid, found.Gid
	}
	a, err := strconv.ParseUint(u, 10, 31)
	b, bad := strconv.ParseUint(g, 10, 31)
	if err != nil || bad != nil {
		return 0, 0, errors.New("must be a user's name, or UID:GID")
	}
	return int(a), int(b), nil
}

func runtimeCommand() *cobra.Command {
	var own node.Config
	var m machineFlags
	var kubeconfig string
	var logs app.LogOptions
	c := &cobra.Command{
		Use: "runtime", Short: "Serve the CRI: pods that are machines, with their images and volumes", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := app.Logger(os.Stderr, logs)
			if err != nil {
				return err
			}
			o, err := m.check()
			if err != nil {
				return err
			}
			if err := os.Unsetenv(suspendKeyEnv); err != nil { // file servers have no business with it
				return err
			}
			o.Version, o.Socket, o.StateDir, o.RunDir, o.NetSocket, o.Emulator = version, own.Socket, own.StateDir, own.RunDir, own.NetSocket, own.Emulator
			o.DiagSocket = own.DiagSocket
			o.Handlers, o.SystemdCgroups, o.Limits.DefaultMemory, o.ShareServer = own.Handlers, own.SystemdCgroups, own.Limits.DefaultMemory, []string{"/proc/self/exe", shareServer}
			if kubeconfig != "" && !m.skipTranslation {
				client, err := clusterAt(kubeconfig)
				if err != nil {
					return err
				}
				from := &cluster.Images{From: client}
				o.Images.Mappings = func() ([]image.Mapping, error) { return imageMappings(c.Context(), from, log) }
			}
			o.Ready = func() { fmt.Fprintln(c.OutOrStdout(), "ready", o.Socket) }
			return node.Run(c.Context(), o, log)
		},
	}
	f := c.Flags()
	f.StringVar(&own.Socket, "listen", "/run/muster-vm/runtime.sock", "path of the socket to serve the CRI at")
	f.StringVar(&own.StateDir, "state-dir", "/var/lib/muster-vm", "folder of records, images and disks; it has to outlive a boot, and QEMU's user has to get to it")
	f.StringVar(&own.RunDir, "run-dir", "/run/muster-vm", "folder of machines' sockets; a short path")
	f.StringVar(&own.DiagSocket, "diag-socket", "", diagUsage)
	f.StringVar(&own.NetSocket, "net-socket", "/run/muster-vm/net.sock", "the network process's socket")
	f.StringVar(&own.Emulator, "emulator", "/usr/lib/muster-vm/"+wrapName, "this program by the name of "+wrapName+", which libvirt runs in QEMU's place")
	f.StringSliceVar(&own.Handlers, "handler", []string{handler}, "names of RuntimeClass handlers that are answered to")
	f.BoolVar(&own.SystemdCgroups, "systemd-cgroups", false, "the kubelet's cgroup driver is systemd")
	f.Int64Var(&own.Limits.DefaultMemory, "default-memory", 1<<30, "bytes of memory of a machine whose container has no limit")
	f.StringVar(&kubeconfig, "kubeconfig", "", "ask a cluster for VirtletImageMapping objects before each pull, as this file says, or, with "+inCluster+", as this pod may; empty asks none")
	m.bind(f)
	app.BindZapFlags(f, &logs)
	return c
}

// shareCommand becomes a file server: see volume.Serve.
func shareCommand() *cobra.Command {
	return &cobra.Command{
		Use: shareServer, Hidden: true, DisableFlagParsing: true, Short: "Become the file server of a share: what runtime calls",
		RunE: func(_ *cobra.Command, args []string) error { return volume.Serve(args) },
	}
}

// places is where up has its things, and what it passes on.
type places struct {
	dir, cri, primary, binDir, confDir, kubeconfig string
	machines                                       machineFlags
	verbosity                                      int
	systemd                                        bool
	// metrics is the address where what all processes count is shown; "" or "0" for none.
	metrics string
	// parts are the processes that up runs; none for all.
	parts []string
}

// has says whether up runs a process.
func (p *places) has(name string) bool { return len(p.parts) == 0 || slices.Contains(p.parts, name) }

func (p *places) bind(f *pflag.FlagSet) {
	f.StringVar(&p.dir, "dir", "/var/lib/muster-vm", "folder of all that the three keep; a short path that QEMU's user can get to")
	f.StringVar(&p.cri, "cri", "/run/muster-vm/cri.sock", "path of the socket that the kubelet is given")
	f.StringVar(&p.primary, "primary", "", "socket of the node's other runtime, which has every pod that is no machine")
	f.StringVar(&p.binDir, "cni-bin-dir", "/opt/cni/bin", "folder of CNI plugins")
	f.StringVar(&p.confDir, "cni-conf-dir", "/etc/cni/net.d", "folder of CNI's configuration")
	f.BoolVar(&p.systemd, "systemd-cgroups", false, "the kubelet's cgroup driver is systemd")
	f.StringSliceVar(&p.parts, "parts", nil, "which of net, runtime and proxy up runs (default: all three); all other flags are the same wherever the others run")
	f.StringVar(&p.metrics, "metrics-bind-address", "0", "HOST:PORT where /metrics shows what all processes count, for Prometheus; 0 for nowhere")
	f.IntVar(&p.verbosity, "v", 0, "highest level of messages that the three log, 0 to 10")
	p.machines.bind(f)
}

// diag is where a process of up tells of itself.
func (p *places) diag(process string) string { return filepath.Join(p.dir, "diag", process+".sock") }

// processes are what up runs, in order. self is this program, wrapper its name for libvirt, uid QEMU's user.
func (p *places) processes(self, wrapper string, uid int) []up.Process {
	in := func(name string) string { return filepath.Join(p.dir, name) }
	network := []string{
		self, "net", "--socket=" + in("net.sock"), "--state-dir=" + in("net"), "--netns-dir=" + in("netns"), "--cni-bin-dir=" + p.binDir, "--cni-conf-dir=" + p.confDir,
		fmt.Sprintf("--qemu-uid=%d", uid), fmt.Sprintf("--networks-are-ours=%t", p.primary == ""),
		"--diag-socket=" + p.diag("net"),
	}
	machines := append([]string{
		self, "runtime", "--listen=" + in("runtime.sock"), "--state-dir=" + in("state"), "--run-dir=" + in("run"), "--net-socket=" + in("net.sock"),
		"--emulator=" + wrapper, "--diag-socket=" + p.diag("runtime"), fmt.Sprintf("--systemd-cgroups=%t", p.systemd),
	}, p.machines.args()...)
	if p.kubeconfig != "" {
		machines = append(machines, "--kubeconfig="+p.kubeconfig)
	}
	proxy := []string{self, "proxy", "--listen=" + p.cri, "--state=" + in("proxy.db"), "--diag-socket=" + p.diag("proxy")}
	if p.primary == "" {
		proxy = append(proxy, "--primary="+in("runtime.sock"))
	} else {
		proxy = append(proxy, "--primary="+p.primary, "--backend=name="+handler+",socket="+in("runtime.sock")+",handler="+handler+",prefix=muster-vm/,prefix=virtlet.cloud/")
	}
	if p.verbosity > 0 {
		for _, argv := range []*[]string{&network, &machines, &proxy} {
			*argv = append(*argv, fmt.Sprintf("--zap-log-level=%d", p.verbosity))
		}
	}
	all := []up.Process{{Name: "net", Argv: network}, {Name: "runtime", Argv: machines}, {Name: "proxy", Argv: proxy}}
	return slices.DeleteFunc(all, func(one up.Process) bool { return !p.has(one.Name) })
}

// show serves what all processes count, from now until ctx ends, at the address for that, if there is one. started is to be told of each start of a process; end waits until
// nothing is served any more.
func (p *places) show(ctx context.Context, processes []up.Process, log logr.Logger) (started func(process string), end func(), err error) {
	l, err := app.Listen("metrics-bind-address", p.metrics)
	if err != nil || l == nil {
		return nil, func() {}, err
	}
	sources := map[string]metrics.Source{}
	var names []string
	for _, one := range processes {
		names = append(names, one.Name)
		sources[one.Name] = diag.Client{Socket: p.diag(one.Name)}.Metrics
	}
	own := metrics.New("up")
	started = own.Counter("muster_vm_process_starts_total", "Starts of a process of muster-vm up.", "started", names...)
	sources["up"] = func(context.Context) ([]*dto.MetricFamily, error) { return own.Gather() }
	s := &app.Server{Metrics: metrics.Together(sources)}
	log.Info("Metrics are shown", "address", l.Addr().String())
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx, l); err != nil {
			log.Error(err, "Metrics are shown no longer", "address", l.Addr().String())
		}
	}()
	return started, func() { cancel(); <-done }, nil
}

func upCommand() *cobra.Command {
	var logs app.LogOptions
	var p places
	var v virtletFlags
	c := &cobra.Command{
		Use: "up", Short: "Run net, runtime and proxy together, each a process that is started again when it ends", Args: cobra.NoArgs,
		Long: "Starts the three below a folder, prints \"ready SOCKET\" when pods can be made, and ends them when it is told to. Machines run on, and are found\n" +
			"again by the next start with the same folder. Without --primary every pod is a machine. Virtlet's settings are taken from its environment, its flags, a file\n" +
			"and VirtletConfigMapping objects: see muster-vm config dump.",
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := app.Logger(os.Stderr, logs)
			if err != nil {
				return err
			}
			if _, err := v.resolve(c.Context(), c.Flags(), p.dir, log); err != nil {
				return err
			}
			p.kubeconfig = v.kubeconfig
			for _, one := range p.parts {
				if !slices.Contains(processNames(), one) {
					return fmt.Errorf("--parts %q: must be of %s", one, strings.Join(processNames(), ", "))
				}
			}
			var checked node.Config
			if p.has("net") || p.has("runtime") { // a proxy alone has to do with no machine
				if checked, err = p.machines.check(); err != nil {
					return err
				}
			}
			for flag, path := range map[string]string{"--dir": p.dir, "--cri": p.cri} { // order: any of them will do for the error
				if !filepath.IsAbs(path) || filepath.Clean(path) != path {
					return fmt.Errorf("%s %q: must be an absolute path, without '..'", flag, path)
				}
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			if err := errors.Join(os.MkdirAll(p.dir, 0o711), os.MkdirAll(filepath.Dir(p.cri), 0o711)); err != nil { //nolint:gosec // QEMU's user gets through
				return err
			}
			wrapper := filepath.Join(p.dir, wrapName)
			if p.has("runtime") {
				if err := os.Remove(wrapper); err != nil && !errors.Is(err, os.ErrNotExist) {
					return err
				}
				if err := os.Symlink(self, wrapper); err != nil {
					return err
				}
			}
			socket := p.cri
			if !p.has("proxy") {
				socket = filepath.Join(p.dir, "runtime.sock")
			}
			processes := p.processes(self, wrapper, checked.UID)
			starts, shown, err := p.show(c.Context(), processes, log)
			if err != nil {
				return err
			}
			defer shown()
			return up.Run(c.Context(), processes, up.Options{
				Ready: func() { fmt.Fprintln(c.OutOrStdout(), "ready", socket) }, Started: starts, Errors: c.ErrOrStderr(), Log: log,
			})
		},
	}
	f := c.Flags()
	p.bind(f)
	v.bind(f)
	app.BindZapFlags(f, &logs)
	return c
}
