package main

import (
	"fmt"
	"strings"
)

// page is docs/status.md.
func (c *Claims) page(results map[string][]Result) string {
	var b strings.Builder
	b.WriteString(`# Status

What works, what does not yet, and what was measured, each with the command that shows it. A line without a command is not a claim.

This page is written from [claims.yaml](status/claims.yaml), which people write, and from the [results](status/results) that
` + "`make status ID=…`" + ` leaves: change those, and run ` + "`make status`" + `. A result is of one commit on one machine. Where the last column is empty, no
result is kept: CI runs the command, or whoever doubts. *before* a commit: the figure was on this page by then, and neither its commit nor,
where none is said, its machine is known.

## Works

`)
	for _, capability := range c.Works {
		fmt.Fprintf(&b, "- [%s](#%s)\n", capability.Title, anchor(capability.Title))
	}
	for _, capability := range c.Works {
		fmt.Fprintf(&b, "\n### %s\n\n| what | shown by | result |\n|---|---|---|\n", capability.Title)
		for _, claim := range capability.Claims {
			var said []string
			for _, r := range results[claim.ID] {
				said = append(said, r.cell())
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", claim.What, commands(claim.Run), strings.Join(said, "<br>"))
		}
	}
	rows := func(title, head string, rows []Row) {
		fmt.Fprintf(&b, "\n## %s\n\n| %s |\n|---|---|\n", title, head)
		for _, r := range rows {
			fmt.Fprintf(&b, "| %s | %s |\n", r.What, r.Then)
		}
	}
	rows("Not yet", "what | capability", c.NotYet)
	rows("Promises and their tests", "promise | test", c.Promises)
	b.WriteString("\n## Measured\n")
	for _, claim := range c.Measured {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n%s\n", claim.Title, strings.TrimSpace(claim.What), commands(claim.Run))
		for _, r := range results[claim.ID] {
			fmt.Fprintf(&b, "\n%s", upper(r.origin()))
			if len(r.Failed) > 0 {
				fmt.Fprintf(&b, "; **failed: %s**", commands(r.Failed))
			}
			b.WriteString(":\n\n")
			if r.Table != "" {
				b.WriteString(strings.TrimSpace(r.Table) + "\n")
			}
			for _, f := range r.Figures {
				fmt.Fprintf(&b, "- %s\n", f)
			}
		}
	}
	b.WriteString(`
## Known differences from KAI Scheduler

They are one list, with a reason each: [operations/differences.md](operations/differences.md), written from a ledger
(` + "`go test ./docs/ledgers -run Differences`). `muster migrate check`" + ` tells which of them concern a cluster.
`)
	return b.String()
}

// commands are shown as code that may stand in a table.
func commands(all []string) string {
	var out []string
	for _, c := range all {
		out = append(out, "`"+strings.ReplaceAll(c, "|", `\|`)+"`")
	}
	return strings.Join(out, ", ")
}

// origin says of which commit and machine a result is.
func (r Result) origin() string {
	commit, before := strings.CutPrefix(r.Commit, "before ")
	out := "at `" + commit + "`"
	if before {
		out = "before `" + commit + "`"
	}
	for _, more := range []string{r.Date, r.Machine} {
		if more != "" {
			out += ", " + more
		}
	}
	return out
}

// cell is a result in a table: its figures, how its tests ended, and where.
func (r Result) cell() string {
	said := append([]string{}, r.Figures...)
	switch {
	case len(r.Failed) > 0:
		said = append(said, "**failed: "+commands(r.Failed)+"**")
	case r.Passed > 0 && r.Skipped > 0:
		said = append(said, fmt.Sprintf("%d tests passed, %d NOT CHECKED", r.Passed, r.Skipped))
	case r.Skipped > 0:
		said = append(said, "NOT CHECKED")
	case r.Passed > 0:
		said = append(said, fmt.Sprintf("%d tests passed", r.Passed))
	case r.Took != "":
		said = append(said, "passed")
	}
	if r.Took != "" {
		said[len(said)-1] += " in " + r.Took
	}
	return strings.Join(said, "; ") + " (" + r.origin() + ")"
}

// anchor is the name by which a heading is linked to.
func anchor(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		}
	}
	return b.String()
}

// upper begins with a capital.
func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
