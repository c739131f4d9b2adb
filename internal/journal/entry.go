package journal

import (
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Kind is what an entry is.
type Kind string

// The kinds of entries.
const (
	Cycle Kind = "cycle" // a cycle that binds, evicts or changes a reason; it can be replayed
	Use   Kind = "use"   // what queues use and are owed, as it is until the next entry of this kind
	Told  Kind = "told"  // forecasts
	Came  Kind = "came"  // what became of forecasts
	Gap   Kind = "gap"   // something is missing
)

// Why says why something is missing.
type Why string

// The reasons for gaps.
const (
	Away       Why = "away"         // nobody kept a journal
	Torn       Why = "torn"         // the last entry was not written to its end
	Damaged    Why = "damaged"      // a file is not what was written
	Full       Why = "full"         // the disk took no more
	Slow       Why = "slow"         // the keeper was too slow for the cycles that came
	Behind     Why = "behind"       // this process was too slow for the scheduler
	Unreadable Why = "unreadable"   // the scheduler says what this version cannot read
	SetBack    Why = "clock"        // the clock was set back: moments before and after this entry are not of one clock
	Other      Why = "another view" // deciding again came to no answer
)

// Entry is one entry. Field names are stable.
type Entry struct {
	// Number counts entries from 1 on; none is used twice in a folder.
	Number uint64 `json:"number"`
	// At is the cycle's moment, else that of writing.
	At    time.Time `json:"at"`
	Shard string    `json:"shard,omitempty"`
	Kind  Kind      `json:"kind"`
	// Decisions are those of a cycle, by bundle, Reasons those that are other ones than before.
	Decisions []Decision `json:"decisions,omitempty"`
	Reasons   []Reason   `json:"reasons,omitempty"`
	// Names are the names, each with its namespace before it, that texts of this entry have in them, with the queue of those that are gangs: whoever may not read a namespace is
	// told none of them.
	Names map[string]string `json:"names,omitempty"`
	// Queues are those that use or are owed something, by name.
	Queues []QueueUse `json:"queues,omitempty"`
	// Starts are forecasts, or what came of them.
	Starts []Start `json:"starts,omitempty"`
	// Missing says what is missing, of a gap.
	Missing *Missing `json:"missing,omitempty"`
}

// Missing says what is missing.
type Missing struct {
	Why Why `json:"why"`
	// Cycles or entries are how many; 0 where nobody knows.
	Count uint64 `json:"count,omitempty"`
	// Since is when it began, if that is known.
	Since time.Time `json:"since,omitzero"`
	// Detail is for people. No name of a namespace is in it.
	Detail string `json:"detail,omitempty"`
}

// Decision is what one bundle does.
type Decision struct {
	Action string      `json:"action"`
	Bundle string      `json:"bundle"`
	Gang   cluster.Key `json:"gang"`
	Queue  string      `json:"queue,omitempty"`
	// Starts says that the gang has its minimum by it.
	Starts bool `json:"starts,omitempty"`
	// Binds, Evicts and Promises count pods.
	Binds    int `json:"binds,omitempty"`
	Evicts   int `json:"evicts,omitempty"`
	Promises int `json:"promises,omitempty"`
	// Cause is why others give way; nil where none does.
	Cause *engine.EvictionRecord `json:"cause,omitempty"`
}

// Reason is why a gang waits.
type Reason struct {
	Gang  cluster.Key `json:"gang"`
	Queue string      `json:"queue,omitempty"`
	// Reason is its key, "" for one that waits no more; Text says it with its numbers.
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
	Before string `json:"before,omitempty"`
}

// QueueUse is what a queue uses and is owed, in milli-GPU.
type QueueUse struct {
	Queue     string `json:"queue"`
	Parent    string `json:"parent,omitempty"`
	Quota     int64  `json:"quotaMilliGPU"` // -1: unlimited
	FairShare int64  `json:"fairShareMilliGPU"`
	Used      int64  `json:"usedMilliGPU"`
	Requested int64  `json:"requestedMilliGPU"`
}

// Start is a forecast of a gang's start, or what came of it.
type Start struct {
	Gang  cluster.Key `json:"gang"`
	Queue string      `json:"queue"`
	// Low and High are the band that was told; zero for beyond the horizon. Word is the kind of the answer.
	Word string    `json:"word,omitempty"`
	Low  time.Time `json:"low,omitzero"`
	High time.Time `json:"high,omitzero"`
	// Started is when it did, and Held how many of the Of bands that were told of it held that.
	Started time.Time `json:"started,omitzero"`
	Held    int       `json:"held,omitempty"`
	Of      int       `json:"of,omitempty"`
}
