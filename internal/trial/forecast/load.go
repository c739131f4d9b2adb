package forecast

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/see"
	"github.com/muster-scheduler/muster/internal/sim"
)

// The cluster on which all loads live.
const (
	nodes    = 8
	nodeGPUs = 8
)

// queues are the teams, and their quotas in GPUs. What they ask for is as their quotas are to each other.
func queues() map[string]int64 { return map[string]int64{"a": 40, "b": 24} }

// job is a gang with its truth.
type job struct {
	sim.Gang
	work see.Work
}

// Load is a sequence of gangs.
type Load struct {
	Kind string
	Rho  float64 // what is asked for, of what there is
	next func() (job, bool)
}

// Runtimes are the made-up distributions of runtimes.
func Runtimes() []string { return []string{"exponential", "lognormal", "bimodal", "deadlines"} }

// Loads are the parts of the cluster that are asked for.
func Loads() []float64 { return []float64{0.7, 0.95} }

// Made makes up a load: teams send batches (two gangs in the mean, geometric) of one kind of work. Each team has twelve kinds, with a name, a size
// and a mean runtime of their own; gangs of one kind vary as the distribution says. Of "deadlines" every gang has a name of its own, and all that is
// known is a deadline, of which it uses a random part, or all of it. The mean runtime is an hour.
func Made(runtimes string, rho float64, seed uint64) *Load {
	r := rand.New(rand.NewPCG(seed, 1))
	type kind struct {
		name  string
		pods  int
		gpus  int64
		scale float64
	}
	sizes := []kind{{pods: 1, gpus: 1}, {pods: 1, gpus: 1}, {pods: 1, gpus: 1}, {pods: 1, gpus: 1}, {pods: 1, gpus: 2}, {pods: 1, gpus: 2}, {pods: 1, gpus: 2}, {pods: 1, gpus: 4}, {pods: 1, gpus: 4}, {pods: 2, gpus: 1}, {pods: 2, gpus: 2}, {pods: 2, gpus: 4}}
	kinds := map[string][]kind{}
	work := 0.0 // GPU hours of a gang
	for _, q := range []string{"a", "b"} {
		for i, k := range sizes {
			k.name = fmt.Sprintf("%s-%s", q, []string{"prep", "eval", "train", "tune", "embed", "serve", "index", "label", "render", "dock", "fold", "plan"}[i])
			k.scale = math.Exp(0.6*r.NormFloat64() - 0.18)
			if runtimes == "deadlines" {
				k.scale = 1
			}
			kinds[q] = append(kinds[q], k)
			work += float64(k.pods) * float64(k.gpus) * k.scale / float64(2*len(sizes))
		}
	}
	const batch = 2
	gap := work * batch / (rho * nodes * nodeGPUs) // hours between batches
	hour := func(x float64) time.Duration { return max(10*time.Second, time.Duration(x*float64(time.Hour))) }
	draw := func(k kind) (time.Duration, time.Duration) {
		switch runtimes {
		case "exponential":
			return hour(k.scale * r.ExpFloat64()), 0
		case "lognormal":
			return hour(k.scale * math.Exp(r.NormFloat64()-0.5)), 0
		case "bimodal": // most fail early or are short; the rest is long
			if r.Float64() < 0.7 {
				return hour(k.scale * 0.15 * (0.5 + r.Float64())), 0
			}
			return hour(k.scale * 2.983 * (0.7 + 0.6*r.Float64())), 0
		}
		deadline := []float64{0.5, 1, 2, 4}[r.IntN(4)] // 1.875 in the mean
		part := 0.05 + 0.85*math.Pow(r.Float64(), 1.1)
		if r.Float64() < 0.15 {
			part = 1
		}
		return hour(deadline * part), hour(deadline)
	}
	at, left, sent := 0.0, 0, 0
	var q string
	var k kind
	return &Load{Kind: runtimes, Rho: rho, next: func() (job, bool) {
		for left == 0 {
			at += gap * r.ExpFloat64()
			q = "a"
			if r.Float64() < 24.0/64 {
				q = "b"
			}
			k = kinds[q][r.IntN(len(sizes))]
			for left = 1; r.Float64() > 1.0/batch; left++ {
			}
		}
		left--
		sent++
		took, deadline := draw(k)
		w := see.Work{Kind: "Job", Stem: see.Stem(fmt.Sprintf("%s-%d", k.name, sent)), Deadline: deadline}
		if runtimes == "deadlines" {
			w.Stem = ""
		}
		return job{sim.Gang{
			Name: fmt.Sprintf("%s-%d", k.name, sent), Queue: q, At: time.Duration(at * float64(time.Hour)), Pods: k.pods, Requests: sim.Room(k.gpus*cluster.Whole, 1000, 1<<30, 1),
			Priority: 50, Duration: took,
		}, w}, true
	}}
}

// Recorded replays the pods of the trace "openb" (Alibaba, 2023; pods.csv of its release): those that use GPUs, came in the trace's busy last four
// months and stayed for at most a day; services that stay for months are left out. Their order, sizes, parts of GPUs, runtimes and bursts are the
// trace's; arrivals are drawn together evenly so that the load is rho. Latency-sensitive pods are team a, all others team b.
func Recorded(pods io.Reader, rho float64) (*Load, error) {
	rows, err := csv.NewReader(pods).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	var list []job
	total, last := 0.0, 0.0
	for i, row := range rows {
		if i == 0 {
			continue
		}
		if len(row) < 11 {
			return nil, fmt.Errorf("line %d of the trace has %d fields, not 11", i+1, len(row))
		}
		var x [5]float64
		for j, field := range []int{1, 3, 4, 8, 9} { // cpu_milli, num_gpu, gpu_milli, creation_time, deletion_time
			if x[j], err = strconv.ParseFloat(row[field], 64); err != nil {
				return nil, fmt.Errorf("line %d of the trace: %w", i+1, err)
			}
		}
		cpu, gpus, milli, from, took := x[0], x[1], x[2], x[3], x[4]-x[3]
		if gpus < 1 || gpus > nodeGPUs || from < 1e7 || took < 10 || took > 86400 {
			continue
		}
		g := sim.Gang{Name: row[0], Queue: "b", At: time.Duration(from * float64(time.Second)), Pods: 1, Priority: 50, Duration: time.Duration(took * float64(time.Second))}
		if row[6] == "LS" {
			g.Queue = "a"
		}
		if milli < 1000 && gpus == 1 {
			g.Requests, g.Share = sim.Room(0, int64(cpu), 1<<30, 1), cluster.Share{Devices: 1, Portion: cluster.Portion(milli) * (cluster.WholePortion / cluster.Portion(cluster.Whole))}
			total += milli / 1000 * took
		} else {
			g.Requests = sim.Room(int64(gpus)*cluster.Whole, int64(cpu), 1<<30, 1)
			total += gpus * took
		}
		list = append(list, job{g, see.Work{Kind: "Pod", Stem: see.Stem(row[0])}})
		last = max(last, from)
	}
	if len(list) < 100 {
		return nil, fmt.Errorf("the trace has %d pods of use; it must have at least 100", len(list))
	}
	first := list[0].At
	for _, j := range list {
		first = min(first, j.At)
	}
	shrink := total / (rho * nodes * nodeGPUs) / (last - first.Seconds())
	for i := range list {
		list[i].At = time.Duration(float64(list[i].At-first) * shrink)
	}
	next, round, length := 0, 0, time.Duration((last-first.Seconds())*shrink*float64(time.Second))
	return &Load{Kind: "openb", Rho: rho, next: func() (job, bool) {
		if next == len(list) {
			next, round = 0, round+1
		}
		j := list[next]
		j.Name = fmt.Sprintf("%s-%d", j.Name, round)
		j.At += time.Duration(round) * length
		next++
		return j, true
	}}, nil
}
