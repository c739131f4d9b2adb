package engine

import (
	"encoding/json"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestAnswersFromFiles: an answer that was read from a file has its reasons again when it is asked for, so that its text and what lifts
// it are those of the run that gave it; a key that nobody declares stays as it is.
func TestAnswersFromFiles(t *testing.T) {
	t.Parallel()
	e, err := New(Profile{}, Registry{Plugins: map[string][]Factory{"p": {Is(struct{}{}, &Reason{Key: "Mine", Text: "mine: {object}"})}}})
	if err != nil {
		t.Fatal(err)
	}
	gated := Verdict{Code: No, Reason: ReasonGated, Have: 2}
	mine := Verdict{Code: No, Reason: e.reasons["Mine"], Object: "x"}
	foreign := Verdict{Code: No, Reason: &Reason{Key: "Foreign"}, Detail: "said there"}
	reread := func(what any, into any) any {
		text, err := json.Marshal(what)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
		return into
	}
	told := reread(&Told{Asks: "a", Diagnosis: Diagnosis{Verdict: gated, Tally: Tally{{Verdict: mine, Nodes: 1}, {Verdict: foreign, Nodes: 2}}}}, &Told{}).(*Told)
	tried := *reread(Attempt{Action: "reclaim", Verdict: mine, Barred: []Barrier{{Verdict: gated, Gangs: 1}}}, &Attempt{}).(*Attempt)
	s := cluster.NewStore(cluster.Options{})
	s.Restore(cluster.Memory{Answers: map[string]cluster.RememberedAnswer{
		"told": {Until: cluster.Forever, Wake: cluster.Forever, Why: told}, "tried": {Until: cluster.Forever, Wake: cluster.Forever, Why: tried},
	}})
	rec := newRecorder(s.Snapshot(1), 0, e.reasons, &e.slabs)
	answer, _ := rec.RememberedAnswer("told")
	d := answer.Why.(*Told).Diagnosis
	if d.Verdict != gated || d.Tally[0].Verdict != mine || d.Tally[1].Verdict.String() != "Foreign said there" {
		t.Errorf("told %+v", d)
	}
	if told.Diagnosis.Verdict == gated {
		t.Error("what the store remembers was changed")
	}
	answer, _ = rec.RememberedAnswer("tried")
	if a := answer.Why.(Attempt); a.Verdict != mine || a.Barred[0].Verdict != gated {
		t.Errorf("tried %+v", a)
	}
}
