package app

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/spf13/pflag"
)

// Parse reads a role's command line into the flags declared on fs. Unknown flags, bad values and stray arguments are errors that
// name the role and, for a misspelt flag, the nearest one declared. -h and --help return pflag.ErrHelp.
func Parse(role string, fs *pflag.FlagSet, args []string) error {
	if err := fs.Parse(args); err != nil {
		return FlagError(role, fs, err)
	}
	if rest := fs.Args(); len(rest) > 0 {
		return fmt.Errorf("%s takes no arguments, only flags: %q", role, rest[0])
	}
	return nil
}

// FlagError makes a parse error of fs say whose flags they are and which flag was probably meant. It suits cobra's
// SetFlagErrorFunc too.
func FlagError(role string, fs *pflag.FlagSet, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("%s: %w", role, err)
	}
	name := unknown.GetSpecifiedName()
	if near := nearest(fs, name); near != "" {
		return fmt.Errorf("%s has no flag --%s; did you mean --%s?", role, name, near)
	}
	return fmt.Errorf("%s has no flag --%s; --help lists its flags", role, name)
}

// nearest finds the declared flag that is at most a third of its length in edits away, the closest first, ties by name.
func nearest(fs *pflag.FlagSet, name string) string {
	type candidate struct {
		name     string
		distance int
	}
	var all []candidate
	fs.VisitAll(func(f *pflag.Flag) {
		if d := edits(name, f.Name); d <= max(1, len(f.Name)/3) && !f.Hidden {
			all = append(all, candidate{f.Name, d})
		}
	})
	if len(all) == 0 {
		return ""
	}
	sort.Slice(all, func(i, j int) bool {
		if all[i].distance != all[j].distance {
			return all[i].distance < all[j].distance
		}
		return all[i].name < all[j].name
	})
	return all[0].name
}

// edits is the Levenshtein distance without regard to case and to _ for -.
func edits(a, b string) int {
	normal := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", "-") }
	a, b = normal(a), normal(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
