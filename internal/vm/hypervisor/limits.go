package hypervisor

import (
	"fmt"
	"strings"

	"github.com/muster-scheduler/muster/internal/vm"
)

// MaxCPU is the highest number of a host CPU that is taken.
const MaxCPU = 4095

// Check says what no hypervisor can do. Its errors are Invalid and name the field.
func (l Limits) Check() error {
	var bad []string
	add := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	if l.VCPUs < 0 || l.VCPUs > MaxCPU {
		add("VCPUs %d: must be 0 to %d", l.VCPUs, MaxCPU)
	}
	if l.Shares > 262144 {
		add("Shares %d: must be at most 262144", l.Shares)
	}
	if l.Period != 0 && (l.Period < 1000 || l.Period > 1_000_000) {
		add("Period %d: must be 1000 to 1000000 microseconds", l.Period)
	}
	if l.Quota != 0 && l.Quota != -1 && l.Quota < 1000 {
		add("Quota %d: must be -1, or 1000 microseconds or more", l.Quota)
	}
	if l.Memory > 1<<62 {
		add("Memory %d: must be at most 2^62 bytes", l.Memory)
	}
	for _, c := range l.CPUs {
		if c < 0 || c > MaxCPU {
			add("CPUs: %d: must be 0 to %d", c, MaxCPU)
			break
		}
	}
	if bad != nil {
		return vm.Errorf(vm.Invalid, "limits: %s", strings.Join(bad, "; "))
	}
	return nil
}

// With gives the limits after a change.
func (l Limits) With(change Limits) Limits {
	if change.VCPUs != 0 {
		l.VCPUs = change.VCPUs
	}
	if change.Shares != 0 {
		l.Shares = change.Shares
	}
	if change.Period != 0 {
		l.Period = change.Period
	}
	if change.Quota != 0 {
		l.Quota = change.Quota
	}
	if change.Memory != 0 {
		l.Memory = change.Memory
	}
	if change.CPUs != nil {
		l.CPUs = change.CPUs
	}
	return l
}
