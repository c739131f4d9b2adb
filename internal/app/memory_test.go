package app

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMemoryLimitFollowsTheContainer(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("memory/memory.limit_in_bytes", "1000\n")
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var got []int64
		ended := make(chan error, 1)
		go func() {
			m := MemoryLimit{Ratio: 0.9, Root: root}
			ended <- m.run(ctx, func(limit int64) { got = append(got, limit) })
		}()
		for _, text := range []string{"", "2000\n", "2000\n", "no number\n", "max\n", "3000\n"} {
			if text != "" {
				put("memory.max", text)
			}
			elapse(20 * time.Second)
			synctest.Wait()
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if d := cmp.Diff([]int64{900, 1800, math.MaxInt64, 2700}, got); d != "" {
			t.Errorf("limits set (-want +got):\n%s", d)
		}
	})
}

func TestMemoryLimitFromEnv(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		env   map[string]string
		ratio float64
		run   bool
		bad   bool
	}{
		{nil, 0.9, true, false},
		{map[string]string{"KAI_GOMEMLIMIT_RATIO": "0.5"}, 0.5, true, false},
		{map[string]string{"GOMEMLIMIT": "1GiB"}, 0.9, false, false},
		{map[string]string{"KAI_GOMEMLIMIT_RATIO": "0"}, 0, false, true},
		{map[string]string{"KAI_GOMEMLIMIT_RATIO": "1.1"}, 0, false, true},
		{map[string]string{"KAI_GOMEMLIMIT_RATIO": "NaN"}, 0, false, true},
		{map[string]string{"KAI_GOMEMLIMIT_RATIO": "most"}, 0, false, true},
	} {
		m, run, err := MemoryLimitFromEnv(func(name string) (string, bool) { v, ok := test.env[name]; return v, ok })
		if (err != nil) != test.bad || run != test.run || (!test.bad && m.Ratio != test.ratio) {
			t.Errorf("%v: got %g, %t, %v", test.env, m.Ratio, run, err)
		}
	}
}
