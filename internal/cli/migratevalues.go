package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/deploy/chart"
	"github.com/muster-scheduler/muster/internal/cli/form"
)

// newMigrateValues is `muster migrate values`: what of a values file of KAI's has no effect.
func newMigrateValues() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "values FILE", Short: "Say which values of a Helm values file for KAI have no effect in Muster's chart, and why", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := form.Check(output); err != nil {
				return err
			}
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			found, err := chart.Report(text)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return form.Emit(c.OutOrStdout(), output, found, func() string {
				if len(found) == 0 {
					return "Every value has its effect.\n"
				}
				rows := make([][]string, 0, len(found))
				for _, f := range found {
					rows = append(rows, []string{f.Path, f.Why})
				}
				return form.Table([]form.Column{{Title: "VALUE", Keep: true}, {Title: "HAS NO EFFECT BECAUSE", Wrap: true}}, rows)
			})
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return c
}
