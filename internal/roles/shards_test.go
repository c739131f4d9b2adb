package roles

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// TestCheckShard: what a scheduler would not start with is refused before it is stored, and nothing else.
func TestCheckShard(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, want, warns string }{
		{spec: `{}`},
		{spec: `{placementStrategy: {gpu: spread}, plugins: {gpupack: {enabled: true}, numa: {}}, queueDepthPerAction: {reclaim: 5}}`},
		{spec: `{placementStrategy: {cpu: pile}}`, want: `placementStrategy.cpu is "pile"; it must be binpack or spread`},
		{spec: `{plugins: {magic: {}}}`, want: `spec: plugins.magic is the name of no plugin; the nearest that is known is `},
		{spec: `{plugins: {gpu-pack: {enabled: false}}}`, want: `the nearest that is known is gpupack`},
		{spec: `{actions: {dance: {}}}`, want: `spec: actions.dance is the name of no action`},
		{spec: `{actions: {consolidaton: {enabled: false}}}`, want: `the nearest that is known is consolidation`},
		{spec: `{minRuntime: {reclaimMinRuntime: soon}}`, want: `minRuntime.reclaimMinRuntime is "soon"`},
		{spec: `{plugins: {proportion: {arguments: {kValue: much}}}}`, want: `plugin "proportion"`},
		{spec: `{queueDepthPerAction: {dance: 1}}`, want: `queueDepthPerAction: "dance" is not an action`},
		{spec: `{queueDepthPerAction: {allocate: -1}}`, want: `queueDepthPerAction.allocate is -1`},
		{spec: `{scenarioSearchBudgets: {maxActionSearchDuration: {allocate: 1m}}}`, want: `maxActionSearchDuration: "allocate" is not one of`, warns: "has no effect"},
		{spec: `{scenarioSearchBudgets: {minJobSearchDuration: 5m}}`, want: `must be below maxJobSearchDuration`, warns: "has no effect"},
		{spec: `{usageDBConfig: {clientType: oracle}}`, want: `clientType is "oracle"`},
		{spec: `{plugins: {proportion: {arguments: {speed: "1"}}}}`, warns: `plugin "proportion" does not know argument "speed"`},
	} {
		var spec kaiv1.SchedulingShardSpec
		if err := yaml.UnmarshalStrict([]byte(c.spec), &spec); err != nil {
			t.Fatal(err)
		}
		warnings, err := checkShard(&spec)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: refused with %v, want %q", c.spec, err, c.want)
		}
		if got := strings.Join(warnings, "; "); !strings.Contains(got, c.warns) || c.warns == "" && strings.Contains(got, "no effect") {
			t.Errorf("%s: warns %q, want %q", c.spec, got, c.warns)
		}
	}
}
