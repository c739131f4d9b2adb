package app

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchdog: what takes longer than the limit is named, what waits for others or gets on is not.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewWatchdog(time.Minute)
		well := func(when string) {
			t.Helper()
			if err := d.Check(t.Context()); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		well("nothing is done")
		loop := d.Begin("the loop")
		for range 5 {
			elapse(time.Minute)
			well("it turns")
			loop.Turn()
		}
		loop.Wait()
		elapse(time.Hour)
		well("it waits for others")
		loop.Turn()
		done := d.Watch("a piece")
		elapse(50 * time.Second)
		done()
		well("the piece is done")
		elapse(11 * time.Second)
		if err := d.Alive(); !errors.Is(err, ErrHung) || !strings.Contains(err.Error(), "the loop") || !strings.Contains(err.Error(), "1m1s") {
			t.Errorf("it hangs: %v", err)
		}
		loop.End()
		well("it has ended")

		none := NewWatchdog(0)
		w := none.Begin("nobody watches")
		elapse(time.Hour)
		w.Turn()
		w.Wait()
		w.End()
		if err := none.Alive(); err != nil {
			t.Error(err)
		}
	})
}
