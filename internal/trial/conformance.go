package trial

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/conformance"
)

// NewConformance returns `muster-lab conformance DIR`: it plays behaviour cases on the engine and prints what differs. Its
// error, and so a non-zero exit, means a difference that the ledger does not accept.
func NewConformance() *cobra.Command {
	var o conformance.Options
	var output string
	c := &cobra.Command{
		Use:   "conformance DIR",
		Short: "Play KAI's behaviour cases on the engine and print what differs",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output is %q; it must be text or json", output)
			}
			r, err := conformance.Run(args[0], o)
			if err != nil {
				return err
			}
			if output == "json" {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				err = e.Encode(&r)
			} else {
				err = r.Print(cmd.OutOrStdout())
			}
			if err != nil {
				return fmt.Errorf("printing the report: %w", err)
			}
			if !r.OK() {
				return errors.New("conformance: there are differences that the ledger does not account for")
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringSliceVar(&o.Tags, "tags", nil, "only cases with any of these tags")
	f.StringSliceVar(&o.Without, "without", nil, "only cases with none of these tags")
	f.StringSliceVar(&o.Actions, "action", nil, "only cases that run one of these actions alone; cycle and rounds name those that run several")
	f.StringVar(&o.Case, "case", "", "only the case with this id")
	f.BoolVar(&o.KeepNominations, "keep-nominations", false, "keep nominations between rounds instead of dropping them")
	f.StringVarP(&output, "output", "o", "text", "text or json")
	return c
}
