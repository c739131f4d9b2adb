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
	parts := []struct {
		title string
		tell  func(context.Context) error
	}{
		{fmt.Sprintf("A cluster of %d nodes with %s each", s.Nodes, count(s.PerNode, "GPU")), s.cluster},
		{"1  A gang starts whole", s.fits},
		{"2  A gang that finds no room stays whole, and says why", s.fitsNot},
		{"3  The next gang takes the room of a deleted one", s.succeeds},
		{"4  A starved team takes back its share", s.takesBack},
		{"5  A more important gang takes the room of another one of its team", s.preempts},
		{"6  Scattered room comes together", s.consolidates},
		{"At the end", s.table},
	}
	if s.PerNode%8 != 0 {
		parts = slices.Delete(parts, len(parts)-2, len(parts)-1) // it is about eighths of a node
	}
	for _, part := range parts {
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
	for _, name := range []string{"namespace", "priorityclasses", "queues"} {
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
	g, err := s.c.gang(ctx, "giant")
	if err != nil {
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
