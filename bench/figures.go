package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// pod is what the observer saw of one pod, by this machine's clock, which is the lab's.
type pod struct {
	group string // the Job or gang that it is of
	// made, bound, ran and ended are when it was seen first, with a node, running, and ended or gone; zero if it has not been.
	made, bound, ran, ended time.Time
}

// figure is one that the table can have.
type figure struct {
	key, name, format string
	more              bool // is better
}

// figureRows are the figures in the order of the table. Times are in seconds, memory is in MiB.
var figureRows = []figure{
	{key: "all_bound_s", name: "all bound since the start, s", format: "%.2f"},
	{key: "last_made_to_bound_s", name: "last pod made to last pod bound, s", format: "%.2f"},
	{key: "driver_s", name: "all bound since the first submit, by the load driver's own watch, s", format: "%.2f"},
	{key: "all_ran_s", name: "all run since the first submit, s", format: "%.2f"},
	{key: "made_per_s", name: "pods made a second", format: "%.0f", more: true},
	{key: "first_bound_s", name: "first bound since the start, s", format: "%.2f"},
	{key: "middle_per_s", name: "pods a second in the middle", format: "%.0f", more: true},
	{key: "revisions_per_pod", name: "revisions of etcd per pod, kubelets' not counted", format: "%.2f"},
	{key: "cpu_s", name: "the scheduler's CPU-s", format: "%.1f"},
	{key: "lab_cpu_s", name: "the lab's CPU-s", format: "%.1f"},
	{key: "busy_pct", name: "what both took of the processors until all were bound, %", format: "%.0f"},
	{key: "rss_mib", name: "the scheduler's largest memory, MiB", format: "%.0f"},
	{key: "beside_cpu_s", name: "the role's CPU-s", format: "%.1f"},
	{key: "run_mean_ms", name: "a run of the scheduler, mean, ms", format: "%.2f"},
	{key: "run_p99_ms", name: "a run of the scheduler, 99th percentile, ms", format: "%.1f"},
	{key: "gang_s", name: "64 pods submitted to all bound, s", format: "%.2f"},
	{key: "restart_s", name: "SIGKILL to the first bind of a pod submitted then, s", format: "%.2f"},
	{key: "rss_after_mib", name: "its largest memory with the pods of others, and after SIGKILL, MiB", format: "%.0f"},
	{key: "room_p50_s", name: "from room to bind, median, s", format: "%.2f"},
	{key: "room_p99_s", name: "from room to bind, 99th percentile, s", format: "%.2f"},
	{key: "gangs", name: "gangs bound", format: "%.0f", more: true},
	{key: "rss_growth_pct", name: "growth of memory, %", format: "%.0f"},
}

// figureOf is the row of a key.
func figureOf(key string) (figure, bool) {
	k := slices.IndexFunc(figureRows, func(f figure) bool { return f.key == key })
	if k < 0 {
		return figure{}, false
	}
	return figureRows[k], true
}

// measure says how the pods came to their nodes since the start. The middle is between a quarter and three quarters of them bound; it is
// left out where that took no time, and what is left after the last pod was made where that was before the start. An error is a pod without a node.
func measure(pods []pod, start time.Time) (map[string]float64, error) {
	if len(pods) == 0 {
		return nil, errors.New("there are no pods")
	}
	var lastMade time.Time
	bound := make([]time.Time, 0, len(pods))
	for _, p := range pods {
		if p.bound.IsZero() {
			return nil, fmt.Errorf("a pod of %s has no node", p.group)
		}
		bound = append(bound, p.bound)
		if p.made.After(lastMade) {
			lastMade = p.made
		}
	}
	slices.SortFunc(bound, time.Time.Compare)
	n := len(bound)
	out := map[string]float64{
		"all_bound_s":   bound[n-1].Sub(start).Seconds(),
		"first_bound_s": bound[0].Sub(start).Seconds(),
	}
	if !lastMade.Before(start) {
		out["last_made_to_bound_s"] = max(0, bound[n-1].Sub(lastMade).Seconds())
	}
	from, to := n/4, 3*n/4
	if span := bound[to].Sub(bound[from]).Seconds(); span > 0 {
		out["middle_per_s"] = float64(to-from) / span
	}
	return out, nil
}

// madePerSecond is how many pods were made a second, from the first to the last of them.
func madePerSecond(pods []pod) float64 {
	var last time.Time
	first := pods[0].made
	for _, p := range pods {
		last = later(last, p.made)
		if p.made.Before(first) {
			first = p.made
		}
	}
	return float64(len(pods)) / max(0.001, last.Sub(first).Seconds())
}

// roomToBind says how long each gang, of pods that take a node each, waited since there was room for it, the shortest first: from the first
// moment, once its last pod was made, at which there were as many free nodes as it still needed together with the gangs that were complete
// before it. A gang some of whose pods never had a node does not count.
func roomToBind(pods []pod, nodes int) []time.Duration {
	type gang struct {
		name            string
		complete, bound time.Time
		size, without   int
	}
	type step struct { // a node is taken, or free again
		at    time.Time
		group string
		free  int
	}
	gangs := map[string]*gang{}
	var steps []step
	for _, p := range pods {
		g := gangs[p.group]
		if g == nil {
			g = &gang{name: p.group}
			gangs[p.group] = g
		}
		g.size++
		g.complete = later(g.complete, p.made)
		g.bound = later(g.bound, p.bound)
		if p.bound.IsZero() {
			g.without++
			continue
		}
		steps = append(steps, step{p.bound, p.group, -1})
		if !p.ended.IsZero() {
			steps = append(steps, step{p.ended, p.group, 1})
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(b.free, a.free)) })
	order := slices.SortedFunc(maps.Values(gangs), func(a, b *gang) int { return cmp.Or(a.complete.Compare(b.complete), cmp.Compare(a.name, b.name)) })
	rank := map[string]int{}
	for i, g := range order {
		rank[g.name] = i
	}
	var out []time.Duration
	need := 0
	for i, g := range order {
		need += g.size // of all up to this one, when nobody is bound
		if g.without > 0 {
			continue
		}
		free, left, room := nodes, need, g.bound
		var since time.Time // these have been the numbers
		for _, s := range steps {
			if s.at.After(g.complete) && free >= left {
				room = later(g.complete, since)
				break
			}
			free, since = free+s.free, s.at
			if s.free < 0 && rank[s.group] <= i {
				left--
			}
		}
		out = append(out, max(0, g.bound.Sub(room)))
	}
	slices.Sort(out)
	return out
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// quantile of sorted values: the least that is at least as great as that part of them.
func quantile[T any](sorted []T, part float64) T {
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

// growth is by how many percent the most of the last fifth of samples is above the most of the second fifth; the first is for warming up.
func growth(samples []float64) float64 {
	n := len(samples) / 5
	if n == 0 {
		return 0
	}
	return 100 * (slices.Max(samples[len(samples)-n:])/slices.Max(samples[n:2*n]) - 1)
}
