package kubetest

import "runtime"

// Held is how many bytes of the heap are in use now, what nobody can reach not counted: for benchmarks of what is kept of something, which is the difference that it makes. What is measured must be
// reachable when Held is asked, which takes as long as two collections.
func Held() float64 {
	runtime.GC()
	runtime.GC() // pools are emptied by the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
