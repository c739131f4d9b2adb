package kubetest

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// Story is what a role does in one go, from what is there at its start.
type Story struct {
	Options
	// Set makes what there is at the start.
	Set func(s *Server)
	// Run runs the role in a process until the test ends, or what it returns is called (Process.Run does so).
	Run func(t *testing.T, p *Process) (stop func())
	// Beside, if set, plays others, such as kubelets, from the start until ctx ends.
	Beside func(ctx context.Context, s *Server)
	// Settle is how long the role has, in the time of its bubble, to come to rest from its start.
	Settle time.Duration
	// Stride has the role die at each so many writes alone, if there are many; 0 is 1.
	Stride int
	// Check, if set, looks at the end besides.
	Check func(t *testing.T, s *Server)
}

// Crashes plays the story once undisturbed; then once for each write of it, before and after which the role dies and is started anew.
// Each must end with the same State. That there are no writes fails the test.
func (y Story) Crashes(t *testing.T) {
	t.Helper()
	var writes int
	var want map[string]string
	play := func(t *testing.T, n int, after bool) {
		s := New(y.Options)
		y.Set(s)
		if y.Beside != nil {
			go y.Beside(t.Context(), s)
		}
		p := s.Process("first")
		p.CrashAt(n, after)
		stop := y.Run(t, p)
		if n > 0 {
			select {
			case <-p.Dead():
			case <-time.After(y.Settle): // a role with several workers may need a write less
			}
			stop()
			p = s.Process("second")
			y.Run(t, p)
		}
		wait(t.Context(), y.Settle)
		synctest.Wait()
		if y.Check != nil {
			y.Check(t, s)
		}
		if n == 0 {
			writes, want = p.writes, s.State()
		} else if d := cmp.Diff(want, s.State()); d != "" {
			t.Errorf("it ends otherwise than without a crash (-want +got):\n%s", d)
		}
	}
	synctest.Test(t, func(t *testing.T) { play(t, 0, false) })
	if writes == 0 {
		t.Error("nothing is written")
	}
	for n := 1; n <= writes; n += max(1, y.Stride) {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d after=%v", n, after), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { play(t, n, after) })
			})
		}
	}
}

// State is every object, by its kind and name, and where two have the same by their API groups too, without what differs between two runs that come to the same: UIDs, versions and times.
func (s *Server) State() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, called := map[string]string{}, map[string]int{}
	for _, t := range s.tables { // order: a sum
		for name := range t.objects { // order: the same
			called[t.kind.Kind+" "+name.String()]++
		}
	}
	for _, t := range s.tables { // order: the result is a map
		for name, o := range t.objects { // order: the same
			text, err := json.Marshal(lasting(o.DeepCopy().Object))
			if err != nil {
				panic(fmt.Sprintf("kubetest: %s %s: %v", t.kind.Kind, name, err))
			}
			key := t.kind.Kind + " " + name.String()
			if called[key] > 1 {
				key = t.kind.groupKind().String() + " " + name.String()
			}
			out[key] = string(text)
		}
	}
	return out
}

// lasting takes from a value, which it changes, what differs between two runs.
func lasting(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, field := range []string{
			"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "lastTransitionTime", "lastProbeTime", "lastHeartbeatTime",
			"runningDuration", keys.DecidedAnnotation,
		} {
			delete(v, field)
		}
		for _, of := range v { // order: each on its own
			lasting(of)
		}
	case []any:
		for _, of := range v {
			lasting(of)
		}
	}
	return v
}
