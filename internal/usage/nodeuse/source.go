package nodeuse

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Config says which server is asked, and how often. The zero value is none.
type Config struct {
	// Address is the server's URL, http or https. It may carry a user and a password, and is not logged.
	Address string
	// Interval is the time between two looks, [Least] or more.
	Interval time.Duration
}

// Least is the shortest time between two looks, and backOff the longest after failures.
const (
	Least   = 5 * time.Second
	backOff = 5 * time.Minute
)

// renewed is after how long the same is told again with its new time, so that it goes on counting.
const renewed = 2 * time.Minute

// Source asks the server that it is told of, again and again. Run is one goroutine, Drain is the scheduler loop's; Follow may be called by anybody.
type Source struct {
	guard   func(work func() error) error
	changed chan struct{}
	follow  chan struct{}

	mu     sync.Mutex
	config Config
	found  map[string]cluster.NodeUse // the last answer; whoever reads it does not change it
	fresh  bool                       // which Drain has not taken in yet

	told map[string]cluster.NodeUse // Drain's: what the Store was told
}

// New returns a source that asks nobody yet. guard does one look, and makes an error of a defect in it; nil: nobody guards.
func New(guard func(work func() error) error) *Source {
	if guard == nil {
		guard = func(work func() error) error { return work() }
	}
	return &Source{guard: guard, changed: make(chan struct{}, 1), follow: make(chan struct{}, 1), told: map[string]cluster.NodeUse{}}
}

// Follow says whom to ask from now on. What another server said is forgotten.
func (s *Source) Follow(c Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c == s.config {
		return
	}
	s.config, s.found, s.fresh = c, nil, true
	wake(s.follow)
	wake(s.changed)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run asks until ctx ends.
func (s *Source) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	for ctx.Err() == nil {
		s.mu.Lock()
		c := s.config
		s.mu.Unlock()
		var asked *server
		if c.Address != "" {
			var err error
			if asked, err = newServer(c.Address); err != nil { // whoever reads the file refuses such an address
				log.Error(err, "nodes' use is not measured")
			}
		}
		if asked == nil {
			select {
			case <-s.follow:
			case <-ctx.Done():
			}
			continue
		}
		log.Info("nodes' use comes from a Prometheus server", "every", c.Interval.String())
		s.ask(ctx, log, c, asked)
		asked.close()
	}
	return nil
}

// ask asks one server until another is to be asked.
func (s *Source) ask(ctx context.Context, log logr.Logger, c Config, asked *server) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	interval, down := max(c.Interval, Least), false
	wait := interval
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.follow:
			return
		case <-timer.C:
		}
		var found map[string]cluster.NodeUse
		err := s.guard(func() (err error) {
			found, err = asked.look(ctx, time.Now())
			return err
		})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if !down {
				log.Error(err, "the use of nodes could not be asked for; the plugin usage has no opinion on nodes that were last measured more than five minutes ago")
			}
			down = true
			timer.Reset(wait)
			wait = longer(wait, interval)
			continue
		}
		if down {
			log.Info("the use of nodes is known again", "nodes", len(found))
		}
		down, wait = false, interval
		s.mu.Lock()
		if s.config == c {
			s.found, s.fresh = found, true
			wake(s.changed)
		}
		s.mu.Unlock()
		timer.Reset(wait)
	}
}

// longer is how long after a failure it is asked again that follows on one after which that took wait.
func longer(wait, interval time.Duration) time.Duration { return min(2*wait, max(backOff, interval)) }

// Changed is readable when there may be something to drain.
func (s *Source) Changed() <-chan struct{} { return s.changed }

// Drain tells the scheduler's state what is new, and returns how many events that took. What was told of a node and is in no answer any more is taken back.
func (s *Source) Drain(store *cluster.Store) int {
	s.mu.Lock()
	found, fresh := s.found, s.fresh
	s.fresh = false
	s.mu.Unlock()
	if !fresh {
		return 0
	}
	var events []cluster.Event
	for name, u := range found { // order: each node on its own
		was, before := s.told[name]
		if !store.HasNode(name) || before && was.CPU == u.CPU && was.Memory == u.Memory && u.At.Sub(was.At) < renewed {
			continue
		}
		s.told[name] = u
		events = append(events, cluster.ObjectState{Kind: cluster.NodeUses, Key: name, Object: &u})
	}
	for name := range s.told { // order: likewise
		if _, still := found[name]; !still || !store.HasNode(name) {
			delete(s.told, name)
			events = append(events, cluster.ObjectGone{Kind: cluster.NodeUses, Key: name})
		}
	}
	store.Apply(events...)
	return len(events)
}
