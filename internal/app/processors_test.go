package app

import (
	"runtime"
	"testing"
)

// TestLimitProcessors sets a value of the whole process, so that it runs beside no other test.
func TestLimitProcessors(t *testing.T) { //nolint:paralleltest // see above
	had := runtime.GOMAXPROCS(4)
	t.Cleanup(func() { runtime.GOMAXPROCS(had) })
	unset := func(string) (string, bool) { return "", false }
	for _, c := range []struct {
		name   string
		had, n int
		lookup func(string) (string, bool)
		wanted int
	}{
		{"more than the bound", 4, 2, unset, 2},
		{"fewer already", 1, 2, unset, 1},
		{"the user's own", 4, 2, func(key string) (string, bool) { return "4", key == "GOMAXPROCS" }, 4},
		{"set to nothing", 4, 2, func(string) (string, bool) { return "", true }, 2},
	} {
		runtime.GOMAXPROCS(c.had)
		if got := LimitProcessors(c.n, c.lookup); got != c.wanted || runtime.GOMAXPROCS(0) != c.wanted {
			t.Errorf("%s: %d, and %d holds; want %d", c.name, got, runtime.GOMAXPROCS(0), c.wanted)
		}
	}
}
