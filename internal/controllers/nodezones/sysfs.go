package nodezones

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxCPU bounds CPU numbers, so that a broken file cannot take all memory.
const maxCPU = 1 << 16

// readCPUs returns the NUMA zone of each CPU, from the kernel's files below root ("/sys").
func readCPUs(root string) (map[int64]int64, error) {
	dirs, err := filepath.Glob(filepath.Join(root, "devices/system/node/node[0-9]*"))
	if err != nil {
		return nil, fmt.Errorf("look for NUMA zones below %s: %w", root, err)
	}
	out := map[int64]int64{}
	zones := 0
	for _, dir := range dirs {
		zone, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(dir), "node"), 10, 32)
		if err != nil {
			continue // another file of that prefix
		}
		text, err := os.ReadFile(filepath.Join(dir, "cpulist"))
		if err != nil {
			return nil, fmt.Errorf("read the CPUs of NUMA zone %d: %w", zone, err)
		}
		cpus, err := parseCPUs(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "cpulist"), err)
		}
		zones++
		for _, c := range cpus {
			out[c] = zone
		}
	}
	if zones == 0 {
		return nil, fmt.Errorf("no NUMA zone (node0, node1, …) in %s", filepath.Join(root, "devices/system/node"))
	}
	return out, nil
}

// parseCPUs reads the kernel's list format: numbers and ranges, separated by commas. A zone without CPUs has an empty list.
func parseCPUs(text string) ([]int64, error) {
	var out []int64
	for _, part := range strings.Split(strings.TrimSpace(text), ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseInt(from, 10, 64)
		last := first
		if err == nil && isRange {
			last, err = strconv.ParseInt(to, 10, 64)
		}
		if err != nil || first < 0 || last < first || last >= maxCPU {
			return nil, fmt.Errorf("%q is no list of CPUs", part)
		}
		for c := first; c <= last; c++ {
			out = append(out, c)
		}
	}
	return out, nil
}
