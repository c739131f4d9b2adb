package usage

import (
	"testing"
	"time"
)

// TestStart: where windows begin, among them days on which clocks change and beginnings in the future.
func TestStart(t *testing.T) {
	t.Parallel()
	cron := func(text string) Window {
		w, err := Cron(text)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	at := func(text string) time.Time {
		v, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	day, week := 24*time.Hour, 7*24*time.Hour
	for _, c := range []struct {
		name      string
		window    Window
		now, want string
	}{
		{"sliding", Sliding(week), "2026-03-08T10:00:00Z", "2026-03-01T10:00:00Z"},
		{"tumbling, third window", Tumbling(day, at("2026-03-01T06:00:00Z")), "2026-03-03T10:00:00Z", "2026-03-03T06:00:00Z"},
		{"tumbling, at a beginning", Tumbling(day, at("2026-03-01T06:00:00Z")), "2026-03-03T06:00:00Z", "2026-03-03T06:00:00Z"},
		{"tumbling, just before a beginning", Tumbling(day, at("2026-03-01T06:00:00Z")), "2026-03-03T05:59:59Z", "2026-03-02T06:00:00Z"},
		{"tumbling, origin in the future", Tumbling(day, at("2030-01-01T06:00:00Z")), "2026-03-03T10:00:00Z", "2026-03-03T06:00:00Z"},
		{"tumbling, origin in the future, at a beginning", Tumbling(day, at("2030-01-01T06:00:00Z")), "2026-03-03T06:00:00Z", "2026-03-03T06:00:00Z"},
		{"tumbling, origin with an offset", Tumbling(day, at("2026-03-01T06:00:00+02:00")), "2026-03-03T10:00:00Z", "2026-03-03T04:00:00Z"},
		{"tumbling is not moved by summer time", Tumbling(day, at("2026-03-28T00:00:00+01:00")), "2026-03-30T10:00:00Z", "2026-03-29T23:00:00Z"},
		{"cron, daily", cron("0 0 * * *"), "2026-03-03T10:00:00Z", "2026-03-03T00:00:00Z"},
		{"cron, at a beginning", cron("0 0 * * *"), "2026-03-03T00:00:00Z", "2026-03-03T00:00:00Z"},
		{"cron, just before one", cron("0 0 * * *"), "2026-03-02T23:59:59.999Z", "2026-03-02T00:00:00Z"},
		{"cron, mondays", cron("0 6 * * 1"), "2026-03-04T10:00:00Z", "2026-03-02T06:00:00Z"},
		{"cron, first of the month", cron("0 0 1 * *"), "2026-03-31T23:00:00Z", "2026-03-01T00:00:00Z"},
		{"cron, once a year", cron("30 4 15 2 *"), "2026-02-15T04:29:00Z", "2025-02-15T04:30:00Z"},
		{"cron, leap days", cron("0 0 29 2 *"), "2027-01-01T00:00:00Z", "2024-02-29T00:00:00Z"},
		{"cron, every minute of new year's day", cron("* * 1 1 *"), "2026-07-01T00:00:00Z", "2026-01-01T23:59:00Z"},
		{"cron, a descriptor", cron("@daily"), "2026-03-03T10:00:00Z", "2026-03-03T00:00:00Z"},
		{"cron, midnight in Berlin, winter", cron("CRON_TZ=Europe/Berlin 0 0 * * *"), "2026-01-15T10:00:00Z", "2026-01-14T23:00:00Z"},
		{"cron, midnight in Berlin, summer", cron("CRON_TZ=Europe/Berlin 0 0 * * *"), "2026-07-15T10:00:00Z", "2026-07-14T22:00:00Z"},
		{"cron, a day of 23 hours", cron("CRON_TZ=Europe/Berlin 0 0 * * *"), "2026-03-29T21:59:00Z", "2026-03-28T23:00:00Z"},
		{"cron, after a day of 23 hours", cron("CRON_TZ=Europe/Berlin 0 0 * * *"), "2026-03-29T22:00:00Z", "2026-03-29T22:00:00Z"},
		{"cron, a day of 25 hours", cron("CRON_TZ=Europe/Berlin 0 0 * * *"), "2026-10-25T22:59:00Z", "2026-10-24T22:00:00Z"},
		{"cron, a time that summer time skips", cron("CRON_TZ=Europe/Berlin 30 2 * * *"), "2026-03-29T20:00:00Z", "2026-03-28T01:30:00Z"},
		{"cron, a time that comes twice, first", cron("CRON_TZ=Europe/Berlin 30 2 * * *"), "2026-10-25T01:00:00Z", "2026-10-25T00:30:00Z"},
		{"cron, a time that comes twice, after", cron("CRON_TZ=Europe/Berlin 30 2 * * *"), "2026-10-25T12:00:00Z", "2026-10-25T01:30:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := c.window.Start(at(c.now)); !got.Equal(at(c.want)) {
				t.Errorf("at %s the window starts at %s, want %s", c.now, got.UTC().Format(time.RFC3339Nano), c.want)
			}
			if start := c.window.Start(at(c.now)); at(c.now).Sub(start) > c.window.Longest() {
				t.Errorf("the window of %s is longer than the longest, %s", at(c.now).Sub(start), c.window.Longest())
			}
		})
	}
}

// TestStartNeverGoesBack: over a year, every three hours, the start of a cron window is the latest time that the
// schedule names, found the slow way.
func TestStartNeverGoesBack(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"CRON_TZ=America/New_York 30 1 * * *", "0 */5 * * *", "15 3 31 * *"} {
		w, err := Cron(text)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2025, 1, 1, 0, 7, 0, 0, time.UTC)
		want := w.Start(now)
		for range 365 * 8 {
			for next := w.schedule.Next(want); !next.After(now); next = w.schedule.Next(next) {
				want = next
			}
			if got := w.Start(now); !got.Equal(want) {
				t.Fatalf("%s: at %s the window starts at %s, want %s", text, now, got, want)
			}
			now = now.Add(3 * time.Hour)
		}
	}
}

// TestLongest: a cron window is never longer than the retention it asks for, and not much shorter.
func TestLongest(t *testing.T) {
	t.Parallel()
	for text, days := range map[string]int{"0 0 * * *": 1, "0 6 * * 1": 7, "0 0 1 * *": 31, "0 0 29 2 *": 4 * 365, "* * 1 1 *": 365} {
		w, err := Cron(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := int(w.Longest().Hours() / 24); got < days-1 || got > days+2 {
			t.Errorf("%s: longest window of %d days, want about %d", text, got, days)
		}
	}
}

func TestCronRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "0 0 * *", "0 0 30 2 *", "61 0 * * *", "@every 1h", "CRON_TZ=Nowhere/Land 0 0 * * *", "CRON_TZ=UTC", "TZ=UTC", "TZ= ", "CRON_TZ=", "CRON_TZ=UTC ", "TZ=UTC\t0 0 * * *", "@", "@hourly @daily", "0 0 * * * *"} {
		if _, err := Cron(text); err == nil {
			t.Errorf("%q is taken for a cron expression", text)
		} else {
			t.Log(err)
		}
	}
}

// FuzzCron: no expression makes anything panic or take long, and what is accepted has a start that is not after now.
func FuzzCron(f *testing.F) {
	for _, text := range []string{"0 0 * * *", "CRON_TZ=Europe/Berlin */5 1-4,7 L 1 MON", "@weekly", "TZ=UTC", "0/0 * * * *", "* * 30 2 *", "59-1 * * * ?"} {
		f.Add(text)
	}
	now := time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		w, err := Cron(text)
		if err != nil {
			return
		}
		if start := w.Start(now); start.After(now) || now.Sub(start) > w.Longest() {
			t.Errorf("%q: the window of %s starts at %s", text, now, start)
		}
	})
}

// FuzzParse: no configuration makes anything panic, and what is accepted can be asked about.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"{}", "null", "[]", `{"usageParams":null}`, `{"clientType":"prometheus","connectionString":"http://u:p@h"}`,
		`{"usageParams":{"windowType":"tumbling","tumblingWindowStartTime":"1800-01-01T00:00:00Z","windowSize":"1y"}}`,
		`{"usageParams":{"windowType":"cron","cronString":"TZ=UTC","halfLifePeriod":"-1h","extraParams":{"queryResolution":"1ns"}}}`,
	} {
		f.Add([]byte(text))
	}
	now := time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		if start := c.Window.Start(now); start.After(now) || c.Interval <= 0 || c.Resolution <= 0 || c.Timeout <= 0 || c.Wait < 0 || c.HalfLife < 0 || c.Stale < c.Interval {
			t.Errorf("%s: %+v, starts at %s", text, c, start)
		}
	})
}
