package tenants

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/entry"
)

// Tenant is somebody with rights in one namespace.
type Tenant struct {
	Name, Namespace string
	// Queues are those that it may use.
	Queues []string
	// Client acts with its rights.
	Client client.Client
}

// Options say what a Fuzzer works with.
type Options struct {
	// Seed makes the sequence of intended writes, together with what the cluster answers.
	Seed    uint64
	Tenants []*Tenant
	// Read sees the whole cluster; it may lag behind.
	Read client.Reader
	// Queues are all that pods could be in, Honest the namespaces of tenants that are no part of this.
	Queues, Honest []string
	// Rate is how many writes are made in a second, by all tenants together.
	Rate float64
	// Harmless makes as many writes that nobody reads, for comparison.
	Harmless bool
	// Auditor is told of what the fuzzer knows and nobody can see: which writes were forged.
	Auditor *Auditor
	// Log gets a line for each write; nil for none.
	Log io.Writer
}

// Fuzzer makes the tenants' writes.
type Fuzzer struct {
	o     Options
	pace  *rate.Limiter
	mu    sync.Mutex
	began time.Time
	log   []record
	sums  map[string]*Sum
}

// Sum counts the writes of a kind.
type Sum struct {
	Tried, Effective int
	// Refused were forbidden or invalid; Void met nothing to change any more; Failed were not answered.
	Refused, Void, Failed int
}

// record is one write.
type record struct {
	at            time.Duration
	tenant        string
	turn          int
	kind, object  string
	detail, ended string
}

func (r *record) String() string {
	return fmt.Sprintf("%8.3fs %s#%d %s %s %s: %s", r.at.Seconds(), r.tenant, r.turn, r.kind, r.object, r.detail, r.ended)
}

// New makes a Fuzzer; Run runs it.
func New(o Options) *Fuzzer {
	return &Fuzzer{o: o, pace: rate.NewLimiter(rate.Limit(o.Rate), 1), sums: map[string]*Sum{}}
}

// Run makes writes until ctx ends. Each tenant goes through its own sequence.
func (f *Fuzzer) Run(ctx context.Context) {
	f.mu.Lock()
	if f.began.IsZero() {
		f.began = time.Now()
	}
	f.mu.Unlock()
	var all sync.WaitGroup
	for i, t := range f.o.Tenants {
		all.Go(func() {
			var mood mood
			for n := 0; ctx.Err() == nil; n++ {
				u := &turn{Fuzzer: f, ctx: ctx, Tenant: t, n: n, Rand: rand.New(rand.NewPCG(f.o.Seed, uint64(i)<<40|uint64(n)))}
				if n%moodTurns == 0 {
					mood = u.mood()
				}
				u.now = mood
				u.play()
			}
		})
	}
	all.Wait()
}

// turn is one move of one tenant.
type turn struct {
	*Fuzzer
	*Tenant
	*rand.Rand
	ctx context.Context
	n   int
	now mood
}

// write makes one write. A kind that begins with "beyond" is one that the tenant has no right to: that it succeeds is a
// violation.
func (u *turn) write(kind, object, detail string, call func(context.Context) error) error {
	if err := u.pace.Wait(u.ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(u.ctx, 15*time.Second)
	defer cancel()
	at := time.Since(u.began)
	err := call(ctx)
	if u.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return err
	}
	u.mu.Lock()
	s := entry.Of(u.sums, kind)
	s.Tried++
	ended := "done"
	switch {
	case err == nil:
		s.Effective++
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsMethodNotSupported(err), isRefusal(err):
		s.Refused++
		ended = "refused: " + brief(err.Error(), 160)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		s.Void++
		ended = string(apierrors.ReasonForError(err))
	default:
		s.Failed++
		ended = "failed: " + brief(err.Error(), 160)
	}
	r := record{at: at, tenant: u.Name, turn: u.n, kind: kind, object: object, detail: brief(detail, 240), ended: ended}
	u.log = append(u.log, r)
	if u.o.Log != nil {
		fmt.Fprintln(u.o.Log, r.String())
	}
	u.mu.Unlock()
	if err == nil && strings.HasPrefix(kind, "beyond") {
		u.o.Auditor.blame("S8", object, time.Now(), "a write beyond the rights of %s took effect: %s %s", u.Name, kind, detail)
	}
	return err
}

// isRefusal recognises refusals by webhooks that give no reason of the API's.
func isRefusal(err error) bool {
	return strings.Contains(err.Error(), "denied the request") || strings.Contains(err.Error(), "admission webhook")
}

// Writes is how many writes were tried.
func (f *Fuzzer) Writes() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.log)
}

// Until is how many writes were tried before a moment, and how long the fuzzer had run then.
func (f *Fuzzer) Until(at time.Time) (writes int, after time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	after = at.Sub(f.began)
	for i := range f.log {
		if f.log[i].at < after {
			writes++
		}
	}
	return writes, after
}

// Table is the writes by kind.
func (f *Fuzzer) Table() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	var total Sum
	line := func(name string, s *Sum) {
		fmt.Fprintf(&b, "%-34s %7d %9d %9d %7d %7d\n", name, s.Tried, s.Effective, s.Refused, s.Void, s.Failed)
	}
	fmt.Fprintf(&b, "%-34s %7s %9s %9s %7s %7s\n", "kind of write", "tried", "effective", "refused", "void", "failed")
	for _, name := range slices.Sorted(maps.Keys(f.sums)) {
		s := f.sums[name]
		line(name, s)
		total.Tried += s.Tried
		total.Effective += s.Effective
		total.Refused += s.Refused
		total.Void += s.Void
		total.Failed += s.Failed
	}
	line("all", &total)
	return b.String()
}

// Last are the last n effective writes whose object or detail contains one of the words; those that were refused are left out.
func (f *Fuzzer) Last(n int, words ...string) (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.log) - 1; i >= 0 && len(out) < n; i-- {
		r := &f.log[i]
		if r.ended != "done" {
			continue
		}
		for _, w := range words {
			if w != "" && (strings.Contains(r.object, w) || strings.Contains(r.detail, w)) {
				out = append(out, r.String())
				break
			}
		}
	}
	slices.Reverse(out)
	return out
}

// patch makes a merge patch.
func (u *turn) patch(kind string, o client.Object, detail string, body []byte) error {
	return u.write(kind, path(o), detail, func(ctx context.Context) error {
		return u.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, body))
	})
}

// path names an object.
func path(o client.Object) string {
	name := o.GetName()
	if name == "" {
		name = o.GetGenerateName()
	}
	return o.GetNamespace() + "/" + name
}

// brief cuts a text, and puts it on one line.
func brief(s string, most int) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
