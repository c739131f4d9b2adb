package nodescale

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
)

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// wants is a pod that waits for so many devices, of each so many percent.
func wants(name string, devices, percent int64) demand {
	return demand{pod: named(name), devices: devices, portion: cluster.Portion(percent) * cluster.WholePortion / 100, shape: "s"}
}

// asked is the scaling pod that was made for a demand.
func asked(d demand) ask {
	return ask{name: d.pod.Namespace + "-" + d.pod.Name, source: d.pod, devices: d.devices, shape: d.shape}
}

// fates says of each pod that does not wait how it is doing.
type fates map[string]standing

func (f fates) look(demands []demand) func(types.NamespacedName) standing {
	return func(pod types.NamespacedName) standing {
		if s, ok := f[pod.Name]; ok {
			return s
		}
		if slices.ContainsFunc(demands, func(d demand) bool { return d.pod == pod }) {
			return waiting
		}
		return absent
	}
}

// say puts a decision into words: "+pod" for what is made, "-pod why" for what goes.
func (d decision) say() string {
	var words []string
	for _, c := range d.create {
		words = append(words, fmt.Sprintf("+%s:%d", c.pod.Name, c.devices))
	}
	for _, r := range d.remove {
		words = append(words, "-"+r.ask.source.Name+" "+r.why)
	}
	if d.left > 0 {
		words = append(words, fmt.Sprintf("%d left", d.left))
	}
	return strings.Join(words, ", ")
}

func TestDecide(t *testing.T) {
	t.Parallel()
	half, other := wants("half", 1, 50), wants("other", 1, 50)
	elsewhere := other
	elsewhere.shape = "elsewhere"
	ended, going, foreign := asked(half), asked(half), asked(half)
	ended.ended, going.going, foreign.shape = true, true, ""
	twin := asked(half)
	twin.name = "z"
	tests := map[string]struct {
		demands []demand
		asks    []ask
		fates   fates
		want    string
	}{
		"nobody waits":                               {},
		"one waits":                                  {demands: []demand{half}, want: "+half:1"},
		"two halves share":                           {demands: []demand{half, other}, want: "+half:1"},
		"the third does not fit":                     {demands: []demand{half, other, wants("third", 1, 10)}, want: "+half:1, +third:1"},
		"three of 60 % need three":                   {demands: []demand{wants("a", 1, 60), wants("b", 1, 60), wants("c", 1, 60)}, want: "+a:1, +b:1, +c:1"},
		"other constraints, other nodes":             {demands: []demand{half, elsewhere}, want: "+half:1, +other:1"},
		"several devices are of one node":            {demands: []demand{wants("a", 2, 50), wants("b", 3, 50)}, want: "+b:3"},
		"not the leftovers of two nodes":             {demands: []demand{wants("a", 1, 50), wants("b", 1, 60), wants("c", 2, 40)}, want: "+c:2"},
		"of which one is too full":                   {demands: []demand{wants("a", 2, 90), wants("b", 2, 20)}, want: "+a:2, +b:2"},
		"who has one is not asked for again":         {demands: []demand{half}, asks: []ask{asked(half)}},
		"who fits beside it is not either":           {demands: []demand{half, other}, asks: []ask{asked(other)}},
		"one that is going does not count":           {demands: []demand{half}, asks: []ask{going}, want: "+half:1"},
		"a node came":                                {demands: []demand{half}, asks: []ask{ended}, want: "-half ended, 1 left"},
		"its pod has room":                           {demands: []demand{other}, asks: []ask{asked(half)}, fates: fates{"half": placed}, want: "-half placed, 1 left"},
		"room for one shape says nothing of another": {demands: []demand{elsewhere}, asks: []ask{asked(half)}, fates: fates{"half": placed}, want: "+other:1, -half placed"},
		"its pod is gone":                            {demands: []demand{other}, asks: []ask{asked(half)}, want: "+other:1, -half gone"},
		"its pod is blocked":                         {asks: []ask{asked(half)}, fates: fates{"half": blocked}, want: "-half blocked"},
		"its pod wants more":                         {demands: []demand{wants("half", 2, 50)}, asks: []ask{asked(half)}, want: "+half:2, -half changed"},
		"two for one pod":                            {demands: []demand{half}, asks: []ask{twin, asked(half)}, want: "-half changed"},
		"one that KAI made":                          {demands: []demand{half}, asks: []ask{foreign}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := decide(tc.demands, tc.asks, tc.fates.look(tc.demands), cooldowns{}, time.Unix(0, 0))
			if diff := cmp.Diff(tc.want, d.say()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestCoolDown: after room came, those who wait look at it first; but not for ever.
func TestCoolDown(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	half, other := wants("half", 1, 50), wants("other", 1, 50)
	demands, cool := []demand{other}, cooldowns{}
	room := func(at time.Duration) decision { // a scaling pod of the shape has ended
		a := asked(half)
		a.ended = true
		return decide(demands, []ask{a}, fates{}.look(demands), cool, start.Add(at))
	}
	quiet := func(at time.Duration) decision {
		return decide(demands, nil, fates{}.look(demands), cool, start.Add(at))
	}
	expect := func(what string, d decision, say string, again time.Duration) {
		t.Helper()
		if d.say() != say {
			t.Errorf("%s: %q, want %q", what, d.say(), say)
		}
		if got := d.again.Sub(start); again > 0 && got != again || again == 0 && !d.again.IsZero() {
			t.Errorf("%s: again after %v, want %v", what, got, again)
		}
	}
	expect("room came", room(0), "-half ended, 1 left", time.Minute)
	expect("too soon", quiet(59*time.Second), "1 left", time.Minute)
	expect("a minute later", quiet(time.Minute), "+other:1", 0)
	if len(cool) != 0 {
		t.Errorf("still remembered: %v", cool)
	}
	for at := 10 * time.Minute; at < 15*time.Minute; at += 30 * time.Second {
		expect("more and more room", room(at), "-half ended, 1 left", min(at+time.Minute, 15*time.Minute))
	}
	expect("it ends nevertheless", room(15*time.Minute), "+other:1, -half ended", 0)
	expect("and may begin again", room(15*time.Minute+time.Second), "-half ended, 1 left", 16*time.Minute+time.Second)
}

// TestBound: there are never more than mostAsks scaling pods.
func TestBound(t *testing.T) {
	t.Parallel()
	var demands []demand
	for i := range mostAsks + 7 {
		demands = append(demands, wants(fmt.Sprintf("p%04d", i), 1, 60))
	}
	d := decide(demands, nil, fates{}.look(demands), cooldowns{}, time.Unix(0, 0))
	if len(d.create) != mostAsks || d.left != 7 {
		t.Errorf("%d made, %d left", len(d.create), d.left)
	}
}

// TestBoundIsShared: of the scaling pods there may be, each namespace that waits gets as many as another, if it needs them.
func TestBoundIsShared(t *testing.T) {
	t.Parallel()
	var demands []demand
	var asks []ask
	for i := range mostAsks + 7 {
		w := wants(fmt.Sprintf("p%04d", i), 1, 60)
		w.pod.Namespace = "noisy"
		demands = append(demands, w)
		if i < mostAsks {
			asks = append(asks, ask{name: w.pod.Name, uid: types.UID(w.pod.Name), source: w.pod, devices: 1, shape: w.shape})
		}
	}
	for i := range 3 {
		w := wants(fmt.Sprintf("q%d", i), 1, 60)
		w.pod.Namespace = "quiet"
		demands = append(demands, w)
	}
	d := decide(demands, asks, fates{}.look(demands), cooldowns{}, time.Unix(0, 0))
	if len(d.create) != 3 || d.create[0].pod.Namespace != "quiet" || len(d.remove) != 3 || d.remove[0].why != whyShared || d.left != 10 {
		t.Fatalf("%d made, %d removed, %d left", len(d.create), len(d.remove), d.left)
	}
	gone := map[string]bool{}
	for _, r := range d.remove {
		gone[r.ask.name] = true
	}
	asks = slices.DeleteFunc(asks, func(a ask) bool { return gone[a.name] })
	for _, c := range d.create {
		asks = append(asks, ask{name: c.pod.Name, source: c.pod, devices: 1, shape: c.shape})
	}
	if d = decide(demands, asks, fates{}.look(demands), cooldowns{}, time.Unix(0, 0)); len(d.create)+len(d.remove) != 0 {
		t.Errorf("at a second look %d made, %d removed", len(d.create), len(d.remove))
	}
	var many []demand
	for i := range 3 * mostAsks {
		w := wants(fmt.Sprintf("r%04d", i), 1, 60)
		w.pod.Namespace = fmt.Sprint("n", i%3)
		if i%3 == 0 {
			w.portion = 990000 // large ones go first
		}
		many = append(many, w)
	}
	d = decide(many, nil, fates{}.look(many), cooldowns{}, time.Unix(0, 0))
	of := map[string]int{}
	for _, c := range d.create {
		of[c.pod.Namespace]++
	}
	if len(d.create) != mostAsks || of["n0"] < 333 || of["n1"] < 333 || of["n2"] < 333 {
		t.Errorf("shared as %v", of)
	}
}

// TestDecideIsSound: on random states, never more devices are asked for than wait; who waits is served by the devices that
// are asked for; no pod has two scaling pods; a second look changes nothing; the order of the input does not matter; and
// once pods stop waiting, everything is removed.
func TestDecideIsSound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, 0)
		cool := cooldowns{}
		var asks []ask
		demands := map[string]demand{}
		for round := range rapid.IntRange(1, 12).Draw(t, "rounds") {
			gone := fates{}
			for _, name := range slices.Sorted(maps.Keys(demands)) {
				d := demands[name]
				if rapid.IntRange(0, 3).Draw(t, "leaves") == 0 {
					delete(demands, name)
					gone[d.pod.Name] = rapid.SampledFrom([]standing{absent, blocked, placed}).Draw(t, "fate")
				}
			}
			for i := range rapid.IntRange(0, 6).Draw(t, "come") {
				d := wants(fmt.Sprintf("p%d-%d", round, i), rapid.Int64Range(1, 4).Draw(t, "devices"), rapid.Int64Range(1, 100).Draw(t, "percent"))
				d.shape = rapid.SampledFrom([]string{"s", "t"}).Draw(t, "shape")
				demands[d.pod.Name] = d
			}
			for i := range asks {
				asks[i].ended = rapid.IntRange(0, 4).Draw(t, "ends") == 0
			}
			now = now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)

			list := make([]demand, 0, len(demands))
			for _, d := range demands { // order: a random one is wanted
				list = append(list, d)
			}
			before := cooldowns{}
			for k, v := range cool {
				before[k] = v
			}
			d := decide(list, asks, gone.look(list), cool, now)
			slices.Reverse(list)
			if other := decide(list, asks, gone.look(list), before, now); other.say() != d.say() {
				t.Fatalf("in another order: %s, then %s", d.say(), other.say())
			}
			for _, r := range d.remove {
				asks = slices.DeleteFunc(asks, func(a ask) bool { return a.name == r.ask.name })
			}
			for _, c := range d.create {
				a := asked(c)
				a.created = now
				asks = append(asks, a)
			}
			if more := decide(list, asks, gone.look(list), cool, now); len(more.create)+len(more.remove) > 0 {
				t.Fatalf("a second look: %s", more.say())
			}
			sum, most := int64(0), int64(0)
			seen := map[types.NamespacedName]bool{}
			free := map[string][]*group{}
			wanted := map[types.NamespacedName]*demand{}
			for i := range list {
				wanted[list[i].pod] = &list[i]
			}
			for _, a := range inOrder(asks, wanted) {
				want, ok := demands[a.source.Name]
				if !ok || seen[a.source] {
					t.Fatalf("%s stands for nobody, or for somebody twice", a.name)
				}
				seen[a.source] = true
				sum += a.devices
				g := newGroup(a.devices)
				g.take(&want)
				free[want.shape] = append(free[want.shape], g)
			}
			unserved := 0
			for _, want := range packingOrder(list) {
				most += want.devices
				if !seen[want.pod] && !slices.ContainsFunc(free[want.shape], func(g *group) bool { return g.take(want) }) {
					unserved++
				}
			}
			if sum > most {
				t.Fatalf("%d devices asked for, %d wait", sum, most)
			}
			if unserved != d.left || d.left > 0 && d.again.IsZero() {
				t.Fatalf("%d not served, %d said to be left, again at %v", unserved, d.left, d.again)
			}
			for _, g := range slices.Concat(free["s"], free["t"]) {
				if slices.Min(g.free) < 0 {
					t.Fatal("a device is given out twice")
				}
			}
		}
		d := decide(nil, asks, fates{}.look(nil), cool, now)
		if len(d.remove) != len(asks) {
			t.Fatalf("left behind: %s", d.say())
		}
	})
}
