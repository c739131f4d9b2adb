package tenants

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// What a run's figures are held against. The functions below judge figures alone, so that each is shown to be able to fail.
const (
	// MemoryBound is what a role may hold at most, in MiB.
	MemoryBound = 220
	// slowerFactor is how many times as long honest pods may wait beside hostile writes as beside harmless ones.
	slowerFactor = 2
	// eventsPerWrite and eventsBesides bound the events that there are.
	eventsPerWrite, eventsBesides = 5, 1000
	// growthTests is how many samples it takes before growth is told from getting warm.
	growthTests = 20
	// growthLeast, in MiB, and growthPercent are what a role may hold more in the end than before the middle.
	growthLeast, growthPercent = 6, 5
)

// Slower says in what honest pods waited too long: half of them longer than twice what half of them waited beside as many harmless
// writes; "" for not. Who never got a node counts with what it waited. Without figures of both nothing is shown, and it says so.
func Slower(calm, hostile []time.Duration) string {
	if len(calm) == 0 || len(hostile) == 0 {
		return fmt.Sprintf("there is nothing to compare: %d honest pods waited beside hostile writes and %d beside harmless ones", len(hostile), len(calm))
	}
	if c, h := Median(calm), Median(hostile); h > slowerFactor*c {
		return fmt.Sprintf("half of them waited %s beside hostile writes and %s beside as many harmless ones", h, c)
	}
	return ""
}

// Median is the middle one, of an even number the later of the two; 0 of none.
func Median(ds []time.Duration) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(ds))[len(ds)/2]
}

// Memory is what a role holds at a moment, and the most that it ever held, in MiB.
type Memory struct{ Now, Most int }

// Unbounded says in what a role's memory, looked at again and again at equal distances, is not bounded; "" for not: it was more than
// MemoryBound once, or it goes on growing. The first quarter of the samples is for getting warm. That it grows is that all of the last
// quarter are well above all of the second, which a role that is only busy now and then does not bring about.
func Unbounded(samples []Memory) string {
	most := 0
	for _, s := range samples {
		most = max(most, s.Now, s.Most)
	}
	if most > MemoryBound {
		return fmt.Sprintf("it held %d MiB", most)
	}
	if len(samples) < growthTests {
		return ""
	}
	by := func(a, b Memory) int { return a.Now - b.Now }
	quarter := len(samples) / 4
	before := slices.MaxFunc(samples[quarter:2*quarter], by).Now
	after := slices.MinFunc(samples[len(samples)-quarter:], by).Now
	if after > before+max(growthLeast, before*growthPercent/100) {
		return fmt.Sprintf("it goes on growing: at most %d MiB in the second quarter of the run, at least %d in the last", before, after)
	}
	return ""
}

// Flood says that there are more events than so many writes account for; "" if not.
func Flood(events, writes int) string {
	if events > eventsPerWrite*writes+eventsBesides {
		return fmt.Sprintf("%d events for %d writes", events, writes)
	}
	return ""
}

// Complaint is the first line of a role's log that tells of a panic, in short; "" for none.
func Complaint(log string) string {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "panic") || strings.Contains(line, "goroutine ") {
			return fmt.Sprintf("%.300s", strings.TrimSpace(line))
		}
	}
	return ""
}
