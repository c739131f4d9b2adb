package climb

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"syscall"
	"time"

	"github.com/muster-scheduler/muster/internal/climb/genome"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/kube/filters"
	"github.com/muster-scheduler/muster/internal/profile"
)

// cycleApart is what lies between two cycles, noon the moment of the first.
const cycleApart = 100 * time.Millisecond

func noon() cluster.Instant { return cluster.UnixNano(1_000_000 * int64(time.Second)) }

// Run measures in this process. The engine is the one that the scheduler runs, with the filters.
func (a *Ask) Run(ctx context.Context) (m Measured, err error) {
	if err := a.Genome.Check(); err != nil {
		return m, err
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	w := a.Genome.Lay()
	events := eventsOf(&w)
	p, err := profileFor(&a.Genome)
	if err != nil {
		return m, err
	}
	if a.Profile != "" {
		stop, err := startProfile(a.Profile)
		if err != nil {
			return m, err
		}
		defer stop()
	}
	var all []Measured
	for len(all) < max(1, a.Runs) {
		x, err := a.once(ctx, p, events)
		if err != nil {
			return m, err
		}
		all = append(all, x)
		if x.CPU < a.Floor || x.Cut {
			return x, nil
		}
	}
	slices.SortFunc(all, func(a, b Measured) int { return int(a.CPU - b.CPU) })
	return all[len(all)/2], nil
}

func startProfile(name string) (stop func(), err error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close() //nolint:errcheck // the first error says more
		return nil, fmt.Errorf("profile: %w", err)
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil //nolint:errcheck // a profile cut short is seen as such
}

// profileFor is a shard's profile, as the scheduler of one has it.
func profileFor(g *genome.Genome) (engine.Profile, error) {
	s := profile.Shard{}
	if g.MinRuntime > 0 {
		s.PreemptMinRuntime = fmt.Sprintf("%ds", g.MinRuntime)
		s.ReclaimMinRuntime = s.PreemptMinRuntime
	}
	if g.Spread > 0 {
		s.GPUStrategy, s.CPUStrategy = "spread", "spread"
	}
	return profile.ForShard(s)
}

// once is one run: a new Store and a new engine, and cycles on them.
func (a *Ask) once(ctx context.Context, p engine.Profile, events []cluster.Event) (Measured, error) {
	var m Measured
	e, err := engine.New(p, filters.Register(builtin.Registry(), filters.Options{}))
	if err != nil {
		return m, err
	}
	took := map[string]time.Duration{}
	e.Around = func(s engine.Stage) func() {
		name, began := s.Name, time.Now()
		switch s.Kind {
		case engine.StageOpen:
			name = "open"
		case engine.StageClose:
			name = "close"
		case engine.StageOpenPlugin, engine.StageClosePlugin: // within those
			return func() {}
		}
		return func() { took[name] += time.Since(began) }
	}
	st := cluster.NewStore(cluster.Options{})
	st.Apply(events...)
	st.Snapshot(noon())
	d := engine.NewDriver(e, st)
	ctx, stop := context.WithTimeout(ctx, a.Limit)
	defer stop()
	runtime.GC()
	for i := range max(1, a.Cycles) {
		clear(took)
		began, clock := processorTime(), time.Now()
		_, plans, r := d.Cycle(ctx, noon().Add(time.Duration(i)*cycleApart))
		cpu, wall := processorTime()-began, time.Since(clock)
		m.Cycles = append(m.Cycles, cpu)
		m.Steps += r.Stats.Steps
		m.Nominated += r.Stats.Nominated
		m.Evicted += r.Stats.Evicted
		for k := range plans {
			m.Bound += plans[k].Binds()
		}
		if cpu > m.CPU {
			m.CPU, m.Wall, m.Searches = cpu, wall, 0
			for k := range r.Stats.Actions {
				m.Searches += r.Stats.Actions[k].Searches
			}
			m.Stage, m.Stages = stages(took, cpu)
		}
		if m.Cut = r.Trace.Truncated; m.Cut {
			break
		}
	}
	return m, nil
}

// stages divides the processor time of a cycle by what its stages took by the clock, and returns the largest.
func stages(took map[string]time.Duration, cpu time.Duration) (largest string, of map[string]time.Duration) {
	sum := time.Duration(1)
	for _, t := range took {
		sum += t
	}
	of = map[string]time.Duration{}
	for _, name := range slices.Sorted(maps.Keys(took)) {
		of[name] = time.Duration(float64(cpu) * float64(took[name]) / float64(sum))
		if largest == "" || of[name] > of[largest] {
			largest = name
		}
	}
	return largest, of
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
