package climb

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/muster-scheduler/muster/internal/climb/genome"
)

// Ask is what a runner is asked to measure: a line of JSON.
type Ask struct {
	Genome genome.Genome `json:"genome"`
	// Cycles is how many cycles follow each other, a tenth of a second apart; the slowest counts.
	Cycles int `json:"cycles"`
	// Runs is how often that is done, each time from the beginning; the median counts. Runs after the first are for those above
	// Floor alone.
	Runs  int           `json:"runs"`
	Floor time.Duration `json:"floorNanoseconds"`
	// Limit is how long all cycles of a run may take, by the clock; those that take longer are cut short.
	Limit time.Duration `json:"limitNanoseconds"`
	// Profile is a file for a profile of the cycles, "" for none.
	Profile string `json:"profile,omitempty"`
}

// Measured is what came of a run, the median one by CPU: a line of JSON.
type Measured struct {
	// CPU is the processor time of the slowest cycle, garbage collection included: from the snapshot to what is remembered. Wall is that
	// cycle by the clock, Steps is what the engine counted of all cycles.
	CPU   time.Duration `json:"cpuNanoseconds"`
	Wall  time.Duration `json:"wallNanoseconds"`
	Steps int           `json:"steps"`
	// Searches is how many searches for somebody to displace or move there were in the slowest cycle.
	Searches int `json:"searches"`
	// Cycles is the processor time of each.
	Cycles []time.Duration `json:"cyclesNanoseconds"`
	// Stages is the part of CPU that each stage took, going by the clock; Stage is the one that took most.
	Stages map[string]time.Duration `json:"stagesNanoseconds"`
	Stage  string                   `json:"stage"`
	// Cut says that it was cut short.
	Cut       bool `json:"cut,omitempty"`
	Bound     int  `json:"bound"`
	Nominated int  `json:"nominated"`
	Evicted   int  `json:"evicted"`
	// Error is what was wrong with the question, or a panic of the engine; "" for neither.
	Error string `json:"error,omitempty"`
}

// Serve answers asks, line by line, until in ends. Its errors are those of in and out.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	d, e := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var a Ask
		switch err := d.Decode(&a); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading what to measure: %w", err)
		}
		m, err := a.Run(ctx)
		if err != nil {
			m.Error = err.Error()
		}
		if err := e.Encode(&m); err != nil {
			return fmt.Errorf("writing what was measured: %w", err)
		}
	}
}

// Runner is a process that measures.
type Runner struct {
	// Command is the program with its arguments.
	Command []string
	// Patience is how long it may take to lay a cluster, beside its cycles; 0 for 20 s.
	Patience time.Duration

	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	said    bytes.Buffer // on standard error
}

// Measure asks the process, which is started if there is none. A process that takes longer than its limit is killed, and so is one that
// dies of the question; then Measured says that it was cut short, with the time it had, or holds the error. An error means that nothing can
// be measured at all.
func (r *Runner) Measure(ctx context.Context, a Ask) (Measured, error) {
	if r.process == nil {
		if err := r.start(ctx); err != nil {
			return Measured{}, err
		}
	}
	line, err := json.Marshal(&a)
	if err != nil {
		return Measured{}, fmt.Errorf("asking the runner: %w", err)
	}
	most := cmp.Or(r.Patience, 20*time.Second) + time.Duration(a.Runs)*a.Limit
	process := r.process.Process
	timer := time.AfterFunc(most, func() { process.Kill() }) //nolint:errcheck // it may be gone
	_, werr := r.in.Write(append(line, '\n'))
	answer, err := r.out.ReadBytes('\n')
	if late := !timer.Stop(); err != nil || werr != nil {
		r.Close()
		said := r.said.String() // whole, now that it has ended
		switch {
		case ctx.Err() != nil:
			return Measured{}, ctx.Err()
		case late:
			return Measured{CPU: a.Limit, Wall: most, Cut: true, Stage: "killed"}, nil
		}
		return Measured{Error: "the runner ended: " + said[:min(len(said), 2000)]}, nil
	}
	var m Measured
	if err := json.Unmarshal(answer, &m); err != nil {
		return m, fmt.Errorf("the runner said %q: %w", answer[:min(len(answer), 200)], err)
	}
	return m, nil
}

func (r *Runner) start(ctx context.Context) error {
	c := exec.CommandContext(ctx, r.Command[0], r.Command[1:]...)
	c.Env = append(os.Environ(), "GOGC=100", "GOMEMLIMIT=off") // of every tree the same
	r.said.Reset()
	c.Stderr = &r.said
	in, err := c.StdinPipe()
	if err != nil {
		return fmt.Errorf("starting the runner: %w", err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return fmt.Errorf("starting the runner: %w", err)
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("starting the runner: %w", err)
	}
	r.process, r.in, r.out = c, in, bufio.NewReader(out)
	return nil
}

// Close ends the process, if there is one.
func (r *Runner) Close() {
	if r.process == nil {
		return
	}
	r.in.Close()             //nolint:errcheck // it is to end
	r.process.Process.Kill() //nolint:errcheck // it may have ended
	r.process.Wait()         //nolint:errcheck // it was killed
	r.process, r.in, r.out = nil, nil, nil
}
