package main

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"

	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
)

//go:embed cases.yaml
var casesYAML []byte

// benchCase is one row of cases.yaml.
type benchCase struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// Scenario is the load driver's; without one the load is of this program: churn, large, racks, reclaim, groups or vcjobs.
	Scenario string `json:"scenario,omitempty"`
	Load     string `json:"load,omitempty"`
	// API has the load driver make its Jobs for Volcano's face: volcano, or "" for KAI's.
	API string `json:"api,omitempty"`
	// Nodes have 8 GPUs each, for groups 4 cores, for vcjobs 32, and none. Size counts pods, or gangs for racks, groups and vcjobs; 0: as many one-GPU pods as fit. GPUs is how many each pod of the load
	// driver's asks for, 1 if it is 0. Gang is the size of gangs of this program's loads, Others how many pods are not the scheduler's, or for
	// groups, how many of a lower priority are there first.
	Nodes  int `json:"nodes"`
	Size   int `json:"size,omitempty"`
	GPUs   int `json:"gpus,omitempty"`
	Gang   int `json:"gang,omitempty"`
	Others int `json:"others,omitempty"`
	// CPU is what a pod of groups asks for, 100m if it is "". Basic groups start pod by pod.
	CPU   string `json:"cpu,omitempty"`
	Basic bool   `json:"basic,omitempty"`
	// Tasks is into how many tasks the pods of a Job of vcjobs are divided, 1 if it is 0; Plugins are the plugins of such a Job.
	Tasks   int      `json:"tasks,omitempty"`
	Plugins []string `json:"plugins,omitempty"`
	// Racks are evenly split from the nodes, Seconds is how long churn lasts.
	Racks   int `json:"racks,omitempty"`
	Seconds int `json:"seconds,omitempty"`
	// Prepared: everything is submitted first; then the scheduler starts.
	Prepared bool `json:"prepared,omitempty"`
	// Layout is how the nodes nest, widest domains first: [4, 8, 2] is 4 zones of 8 racks of 2 nodes. Prefer is the level,
	// by its number from 1 on, that the Jobs prefer.
	Layout []int `json:"layout,omitempty"`
	Prefer int   `json:"prefer,omitempty"`
	// Sides are the schedulers; both if there are none.
	Sides []string `json:"sides,omitempty"`
	// Rounds is how many if nobody says, 5 if it is 0. Long cases are measured only when asked for by name.
	Rounds int              `json:"rounds,omitempty"`
	Long   bool             `json:"long,omitempty"`
	Reach  map[string]reach `json:"reach"`
	// Installed: by turns as the chart installs Muster, and in one process on the same lab. Reach has a ratio of the two.
	Installed bool `json:"installed,omitempty"`
	// Seen: Muster's side has the role ui beside; the side "muster alone" has not.
	Seen bool `json:"seen,omitempty"`
}

// reach is what a figure's median, its ratio to kube-scheduler's, or how much more it is, should be at most or at least. One of them is set; a maximum may be 0. Of min and minRatio both may be: either is enough.
type reach struct {
	Max      *float64 `json:"max,omitempty"`
	Min      float64  `json:"min,omitempty"`
	MaxRatio float64  `json:"maxRatio,omitempty"`
	MinRatio float64  `json:"minRatio,omitempty"`
	// MaxMore is how much more than kube-scheduler's median it may be.
	MaxMore float64 `json:"maxMore,omitempty"`
}

// readCases reads the file and says which row breaks which rule.
func readCases(text []byte) ([]benchCase, error) {
	var file struct {
		Cases []benchCase `json:"cases"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("cases.yaml: %w", err)
	}
	for i := range file.Cases {
		c := &file.Cases[i]
		if len(c.Sides) == 0 {
			c.Sides = []string{sideMuster, sideKube}
		}
		if c.Rounds == 0 {
			c.Rounds = 5
		}
		wrong := ""
		switch {
		case (c.Scenario == "") == (c.Load == ""):
			wrong = "one of scenario and load must be set"
		case !slices.Contains([]string{"", "churn", "large", "racks", "reclaim", "groups", "vcjobs"}, c.Load):
			wrong = "load is churn, large, racks, reclaim, groups or vcjobs"
		case c.volcano() && slices.Contains(c.Sides, sideKube):
			wrong = "sides: kube-scheduler knows nothing of Volcano's"
		case c.Load != "" && c.Prepared != (c.Load == "racks"):
			wrong = "prepared: of the loads, racks is, and no other"
		case c.Nodes < 1:
			wrong = "nodes: there must be one"
		case (c.Load != "") != (c.Gang > 0):
			wrong = "gang is for loads, and they need it"
		}
		for k, r := range c.Reach { // order: any error will do
			set := 0
			for _, is := range []bool{r.Max != nil, r.Min != 0, r.MaxRatio != 0, r.MinRatio != 0, r.MaxMore != 0} {
				if is {
					set++
				}
			}
			if r.Min != 0 && r.MinRatio != 0 {
				set--
			}
			if _, ok := figureOf(k); !ok || set != 1 {
				wrong = fmt.Sprintf("reach: %s is no figure, or does not say one of max, min (or minRatio), maxRatio, minRatio and maxMore", k)
			}
		}
		for _, s := range c.Sides {
			if s != sideMuster && s != sideKube && (s != sideAlone || !c.Seen) && (s != sideBare || !slices.Contains([]string{"large", "racks", "reclaim", "vcjobs"}, c.Load)) {
				wrong = fmt.Sprintf("sides: %s is neither %s nor %s, nor %s of large, racks, reclaim or vcjobs", s, sideMuster, sideKube, sideBare)
			}
		}
		if wrong != "" {
			return nil, fmt.Errorf("cases.yaml: case %s: %s", c.Name, wrong)
		}
	}
	return file.Cases, nil
}

// scaled is the case with another number of nodes and all that goes with it, at least as many as its machinery needs; gangs keep their sizes,
// but for those that fill the cluster.
func (c benchCase) scaled(by float64) benchCase {
	to := func(n *int, least int) {
		if *n > 0 {
			*n = max(least, int(math.Round(float64(*n)*by)))
		}
	}
	to(&c.Nodes, 2*max(4, c.Gang/gpusPerNode, c.Racks))
	if c.Load != "" && c.Gang < 2*gpusPerNode {
		c.Nodes = max(c.Nodes, 2*c.Gang)
	}
	if c.Load == "groups" || c.Load == "vcjobs" {
		to(&c.Size, 1)
		if c.Load == "groups" { // gangs of groups have the size of the cluster
			to(&c.Gang, 3)
		}
		if c.Others > 0 {
			c.Nodes = max(c.Nodes, c.Size*c.Gang)
		}
	} else {
		to(&c.Size, 2)
	}
	to(&c.Others, 1)
	to(&c.Seconds, 75)
	return c
}

// volcano says whether Volcano's face has to be on.
func (c *benchCase) volcano() bool { return c.API != "" || c.Load == "vcjobs" }

// reference is the side that Muster's is compared with.
func (c *benchCase) reference() string {
	switch {
	case c.Seen:
		return sideAlone
	case slices.Contains(c.Sides, sideBare):
		return sideBare
	}
	return sideKube
}

// pods is how many are measured.
func (c *benchCase) pods() int {
	fit := c.Nodes * gpusPerNode / max(1, c.GPUs)
	switch {
	case c.Load == "large":
		return fit - c.Gang
	case c.Load == "racks", c.Load == "groups", c.Load == "vcjobs":
		return c.Size * c.Gang
	case c.Scenario == "reclaim": // the load driver's gangs
		return fit / 2 / 16 * 16
	case c.Load == "reclaim":
		return fit / 2 / c.Gang * c.Gang
	case c.Size > 0:
		return c.Size
	}
	return fit
}

// driverArgs are the load driver's for a side.
func (c *benchCase) driverArgs(side string) []string {
	args := []string{"-scenario", c.Scenario, "-nodes", strconv.Itoa(c.Nodes), "-gpu-per-pod", strconv.Itoa(max(1, c.GPUs))}
	if c.Scenario != "reclaim" {
		args = append(args, "-size", strconv.Itoa(c.pods()))
	}
	if c.API != "" {
		args = append(args, "-api", c.API, "-scheduler", vckeys.SchedulerName)
	}
	if !isMuster(side) {
		args = append(args, "-api", "kube", "-scheduler", schedulerName(side))
	}
	return args
}
