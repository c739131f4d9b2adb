package monitoring_test

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/monitoring"
	"github.com/muster-scheduler/muster/internal/monitoring/judge"
)

// read makes a series of promtool's notation: a value each minute, from the beginning of Unix time on.
func read(t *testing.T, name, values string) judge.Series {
	t.Helper()
	metric, rest, _ := strings.Cut(name, "{")
	s := judge.Series{Metric: metric, Labels: map[string]string{}}
	for _, m := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(rest, -1) {
		s.Labels[m[1]] = m[2]
	}
	number := func(text string) float64 {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%s: %s", name, values)
		}
		return x
	}
	for _, part := range strings.Fields(values) {
		of, times, _ := strings.Cut(part, "x")
		from, by, _ := strings.Cut(of, "+")
		if by == "" {
			by = "0"
		}
		for i := range int(number(times)) + 1 {
			s.Points = append(s.Points, judge.Point{At: time.Unix(60*int64(len(s.Points)), 0), Value: number(from) + float64(i)*number(by)})
		}
	}
	return s
}

// TestEvaluate: in each story the rules fire that promtool says fire, and no others.
func TestEvaluate(t *testing.T) {
	t.Parallel()
	for name, story := range monitoring.Stories() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := monitoring.Healthy()
			k := &judge.Known{Now: time.Unix(7200, 0), From: map[string]time.Time{}}
			for series := range all { // order: a map
				metric, _, _ := strings.Cut(series, "{")
				k.From[metric] = time.Unix(0, 0)
			}
			maps.Copy(all, story.Breaks)
			for series, values := range all { // order: the engine's own
				if values != "" {
					k.Series = append(k.Series, read(t, series, values))
				}
			}
			verdicts, err := judge.Evaluate(t.Context(), k)
			if err != nil {
				t.Fatal(err)
			}
			var fires []string
			for i := range verdicts {
				v := &verdicts[i]
				switch {
				case v.State == judge.Firing:
					fires = append(fires, v.Name)
					if len(v.Instances) == 0 || strings.Contains(v.Instances[0].Summary, "{{") {
						t.Errorf("%s: %+v", v.Name, v.Instances)
					}
				case v.State != judge.Quiet:
					t.Errorf("%s is %s: %s", v.Name, v.State, v.Why)
				}
			}
			if !slices.Equal(fires, story.Fires) {
				t.Errorf("%v fire, want %v", fires, story.Fires)
			}
		})
	}
}

// TestNoFalseGreen: a rule of which a metric is not known is not evaluated and says which; one of which there is doubt is not said to be quiet, and fires all the same; one that has not lasted is pending.
func TestNoFalseGreen(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	verdict := func(k *judge.Known, name string) judge.Verdict {
		t.Helper()
		list, err := judge.Evaluate(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		if n := slices.IndexFunc(list, func(v judge.Verdict) bool { return v.Name == name }); n >= 0 {
			return list[n]
		}
		t.Fatalf("no rule %s", name)
		return judge.Verdict{}
	}
	const nodes = "MusterNodesOvercommitted"
	for name, c := range map[string]struct {
		from  bool
		doubt string
		since time.Duration
		value float64
		want  judge.State
		why   string
	}{
		"unknown":          {false, "", time.Hour, 0, judge.NotEvaluated, "it takes muster_overcommitted_nodes, which only a Prometheus server knows"},
		"quiet":            {true, "", time.Hour, 0, judge.Quiet, ""},
		"doubt":            {true, "nobody is heard", time.Hour, 0, judge.NotEvaluated, "nobody is heard"},
		"firing":           {true, "", time.Hour, 3, judge.Firing, ""},
		"firing, in doubt": {true, "nobody is heard", time.Hour, 3, judge.Firing, "nobody is heard"},
		"pending":          {true, "", 5 * time.Minute, 3, judge.Pending, ""},
	} {
		k := &judge.Known{Now: now, From: map[string]time.Time{}, Doubt: map[string]string{"muster_overcommitted_nodes": c.doubt}}
		k.Series = []judge.Series{{Metric: "muster_overcommitted_nodes", Points: []judge.Point{{At: now.Add(-c.since), Value: c.value}}}}
		if c.from {
			k.From["muster_overcommitted_nodes"] = now.Add(-c.since)
		}
		v := verdict(k, nodes)
		if v.State != c.want || !strings.Contains(v.Why, c.why) || (len(v.Instances) > 0) != (c.value > 0 && c.from) {
			t.Errorf("%s: %+v", name, v)
		}
		if len(v.Instances) > 0 && (v.Instances[0].Summary != "On 3 nodes more is used than there is." || !v.Instances[0].Since.Equal(now.Add(-min(c.since, 10*time.Minute)))) {
			t.Errorf("%s: %+v", name, v.Instances[0])
		}
	}
	if v := verdict(&judge.Known{Now: now}, "MusterSchedulerAbsent"); v.State != judge.NotEvaluated {
		t.Errorf("that nothing is known is no absence: %+v", v)
	}
}
