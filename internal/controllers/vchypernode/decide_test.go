package vchypernode

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	topo "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
)

// conf discovers the network net: blocks, racks in them, nodes in those.
const conf = `
networkTopologyDiscovery:
- source: ufm
  enabled: false
- source: label
  enabled: true
  interval: 10m
  config:
    networkTopologyTypes:
      Net:
      - nodeLabel: example.com/block
      - nodeLabel: example.com/rack
      - nodeLabel: kubernetes.io/hostname
`

func config(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "volcano-system", Name: keys.ControllerConfig}, Data: map[string]string{keys.ControllerConfigKey: text}}
}

// node is one in a block and a rack; empty: without the label.
func node(name, block, rack string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for key, value := range map[string]string{"example.com/block": block, "example.com/rack": rack} { // order: a map
		if value != "" {
			n.Labels[key] = value
		}
	}
	return n
}

// hyper is a HyperNode with members, each as KIND:SELECTOR=VALUE.
func hyper(name string, tier int, members ...string) *topo.HyperNode {
	h := &topo.HyperNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: topo.HyperNodeSpec{Tier: tier}}
	for _, text := range members {
		kind, rest, _ := strings.Cut(text, ":")
		how, value, _ := strings.Cut(rest, "=")
		m := topo.MemberSpec{Type: topo.MemberType(kind)}
		switch how {
		case "exact":
			m.Selector.ExactMatch = &topo.ExactMatch{Name: value}
		case "regex":
			m.Selector.RegexMatch = &topo.RegexMatch{Pattern: value}
		case "rack":
			m.Selector.LabelMatch = &metav1.LabelSelector{MatchLabels: map[string]string{"example.com/rack": value}}
		}
		h.Spec.Members = append(h.Spec.Members, m)
	}
	return h
}

// text says what a HyperNode is.
func text(h *topo.HyperNode) string {
	var members []string
	for _, m := range h.Spec.Members {
		members = append(members, m.Selector.ExactMatch.Name)
	}
	return fmt.Sprintf("%s tier %d %s %s=%s: %s", h.Name, h.Spec.Tier, h.Spec.TierName, h.Labels[keys.TopologySource], h.Labels[h.Spec.TierName], strings.Join(members, " "))
}

// TestDiscovered: what HyperNodes there are for the labels of nodes. Typed from Volcano's description: tiers are counted from the bottom, a node's chain ends at the first label that it lacks.
func TestDiscovered(t *testing.T) {
	t.Parallel()
	b := newBook("volcano-system")
	b.configSeen(config(conf), false)
	for _, n := range []*corev1.Node{node("a1", "A", "1"), node("a2", "A", "1"), node("b1", "A", "2"), node("c1", "B", "3"), node("d", "", "4"), node("e", "A", ""), node("f", "", "")} {
		b.NodeSeen(n, false)
	}
	p := b.decide()
	var got []string
	for _, h := range p.create {
		got = append(got, regexp.MustCompile(`-[a-z0-9]{5}( |$)`).ReplaceAllString(text(h), "-*$1"))
	}
	slices.Sort(got)
	want := []string{
		"hypernode-net-tier1-* tier 1 example.com/rack label=1: a1 a2", "hypernode-net-tier1-* tier 1 example.com/rack label=2: b1",
		"hypernode-net-tier1-* tier 1 example.com/rack label=3: c1", "hypernode-net-tier1-* tier 1 example.com/rack label=4: d",
		"hypernode-net-tier2-* tier 2 example.com/block label=A: hypernode-net-tier1-* hypernode-net-tier1-*", "hypernode-net-tier2-* tier 2 example.com/block label=B: hypernode-net-tier1-*",
	}
	if !slices.Equal(got, want) || p.bad != nil || p.create[0].Spec.Tier != 1 {
		t.Errorf("made are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, m := range p.create[0].Spec.Members {
		if m.Type != topo.MemberTypeNode {
			t.Errorf("a member is a %s", m.Type)
		}
	}
	if m := p.create[len(p.create)-1].Spec.Members[0]; m.Type != topo.MemberTypeHyperNode {
		t.Errorf("a member is a %s", m.Type)
	}
	again := b.decide()
	for i := range p.create {
		if text(p.create[i]) != text(again.create[i]) {
			t.Errorf("another time: %s, then %s", text(p.create[i]), text(again.create[i]))
		}
	}
}

// TestFollows: what is there keeps its name, is changed where its members are, and goes with its nodes; what users made by hand stays.
func TestFollows(t *testing.T) {
	t.Parallel()
	b := newBook("volcano-system")
	b.configSeen(config(conf), false)
	b.NodeSeen(node("a1", "A", "1"), false)
	b.NodeSeen(node("b1", "A", "2"), false)
	own := hyper("mine", 1, "Node:exact=a1")
	b.HyperSeen(own, false)
	volcanos := hyper("hypernode-net-tier1-zzzzz", 1, "Node:exact=a1")
	volcanos.Labels, volcanos.Spec.TierName = map[string]string{keys.TopologySource: "label", "example.com/rack": "1"}, "example.com/rack"
	b.HyperSeen(volcanos, false)
	for _, h := range b.decide().create {
		b.HyperSeen(h, false)
	}
	if len(b.Hypers) != 4 {
		t.Fatalf("%d HyperNodes", len(b.Hypers))
	}
	if p := b.decide(); len(p.create)+len(p.change)+len(p.remove) > 0 {
		t.Errorf("at rest: %+v", p)
	}
	b.NodeSeen(node("a2", "A", "1"), false)
	if p := b.decide(); len(p.create)+len(p.remove) > 0 || len(p.change) != 1 || p.change[0].hyper.Name != volcanos.Name {
		t.Errorf("a node comes: %+v", p)
	}
	b.NodeSeen(node("b1", "A", "1"), false)
	if p := b.decide(); len(p.create) > 0 || len(p.change) != 2 || len(p.remove) != 1 || p.remove[0].Labels["example.com/rack"] != "2" {
		t.Errorf("a rack goes: %+v", p)
	}
	for what, m := range map[string]*corev1.ConfigMap{
		"switched off": config(strings.Replace(conf, "enabled: true", "enabled: false", 1)), "without discovery": config("a: b"), "without the key": {ObjectMeta: config("").ObjectMeta},
	} { // order: each on its own
		b.configSeen(m, false)
		if p := b.decide(); len(p.create)+len(p.change)+len(p.remove) > 0 || p.bad != nil {
			t.Errorf("%s: %+v", what, p)
		}
	}
	b.configSeen(config(conf), false)
	b.configSeen(config(strings.Repeat("x", 1<<20)), false)
	if p := b.decide(); len(p.remove) != 1 || p.bad == nil {
		t.Errorf("a bad configuration: that before it does not rule on: %+v", p)
	}
	b.configSeen(config(conf), true)
	if p := b.decide(); len(p.create)+len(p.change)+len(p.remove) > 0 {
		t.Errorf("no configuration: %+v", p)
	}
}

// TestConfigs: what is refused, with what is wrong.
func TestConfigs(t *testing.T) {
	t.Parallel()
	types := func(text string) string {
		return "networkTopologyDiscovery: [{source: label, enabled: true, config: {networkTopologyTypes: " + text + "}}]"
	}
	for text, want := range map[string]string{
		"":                              "",
		"{":                             "it cannot be read: ",
		"networkTopologyDiscovery: [7]": "it cannot be read: ",
		"networkTopologyDiscovery: [{source: ufm, enabled: true}]":                                      `networkTopologyDiscovery[0].source: "ufm": there is no such source; known: label`,
		"networkTopologyDiscovery: [{source: label}, {source: label}]":                                  `networkTopologyDiscovery[1].source: "label" is there twice`,
		"networkTopologyDiscovery: [{source: label, enabled: true, config: {networkTopologyType: {}}}]": `networkTopologyDiscovery[0].config.networkTopologyTypes: it cannot be read: `,
		types("{}"):                    "",
		types("{a: [{nodeLabel: x}]}"): "networkTopologyTypes[a]: 1 labels: from 2 to 9 are needed",
		types("{a: [{nodeLabel: x}, {nodeLabel: x}]}"):                            `networkTopologyTypes[a][1].nodeLabel: "x" must be the key of a label, and in no other place`,
		types("{a: [{nodeLabel: ''}, {nodeLabel: x}]}"):                           `networkTopologyTypes[a][0].nodeLabel: "" must be the key of a label`,
		types("{a_b: [{nodeLabel: y}, {nodeLabel: x}]}"):                          "networkTopologyTypes[a_b]: the name must be of letters, digits and -",
		types("{abcdefghijklmnopqrstu: [{nodeLabel: y}, {nodeLabel: x}]}"):        "at most 20 bytes",
		types("{abcdefghijklmnopqrst: [{nodeLabel: y}, {nodeLabel: x}]}"):         "",
		strings.Repeat("#", longestConfig+1):                                      "it has 65537 bytes, of at most 65536",
		"a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a]\n": "",
	} {
		_, _, err := readConfig(text)
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
}

// FuzzConfig: no text ends in a panic, and what is taken is within its bounds.
func FuzzConfig(f *testing.F) {
	f.Add(conf)
	f.Fuzz(func(t *testing.T, text string) {
		types, on, err := readConfig(text)
		if err != nil && (on || len(types) > 0) || len(types) > mostTypes {
			t.Errorf("%v, %v, %v", types, on, err)
		}
		for _, one := range types {
			if len(one.labels) < 1 || len(one.labels) > mostLevels {
				t.Errorf("%+v", one)
			}
		}
	})
}

// TestCounts: how many nodes each HyperNode has, whatever its members are named by, each node once; and what is said of members that are none.
func TestCounts(t *testing.T) {
	t.Parallel()
	b := newBook("volcano-system")
	for _, n := range []*corev1.Node{node("n1", "", "1"), node("n2", "", "1"), node("n3", "", "2"), node("m1", "", "2")} {
		b.NodeSeen(n, false)
	}
	want := map[string]int64{}
	for _, c := range []struct {
		h     *topo.HyperNode
		nodes int64
		wrong string
	}{
		{hyper("exact", 1, "Node:exact=n1", "Node:exact=gone", "Node:exact=n1"), 1, ""},
		{hyper("regex", 1, "Node:regex=^n"), 3, ""},
		{hyper("anywhere", 1, "Node:regex=1"), 2, ""},
		{hyper("rack", 1, "Node:rack=2"), 2, ""},
		{hyper("above", 3, "HyperNode:exact=exact", "HyperNode:exact=rack", "HyperNode:exact=gone"), 3, ""},
		{hyper("pattern", 2, "HyperNode:regex=^(exact|rack|above|pattern)$"), 3, ""},
		{hyper("top", 9, "HyperNode:exact=above", "HyperNode:regex=.*", "Node:exact=m1"), 4, ""},
		{hyper("x", 5, "HyperNode:exact=y", "Node:exact=n1"), 1, "spec.members[0]: HyperNode y is of tier 5, and must be of one below 5"},
		{hyper("y", 5, "HyperNode:exact=x"), 0, "spec.members[0]: HyperNode x is of tier 5, and must be of one below 5"},
		{hyper("bad", 1, "Node:regex=(", "Node:exact=n1"), 1, "spec.members[0]: a pattern is no regular expression"},
		{hyper("long", 1, "Node:regex="+strings.Repeat("x", 10_000)), 0, "spec.members[0]: a pattern has 10000 bytes, of at most 4096"},
		{hyper("none", 1, "Node:"), 0, ""},
	} {
		b.HyperSeen(c.h, false)
		want[c.h.Name] = c.nodes
		defer func() {
			wrong := ""
			if n := b.decide().wrong[c.h.Name]; n != nil {
				wrong = n.Message
			}
			if wrong != c.wrong && (c.wrong == "" || !strings.HasPrefix(wrong, c.wrong)) {
				t.Errorf("%s: %q, want %q", c.h.Name, wrong, c.wrong)
			}
		}()
	}
	counted := func() map[string]int64 {
		got := map[string]int64{}
		for name := range b.Hypers {
			got[name] = 0
		}
		for _, c := range b.decide().counts {
			got[c.hyper.Name] = c.nodes
		}
		return got
	}
	if got := counted(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	b.NodeSeen(node("n4", "", "2"), false)
	b.NodeSeen(node("n1", "", "1"), true)
	if b.NodeSeen(node("n3", "", "2"), false) {
		t.Error("a node that did not change is news")
	}
	want["exact"], want["anywhere"], want["rack"], want["above"], want["pattern"], want["x"], want["bad"] = 0, 1, 3, 3, 3, 0, 0
	if got := counted(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// TestLarge: 5,000 nodes in one rack of one block, by labels and by a pattern.
func TestLarge(t *testing.T) {
	t.Parallel()
	b := newBook("volcano-system")
	b.configSeen(config(conf), false)
	for i := range 5000 {
		b.NodeSeen(node(fmt.Sprintf("node-%04d", i), "A", "1"), false)
	}
	b.HyperSeen(hyper("all", 1, "Node:regex=^node-[0-9]{4}$"), false)
	p := b.decide()
	if len(p.create) != 2 || len(p.create[0].Spec.Members) != 5000 || p.counts[0].nodes != 5000 {
		t.Errorf("%d made, %+v", len(p.create), p.counts)
	}
	for i := range mostHyperNodes {
		b.NodeSeen(node(fmt.Sprintf("far-%04d", i), "", fmt.Sprintf("r%d", i)), false)
	}
	if p := b.decide(); p.bad == nil || p.bad.Reason != "TooManyHyperNodes" || len(p.create) > 0 {
		t.Errorf("too many: %+v", p.bad)
	}
}

// TestNamesAreApart: names are told apart where their letters fall together.
func TestNamesAreApart(t *testing.T) {
	t.Parallel()
	var all []domain
	for i := range 100_000 {
		all = append(all, domain{"net", 1, "rack", fmt.Sprint(i)})
	}
	names, seen, again := named(all, nil), map[string]bool{}, 0
	for _, d := range all {
		if seen[names[d]] {
			t.Fatalf("%s is there twice", names[d])
		}
		seen[names[d]] = true
		if names[d] != d.prefix()+suffix(fmt.Sprintf("net/1/rack=%s/0", d.value)) {
			again++
		}
	}
	if again == 0 {
		t.Error("none fell together: the test shows nothing")
	}
}
