package node

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/vm/diag"
	"github.com/muster-scheduler/muster/internal/vm/image"
	"github.com/muster-scheduler/muster/internal/vm/runtime"
)

// given is a server and a store that say what they are to say.
type given struct {
	swept []bool
	fails error
}

func (g *given) Collect(_ context.Context, dry bool) ([]runtime.Garbage, error) {
	return []runtime.Garbage{{Verb: runtime.Teardown, ID: "c1", Why: "stray", Err: map[bool]error{false: errors.New("busy")}[dry]}}, g.fails
}

func (g *given) Recorded() ([]*runtime.Sandbox, []*runtime.Container) {
	return []*runtime.Sandbox{{ID: "b1", Phase: runtime.Ready}}, []*runtime.Container{{ID: "c1", SandboxID: "b1", Phase: runtime.Running}}
}

func (g *given) GC(dry bool) ([]image.Garbage, error) {
	g.swept = append(g.swept, dry)
	return []image.Garbage{{Path: "disks/x", Bytes: 7, Why: "no image has this disk"}}, g.fails
}

// TestLook: records are texts of their own, and garbage of all parts is one list, also where one of them fails.
func TestLook(t *testing.T) {
	t.Parallel()
	g := &given{}
	s := look(g, g, nil)
	text, err := json.Marshal(diag.Collect(t.Context(), s.Sources, diag.Bounds{}))
	if err != nil || !strings.Contains(string(text), `{"name":"b1","ext":"json","data":"{\n`) || !strings.Contains(string(text), `\"phase\": \"running\"`) || !strings.Contains(string(text), "goroutine ") {
		t.Errorf("%v: %s", err, text)
	}
	for _, dry := range []bool{true, false} {
		got, err := s.GC(t.Context(), dry)
		if err != nil || len(got) != 2 || got[0].Kind != "teardown" || (got[0].Error == "") != dry || got[1].ID != "disks/x" || got[1].Bytes != 7 || g.swept[len(g.swept)-1] != dry {
			t.Errorf("%+v, %v", got, err)
		}
	}
	g.fails = errors.New("away")
	if got, err := s.GC(t.Context(), true); err == nil || len(got) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestSweepImages: at the start and then again and again, whatever it says, until it is told to end.
func TestSweepImages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		g := &given{fails: errors.New("the records are not read yet")}
		sweepImages(ctx, g, gcEvery, logr.Discard())
		if len(g.swept) != 3 || g.swept[0] || g.swept[1] || g.swept[2] {
			t.Errorf("%v", g.swept)
		}
	})
}
