package rescheduling_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/engine/plugins/rescheduling"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// TestArguments: what cannot be read is refused, with the argument and the rule; what is known by nobody is named, and so is a strategy that is not honoured.
func TestArguments(t *testing.T) {
	t.Parallel()
	const low = `[{"name":"lowNodeUtilization","params":{`
	for _, c := range []struct{ key, text, want string }{
		{"interval", "5", `argument "interval" is 5; it must be a duration above 0`},
		{"metricsPeriod", "-1m", `argument "metricsPeriod" is -1m; it must be a duration above 0`},
		{"strategies", "lowNodeUtilization", `argument "strategies" must be a list of strategies`},
		{"strategies", low + `"thresholds":{"cpu":101}}}]`, `argument "strategies": lowNodeUtilization: cpu is 101 percent; it must be from 0 to 100`},
		{"strategies", low + `"targetThresholds":{"cpu":-1}}}]`, `argument "strategies": lowNodeUtilization: cpu is -1 percent`},
		{"strategies", low + `"thresholds":{"cpu":"x"}}}]`, `argument "strategies": lowNodeUtilization: thresholds must be percents by resource`},
		{"strategies", low + `"nodeFit":3}}]`, `argument "strategies": lowNodeUtilization: nodeFit must be true or false`},
		{"strategies", low + `"thresholdPriorityClassName":3}}]`, `argument "strategies": lowNodeUtilization: thresholdPriorityClassName must be the name of a PriorityClass`},
		{"strategies", low + `}},{"name":"lowNodeUtilization"}]`, `argument "strategies" has lowNodeUtilization twice`},
	} {
		want := strings.ReplaceAll(c.want, " is 5;", ` is "5";`)
		want = strings.ReplaceAll(want, " is -1m;", ` is "-1m";`)
		if _, _, err := rescheduling.Factory.New(policy.Arguments{c.key: c.text}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %s: %v, want %s", c.key, c.text, err, want)
		}
	}
	_, unknown, err := rescheduling.Factory.New(policy.Arguments{
		"interval": "1m", "metricsPeriod": "1m", "whim": "x",
		"strategies": `[{"name":"offlineOnly","params":{"x":1}},` + low[1:] + `"thresholds":{"cpu":20,"memory":20},"targetThresholds":{"cpu":50},"nodeFit":false,"many":1}}]`,
	})
	want := []string{"whim", "strategies[0].name=offlineOnly", "strategies[1].params.many", "strategies[1].params.nodeFit=false"}
	if err != nil || !slices.Equal(unknown, want) {
		t.Errorf("%v, unknown %v, want %v", err, unknown, want)
	}
}

// FuzzStrategies: whatever the argument says, it is refused by name or read.
func FuzzStrategies(f *testing.F) {
	for _, text := range []string{`[{"name":"lowNodeUtilization","params":{"thresholds":{"cpu":20}}}]`, `[null]`, `[{"params":{"nodeFit":false}}]`, `{}`, `[{"name":"lowNodeUtilization","params":{"thresholds":{"cpu":9223372036854775807}}}]`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, _, err := rescheduling.Factory.New(policy.Arguments{"strategies": text}); err != nil && !strings.HasPrefix(err.Error(), `argument "strategies"`) {
			t.Error(err)
		}
	})
}
