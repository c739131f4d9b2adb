package vcsharding

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Bounds of a configuration.
const (
	// LongestConfig is that of a configuration, in bytes.
	LongestConfig  = 64 << 10
	mostSchedulers = 64
	mostPolicies   = 16
	mostWeight     = 1000
	// mostNodes is how many nodes a NodeShard has at most: what an object holds of names.
	mostNodes = 5000

	defaultPeriod = time.Minute
	leastPeriod   = time.Second
	mostPeriod    = 24 * time.Hour
)

// Names of policies.
const (
	allocationRate = "allocation-rate"
	warmup         = "warmup"
	nodeLimit      = "node-limit"
)

// whole is all of a node's CPU, in millionths.
const whole = 1_000_000

// config is a configuration that was understood.
type config struct {
	schedulers []scheduler
	period     time.Duration
	// events has nodes that come, go or change be looked at at once.
	events bool
	// odd is the first thing that the text has and that has no effect; "" for nothing.
	odd string
}

// scheduler says which nodes one should have.
type scheduler struct {
	name string
	// from and to are the part of a node's CPU that is asked for, in millionths, of the nodes that it should have.
	from, to int64
	// inRange and warm are what a node is worth to it that is in that range, and that is warm.
	inRange, warm int64
	// least and most are numbers of nodes.
	least, most int
}

// written is a scheduler as the text has it.
type written struct {
	Name     string          `json:"name"`
	Type     string          `json:"type"`
	Policies []writtenPolicy `json:"policies"`
	// The older form.
	Min    json.RawMessage `json:"cpuUtilizationMin"`
	Max    json.RawMessage `json:"cpuUtilizationMax"`
	Warmup *bool           `json:"preferWarmupNodes"`
	Least  json.RawMessage `json:"minNodes"`
	Most   json.RawMessage `json:"maxNodes"`
}

type writtenPolicy struct {
	Name      string                     `json:"name"`
	Weight    *int64                     `json:"weight"`
	Arguments map[string]json.RawMessage `json:"arguments"`
}

// readConfig reads a configuration. An error names the field and the rule.
func readConfig(text string) (*config, error) {
	if len(text) > LongestConfig {
		return nil, fmt.Errorf("it has %d bytes, of at most %d", len(text), LongestConfig)
	}
	var c struct {
		Schedulers []written `json:"schedulerConfigs"`
		Period     string    `json:"shardSyncPeriod"`
		Events     bool      `json:"enableNodeEventTrigger"`
	}
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	if n := len(c.Schedulers); n < 1 || n > mostSchedulers {
		return nil, fmt.Errorf("schedulerConfigs: there are %d schedulers; from 1 to %d are needed", n, mostSchedulers)
	}
	out := &config{period: defaultPeriod, events: c.Events}
	strict := c
	if err := yaml.UnmarshalStrict([]byte(text), &strict); err != nil {
		out.odd = err.Error()
	}
	if c.Period != "" {
		d, err := time.ParseDuration(c.Period)
		if err != nil || d < leastPeriod || d > mostPeriod {
			return nil, fmt.Errorf("shardSyncPeriod: %.40q must be a duration from %s to %s", c.Period, leastPeriod, mostPeriod)
		}
		out.period = d
	}
	seen := map[string]bool{}
	for i := range c.Schedulers {
		w, at := &c.Schedulers[i], fmt.Sprintf("schedulerConfigs[%d]", i)
		if len(validation.IsDNS1123Subdomain(w.Name)) > 0 || seen[w.Name] {
			return nil, fmt.Errorf("%s.name: %.64q must be the name of a NodeShard, and in no other place", at, w.Name)
		}
		seen[w.Name] = true
		s, odd, err := w.read()
		if err != nil {
			return nil, fmt.Errorf("%s.%w", at, err)
		}
		if out.schedulers = append(out.schedulers, s); odd != "" && out.odd == "" {
			out.odd = at + "." + odd
		}
	}
	return out, nil
}

// read reads a scheduler. An error, and what has no effect, begin with the field.
func (w *written) read() (s scheduler, odd string, err error) {
	s = scheduler{name: w.Name, to: whole, most: mostNodes}
	if w.Min != nil || w.Max != nil || w.Warmup != nil || w.Least != nil || w.Most != nil {
		if len(w.Policies) > 0 {
			return s, "", fmt.Errorf("policies: they exclude the older fields beside them")
		}
		err = w.older(&s)
		return s, "", err
	}
	if len(w.Policies) > mostPolicies {
		return s, "", fmt.Errorf("policies: there are %d, of at most %d", len(w.Policies), mostPolicies)
	}
	seen := map[string]bool{}
	for i := range w.Policies {
		p, at := &w.Policies[i], fmt.Sprintf("policies[%d]", i)
		weight := int64(1)
		if p.Weight != nil {
			weight = *p.Weight
		}
		switch {
		case seen[p.Name]:
			return s, "", fmt.Errorf("%s.name: %.64q is there twice", at, p.Name)
		case weight < 0 || weight > mostWeight:
			return s, "", fmt.Errorf("%s.weight: %d must be from 0 to %d", at, weight, mostWeight)
		}
		seen[p.Name] = true
		var known []string
		switch p.Name {
		case allocationRate:
			s.inRange, known = weight, []string{"minCPUUtil", "maxCPUUtil"}
			err = s.between("arguments.minCPUUtil", p.Arguments["minCPUUtil"], "arguments.maxCPUUtil", p.Arguments["maxCPUUtil"])
		case warmup:
			s.warm = weight
		case nodeLimit:
			known = []string{"minNodes", "maxNodes"}
			err = s.limit("arguments.minNodes", p.Arguments["minNodes"], "arguments.maxNodes", p.Arguments["maxNodes"])
		default:
			err = fmt.Errorf("name: %.64q: there is no such policy; known: %s, %s, %s", p.Name, allocationRate, nodeLimit, warmup)
		}
		if err != nil {
			return s, "", fmt.Errorf("%s.%w", at, err)
		}
		for _, k := range slices.Sorted(maps.Keys(p.Arguments)) {
			if odd == "" && !slices.Contains(known, k) {
				odd = fmt.Sprintf("%s.arguments: %.64q is none of policy %s", at, k, p.Name)
			}
		}
	}
	return s, odd, nil
}

// older reads the form without policies.
func (w *written) older(s *scheduler) error {
	s.inRange = 1
	if w.Warmup != nil && *w.Warmup {
		s.warm = 1
	}
	if err := s.between("cpuUtilizationMin", w.Min, "cpuUtilizationMax", w.Max); err != nil {
		return err
	}
	return s.limit("minNodes", w.Least, "maxNodes", w.Most)
}

// between reads a range of CPU.
func (s *scheduler) between(from string, low json.RawMessage, to string, high json.RawMessage) (err error) {
	if s.from, err = part(from, low, 0); err != nil {
		return err
	}
	if s.to, err = part(to, high, whole); err != nil {
		return err
	}
	if s.from > s.to {
		return fmt.Errorf("%s: it must be at most %s", from, to)
	}
	return nil
}

// part reads a part of a node, from 0 to 1, in millionths.
func part(field string, text json.RawMessage, otherwise int64) (int64, error) {
	if text == nil {
		return otherwise, nil
	}
	x, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	if err != nil || !(x >= 0 && x <= 1) {
		return 0, fmt.Errorf("%s: %.40s must be a number from 0 to 1", field, text)
	}
	return int64(math.Round(x * whole)), nil
}

// limit reads numbers of nodes.
func (s *scheduler) limit(least string, low json.RawMessage, most string, high json.RawMessage) (err error) {
	if s.least, err = number(least, low, 0); err != nil {
		return err
	}
	if s.most, err = number(most, high, mostNodes); err != nil {
		return err
	}
	if s.least > s.most {
		return fmt.Errorf("%s: it must be at most %s", least, most)
	}
	return nil
}

func number(field string, text json.RawMessage, otherwise int) (int, error) {
	if text == nil {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(strings.Trim(string(text), `"`), 10, 64)
	if err != nil || n < 0 || n > mostNodes {
		return 0, fmt.Errorf("%s: %.40s must be a whole number from 0 to %d", field, text, mostNodes)
	}
	return int(n), nil
}
