package app

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// TestLibrariesAreQuiet: of what twenty reflectors say of themselves nothing is seen at the scheduler's own level of talk, and of what
// they say one after another when the API server goes away, one line at a time, which counts the others. Our own lines all come.
func TestLibrariesAreQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		own, err := Logger(&text, LogOptions{Verbosity: 3})
		if err != nil {
			t.Fatal(err)
		}
		log := logr.FromContextOrDiscard(Library(logr.NewContext(t.Context(), own.WithName("cache"))))
		said := func() string {
			defer text.Reset()
			return text.String()
		}
		for i := range 20 {
			reflector := log.WithValues("type", i).WithName("reflector")
			reflector.V(2).Info("Caches populated")
			reflector.V(3).Info("Starting reflector")
		}
		if got := said(); got != "" {
			t.Errorf("housekeeping is written: %s", got)
		}
		for round := range 3 {
			for i := range 20 {
				log.WithValues("type", i).Error(errors.New("gone"), "Failed to watch")
			}
			log.Info(fmt.Sprint("of another kind ", round))
			got := said()
			if strings.Count(got, "Failed to watch") != 1 || strings.Count(got, "of another kind") != 1 || strings.Contains(got, "more=19") != (round > 0) {
				t.Errorf("round %d: %s", round, got)
			}
			time.Sleep(repeatedEvery)
		}
		for range 3 {
			own.V(3).Info("decided")
		}
		if got := said(); strings.Count(got, "decided") != 3 {
			t.Errorf("our own lines: %s", got)
		}
		for i := range 10 * rememberedMessages {
			log.Info(fmt.Sprint("about ", i))
		}
		if s, ok := log.GetSink().(*librarySink); !ok || len(s.repeats.said) > rememberedMessages {
			t.Error("messages are remembered without a bound")
		}
	})
}
