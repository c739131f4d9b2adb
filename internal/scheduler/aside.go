package scheduler

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// asideMost is how many runs in a row may end in a panic before the process does.
const asideMost = 8

// Work is what has to get on; see app.Watchdog.
type Work interface {
	Turn()
	Wait()
	End()
}

type unwatched struct{}

func (unwatched) Turn() {}
func (unwatched) Wait() {}
func (unwatched) End()  {}

// decide runs the engine. A panic in it is a broken invariant, which one tenant's objects may have brought about: the gang that was being
// tried then is set aside until its specification changes, and ok is false: the rest of the cluster is to be looked at again without
// it. A panic that is no gang's doing, or comes back again and again, ends the process.
func (l *Loop) decide(ctx context.Context, log logr.Logger, snap *cluster.Snapshot, emit func(engine.Plan)) (res engine.Result, ok bool) {
	l.trying = cluster.Key{}
	defer func() {
		v := recover()
		if v == nil {
			l.aside = 0
			return
		}
		l.aside++
		gang := l.trying
		if gang == (cluster.Key{}) || l.aside > asideMost {
			panic(v)
		}
		why := fmt.Sprintf("It cannot be decided about: trying it ended in a defect of the scheduler (%v), which its log tells of. It is not tried again before its PodGroup's spec changes.", v)
		if !l.store.SetAside(gang, why) {
			panic(v)
		}
		l.engine.Forget()
		l.metrics.aside.Inc()
		log.Error(fmt.Errorf("panic: %v", v), "a gang is set aside: trying it ended in a defect", "gang", gang.String(), "stack", string(debug.Stack()))
		ok = false
	}()
	return l.engine.Run(ctx, snap, emit), true
}
