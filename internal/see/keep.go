package see

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// kept is a History as it is written: its maps as sorted lists.
type kept struct {
	Version    string // of this form
	Cluster    string
	Began, Now cluster.Instant
	SetBack    time.Duration
	Gangs      []keptGang
	Runs       []Run
	Arrivals   []Arrival
	Records    []keptRecord
}

type keptGang struct {
	Key cluster.Key
	*Known
}

type keptRecord struct {
	RecordKey
	*Record
}

// keptVersion changes with the meaning of any field of a History.
const keptVersion = "history/v1"

// Text is the history as it is kept between processes; equal ones are equal texts.
func (h *History) Text() ([]byte, error) {
	k := kept{Version: keptVersion, Cluster: h.Cluster, Began: h.Began, Now: h.Now, SetBack: h.SetBack, Runs: h.Runs, Arrivals: h.Arrivals}
	for _, key := range slices.SortedFunc(maps.Keys(h.Gangs), compareKeys) {
		k.Gangs = append(k.Gangs, keptGang{key, h.Gangs[key]})
	}
	for _, key := range slices.SortedFunc(maps.Keys(h.Records), func(a, b RecordKey) int {
		if a.Queue == b.Queue && a.Later != b.Later {
			if b.Later {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Queue, b.Queue)
	}) {
		k.Records = append(k.Records, keptRecord{key, h.Records[key]})
	}
	text, err := json.Marshal(&k)
	if err != nil {
		return nil, fmt.Errorf("write a history: %w", err)
	}
	return text, nil
}

// ReadHistory reads what Text wrote. What this version does not know is an error: a history that is begun anew knows nothing, and says so.
func ReadHistory(text []byte) (*History, error) {
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("read a history: %w", err)
	}
	if k.Version != keptVersion {
		return nil, fmt.Errorf("read a history: it is of version %.40q; this version of muster reads %q", k.Version, keptVersion)
	}
	h := &History{
		Cluster: k.Cluster, Began: k.Began, Now: k.Now, SetBack: k.SetBack, Runs: k.Runs, Arrivals: k.Arrivals, Gangs: map[cluster.Key]*Known{}, Records: map[RecordKey]*Record{},
	}
	for _, g := range k.Gangs {
		if g.Known != nil {
			h.Gangs[g.Key] = g.Known
		}
	}
	for _, r := range k.Records {
		if r.Record != nil {
			h.Records[r.RecordKey] = r.Record
		}
	}
	return h, nil
}
