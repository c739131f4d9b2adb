package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// timing is what KAI's snapshot-tool prints: milliseconds.
type timing struct {
	Total   float64            `json:"total_duration_ms"`
	Actions map[string]float64 `json:"action_durations_ms"`
}

// newSnapshotTool is KAI's snapshot-tool: one cycle on a snapshot, and how long it took.
func newSnapshotTool(d Deps) *cobra.Command {
	var filename, cpu, memory string
	var verbosity int
	c := &cobra.Command{
		Use: "snapshot-tool --filename FILE", Short: "Run one cycle on a snapshot and print how long its actions took, as KAI's snapshot-tool does", Args: cobra.NoArgs,
		Long: "Run one cycle on a snapshot, KAI's or ours, and print how long it and each of its actions took, in milliseconds, in the form of KAI's\n" +
			"snapshot-tool. What is decided is printed by `muster replay`.",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if filename == "" {
				return errors.New("--filename is required: the snapshot to run on")
			}
			k, _, err := openCase(filename)
			if err != nil {
				return err
			}
			e, err := engine.New(k.Profile, d.Registry(k.StorageCapacity))
			if err != nil {
				return fmt.Errorf("%s: %w", filename, err)
			}
			t := timing{Actions: map[string]float64{}}
			e.Around = func(s engine.Stage) func() {
				began := time.Now()
				return func() {
					if s.Kind == engine.StageAction {
						t.Actions[s.Name] += milliseconds(time.Since(began))
					}
				}
			}
			if cpu != "" {
				f, err := os.Create(cpu)
				if err != nil {
					return fmt.Errorf("--cpuprofile: %w", err)
				}
				defer func() { err = errors.Join(err, f.Close()) }()
				if err := pprof.StartCPUProfile(f); err != nil {
					return fmt.Errorf("--cpuprofile: %w", err)
				}
				defer pprof.StopCPUProfile()
			}
			began := time.Now()
			snap := k.Image.Store(cluster.Options{}).Snapshot(k.Image.Now)
			e.Run(c.Context(), snap, func(engine.Plan) {})
			t.Total = milliseconds(time.Since(began))
			if memory != "" {
				f, err := os.Create(memory)
				if err != nil {
					return fmt.Errorf("--memprofile: %w", err)
				}
				runtime.GC() // so that the profile is of what is still in use
				if err := errors.Join(pprof.WriteHeapProfile(f), f.Close()); err != nil {
					return fmt.Errorf("--memprofile: %w", err)
				}
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(t)
		},
	}
	fs := c.Flags()
	fs.StringVar(&filename, "filename", "", "the snapshot: an archive of KAI's (/get-snapshot), or a file of muster snapshot save")
	fs.IntVar(&verbosity, "verbosity", 4, "accepted, no effect: nothing is logged")
	fs.StringVar(&cpu, "cpuprofile", "", "write a processor profile to this file")
	fs.StringVar(&memory, "memprofile", "", "write a memory profile to this file")
	return c
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
