package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Stream is a kind of gang that one queue keeps sending.
type Stream struct {
	// Name begins the names of its gangs.
	Name  string
	Queue string
	// First is when the first gang comes. Further ones come Every so often, Count in all; Every 0 is all at once, Count 0 with an
	// Every is until the end of the simulation.
	First, Every time.Duration
	Count        int
	// Random makes gaps and durations vary: they are drawn from exponential distributions with the given means.
	Random bool
	// What each gang is; see [Gang].
	Pods, Min int
	Requests  []cluster.Quantity
	Priority  int32
	Fixed     bool
	Duration  time.Duration
}

// Arrivals merges streams into one, by time, for [Options].Arrivals. One seed gives one sequence; streams do not influence each
// other.
func Arrivals(seed uint64, streams []Stream) func() (Gang, bool) {
	type source struct {
		*Stream
		random *rand.Rand
		next   time.Duration
		sent   int
	}
	var sources []*source
	for i := range streams {
		s := &source{Stream: &streams[i], random: rand.New(rand.NewPCG(seed, uint64(i))), next: streams[i].First}
		if s.Count > 0 || s.Every > 0 {
			sources = append(sources, s)
		}
	}
	return func() (Gang, bool) {
		if len(sources) == 0 {
			return Gang{}, false
		}
		s := sources[0]
		for _, o := range sources[1:] {
			if o.next < s.next {
				s = o
			}
		}
		vary := func(mean time.Duration) time.Duration {
			if !s.Random {
				return mean
			}
			return time.Duration(float64(mean) * s.random.ExpFloat64())
		}
		g := Gang{
			Name: fmt.Sprintf("%s-%d", s.Name, s.sent), Queue: s.Queue, At: s.next, Pods: s.Pods, Min: s.Min, Requests: s.Requests,
			Priority: s.Priority, Fixed: s.Fixed,
		}
		if s.Duration > 0 {
			g.Duration = max(time.Second, vary(s.Duration))
		}
		s.next += vary(s.Every)
		if s.sent++; s.sent == s.Count {
			sources = slices.DeleteFunc(sources, func(o *source) bool { return o == s })
		}
		return g, true
	}
}

// Outages lets nodes fail at random, for [Options].Outages: one of them every so often, for a time, both drawn from
// exponential distributions with these means.
func Outages(seed uint64, nodes []string, every, lasting time.Duration) func() (Outage, bool) {
	if len(nodes) == 0 || every <= 0 {
		return nil
	}
	nodes = slices.SortedFunc(slices.Values(nodes), strings.Compare)
	r := rand.New(rand.NewPCG(seed, 1<<32))
	at := time.Duration(0)
	return func() (Outage, bool) {
		at += time.Duration(float64(every) * r.ExpFloat64())
		return Outage{Node: nodes[r.IntN(len(nodes))], At: at, For: max(time.Second, time.Duration(float64(lasting)*r.ExpFloat64()))}, true
	}
}
