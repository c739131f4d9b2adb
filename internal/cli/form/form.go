// Package form prints reports in the form that a command is asked for: a table that fits a terminal, JSON, or YAML.
package form

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// Width is how many runes wide a table may become.
const Width = 100

// WidthOf is how many runes wide texts for w may be: the terminal's width, between 60 and 200, or Width where w is none.
func WidthOf(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return min(max(n, 60), 200)
		}
	}
	return Width
}

// Check refuses what the flag --output does not know.
func Check(o string) error {
	switch o {
	case "table", "json", "yaml":
		return nil
	}
	return fmt.Errorf("--output is %q; it must be table, json or yaml", o)
}

// Emit prints a report as output says, which Check has let pass: "json", "yaml", or else what draw makes of it.
func Emit(w io.Writer, output string, report any, draw func() string) error {
	var text []byte
	var err error
	switch output {
	case "json":
		if text, err = json.MarshalIndent(report, "", "  "); err == nil {
			text = append(text, '\n')
		}
	case "yaml":
		text, err = yaml.Marshal(report)
	default:
		text = []byte(draw())
	}
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// Column is one column of a table.
type Column struct {
	// Title is its heading.
	Title string
	// Right puts cells to the right: numbers.
	Right bool
	// Keep cuts no cell: words that mean nothing in part.
	Keep bool
	// Wrap lets the last column go on in further lines below itself.
	Wrap bool
}

// Table draws rows, each with a cell for every column, below titles. Where the whole would be wider than Width, the widest columns that may be cut lose the
// ends of their texts: what remains of a gang's name is still enough for explain.
func Table(columns []Column, rows [][]string) string {
	width := make([]int, len(columns))
	for i, c := range columns {
		width[i] = len(c.Title)
		for _, r := range rows {
			width[i] = max(width[i], utf8.RuneCountInString(r[i]))
		}
	}
	last := len(columns) - 1
	least := width[last]
	if columns[last].Wrap {
		least = min(least, 30)
		width[last] = least
	}
	for total(width)-2 > Width {
		widest := -1
		for i, c := range columns {
			if !c.Right && !c.Keep && !c.Wrap && (widest < 0 || width[i] > width[widest]) {
				widest = i
			}
		}
		if widest < 0 || width[widest] <= 12 {
			break
		}
		width[widest]--
	}
	if columns[last].Wrap {
		width[last] = max(least, Width-total(width[:last]))
	}
	var b strings.Builder
	line := func(cells []string) {
		var more string
		var out strings.Builder
		for i, cell := range cells {
			switch {
			case i == last && columns[i].Wrap:
				cell, more = Break(cell, width[i])
			default:
				cell = shorten(cell, width[i])
			}
			pad := strings.Repeat(" ", max(0, width[i]-utf8.RuneCountInString(cell)))
			if columns[i].Right {
				cell = pad + cell
			} else {
				cell += pad
			}
			if i > 0 {
				out.WriteString("  ")
			}
			out.WriteString(cell)
		}
		b.WriteString(strings.TrimRight(out.String(), " ") + "\n")
		for more != "" {
			var cell string
			cell, more = Break(more, width[last])
			b.WriteString(strings.Repeat(" ", total(width[:last])) + cell + "\n")
		}
	}
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.Title
	}
	line(titles)
	for _, r := range rows {
		line(r)
	}
	return b.String()
}

// total is the width of columns and the gaps behind them.
func total(width []int) int {
	n := 0
	for _, w := range width {
		n += w + 2
	}
	return n
}

// shorten cuts the end of a text that is too wide.
func shorten(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	return string(r[:width-1]) + "…"
}

// Break splits a text at the last space before width, or at width where there is none.
func Break(s string, width int) (first, rest string) {
	r := []rune(s)
	if len(r) <= width {
		return s, ""
	}
	for i := width; i > width/2; i-- {
		if r[i] == ' ' {
			return string(r[:i]), string(r[i+1:])
		}
	}
	return string(r[:width]), string(r[width:])
}
