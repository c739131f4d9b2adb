package see

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/sim"
)

// Cycle is one decision of a scheduler, what it depended on, where it was, and what the engine says of it when it decides again. Its
// case and registry must not change once it was asked about; what owners say may, between questions. It is safe for concurrent use otherwise, and must not be
// copied.
type Cycle struct {
	// Cluster is the UID of the namespace kube-system; "" where nobody knows.
	Cluster string
	// Case is the decision. It is not written to.
	Case *replay.Case
	// Registry is what the profile's names stand for.
	Registry engine.Registry
	// Works says of gangs what their owners say of them; a gang that is missing says nothing.
	Works map[cluster.Key]Work

	mu   sync.Mutex // guards what follows
	snap *cluster.Snapshot
	run  *explain.Run
	own  bool // the engine comes to the plans that are on record

	naming     sync.Once         // guards what follows
	queues     map[string]string // of each gang, by its namespace and name
	namespaces map[string]bool   // every one there is
}

// Bare is the cycle as it came, without what came of deciding on it again, which takes several times as much memory: [Forecast] and [History.Learn] need no more.
func (c *Cycle) Bare() *Cycle {
	return &Cycle{Cluster: c.Cluster, Case: c.Case, Registry: c.Registry, Works: c.Works}
}

// Work is what a gang's owner says of it.
type Work struct {
	// Kind is the owner's, such as "Job". Stem is its name without what differs from run to run; see [Stem].
	Kind, Stem string
	// Deadline bounds how long it runs (activeDeadlineSeconds), Expected is how long its owner thinks that it does; 0 for not said.
	Deadline, Expected time.Duration
}

// AnnotationExpectedRuntime is what an owner (or its pod template) says of how long a run takes, as a duration of Go ("90m", "36h"). It
// promises nothing and nothing is enforced by it: forecasts begin from it, corrected by how earlier runs did that said so.
const AnnotationExpectedRuntime = "muster.dev/expected-runtime"

// maxDeclared is the longest runtime that anybody may declare.
const maxDeclared = 366 * 24 * time.Hour

// Declared reads an owner: its kind, name, annotations, and activeDeadlineSeconds (nil for none). What cannot be read is an error that names
// the field and the rule; the Work is good without it.
func Declared(kind, name string, annotations map[string]string, activeDeadlineSeconds *int64) (Work, error) {
	w := Work{Kind: kind, Stem: Stem(name)}
	if s := activeDeadlineSeconds; s != nil {
		if *s <= 0 {
			return w, &Refusal{Object: kind + " " + name, Field: "activeDeadlineSeconds", Rule: fmt.Sprintf("is %d; it must be positive", *s)}
		}
		w.Deadline = time.Duration(min(*s, int64(maxDeclared/time.Second))) * time.Second
	}
	if text, said := annotations[AnnotationExpectedRuntime]; said {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > maxDeclared {
			return w, &Refusal{Object: kind + " " + name, Field: "annotation " + AnnotationExpectedRuntime, Rule: fmt.Sprintf("is %.40q; it must be a duration such as 90m or 36h, of at most %d days", text, maxDeclared/(24*time.Hour))}
		}
		w.Expected = d
	}
	return w, nil
}

// Stem is a name without what differs from run to run: trailing parts, after "-", "." or "_", that have a digit in them.
func Stem(name string) string {
	for {
		i := strings.LastIndexAny(name, "-._")
		if i <= 0 || !strings.ContainsAny(name[i+1:], "0123456789") {
			break
		}
		name = name[:i]
	}
	if t := strings.TrimRight(name, "0123456789"); t != "" {
		return t
	}
	return name
}

// Refusal is input that no answer can be made of. It names the object, the field and the rule.
type Refusal struct {
	Object, Field, Rule string
	// Missing says that what was asked about is not there.
	Missing bool
}

func (r *Refusal) Error() string {
	said := strings.TrimSpace(r.Field + " " + r.Rule)
	if r.Object == "" {
		return said
	}
	return r.Object + ": " + said
}

// Shape is what gangs that are placed alike have in common.
type Shape struct {
	Pods, Min int
	// Requests and Share are what the first of its pods takes.
	Requests []cluster.Quantity
	Share    cluster.Share
	Priority int32
	Fixed    bool
}

// gpu is what the whole gang takes, in milli-GPU.
func (s *Shape) gpu() int64 {
	each := s.Share.Charge(0)
	for _, q := range s.Requests {
		if q.Name == "gpu" {
			each += q.Value
		}
	}
	if each > math.MaxInt64/int64(max(s.Pods, 1)) {
		return math.MaxInt64
	}
	return each * int64(s.Pods)
}

// size is the class of gangs of about so many GPUs: 0 for none, then one for each doubling from a whole one on.
func (s *Shape) size() int {
	gpu := s.gpu()
	if gpu <= 0 {
		return 0
	}
	return 1 + bits.Len64(uint64((gpu-1)/cluster.Whole))
}

// ask is what exactly the gang asks for, in a text that gangs have in common which ask for the same.
func (s *Shape) ask() string {
	text := strconv.AppendInt(nil, int64(s.Pods), 10)
	for _, q := range s.Requests {
		text = fmt.Appendf(text, " %s=%d", q.Name, q.Value)
	}
	if !s.Share.None() {
		text = fmt.Appendf(text, " %d*%d/%d", s.Share.Devices, s.Share.Portion, s.Share.MemoryMiB)
	}
	return string(text)
}

// member is a gang as a cycle shows it.
type member struct {
	state   cluster.GangState
	shape   Shape
	work    Work
	started cluster.Instant // when it last started, as its object and the store's memory say
	whole   bool            // has its minimum
	over    bool            // its pods have ended
	waits   bool            // has pods that may be placed
}

func (m *member) asker() asker { return asker{m.state.Queue, m.shape.size(), m.shape.ask()} }

// members reads the gangs of a cycle, in the order of its image.
func (c *Cycle) members() []*member {
	im := &c.Case.Image
	byKey := map[cluster.Key]*member{}
	counts := map[cluster.Key]map[string]int32{}
	alive := map[cluster.Key]int{}
	var out []*member
	for _, e := range im.Events {
		switch e := e.(type) {
		case cluster.GangState:
			m := &member{state: e, work: c.Works[e.Key], started: cluster.Latest(e.LastStart, im.Memory.Gang(e.Key).Started)}
			m.shape = Shape{Priority: e.Priority, Fixed: !e.Preemptible}
			byKey[e.Key], counts[e.Key] = m, map[string]int32{}
			out = append(out, m)
		case cluster.PodState:
			m := byKey[e.Gang]
			if m == nil || !e.Ours {
				continue
			}
			if m.shape.Pods++; m.shape.Pods == 1 {
				m.shape.Requests, m.shape.Share = e.Requests, e.Spec.Share
			}
			if e.Phase.Alive() {
				alive[e.Gang]++
			}
			if e.Phase.Active() || e.Phase == cluster.Succeeded {
				counts[e.Gang][e.SetName]++
			}
			m.waits = m.waits || e.Phase == cluster.Pending
		}
	}
	for _, m := range out {
		m.whole = alive[m.state.Key] > 0 && sim.Satisfied(m.state.Sets, counts[m.state.Key])
		m.over = m.shape.Pods > 0 && alive[m.state.Key] == 0
		m.shape.Min = min(least(m.state.Sets), max(m.shape.Pods, 1))
	}
	return out
}

// least is how many pods give a tree its minimum, at least one.
func least(sets []cluster.Set) int {
	n := 0
	for i := range sets {
		if sets[i].Leaf {
			n += int(sets[i].Min)
		}
	}
	if len(sets) > 0 {
		n = max(n, int(sets[0].Pods))
	}
	return max(n, 1)
}
