package recorder

import (
	"encoding/json"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// TestAnswersFromFiles: an answer that was read from a file has its reasons again when it is asked for, so that its text and what lifts
// it are those of the run that gave it; a key that nobody declares stays as it is.
func TestAnswersFromFiles(t *testing.T) {
	t.Parallel()
	declared := map[string]*policy.Reason{policy.ReasonGated.Key: policy.ReasonGated, "Mine": {Key: "Mine", Text: "mine: {object}"}}
	gated := policy.Verdict{Code: policy.No, Reason: policy.ReasonGated, Have: 2}
	mine := policy.Verdict{Code: policy.No, Reason: declared["Mine"], Object: "x"}
	foreign := policy.Verdict{Code: policy.No, Reason: &policy.Reason{Key: "Foreign"}, Detail: "said there"}
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
	told := reread(&Told{Asks: "a", Diagnosis: Diagnosis{Verdict: gated, Tally: policy.Tally{{Verdict: mine, Nodes: 1}, {Verdict: foreign, Nodes: 2}}}}, &Told{}).(*Told)
	tried := *reread(Attempt{Action: "reclaim", Verdict: mine, Barred: []Barrier{{Verdict: gated, Gangs: 1}}}, &Attempt{}).(*Attempt)
	s := cluster.NewStore(cluster.Options{})
	s.Restore(cluster.Memory{Answers: map[string]cluster.RememberedAnswer{
		"told": {Until: cluster.Forever, Wake: cluster.Forever, Why: told}, "tried": {Until: cluster.Forever, Wake: cluster.Forever, Why: tried},
	}})
	rec := New(s.Snapshot(cluster.UnixNano(1)), 0, declared, new([]int32))
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
