package main

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// curvePanels are what is drawn over the number of nodes, by the keys of figureRows.
var curvePanels = []struct{ key, title string }{
	{"all_bound_s", "until all pods are bound, s"},
	{"middle_per_s", "pods a second in the middle"},
	{"gang_s", "64 pods submitted to all bound, s"},
	{"restart_s", "SIGKILL to the first bind, s"},
	{"rss_mib", "the scheduler's largest memory, MiB"},
	{"revisions_per_pod", "revisions of etcd per pod"},
}

// drawCurve draws the results of the cases whose load is large over their numbers of nodes, as PNG: medians, each scheduler a line, and the lab's own ceiling.
func drawCurve(w io.Writer, cases []benchCase, results []result) error {
	const columns = 2
	rows := (len(curvePanels) + columns - 1) / columns
	panels := make([][]*plot.Plot, rows)
	for i, panel := range curvePanels {
		p := plot.New()
		p.Title.Text, p.X.Label.Text = panel.title, "nodes"
		p.X.Min = 0
		p.X.Tick.Marker, p.Y.Tick.Marker = plainTicks{}, plainTicks{}
		for _, text := range []*draw.TextStyle{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
			text.Font.Size, text.Font.Variant = 10, "Sans"
		}
		p.Add(plotter.NewGrid())
		p.Legend.Top, p.Legend.Left = true, true
		for k, side := range []string{sideMuster, sideKube, sideBare} {
			at := curveOf(cases, results, side, panel.key)
			if len(at) == 0 {
				continue
			}
			line, dots, err := plotter.NewLinePoints(at)
			if err != nil {
				return fmt.Errorf("plot: %w", err)
			}
			hue := []color.Color{color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x99, 0x99, 0x99, 0xff}}[k]
			line.Color, line.Width, dots.Color, dots.Radius = hue, vg.Points(1.5), hue, vg.Points(3)
			dots.Shape = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}}[k]
			p.Add(line, dots)
			p.Legend.Add(side, line, dots)
		}
		p.Y.Min = 0
		p.Y.Max *= 1.3 // the legend lies above the lines
		panels[i/columns] = append(panels[i/columns], p)
	}
	canvas := vgimg.NewWith(vgimg.UseWH(9*vg.Inch, 9*vg.Inch), vgimg.UseDPI(110))
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: vg.Points(14), PadY: vg.Points(14), PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(10)}
	for i, row := range plot.Align(panels, tiles, draw.New(canvas)) {
		for j, tile := range row {
			panels[i][j].Draw(tile)
		}
	}
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(w); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}

// plainTicks are the usual ones, with numbers as people write them.
type plainTicks struct{ plot.DefaultTicks }

// Ticks implements plot.Ticker.
func (t plainTicks) Ticks(low, high float64) []plot.Tick {
	out := t.DefaultTicks.Ticks(low, high)
	for i := range out {
		if out[i].Label != "" {
			out[i].Label = strconv.FormatFloat(out[i].Value, 'g', -1, 64)
		}
	}
	return out
}

// curveOf is one line: a figure's median for each number of nodes, the fewest first.
func curveOf(cases []benchCase, results []result, side, key string) (out plotter.XYs) {
	for _, c := range cases {
		k := slices.IndexFunc(results, func(r result) bool { return r.Case == c.Name })
		if c.Load != "large" || k < 0 {
			continue
		}
		if s, ok := results[k].Sides[side][key]; ok {
			out = append(out, plotter.XY{X: float64(c.Nodes), Y: s.Median})
		}
	}
	slices.SortFunc(out, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	return out
}
