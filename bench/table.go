package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// width is how wide the printed lines are at most, in characters.
const width = 100

func (r run) allBound() float64 { return r.AllBound }

func (r run) firstBound() float64 { return r.FirstBound }

func (r run) labCPU() float64 { return r.LabCPU }

// cpu is that of all processes, in seconds.
func (r run) cpu() (sum float64) {
	for i := range r.Processes {
		sum += r.Processes[i].CPU
	}
	return sum
}

// sorted are the values that of finds in the runs, the least first.
func (w *way) sorted(of func(run) float64) []float64 {
	var out []float64
	for _, r := range w.Runs {
		out = append(out, of(r))
	}
	slices.Sort(out)
	return out
}

// median of an even number of runs is the greater one in the middle, as elsewhere here.
func (w *way) median(of func(run) float64) float64 {
	all := w.sorted(of)
	return all[len(all)/2]
}

// worst is, for each name of a process, the most that any replica of it had in any run, and how many replicas there are.
func (w *way) worst() (out []process, replicas map[string]int) {
	replicas = map[string]int{}
	for _, p := range w.Runs[0].Processes {
		replicas[p.Name]++
	}
	for _, r := range w.Runs {
		for _, p := range r.Processes {
			k := slices.IndexFunc(out, func(o process) bool { return o.Name == p.Name })
			if k < 0 {
				k = len(out)
				out = append(out, process{Name: p.Name, Args: p.Args, MemoryLimit: p.MemoryLimit, CPULimit: p.CPULimit})
			}
			o := &out[k]
			o.CPU, o.RSS, o.Restarts = max(o.CPU, p.CPU), max(o.RSS, p.RSS), max(o.Restarts, p.Restarts)
			if p.Ended != "" {
				o.Ended = p.Ended
			}
			if f := p.Cgroup; f != nil {
				if o.Cgroup == nil {
					o.Cgroup = new(figures)
				}
				o.Cgroup.Peak, o.Cgroup.LimitReached = max(o.Cgroup.Peak, f.Peak), max(o.Cgroup.LimitReached, f.LimitReached)
				o.Cgroup.Throttled = max(o.Cgroup.Throttled, f.Throttled)
			}
		}
	}
	return out, replicas
}

// hold says in a sentence whether the limits of memory held.
func hold(all []process) string {
	var killed, reached []string
	fullest, part := "", 0.0
	for _, p := range all {
		switch f := p.Cgroup; {
		case p.Ended == "OOMKilled":
			killed = append(killed, p.Name)
		case f == nil || p.MemoryLimit == 0:
		case f.LimitReached > 0:
			reached = append(reached, p.Name)
		case float64(f.Peak)/float64(p.MemoryLimit) > part:
			fullest, part = p.Name, float64(f.Peak)/float64(p.MemoryLimit)
		}
	}
	switch {
	case len(killed) > 0:
		return "the limits of memory did NOT hold: killed at it: " + strings.Join(killed, ", ")
	case len(reached) > 0:
		return "the limits of memory held, but were reached, so that cached files had to go: " + strings.Join(reached, ", ")
	case fullest == "":
		return "there was no limit of memory"
	}
	return fmt.Sprintf("the limits of memory held: at most %.0f%% of one was used (%s)", 100*part, fullest)
}

// print prints the comparison as tables.
func (c *comparison) print(out io.Writer) error {
	fmt.Fprintf(out, "%d one-GPU Jobs on %d simulated nodes, Kubernetes %s; %d cores for everything.\n", c.Jobs, c.Nodes, c.Kubernetes, c.Cores)
	fmt.Fprintf(out, "Median (least to most) of %d runs of each way, by turns.\n\n", len(c.Ways[0].Runs))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(what string, cell func(*way) string) {
		fmt.Fprintf(w, "%s\t%s\t%s\n", what, cell(&c.Ways[0]), cell(&c.Ways[1]))
	}
	measured := func(what, format string, of func(run) float64) {
		line(what, func(w *way) string {
			all := w.sorted(of)
			return fmt.Sprintf(format+" ("+format+" to "+format+")", w.median(of), all[0], all[len(all)-1])
		})
	}
	line("", func(w *way) string { return w.Name })
	line("processes", func(w *way) string { return fmt.Sprintf("%d, %s", len(w.Runs[0].Processes), w.Where) })
	line("limits of memory, MiB", func(w *way) string {
		return limits(w.Runs[0].Processes, func(p process) string { return mebibytes(p.MemoryLimit) })
	})
	line("limits of CPU, cores", func(w *way) string {
		return limits(w.Runs[0].Processes, func(p process) string {
			if p.CPULimit == 0 {
				return ""
			}
			return fmt.Sprint(p.CPULimit)
		})
	})
	line("webhooks, policies", func(w *way) string { return fmt.Sprintf("%d, %d", w.Webhooks, w.Policies) })
	measured("last pod bound after, s", "%.1f", run.allBound)
	measured("first pod bound after, s", "%.2f", run.firstBound)
	measured("Muster, CPU-s", "%.1f", run.cpu)
	measured("lab, CPU-s", "%.1f", run.labCPU)
	if err := w.Flush(); err != nil {
		return err
	}
	verdict := "reached"
	if c.Ratio > c.Reach {
		verdict = "NOT reached"
	}
	fmt.Fprintf(out, "\nratio of the medians %.2f, reach %.1f: %s\n\nThe most of any run and replica:\n", c.Ratio, c.Reach, verdict)
	fmt.Fprintln(w, "process\tCPU-s\tRSS MiB\tcgroup MiB\tlimit MiB\treached\tthrottled s\trestarts")
	for i := range c.Ways {
		all, replicas := c.Ways[i].worst()
		for _, p := range all {
			name, limit, ended := p.Name, mebibytes(p.MemoryLimit), fmt.Sprint(p.Restarts)
			if replicas[name] > 1 {
				name += fmt.Sprintf(" ×%d", replicas[name])
			}
			if limit == "" {
				limit = "none"
			}
			if p.Ended != "" {
				ended += " " + p.Ended
			}
			peak, reached, throttled := "-", "-", "-"
			if f := p.Cgroup; f != nil {
				peak, reached, throttled = mebibytes(f.Peak), fmt.Sprint(f.LimitReached), fmt.Sprintf("%.1f", f.Throttled)
			}
			fmt.Fprintf(w, "%s\t%.1f\t%.0f\t%s\t%s\t%s\t%s\t%s\n", name, p.CPU, p.RSS, peak, limit, reached, throttled, ended)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	all, _ := c.Ways[0].worst()
	fmt.Fprintf(out, "%s\n\nflags:\n", hold(all))
	for i := range c.Ways {
		all, _ := c.Ways[i].worst()
		for _, p := range all {
			fold(out, p.Name+": "+strings.Join(p.Args, " "))
		}
	}
	return nil
}

// limits names the different limits of processes, "none" if there is none.
func limits(all []process, of func(process) string) string {
	var out []string
	for _, p := range all {
		if s := of(p); s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// mebibytes is a number of bytes in MiB, nothing for 0.
func mebibytes(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", float64(n)/(1<<20))
}

// fold prints words in lines that are not too wide, all but the first of which are indented.
func fold(out io.Writer, text string) {
	line, begin := "", ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(begin)+len(line)+1+len(word) > width {
			fmt.Fprintln(out, begin+line)
			line, begin = "", "    "
		}
		line = strings.TrimSpace(line + " " + word)
	}
	fmt.Fprintln(out, begin+line)
}
