package profile

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// FuzzParse: a scheduler's configuration file is taken or refused, and what is taken names its actions.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "actions: allocate, reclaim\ntiers:\n- plugins:\n  - name: proportion\n    arguments: {kValue: \"1\"}\n",
		"actions: \",\"", "tiers: [{plugins: [{}]}]", "queueDepthPerAction: {allocate: -1}", "usageDBConfig: {clientType: prometheus, usageParams: {windowSize: 1w}}",
		"scenarioSearchBudgets: {maxJobSearchDuration: 1h, minJobSearchDuration: 2h}", "usageDBConfig: null", "a: &a [*a]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		for _, a := range p.Actions {
			if a == "" {
				t.Fatalf("an action without a name: %q", p.Actions)
			}
		}
		if _, err := Usage(text); err != nil {
			t.Fatalf("the file is taken, its history of usage is not: %v", err)
		}
	})
}

// FuzzShard: a SchedulingShard is resolved or refused, the same way twice, and the file made of it is one that is taken.
func FuzzShard(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"placementStrategy":{"gpu":"spread","cpu":""},"plugins":{"numa":{},"gpupack":{"enabled":false,"priority":-5,"arguments":{"":""}}},"actions":{"reclaim":{"enabled":false}}}`,
		`{"kValue":1e308,"minRuntime":{"preemptMinRuntime":"1h","reclaimMinRuntime":"-1s"},"queueDepthPerAction":{"allocate":9223372036854775807}}`,
		`{"usageDBConfig":{"clientType":"prometheus","usageParams":{"windowType":"cron","cronString":"* * * * *"}},"scenarioSearchBudgets":{"maxActionSearchDuration":{"default":"0s"}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var spec kaiv1.SchedulingShardSpec
		if json.Unmarshal(text, &spec) != nil {
			return
		}
		s := Of(&spec)
		p, err := ForShard(s)
		again, err2 := ForShard(Of(spec.DeepCopy()))
		if d := cmp.Diff(p, again); d != "" || (err == nil) != (err2 == nil) {
			t.Fatalf("the same shard reads differently: %s; %v, %v", d, err, err2)
		}
		file, err3 := File(s)
		if (err == nil) != (err3 == nil) {
			t.Fatalf("the shard is %v, its file %v", err, err3)
		}
		if err != nil {
			return
		}
		if _, err := Parse(file); err != nil {
			t.Fatalf("the file of a shard is refused: %v\n%s", err, file)
		}
	})
}
