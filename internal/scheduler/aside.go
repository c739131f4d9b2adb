package scheduler

import (
	"fmt"
	"runtime/debug"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/cluster"
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

// caught deals with what a cycle panicked with; nil for nothing. The gang that was being tried then is set aside until its specification
// changes, and false says that the cycle was given up. A panic that is no gang's doing, or comes back again and again, ends the process.
func (l *Loop) caught(log logr.Logger, v any) bool {
	if v == nil {
		l.aside = 0
		return true
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
	l.driver.Abandon()
	l.metrics.aside.Inc()
	log.Error(fmt.Errorf("panic: %v", v), "a gang is set aside: trying it ended in a defect", "gang", gang.String(), "stack", string(debug.Stack()))
	return false
}
