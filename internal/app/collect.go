package app

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// CollectAt has this process collect its garbage when the heap has grown by so many percent since the last collection, but not before the heap has
// floor bytes: what lives in a small heap is scanned as often as it takes to write that much again, and saves nothing that the process will not need later. It returns what
// ends that, and leaves the percent. Above the floor it is debug.SetGCPercent.
//
// It looks at what lives after each collection, from a cleanup that the collection itself runs, so that a heap that grows fast is not measured by what it was.
func CollectAt(percent int, floor uint64) (stop func()) {
	if floor == 0 {
		debug.SetGCPercent(percent)
		return func() {}
	}
	c := &collector{percent: percent, floor: floor}
	c.set()
	c.arm()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stopped = true
		debug.SetGCPercent(percent)
	}
}

type collector struct {
	percent int
	floor   uint64

	mu      sync.Mutex
	now     int // the percent that holds
	stopped bool
}

// arm has set called after the next collection, and so on.
func (c *collector) arm() {
	// Small objects without pointers share memory, and would be kept by each other: this one has a pointer.
	mark := &struct{ self *collector }{c}
	runtime.AddCleanup(mark, func(c *collector) {
		if c.set() {
			c.arm()
		}
	}, c)
}

// set chooses the percent for what lives now; false when there is nothing to choose any more.
func (c *collector) set() bool {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return false
	}
	if p := growth(c.percent, c.floor, live[0].Value.Uint64()); p != c.now {
		c.now = p
		debug.SetGCPercent(p) // stops the world for some microseconds
	}
	return true
}

// growth is at how many percent more than lives now the heap has what is asked for, in steps of ten.
func growth(percent int, floor, live uint64) int {
	const most = 1000 // of a heap that is all but empty
	p := most
	if live > 0 {
		p = int(min(most, math.Floor(float64(floor)/float64(live)*10-10)*10))
	}
	return max(percent, p)
}
