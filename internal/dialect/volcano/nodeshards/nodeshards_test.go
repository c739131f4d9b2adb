package nodeshards

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	shard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
)

func of(name, desired, inUse string) *shard.NodeShard {
	return &shard.NodeShard{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: shard.NodeShardSpec{NodesDesired: strings.Fields(desired)}, Status: shard.NodeShardStatus{NodesInUse: strings.Fields(inUse)}}
}

// TestUse: what is desired is used, but for what others have in use; of two that both have it the first by name has it.
func TestUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ desired, inUse, others, want, awaited string }{
		{"c a b a", "", "", "a b c", ""},
		{"a b", "", "other: b c", "a", "b"},
		{"a b", "a b", "other: b", "a", "b"},
		{"a b", "a b", "zebra: b", "a b", ""},
		{"a b", "", "zebra: b", "a", "b"},
		{"", "a", "other: b", "", ""},
	} {
		b := New()
		b.Seen(of("volcano", c.desired, c.inUse), false)
		if name, nodes, is := strings.Cut(c.others, ": "); is {
			b.Seen(of(name, "", nodes), false)
		}
		use, awaited := b.Use("volcano")
		if strings.Join(use, " ") != c.want || strings.Join(awaited, " ") != c.awaited {
			t.Errorf("%+v: use %v, wait for %v", c, use, awaited)
		}
	}
	if use, awaited := New().Use("volcano"); use != nil || awaited != nil {
		t.Error("without a NodeShard there is something")
	}
}

// TestSeen: what makes no difference to anybody is no news.
func TestSeen(t *testing.T) {
	t.Parallel()
	b := New()
	for i, c := range []struct {
		s    *shard.NodeShard
		gone bool
		news bool
	}{
		{of("a", "x", ""), false, true}, {of("a", "x", ""), false, false}, {of("a", "x y", ""), false, true}, {of("a", "x y", "x"), false, true}, {of("a", "", ""), true, true}, {of("a", "", ""), true, false},
	} {
		if got := b.Seen(c.s, c.gone); got != c.news {
			t.Errorf("%d: news: %v", i, got)
		}
	}
}

// TestStatus: a node that is desired no more is in use, and to be removed, for as long as Settle; what there is not is not told of; at rest nothing is to be written.
func TestStatus(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	b := New()
	there := func(n string) bool { return n != "gone" }
	say := func(st *shard.NodeShardStatus) string {
		return fmt.Sprintf("use %v remove %v add %v", st.NodesInUse, st.NodesToRemove, st.NodesToAdd)
	}
	step := func(what, want string, due time.Duration) {
		t.Helper()
		st, again := b.Status("volcano", there, now)
		got := "nothing"
		if st != nil {
			got = say(st)
			s := b.Shards["volcano"].DeepCopy()
			s.Status = *st
			b.Seen(s, false)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
		if due == 0 != again.IsZero() || due != 0 && !again.Equal(now.Add(due)) {
			t.Errorf("%s: again in %v, want %v", what, again.Sub(now), due)
		}
	}
	step("no NodeShard", "nothing", 0)
	b.Seen(of("volcano", "b a gone", ""), false)
	step("new", "use [a b] remove [] add []", 0)
	step("at rest", "nothing", 0)
	desire := func(nodes string) {
		s := b.Shards["volcano"].DeepCopy()
		s.Spec.NodesDesired = strings.Fields(nodes)
		b.Seen(s, false)
	}
	desire("a c")
	step("b goes", "use [a b c] remove [b] add []", Settle)
	now = now.Add(2 * time.Second)
	step("soon after", "nothing", Settle-2*time.Second)
	b.Seen(of("other", "", "c"), false)
	step("another takes c", "use [a b] remove [b] add [c]", Settle-2*time.Second)
	now = now.Add(3 * time.Second)
	step("later", "use [a] remove [] add [c]", 0)
}

// TestConverges: whatever the NodeShards say, statuses come to rest, and then say what is used, and nothing that is to be removed.
func TestConverges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "gone"}), 0, 6)
		now := time.Unix(rapid.Int64Range(0, 100).Draw(t, "now"), 0)
		b := New()
		for _, name := range []string{"m", rapid.SampledFrom([]string{"a", "z"}).Draw(t, "other")} {
			s := of(name, "", "")
			s.Spec.NodesDesired, s.Status.NodesInUse, s.Status.NodesToRemove, s.Status.NodesToAdd = nodes.Draw(t, "desired"), nodes.Draw(t, "use"), nodes.Draw(t, "remove"), nodes.Draw(t, "add")
			s.Status.LastUpdateTime = metav1.NewTime(time.Unix(rapid.Int64Range(0, 200).Draw(t, "told"), 0))
			b.Seen(s, false)
		}
		there := func(n string) bool { return n != "gone" }
		for range 20 {
			st, again := b.Status("m", there, now)
			if st == nil && again.IsZero() {
				use, awaited := b.Use("m")
				use = slices.DeleteFunc(use, func(n string) bool { return !there(n) })
				awaited = slices.DeleteFunc(awaited, func(n string) bool { return !there(n) })
				is := b.Shards["m"].Status
				if !slices.Equal(is.NodesInUse, use) || len(is.NodesToRemove) > 0 || !slices.Equal(is.NodesToAdd, awaited) {
					t.Fatalf("at rest it says %+v, uses %v", is, use)
				}
				return
			}
			if st != nil {
				s := b.Shards["m"].DeepCopy()
				s.Status = *st
				b.Seen(s, false)
			}
			if !again.IsZero() {
				now = again
			}
		}
		t.Fatal("it does not come to rest")
	})
}

// TestCheck: what is no part in sharding.
func TestCheck(t *testing.T) {
	t.Parallel()
	for s, want := range map[Sharding]bool{{}: true, {Mode: None}: true, {Mode: Hard, Name: "x"}: true, {Mode: Soft}: false, {Mode: "Hard", Name: "x"}: false} { // order: each on its own
		if err := s.Check(); (err == nil) != want {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
