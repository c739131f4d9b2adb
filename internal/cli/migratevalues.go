package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/deploy/chart"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/migrate/volcano"
)

// newMigrateValues is `muster migrate values`: what of a values file of KAI's has no effect, or what one of Volcano's comes to.
func newMigrateValues() *cobra.Command {
	var output, from string
	c := &cobra.Command{
		Use: "values FILE", Short: "Say what becomes of the values of a Helm values file for KAI or Volcano in Muster's chart", Args: cobra.ExactArgs(1),
		Long: "Say which values of a Helm values file for KAI, which Muster's chart takes as it is, have no effect there, and why.\n" +
			"With --from volcano, print the values of Muster's chart that do what a values file for Volcano's does: comments say what became of each value, and why some have\n" +
			"no effect. What is printed is a values file; -o json and -o yaml are for programs. It reads the file alone.",
		Example: "  muster migrate values kai-values.yaml\n  muster migrate values --from volcano volcano-values.yaml > muster-values.yaml",
		RunE: func(c *cobra.Command, args []string) error {
			if err := form.Check(output); err != nil {
				return err
			}
			if from != fromKAI && from != fromVolcano {
				return fmt.Errorf("--from is %q; it must be %s or %s", from, fromKAI, fromVolcano)
			}
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			if from == fromVolcano {
				values, err := volcano.ConvertValues(text)
				if err != nil {
					return fmt.Errorf("%s: %w", args[0], err)
				}
				return form.Emit(c.OutOrStdout(), output, values, values.Text)
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
	c.Flags().StringVar(&from, "from", fromKAI, "whose the file is: kai or volcano")
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return c
}
