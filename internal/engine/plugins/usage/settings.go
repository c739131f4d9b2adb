package usage

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a scheduler file.
const Name = "usage"

// one is all of a node, or of what is asked for, in the unit of ratios.
const one = 1_000_000

// The arguments that are groups of others.
const (
	thresholdsGroup = "thresholds"
	estimatorGroup  = "estimator"
)

// The bounds of arguments.
const (
	mostWeight = 1000
	mostRatio  = 10
)

// settings are the arguments as they are read. Each pair is of CPU and memory.
type settings struct {
	all               int64 // usage.weight
	weight, threshold [2]int64
	ratio             int64 // in millionths, as the two below
	riskFrom, riskBy  int64
	bestEffort        [2]int64
}

// reader reads arguments, and keeps the first error.
type reader struct {
	args  policy.Arguments  // single ones
	names map[string]string // the argument of the file that it is from, by name
	known []string
	err   error
}

// flat returns the arguments with the groups taken apart.
func flat(args policy.Arguments) (*reader, error) {
	r := &reader{args: maps.Clone(args), names: map[string]string{}}
	for _, group := range []string{thresholdsGroup, estimatorGroup} {
		text, said := args[group]
		if !said {
			continue
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var parts map[string]any
		if err := d.Decode(&parts); err != nil {
			return nil, fmt.Errorf("argument %q must be a mapping of names to values", group)
		}
		delete(r.args, group)
		for _, part := range slices.Sorted(maps.Keys(parts)) {
			name := group + "." + part
			if _, twice := args[name]; twice {
				return nil, fmt.Errorf("argument %q says %s, and so does %q", group, part, name)
			}
			switch v := parts[part].(type) {
			case json.Number:
				r.args[name] = v.String()
			case string:
				r.args[name] = v
			default:
				return nil, fmt.Errorf("argument %q: %s must be one value", group, part)
			}
			r.names[name] = group
		}
	}
	return r, nil
}

// read passes what an argument says to a function, if it is said; rule is what it must be.
func (r *reader) read(name, rule string, use func(text string) bool) {
	r.known = append(r.known, name)
	text, said := r.args[name]
	if !said || r.err != nil || use(strings.TrimSpace(text)) {
		return
	}
	if group := r.names[name]; group != "" {
		r.err = fmt.Errorf("argument %q: %s is %.40q; it must be %s", group, name[len(group)+1:], text, rule)
		return
	}
	r.err = fmt.Errorf("argument %q is %.40q; it must be %s", name, text, rule)
}

func (r *reader) whole(name string, otherwise int64) int64 {
	r.read(name, fmt.Sprintf("a whole number from 0 to %d", mostWeight), func(text string) bool {
		n, err := strconv.ParseInt(text, 10, 64)
		otherwise = n
		return err == nil && n >= 0 && n <= mostWeight
	})
	return otherwise
}

// fraction reads a number from 0 to most, in millionths of unit.
func (r *reader) fraction(name string, otherwise, most, unit float64) int64 {
	r.read(name, fmt.Sprintf("a number from 0 to %g", most), func(text string) bool {
		x, err := strconv.ParseFloat(text, 64)
		otherwise = x
		return err == nil && x >= 0 && x <= most
	})
	return int64(math.Round(otherwise * one / unit))
}

// amount reads a quantity, in units of scale.
func (r *reader) amount(name, otherwise string, scale resource.Scale) int64 {
	q := resource.MustParse(otherwise)
	r.read(name, "an amount, such as "+otherwise, func(text string) bool {
		var err error
		q, err = resource.ParseQuantity(text)
		return err == nil && q.Sign() >= 0
	})
	return cluster.Clamp(q.ScaledValue(scale))
}

// parse reads the arguments; unknown are those that are none, sorted.
func parse(args policy.Arguments) (s *settings, unknown []string, err error) {
	r, err := flat(args)
	if err != nil {
		return nil, nil, err
	}
	s = &settings{
		all:        r.whole("usage.weight", 5),
		weight:     [2]int64{r.whole("cpu.weight", 1), r.whole("memory.weight", 1)},
		threshold:  [2]int64{r.fraction("thresholds.cpu", 80, 100, 100), r.fraction("thresholds.mem", 80, 100, 100)},
		ratio:      r.fraction("estimator.request_ratio", 0.7, mostRatio, 1),
		riskFrom:   r.fraction("estimator.risk_threshold", 0.6, mostRatio, 1),
		riskBy:     r.fraction("estimator.risk_factor", 1.2, mostRatio, 1),
		bestEffort: [2]int64{r.amount("estimator.be_cpu", "250m", resource.Milli), r.amount("estimator.be_mem", "200Mi", 0)},
	}
	r.fraction(BurstArgument, 0, mostRatio, 1)
	if r.err != nil {
		return nil, nil, r.err
	}
	return s, r.args.Unknown(r.known...), nil
}

// BurstArgument is known, and has no effect.
const BurstArgument = "estimator.burst_ratio"
