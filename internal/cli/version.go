package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/cli/form"
)

// VersionReport is which program this is. Field names are stable.
type VersionReport struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersion(d Deps) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "version", Short: "Say which version this is", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := form.Check(output); err != nil {
				return err
			}
			r := VersionReport{Version: d.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			return form.Emit(c.OutOrStdout(), output, r, func() string { return fmt.Sprintf("muster %s, %s, %s\n", r.Version, r.Go, r.Platform) })
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return c
}
