package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// MemoryLimit keeps Go's soft memory limit below the container's, so that a burst of objects makes the garbage collector work
// harder instead of getting the process killed. KAI's operator sets the same ratio through KAI_GOMEMLIMIT_RATIO.
type MemoryLimit struct {
	// Ratio is the part of the container's limit that the heap may fill: above 0, at most 1.
	Ratio float64
	// Period is the time between looks at the container's limit, which can be resized in place; 0 means 15 s.
	Period time.Duration
	// Root is where the control group file system lies; empty means /sys/fs/cgroup.
	Root string
}

// MemoryLimitFromEnv reads KAI_GOMEMLIMIT_RATIO: unset means 0.9. The second result is false when GOMEMLIMIT is set, for then the
// limit is the user's own and the role must not run.
func MemoryLimitFromEnv(lookup func(string) (string, bool)) (MemoryLimit, bool, error) {
	m := MemoryLimit{Ratio: 0.9}
	if v, ok := lookup("KAI_GOMEMLIMIT_RATIO"); ok && v != "" {
		ratio, err := strconv.ParseFloat(v, 64)
		if err != nil || !(ratio > 0 && ratio <= 1) {
			return m, false, fmt.Errorf("KAI_GOMEMLIMIT_RATIO=%q: it must be a number above 0 and at most 1", v)
		}
		m.Ratio = ratio
	}
	own, set := lookup("GOMEMLIMIT")
	return m, !set || own == "", nil
}

// Run sets the limit now and whenever the container's limit has changed, until ctx ends. A container without a limit, or a machine
// without control groups, leaves Go's limit as it is.
func (m MemoryLimit) Run(ctx context.Context) error {
	return m.run(ctx, func(limit int64) { debug.SetMemoryLimit(limit) })
}

func (m MemoryLimit) run(ctx context.Context, set func(bytes int64)) error {
	log := logr.FromContextOrDiscard(ctx)
	period := m.Period
	if period == 0 {
		period = 15 * time.Second
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	last := int64(-1)
	complained := false
	for {
		limit, err := m.container()
		switch {
		case err != nil && !complained:
			complained = true
			log.Error(err, "cannot follow the container's memory limit")
		case err == nil && limit != last:
			last = limit
			if limit > 0 {
				soft := int64(float64(limit) * m.Ratio)
				log.V(1).Info("memory limit", "container", limit, "soft", soft)
				set(soft)
			} else {
				set(math.MaxInt64)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// container is the container's limit in bytes, 0 when there is none: version 2 of control groups first, then version 1.
func (m MemoryLimit) container() (int64, error) {
	root := m.Root
	if root == "" {
		root = "/sys/fs/cgroup"
	}
	for _, file := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		data, err := os.ReadFile(path.Join(root, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		text := strings.TrimSpace(string(data))
		if text == "max" {
			return 0, nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("%s says %q, which is no number of bytes", file, text)
		}
		// Version 1 writes "none" as the largest multiple of a page.
		if n >= math.MaxInt64&^0xffff {
			return 0, nil
		}
		return n, nil
	}
	return 0, nil
}
