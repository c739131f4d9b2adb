package cluster

import (
	"cmp"
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// Instant is a moment, to the nanosecond, between the years 1678 and 2262. The zero Instant stands for none: it has never been, is not known,
// or is not set. It sorts before every moment since 1970, which it is the beginning of.
//
// Instants are compared and not added up; what lies between two of them is a [time.Duration]. In files an Instant is a number, its
// nanoseconds since the beginning of 1970. It costs what an int64 costs.
type Instant struct{ ns int64 }

// Forever is a moment that never comes, the last there is. Nobody writes to it.
var Forever = UnixNano(math.MaxInt64)

// UnixNano returns the moment so many nanoseconds after the beginning of 1970, for those who read times that are written so.
func UnixNano(ns int64) Instant { return Instant{ns} }

// InstantOf returns a moment of the clock or of an API object. One outside of the range of an Instant is a wrong moment within it, as with
// [time.Time.UnixNano].
func InstantOf(t time.Time) Instant { return Instant{t.UnixNano()} }

// UnixNano returns the nanoseconds since the beginning of 1970, for those who write times so; 0 for none.
func (t Instant) UnixNano() int64 { return t.ns }

// Time returns the moment for those who show it to people or write it into API objects.
func (t Instant) Time() time.Time { return time.Unix(0, t.ns) }

// IsZero says that there is no such moment, or that nobody knows it.
func (t Instant) IsZero() bool { return t.ns == 0 }

// Before says whether t comes before u.
func (t Instant) Before(u Instant) bool { return t.ns < u.ns }

// After says whether t comes after u.
func (t Instant) After(u Instant) bool { return t.ns > u.ns }

// Equal is ==, for what compares values of any type by their methods.
func (t Instant) Equal(u Instant) bool { return t == u }

// Compare is negative when t comes before u, positive when it comes after u, and 0 when they are one.
func (t Instant) Compare(u Instant) int { return cmp.Compare(t.ns, u.ns) }

// Add returns the moment that is so much later, or earlier for a negative duration. It stops at the ends of the range, so that what is to
// come very late is Forever.
func (t Instant) Add(d time.Duration) Instant {
	sum := t.ns + int64(d)
	switch {
	case d > 0 && sum < t.ns:
		return Forever
	case d < 0 && sum > t.ns:
		return Instant{math.MinInt64}
	}
	return Instant{sum}
}

// Sub returns how much later t is than u, negative when it is earlier. It stops at the longest durations there are.
func (t Instant) Sub(u Instant) time.Duration {
	apart := t.ns - u.ns
	switch {
	case t.ns > u.ns && apart < 0:
		return math.MaxInt64
	case t.ns < u.ns && apart > 0:
		return math.MinInt64
	}
	return time.Duration(apart)
}

// Earliest returns the earlier of two moments.
func Earliest(t, u Instant) Instant { return Instant{min(t.ns, u.ns)} }

// Latest returns the later of two moments.
func Latest(t, u Instant) Instant { return Instant{max(t.ns, u.ns)} }

// MarshalJSON writes a number.
func (t Instant) MarshalJSON() ([]byte, error) { return strconv.AppendInt(nil, t.ns, 10), nil }

// UnmarshalJSON reads a number.
func (t *Instant) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &t.ns) }
