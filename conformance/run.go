package conformance

import (
	"fmt"
	"path"
	"slices"

	"github.com/muster-scheduler/muster/docs/ledgers"
)

// Options select cases. The zero value selects all.
type Options struct {
	// Tags keeps cases with any of them, Without drops cases with any of them, Actions keeps cases whose tag names one of
	// them, and Case keeps the one with that id.
	Tags, Without, Actions []string
	Case                   string
	// KeepNominations keeps nominations between rounds instead of dropping them as KAI does.
	KeepNominations bool
}

func (o Options) selects(c *Case) bool {
	has := func(tag string) bool { return slices.Contains(c.Tags, tag) }
	return (o.Case == "" || c.ID == o.Case) && (len(o.Tags) == 0 || slices.ContainsFunc(o.Tags, has)) &&
		!slices.ContainsFunc(o.Without, has) && (len(o.Actions) == 0 || slices.ContainsFunc(o.Actions, has))
}

// Report is what became of the selected cases.
type Report struct {
	Total    int       `json:"total"`
	Passed   int       `json:"passed"`
	Ledgered int       `json:"ledgered"`
	Failures []Failure `json:"failures"` // those the ledger does not accept, by id
	Accepted []Failure `json:"accepted"` // those it does, by id
	// Tags counts the selected cases of each tag; a case has several.
	Tags map[string]Count `json:"tags"`
	// LedgerErrors are rows without a difference behind them.
	LedgerErrors []string `json:"ledgerErrors"`
}

// Count is how many cases there are, and how many of them pass or are in the ledger.
type Count struct {
	Total    int `json:"total"`
	Passed   int `json:"passed"`
	Ledgered int `json:"ledgered"`
}

// Failure is one case that went otherwise than expected.
type Failure struct {
	ID    string `json:"id"`
	Given string `json:"given"` // a drawing
	// Error says that the case could not be run at all, "" otherwise.
	Error      string     `json:"error,omitempty"`
	Mismatches []Mismatch `json:"mismatches,omitempty"`
	// Decided is what the last run decided and why it placed no more, one line each.
	Decided []string `json:"decided,omitempty"`
	// Why is the ledger's reason for an accepted difference.
	Why string `json:"why,omitempty"`
}

// OK says whether every difference is accounted for.
func (r *Report) OK() bool { return r.Passed+r.Ledgered == r.Total && len(r.LedgerErrors) == 0 }

// Run plays the selected cases below dir against the ledger built into this package. Selecting nothing is an error.
func Run(dir string, o Options) (Report, error) {
	rows, err := ledgers.Cases()
	if err != nil {
		return Report{}, err
	}
	return runCases(dir, o, rows)
}

func runCases(dir string, o Options, rows []ledgers.Case) (Report, error) {
	cases, err := Load(dir)
	if err != nil {
		return Report{}, err
	}
	ledger := map[string]ledgers.Case{}
	for _, row := range rows {
		ledger[row.ID] = row
	}
	r := Report{Failures: []Failure{}, Accepted: []Failure{}, LedgerErrors: []string{}, Tags: map[string]Count{}}
	known, folders := map[string]bool{}, map[string]bool{}
	for i := range cases {
		c := &cases[i]
		known[c.ID], folders[path.Dir(c.ID)] = true, true
		if !o.selects(c) {
			continue
		}
		r.Total++
		f := play(c, o)
		row, ledgered := ledger[c.ID]
		for _, tag := range c.Tags {
			n := r.Tags[tag]
			n.Total++
			if f == nil {
				n.Passed++
			} else if ledgered && f.Error == "" {
				n.Ledgered++
			}
			r.Tags[tag] = n
		}
		switch {
		case f == nil:
			r.Passed++
			if ledgered {
				r.LedgerErrors = append(r.LedgerErrors, c.ID+" matches now; remove its row")
			}
		case ledgered && f.Error == "":
			r.Ledgered++
			f.Why = row.Why
			r.Accepted = append(r.Accepted, *f)
		default:
			r.Failures = append(r.Failures, *f)
		}
	}
	for _, row := range rows {
		if !known[row.ID] && folders[path.Dir(row.ID)] { // a row of a folder that was not read says nothing
			r.LedgerErrors = append(r.LedgerErrors, row.ID+" is no case; remove its row")
		}
	}
	if r.Total == 0 {
		return r, fmt.Errorf("the selection leaves none of the %d behaviour cases", len(cases))
	}
	return r, nil
}

func play(c *Case, o Options) *Failure {
	w, err := newCaseRun(c, o.KeepNominations)
	if err != nil {
		return &Failure{ID: c.ID, Error: err.Error()}
	}
	m := w.play()
	if m == nil {
		return nil
	}
	return &Failure{ID: c.ID, Given: c.Draw(), Mismatches: m, Decided: w.decided()}
}
