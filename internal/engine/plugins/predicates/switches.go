package predicates

import (
	"fmt"
	"strconv"

	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// SwitchesFactory declares Volcano's plugin predicates: its arguments are read, and what cannot be is refused. It has no part of its own: the checks of nodes are the same for
// the gangs of all faces, and none is switched off (see [Switches]).
var SwitchesFactory = policy.Makes(func(args policy.Arguments) (func(*policy.View) struct{}, []string, error) {
	known := []string{"predicate.CacheEnable", "volumebinding.weight", "volumebinding.bindTimeoutSeconds", "volumebinding.shape", "dynamicresources.filterTimeoutSeconds"}
	for _, s := range Switches() {
		known = append(known, s.Argument)
	}
	for _, name := range known[len(known)-len(Switches()):] {
		if text, said := args[name]; said {
			if _, err := strconv.ParseBool(text); err != nil {
				return nil, nil, fmt.Errorf("argument %q is %.40q; it must be true or false", name, text)
			}
		}
	}
	return func(*policy.View) struct{} { return struct{}{} }, args.Unknown(known...), nil
})

// Switch is a check of nodes that a scheduler file of Volcano's may ask to be switched off, and why it stays on.
type Switch struct{ Argument, Why string }

// Switches are all of them.
func Switches() []Switch {
	const (
		kubelet = "the kubelet turns away pods that do not pass it"
		hangs   = "a pod that does not pass it never starts on its node"
		others  = "other pods, of other faces too, rely on it"
	)
	return []Switch{
		{"predicate.NodeAffinityEnable", kubelet},
		{"predicate.NodePortsEnable", kubelet},
		{"predicate.TaintTolerationEnable", "taints keep nodes for other work, of other faces too, and evict who ignores them"},
		{"predicate.PodAffinityEnable", others},
		{"predicate.NodeVolumeLimitsEnable", hangs},
		{"predicate.VolumeZoneEnable", hangs},
		{"predicate.PodTopologySpreadEnable", "a pod asks for it itself, and can ask for it as a wish (ScheduleAnyway)"},
		{"predicate.VolumeBindingEnable", hangs},
		{"predicate.DynamicResourceAllocationEnable", hangs},
	}
}
