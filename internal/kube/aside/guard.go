package aside

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ErrDefect is the failure of work that panicked.
var ErrDefect = errors.New("a defect")

// Watch is told that a piece of work begins, called what in words for the operator, and by what it returns that it has ended. The
// work is done with the context it returns, by which requests to the API server say that they wait for others.
type Watch func(ctx context.Context, what string) (during context.Context, done func())

// Guard is what a role's work goes through. A nil one catches panics and tells nobody. It is safe for concurrent use.
type Guard struct {
	// Tell hears of each object, work about which ended in a defect: of its kind and name, and of its UID unless whoever did the work
	// knew the name alone. It is called by whoever does the work, and set before that; nil tells nobody.
	Tell func(about client.Object)

	role    string
	log     logr.Logger
	watch   Watch
	defects *prometheus.CounterVec
}

// New returns the guard of a role. It registers the counter muster_defects_total{role,work} unless another role of the process has done
// so, and fails when the registry holds something else of that name. A nil registry counts for nobody, and a nil watch notices
// nothing.
func New(role string, log logr.Logger, registry prometheus.Registerer, watch Watch) (*Guard, error) {
	defects := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_defects_total",
		Help: "Pieces of work about one object that ended in a defect (a panic) and were set aside, by role and kind of work; the log has the stacks.",
	}, []string{"role", "work"})
	if registry != nil {
		if err := registry.Register(defects); err != nil {
			already, ok := err.(prometheus.AlreadyRegisteredError)
			if !ok {
				return nil, fmt.Errorf("register muster_defects_total: %w", err)
			}
			if defects, ok = already.ExistingCollector.(*prometheus.CounterVec); !ok {
				return nil, fmt.Errorf("register muster_defects_total: the name is taken by a %T", already.ExistingCollector)
			}
		}
	}
	return &Guard{role: role, log: log, watch: watch, defects: defects}, nil
}

// Do carries out a piece of work about an object, and returns its error; of ErrDefect if it panics. what is a kind of work, of which
// there are few: it becomes a metric's label. The object is a client.Object, of which no more than kind, name and UID is looked at, or,
// of work about something else, whatever tells the log what that is.
func (g *Guard) Do(ctx context.Context, what string, object any, work func(context.Context) error) (err error) {
	if g != nil && g.watch != nil {
		var done func()
		ctx, done = g.watch(ctx, what+" of the role "+g.role)
		defer done()
	}
	return g.Catch(what, object, func() error { return work(ctx) })
}

// Catch is Do for work that may take as long as it likes, such as what waits for somebody by its nature.
func (g *Guard) Catch(what string, object any, work func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %s ended in a panic: %v", ErrDefect, what, v)
			g.tell(what, object, v, debug.Stack())
		}
	}()
	return work()
}

func (g *Guard) tell(what string, object, v any, stack []byte) {
	if g == nil {
		return
	}
	about, _ := object.(named)
	if o, ok := object.(client.Object); ok {
		about = named{o}
	}
	if about.object != nil {
		object = about
		defer g.About(about.known())
	}
	g.defects.WithLabelValues(g.role, what).Inc()
	g.log.Error(fmt.Errorf("panic: %v", v), "set aside: work about an object ended in a defect; the rest goes on", "work", what, "object", fmt.Sprint(object), "stack", string(stack))
}

// About has it told that work which was also about this object ended in a defect. One without a name is nobody's.
func (g *Guard) About(o client.Object) {
	if g == nil || g.Tell == nil || o == nil || o.GetName() == "" {
		return
	}
	defer func() { // to tell of one defect must not be another
		if v := recover(); v != nil {
			g.log.Error(fmt.Errorf("panic: %v", v), "nobody is told of a defect", "object", fmt.Sprintf("%T", o), "stack", string(debug.Stack()))
		}
	}()
	g.Tell(o)
}

// Reconciler makes a reconciler of a function, each call of which is a piece of work about an object, of which about makes one with its
// name; nil if it is about no single one. What panics is tried again with the queue's back-off.
func Reconciler[T comparable](g *Guard, f func(context.Context, T) (reconcile.Result, error), about func(T) client.Object) reconcile.TypedReconciler[T] {
	return reconcile.TypedFunc[T](func(ctx context.Context, of T) (out reconcile.Result, err error) {
		var object any = of
		if about != nil {
			object = about(of)
		}
		err = g.Do(ctx, "a worker", object, func(ctx context.Context) (err error) {
			out, err = f(ctx, of)
			return err
		})
		return out, err
	})
}
