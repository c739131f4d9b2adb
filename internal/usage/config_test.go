package usage

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) (Config, error) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Parse(raw)
}

func TestParseDefaults(t *testing.T) {
	t.Parallel()
	c, err := parse(t, "clientType: prometheus\nconnectionString: http://p:9090\n")
	if err != nil {
		t.Fatal(err)
	}
	window := c.Window.Longest()
	c.Window = Window{}
	want := Config{
		Client: Prometheus, Address: "http://p:9090", Resolution: time.Minute, Interval: time.Minute, Timeout: 10 * time.Second,
		Stale: 5 * time.Minute, Wait: time.Minute, Dimensions: Dimensions(),
	}
	if d := cmp.Diff(want, c, cmp.AllowUnexported(Window{})); d != "" {
		t.Error(d)
	}
	if window != 7*24*time.Hour {
		t.Errorf("window %s", window)
	}
	if c, err = parse(t, "{}"); err != nil || c.Client != Embedded {
		t.Errorf("nothing given: %v, %v", c.Client, err)
	}
}

func TestParseEverything(t *testing.T) {
	t.Parallel()
	c, err := parse(t, `
clientType: prometheus
connectionStringEnvVar: PROM
usageParams:
  halfLifePeriod: 36h
  windowSize: 2w1d
  windowType: tumbling
  tumblingWindowStartTime: 2026-01-01T06:00:00Z
  fetchInterval: 10m
  stalenessPeriod: 1m
  waitTimeout: 0s
  extraParams: {usageQueryTimeout: 5s, queryResolution: 1h, gpuAllocationMetric: my_gpus, memoryCapacityMetric: "sum(my_memory)"}
`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Window.Longest(), 15*24*time.Hour; got != want || !c.Window.Resets() {
		t.Errorf("window %s, resets %v", got, c.Window.Resets())
	}
	c.Window = Window{}
	d := Dimensions()
	d[0].Held, d[2].Had = "my_gpus", "sum(my_memory)"
	want := Config{
		Client: Prometheus, AddressFrom: "PROM", HalfLife: 36 * time.Hour, Resolution: time.Hour, Interval: 10 * time.Minute,
		Timeout: 5 * time.Second, Stale: 10 * time.Minute, Dimensions: d,
	}
	if d := cmp.Diff(want, c, cmp.AllowUnexported(Window{})); d != "" {
		t.Error(d)
	}
	for value, ok := range map[string]bool{"http://p:9090": true, "": false, "p:9090": false} {
		got, err := c.Resolve(func(string) (string, bool) { return value, value != "" })
		if (err == nil) != ok || ok && got != value {
			t.Errorf("environment %q: %q, %v", value, got, err)
		}
	}
}

// TestParseRefuses: an error names the key and says the rule.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	prometheus := "clientType: prometheus\nconnectionString: http://p\n"
	for _, c := range []struct{ text, key, rule string }{
		{"clientType: influx", "clientType", "must be prometheus, embedded"},
		{"clientType: prometheus", "connectionString", "missing"},
		{"clientType: prometheus\nconnectionString: http://p\nconnectionStringEnvVar: P", "connectionString", "only one"},
		{"connectionString: /a\nconnectionStringEnvVar: P", "connectionString", "only one"},
		{"clientType: prometheus\nconnectionString: p:9090", "connectionString", "URL"},
		{"clientType: prometheus\nconnectionString: 'ftp://p'", "connectionString", "URL"},
		{"clienttypo: prometheus", "clienttypo", "unknown"},
		{"clientType: 3", "clientType", "string"},
		{"usageParams: {halfLifePeriod: forever}", "halfLifePeriod", "duration"},
		{"usageParams: {halfLifePeriod: 3}", "halfLifePeriod", "string"},
		{"usageParams: {windowSize: 1.5d}", "windowSize", "duration"},
		{"usageParams: {windowSize: 0s}", "windowSize", "more than 0"},
		{"usageParams: {windowSize: -1w}", "windowSize", "duration"},
		{"usageParams: {windowSize: 90000y}", "windowSize", "duration"},
		{"usageParams: {windowType: rolling}", "windowType", "sliding, tumbling or cron"},
		{"usageParams: {windowType: tumbling}", "tumblingWindowStartTime", "missing"},
		{"usageParams: {windowType: tumbling, tumblingWindowStartTime: yesterday}", "tumblingWindowStartTime", "time like"},
		{"usageParams: {windowType: tumbling, tumblingWindowStartTime: '0001-01-01T00:00:00Z'}", "tumblingWindowStartTime", "between"},
		{"usageParams: {windowType: cron}", "cronString", "missing"},
		{"usageParams: {windowType: cron, cronString: '0 0 30 2 *'}", "cronString", "never comes"},
		{"usageParams: {windowType: cron, cronString: '@every 1h'}", "cronString", "tumbling"},
		{"usageParams: {windowType: cron, cronString: 'often'}", "cronString", "cron expression"},
		{"usageParams: {fetchInterval: 0s}", "fetchInterval", "more than 0"},
		{"usageParams: {fetchInterval: -1s}", "fetchInterval", "more than 0"},
		{"usageParams: {stalenessPeriod: 0s}", "stalenessPeriod", "more than 0"},
		{"usageParams: {waitTimeout: -1s}", "waitTimeout", "negative"},
		{"usageParams: {extraParams: {usageQueryTimeout: 0s}}", "usageQueryTimeout", "more than 0"},
		{"usageParams: {extraParams: {queryResolution: 2w}}", "queryResolution", "longer than the window"},
		{"usageParams: {extraParams: {queryResolution: 1ms}}", "queryResolution", "too fine"},
		{"usageParams: {extraParams: {tpuAllocationMetric: x}}", "tpuAllocationMetric", "known are"},
		{"usageParams: {extraParams: {gpuAllocationMetric: x}}", "gpuAllocationMetric", "only clientType prometheus"},
		{prometheus + "usageParams: {extraParams: {gpuAllocationMetric: ' '}}", "gpuAllocationMetric", "empty"},
	} {
		_, err := parse(t, c.text)
		if err == nil {
			t.Errorf("accepted: %s", c.text)
			continue
		}
		for _, part := range []string{"usageDBConfig", c.key, c.rule} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s:\n%v\ndoes not say %q", c.text, err, part)
			}
		}
	}
	if _, err := parse(t, "clientType: prometheus\nconnectionString: 'ftp://me:secret@p'"); strings.Contains(err.Error(), "secret") {
		t.Errorf("tells a password: %v", err)
	}
}
