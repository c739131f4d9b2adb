package app

import "runtime"

// LimitProcessors bounds how many threads of this process run Go code at a time (GOMAXPROCS) by n, at least 1. It leaves what is
// lower already, such as what Go makes of a container's limit, and whatever the user has said with the environment variable
// GOMAXPROCS. It returns the number that holds now.
//
// A role waits for the API server most of the time, and each event that comes is little work. With as many threads as a node has
// processors Go wakes one of them for each event, which looks for work of the others before it sleeps again: that costs more than the
// event does.
func LimitProcessors(n int, lookup func(string) (string, bool)) int {
	if own, _ := lookup("GOMAXPROCS"); own == "" && runtime.GOMAXPROCS(0) > n {
		runtime.GOMAXPROCS(n) // from here on Go no longer follows the container's limit
	}
	return runtime.GOMAXPROCS(0)
}
