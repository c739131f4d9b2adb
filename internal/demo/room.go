package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/scheduler"
)

// succeeds is chapter 3.
func (s *story) succeeds(ctx context.Context) error {
	n, rest := s.eighth(), s.Rest()
	if err := s.apply(ctx, "finetune"); err != nil {
		return err
	}
	if _, err := s.await(ctx, "finetune", "fills the cluster", func(g gang) bool { return g.whole(rest) }); err != nil {
		return err
	}
	s.say("Job finetune of team language borrows all that is idle: %d GPUs, %d of them over quota.", rest*s.PerNode, rest*s.PerNode-s.GPUs(1))
	if err := s.apply(ctx, "bert"); err != nil {
		return err
	}
	reason, err := s.awaitReason(ctx, "bert", n)
	if err != nil {
		return err
	}
	s.say("PyTorchJob bert of team search, as large as resnet, waits. Its team has what is its own, and takes nothing from others:")
	s.quote(reason)
	resnet, err := s.c.gang(ctx, "resnet")
	if err != nil {
		return err
	}
	if !resnet.whole(n) {
		return fmt.Errorf("resnet no longer runs as a whole: %s", resnet)
	}
	if err := s.c.remove(ctx, "kubeflow.org/v1", "PyTorchJob", "resnet"); err != nil {
		return err
	}
	deleted := time.Now()
	bert, err := s.await(ctx, "bert", fmt.Sprintf("%d pods run", n), func(g gang) bool { return g.whole(n) })
	if err != nil {
		return err
	}
	where := count(n, "node")
	if slices.Equal(bert.nodes, resnet.nodes) {
		where = "the same " + where
	}
	s.say("resnet is deleted, and %.1f s later bert runs whole on %s.", time.Since(deleted).Seconds(), where)
	// resnet's PodGroup goes together with its pods, and for as long as some of them outlive it the team seems to hold
	// nothing: bert may then take back what is lent, rather than wait for them. What it did not need, finetune fills again.
	_, err = s.await(ctx, "finetune", "fills the rest", func(g gang) bool { return g.whole(rest) })
	return err
}

// takesBack is chapter 4: reclaim.
func (s *story) takesBack(ctx context.Context) error {
	n, rest := s.Share(), s.Rest()
	bert, err := s.c.gang(ctx, "bert")
	if err != nil {
		return err
	}
	if err := s.apply(ctx, "pretrain"); err != nil {
		return err
	}
	began := time.Now()
	pretrain, err := s.await(ctx, "pretrain", fmt.Sprintf("%d pods run", n), func(g gang) bool { return g.whole(n) })
	if err != nil {
		return err
	}
	s.say("Job pretrain of team vision, a gang of %d whole nodes, comes to a full cluster and runs %.1f s later.", n, time.Since(began).Seconds())
	if err := s.decision(ctx, pretrain, "reclaim", n*s.PerNode, "finetune"); err != nil {
		return err
	}
	if err := s.untouched(ctx, bert); err != nil {
		return err
	}
	s.say("It took from finetune what that had borrowed, %d pods and no more; bert was not touched.", n)
	// The queue controller's statuses follow within a second.
	held := map[string]int64{}
	s.doing("the teams divide the cluster")
	want := map[string]int64{"vision": int64(n * s.PerNode), "language": int64((rest - n) * s.PerNode)}
	err = s.c.await(ctx, s.o.Patience, func() (bool, string, error) {
		agree := true
		for team := range want { // order: all must agree
			var err error
			if held[team], err = s.c.allocated(ctx, team); err != nil {
				return false, "", err
			}
			agree = agree && held[team] == want[team]
		}
		return agree, fmt.Sprintf("queues say %v", held), nil
	})
	if err != nil {
		return fmt.Errorf("the two teams hold %v: %w", want, err)
	}
	fair, err := s.fairShares(ctx)
	if err != nil {
		return err
	}
	s.say("Beyond quotas of %d and %d, the two teams now divide the room 3:1 by weight:", s.GPUs(1), s.GPUs(1))
	for _, team := range []string{"vision", "language"} {
		// A share need not be a whole number of these pods; being one pod off is as close as one can get.
		if off := float64(held[team]) - fair[team]; off >= float64(s.PerNode) || off <= -float64(s.PerNode) {
			return fmt.Errorf("%s uses %d GPUs, and its fair share is %g", team, held[team], fair[team])
		}
		s.row("%-9s fair share %5g GPUs, uses %4d", team, fair[team], held[team])
	}
	if _, err := s.await(ctx, "finetune", "goes on", func(g gang) bool { return g.running == rest-n }); err != nil {
		return err
	}
	s.say("finetune goes on with %s.", count(rest-n, "pod"))
	return nil
}

// preempts is chapter 5.
func (s *story) preempts(ctx context.Context) error {
	n := s.eighth()
	before, err := s.gangs(ctx, "finetune", "pretrain")
	if err != nil {
		return err
	}
	if err := s.apply(ctx, "urgent"); err != nil {
		return err
	}
	began := time.Now()
	urgent, err := s.await(ctx, "urgent", fmt.Sprintf("%d pods run", n), func(g gang) bool { return g.whole(n) })
	if err != nil {
		return err
	}
	s.say("PyTorchJob urgent of team search has priority 75, bert 50. It starts %.1f s after it came, whole.", time.Since(began).Seconds())
	if err := s.decision(ctx, urgent, "preempt", n*s.PerNode, "bert"); err != nil {
		return err
	}
	if _, err := s.awaitReason(ctx, "bert", n); err != nil {
		return err
	}
	if err := s.untouched(ctx, before...); err != nil {
		return err
	}
	why, err := s.muster(ctx, "explain", "gang", "bert")
	if err != nil {
		return err
	}
	s.say("bert went as a whole, and waits as a whole; no other team gave anything.")
	s.row("$ muster explain gang bert")
	s.quote(unbroken(why))
	if err := s.c.remove(ctx, "kubeflow.org/v1", "PyTorchJob", "bert"); err != nil {
		return err
	}
	if _, err := s.await(ctx, "bert", "its pods go", func(g gang) bool { return g.pods == 0 }); err != nil {
		return err
	}
	s.say("bert is withdrawn.")
	return nil
}

// consolidates is chapter 6: the example of the announcement of KAI Scheduler, on three nodes that finetune gives back.
func (s *story) consolidates(ctx context.Context) error {
	left := s.Rest() - s.Share() - 3
	if err := s.c.setParallelism(ctx, "finetune", left); err != nil {
		return err
	}
	if _, err := s.await(ctx, "finetune", "gives three nodes back", func(g gang) bool { return g.whole(left) }); err != nil {
		return err
	}
	for _, name := range []string{"training-1", "training-2", "training-3", "interactive"} {
		if err := s.apply(ctx, name); err != nil {
			return err
		}
		if _, err := s.await(ctx, name, "runs", func(g gang) bool { return g.whole(1) }); err != nil {
			return err
		}
	}
	one, err := s.gangs(ctx, "training-1", "training-2", "training-3", "interactive")
	if err != nil {
		return err
	}
	first, second, third := one[0].nodes[0], one[2].nodes[0], one[3].nodes[0]
	if one[1].nodes[0] != first || first == second || second == third || third == first {
		return fmt.Errorf("training-1 and -2 are on %s and %s, training-3 on %s, interactive on %s", first, one[1].nodes[0], second, third)
	}
	s.say("finetune gives three nodes back. training-1 and training-2 run on the first, training-3 on the second, and interactive on the third: %d, %d and %d of %d GPUs.",
		s.Eighths(6), s.Eighths(6), s.Eighths(5), s.PerNode)
	if err := s.apply(ctx, "training-b"); err != nil {
		return err
	}
	b, err := s.await(ctx, "training-b", "runs", func(g gang) bool { return g.whole(1) })
	if err != nil {
		return err
	}
	if b.nodes[0] != third {
		return fmt.Errorf("training-b runs on %s, and %d GPUs were free on %s", b.nodes[0], s.Eighths(3), third)
	}
	s.say("training-b fills the third. Two nodes have %s left each.", count(s.Eighths(2), "GPU"))
	others, err := s.gangs(ctx, "training-1", "training-3", "interactive", "training-b", "finetune", "pretrain", "urgent")
	if err != nil {
		return err
	}
	if err := s.apply(ctx, "training-a"); err != nil {
		return err
	}
	a, err := s.await(ctx, "training-a", "runs", func(g gang) bool { return g.whole(1) })
	if err != nil {
		return err
	}
	moved, err := s.await(ctx, "training-2", "runs again", func(g gang) bool { return g.whole(1) })
	if err != nil {
		return err
	}
	if a.nodes[0] != first || moved.nodes[0] != second {
		return fmt.Errorf("training-a runs on %s, training-2 on %s; they should be on %s and %s", a.nodes[0], moved.nodes[0], first, second)
	}
	s.say("training-a asks for %d GPUs on one node. training-2 moves to the second node, and training-a runs on the first.", s.Eighths(4))
	if err := s.decision(ctx, a, "consolidation", 0, "training-2"); err != nil {
		return err
	}
	if err := s.untouched(ctx, others...); err != nil {
		return err
	}
	s.say("Nobody lost room, and nobody else was touched.")
	return nil
}

// gangs looks at several.
func (s *story) gangs(ctx context.Context, names ...string) ([]gang, error) {
	out := make([]gang, 0, len(names))
	for _, name := range names {
		g, err := s.c.gang(ctx, name)
		if err != nil {
			return nil, err
		}
		if len(g.nodes) == 0 {
			return nil, fmt.Errorf("%s, and none should lack a node", g)
		}
		out = append(out, g)
	}
	return out, nil
}

// untouched checks that those pods of gangs that ran still do.
func (s *story) untouched(ctx context.Context, before ...gang) error {
	for _, b := range before {
		now, err := s.c.gang(ctx, b.name)
		if err != nil {
			return err
		}
		if !slices.Equal(now.ran, b.ran) {
			return fmt.Errorf("other pods of %s run than before: %v, and it was %v", b.name, now.ran, b.ran)
		}
	}
	return nil
}

// decision waits for the record of what was decided for a gang, checks by which right and from whom it took how many GPUs,
// and prints it as the command line does. (What was decided while pods still appeared may be two decisions.)
func (s *story) decision(ctx context.Context, g gang, right string, evicted int, victim string) error {
	s.doing("the record of " + g.name)
	var records []scheduler.Record
	err := s.c.await(ctx, s.o.Patience, func() (bool, string, error) {
		var err error
		if records, err = s.c.decisions(ctx, g.group); err != nil {
			return false, "", err
		}
		sum := 0
		for i := range records {
			c := records[i].Eviction
			if string(c.Cause) != right || len(c.Victims) != 1 || !strings.HasPrefix(c.Victims[0].Gang.Name, "pg-"+victim+"-") {
				return false, "", fmt.Errorf("%s took room for %s from %v; it should be %s, from %s alone", c.Cause, g.name, c.Victims, right, victim)
			}
			sum += int(c.Evicted / 1000)
		}
		return len(records) > 0 && sum == evicted, fmt.Sprintf("records of %d GPUs evicted: %s", sum, brief(records)), nil
	})
	if err != nil {
		return fmt.Errorf("the record of %d GPUs taken for %s: %w", evicted, g.name, err)
	}
	text, err := s.muster(ctx, "decisions", "--detail", fmt.Sprintf("--last=%d", len(records)), "--gang="+g.group)
	if err != nil {
		return err
	}
	s.row("$ muster decisions --detail --last=%d", len(records))
	s.quote(strings.ReplaceAll(text, "\n    ", " ")) // lines that the command broke
	return nil
}

// brief says what records are about.
func brief(records []scheduler.Record) string {
	out := make([]string, 0, len(records))
	for i := range records {
		r := &records[i]
		out = append(out, fmt.Sprintf("%s evicted %d of %d pods for %d milli-GPUs", r.Action, r.Evicted, r.Pods, r.Eviction.Placed))
	}
	return strings.Join(out, "; ")
}
