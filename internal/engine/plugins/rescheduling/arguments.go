package rescheduling

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a scheduler file.
const Name = "rescheduling"

// The arguments.
const (
	argumentInterval   = "interval"
	argumentPeriod     = "metricsPeriod"
	argumentStrategies = "strategies"
)

// lowNodeUtilization is the name of the one strategy.
const lowNodeUtilization = "lowNodeUtilization"

// mostResources bounds how many resources a strategy names.
const mostResources = 32

// strategy is one of the argument strategies.
type strategy struct {
	Name   string                     `json:"name"`
	Params map[string]json.RawMessage `json:"params"`
}

// utilization are the params of lowNodeUtilization: percents by resource, in the order of their names.
type utilization struct {
	of      []bounds
	sparing string // the class from whose priority on nobody goes
}

// bounds are what is little and what is much of a resource, in percent.
type bounds struct {
	name         string
	little, much int64
}

// read reads the arguments; low is nil without the strategy.
func read(args policy.Arguments) (low *utilization, every time.Duration, unknown []string, err error) {
	unknown = args.Unknown(argumentInterval, argumentPeriod, argumentStrategies)
	every = 5 * time.Minute
	for _, name := range []string{argumentPeriod, argumentInterval} {
		if text, said := args[name]; said {
			d, err := time.ParseDuration(text)
			if err != nil || d <= 0 {
				return nil, 0, nil, fmt.Errorf("argument %q is %.40q; it must be a duration above 0, such as 5m", name, text)
			}
			if name == argumentInterval {
				every = d
			}
		}
	}
	var list []strategy
	if text, said := args[argumentStrategies]; said {
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return nil, 0, nil, fmt.Errorf("argument %q must be a list of strategies, each with a name and params: %.200s", argumentStrategies, err)
		}
	}
	for k, s := range list {
		switch {
		case s.Name != lowNodeUtilization:
			unknown = append(unknown, fmt.Sprintf("%s[%d].name=%.40s", argumentStrategies, k, s.Name))
		case low != nil:
			return nil, 0, nil, fmt.Errorf("argument %q has %s twice", argumentStrategies, lowNodeUtilization)
		default:
			var strange []string
			if low, strange, err = readUtilization(s.Params); err != nil {
				return nil, 0, nil, fmt.Errorf("argument %q: %s: %w", argumentStrategies, lowNodeUtilization, err)
			}
			for _, key := range strange {
				unknown = append(unknown, fmt.Sprintf("%s[%d].params.%.40s", argumentStrategies, k, key))
			}
		}
	}
	return low, every, unknown, nil
}

func readUtilization(params map[string]json.RawMessage) (u *utilization, unknown []string, err error) {
	u = &utilization{sparing: "system-cluster-critical"}
	var little, much map[string]int64
	fit := true
	for _, key := range slices.Sorted(maps.Keys(params)) {
		var into any
		must := "percents by resource, whole numbers from 0 to 100"
		switch key {
		case "thresholds":
			into = &little
		case "targetThresholds":
			into = &much
		case "thresholdPriorityClassName":
			into, must = &u.sparing, "the name of a PriorityClass"
		case "nodeFit":
			into, must = &fit, "true or false"
		default:
			unknown = append(unknown, key)
			continue
		}
		if json.Unmarshal(params[key], into) != nil {
			return nil, nil, fmt.Errorf("%s must be %s", key, must)
		}
	}
	if !fit {
		unknown = append(unknown, "nodeFit=false")
	}
	if little == nil && much == nil {
		little = map[string]int64{"cpu": 100, "memory": 100}
	}
	names := map[string]struct{}{}
	for _, m := range []map[string]int64{little, much} {
		for name, x := range m { // order: whichever is wrong
			if names[name] = struct{}{}; x < 0 || x > 100 {
				return nil, nil, fmt.Errorf("%.60s is %d percent; it must be from 0 to 100", name, x)
			}
		}
	}
	if len(names) > mostResources {
		return nil, nil, fmt.Errorf("more than %d resources are named", mostResources)
	}
	or100 := func(m map[string]int64, name string) int64 {
		if x, said := m[name]; said {
			return x
		}
		return 100
	}
	for name := range names { // order: sorted below
		u.of = append(u.of, bounds{name, or100(little, name), or100(much, name)})
	}
	slices.SortFunc(u.of, func(a, b bounds) int { return cmp.Compare(a.name, b.name) })
	return u, unknown, nil
}
