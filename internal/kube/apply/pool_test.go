package apply

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestPause: the waits between the attempts at an order double from 50 ms, and end with the context.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var waits []int64 // ms
		for try := 1; try < attempts; try++ {
			before := time.Now()
			if !pause(ctx, try) {
				t.Fatalf("attempt %d: it did not wait to the end", try)
			}
			waits = append(waits, time.Since(before).Milliseconds())
		}
		if want := []int64{50, 100, 200, 400, 800, 1600, 3200}; !slices.Equal(waits, want) {
			t.Errorf("waits of %v ms, want %v", waits, want)
		}
		time.AfterFunc(time.Second, stop)
		before := time.Now()
		if pause(ctx, attempts-1) || time.Since(before) != time.Second {
			t.Errorf("it waited %v after the context had ended", time.Since(before)-time.Second)
		}
	})
}

// TestDrain: orders are taken as they came, as many at once as there are workers; when the context ends, no more are taken.
func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		orders, taken, done := newLine[int](2), make(chan int, 10), make(chan struct{})
		orders.put(1, 2, 3, 4, 5)
		go func() {
			drain(ctx, orders, 2, func(_ context.Context, o int) { taken <- o; time.Sleep(time.Second) })
			close(done)
		}()
		for second, want := range [][]int{{1, 2}, {3, 4}} {
			synctest.Wait()
			got := []int{}
			for len(taken) > 0 {
				got = append(got, <-taken)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("second %d: took %v, want %v", second, got, want)
			}
			if second == 1 {
				stop()
			}
			time.Sleep(time.Second)
		}
		<-done
		if len(taken) > 0 {
			t.Errorf("%d orders were taken after the context had ended", len(taken))
		}
	})
}
