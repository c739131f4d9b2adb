package enginetest

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/profile/volcano"
)

// Names are the scheduler names that make a pod ours; the first is the one scenario pods get.
func (o *Options) Names() []string {
	if len(o.SchedulerNames) == 0 {
		return []string{kai.DefaultSchedulerName}
	}
	return o.SchedulerNames
}

// Profile resolves the config or shard section, and the options that are settings of actions.
func (o *Options) Profile() (engine.Profile, error) {
	p, err := o.configured()
	if err != nil {
		return p, err
	}
	if o.ConsolidationVictims != "" {
		if p.Settings.ConsolidationVictims, err = strconv.Atoi(o.ConsolidationVictims); err != nil {
			return p, fmt.Errorf("option consolidation-victims: %q is no whole number", o.ConsolidationVictims)
		}
	}
	if o.SearchSteps != "" {
		if p.Settings.SearchSteps, err = strconv.Atoi(o.SearchSteps); err != nil {
			return p, fmt.Errorf("option search-steps: %q is no whole number", o.SearchSteps)
		}
	}
	if o.StaleGrace != "" {
		d, err := time.ParseDuration(o.StaleGrace)
		if err != nil {
			return p, fmt.Errorf("option stale-grace: %w", err)
		}
		p.Settings.StaleGrace = time.Duration(d.Nanoseconds())
	}
	p.Settings.MovedAreFree = !o.MovedCount
	if o.QueueGates {
		p.Actions = append([]string{builtin.QueueGates}, p.Actions...)
	}
	if o.VolcanoConfig != "" {
		file, err := volcano.Parse([]byte(o.VolcanoConfig), builtin.Registry())
		if err != nil {
			return p, fmt.Errorf("section %s: %w", sectionVolcano, err)
		}
		p.Faces = append(p.Faces, file.Face)
	}
	if o.KubeBatch {
		file, err := volcano.ParseKubeBatch([]byte(cmp.Or(o.KubeBatchConfig, volcano.KubeBatchDefault)), builtin.Registry())
		if err != nil {
			return p, fmt.Errorf("section %s: %w", sectionKubeBatch, err)
		}
		p.Faces = append(p.Faces, file.Face)
	}
	return p, nil
}

func (o *Options) configured() (engine.Profile, error) {
	if o.Config != "" {
		return profile.Parse([]byte(o.Config))
	}
	s := profile.Shard{Plugins: map[string]profile.Override{}, Actions: map[string]profile.Override{}}
	for i := range o.Shard {
		st := &o.Shard[i]
		name := st.name()
		switch st.verb {
		case "gpu":
			s.GPUStrategy = name
		case "cpu":
			s.CPUStrategy = name
		case "k-value":
			k, err := strconv.ParseFloat(name, 64)
			if err != nil {
				st.bad("%q: want a number", name)
			}
			s.KValue = &k
		case "usage":
			s.Usage = &kaiv1.UsageDBConfig{ClientType: name}
		case "depth":
			s.QueueDepth = depth(st, s.QueueDepth)
		case "preempt-min-runtime":
			s.PreemptMinRuntime = name
		case "reclaim-min-runtime":
			s.ReclaimMinRuntime = name
		case "plugin":
			s.Plugins[name] = override(st)
		case "action":
			s.Actions[name] = override(st)
		default:
			st.bad("a shard has gpu, cpu, k-value, usage, depth, preempt-min-runtime, reclaim-min-runtime, plugin and action")
		}
		if err := st.done(); err != nil {
			return engine.Profile{}, err
		}
	}
	return profile.ForShard(s)
}

// depth reads: depth ACTION N.
func depth(s *statement, so map[string]int) map[string]int {
	if len(s.words) != 2 {
		s.bad("want depth ACTION N")
		return nil
	}
	n, err := strconv.Atoi(s.words[1])
	if err != nil {
		s.bad("%q: want a whole number", s.words[1])
	}
	s.read[s.words[1]] = true
	if so == nil {
		so = map[string]int{}
	}
	so[s.words[0]] = n
	return so
}

// override reads: plugin NAME [on|off] [priority=N] [arg.KEY=VALUE]…
func override(s *statement) (o profile.Override) {
	switch {
	case s.flag("off"):
		o.Enabled = new(false)
	case s.flag("on"):
		o.Enabled = new(true)
	}
	if s.has("priority") {
		o.Priority = new(s.int("priority", 0))
	}
	for _, a := range s.attrs {
		if k, ok := strings.CutPrefix(a.key, "arg."); ok {
			if o.Arguments == nil {
				o.Arguments = map[string]string{}
			}
			o.Arguments[k] = a.value
			s.read[a.key] = true
		}
	}
	return o
}
