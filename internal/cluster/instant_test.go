package cluster

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

// TestInstantStopsAtItsEnds: sums and differences beyond the range stop there.
func TestInstantStopsAtItsEnds(t *testing.T) {
	t.Parallel()
	first := UnixNano(math.MinInt64)
	for _, c := range []struct {
		at   Instant
		by   time.Duration
		want Instant
	}{
		{UnixNano(5), 7, UnixNano(12)},
		{UnixNano(5), -7, UnixNano(-2)},
		{Instant{}, math.MaxInt64, Forever},
		{UnixNano(1), math.MaxInt64, Forever},
		{Forever, time.Hour, Forever},
		{Forever, -1, UnixNano(math.MaxInt64 - 1)},
		{UnixNano(-2), math.MinInt64, first},
		{first, -1, first},
	} {
		if got := c.at.Add(c.by); got != c.want {
			t.Errorf("%d and %d: %d, want %d", c.at.UnixNano(), c.by, got.UnixNano(), c.want.UnixNano())
		}
	}
	for _, c := range []struct {
		t, u Instant
		want time.Duration
	}{
		{UnixNano(5), UnixNano(7), -2},
		{Forever, Instant{}, math.MaxInt64},
		{Forever, UnixNano(-1), math.MaxInt64},
		{first, UnixNano(1), math.MinInt64},
	} {
		if got := c.t.Sub(c.u); got != c.want {
			t.Errorf("from %d to %d: %d, want %d", c.u.UnixNano(), c.t.UnixNano(), got, c.want)
		}
	}
}

// TestInstantInFiles: an Instant is the number that it was before it had a type, left out where it is none.
func TestInstantInFiles(t *testing.T) {
	t.Parallel()
	type file struct {
		Until Instant `json:"until"`
		By    Instant `json:"by,omitzero"`
	}
	for text, want := range map[string]file{
		`{"until":0}`:                           {},
		`{"until":1700000000000000001}`:         {Until: UnixNano(1_700_000_000_000_000_001)},
		`{"until":-5,"by":9223372036854775807}`: {Until: UnixNano(-5), By: Forever},
	} {
		var got file
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
		if b, err := json.Marshal(want); err != nil || string(b) != text {
			t.Errorf("%+v is written as %s, %v", want, b, err)
		}
	}
	for _, bad := range []string{`{"until":"now"}`, `{"until":1.5}`, `{"until":9223372036854775808}`} {
		if err := json.Unmarshal([]byte(bad), &file{}); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
}
