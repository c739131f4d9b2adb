package app

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestGrowth(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live uint64
		want int
	}{
		{0, 1000}, {1, 1000}, {mib, 1000}, {10 * mib, 380}, {24 * mib, 100}, {36 * mib, 30}, {40 * mib, 30}, {48 * mib, 30}, {400 * mib, 30},
	} {
		got := growth(30, 48*mib, c.live)
		if got != c.want {
			t.Errorf("with %d bytes that live: %d %%, want %d", c.live, got, c.want)
		}
		if heap := float64(c.live) * (1 + float64(got)/100); got != 30 && heap > 48*mib {
			t.Errorf("with %d bytes that live the heap may have %.0f, more than the floor", c.live, heap)
		}
	}
}

var sink []byte //nolint:gochecknoglobals // what is assigned to it is on the heap

// Little lives: below the floor garbage is collected seldom, and as before once that has ended.
func TestCollectAt(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	collections := func() uint32 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range 4096 {
			sink = make([]byte, 64<<10)
		}
		runtime.ReadMemStats(&after)
		return after.NumGC - before.NumGC
	}
	stop := CollectAt(30, 64<<20)
	few := collections()
	stop()
	many := collections()
	if few == 0 || few*2 > many {
		t.Errorf("of 256 MiB of garbage: collected %d times with a floor of 64 MiB, %d times without", few, many)
	}
}
