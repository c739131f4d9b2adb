package picture

import (
	"bytes"
	"image/png"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/sim"
)

// TestShares: pictures of the promised size that name the queues that compete; what changes more often than can be drawn is drawn as
// means.
func TestShares(t *testing.T) {
	t.Parallel()
	s := &sim.Series{GPUs: 16000, Step: 10 * time.Minute, Timed: true, Queues: []sim.Trail{
		{Name: "team-a", Leaf: true},
		{Name: "team-b", Leaf: true},
		{Name: "department"},
	}}
	for k := range 12000 {
		x := int64(k%2) * 16000
		for i, v := range []int64{x, 16000 - x, 16000} {
			s.Queues[i].Allocation = append(s.Queues[i].Allocation, v)
			s.Queues[i].FairShare = append(s.Queues[i].FairShare, 8000)
		}
	}
	var out bytes.Buffer
	if err := Shares(&out, s, "png", "title"); err != nil {
		t.Fatal(err)
	}
	picture, err := png.DecodeConfig(&out)
	if err != nil || picture.Width != 1200 || picture.Height != 780 {
		t.Errorf("%d × %d, %v", picture.Width, picture.Height, err)
	}
	out.Reset()
	if err := Shares(&out, s, "svg", "The title"); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"The title (means of 12 cycles)", "team-a", "team-b", "allocated GPUs, stacked", "fair share, GPUs", ">days<"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the drawing does not say %q", text)
		}
	}
	if strings.Contains(out.String(), "department") {
		t.Error("the drawing names a queue that has no gangs")
	}
	if err := Shares(&out, s, "gif", ""); err == nil || err.Error() != `a plot can be png or svg, not "gif"` {
		t.Errorf("error %v", err)
	}
	for _, format := range []string{"png", "svg"} {
		if err := Shares(&out, &sim.Series{Queues: []sim.Trail{{Name: "a", Leaf: true}}}, format, "nothing"); err != nil {
			t.Error(err)
		}
	}
	for whole, want := range map[time.Duration]string{time.Hour: "minutes", 5 * time.Hour: "hours", 100 * time.Hour: "days"} {
		s.Step = whole / 12000
		if got, _ := (sharesPlot{s}).axis(); got != want {
			t.Errorf("%s are told in %s, want %s", whole, got, want)
		}
	}
}
