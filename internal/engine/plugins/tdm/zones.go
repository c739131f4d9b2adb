package tdm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// zone is when the nodes of a zone may be used: from a minute of the day on, up to another one, which is of the next day where it is not later.
type zone struct {
	from, to int64 // minutes since midnight UTC
}

const minutesOfDay = 24 * 60

// readZones are the zones by name, and which arguments they were.
func readZones(args policy.Arguments) (map[string]zone, []string, error) {
	zones, known := map[string]zone{}, []string{}
	for key := range args { // order: sorted below
		if strings.HasPrefix(key, ZoneArgument) {
			known = append(known, key)
		}
	}
	slices.Sort(known)
	for _, key := range known {
		z, ok := readZone(args[key])
		if !ok {
			return nil, nil, fmt.Errorf("argument %q is %.40q; it must be two different times such as 20:00-06:00", key, args[key])
		}
		zones[strings.TrimPrefix(key, ZoneArgument)] = z
	}
	return zones, known, nil
}

func readZone(text string) (zone, bool) {
	from, to, ok := strings.Cut(strings.TrimSpace(text), "-")
	a, aok := minute(from)
	b, bok := minute(to)
	return zone{a, b}, ok && aok && bok && a != b
}

// minute reads HH:MM.
func minute(text string) (int64, bool) {
	h, m, ok := strings.Cut(strings.TrimSpace(text), ":")
	hour, err := strconv.ParseUint(h, 10, 8)
	min, err2 := strconv.ParseUint(m, 10, 8)
	return int64(hour*60 + min), ok && err == nil && err2 == nil && hour < 24 && min < 60 && len(m) == 2 && len(h) <= 2
}

// String says when it is open.
func (z zone) String() string {
	return fmt.Sprintf("from %02d:%02d to %02d:%02d UTC", z.from/60, z.from%60, z.to/60, z.to%60)
}

// sinceMidnight is how much of its day has passed at a time, in UTC.
func sinceMidnight(now cluster.Instant) time.Duration {
	const day = int64(minutesOfDay * time.Minute)
	return time.Duration(((now.UnixNano() % day) + day) % day)
}

// open says whether the zone is open at a time.
func (z zone) open(now cluster.Instant) bool {
	at := int64(sinceMidnight(now) / time.Minute)
	if z.from < z.to {
		return z.from <= at && at < z.to
	}
	return z.from <= at || at < z.to
}

// next is when the zone opens or closes after a time.
func (z zone) next(now cluster.Instant) cluster.Instant {
	passed, next := sinceMidnight(now), cluster.Forever
	for _, edge := range [...]int64{z.from, z.to} {
		wait := time.Duration(edge)*time.Minute - passed
		if wait <= 0 {
			wait += minutesOfDay * time.Minute
		}
		next = cluster.Earliest(next, now.Add(wait))
	}
	return next
}
