package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/migrate"
)

// errNotNow ends a check that found something in the way.
var errNotNow = errors.New("do not start Muster yet")

// NewMigrate returns `muster migrate`: the way from KAI to Muster.
func NewMigrate(d Deps) *cobra.Command {
	c := &cobra.Command{
		Use: "migrate", Short: "Change over from KAI: what stands in the way, and what will differ", Args: cobra.NoArgs,
		RunE: app.NeedsCommand,
	}
	c.AddCommand(newMigrateCheck(d), newMigrateValues())
	return c
}

func newMigrateCheck(d Deps) *cobra.Command {
	var output string
	o := app.ClientOptions{QPS: -1, UserAgent: "muster/" + d.Version}
	c := &cobra.Command{
		Use: "check", Short: "Say whether Muster may be started in this cluster now, and what will differ from KAI", Args: cobra.NoArgs,
		Long: "Say whether Muster may be started in this cluster now. It may not while KAI runs: KAI's single scheduler holds no Lease, so that nothing\n" +
			"else would keep the two apart. It also looks at Leases, CustomResourceDefinitions, webhooks that are left behind, priority classes and\n" +
			"queues, and tells beforehand what will differ for the objects that this cluster has. It reads, and changes nothing.\n" +
			"It ends with an error (exit status 1) while something stands in the way.",
		Example: "  muster migrate check\n  muster migrate check -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := form.Check(output); err != nil {
				return err
			}
			config, err := app.RESTConfig(o)
			if err != nil {
				return err
			}
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, queuev2.AddToScheme, v2alpha2.AddToScheme} {
				if err := add(scheme); err != nil {
					return fmt.Errorf("build the scheme: %w", err)
				}
			}
			reader, err := client.New(config, client.Options{Scheme: scheme})
			if err != nil {
				return advise(err, config.Host)
			}
			report, err := migrate.Check(c.Context(), reader, time.Now())
			if err != nil {
				return advise(err, config.Host)
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
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "file that names the API server; empty: $KUBECONFIG or the user's default")
	fs.StringVar(&o.Context, "context", "", "context of the kubeconfig; empty: its current one")
	fs.StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return c
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
			wrapped("  ", "    ", f.About+": "+f.Text)
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
