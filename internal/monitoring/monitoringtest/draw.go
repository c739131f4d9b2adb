package monitoringtest

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/muster-scheduler/muster/internal/monitoring"
)

// Measures of a page.
const (
	columnWidth = vg.Length(44) // of 24
	rowHeight   = vg.Length(22)
	heading     = vg.Length(34)
	gap         = vg.Length(3) // around a panel
	dpi         = 110
	legendMost  = 8 // entries
)

// The colours of a page; those of series can be told apart with any kind of colour vision (Okabe and Ito's).
var (
	paper  = color.RGBA{0xf4, 0xf5, 0xf7, 0xff}
	card   = color.RGBA{0xff, 0xff, 0xff, 0xff}
	ink    = color.RGBA{0x22, 0x25, 0x2b, 0xff}
	pale   = color.RGBA{0x6b, 0x72, 0x80, 0xff}
	rule   = color.RGBA{0xd9, 0xdc, 0xe1, 0xff}
	accent = color.RGBA{0x00, 0x72, 0xb2, 0xff}
)

func hue(i int) color.RGBA {
	hues := []color.RGBA{
		accent,
		{0xe6, 0x9f, 0x00, 0xff},
		{0x00, 0x9e, 0x73, 0xff},
		{0xcc, 0x79, 0xa7, 0xff},
		{0xd5, 0x5e, 0x00, 0xff},
		{0x56, 0xb4, 0xe9, 0xff},
		{0x99, 0x99, 0x99, 0xff},
		{0x33, 0x33, 0x33, 0xff},
	}
	return hues[i%len(hues)]
}

// Draw writes a dashboard as a PNG: every panel where Grafana puts it, from the answers to its queries, by panel and query.
func Draw(w io.Writer, d *monitoring.Dashboard, answers [][][]Series, s Span) error {
	places, rows := d.Places(), 0
	for _, p := range places {
		rows = max(rows, p.Y+p.Height)
	}
	width, height := 24*columnWidth+2*gap, vg.Length(rows)*rowHeight+heading+2*gap
	canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))
	dc := draw.New(canvas)
	fill(dc, paper)
	left, top := dc.Min.X+gap, dc.Max.Y-gap
	write(dc, left+6, top-15, 15, true, ink, d.Title)
	write(dc, left+6, top-29, 9, false, pale, d.Help)
	for i := range d.Panels {
		at := places[i]
		x, y := left+vg.Length(at.X)*columnWidth, top-heading-vg.Length(at.Y)*rowHeight
		panel := draw.Canvas{Canvas: dc.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x + gap, Y: y - vg.Length(at.Height)*rowHeight + gap},
			Max: vg.Point{X: x + vg.Length(at.Width)*columnWidth - gap, Y: y - gap},
		}}
		fill(panel, card)
		if err := drawPanel(panel, &d.Panels[i], answers[i], s); err != nil {
			return fmt.Errorf("draw panel %q: %w", d.Panels[i].Title, err)
		}
	}
	_, err := vgimg.PngCanvas{Canvas: canvas}.WriteTo(w)
	return err
}

func drawPanel(dc draw.Canvas, p *monitoring.Panel, answers [][]Series, s Span) error {
	write(dc, dc.Min.X+7, dc.Max.Y-14, 9.5, true, ink, p.Title)
	inner := draw.Crop(dc, 7, -7, 6, -20)
	var all []Series
	for _, a := range answers {
		all = append(all, a...)
	}
	if len(all) == 0 {
		write(inner, inner.Min.X, inner.Min.Y+4, 10, false, pale, "no data")
		return nil
	}
	switch p.Kind {
	case monitoring.Stat:
		size := font.Length(24)
		value := format(p.Unit, all[0].Last())
		style := style(size, true, accent)
		write(inner, (inner.Min.X+inner.Max.X-style.Width(value))/2, (inner.Min.Y+inner.Max.Y)/2-8, size, true, accent, value)
	case monitoring.Bars:
		drawBars(inner, p.Unit, all)
	case monitoring.Table:
		drawTable(inner, p, answers)
	default:
		return drawLines(inner, p.Unit, all, s)
	}
	return nil
}

// drawLines draws series over time, and below them their names.
func drawLines(dc draw.Canvas, unit monitoring.Unit, all []Series, s Span) error {
	below := drawLegend(dc, all)
	p := plot.New()
	for _, t := range []*draw.TextStyle{&p.X.Tick.Label, &p.Y.Tick.Label} {
		t.Font.Size, t.Font.Variant, t.Color = 8, "Sans", pale
	}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle.Color, a.Tick.LineStyle.Color, a.Padding = rule, rule, 0
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = rule, rule
	p.Add(grid)
	most := 0.0
	for i, one := range all {
		var points plotter.XYs
		flush := func() error {
			if len(points) > 0 {
				line, err := plotter.NewLine(points)
				if err != nil {
					return err
				}
				line.Color, line.Width = hue(i), 1.3
				if i > 0 { // lines that lie on each other: the gaps show the one below
					line.Dashes = []vg.Length{vg.Length(5 + 2*(i%4)), vg.Length(1 + i%4)}
				}
				p.Add(line)
			}
			points = nil
			return nil
		}
		for k := range one.Values {
			if k > 0 && one.At[k].Sub(one.At[k-1]) > s.Step*3/2 { // a gap stays one
				if err := flush(); err != nil {
					return err
				}
			}
			points = append(points, plotter.XY{X: one.At[k].Sub(s.From).Seconds(), Y: one.Values[k]})
			most = max(most, one.Values[k])
		}
		if err := flush(); err != nil {
			return err
		}
	}
	if most == 0 {
		most = 1
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, s.To.Sub(s.From).Seconds(), 0, most*1.08
	base := 1.0 // round numbers of KiB, MiB…, not of bytes
	for unit == monitoring.Bytes && most/base >= 1024 {
		base *= 1024
	}
	p.Y.Tick.Marker = ticks(4, base, func(v float64) string { return format(unit, v) })
	p.X.Tick.Marker = ticks(6, 1, func(v float64) string { d := time.Duration(v) * time.Second; return d.String() })
	p.Draw(draw.Crop(dc, 0, -6, below, 0))
	return nil
}

// drawLegend writes the names of series along the lower edge, and returns how much room that takes.
func drawLegend(dc draw.Canvas, all []Series) vg.Length {
	const line, box = vg.Length(11), vg.Length(6)
	st := style(8, false, ink)
	type entry struct {
		name string
		hue  color.RGBA
	}
	var entries []entry
	for i := range all {
		name := all[i].Name
		if name == "" {
			name = "(none)"
		}
		entries = append(entries, entry{name, hue(i)})
	}
	if len(entries) > legendMost {
		entries = append(entries[:legendMost], entry{fmt.Sprintf("and %d more", len(all)-legendMost), card})
	}
	var lines [][]entry
	x := dc.Max.X
	for _, e := range entries {
		width := box + 4 + st.Width(e.name) + 12
		if x+width > dc.Max.X {
			lines, x = append(lines, nil), dc.Min.X
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], e)
		x += width
	}
	for k, l := range lines {
		x, y := dc.Min.X, dc.Min.Y+vg.Length(len(lines)-1-k)*line
		for _, e := range l {
			fill(draw.Canvas{Canvas: dc.Canvas, Rectangle: vg.Rectangle{Min: vg.Point{X: x, Y: y}, Max: vg.Point{X: x + box, Y: y + box}}}, e.hue)
			write(dc, x+box+4, y, 8, false, ink, e.name)
			x += box + 4 + st.Width(e.name) + 12
		}
	}
	return vg.Length(len(lines))*line + 4
}

// drawBars draws a bar per series.
func drawBars(dc draw.Canvas, unit monitoring.Unit, all []Series) {
	most := 0.0
	for i := range all {
		most = max(most, all[i].Last())
	}
	if most == 0 {
		most = 1
	}
	each := min((dc.Max.Y-dc.Min.Y)/vg.Length(len(all)), 26)
	label := (dc.Max.X - dc.Min.X) * 0.36
	for i := range all {
		y := dc.Max.Y - vg.Length(i+1)*each
		write(dc, dc.Min.X, y+each/2-3, 8.5, false, ink, cut(all[i].Name, 8.5, label-6))
		room := dc.Max.X - dc.Min.X - label - 44
		bar := vg.Rectangle{Min: vg.Point{X: dc.Min.X + label, Y: y + each*0.2}, Max: vg.Point{X: dc.Min.X + label + max(1, room*vg.Length(all[i].Last()/most)), Y: y + each*0.8}}
		fill(draw.Canvas{Canvas: dc.Canvas, Rectangle: bar}, accent)
		write(dc, bar.Max.X+5, y+each/2-3, 8.5, false, ink, format(unit, all[i].Last()))
	}
}

// drawTable draws a row per value of the panel's label, and a column per query.
func drawTable(dc draw.Canvas, p *monitoring.Panel, answers [][]Series) {
	var rows []string
	for _, a := range answers {
		for i := range a {
			if name := a[i].Labels[p.By]; !slices.Contains(rows, name) {
				rows = append(rows, name)
			}
		}
	}
	slices.Sort(rows)
	each := min((dc.Max.Y-dc.Min.Y)/vg.Length(len(rows)+1), 18)
	width := (dc.Max.X - dc.Min.X) / vg.Length(len(p.Queries)+1)
	cell := func(row, column int, bold bool, c color.RGBA, t string) {
		write(dc, dc.Min.X+vg.Length(column)*width+4, dc.Max.Y-vg.Length(row+1)*each+5, 9, bold, c, t)
	}
	cell(0, 0, true, pale, p.By)
	for k, q := range p.Queries {
		cell(0, k+1, true, pale, q.Legend)
	}
	for r, name := range rows {
		y := dc.Max.Y - vg.Length(r+1)*each
		dc.StrokeLine2(draw.LineStyle{Color: rule, Width: 0.5}, dc.Min.X, y, dc.Max.X, y)
		cell(r+1, 0, false, ink, name)
		for k := range p.Queries {
			for i := range answers[k] {
				if answers[k][i].Labels[p.By] == name {
					cell(r+1, k+1, false, ink, format(p.Unit, answers[k][i].Last()))
				}
			}
		}
	}
}

func fill(dc draw.Canvas, c color.Color) {
	dc.FillPolygon(c, []vg.Point{dc.Min, {X: dc.Max.X, Y: dc.Min.Y}, dc.Max, {X: dc.Min.X, Y: dc.Max.Y}})
}

func style(size font.Length, bold bool, c color.Color) draw.TextStyle {
	weight := plot.New().Title.TextStyle.Font.Weight
	if bold {
		weight = 2 // of golang.org/x/image/font: bold
	}
	f := font.Font{Typeface: plot.DefaultFont.Typeface, Variant: "Sans", Size: size, Weight: weight}
	return draw.TextStyle{Color: c, Font: f, Handler: text.Plain{Fonts: font.DefaultCache}}
}

func write(dc draw.Canvas, x, y vg.Length, size font.Length, bold bool, c color.Color, t string) {
	dc.FillText(style(size, bold, c), vg.Point{X: x, Y: y}, t)
}

// cut shortens a text to a width.
func cut(t string, size font.Length, width vg.Length) string {
	st := style(size, false, ink)
	if st.Width(t) <= width {
		return t
	}
	r := []rune(t)
	for len(r) > 1 && st.Width(string(r)+"…") > width {
		r = r[:len(r)-1]
	}
	return string(r) + "…"
}

// format writes a value as Grafana does.
func format(unit monitoring.Unit, v float64) string {
	plain := func(v float64) string {
		digits := 0
		if a := math.Abs(v); v != math.Trunc(v) {
			digits = max(0, 2-int(math.Floor(math.Log10(a))))
		}
		return strconv.FormatFloat(v, 'f', min(digits, 4), 64)
	}
	scaled := func(v, by float64, names ...string) string {
		i := 0
		for ; i < len(names)-1 && math.Abs(v) >= by; i++ {
			v /= by
		}
		return plain(v) + names[i]
	}
	switch unit {
	case monitoring.Bytes:
		return scaled(v, 1024, " B", " KiB", " MiB", " GiB", " TiB")
	case monitoring.Ratio:
		return plain(v*100) + " %"
	case monitoring.PerSecond:
		return plain(v) + "/s"
	case monitoring.Milliseconds:
		return format(monitoring.Seconds, v/1000)
	case monitoring.Seconds:
		switch a := math.Abs(v); {
		case a == 0:
			return "0 s"
		case a < 1e-3:
			return plain(v*1e6) + " µs"
		case a < 1:
			return plain(v*1e3) + " ms"
		case a < 120:
			return plain(v) + " s"
		}
		return plain(v/60) + " min"
	}
	return scaled(v, 1000, "", " k", " M", " G")
}

// ticks marks an axis at about so many round multiples of base.
func ticks(about int, base float64, label func(float64) string) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) []plot.Tick {
		low, high = low/base, high/base
		if !(high > low) {
			return nil
		}
		step := math.Pow(10, math.Floor(math.Log10((high-low)/float64(about))))
		for _, by := range []float64{2, 2.5, 2} { // 1, 2, 5, 10
			if (high-low)/step <= float64(about)*1.2 {
				break
			}
			step *= by
		}
		var out []plot.Tick
		for k := math.Ceil(low / step); k*step <= high; k++ {
			out = append(out, plot.Tick{Value: k * step * base, Label: label(k * step * base)})
		}
		return out
	})
}
