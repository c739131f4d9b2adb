package enginetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// wild draws commands of a story in the words of scenarios, without regard to whether they make sense.
type wild struct {
	r            *rand.Rand
	nodes, gangs int
	kinds        map[string]bool // of what the cluster has
	claims       bool            // whether the line at hand may ask for claims
}

func (w *wild) pick(xs ...string) string { return xs[w.r.IntN(len(xs))] }
func (w *wild) one(n int) bool           { return w.r.IntN(n) == 0 }
func (w *wild) node() string             { return fmt.Sprintf("n%d", 1+w.r.IntN(w.nodes)) }
func (w *wild) gang() string             { return fmt.Sprintf("g%d", w.r.IntN(w.gangs+1)) }
func (w *wild) queue() string            { return w.pick("a1", "a2", "b1", "b2", "c", "a", "b") }
func (w *wild) leaf() string             { return w.pick("a1", "a2", "b1", "b2", "c") }

func (w *wild) nodeLine(i int) string {
	s := fmt.Sprintf("node n%d gpu=%s cpu=%s pods=%s label=zone=z%d label=rack=r%d", i, w.pick("0", "1", "2", "4", "4", "8"), w.pick("4", "8", "32"), w.pick("3", "30", "30", "110"), i%2, i%3)
	if w.kinds["share"] {
		s += " gpu-memory=" + w.pick("40000", "80000")
	}
	if w.kinds["mig"] && w.one(2) {
		s += " mig=1g.5gb:" + w.pick("2", "7") + " mig-strategy=mixed"
	}
	if w.kinds["numa"] && w.one(2) {
		s += " zones=2 policy=" + w.pick("restricted", "single-numa-node", "best-effort") + " scope=" + w.pick("pod", "container")
	}
	if w.one(8) {
		s += " taint=k=v:" + w.pick("NoSchedule", "NoExecute", "PreferNoSchedule")
	}
	if w.one(10) {
		s += w.pick(" cordoned", " notready")
	}
	return s
}

func (w *wild) queueAttrs() string {
	s := " quota=" + w.pick("0", "0", "1", "2", "4", "8", "unlimited") + " weight=" + w.pick("0", "1", "1", "2", "0.5") + " priority=" + w.pick("100", "100", "200")
	if w.one(3) {
		s += " limit=" + w.pick("0", "2", "4", "8", "unlimited")
	}
	if w.one(4) {
		s += " cpu.quota=" + w.pick("0", "2", "8")
	}
	if w.one(8) {
		s += " cpu.limit=" + w.pick("2", "8")
	}
	if w.one(5) {
		s += " reclaim-min-runtime=" + w.pick("0s", "30s", "10m")
	}
	if w.one(5) {
		s += " preempt-min-runtime=" + w.pick("0s", "30s", "10m")
	}
	return s
}

func (w *wild) queueLines() []string {
	var out []string
	for _, q := range []string{"a", "b", "c", "a/a1", "a/a2", "b/b1", "b/b2"} {
		out = append(out, "queue "+q+w.queueAttrs())
	}
	return out
}

func (w *wild) shape() string {
	s := ""
	switch w.r.IntN(6) {
	case 0:
		if w.kinds["share"] {
			s = " gpu=" + w.pick("0.5", "0.25", "0.7", "0.1")
			if w.one(3) {
				s += " devices=" + w.pick("2", "3")
			}
		}
	case 1:
		if w.kinds["share"] {
			s = " gpu-memory=" + w.pick("1000", "20000", "39999", "60000")
		}
	case 2:
		if w.kinds["mig"] {
			s = " mig=1g.5gb:" + w.pick("1", "2", "3")
		}
	case 3:
		if w.kinds["claim"] && w.claims {
			s = " " + w.pick("claimtemplate=each", "claimtemplate=two", "resourceclaim=shared")
		}
	}
	if s == "" {
		s = " gpu=" + w.pick("0", "1", "1", "1", "2", "4")
	}
	s += " cpu=" + w.pick("0", "1", "1", "2", "4")
	if w.one(12) {
		s += " selector=zone=" + w.pick("z0", "z1", "z9")
	}
	if w.one(10) {
		s += " toleration=*"
	}
	if w.one(14) {
		s += " port=80"
	}
	if w.one(16) {
		s += " memory=" + w.pick("1Gi", "400Gi", "600Gi")
	}
	if w.one(12) {
		s += " alone"
	}
	if w.one(6) {
		s += " finalizer"
	}
	if w.one(16) {
		s += " nodes=" + w.node()
	}
	if w.kinds["numa"] && w.one(3) {
		s += " memory=1Gi guaranteed"
	}
	if w.one(6) {
		s += " label=app=" + w.pick("x", "y")
	}
	if w.one(25) {
		s += " order=" + w.pick("1", "-1", "7")
	}
	return s
}

func (w *wild) near() string {
	s := ""
	if w.kinds["topology"] && w.one(3) {
		if w.one(3) {
			s += " preferred=" + w.pick("zone", "rack")
		}
		if w.one(2) {
			s += " required=" + w.pick("zone", "rack", "rack", "nowhere")
		}
	}
	return s
}

func (w *wild) place(n int) string {
	switch w.r.IntN(12) {
	case 0:
		return " running=" + w.node()
	case 1:
		return fmt.Sprintf(" running=%s:1", w.node())
	case 2:
		return fmt.Sprintf(" stuck=%s:1", w.node())
	case 3:
		return fmt.Sprintf(" releasing=%s:1", w.node())
	case 4:
		return " gated=1"
	case 5:
		return " ended=1"
	case 6:
		return " failed=1"
	}
	return ""
}

func (w *wild) gangAttrs() string {
	s := " priority=" + w.pick("50", "50", "50", "75", "60", "100", "-5")
	if w.one(8) {
		s += w.pick(" nonpreemptible", " preemptible")
	}
	if w.one(10) {
		s += " backoff"
	}
	if w.one(12) {
		s += " delay=" + w.pick("1s", "1m")
	}
	if w.one(8) {
		s += " grace=" + w.pick("0s", "30s", "5m")
	}
	if w.one(12) {
		s += " started=" + w.pick("1s", "1h")
	}
	return s + w.near()
}

func (w *wild) gangLines(name string) []string {
	head := "gang " + name + " queue=" + w.leaf() + w.gangAttrs()
	defer func() { w.claims = false }()
	if w.one(3) {
		w.claims = true
		out := []string{head + w.shape()}
		w.claims = false
		if w.one(3) {
			out[0] += " min=" + w.pick("1", "2")
		}
		names := []string{"s", "t"}
		if w.one(3) {
			names = []string{"s", "t", "t/u", "t/v"}
		}
		for _, n := range names {
			if n == "t" && len(names) > 2 {
				out = append(out, "  set t"+w.pick("", " min=1", " min=2")+w.near())
				continue
			}
			k := w.r.IntN(4)
			s := fmt.Sprintf("  set %s pods=%d min=%d", n, k, w.r.IntN(k+1)) + w.near()
			if k > 0 && w.one(2) {
				s += w.place(k)
			}
			if w.one(3) {
				s += w.shape()
			}
			out = append(out, s)
		}
		return out
	}
	k := 1 + w.r.IntN(5)
	s := fmt.Sprintf("%s pods=%d min=%d", head, k, 1+w.r.IntN(k))
	w.claims = true
	s += w.shape() + w.place(k)
	w.claims = false
	out := []string{s}
	if w.one(5) {
		out = append(out, "  pod 0"+w.shape())
	}
	return out
}

// pods names pods of some gang, whether it has them or not.
func (w *wild) pods() string {
	g := w.gang()
	switch w.r.IntN(4) {
	case 0:
		return g
	case 1:
		return fmt.Sprintf("%s-s[%d]", g, w.r.IntN(3))
	}
	return fmt.Sprintf("%s[%d]", g, w.r.IntN(4))
}

// command is one more thing that happens, with the lines that belong to it.
func (w *wild) command() []string {
	switch w.r.IntN(34) {
	case 0, 1, 2, 3, 4:
		w.gangs++
		return w.gangLines(fmt.Sprintf("g%d", w.gangs))
	case 5:
		return []string{"edit gang " + w.gang() + w.pick(" gpu=1", " cpu=1", " pods=5", " preemptible", " nonpreemptible", " pods=7 min=2")}
	case 6, 7:
		return []string{"edit queue " + w.pick("a", "b", "c", "a/a1", "a/a2", "b/b1", "b/b2") + w.queueAttrs()}
	case 8:
		return []string{"queue " + w.pick("a", "b", "c", "b/a", "a/b", "c/a1", "b/a1", "a1", "a1/c", "a1/a2", "x/b", "a2/b1") + w.queueAttrs()}
	case 9:
		return []string{"delete queue " + w.queue()}
	case 10, 11:
		return []string{"edit gang " + w.gang() + w.gangAttrs()}
	case 12:
		return []string{"edit gang " + w.gang() + " queue=" + w.pick("a1", "a2", "b1", "b2", "c", "a", "nix")}
	case 13:
		return []string{"edit gang " + w.gang() + " min=" + w.pick("1", "2", "3", "4", "9")}
	case 14:
		return []string{"delete " + w.pick("gang ", "podgroup ", "podgroup ") + w.gang()}
	case 15:
		return []string{"delete pod " + strings.NewReplacer("[", "-", "]", "").Replace(w.pods())}
	case 16, 17:
		return []string{"release " + w.pods() + w.pick("", "", " grace=5s", " grace=1h", " grace=9000h")}
	case 18:
		return []string{"end " + w.pods()}
	case 19, 20:
		return []string{"free " + w.pods()}
	case 21:
		return []string{"ungate " + w.pods()}
	case 22:
		return []string{"move " + w.pods() + " to=" + w.node()}
	case 23:
		return []string{w.pick("cordon ", "uncordon ", "fail ", "restore ", "delete node ", "restore ", "uncordon ") + w.node()}
	case 24:
		return []string{w.nodeLine(1 + w.r.IntN(w.nodes))}
	case 25, 26:
		return []string{"advance " + w.pick("1s", "10s", "61s", "5m", "1h", "30h", "-1s", "-30s", "-5m", "-8m")}
	case 27, 28:
		return []string{"restart"}
	case 29:
		return []string{"promise " + w.pods() + w.pick(" to="+w.node(), "")}
	case 30:
		return []string{w.pick("bindfail ", "bindfail ") + w.pods() + w.pick("", " for=1s", " for=5m")}
	case 31:
		return []string{"usage " + w.leaf() + " gpu=" + w.pick("0", "0.1", "0.9")}
	case 32:
		s := "pod x" + w.pick("1", "2", "3")
		if w.one(2) {
			s += " gang=" + w.gang() + w.pick("", " set=s", " set=gone")
		} else if w.one(2) {
			s += " foreign"
		}
		return []string{s + w.shape() + w.pick("", " running="+w.node())}
	default:
		return []string{w.pick("budget bb select=app=x allowed=0", "budget bb select=app=x min=1", "delete budget bb", "topology dc levels=zone", "topology dc levels=zone,rack", "delete topology dc", "freeze "+w.gang()+" "+w.gang())}
	}
}

// wildStory returns the commands of a story, each with the lines that belong to it, and the options it is told with.
func wildStory(seed int) (story [][]string, options string) {
	w := &wild{r: rand.New(rand.NewPCG(77, uint64(seed))), kinds: map[string]bool{}}
	for _, k := range []string{"share", "mig", "claim", "topology", "numa"} {
		w.kinds[k] = w.one(3)
	}
	var out [][]string
	if w.kinds["topology"] {
		out = append(out, []string{"topology dc levels=zone,rack"})
	}
	w.nodes = 1 + w.r.IntN(6)
	for i := range w.nodes {
		out = append(out, []string{w.nodeLine(i + 1)})
		if w.kinds["claim"] && w.one(2) {
			out = append(out, []string{fmt.Sprintf("slice s%d node=n%d driver=d.example.com devices=%d", i, i+1, 1+w.r.IntN(4))})
		}
	}
	if w.kinds["claim"] {
		out = append(out, []string{"deviceclass gpu driver=d.example.com"}, []string{"claimtemplate each class=gpu count=1"}, []string{"claimtemplate two class=gpu count=2"},
			[]string{"resourceclaim shared class=gpu count=1 queue=" + w.leaf()})
	}
	for _, l := range w.queueLines() {
		out = append(out, []string{l})
	}
	for range 2 + w.r.IntN(5) {
		w.gangs++
		out = append(out, w.gangLines(fmt.Sprintf("g%d", w.gangs)))
	}
	for range 8 + w.r.IntN(22) {
		out = append(out, w.command())
		if w.one(2) {
			out = append(out, []string{"settle"})
		} else if w.one(4) {
			out = append(out, []string{"cycle"})
		}
	}
	out = append(out, []string{"settle"})
	opts := ""
	if w.one(2) {
		opts = "stuck-after " + w.pick("1m", "10m")
	}
	if w.one(4) {
		opts += "\nsearch-steps " + w.pick("1", "10", "100")
	}
	if w.one(4) {
		opts += "\nmoved-count"
	}
	return out, opts
}
