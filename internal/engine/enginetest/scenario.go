package enginetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/txtar"
)

// Names of sections.
const (
	sectionConfig    = "config"
	sectionVolcano   = "volcano-config"
	sectionKubeBatch = "kube-batch-config"
	sectionShard     = "shard"
	sectionShards    = "shards"
	sectionOptions   = "options"
	sectionCluster   = "cluster"
	sectionYAML      = "yaml"
	sectionRun       = "run"
	sectionWant      = "want"
)

// Scenario is one file.
type Scenario struct {
	Name string // the file's base name without extension
	// About is the prose before the first section.
	About   string
	Options Options
	steps   []step
	archive *txtar.Archive
}

// step is one section after the settings: statements that change the cluster, manifests, or commands with their answer.
type step struct {
	kind       string
	manifests  string
	statements []statement
	want       int // index of the want section in the archive
	line       string
}

// Options are the settings of a scenario: how the scheduler under test is started.
type Options struct {
	// Config is KAI's configuration file, Shard the settings of a SchedulingShard; at most one is given. With neither,
	// the shard's defaults rule.
	Config string
	Shard  []statement
	// Shards are several shards of one cluster instead: each by its name, which is its node pool, with its settings.
	Shards []statement
	// VolcanoConfig is Volcano's scheduler file, "" for none.
	VolcanoConfig string
	// SchedulerNames make a pod ours; the first is the one that scenario pods get. Default: kai-scheduler.
	SchedulerNames []string
	// RestrictGPU and RestrictCPU are the worker labels of restricted nodes, "" for none.
	RestrictGPU, RestrictCPU string
	// Volcano has pods that name Volcano's scheduler be ours too, as its PodGroups and Queues say.
	Volcano bool
	// KubeBatch has pods that name kube-batch's scheduler be ours too, as its PodGroups and Queues say. KubeBatchConfig is its scheduler file, "" for none.
	KubeBatch       bool
	KubeBatchConfig string
	// Sharding is the part of Volcano's pods in its NodeShards: MODE NAME; "" for none.
	Sharding string
	// QueueGates has queues let in pods that ask for it.
	QueueGates bool
	// FlatQueues puts all queues side by side.
	FlatQueues bool
	// StuckAfter is how long after its grace a pod that is still there is no longer counted on, "" for never.
	StuckAfter string
	// ConsolidationVictims is how many gangs one consolidation may move, "" for the default. MovedCount makes victims that
	// have room elsewhere count for reclaim. StaleGrace is how long a gang may stay below its minimum, "" for the default.
	// SearchSteps is what one action's searches may cost in a cycle, "" for the default.
	ConsolidationVictims, StaleGrace string
	SearchSteps                      string
	MovedCount                       bool
	// Needs names what a backend must have to play this file: "filters" (the upstream filters), "engine" (a backend that
	// decides one cycle at a time and lets time be set).
	Needs []string
}

// Parse reads a scenario.
func Parse(name string, text []byte) (*Scenario, error) {
	a := txtar.Parse(text)
	sc := &Scenario{Name: name, About: strings.TrimSpace(string(a.Comment)), archive: a}
	if sc.About == "" {
		return nil, fmt.Errorf("%s: say in one sentence, before the first section, what this shows", name)
	}
	for i, f := range a.Files {
		text := string(f.Data)
		fail := func(err error) error { return fmt.Errorf("%s: section %d (%s): %w", name, i+1, f.Name, err) }
		switch f.Name {
		case sectionConfig:
			sc.Options.Config = text
		case sectionVolcano:
			sc.Options.VolcanoConfig = text
		case sectionKubeBatch:
			sc.Options.KubeBatchConfig = text
		case sectionYAML:
			sc.steps = append(sc.steps, step{kind: sectionYAML, manifests: text, line: f.Name})
		case sectionShard, sectionShards, sectionOptions, sectionCluster, sectionRun:
			lines, err := parseLines(text)
			if err != nil {
				return nil, fail(err)
			}
			switch f.Name {
			case sectionShard:
				sc.Options.Shard = lines
			case sectionShards:
				sc.Options.Shards = lines
				sc.Options.Needs = append(sc.Options.Needs, "engine")
			case sectionOptions:
				if err := sc.Options.parse(lines); err != nil {
					return nil, fail(err)
				}
			case sectionRun:
				if i+1 >= len(a.Files) || a.Files[i+1].Name != sectionWant {
					return nil, fail(fmt.Errorf("a run section is followed by a want section"))
				}
				sc.steps = append(sc.steps, step{kind: sectionRun, statements: lines, want: i + 1})
			default:
				sc.steps = append(sc.steps, step{kind: sectionCluster, statements: lines})
			}
		case sectionWant:
			if i == 0 || a.Files[i-1].Name != sectionRun {
				return nil, fail(fmt.Errorf("a want section follows a run section"))
			}
		default:
			return nil, fail(fmt.Errorf("no section has this name; known: config, volcano-config, kube-batch-config, shard, shards, options, cluster, yaml, run, want"))
		}
	}
	given := 0
	for _, is := range []bool{sc.Options.Config != "", sc.Options.Shard != nil, sc.Options.Shards != nil} {
		if is {
			given++
		}
	}
	if given > 1 {
		return nil, fmt.Errorf("%s: config, shard and shards exclude each other", name)
	}
	return sc, nil
}

func (o *Options) parse(lines []statement) error {
	for i := range lines {
		s := &lines[i]
		value := strings.Join(s.words, " ")
		switch s.verb {
		case "scheduler-names":
			o.SchedulerNames = s.words
		case "restrict-gpu":
			o.RestrictGPU = value
		case "restrict-cpu":
			o.RestrictCPU = value
		case "volcano":
			o.Volcano = true
		case "kube-batch":
			o.KubeBatch = true
		case "sharding":
			o.Sharding = value
		case "queue-gates":
			o.QueueGates = true
		case "flat-queues":
			o.FlatQueues = true
		case "stuck-after":
			o.StuckAfter = value
		case "consolidation-victims":
			o.ConsolidationVictims = value
		case "search-steps":
			o.SearchSteps = value
		case "moved-count":
			o.MovedCount = true
		case "stale-grace":
			o.StaleGrace = value
		case "needs":
			o.Needs = append(o.Needs, s.words...)
		default:
			return s.errorf("no option has this name")
		}
	}
	return nil
}

// Load reads every scenario of a folder, ordered by name.
func Load(dir string) ([]*Scenario, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		return nil, fmt.Errorf("reading scenarios: %w", err)
	}
	var out []*Scenario
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("reading scenarios: %w", err)
		}
		sc, err := Parse(strings.TrimSuffix(filepath.Base(f), ".txtar"), text)
		if err != nil {
			return nil, err
		}
		out = append(out, sc)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no scenarios (*.txtar) in %s", dir)
	}
	return out, nil
}

// Turn is one exchange: what was asked, what should have been said, and what was.
type Turn struct {
	Run, Want, Got string
}

// OK says whether the answer was the expected one.
func (t Turn) OK() bool { return t.Got == t.Want }

// Play runs the scenario from its beginning on a fresh backend and returns its turns. An error means that a statement
// makes no sense or the backend failed.
func (sc *Scenario) Play(b Backend) ([]Turn, error) {
	in := newInterpreter(b, &sc.Options)
	var turns []Turn
	for i := range sc.steps {
		st := &sc.steps[i]
		var err error
		switch st.kind {
		case sectionYAML:
			err = in.manifests(st.manifests)
		case sectionCluster:
			_, err = in.run(st.statements)
		default:
			var got string
			got, err = in.run(st.statements)
			turns = append(turns, Turn{Run: string(sc.archive.Files[st.want-1].Data), Want: string(sc.archive.Files[st.want].Data), Got: got})
		}
		if err != nil {
			return turns, fmt.Errorf("%s: step %d (%s): %w", sc.Name, i+1, st.kind, err)
		}
	}
	return turns, nil
}

// Updated returns the file's text with the answers of turns in place of the expected ones.
func (sc *Scenario) Updated(turns []Turn) []byte {
	k := 0
	for i := range sc.steps {
		if st := &sc.steps[i]; st.kind == sectionRun {
			sc.archive.Files[st.want].Data = []byte(turns[k].Got)
			k++
		}
	}
	return txtar.Format(sc.archive)
}
