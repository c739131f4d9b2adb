package app

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/muster-scheduler/muster/internal/spelling"
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

// nearest is the declared flag that was probably meant: at most a third of the letters are others.
func nearest(fs *pflag.FlagSet, name string) string {
	var known []string
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	return spelling.Nearest(name, known, max(1, len(name)/3))
}
