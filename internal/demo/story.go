package demo

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// story is one telling.
type story struct {
	*narrator
	sizes
	o        Options
	dir      string
	gone     func(error) // told when a child ends by itself
	children []*child

	kubeconfig string
	metrics    string // URL
	c          *cluster
	sentences  int
}

// tell tells all of it, up to the first sentence that does not come true.
func (s *story) tell(ctx context.Context) error {
	for _, part := range []struct {
		title string
		tell  func(context.Context) error
	}{
		{fmt.Sprintf("A cluster of %d nodes with %s each", s.Nodes, count(s.PerNode, "GPU")), s.cluster},
		{"1  A gang starts whole", s.fits},
		{"2  A gang that finds no room stays whole, and says why", s.fitsNot},
		{"3  Two teams divide what is left by weight", s.divides},
		{"4  The next gang takes the room of a deleted one", s.succeeds},
		{"At the end", s.table},
	} {
		s.chapter(part.title)
		if err := part.tell(ctx); err != nil {
			s.failed("%v", err)
			return fmt.Errorf("%q did not come true: %w", part.title, err)
		}
	}
	return nil
}

// say prints a sentence that has been asserted.
func (s *story) say(format string, args ...any) {
	s.sentences++
	s.done(format, args...)
}

// progress shows what a child says while it starts.
func (s *story) progress(line string) { s.doing(line) }

// apply makes the objects of a manifest.
func (s *story) apply(ctx context.Context, name string) error {
	objects, err := render(name, s.dir+"/manifests", s.sizes)
	if err != nil {
		return err
	}
	return s.c.create(ctx, objects)
}

// await waits until ok says that a gang is as it should be, and returns it as it was then.
func (s *story) await(ctx context.Context, name, what string, ok func(gang) bool) (gang, error) {
	s.doing(name + ": " + what)
	var g gang
	err := s.c.await(ctx, s.o.Patience, func() (bool, string, error) {
		var err error
		g, err = s.c.gang(ctx, name)
		return ok(g), g.String(), err
	})
	if err != nil {
		return g, fmt.Errorf("%s: %s: %w", name, what, err)
	}
	return g, nil
}

// awaitReason waits until a gang of n pods has none bound and a reason, which it returns.
func (s *story) awaitReason(ctx context.Context, name string, n int) (string, error) {
	s.doing(name + " waits with a reason")
	var reason string
	err := s.c.await(ctx, s.o.Patience, func() (bool, string, error) {
		g, err := s.c.gang(ctx, name)
		if err != nil || !g.pending(n) {
			return false, g.String(), err
		}
		reason, err = s.c.reason(ctx, g.group)
		return reason != "", g.String() + ", without a reason", err
	})
	if err != nil {
		return "", fmt.Errorf("%s: a gang of %d waits with a reason: %w", name, n, err)
	}
	return reason, nil
}

// cluster brings it up.
func (s *story) cluster(ctx context.Context) error {
	state, err := s.startLab(ctx)
	if err != nil {
		return err
	}
	s.kubeconfig = state.Kubeconfig
	s.say("Kubernetes %s is up, with %s in %s.", state.Version, count(s.Nodes, "simulated node"), count(max(2, s.Nodes/8), "rack"))
	if s.c, err = connect(ctx, state.Kubeconfig); err != nil {
		return err
	}
	address, err := s.startMuster(ctx, state.Kubeconfig)
	if err != nil {
		return err
	}
	s.metrics = "http://" + address + "/metrics"
	s.say("Muster runs: all roles in one process.")
	for _, name := range []string{"priorityclasses", "queues"} {
		if err := s.apply(ctx, name); err != nil {
			return err
		}
	}
	s.say("Departments research (teams vision, language) and product (search, ads) own %d GPUs each.", s.GPUs(2))
	if err := s.apply(ctx, "hello"); err != nil {
		return err
	}
	for _, pod := range []string{"hello-cpu", "hello-gpu"} {
		if _, err := s.await(ctx, pod, "has run", func(g gang) bool { return g.done == 1 }); err != nil {
			return err
		}
	}
	s.say("Pods hello-cpu and hello-gpu have run.")
	return nil
}

// fits is chapter 1.
func (s *story) fits(ctx context.Context) error {
	n := s.eighth()
	if err := s.apply(ctx, "resnet"); err != nil {
		return err
	}
	g, err := s.await(ctx, "resnet", fmt.Sprintf("%d pods run", n), func(g gang) bool { return g.whole(n) })
	if err != nil {
		return err
	}
	if len(g.nodes) != n {
		return fmt.Errorf("resnet: %d pods that fill a node each are on %d nodes: %v", n, len(g.nodes), g.nodes)
	}
	s.say("PyTorchJob resnet of team search: its master and %s started together, bound within %d ms, on %s.",
		count(n-1, "worker"), g.spread.Milliseconds(), count(s.c.racksOf(g), "rack"))
	return nil
}

// fitsNot is chapter 2.
func (s *story) fitsNot(ctx context.Context) error {
	n := s.TooMany()
	if err := s.apply(ctx, "giant"); err != nil {
		return err
	}
	if _, err := s.awaitReason(ctx, "giant", n); err != nil {
		return err
	}
	g, err := s.c.gang(ctx, "giant")
	if err != nil {
		return err
	}
	why, err := s.muster(ctx, "explain", "gang", "giant")
	if err != nil {
		return err
	}
	s.say("Job giant of team ads: all %d pods wait, and none is bound.", n)
	s.row("$ muster explain gang giant")
	s.quote(unbroken(why))
	if err := s.apply(ctx, "sweep"); err != nil {
		return err
	}
	if _, err := s.await(ctx, "sweep", "4 pods have run", func(g gang) bool { return g.done == 4 }); err != nil {
		return err
	}
	s.say("Job sweep of team language passed it: a gang of 4 started and ended meanwhile.")
	if g, err = s.c.gang(ctx, "giant"); err != nil {
		return err
	}
	if !g.pending(n) {
		return fmt.Errorf("giant no longer waits as a whole: %s", g)
	}
	if err := s.c.remove(ctx, "batch/v1", "Job", "giant"); err != nil {
		return err
	}
	if _, err := s.await(ctx, "giant", "its pods go", func(g gang) bool { return g.pods == 0 }); err != nil {
		return err
	}
	s.say("giant waited as a whole to its end; it is withdrawn.")
	return nil
}

// divides is chapter 3.
func (s *story) divides(ctx context.Context) error {
	n := s.Rest()
	if err := s.apply(ctx, "nightly"); err != nil {
		return err
	}
	if _, err := s.await(ctx, "nightly", "fills the cluster", func(g gang) bool { return g.whole(n) }); err != nil {
		return err
	}
	s.say("Job nightly of team language borrows all that is idle: %d GPUs, %d of them over quota.", n*s.PerNode, n*s.PerNode-s.GPUs(1))
	teams := []struct{ queue, job string }{{"vision", "pretrain"}, {"language", "finetune"}}
	for _, t := range teams {
		if err := s.apply(ctx, t.job); err != nil {
			return err
		}
	}
	for _, t := range teams {
		if _, err := s.awaitReason(ctx, t.job, n); err != nil {
			return err
		}
	}
	s.say("Jobs pretrain (vision) and finetune (language) queue up for %d GPUs each.", n*s.PerNode)
	if err := s.c.remove(ctx, "batch/v1", "Job", "nightly"); err != nil {
		return err
	}
	// The cluster is full again when what the two run adds up to what nightly held; the queue controller's statuses
	// follow within a second.
	held := map[string]int64{}
	s.doing("the teams divide the cluster")
	err := s.c.await(ctx, s.o.Patience, func() (bool, string, error) {
		var running int64
		agree := true
		for _, t := range teams {
			g, err := s.c.gang(ctx, t.job)
			if err != nil {
				return false, "", err
			}
			if held[t.queue], err = s.c.allocated(ctx, t.queue); err != nil {
				return false, "", err
			}
			running += int64(g.running * s.PerNode)
			agree = agree && held[t.queue] == g.gpus
		}
		return agree && running == int64(n*s.PerNode), fmt.Sprintf("%d GPUs in use, queues say %v", running, held), nil
	})
	if err != nil {
		return fmt.Errorf("the two teams fill the room that nightly leaves: %w", err)
	}
	fair, err := s.fairShares(ctx)
	if err != nil {
		return err
	}
	for _, t := range teams {
		// A share need not be a whole number of these pods; being one pod off is as close as one can get.
		if off := float64(held[t.queue]) - fair[t.queue]; off >= float64(s.PerNode) || off <= -float64(s.PerNode) {
			return fmt.Errorf("%s uses %d GPUs, and its fair share is %g", t.queue, held[t.queue], fair[t.queue])
		}
	}
	s.say("nightly ends. Beyond quotas of %d and %d, they divide the room 3:1 by weight:", s.GPUs(1), s.GPUs(1))
	for _, t := range teams {
		s.row("%-9s fair share %5g GPUs, uses %4d", t.queue, fair[t.queue], held[t.queue])
	}
	return nil
}

// succeeds is chapter 4.
func (s *story) succeeds(ctx context.Context) error {
	// What the two teams still wait for would be after the same room.
	for _, job := range []string{"pretrain", "finetune"} {
		g, err := s.c.gang(ctx, job)
		if err != nil {
			return err
		}
		if err := s.c.setParallelism(ctx, job, g.running); err != nil {
			return err
		}
		if _, err := s.await(ctx, job, "its queued pods go", func(now gang) bool { return now.whole(g.running) }); err != nil {
			return err
		}
	}
	n := s.eighth()
	if err := s.apply(ctx, "bert"); err != nil {
		return err
	}
	reason, err := s.awaitReason(ctx, "bert", n)
	if err != nil {
		return err
	}
	s.say("The cluster is full. PyTorchJob bert of team search, as large as resnet, waits:")
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
	if !slices.Equal(bert.nodes, resnet.nodes) {
		return fmt.Errorf("bert runs on %v, but resnet was on %v", bert.nodes, resnet.nodes)
	}
	s.say("resnet is deleted, and %.1f s later bert runs whole on the same %s.", time.Since(deleted).Seconds(), count(n, "node"))
	return nil
}

// table prints how the cluster stands, as Muster's own command line says it.
func (s *story) table(ctx context.Context) error {
	text, err := s.muster(ctx, "status")
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "  $ muster status\n")
	for line := range strings.Lines(text) {
		fmt.Fprint(s.out, strings.TrimRight("  "+line, " \n"), "\n")
	}
	return nil
}

// muster runs a command of Muster's and returns what it prints.
func (s *story) muster(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.o.MusterBinary, append(args, "--kubeconfig="+s.kubeconfig)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("muster %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return string(out), nil
}

// summary is the last line.
func (s *story) summary(took time.Duration) {
	fmt.Fprintf(s.out, "\nAll %d sentences held, in %.0f s. The cluster and Muster have stopped.\n", s.sentences, took.Seconds())
}
