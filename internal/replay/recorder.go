package replay

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// MaxKept is how many decisions a Recorder keeps at most: each holds on to a snapshot.
const MaxKept = 1000

// Recorder keeps the latest cycle of a scheduler, and the last cycles that decided something, and serves them as files. To keep
// a cycle costs a pointer and what has changed in the cluster since; it is written only when somebody asks. It is safe for
// concurrent use.
type Recorder struct {
	version string
	storage bool

	mu      sync.Mutex
	profile engine.Profile // of the next cycle
	latest  *moment
	ring    []moment // of cycles that decided something; full when its length is its capacity
	next    int
	cycles  uint64
	// promised are the nominations of the latest cycle: which node each pod waits for.
	promised map[string]string

	writing sync.Mutex // one at a time: a file of a large cluster takes much memory
}

// moment is one cycle.
type moment struct {
	cycle   uint64
	snap    *cluster.Snapshot
	plans   []engine.Plan
	profile engine.Profile // by which it was decided
}

// Cycle is what a list of cycles says of one.
type Cycle struct {
	// Cycle is its number, from 1 on in each process.
	Cycle     uint64    `json:"cycle"`
	At        time.Time `json:"at"`
	Binds     int       `json:"binds"`
	Evictions int       `json:"evictions"`
	// Promises are nominations: pods for which room is kept that others are about to leave.
	Promises int `json:"promises"`
}

// NewRecorder returns a recorder for a scheduler of this version, profile and --schedule-csi-storage, that keeps, besides the
// latest cycle, so many that decided something: 0 to MaxKept.
func NewRecorder(version string, p engine.Profile, storageCapacity bool, keep int) (*Recorder, error) {
	if keep < 0 || keep > MaxKept {
		return nil, fmt.Errorf("%d decisions cannot be kept: 0 to %d", keep, MaxKept)
	}
	return &Recorder{version: version, profile: p, storage: storageCapacity, ring: make([]moment, 0, keep)}, nil
}

// Decided takes a cycle in: the snapshot and what was decided on it. Nobody writes to them any more. A cycle decided something if it
// binds, evicts, or promises room that the one before did not promise: a promise is made again in each cycle until it is kept.
func (r *Recorder) Decided(snap *cluster.Snapshot, plans []engine.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cycles++
	m := moment{r.cycles, snap, plans, r.profile}
	r.latest = &m
	news := r.news(plans)
	switch {
	case !news || cap(r.ring) == 0:
	case len(r.ring) < cap(r.ring):
		r.ring = append(r.ring, m)
	default:
		r.ring[r.next] = m
		r.next = (r.next + 1) % len(r.ring)
	}
}

// news says whether plans have more in them than the promises of the cycle before, and remembers theirs.
func (r *Recorder) news(plans []engine.Plan) bool {
	before := r.promised
	r.promised = map[string]string{}
	news := false
	for in := range intents(plans) {
		if in.Verb != engine.Nominate {
			news = true
			continue
		}
		r.promised[in.UID] = in.Node
		news = news || before[in.UID] != in.Node
	}
	return news
}

// intents are those of all plans.
func intents(plans []engine.Plan) iter.Seq[*engine.Intent] {
	return func(yield func(*engine.Intent) bool) {
		for i := range plans {
			for j := range plans[i].Bundles {
				for k := range plans[i].Bundles[j].Intents {
					if !yield(&plans[i].Bundles[j].Intents[k]) {
						return
					}
				}
			}
		}
	}
}

// Latest returns the snapshot of the latest cycle; nil before the first.
func (r *Recorder) Latest() *cluster.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest == nil {
		return nil
	}
	return r.latest.snap
}

// LatestBy returns the snapshot of the latest cycle, and by what it was decided; nil before the first.
func (r *Recorder) LatestBy() (*cluster.Snapshot, engine.Profile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest == nil {
		return nil, r.profile
	}
	return r.latest.snap, r.latest.profile
}

// Profile is what the scheduler decides by: the latest cycle, or the first one if there has been none.
func (r *Recorder) Profile() engine.Profile {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest != nil {
		return r.latest.profile
	}
	return r.profile
}

// Use says what the scheduler decides by from the next cycle on.
func (r *Recorder) Use(p engine.Profile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.profile = p
}

// find returns a cycle by its number, 0 for the latest.
func (r *Recorder) find(cycle uint64) (moment, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest != nil && (cycle == 0 || cycle == r.latest.cycle) {
		return *r.latest, true
	}
	for _, m := range r.ring {
		if m.cycle == cycle {
			return m, true
		}
	}
	return moment{}, false
}

// Cycles lists the cycles that are kept, oldest first.
func (r *Recorder) Cycles() []Cycle {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []Cycle{}
	add := func(m *moment) {
		c := Cycle{Cycle: m.cycle, At: m.snap.Now.Time().UTC()}
		for in := range intents(m.plans) {
			switch in.Verb {
			case engine.Bind:
				c.Binds++
			case engine.Evict:
				c.Evictions++
			case engine.Nominate:
				c.Promises++
			}
		}
		out = append(out, c)
	}
	for i := range r.ring {
		add(&r.ring[(r.next+i)%len(r.ring)])
	}
	if r.latest != nil && (len(out) == 0 || out[len(out)-1].Cycle != r.latest.cycle) {
		add(r.latest)
	}
	return out
}

// ServeHTTP answers a GET with a file (Write) of the latest cycle, or of the one that the parameter cycle numbers; with the
// parameter list, with the list of those that are kept, as JSON.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	if q.Has("list") {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.Cycles()) // the reader has gone
		return
	}
	number := uint64(0)
	if text := q.Get("cycle"); text != "" {
		var err error
		if number, err = strconv.ParseUint(text, 10, 64); err != nil {
			http.Error(w, fmt.Sprintf("cycle: %q is no number", shown(text)), http.StatusBadRequest)
			return
		}
	}
	m, ok := r.find(number)
	switch {
	case !ok && number == 0:
		http.Error(w, "there has been no cycle yet", http.StatusServiceUnavailable)
		return
	case !ok:
		http.Error(w, fmt.Sprintf("cycle %d is not kept", number), http.StatusNotFound)
		return
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	w.Header().Set("Content-Type", "application/gzip")
	w.Header().Set("Muster-Cycle", strconv.FormatUint(m.cycle, 10))
	c := &Case{Version: r.version, Profile: m.profile, StorageCapacity: r.storage, Image: m.snap.Image(), Decided: true, Plans: m.plans}
	if err := Write(w, c); err != nil {
		panic(http.ErrAbortHandler) // the header is sent: the reader must not take what it has for a whole file
	}
}
