package forecast

import (
	"fmt"
	"image/color"
	"io"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// Name is the load's, with how much it asks for.
func (l *Load) Name() string { return fmt.Sprintf("%s %.2f", l.Kind, l.Rho) }

// Ratios are see's interval score as parts of those of past waits and of QBETS's.
func (o *Outcome) Ratios() (past, qbets float64) {
	return o.Shown.Score / o.Past.Score, o.Shown.Score / o.QBETS.Score
}

// Table is the outcomes as Markdown. Interval scores are in minutes; less is better.
func Table(outcomes []*Outcome) string {
	var b strings.Builder
	b.WriteString("| load | forecasts | held | before scaling | past waits | QBETS | score | past waits | QBETS | of past waits | of QBETS |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	var past, qbets []float64
	percent := func(x Bars) string { return fmt.Sprintf("%.1f %%", 100*x.Coverage()) }
	for _, o := range outcomes {
		p, q := o.Ratios()
		past, qbets = append(past, p), append(qbets, q)
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s | %.0f | %.0f | %.0f | %.2f | %.2f |\n", o.Load.Name(), o.Shown.N, percent(o.Shown), percent(o.Drawn), percent(o.Past), percent(o.QBETS),
			o.Shown.Score/60, o.Past.Score/60, o.QBETS.Score/60, p, q)
	}
	fmt.Fprintf(&b, "| median | | | | | | | | | %.2f | %.2f |\n", Median(past), Median(qbets))
	return b.String()
}

// lines of a plot: a value for each load.
type lines struct {
	name   string
	hue    color.RGBA
	values []float64
}

// methods lists what is drawn of each method.
func methods(outcomes []*Outcome, value func(Bars) float64) []lines {
	out := []lines{{name: "forecast", hue: color.RGBA{0x00, 0x72, 0xb2, 0xff}}, {name: "past waits, scaled alike", hue: color.RGBA{0xe6, 0x9f, 0x00, 0xff}}, {name: "QBETS's method", hue: color.RGBA{0xcc, 0x79, 0xa7, 0xff}}}
	for _, o := range outcomes {
		for i, bars := range []Bars{o.Shown, o.Past, o.QBETS} {
			out[i].values = append(out[i].values, value(bars))
		}
	}
	return out
}

// PlotCoverage draws which part of the bands held, by load and method, as PNG.
func PlotCoverage(w io.Writer, outcomes []*Outcome) error {
	return points(w, "which part of the 80 % bands held (grey: 75 to 85 %)", "%", outcomes, methods(outcomes, func(b Bars) float64 { return 100 * b.Coverage() }), []float64{75, 85}, 50, 100)
}

// PlotScores draws mean interval scores, by load and method, as PNG.
func PlotScores(w io.Writer, outcomes []*Outcome) error {
	top := 0.0
	list := methods(outcomes, func(b Bars) float64 { return b.Score / 3600 })
	for _, m := range list {
		for _, v := range m.values {
			top = max(top, v)
		}
	}
	return points(w, "mean interval score of the 80 % bands (less is better)", "hours", outcomes, list, nil, 0, top*1.1)
}

func points(w io.Writer, title, unit string, outcomes []*Outcome, list []lines, marks []float64, low, high float64) error {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = title, unit
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.5, float64(len(outcomes))-0.5, low, high
	for _, text := range []*draw.TextStyle{&p.Title.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		text.Font.Size, text.Font.Variant = 11, "Sans"
	}
	p.X.Tick.Label.Font.Size = 8
	var ticks plot.ConstantTicks
	for i, o := range outcomes {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: o.Load.Name()})
	}
	p.X.Tick.Marker = ticks
	p.Add(plotter.NewGrid())
	for _, y := range marks {
		line, err := plotter.NewLine(plotter.XYs{{X: p.X.Min, Y: y}, {X: p.X.Max, Y: y}})
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		line.Color, line.Width = color.Gray{0x99}, vg.Points(1.5)
		p.Add(line)
	}
	for k, m := range list {
		xy := make(plotter.XYs, len(m.values))
		for i, v := range m.values {
			xy[i] = plotter.XY{X: float64(i) + 0.12*float64(k-1), Y: v}
		}
		s, err := plotter.NewScatter(xy)
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		s.Color, s.Radius, s.Shape = m.hue, vg.Points(4.5), []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}}[k]
		p.Add(s)
		p.Legend.Add(m.name, s)
	}
	p.Legend.Top = true // what is down there is far from what is aimed at, and would be hidden
	canvas := vgimg.NewWith(vgimg.UseWH(10*vg.Inch, 4.5*vg.Inch), vgimg.UseDPI(120))
	p.Draw(draw.New(canvas))
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(w); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}
