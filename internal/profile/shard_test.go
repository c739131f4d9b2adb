package profile

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// drawShard is a random shard that makes sense.
func drawShard(t *rapid.T) Shard {
	strategy := rapid.SampledFrom([]string{"", "binpack", "spread"})
	time := rapid.SampledFrom([]string{"", "0s", "90s", "1h30m"})
	flag := func(label string) *bool {
		if rapid.Bool().Draw(t, label+" said") {
			v := rapid.Bool().Draw(t, label)
			return &v
		}
		return nil
	}
	s := Shard{
		GPUStrategy: strategy.Draw(t, "gpu"), CPUStrategy: strategy.Draw(t, "cpu"), PreemptMinRuntime: time.Draw(t, "preempt"), ReclaimMinRuntime: time.Draw(t, "reclaim"),
		Plugins: map[string]Override{}, Actions: map[string]Override{},
	}
	for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"proportion", "minruntime", "elastic", "disruptionbudgets", "fragmentation", "gpuspread", "nodeplacement", "own"}), rapid.ID[string]).Draw(t, "plugins") {
		o := Override{Enabled: flag(name)}
		if rapid.Bool().Draw(t, name+" ordered") {
			n := rapid.IntRange(-10, 3000).Draw(t, name+" priority")
			o.Priority = &n
		}
		if rapid.Bool().Draw(t, name+" argued") {
			o.Arguments = rapid.MapOfN(rapid.SampledFrom([]string{"a", "kValue", "gpu"}), rapid.SampledFrom([]string{"", "1", "yes", "a: b", "'"}), 0, 2).Draw(t, name+" arguments")
		}
		s.Plugins[name] = o
	}
	for _, name := range []string{"allocate", "reclaim", "consolidation"} {
		if name != "allocate" {
			s.Actions[name] = Override{Enabled: flag(name)}
		}
	}
	if rapid.Bool().Draw(t, "k said") {
		k := rapid.Float64Range(0, 10).Draw(t, "k")
		s.KValue = &k
	}
	if rapid.Bool().Draw(t, "depth said") {
		s.QueueDepth = map[string]int{"allocate": rapid.IntRange(0, 100).Draw(t, "depth")}
	}
	if rapid.Bool().Draw(t, "usage said") {
		s.Usage = &kaiv1.UsageDBConfig{ClientType: rapid.SampledFrom([]string{"fake", "embedded", "fake-with-history"}).Draw(t, "client")}
	}
	return s
}

// TestFileIsTheShard: the file that the operator writes for a shard means to the scheduler what the shard means.
func TestFileIsTheShard(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawShard(t)
		want, err := ForShard(s)
		if err != nil {
			t.Fatal(err)
		}
		text, err := File(s)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if !want.Uses(budgets) { // off is written as a mode, because a file that does not name the plugin has it
			last := &want.Tiers[len(want.Tiers)-1]
			*last = append(*last, engine.PluginUse{Name: budgets, Arguments: policy.Arguments{"mode": "ignore"}})
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("-shard +file:\n%s\n%s", diff, text)
		}
		c, err := Usage(text)
		if err != nil || (c == nil) != (s.Usage == nil) {
			t.Fatalf("usage is %v, %v; the shard has %v", c, err, s.Usage)
		}
		again, err := File(s)
		if err != nil || string(again) != string(text) {
			t.Fatalf("written twice, it is two files:\n%s\n%s", text, again)
		}
	})
}

// TestEveryFieldOfAShard: each field of a SchedulingShard changes the file of its scheduler, or is one of those that are not
// the profile's.
func TestEveryFieldOfAShard(t *testing.T) {
	t.Parallel()
	elsewhere := map[string]string{
		"args": "flags of the scheduler", "partitionLabelValue": "its flag --partition-label-value",
		"goMemLimit": "its environment", "goMemLimitRatio": "its environment",
	}
	text, number, k, hour := "90s", 7, 0.5, metav1.Duration{Duration: time.Hour}
	spread, off := "spread", false
	changes := map[string]func(*kaiv1.SchedulingShardSpec){
		"placementStrategy": func(s *kaiv1.SchedulingShardSpec) {
			s.PlacementStrategy = &kaiv1.PlacementStrategy{GPU: &spread, CPU: &spread}
		},
		"placementStrategy.gpu": func(s *kaiv1.SchedulingShardSpec) { s.PlacementStrategy = &kaiv1.PlacementStrategy{GPU: &spread} },
		"placementStrategy.cpu": func(s *kaiv1.SchedulingShardSpec) { s.PlacementStrategy = &kaiv1.PlacementStrategy{CPU: &spread} },
		"queueDepthPerAction":   func(s *kaiv1.SchedulingShardSpec) { s.QueueDepthPerAction = map[string]int{"reclaim": 3} },
		"minRuntime": func(s *kaiv1.SchedulingShardSpec) {
			s.MinRuntime = &kaiv1.MinRuntime{PreemptMinRuntime: &text, ReclaimMinRuntime: &text}
		},
		"minRuntime.preempt": func(s *kaiv1.SchedulingShardSpec) { s.MinRuntime = &kaiv1.MinRuntime{PreemptMinRuntime: &text} },
		"minRuntime.reclaim": func(s *kaiv1.SchedulingShardSpec) { s.MinRuntime = &kaiv1.MinRuntime{ReclaimMinRuntime: &text} },
		"kValue":             func(s *kaiv1.SchedulingShardSpec) { s.KValue = &k },
		"usageDBConfig":      func(s *kaiv1.SchedulingShardSpec) { s.UsageDBConfig = &kaiv1.UsageDBConfig{ClientType: "fake"} },
		"scenarioSearchBudgets": func(s *kaiv1.SchedulingShardSpec) {
			s.ScenarioSearchBudgets = &kaiv1.ScenarioSearchBudgets{MaxActionSearchDuration: map[string]metav1.Duration{"default": hour}}
		},
		"plugins": func(s *kaiv1.SchedulingShardSpec) {
			s.Plugins = map[string]kaiv1.PluginConfig{"elastic": {Enabled: &off}}
		},
		"plugins.priority": func(s *kaiv1.SchedulingShardSpec) {
			s.Plugins = map[string]kaiv1.PluginConfig{"elastic": {Priority: &number}}
		},
		"plugins.arguments": func(s *kaiv1.SchedulingShardSpec) {
			s.Plugins = map[string]kaiv1.PluginConfig{"elastic": {Arguments: map[string]string{"a": "b"}}}
		},
		"actions": func(s *kaiv1.SchedulingShardSpec) {
			s.Actions = map[string]kaiv1.ActionConfig{"reclaim": {Enabled: &off}}
		},
		"actions.priority": func(s *kaiv1.SchedulingShardSpec) {
			s.Actions = map[string]kaiv1.ActionConfig{"reclaim": {Priority: &number}}
		},
	}
	plain, err := File(Of(&kaiv1.SchedulingShardSpec{}))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{string(plain): "nothing"}
	for name, change := range changes {
		var spec kaiv1.SchedulingShardSpec
		change(&spec)
		text, err := File(Of(&spec))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if other, same := seen[string(text)]; same {
			t.Errorf("%s makes the same file as %s:\n%s", name, other, text)
		}
		seen[string(text)] = name
	}
	for f := range reflect.TypeFor[kaiv1.SchedulingShardSpec]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if _, changed := changes[name]; changed == (elsewhere[name] != "") {
			t.Errorf("field %s: say here what it changes, or where else it counts", name)
		}
	}
}

// TestShardErrors: what is refused is named by its field, with the rule.
func TestShardErrors(t *testing.T) {
	t.Parallel()
	long, short, negative := metav1.Duration{Duration: time.Hour}, metav1.Duration{Duration: time.Second}, metav1.Duration{Duration: -time.Second}
	times := func(b kaiv1.ScenarioSearchBudgets) Shard { return Shard{SearchBudgets: &b} }
	none := map[string]Override{}
	for _, a := range defaultActions() {
		none[a] = Override{Enabled: off()}
	}
	for want, s := range map[string]Shard{
		`queueDepthPerAction: "backfill" is not an action of this configuration (allocate, `:                       {QueueDepth: map[string]int{"backfill": 1}},
		`queueDepthPerAction: "consolidation" is not an action`:                                                    {GPUStrategy: "spread", QueueDepth: map[string]int{"consolidation": 1}},
		`queueDepthPerAction.reclaim is -1; it must not be negative`:                                               {QueueDepth: map[string]int{"reclaim": -1}},
		`minRuntime.preemptMinRuntime is "soon"; it must be a Go duration`:                                         {PreemptMinRuntime: "soon"},
		`minRuntime.reclaimMinRuntime is "-1s"; it must be a Go duration that is not negative`:                     {ReclaimMinRuntime: "-1s"},
		`usageDBConfig: clientType is "influx"`:                                                                    {Usage: &kaiv1.UsageDBConfig{ClientType: "influx"}},
		`actions: all are switched off`:                                                                            {Actions: none},
		`actions: "a,b" is no name of an action`:                                                                   {Actions: map[string]Override{"a,b": {}}},
		`plugins: a plugin without a name`:                                                                         {Plugins: map[string]Override{"": {}}},
		`maxActionSearchDuration: "allocate" is not one of default, reclaim, preempt, consolidation`:               times(kaiv1.ScenarioSearchBudgets{MaxActionSearchDuration: map[string]metav1.Duration{"allocate": short}}),
		`maxActionSearchDuration.reclaim is "-1s"; it must be a Go duration that is not negative`:                  times(kaiv1.ScenarioSearchBudgets{MaxActionSearchDuration: map[string]metav1.Duration{"reclaim": negative}}),
		`maxGeneratorSearchDuration.Mine is "-1s"`:                                                                 times(kaiv1.ScenarioSearchBudgets{MaxGeneratorSearchDuration: map[string]metav1.Duration{"Mine": negative}}),
		`minJobSearchDuration is 1h0m0s; it must be below maxJobSearchDuration, 4m0s`:                              times(kaiv1.ScenarioSearchBudgets{MinJobSearchDuration: &long}),
		`scenarioSearchBudgets.minJobSearchDuration is 1s; it must be below maxJobSearchDuration, 1s`:              times(kaiv1.ScenarioSearchBudgets{MinJobSearchDuration: &short, MaxJobSearchDuration: &short}),
		`scenarioSearchBudgets.maxJobSearchDuration is "-1s"; it must be a Go duration that is not negative, such`: times(kaiv1.ScenarioSearchBudgets{MaxJobSearchDuration: &negative}),
	} {
		if _, err := ForShard(s); err == nil || !strings.HasPrefix(err.Error(), "spec.") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		if _, err := File(s); err == nil {
			t.Errorf("a file was written where %q was to be said", want)
		}
	}
	if _, err := ForShard(times(kaiv1.ScenarioSearchBudgets{MinJobSearchDuration: &long, MaxJobSearchDuration: &metav1.Duration{}})); err != nil {
		t.Errorf("no bound is no error: %v", err)
	}
	s := times(kaiv1.ScenarioSearchBudgets{})
	if w := s.Warnings(); len(w) != 1 || !strings.HasPrefix(w[0], "scenarioSearchBudgets has no effect") {
		t.Errorf("warnings: %v", w)
	}
}

// TestUsageOfAShard: each field of usageDBConfig reaches the scheduler's configuration of usage through the shard's file.
func TestUsageOfAShard(t *testing.T) {
	t.Parallel()
	cron, tumbling := kaiv1.WindowCron, kaiv1.WindowTumbling
	start, day := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), kaiv1.PrometheusDuration("1d")
	hour := metav1.Duration{Duration: time.Hour}
	seen := map[string]string{}
	for name, c := range map[string]kaiv1.UsageDBConfig{
		"plain":                  {ClientType: kaiv1.UsageClientEmbedded},
		"clientType":             {ClientType: kaiv1.UsageClientFake},
		"connectionString":       {ClientType: kaiv1.UsageClientPrometheus, ConnectionString: "http://prometheus.example:9090"},
		"connectionStringEnvVar": {ClientType: kaiv1.UsageClientPrometheus, ConnectionStringEnvVar: "HISTORY"},
		"halfLifePeriod":         {ClientType: kaiv1.UsageClientEmbedded, UsageParams: &kaiv1.UsageParams{HalfLifePeriod: &hour}},
		"windowSize":             {ClientType: kaiv1.UsageClientEmbedded, UsageParams: &kaiv1.UsageParams{WindowSize: &day}},
		"windowType, cronString": {ClientType: kaiv1.UsageClientEmbedded, UsageParams: &kaiv1.UsageParams{WindowType: &cron, CronString: "0 0 * * 1"}},
		"windowType, tumbling":   {ClientType: kaiv1.UsageClientEmbedded, UsageParams: &kaiv1.UsageParams{WindowType: &tumbling, TumblingWindowStartTime: &start}},
		"fetchInterval":          {ClientType: kaiv1.UsageClientEmbedded, UsageParams: &kaiv1.UsageParams{FetchInterval: &hour}},
		"stalenessPeriod":        {ClientType: kaiv1.UsageClientEmbedded, UsageParams: &kaiv1.UsageParams{StalenessPeriod: &hour}},
		"waitTimeout":            {ClientType: kaiv1.UsageClientEmbedded, UsageParams: &kaiv1.UsageParams{WaitTimeout: &hour}},
		"extraParams":            {ClientType: kaiv1.UsageClientEmbedded, UsageParams: &kaiv1.UsageParams{ExtraParams: map[string]string{"queryResolution": "30s"}}},
	} {
		text, err := File(Shard{Usage: &c})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		read, err := Usage(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		said := cmp.Diff(nil, read)
		if other, same := seen[said]; same {
			t.Errorf("%s is read as %s", name, other)
		}
		seen[said] = name
	}
	if _, err := File(Shard{Usage: &kaiv1.UsageDBConfig{ClientType: kaiv1.UsageClientEmbedded, UsageParams: &kaiv1.UsageParams{WindowType: &cron, CronString: "at noon"}}}); err == nil {
		t.Error("cronString is not read")
	}
}
