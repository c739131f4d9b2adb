package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kbv1alpha1 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	kbv1alpha2 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	apivolcano "github.com/muster-scheduler/muster/api/volcano"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/migrate"
	"github.com/muster-scheduler/muster/internal/migrate/kubebatch"
	"github.com/muster-scheduler/muster/internal/migrate/kueue"
	"github.com/muster-scheduler/muster/internal/migrate/volcano"
)

// errNotNow ends a check that found something in the way.
var errNotNow = errors.New("do not start Muster yet")

// NewMigrate returns `muster migrate`: the way from KAI, Kueue, Volcano or kube-batch to Muster.
func NewMigrate(d Deps) *cobra.Command {
	c := &cobra.Command{
		Use: "migrate", Short: "Change over from KAI, Kueue, Volcano or kube-batch: what stands in the way, and what will differ", Args: cobra.NoArgs,
		RunE: app.NeedsCommand,
	}
	c.AddCommand(newMigrateCheck(d), newMigrateQueues(d), newMigrateValues())
	return c
}

func newMigrateCheck(d Deps) *cobra.Command {
	var output, from string
	var options kueue.Options
	o := app.ClientOptions{QPS: -1, UserAgent: "muster/" + d.Version}
	c := &cobra.Command{
		Use: "check", Short: "Say whether Muster may be started in this cluster now, and what will differ", Args: cobra.NoArgs,
		Long: "Say whether Muster may be started in this cluster now. It may not while KAI runs: KAI's single scheduler holds no Lease, so that nothing\n" +
			"else would keep the two apart. It also looks at Leases, CustomResourceDefinitions, webhooks that are left behind, priority classes and\n" +
			"queues, and tells beforehand what will differ for the objects that this cluster has. It reads, and changes nothing.\n" +
			"With --from kueue it looks at Kueue instead, which may run beside Muster: at its controller and webhooks, at what it holds, and at what\n" +
			"gets lost of its queues and the kinds of workloads that it manages.\n" +
			"With --from volcano it looks at Volcano, whose scheduler and controllers must not run beside Muster's face of it, and tells each difference of\n" +
			"the ledger of Volcano that this cluster's objects, its scheduler file and its programs' flags are concerned by.\n" +
			"With --from kube-batch it looks at kube-batch, which must not run beside Muster's face of it: at its program, its lock, its kinds and its scheduler file.\n" +
			"It ends with an error (exit status 1) while something stands in the way.",
		Example: "  muster migrate check\n  muster migrate check -o json\n  muster migrate check --from kueue\n  muster migrate check --from volcano\n  muster migrate check --from kube-batch",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := form.Check(output); err != nil {
				return err
			}
			if !slices.Contains([]string{fromKAI, fromKueue, fromVolcano, fromKubeBatch}, from) {
				return fmt.Errorf("--from is %q; it must be %s, %s, %s or %s", from, fromKAI, fromKueue, fromVolcano, fromKubeBatch)
			}
			reader, host, err := migrationReader(o)
			if err != nil {
				return err
			}
			var report *migrate.Report
			switch from {
			case fromKueue:
				report, err = kueue.Check(c.Context(), reader, options)
			case fromVolcano:
				report, err = volcano.Check(c.Context(), reader, time.Now())
			case fromKubeBatch:
				report, err = kubebatch.Check(c.Context(), reader, time.Now())
			default:
				report, err = migrate.Check(c.Context(), reader, time.Now())
			}
			if err != nil {
				return advise(err, host)
			}
			if err := form.Emit(c.OutOrStdout(), output, report, func() string { return drawMigration(report) }); err != nil {
				return err
			}
			if report.Stops() {
				return errNotNow
			}
			return nil
		},
	}
	fs := c.Flags()
	migrationFlags(fs, &o, &options)
	fs.StringVar(&from, "from", fromKAI, "what the cluster has now: kai, kueue, volcano or kube-batch")
	fs.StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return c
}

// What a cluster may come from.
const (
	fromKAI     = "kai"
	fromKueue   = "kueue"
	fromVolcano = "volcano"

	fromKubeBatch = "kube-batch"
)

// migrationFlags are those of all commands that look at a cluster.
func migrationFlags(fs *pflag.FlagSet, o *app.ClientOptions, options *kueue.Options) {
	clientFlags(fs, o)
	fs.StringVar(&options.CohortPrefix, "cohort-prefix", "", "what the names of cohorts of Kueue's get before them as Queues, such as cohort-")
}

// migrationReader reads a cluster's objects, the unknown ones too; host names it.
func migrationReader(o app.ClientOptions) (reader client.Reader, host string, err error) {
	reader, config, err := dial(o, migrationKinds()...)
	if err != nil {
		return nil, "", err
	}
	return reader, config.Host, nil
}

// migrationKinds are those that are looked at.
func migrationKinds() []func(*runtime.Scheme) error {
	return []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, queuev2.AddToScheme, v2alpha2.AddToScheme, apivolcano.AddToScheme, kbv1alpha1.AddToScheme, kbv1alpha2.AddToScheme}
}

// drawMigration draws a report, a section for each level.
func drawMigration(r *migrate.Report) string {
	var b strings.Builder
	wrapped := func(first, indent, text string) {
		for i := 0; text != ""; i++ {
			var line string
			line, text = form.Break(text, form.Width-len(indent))
			if i > 0 {
				first = indent
			}
			b.WriteString(first + line + "\n")
		}
	}
	for _, section := range []struct {
		level migrate.Level
		title string
	}{{migrate.Stop, "IN THE WAY"}, {migrate.See, "TO BE SEEN TO"}, {migrate.Differs, "WILL DIFFER"}} {
		open := false
		for _, f := range r.Findings {
			if f.Level != section.level {
				continue
			}
			if !open {
				b.WriteString(section.title + "\n")
				open = true
			}
			text := f.About + ": " + f.Text
			if f.Row != "" {
				text += " [" + f.Row + "]"
			}
			wrapped("  ", "    ", text)
			if f.Next != "" {
				wrapped("    next: ", "      ", f.Next)
			}
		}
	}
	if len(r.Clear) > 0 {
		b.WriteString("CLEAR\n")
		for _, text := range r.Clear {
			b.WriteString("  " + text + "\n")
		}
	}
	if r.Stops() {
		b.WriteString("\nDo not start Muster yet.\n")
	} else {
		b.WriteString("\nMuster may be started.\n")
	}
	return b.String()
}
