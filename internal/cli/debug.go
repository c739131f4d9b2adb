package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/kube/feed"
)

// newDebug is the command about what is wrong inside.
func newDebug(d Deps) *cobra.Command {
	c := &cobra.Command{
		Use: "debug", Short: "Look into a running scheduler, and at the API server, for what should not be", Args: cobra.NoArgs,
		RunE: app.NeedsCommand,
	}
	c.AddCommand(newStore(d), newKubernetes(d))
	return c
}

// errDiffers is the end of a comparison that found something.
var errDiffers = errors.New("the store differed from the API server; it was told again")

func newStore(d Deps) *cobra.Command {
	var from source
	var output string
	c := &cobra.Command{
		Use: "store", Short: "Compare what a running scheduler knows with what the API server has", Args: cobra.NoArgs,
		Long: "Compare what a running scheduler knows with what the API server has, now and whole. The scheduler does the same by itself, a\n" +
			"small part at a time. An object differs when its watch has passed the version at which the API server said so and the\n" +
			"scheduler still does not know; what is on its way is no difference, nor what the scheduler has decided itself. What differs is\n" +
			"mended before it is told. It ends with an error (exit status 1) if anything differed, and costs a list of each kind.",
		Example: "  muster debug store\n  muster debug store -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := form.Check(output); err != nil {
				return err
			}
			var got feed.Inspection
			err := from.ask(c, "/store", nil, func(resp *http.Response) error {
				return json.NewDecoder(io.LimitReader(resp.Body, 64<<20)).Decode(&got)
			})
			if err != nil {
				return err
			}
			if err := form.Emit(c.OutOrStdout(), output, &got, func() string { return drawInspection(&got) }); err != nil {
				return err
			}
			if len(got.Differences) > 0 {
				return errDiffers
			}
			return nil
		},
	}
	from.flags(c, d)
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return c
}

// drawInspection draws the differences, one line for each, and what was compared.
func drawInspection(i *feed.Inspection) string {
	var text strings.Builder
	total := 0
	var of []string
	for _, kind := range slices.Sorted(maps.Keys(i.Compared)) {
		if n := i.Compared[kind]; n > 0 {
			total += n
			of = append(of, fmt.Sprintf("%s %d", kind, n))
		}
	}
	for _, d := range i.Differences {
		fmt.Fprintln(&text, d.String())
	}
	fmt.Fprintf(&text, "%d objects compared, %d differed", total, len(i.Differences))
	if i.Undecided > 0 {
		fmt.Fprintf(&text, ", %d could not be decided: their watch has not come so far", i.Undecided)
	}
	fmt.Fprintf(&text, ". (%s)\n", strings.Join(of, ", "))
	return text.String()
}
