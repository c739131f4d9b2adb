package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/kube/aside"
)

const (
	// inspectEvery is how often a part of the store is compared, inspectPart how many objects that is at most. A hundred thousand
	// objects are gone through in less than two hours, at one small list a half minute.
	inspectEvery = 30 * time.Second
	inspectPart  = 500
	// doubts bounds how many objects are looked at once more at a time, doubtsNow how many when everything is compared at once.
	doubts, doubtsNow = 100, 5000
	// settleFor is the least time between two looks at one object before it counts as different: from when its watch has passed the
	// version, to when what it delivered has been taken in.
	settleFor = 2 * time.Second
	// doubtFor is how long a watch has to pass a version. They pass something every minute, of which bookmarks tell.
	doubtFor = 10 * time.Minute
)

// Inspector compares the store with the API server while both change, a small part at a time. An object counts as different when the
// watch of its kind has passed the version at which the API server said so, what it delivered has been taken in, and the store still
// knows the same as before; so what is on its way is none, nor what the scheduler itself has decided and nobody confirmed. What
// differs is healed at once: the store is told again.
type Inspector struct {
	feed   *Feed
	live   client.Reader
	o      InspectorOptions
	trims  cache.Options
	counts *prometheus.CounterVec
	seen   prometheus.Counter

	mu     sync.Mutex // one inspection at a time
	at     int        // of feed.kinds
	token  string     // where the list of that kind goes on; "" for its begin
	last   *types.NamespacedName
	open   []suspicion
	opened time.Time
	told   map[string]bool
}

// InspectorOptions tune an Inspector.
type InspectorOptions struct {
	// Reads are those of the process's cache: what it does not keep is no difference.
	Reads Reads
	// Every is the time between two parts; 0 means half a minute.
	Every time.Duration
	// Clock is the real one if nil.
	Clock clock.WithTicker
	// Registry gets the metrics. Nil: they are kept.
	Registry prometheus.Registerer
	// Guard sets aside what ends in a defect; nil: nobody is told.
	Guard *aside.Guard
}

// Inspection is one comparison of everything.
type Inspection struct {
	// Compared is how many objects of each kind were compared.
	Compared map[string]int `json:"compared"`
	// Differences are healed by the time they are told.
	Differences []Difference `json:"differences"`
	// Undecided is of how many objects it is not known yet, because their watch had not passed the version in time.
	Undecided int `json:"undecided,omitempty"`
}

// NewInspector returns an inspector of a feed; live reads from the API server. It fails on metrics that are registered already.
func NewInspector(f *Feed, live client.Reader, o InspectorOptions) (*Inspector, error) {
	if o.Every == 0 {
		o.Every = inspectEvery
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	in := &Inspector{
		feed: f, live: live, o: o, told: map[string]bool{},
		counts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_store_differences_total", Help: "Objects of which the scheduler's store knew something else than the API server, by kind. They were told again.",
		}, []string{"kind"}),
		seen: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "muster_store_compared_total", Help: "Objects of the scheduler's store that were compared with the API server.",
		}),
	}
	Trim(&in.trims, o.Reads)
	for _, k := range f.kinds {
		in.counts.WithLabelValues(k.String()) // from 0 on, or the first one of all would be no increase
	}
	if o.Registry == nil {
		return in, nil
	}
	if err := errors.Join(o.Registry.Register(in.counts), o.Registry.Register(in.seen)); err != nil {
		return nil, fmt.Errorf("register the metrics of the store: %w", err)
	}
	return in, nil
}

// Run compares a part at a time until ctx ends, and returns nil then.
func (in *Inspector) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	tick := in.o.Clock.NewTicker(in.o.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
		if !in.feed.Synced() {
			continue
		}
		// A loop that hangs is not waited for: its liveness is told elsewhere.
		part, stop := context.WithTimeout(ctx, in.o.Every)
		err := in.step(part)
		stop()
		if err != nil && ctx.Err() == nil {
			log.V(1).Info("a part of the store is compared later", "reason", err.Error())
		}
	}
}

// step looks once more at what was in doubt, and compares the next part.
func (in *Inspector) step(ctx context.Context) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if _, err := in.confirm(ctx); err != nil {
		return err
	}
	err := in.o.Guard.Catch("a comparison", in.feed.kinds[in.at].String(), func() error {
		_, err := in.part(ctx, doubts)
		return err
	})
	if errors.Is(err, aside.ErrDefect) {
		in.next() // the other kinds are compared all the same
	}
	return err
}

// All compares everything now. It costs a list of each kind, and the time that watches take to pass them.
func (in *Inspector) All(ctx context.Context) (*Inspection, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.feed.Synced() {
		return nil, errors.New("the store has not got everything there was at the start yet")
	}
	out := &Inspection{Compared: map[string]int{}, Differences: []Difference{}}
	in.at, in.token, in.last = 0, "", nil
	for done := false; !done; {
		k := in.feed.kinds[in.at]
		got, err := in.part(ctx, doubtsNow)
		if err != nil {
			return nil, err
		}
		out.Undecided += got.dropped
		out.Compared[k.String()] += got.objects
		out.Differences = append(out.Differences, got.differences...)
		done = in.at == 0 && in.token == ""
	}
	for tries := 0; len(in.open) > 0 && tries < 20; tries++ {
		select {
		case <-in.o.Clock.After(settleFor):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		got, err := in.confirm(ctx)
		if err != nil {
			return nil, err
		}
		out.Differences = append(out.Differences, got...)
	}
	out.Undecided += len(in.open)
	return out, nil
}

// part is what came of one part.
type part struct {
	objects     int
	differences []Difference
	dropped     int // suspicions beyond most
}

// part compares the next part of the kind whose turn it is, and goes on to the next kind after its last. Of what is in doubt it keeps
// so much at most.
func (in *Inspector) part(ctx context.Context, most int) (part, error) {
	k := in.feed.kinds[in.at]
	list := k.WatchedList()
	err := in.live.List(ctx, list, client.Limit(inspectPart), client.Continue(in.token))
	switch {
	case apierrors.IsResourceExpired(err):
		// The API server does not remember the moment of the first part any more. It says how to go on with this one.
		var status apierrors.APIStatus
		if in.token = ""; errors.As(err, &status) {
			in.token = status.Status().Continue
		}
		if in.token == "" {
			in.last = nil
		}
		return part{}, nil
	case k.Row().Optional && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err)):
		in.next()
		return part{}, nil
	case err != nil:
		in.next()
		return part{}, fmt.Errorf("list %s: %w", k.String(), err)
	}
	q := &inquiry{kind: k, version: list.GetResourceVersion(), from: in.last, open: in.open}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("list %s: item of type %T", k.String(), item)
		}
		object, err := in.trimmed(object)
		q.objects = append(q.objects, object)
		return err
	})
	if err != nil {
		return part{}, err
	}
	if token := list.GetContinue(); token != "" && len(q.objects) > 0 {
		last := client.ObjectKeyFromObject(q.objects[len(q.objects)-1])
		q.to, in.last, in.token = &last, &last, token
	} else {
		in.next()
	}
	got, err := in.feed.ask(ctx, q)
	if err != nil {
		return part{}, err
	}
	in.seen.Add(float64(len(q.objects)))
	in.tell(ctx, got.differences)
	for i := range got.suspicions {
		got.suspicions[i].since = in.o.Clock.Now()
	}
	room := min(len(got.suspicions), max(0, most-len(in.open)))
	in.open, in.opened = append(in.open, got.suspicions[:room]...), in.o.Clock.Now()
	return part{len(q.objects), got.differences, len(got.suspicions) - room}, nil
}

// next goes on to the next kind.
func (in *Inspector) next() {
	in.at, in.token, in.last = (in.at+1)%len(in.feed.kinds), "", nil
}

// trimmed is an object of a list as the cache keeps it.
func (in *Inspector) trimmed(object client.Object) (client.Object, error) {
	transform := in.trims.DefaultTransform
	for example, by := range in.trims.ByObject { // order: one at most is of the type
		if reflect.TypeOf(example) == reflect.TypeOf(object) {
			transform = by.Transform
		}
	}
	out, err := transform(object)
	if err != nil {
		return nil, err
	}
	return out.(client.Object), nil
}

// confirm looks once more at what was in doubt: what the API server says now, and, where that is still another thing than the store
// knows and the watch has passed it, whether the store has learnt it meanwhile.
func (in *Inspector) confirm(ctx context.Context) ([]Difference, error) {
	if len(in.open) == 0 || in.o.Clock.Since(in.opened) < settleFor {
		return nil, nil
	}
	var open, sure []suspicion
	for _, s := range in.open {
		if !in.passed(ctx, s.kind, s.need) {
			if in.o.Clock.Since(s.since) < doubtFor { // else the next round finds it again
				open = append(open, s)
			}
			continue
		}
		object := s.kind.Watched()
		switch err := in.live.Get(ctx, s.key, object); {
		case apierrors.IsNotFound(err):
			if s.object == nil {
				sure = append(sure, s)
			} // else it has gone since
		case err != nil:
			return nil, fmt.Errorf("read %s %s: %w", s.kind.String(), s.key, err)
		case s.object != nil && s.object.GetResourceVersion() == object.GetResourceVersion():
			sure = append(sure, s)
		case s.had.at == object.GetResourceVersion(): // it was what the store knows all the time
		default: // it changed since: the same again
			if s.object, err = in.trimmed(object); err != nil {
				return nil, err
			}
			s.need = object.GetResourceVersion()
			open = append(open, s)
		}
	}
	in.open, in.opened = open, in.o.Clock.Now()
	if len(sure) == 0 {
		return nil, nil
	}
	// Nothing was told of these since they were suspected, or else they are dropped.
	got, err := in.feed.ask(ctx, &inquiry{confirm: sure, open: open})
	if err != nil {
		return nil, err
	}
	in.tell(ctx, got.differences)
	return got.differences, nil
}

// passed says whether the watch of the kind has passed a version. A source that does not say has.
func (in *Inspector) passed(ctx context.Context, k dialect.Kind, version string) bool {
	p, ok := in.feed.source.(interface {
		Reached(ctx context.Context, example client.Object) string
	})
	if !ok {
		return true
	}
	reached := p.Reached(ctx, k.Watched())
	return reached == version || later(reached, version)
}

// tell counts differences, and logs each object once.
func (in *Inspector) tell(ctx context.Context, found []Difference) {
	log := logr.FromContextOrDiscard(ctx)
	for _, d := range found {
		in.counts.WithLabelValues(d.Kind).Inc()
		name := d.Kind + " " + d.Namespace + "/" + d.Name
		if len(in.told) >= 1000 {
			clear(in.told)
		}
		if !in.told[name] {
			in.told[name] = true
			log.Info("the store differed from the API server, and was told again", "difference", d.String())
		}
	}
}

// ServeHTTP compares everything and answers what came of it, as JSON.
func (in *Inspector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got, err := in.All(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(got) // an asker that hangs up early is its own problem
}
