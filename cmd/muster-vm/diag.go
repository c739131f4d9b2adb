package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/vm/diag"
	"github.com/muster-scheduler/muster/internal/vm/network"
)

const diagUsage = "path of a socket, for root alone, where this process tells of itself; empty for none"

// tell has this process tell what its goroutines do, and what it counts. end waits until it does no longer.
func tell(ctx context.Context, socket string, counts prometheus.Gatherer, log logr.Logger) (_ context.Context, end func()) {
	if socket == "" {
		return ctx, func() {}
	}
	own, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := diag.Serve(own, socket, diag.Service{Sources: []diag.Source{diag.Stack()}, Metrics: counts}, nil); err != nil {
			log.Error(err, "this process does not tell of itself", "socket", socket)
		}
	}()
	return ctx, func() { cancel(); <-done }
}

// looked says where a node has its things.
type looked struct {
	dir, cri, libvirt, libvirtLogs string
	logs                           []string
}

func (l *looked) bind(f *pflag.FlagSet) {
	f.StringVar(&l.dir, "dir", "/var/lib/muster-vm", "folder of muster-vm up")
	f.StringVar(&l.cri, "cri", "/run/muster-vm/cri.sock", "the socket that the kubelet is given")
	f.StringVar(&l.libvirt, "libvirt-uri", "qemu:///system", "libvirt's connection")
	f.StringVar(&l.libvirtLogs, "libvirt-logs", "/var/log/libvirt", "folder of libvirt's logs")
	f.StringArrayVar(&l.logs, "log", nil, "file that muster-vm up logs to, for the dump; may be repeated")
}

// processNames are those of up.
func processNames() []string { return []string{"net", "runtime", "proxy"} }

func (l *looked) process(name string) diag.Client {
	p := places{dir: l.dir}
	return diag.Client{Socket: p.diag(name)}
}

func diagCommand() *cobra.Command {
	c := &cobra.Command{Use: "diag", Short: "What there is on a node: for a report, or to remove what is nobody's", Args: cobra.NoArgs, RunE: app.NeedsCommand}
	var l looked
	var asJSON, dry bool
	dump := &cobra.Command{
		Use: "dump [FOLDER]", Short: "Write what this node is and does into a new folder, or with --json to the output", Args: cobra.MaximumNArgs(1),
		Long: "Every source is bounded in size and time, and one that fails is said in its place. What looks like a secret is taken out; look at it all the same before you\n" +
			"give it to others. The processes need not run; it needs root.",
		RunE: func(c *cobra.Command, args []string) error {
			if asJSON == (len(args) == 1) {
				return errors.New("must have either a folder or --json")
			}
			r := diag.Collect(c.Context(), l.sources(), diag.Bounds{})
			if asJSON {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", " ")
				return e.Encode(r)
			}
			return diag.Unpack(r, args[0])
		},
	}
	dump.Flags().BoolVar(&asJSON, "json", false, "write one JSON object to the output, which unpack takes")
	l.bind(dump.Flags())
	unpack := &cobra.Command{
		Use: "unpack FOLDER", Short: "Make files, in a new folder, of what dump --json wrote, from the input", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := diag.Read(c.InOrStdin())
			if err != nil {
				return err
			}
			return diag.Unpack(r, args[0])
		},
	}
	format := "table"
	gc := &cobra.Command{
		Use: "gc", Short: "Remove what no pod has any more, and say what it was", Args: cobra.NoArgs,
		Long: "Asks the processes runtime and net, which do the same by themselves at their start and every minute: machines, networks (namespaces, taps, leases), disks, file\n" +
			"servers, first-boot data, and files of images. What a pod has, or a call is at work on, is left. Images themselves are the kubelet's to remove.",
		RunE: func(c *cobra.Command, _ []string) error {
			found, err := l.collect(c.Context(), dry)
			if bad := writeGarbage(c.OutOrStdout(), format, found, dry); bad != nil {
				return bad
			}
			if err == nil && slices.ContainsFunc(found, func(g diag.Garbage) bool { return g.Error != "" }) {
				err = errors.New("not everything could be removed")
			}
			return err
		},
	}
	gc.Flags().BoolVar(&dry, "dry-run", false, "say what would go, and remove nothing")
	gc.Flags().StringVarP(&format, "output", "o", format, "table or json")
	gc.Flags().StringVar(&l.dir, "dir", "/var/lib/muster-vm", "folder of muster-vm up")
	ready := &cobra.Command{
		Use: "ready", Short: "Fail unless pods that are machines can be made now", Args: cobra.NoArgs,
		Long: "Asks the process runtime, within five seconds, whether it, libvirt and the process net are there.",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
			defer cancel()
			return l.ready(ctx)
		},
	}
	ready.Flags().StringVar(&l.dir, "dir", "/var/lib/muster-vm", "folder of muster-vm up")
	c.AddCommand(dump, unpack, gc, ready)
	return c
}

// ready asks the runtime for its conditions.
func (l *looked) ready(ctx context.Context) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(l.dir, "runtime.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	got, err := runtimeapi.NewRuntimeServiceClient(conn).Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return fmt.Errorf("runtime: %w", err)
	}
	for _, want := range []string{runtimeapi.RuntimeReady, runtimeapi.NetworkReady} {
		i := slices.IndexFunc(got.GetStatus().GetConditions(), func(c *runtimeapi.RuntimeCondition) bool { return c.GetType() == want })
		if i < 0 {
			return fmt.Errorf("runtime: its status has no condition %s", want)
		}
		if c := got.GetStatus().GetConditions()[i]; !c.GetStatus() {
			return fmt.Errorf("runtime: %s is false: %s: %s", want, c.GetReason(), c.GetMessage())
		}
	}
	return nil
}

// collect asks both processes that have things; one that does not answer hinders not the other.
func (l *looked) collect(ctx context.Context, dry bool) ([]diag.Garbage, error) {
	out, err := l.process("runtime").GC(ctx, dry)
	if err != nil {
		err = fmt.Errorf("runtime: %w", err)
	}
	networks, bad := network.Client{Socket: filepath.Join(l.dir, "net.sock")}.Collect(ctx, dry)
	for _, g := range networks {
		out = append(out, diag.Garbage{Kind: "remove " + g.What, ID: g.ID, Why: g.Why, Error: g.Error})
	}
	return out, errors.Join(err, bad)
}

func writeGarbage(to io.Writer, format string, all []diag.Garbage, dry bool) error {
	switch format {
	case "json":
		if all == nil {
			all = []diag.Garbage{}
		}
		e := json.NewEncoder(to)
		e.SetIndent("", "  ")
		return e.Encode(all)
	case "table":
	default:
		return fmt.Errorf("--output %q: must be table or json", format)
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, g := range all {
		what := map[bool]string{true: "would", false: "done"}[dry]
		if g.Error != "" {
			what = "failed: " + g.Error
		}
		size := ""
		if g.Bytes > 0 {
			size = fmt.Sprintf("%d bytes", g.Bytes)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", g.Kind, g.ID, g.Why, size, what)
	}
	return w.Flush()
}

// sources are Virtlet's, and leases, garbage and versions besides.
func (l *looked) sources() []diag.Source {
	// ofEach is a folder with one of the results of each process.
	ofEach := func(what, folder, ext string) diag.Source {
		return diag.Source{Name: folder, List: func(context.Context) (out []diag.Source, err error) {
			for _, name := range processNames() {
				out = append(out, diag.Source{Name: name, Ext: ext, Tree: func(ctx context.Context) (diag.Result, error) { return part(ctx, l.process(name), what) }})
			}
			return out, nil
		}}
	}
	client := network.Client{Socket: filepath.Join(l.dir, "net.sock")}
	return []diag.Source{
		command("ip-a", "ip", "address"),
		command("ip-r", "ip", "route", "show", "table", "all"),
		command("psaux", "ps", "auxww"),
		{Name: "netns", List: func(context.Context) ([]diag.Source, error) { return l.namespaces() }},
		{Name: "criproxy", List: func(context.Context) ([]diag.Source, error) { return append(files(l.logs), l.answers()...), nil }},
		{Name: "libvirt-logs", List: func(context.Context) ([]diag.Source, error) { return l.logsOfLibvirt() }},
		ofEach("stack", "stack", "log"),
		ofEach("metrics", "metrics", "txt"),
		{Name: "metadata", Tree: func(ctx context.Context) (diag.Result, error) { return part(ctx, l.process("runtime"), "metadata") }},
		{Name: "libvirt-xml", List: l.domains},
		asJSON("leases", func(ctx context.Context) (any, error) { return client.List(ctx) }),
		{Name: "garbage", Ext: "txt", Read: func(ctx context.Context, to io.Writer) error {
			found, err := l.collect(ctx, true)
			return errors.Join(err, writeGarbage(to, "table", found, true))
		}},
		asJSON("version", func(context.Context) (any, error) { return map[string]string{"muster-vm": version}, nil }),
	}
}

// part is one of a process's results.
func part(ctx context.Context, from diag.Client, name string) (diag.Result, error) {
	r, err := from.Dump(ctx)
	if err != nil {
		return diag.Result{}, err
	}
	i := slices.IndexFunc(r.Children, func(c diag.Result) bool { return c.Name == name })
	if i < 0 {
		return diag.Result{}, fmt.Errorf("%s has no %s", from.Socket, name)
	}
	return r.Children[i], nil
}

func asJSON(name string, get func(context.Context) (any, error)) diag.Source {
	return diag.Source{Name: name, Ext: "json", Read: func(ctx context.Context, to io.Writer) error {
		v, err := get(ctx)
		if err != nil {
			return err
		}
		e := json.NewEncoder(to)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}}
}

// execute runs a program. One that is cut, because more is not kept, has not failed.
func execute(ctx context.Context, to io.Writer, program string, args ...string) error {
	c := exec.CommandContext(ctx, program, args...)
	c.Env = append(os.Environ(), "LC_ALL=C", "LIBVIRT_AUTO_START=0")
	c.WaitDelay = time.Second
	var said bytes.Buffer
	c.Stdout, c.Stderr = to, &limited{to: &said, left: 4096}
	if err := c.Run(); err != nil && !errors.Is(err, io.ErrShortWrite) {
		return fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// limited takes everything and passes on its beginning.
type limited struct {
	to   io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	_, err := l.to.Write(p[:n])
	return len(p), err
}

func command(name, program string, args ...string) diag.Source {
	return diag.Source{Name: name, Ext: "txt", Read: func(ctx context.Context, to io.Writer) error { return execute(ctx, to, program, args...) }}
}

// namespaces are the pods', each with its links, addresses and routes.
func (l *looked) namespaces() (out []diag.Source, err error) {
	dir := filepath.Join(l.dir, "netns")
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		out = append(out, diag.Source{Name: e.Name(), Ext: "txt", Read: func(ctx context.Context, to io.Writer) error {
			var errs []error
			for _, args := range [][]string{{"-details", "address"}, {"route"}, {"-6", "route"}, {"neighbour"}} {
				fmt.Fprintf(to, "# ip %s\n", strings.Join(args, " "))
				errs = append(errs, execute(ctx, to, "nsenter", append([]string{"--net=" + path, "ip"}, args...)...))
			}
			return errors.Join(errs...)
		}})
	}
	return out, err
}

// answers are what the kubelet's socket says of itself and of pods.
func (l *looked) answers() []diag.Source {
	ask := func(name string, f func(context.Context, runtimeapi.RuntimeServiceClient) (any, error)) diag.Source {
		return asJSON(name, func(ctx context.Context) (any, error) {
			conn, err := grpc.NewClient("unix://"+l.cri, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
			if err != nil {
				return nil, err
			}
			defer func() { _ = conn.Close() }()
			return f(ctx, runtimeapi.NewRuntimeServiceClient(conn))
		})
	}
	return []diag.Source{
		ask("version", func(ctx context.Context, c runtimeapi.RuntimeServiceClient) (any, error) {
			return c.Version(ctx, &runtimeapi.VersionRequest{})
		}),
		ask("status", func(ctx context.Context, c runtimeapi.RuntimeServiceClient) (any, error) {
			return c.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
		}),
		ask("pods", func(ctx context.Context, c runtimeapi.RuntimeServiceClient) (any, error) {
			r, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
			for _, p := range r.GetItems() {
				p.Annotations = nil // another runtime's pods may have whole manifests there
			}
			return r, err
		}),
		ask("containers", func(ctx context.Context, c runtimeapi.RuntimeServiceClient) (any, error) {
			r, err := c.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
			for _, p := range r.GetContainers() {
				p.Annotations = nil
			}
			return r, err
		}),
	}
}

// tailBytes is how much of a log's end is kept.
const tailBytes = 512 << 10

// files are the ends of logs.
func files(paths []string) (out []diag.Source) {
	for _, path := range paths {
		out = append(out, diag.Source{Name: filepath.Base(path), Ext: "txt", Read: func(_ context.Context, to io.Writer) error {
			st, err := os.Stat(path)
			if err != nil {
				return err
			}
			if !st.Mode().IsRegular() {
				return &fs.PathError{Op: "read", Path: path, Err: errors.New("must be a file")}
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			from := max(0, st.Size()-tailBytes)
			text, err := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
			if from > 0 { // half a line could be half a secret
				fmt.Fprintf(to, "(the first %d bytes are left out)\n", from)
				text = text[bytes.IndexByte(text, '\n')+1:]
			}
			_, bad := to.Write(text)
			return errors.Join(err, bad)
		}})
	}
	return out
}

// logsOfLibvirt are libvirtd's own, and those of our machines.
func (l *looked) logsOfLibvirt() ([]diag.Source, error) {
	ours, err := filepath.Glob(filepath.Join(l.libvirtLogs, "qemu", "muster-*.log"))
	own, _ := filepath.Glob(filepath.Join(l.libvirtLogs, "*.log"))
	if _, bad := os.Stat(l.libvirtLogs); bad != nil {
		err = bad
	}
	return files(append(own, ours...)), err
}

// ownName is what the names of our machines begin with.
const ownName = "muster-"

// domains are the descriptions of our machines, by virsh.
func (l *looked) domains(ctx context.Context) (out []diag.Source, err error) {
	var names bytes.Buffer
	err = execute(ctx, &names, "virsh", "--readonly", "--connect", l.libvirt, "list", "--all", "--name")
	for name := range strings.FieldsSeq(names.String()) {
		if !strings.HasPrefix(name, ownName) {
			continue
		}
		out = append(out, diag.Source{Name: name, Ext: "xml", Read: func(ctx context.Context, to io.Writer) error {
			return execute(ctx, to, "virsh", "--readonly", "--connect", l.libvirt, "dumpxml", name)
		}})
	}
	return out, err
}
