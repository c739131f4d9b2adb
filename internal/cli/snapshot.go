package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/replay"
)

// NewReplay returns the commands about decisions as files, snapshot, replay and snapshot-tool, and debug, which asks the same scheduler.
func NewReplay(d Deps) []*cobra.Command {
	s := &cobra.Command{
		Use: "snapshot", Short: "Save what a running scheduler decided on, to be looked at and decided again elsewhere", Args: cobra.NoArgs,
		RunE: app.NeedsCommand,
	}
	s.AddCommand(newSave(d), newCycles(d))
	return []*cobra.Command{s, newReplayCase(d), newSnapshotTool(d), newDebug(d)}
}

// source is where a scheduler serves its snapshots.
type source struct {
	address string
	timeout time.Duration
	client  app.ClientOptions
}

func (s *source) flags(c *cobra.Command, d Deps) {
	s.client = app.ClientOptions{QPS: -1, UserAgent: "muster/" + d.Version}
	c.Flags().StringVar(&s.client.Kubeconfig, "kubeconfig", "", "file that names the cluster whose scheduler is meant; empty: $KUBECONFIG or the user's default")
	c.Flags().StringVar(&s.client.Context, "context", "", "context of the kubeconfig; empty: its current one")
	c.Flags().StringVar(&s.address, "server", "127.0.0.1:8081", "HOST:PORT of the scheduler's --plugin-server-port. It listens on its own machine only: of a scheduler in a pod, "+
		"forward the port first (kubectl port-forward)")
	c.Flags().DurationVar(&s.timeout, "timeout", time.Minute, "how long it may take")
}

// get asks the scheduler for snapshots.
func (s *source) get(c *cobra.Command, query url.Values, read func(*http.Response) error) error {
	return s.ask(c, "/snapshot", query, read)
}

// ask asks the scheduler for a path with its parameters. Any scheduler of this machine may have the port: an answer of one that is of
// another cluster than the kubeconfig's is refused.
func (s *source) ask(c *cobra.Command, path string, query url.Values, read func(*http.Response) error) error {
	ctx, cancel := context.WithTimeout(c.Context(), s.timeout)
	defer cancel()
	u := url.URL{Scheme: "http", Host: s.address, Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("--server %q: %w", s.address, err)
	}
	resp, err := http.DefaultClient.Do(req)
	var nobody *net.OpError
	switch {
	case errors.As(err, &nobody):
		return fmt.Errorf("%w\nnothing answers at %s. A scheduler serves this on 127.0.0.1 of its own machine, at --plugin-server-port. For one in a pod: "+
			"kubectl -n kai-scheduler port-forward deploy/muster-scheduler-default 8081", err, s.address)
	case err != nil:
		return fmt.Errorf("ask the scheduler: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512)) // what it said is only told
		return fmt.Errorf("%s answers %s: %s", s.address, resp.Status, strings.TrimSpace(string(text)))
	}
	if err := s.meant(ctx, c, resp.Header.Get(replay.ClusterHeader)); err != nil {
		return err
	}
	return read(resp)
}

// meant returns an error if the scheduler that answered is of another cluster than the kubeconfig's. Where that cannot be known, or the
// scheduler was named and the cluster was not, it tells what it knows.
func (s *source) meant(ctx context.Context, c *cobra.Command, cluster string) error {
	note := func(format string, args ...any) { fmt.Fprintf(c.ErrOrStderr(), "note: "+format+"\n", args...) }
	if cluster == "" {
		note("the scheduler at %s does not say which cluster it is of", s.address)
		return nil
	}
	config, err := app.RESTConfig(s.client)
	var wanted types.UID
	if err == nil {
		wanted, err = clusterOf(ctx, config)
	}
	if err != nil {
		note("the scheduler at %s is of cluster %s; whether that is the one of the kubeconfig was not checked: %v", s.address, cluster, err)
		return nil
	}
	if string(wanted) == cluster {
		return nil
	}
	text := fmt.Sprintf("the scheduler at %s is of another cluster (%s) than the one of the kubeconfig (%s, %s)", s.address, cluster, wanted, config.Host)
	if f := c.Flags(); f.Changed("server") && !f.Changed("kubeconfig") && !f.Changed("context") {
		note("%s", text)
		return nil
	}
	return fmt.Errorf("%s. Name the scheduler that is meant with --server, or its cluster with --kubeconfig or --context", text)
}

// clusterOf is what tells a cluster from all others: the UID of its namespace kube-system.
func clusterOf(ctx context.Context, config *rest.Config) (types.UID, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	n, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return n.UID, nil
}

func newSave(d Deps) *cobra.Command {
	var from source
	var cycle uint64
	c := &cobra.Command{
		Use: "save FILE", Short: "Save a cycle of a running scheduler: the cluster as it saw it, its memory and profile, and what it decided", Args: cobra.ExactArgs(1),
		Long: "Save the latest cycle of a running scheduler, or another one that it keeps, to FILE: the cluster as the scheduler saw it, its own\n" +
			"decisions under way included, what it remembers, its profile, the time, and what it decided. `muster replay FILE` decides on it\n" +
			"again. The file holds names and labels of all pods, and no contents of ConfigMaps or Secrets.",
		Example: "  muster snapshot save now.muster\n  muster snapshot save bad.muster --cycle 4711",
		RunE: func(c *cobra.Command, args []string) error {
			query := url.Values{}
			if cycle > 0 {
				query.Set("cycle", strconv.FormatUint(cycle, 10))
			}
			return from.get(c, query, func(resp *http.Response) error {
				if err := writeWhole(args[0], io.LimitReader(resp.Body, replay.DefaultLimits().Packed)); err != nil {
					return err
				}
				_, err := fmt.Fprintf(c.OutOrStdout(), "cycle %s is in %s; `muster replay %s` decides on it again\n", resp.Header.Get("Muster-Cycle"), args[0], args[0])
				return err
			})
		},
	}
	from.flags(c, d)
	c.Flags().Uint64Var(&cycle, "cycle", 0, "number of the cycle, of those that muster snapshot list names; 0 for the latest")
	return c
}

// writeWhole writes a file whole or not at all. It is for its owner's eyes: snapshots tell all about a cluster.
func writeWhole(name string, r io.Reader) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".muster-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = io.Copy(f, r)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is what is told
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func newCycles(d Deps) *cobra.Command {
	var from source
	var output string
	c := &cobra.Command{
		Use: "list", Short: "List the cycles that a running scheduler keeps (--record-decisions)", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := form.Check(output); err != nil {
				return err
			}
			var cycles []replay.Cycle
			err := from.get(c, url.Values{"list": {""}}, func(resp *http.Response) error {
				return json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&cycles)
			})
			if err != nil {
				return err
			}
			return form.Emit(c.OutOrStdout(), output, cycles, func() string {
				rows := make([][]string, 0, len(cycles))
				for _, k := range cycles {
					rows = append(rows, []string{strconv.FormatUint(k.Cycle, 10), k.At.UTC().Format(time.TimeOnly), strconv.Itoa(k.Binds), strconv.Itoa(k.Evictions), strconv.Itoa(k.Promises)})
				}
				return form.Table([]form.Column{{Title: "CYCLE", Right: true}, {Title: "TIME", Keep: true}, {Title: "BINDS", Right: true}, {Title: "EVICTIONS", Right: true}, {Title: "PROMISES", Right: true}}, rows)
			})
		},
	}
	from.flags(c, d)
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return c
}
