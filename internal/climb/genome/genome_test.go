package genome

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

var limits = Limits{Nodes: 50, Queues: 40, Gangs: 200, Pods: 400}

// TestLay: what is drawn, changed or made smaller is valid and within limits, is the same genome after it was text, always lays the same
// cluster, and overcommits no node.
func TestLay(t *testing.T) {
	t.Parallel()
	ran, shared := 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := NewPalette(r)
		g := Random(r, p, limits)
		other := Random(r, p, limits)
		for range 5 {
			g = Mutate(r, &g, &other, p, limits)
		}
		text, err := json.Marshal(&g)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(text)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if !equal(&back, &g) || !g.Within(limits) {
			t.Fatalf("seed %d: within limits: %v; %s", seed, g.Within(limits), text)
		}
		w := g.Lay()
		if pods := podsOf(&w); len(w.Nodes) > limits.Nodes || len(w.Queues) > limits.Queues || len(w.Gangs) > limits.Gangs || pods > limits.Pods {
			t.Fatalf("seed %d: %d nodes, %d queues, %d gangs, %d pods: %s", seed, len(w.Nodes), len(w.Queues), len(w.Gangs), pods, text)
		}
		if !reflect.DeepEqual(w, back.Lay()) {
			t.Fatalf("seed %d lays two clusters: %s", seed, text)
		}
		n, k := check(t, &w)
		ran, shared = ran+n, shared+k
		for _, s := range g.Smaller() {
			if err := s.Check(); err != nil || s.Size() >= g.Size() {
				t.Fatalf("seed %d: %v, size %d of %d", seed, err, s.Size(), g.Size())
			}
		}
	}
	if ran == 0 || shared == 0 {
		t.Fatalf("%d pods run, %d of them share: nothing was checked", ran, shared)
	}
}

func podsOf(w *World) (n int) {
	for i := range w.Gangs {
		n += len(w.Gangs[i].Pods)
	}
	return n
}

// check returns how many pods run, and how many of them share a device.
func check(t *testing.T, w *World) (ran, sharing int) {
	t.Helper()
	gpus, cpus, pods, part := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	device := map[string]string{}
	queues := map[string]bool{}
	for i := range w.Queues {
		queues[w.Queues[i].Name] = true
		if p := w.Queues[i].Parent; p != "" && !queues[p] {
			t.Fatalf("queue %s is below %s, which is not there before it", w.Queues[i].Name, p)
		}
	}
	parents := map[string]bool{}
	for i := range w.Queues {
		parents[w.Queues[i].Parent] = true
	}
	for i := range w.Gangs {
		g := &w.Gangs[i]
		if !queues[g.Queue] || parents[g.Queue] {
			t.Fatalf("gang %s is in queue %q, which is none, or no leaf", g.Name, g.Queue)
		}
		least := 0
		for _, n := range g.Sets {
			least += n
		}
		if g.Sets != nil && least != g.Min || g.Min < 1 || g.Min > len(g.Pods) {
			t.Fatalf("gang %s needs %d of %d pods, and its sets %d", g.Name, g.Min, len(g.Pods), g.Sets)
		}
		for _, p := range g.Pods {
			if p.Node == "" {
				continue
			}
			ran++
			cpus[p.Node] += g.MilliCPU
			pods[p.Node]++
			switch {
			case p.Device == "":
				gpus[p.Node] += g.MilliGPU
			case device[p.Device] == "":
				device[p.Device] = p.Node
				gpus[p.Node] += wholeGPU
				fallthrough
			default:
				sharing++
				part[p.Device] += g.MilliGPU
			}
			if p.Device != "" && (device[p.Device] != p.Node || part[p.Device] > wholeGPU) {
				t.Fatalf("device %s of node %s is shared on %s, by %d", p.Device, device[p.Device], p.Node, part[p.Device])
			}
		}
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if gpus[n.Name] > n.GPUs*wholeGPU || cpus[n.Name] > n.CPUs*1000 || pods[n.Name] > podsOfNode {
			t.Fatalf("node %s is overcommitted: %d, %d, %d", n.Name, gpus[n.Name], cpus[n.Name], pods[n.Name])
		}
	}
	return ran, sharing
}

// TestParse: an error names the group, the field and the rule.
func TestParse(t *testing.T) {
	t.Parallel()
	const good = `{"nodes":[{"count":1,"gpus":8,"cpus":8}],"queues":[{"count":1,"quota":0,"quotas":1,"limit":-1,"weight":1,"priority":1,"priorities":1}],` +
		`"gangs":[{"count":1,"pods":1,"sets":1,"milliGPU":1000,"milliCPU":1,"shapes":1,"priority":1,"priorities":1,"labels":1}]}`
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, put, want string }{
		{`"gpus":8`, `"gpus":99`, "nodes[0].gpus is 99; it must be 0 to 16"},
		{`"labels":1`, `"labels":1,"near":"moon"`, `gangs[0].near is "moon"; it must be empty or one of`},
		{`"quota":0`, `"quota":0,"below":1`, "queues[0].below is 1"},
		{`"labels":1`, `"labels":1,"wings":2`, "wings"},
		{`"nodes":[{"count":1,"gpus":8,"cpus":8}]`, `"nodes":[]`, "nodes has 0 groups"},
		{`}]}`, `}],"minRuntime":-1}`, "profile[0].minRuntime is -1"},
	} {
		bad := strings.Replace(good, c.old, c.put, 1)
		if i := strings.LastIndex(good, c.old); c.old == "}]}" {
			bad = good[:i] + c.put
		}
		if _, err := Parse([]byte(bad)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", bad, err, c.want)
		}
	}
}
