package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/profile"
)

// Placement is a policy of where pods go, by the name under which results are shown.
type Placement string

// The placements that are compared.
const (
	PlaceBinpack       Placement = "binpack"
	PlaceSpread        Placement = "spread"
	PlaceFragmentation Placement = "fragmentation"
)

// Placements lists them.
func Placements() []Placement {
	return []Placement{PlaceBinpack, PlaceSpread, PlaceFragmentation}
}

// profile resolves a placement as a shard would have it, without the actions that move or evict pods.
func (p Placement) profile() (engine.Profile, error) {
	var s profile.Shard
	switch p {
	case PlaceBinpack:
	case PlaceSpread:
		s.GPUStrategy, s.CPUStrategy = "spread", "spread"
	case PlaceFragmentation:
		s.Plugins = map[string]profile.Override{"fragmentation": {}}
	default:
		return engine.Profile{}, fmt.Errorf("placement %q is not known: use %v", p, Placements())
	}
	prof, err := profile.ForShard(s)
	prof.Actions = []string{"allocate"}
	return prof, err
}

// MixPart is one kind of pod of a PodMix, and how many of a thousand pods are of it.
type MixPart struct {
	PerMille int
	// GPUs is how many whole GPUs it takes, or Portion which part of one, in thousandths; neither for a pod without GPUs.
	GPUs, Portion int64
	// CPU is how many CPUs it takes; memory is 4 GiB for each.
	CPU int64
}

// PodMix is what kinds of pods come, each drawn for itself.
type PodMix []MixPart

// PublishedMix is shaped like the published marginals of the trace "openb" (Alibaba, 2023: 8,152 pods): 13 % use no GPU, 38 % a
// part of one, 48 % one whole GPU, and 1 % several. The trace's sizes of parts, of multi-GPU pods and of CPUs are not among
// those: here parts are 0.1 to 0.9, several are 2, 4 or 8, and CPUs 2 to 16.
func PublishedMix() PodMix {
	return PodMix{
		{PerMille: 131, CPU: 8},
		{PerMille: 42, Portion: 100, CPU: 2},
		{PerMille: 42, Portion: 200, CPU: 2},
		{PerMille: 42, Portion: 300, CPU: 4},
		{PerMille: 42, Portion: 400, CPU: 4},
		{PerMille: 42, Portion: 500, CPU: 4},
		{PerMille: 42, Portion: 600, CPU: 6},
		{PerMille: 42, Portion: 700, CPU: 6},
		{PerMille: 42, Portion: 800, CPU: 8},
		{PerMille: 42, Portion: 900, CPU: 8},
		{PerMille: 160, GPUs: 1, CPU: 4},
		{PerMille: 162, GPUs: 1, CPU: 8},
		{PerMille: 160, GPUs: 1, CPU: 16},
		{PerMille: 4, GPUs: 2, CPU: 16},
		{PerMille: 3, GPUs: 4, CPU: 32},
		{PerMille: 2, GPUs: 8, CPU: 64},
	}
}

// MultiMix is PublishedMix with 20 % of the pods asking for several GPUs, at the cost of those that ask for one.
func MultiMix() PodMix {
	mix := PublishedMix()
	for i := range mix {
		switch {
		case mix[i].GPUs == 1:
			mix[i].PerMille -= 64
		case mix[i].GPUs == 2:
			mix[i].PerMille = 100
		case mix[i].GPUs == 4:
			mix[i].PerMille = 61
		case mix[i].GPUs == 8:
			mix[i].PerMille = 40
		}
	}
	return mix
}

// draw returns a kind at random.
func (m PodMix) draw(r *rand.Rand) MixPart {
	total := 0
	for _, p := range m {
		total += p.PerMille
	}
	x := r.IntN(total)
	for _, p := range m {
		if x -= p.PerMille; x < 0 {
			return p
		}
	}
	return m[len(m)-1]
}

// gpus is what one pod of the kind takes, in milli-GPU.
func (p MixPart) gpus() int64 { return p.GPUs*cluster.Whole + p.Portion }

func (p MixPart) gang(name string, at time.Duration) Gang {
	g := Gang{Name: name, Queue: "team", At: at, Pods: 1, Requests: Room(p.GPUs*cluster.Whole, p.CPU*1000, p.CPU<<32, 1)}
	if p.Portion > 0 {
		g.Share = cluster.Share{Devices: 1, Portion: cluster.Portion(p.Portion) * (cluster.WholePortion / cluster.Portion(cluster.Whole))}
	}
	return g
}

// Inflation is an experiment: pods of a mix come one after another to an empty cluster and stay, until they ask for more than
// it has. The same pods come in the same order whatever the placement.
type Inflation struct {
	// Nodes is how many nodes of eight GPUs and 96 CPUs there are.
	Nodes int
	Mix   PodMix
	// Until is what the pods ask for in all when it ends, in percent of the cluster's GPUs.
	Until int
	// Seeds are the sequences that are played; results are their means.
	Seeds []uint64
}

// The machine of an Inflation.
const (
	inflationGPUs = 8
	inflationCPUs = 96
)

// Inflated is how an Inflation went with one placement. Entry k of its curves is when the pods that had come asked for k percent
// of the cluster's GPUs.
type Inflated struct {
	Placement Placement `json:"placement"`
	// Allocated and Unusable are in percent of the cluster's GPUs: what pods hold, and the expected fragmentation (see
	// engine.Fragmentation) of what is free.
	Allocated []float64 `json:"allocated"`
	Unusable  []float64 `json:"unusable"`
	// FirstFailure is at how many percent asked for a pod had to wait for the first time.
	FirstFailure float64 `json:"firstFailure"`
	// Lost is how many GPUs were not allocated in the end; Worst and Best are the seeds'.
	Lost  float64 `json:"lost"`
	Worst float64 `json:"worst"`
	Best  float64 `json:"best"`
}

// Run plays the experiment with one placement.
func (x Inflation) Run(ctx context.Context, p Placement, registry engine.Registry) (*Inflated, error) {
	out := &Inflated{Placement: p, Allocated: make([]float64, x.Until+1), Unusable: make([]float64, x.Until+1)}
	n := float64(len(x.Seeds))
	for i, seed := range x.Seeds {
		lost, first, err := x.play(ctx, p, registry, seed, out)
		if err != nil {
			return nil, fmt.Errorf("%s, seed %d: %w", p, seed, err)
		}
		out.Lost += lost / n
		out.FirstFailure += first / n
		if i == 0 || lost > out.Worst {
			out.Worst = lost
		}
		if i == 0 || lost < out.Best {
			out.Best = lost
		}
	}
	for k := range out.Allocated {
		out.Allocated[k] /= n
		out.Unusable[k] /= n
	}
	return out, nil
}

// play adds one seed's curves to out and returns how many GPUs were not allocated in the end, and how much had been asked for
// when a pod had to wait for the first time.
func (x Inflation) play(ctx context.Context, p Placement, registry engine.Registry, seed uint64, out *Inflated) (lost, first float64, err error) {
	prof, err := p.profile()
	if err != nil {
		return 0, 0, err
	}
	e, err := engine.New(prof, registry)
	if err != nil {
		return 0, 0, err
	}
	w := NewCluster(Options{Engine: e})
	for i := range x.Nodes {
		room := Room(inflationGPUs*cluster.Whole, inflationCPUs*1000, 1<<40, 250)
		if err := w.AddNode(Node{Name: fmt.Sprintf("node-%05d", i), Allocatable: room}); err != nil {
			return 0, 0, err
		}
	}
	free := []cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}
	w.Store.Apply(cluster.QueueState{Name: "team", UID: "team", Quota: free, Limit: free})
	whole := int64(x.Nodes) * inflationGPUs * cluster.Whole
	percent := func(milli int64) float64 { return 100 * float64(milli) / float64(whole) }
	r := rand.New(rand.NewPCG(seed, 0))
	asked, first, next := int64(0), float64(x.Until), 0
	for i := 0; next <= x.Until; i++ {
		kind := x.Mix.draw(r)
		if err := w.Submit(kind.gang(fmt.Sprintf("pod-%06d", i), w.Elapsed())); err != nil {
			return 0, 0, err
		}
		asked += kind.gpus()
		if err := w.Advance(w.Now().Add(time.Second)); err != nil {
			return 0, 0, err
		}
		if _, err := w.Decide(ctx); err != nil {
			return 0, 0, err
		}
		held := w.Held("team")
		if held < asked && first == float64(x.Until) {
			first = percent(asked)
		}
		if percent(asked) < float64(next) {
			continue
		}
		f := e.Fragmentation(w.Store.Snapshot(w.Now()))
		for ; next <= x.Until && percent(asked) >= float64(next); next++ {
			out.Allocated[next] += percent(held)
			out.Unusable[next] += percent(f.Unusable)
		}
		lost = float64(whole-held) / 1000
	}
	return lost, first, nil
}
