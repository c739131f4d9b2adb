package trial

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/sim"
)

// NewSim returns `muster-lab sim`: what the scheduler would do, without a cluster.
func NewSim() *cobra.Command {
	c := &cobra.Command{
		Use: "sim", Short: "Simulate the scheduler without a cluster: shares of queues, and who gets what over time", Args: cobra.NoArgs,
		RunE: app.NeedsCommand,
	}
	c.AddCommand(newFairShare(), newTimeShare(), newFragmentation())
	return c
}

// fairShareReport is one queue of `muster-lab sim fairshare`.
type fairShareReport struct {
	queue *sim.DivideQueue
	depth int
	share sim.Amounts
}

func newFairShare() *cobra.Command {
	var output, listen string
	var port uint16
	var cors, hierarchy bool
	c := &cobra.Command{
		Use:   "fairshare [FILE]",
		Short: "Divide a cluster over queues, as the scheduler would without history",
		Long: `Reads queues in the format of KAI's POST /simulate (FILE, or - for standard input) and prints the fair share of each: GPUs, milli-CPUs
and bytes. All queues are siblings, as in KAI's simulator, unless --hierarchy is given. With --listen it serves POST /simulate instead.`,
		Example: `  echo '{"totalResource":{"GPU":10},"queues":[
    {"uid":"a","resourceShare":{"gpu":{"deserved":2,"request":8}}},
    {"uid":"b","resourceShare":{"gpu":{"overQuotaWeight":3}}}]}' | muster-lab sim fairshare -
  muster-lab sim fairshare queues.json -o csv
  muster-lab sim fairshare --listen :8080 --enable-cors`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch output {
			case "table", "json", "yaml", "csv":
			default:
				return fmt.Errorf("--output is %q; it must be table, json, yaml or csv", output)
			}
			switch {
			case listen != "" && port != 0:
				return errors.New("--listen and --port both say where to serve: leave one of them out")
			case port != 0:
				listen = fmt.Sprintf(":%d", port)
			}
			switch {
			case listen != "" && len(args) > 0:
				return errors.New("--listen serves requests and takes no FILE: leave one of them out")
			case listen != "":
				ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
				defer stop()
				return serve(ctx, c.ErrOrStderr(), listen, sim.Handler(hierarchy, cors))
			case cors:
				return errors.New("--enable-cors is for --listen")
			case len(args) == 0:
				return errors.New("name a FILE (- for standard input), or --listen on an address")
			}
			in, name, err := open(c, args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			req, err := sim.ReadDivide(in, true)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			shares, err := sim.Divide(req, hierarchy)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if output == "csv" {
				return fairShareCSV(c.OutOrStdout(), arrange(req, shares, false))
			}
			return form.Emit(c.OutOrStdout(), output, shares, func() string { return drawFairShares(arrange(req, shares, hierarchy)) })
		},
	}
	f := c.Flags()
	f.StringVarP(&output, "output", "o", "table", "table, json, yaml or csv")
	f.StringVar(&listen, "listen", "", "address to serve POST /simulate on, such as :8080")
	f.Uint16Var(&port, "port", 0, "KAI's way to say --listen :PORT")
	f.Lookup("port").Hidden = true
	f.BoolVar(&cors, "enable-cors", false, "let web pages of any origin ask (with --listen)")
	f.BoolVar(&hierarchy, "hierarchy", false, "let the children of a queue (by parentQueue) divide what it got")
	return c
}

// open returns the file of that name, or standard input for "-", and what to call it in errors.
func open(c *cobra.Command, name string) (io.ReadCloser, string, error) {
	if name == "-" {
		return io.NopCloser(c.InOrStdin()), "standard input", nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, name, err
	}
	return f, name, nil
}

// serve answers requests on address until ctx ends, and gives those under way a few seconds then.
func serve(ctx context.Context, log io.Writer, address string, h http.Handler) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", address, err)
	}
	fmt.Fprintf(log, "serving POST http://%s/simulate\n", l.Addr())
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := s.Shutdown(grace); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// arrange puts queues into the order of the input, or below their parents.
func arrange(req *sim.DivideRequest, shares map[string]sim.Amounts, hierarchy bool) []fairShareReport {
	out := make([]fairShareReport, 0, len(req.Queues))
	var below func(parent string, depth int)
	below = func(parent string, depth int) {
		for i := range req.Queues {
			if q := &req.Queues[i]; !hierarchy || q.ParentQueue == parent {
				out = append(out, fairShareReport{q, depth, shares[q.UID]})
				if hierarchy {
					below(q.UID, depth+1)
				}
			}
		}
	}
	below("", 0)
	return out
}

// number prints an amount as JSON would.
func number(v float64) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(text)
}

func drawFairShares(queues []fairShareReport) string {
	if len(queues) == 0 {
		return "There are no queues.\n"
	}
	columns := []form.Column{
		{Title: "QUEUE"},
		{Title: "PRIORITY", Right: true},
		{Title: "GPU QUOTA", Right: true},
		{Title: "LIMIT", Right: true},
		{Title: "WEIGHT", Right: true},
		{Title: "WANTS", Right: true},
		{Title: "FAIR SHARE: GPU", Right: true},
		{Title: "CPU (m)", Right: true},
		{Title: "MEMORY (B)", Right: true},
	}
	rows := make([][]string, 0, len(queues))
	for _, r := range queues {
		gpu := r.queue.ResourceShare.GPU
		if gpu == nil {
			gpu = &sim.DivideShare{}
		}
		say := func(v *float64, missing string) string {
			switch {
			case v == nil:
				return missing
			case *v < 0:
				return "-"
			}
			return number(*v)
		}
		name := r.queue.Name
		if name == "" {
			name = r.queue.UID
		}
		rows = append(rows, []string{
			strings.Repeat("  ", r.depth) + name, strconv.Itoa(r.queue.Priority), say(gpu.Deserved, "0"), say(gpu.MaxAllowed, "-"),
			say(gpu.OverQuotaWeight, "1"), say(gpu.Request, "all"), number(r.share.GPU), number(r.share.CPU), number(r.share.Memory),
		})
	}
	return form.Table(columns, rows)
}

func fairShareCSV(w io.Writer, queues []fairShareReport) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"UID", "Name", "GPU", "CPU", "Memory"}}
	for _, r := range queues {
		rows = append(rows, []string{r.queue.UID, r.queue.Name, number(r.share.GPU), number(r.share.CPU), number(r.share.Memory)})
	}
	if err := out.WriteAll(slices.Clip(rows)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
