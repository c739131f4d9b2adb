package enginetest

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

var (
	wildStories = flag.Int("wild.stories", 60, "how many stories TestWild tells")
	wildFrom    = flag.Int("wild.from", 0, "the seed of the first")
	wildFile    = flag.String("wild.file", "", "a story to tell instead: options, a line \"-- body --\", commands")
)

// tell plays a story and returns what went wrong. Commands that make no sense are left out; what is checked is what every cycle
// is checked for (Cycle), that settling ends and that, when nothing happens any more, evictions do. The options may be followed by
// a line "-- volcano-config --" and Volcano's scheduler file, and these by a line "-- kube-batch-config --" and kube-batch's.
func tell(story [][]string, options string) (err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("panic: %v", x)
		}
	}()
	o := &Options{}
	options, o.KubeBatchConfig, _ = strings.Cut(options, "-- "+sectionKubeBatch+" --\n")
	options, o.VolcanoConfig, _ = strings.Cut(options, "-- "+sectionVolcano+" --\n")
	lines, err := parseLines(options)
	if err != nil {
		return err
	}
	if err := o.parse(lines); err != nil {
		return err
	}
	b, err := NewEngine(o, Mutation{}, nil)
	if err != nil {
		return err
	}
	in := newInterpreter(b, o)
	run := func(text string) error {
		ss, err := parseLines(text)
		if err != nil {
			return nil
		}
		_, err = in.run(ss)
		return err
	}
	for _, part := range story {
		if senseless(in, part[0]) {
			continue
		}
		if text, ok := strings.CutPrefix(part[0], "manifest "); ok {
			if err := in.manifests(text); err != nil {
				return err
			}
			continue
		}
		err := run(strings.Join(part, "\n"))
		if verb, _, _ := strings.Cut(part[0], " "); err != nil && (verb == "settle" || verb == "cycle") {
			return fmt.Errorf("%s: %w", verb, err)
		}
	}
	for quiet := range 13 { // time passes, and nothing happens
		b.taken = nil
		if err := run("advance 61s\nsettle"); err != nil {
			return fmt.Errorf("settle: quiet %d: %w", quiet, err)
		}
	}
	for i := range b.taken {
		if c := b.taken[i].Eviction; len(c.Victims) > 0 && c.Cause != policy.Repair && !givenBack(c) {
			return fmt.Errorf("evictions do not end: %s for %s", c.Cause, b.taken[i].Gang)
		}
	}
	return nil
}

// givenBack says whether pods leave nodes because those are not lent any more, which time alone may bring.
func givenBack(c *engine.EvictionRecord) bool {
	return c.Cause == policy.Shuffle && strings.Contains(c.Victims[0].Rule, " is lent, ")
}

// senseless says whether a command that would move or promise pods means some that have a node, or a part of a gang only: the harness
// takes such a command at its word, and no cluster would.
func senseless(in *interpreter, command string) bool {
	f := strings.Fields(command)
	if f[0] != "move" && f[0] != "promise" {
		return false
	}
	pods, err := in.pods(f[1])
	if err != nil || f[0] == "promise" && strings.Contains(f[1], "[") {
		return true
	}
	for _, p := range pods {
		if p.Spec.NodeName != "" {
			return true
		}
	}
	return false
}

var (
	numbers = regexp.MustCompile(`[0-9]+`)
	names   = regexp.MustCompile(`(gang|queue|pod|evict|bind|nominate|victim) \S+`)
)

// sortOf is what errors of one kind have in common.
func sortOf(err error) string {
	s := err.Error()
	if i := strings.Index(s, "decides otherwise"); i > 0 {
		return "decides otherwise"
	}
	s = names.ReplaceAllString(numbers.ReplaceAllString(s, "#"), "$1 X")
	return s[:min(90, len(s))]
}

// shorter leaves commands out of a story as long as what goes wrong stays of the kind, up to a bound.
func shorter(story [][]string, options, kind string) [][]string {
	again := true
	for tries := 0; again && tries < 400; {
		again = false
		for i := 0; i < len(story) && tries < 400; i++ {
			less := slices.Delete(slices.Clone(story), i, i+1)
			tries++
			if err := tell(less, options); err != nil && sortOf(err) == kind {
				story, again = less, true
				i--
			}
		}
	}
	return story
}

// TestWild tells random stories of whole clusters: queues, gangs with sets, shared devices, slices, claims, zones and topologies
// come, change and go, nodes fail, binds are promised and fail, clocks go back, the scheduler restarts; and checks that everything
// that must hold at every cycle does, and that it comes to rest. A story that goes wrong is told as short as it can be.
func TestWild(t *testing.T) {
	t.Parallel()
	if *wildFile != "" {
		text, err := os.ReadFile(*wildFile)
		if err != nil {
			t.Fatal(err)
		}
		options, body, _ := strings.Cut(string(text), "-- body --\n")
		var story [][]string
		for _, line := range strings.Split(strings.TrimSpace(body), "\n") {
			if strings.HasPrefix(line, "  ") && len(story) > 0 {
				story[len(story)-1] = append(story[len(story)-1], line)
			} else {
				story = append(story, []string{line})
			}
		}
		if err := tell(story, options); err != nil {
			t.Fatal(err)
		}
		return
	}
	tellAll(t, wildStory)
}

// tellAll tells the stories of a teller, each of one seed.
func tellAll(t *testing.T, teller func(seed int) (story [][]string, options string)) {
	t.Helper()
	seen := map[string]int{}
	for seed := *wildFrom; seed < *wildFrom+*wildStories; seed++ {
		story, options := teller(seed)
		err := tell(story, options)
		if err == nil {
			continue
		}
		kind := sortOf(err)
		if seen[kind]++; seen[kind] > 1 {
			t.Errorf("story %d: %s, as before", seed, kind)
			continue
		}
		story = shorter(story, options, kind)
		var text strings.Builder
		for _, part := range story {
			text.WriteString(strings.Join(part, "\n") + "\n")
		}
		t.Errorf("story %d: %v\n%s\n-- body --\n%s", seed, tell(story, options), options, text.String())
	}
	t.Logf("%d stories from %d", *wildStories, *wildFrom)
}
