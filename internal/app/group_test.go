package app

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestGroupStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	var g Group
	started := make(chan struct{}, 2)
	for _, name := range []string{"a", "b"} {
		g.Add(name, func(ctx context.Context) error {
			started <- struct{}{}
			return untilDone(ctx)
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	<-started
	<-started
	stop()
	if err := <-ended; err != nil {
		t.Errorf("a stop that was asked for returned %v", err)
	}
}

func TestGroupFailsWhole(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, test := range []struct {
		name string
		end  error
		want error
	}{
		{"with an error", broken, broken},
		{"without an error", nil, ErrEnded},
		{"cancelled by itself", context.Canceled, context.Canceled},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var g Group
			other := false
			g.Add("first", func(context.Context) error { return test.end })
			g.Add("second", func(ctx context.Context) error {
				<-ctx.Done()
				other = true
				return nil
			})
			err := g.Run(t.Context())
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), "role first:") || strings.Contains(err.Error(), "second") {
				t.Errorf("got %v, want %v of role first only", err, test.want)
			}
			if !other {
				t.Error("Run returned before the other role had ended")
			}
		})
	}
}

func TestGroupReportsFailuresOfTheStop(t *testing.T) {
	t.Parallel()
	var g Group
	g.Add("first", func(context.Context) error { return errors.New("broken") })
	g.Add("second", func(ctx context.Context) error { <-ctx.Done(); return errors.New("could not flush") })
	err := g.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "role first: broken") || !strings.Contains(err.Error(), "role second: could not flush") {
		t.Errorf("got %v, want both failures", err)
	}
}

func TestGroupBoundsItsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		release := make(chan struct{})
		g := Group{Grace: 3 * time.Second}
		g.Add("quick", untilDone)
		g.Add("stuck", func(context.Context) error { <-release; return nil })
		ended := make(chan error, 1)
		go func() { ended <- g.Run(ctx) }()
		synctest.Wait()
		start := time.Now()
		stop()
		err := <-ended
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("stopped after %s, want the grace of 3 s", took)
		}
		if err == nil || err.Error() != "did not end within 3s: stuck" {
			t.Errorf("got %v, want the role that is stuck", err)
		}
		close(release)
	})
}

func TestGroupWithoutRoles(t *testing.T) {
	t.Parallel()
	if err := new(Group).Run(t.Context()); err == nil {
		t.Error("a group without roles ran")
	}
}

func TestSignalContext(t *testing.T) {
	ctx, stop := SignalContext(t.Context())
	defer stop()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}
