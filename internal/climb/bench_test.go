package climb

import (
	"context"
	"testing"
	"time"
)

// BenchmarkClimbed are the slowest cycles that were found, each within what a climber may lay (DefaultLimits). What is measured is processor
// time, garbage collection included, of the slowest of a few cycles.
func BenchmarkClimbed(b *testing.B) {
	for _, file := range cases(b) {
		f, err := ReadCase(file)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(f.Name, func(b *testing.B) {
			var m Measured
			for b.Loop() {
				if m, err = (&Ask{Genome: f.Genome, Cycles: 3, Runs: 1, Limit: time.Minute}).Run(context.Background()); err != nil || m.Cut {
					b.Fatalf("%v, cut short %v", err, m.Cut)
				}
			}
			b.ReportMetric(m.CPU.Seconds()*1e3, "worst-ms")
			b.ReportMetric(float64(m.Steps), "steps")
			b.ReportMetric(0, "ns/op")
		})
	}
}
