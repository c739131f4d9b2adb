package minruntime

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args policy.Arguments
		want string // of the plugin, or of the error
	}{
		{policy.Arguments{}, "{0 0 false}"},
		{policy.Arguments{argReclaim: "90s", argPreempt: "2m", argMethod: "lca"}, "{90000000000 120000000000 false}"},
		{policy.Arguments{argMethod: "queue"}, "{0 0 true}"},
		{policy.Arguments{argReclaim: "ten"}, `argument "defaultReclaimMinRuntime" is "ten"; it must be a duration`},
		{policy.Arguments{argPreempt: "-1s"}, `argument "defaultPreemptMinRuntime" is "-1s"; it must be a duration that is not negative`},
		{policy.Arguments{argMethod: "LCA"}, `argument "reclaimResolveMethod" is "LCA"; it must be lca or queue`},
	} {
		open, unknown, err := Factory.New(test.args)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint(*open(nil).(*instance).plugin)
		}
		if !strings.Contains(got, test.want) || len(unknown) != 0 {
			t.Errorf("%v: %s, unknown %v; want %s", test.args, got, unknown, test.want)
		}
	}
	if _, unknown, err := Factory.New(policy.Arguments{"minRuntime": "1s"}); err != nil || len(unknown) != 1 {
		t.Errorf("unknown argument: %v, %v", unknown, err)
	}
}

// TestWhoDecides reads a tree with a value for some queues: whose value protects the victim from the beneficiary?
func TestWhoDecides(t *testing.T) {
	t.Parallel()
	const standard = 999
	for _, test := range []struct {
		tree          string // queue or queue=value, by path
		taker, victim string
		lca, queue    time.Duration
	}{
		{"a/1 a/2", "a/1", "a/2", standard, standard},
		{"a/1 a/2=5", "a/1", "a/2", 5, 5},
		{"a/1=7 a/2", "a/1", "a/2", standard, standard},
		{"a=3 a/1 a/2", "a/1", "a/2", 3, 3},
		{"a=3 a/1 a/2=0", "a/1", "a/2", 0, 0},
		// The fork is above the leaf: the leaf's own value binds its siblings, not strangers.
		{"a=3 a/x a/x/1=5 a/y a/y/1", "a/y/1", "a/x/1", 3, 5},
		{"a=3 a/x=4 a/x/1=5 a/y a/y/1", "a/y/1", "a/x/1", 4, 5},
		{"a a/x a/x/1=5 a/y a/y/1", "a/y/1", "a/x/1", standard, 5},
		// Different tops: the victim's top alone.
		{"a a/1=5 b b/1", "b/1", "a/1", standard, 5},
		{"a=3 a/1=5 b b/1", "b/1", "a/1", 3, 5},
		{"a=3 a/1 b=9 b/1=9", "b/1", "a/1", 3, 3},
		{"a=3 b", "b", "a", 3, 3},
		// Unequal depth, either way.
		{"r=2 r/a=3 r/a/x=4 r/a/x/1=5 r/b", "r/b", "r/a/x/1", 3, 5},
		{"r=2 r/a r/a/x r/a/x/1 r/b", "r/a/x/1", "r/b", 2, 2},
		{"r=2 r/a r/a/x r/a/x/1 r/b=6", "r/a/x/1", "r/b", 6, 6},
	} {
		t.Run(test.tree+": "+test.taker+" from "+test.victim, func(t *testing.T) {
			t.Parallel()
			queues := tree(t, test.tree)
			for _, method := range []struct {
				byQueue bool
				want    time.Duration
			}{{false, test.lca}, {true, test.queue}} {
				i := instance{plugin: &plugin{reclaim: standard, byQueue: method.byQueue}}
				if got := i.reclaimFor(queues[test.taker], queues[test.victim]); got != method.want {
					t.Errorf("by queue %v: %d, want %d", method.byQueue, int64(got), int64(method.want))
				}
			}
		})
	}
}

func tree(t *testing.T, text string) map[string]*ledger.QueueLedger {
	t.Helper()
	queues := map[string]*ledger.QueueLedger{}
	for _, word := range strings.Fields(text) {
		path, value, stated := strings.Cut(word, "=")
		q := &ledger.QueueLedger{Queue: &cluster.Queue{QueueState: cluster.QueueState{Name: path}}}
		if stated {
			q.ReclaimMinRuntime.Set = true
			if _, err := fmt.Sscan(value, &q.ReclaimMinRuntime.Value); err != nil {
				t.Fatal(err)
			}
		}
		if at := strings.LastIndex(path, "/"); at >= 0 {
			if q.Parent = queues[path[:at]]; q.Parent == nil {
				// A queue above that states nothing need not be listed.
				q.Parent = &ledger.QueueLedger{Queue: &cluster.Queue{QueueState: cluster.QueueState{Name: path[:at]}}}
				queues[path[:at]] = q.Parent
			}
			q.Depth = q.Parent.Depth + 1
		}
		queues[path] = q
	}
	return queues
}
