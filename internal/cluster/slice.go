package cluster

import "strings"

// slicePrefix begins the names of the dimensions that are slices of GPUs cut by MIG.
const slicePrefix = "nvidia.com/mig-"

// Slice is a dimension whose units are slices of GPUs.
type Slice struct {
	// Dim is the dimension's index.
	Dim int
	// GPUs is how many GPUs one slice counts as in queues.
	GPUs int64
}

// SliceGPUs returns how many GPUs one unit of a resource counts as when it is a slice of a GPU, 0 for any other resource.
// It is the g of nvidia.com/mig-<g>g.<m>gb, as in KAI; of compute instances (1c.3g.20gb) and of slices with attributes
// (1g.10gb.me), too. A slice whose name says no g counts as one, so that nobody gets GPUs for nothing.
func SliceGPUs(name string) int64 {
	profile, ok := strings.CutPrefix(name, slicePrefix)
	if !ok {
		return 0
	}
	for part := range strings.SplitSeq(profile, ".") {
		digits, ok := strings.CutSuffix(part, "g")
		if !ok || len(digits) != 1 || digits[0] < '1' || digits[0] > '9' {
			continue
		}
		return int64(digits[0] - '0')
	}
	return 1
}

// Slices lists the dimensions that are slices of GPUs, by index. The list is shared and must not be written to.
func (d Dims) Slices() []Slice { return d.slices }

// SlicedGPUs returns how much the slices in r count as in queues, in milli-GPU.
func (d Dims) SlicedGPUs(r Resources) int64 {
	sum := int64(0)
	for _, s := range d.slices {
		sum = capped(sum, max(-MaxSum/(s.GPUs*Whole), min(r.At(s.Dim), MaxSum/(s.GPUs*Whole)))*s.GPUs*Whole)
	}
	return sum
}

// Slicing says how the GPUs of a node are cut into slices, which decides who may run there.
type Slicing uint8

// The ways to cut. Whoever asks for no GPU may run on any node.
const (
	// Unsliced GPUs serve pods that ask for whole ones and parts of them, and no slices.
	Unsliced Slicing = iota
	// SlicedSingle GPUs are cut alike, and each slice is offered as if it were a GPU: there are no parts of those, nor slices
	// by name.
	SlicedSingle
	// SlicedMixed GPUs are offered by the names of their slices, and in no other way.
	SlicedMixed
	// SlicedAnyhow GPUs are cut, and nobody said how: whoever finds what it asks for may run.
	SlicedAnyhow
)

var slicings = [...]string{"none", "single", "mixed", "unknown"}

// String returns the strategy in the words of NVIDIA's device plugin.
func (s Slicing) String() string {
	if int(s) < len(slicings) {
		return slicings[s]
	}
	return "?"
}
