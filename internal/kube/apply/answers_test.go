package apply

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// TestAnswers: the last word alone is written, again until it is; a gang's annotation is taken away when nothing is said any more; and however many
// gangs are told at once, it is five a second.
func TestAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPaper(t)
		pool := NewPool(nil)
		a := NewAnswers(pool, p.kit(), "x/why", "x/starts")
		g := kai.GangKey("a", "g")
		a.Set(g, "u", "first", "")
		a.Set(g, "u", "so", "14:20 to 17:00")
		if !a.Waits("u") || a.Waits("v") {
			t.Error("what waits to be written")
		}
		p.work(pool.Run)
		p.after(time.Second, nil)
		p.expect("the last word", `0s g/u {"x/starts":"14:20 to 17:00","x/why":"so"}`)
		p.mu.Lock()
		p.fail = 1
		p.mu.Unlock()
		a.Set(g, "u", "", "")
		p.after(5*time.Second, nil)
		p.expect("nothing any more", `2s g/u {"x/starts":null,"x/why":null}`)
		if a.Waits("u") {
			t.Error("it is written and waits")
		}
		for i := range 50 {
			a.Set(kai.GangKey("a", fmt.Sprint("g", i)), fmt.Sprint("u", i), "so", "")
		}
		p.after(4*time.Second, nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := len(p.said); n < 20 || n > 21 {
			t.Errorf("%d writes in four seconds", n)
		}
	})
}
