package picture

import (
	"fmt"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/muster-scheduler/muster/internal/sim"
)

// Inflations draws results of one Inflation as PNG, over what the pods that had come asked for: above, how much of the
// cluster was allocated, below, how much was free and of no use.
func Inflations(w io.Writer, title string, results []*sim.Inflated) error {
	canvas := vgimg.NewWith(vgimg.UseWH(plotWidth, plotHeight), vgimg.UseDPI(plotDPI))
	dc := draw.New(canvas)
	dc.FillPolygon(color.White, []vg.Point{dc.Min, {X: dc.Max.X, Y: dc.Min.Y}, dc.Max, {X: dc.Min.X, Y: dc.Max.Y}})
	top, bottom := plot.New(), plot.New()
	top.Title.Text = title
	top.Title.TextStyle.Font.Size, top.Title.TextStyle.Font.Variant = fontSize+2, "Sans"
	top.Y.Label.Text, bottom.Y.Label.Text = "allocated, % of GPUs", "expected fragmentation, % of GPUs"
	bottom.X.Label.Text = "asked for by the pods that have come, % of GPUs"
	for _, p := range []*plot.Plot{top, bottom} {
		for _, text := range []*draw.TextStyle{&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
			text.Font.Size, text.Font.Variant = fontSize, "Sans"
		}
		p.X.Min, p.Y.Min = 0, 0
		p.X.Tick.Marker, p.Y.Tick.Marker = ticks(10), ticks(5)
		p.Add(plotter.NewGrid())
	}
	top.Legend.Top, top.Legend.Left = true, true
	for i, r := range results {
		for _, c := range []struct {
			on     *plot.Plot
			values []float64
		}{{top, r.Allocated}, {bottom, r.Unusable}} {
			points := make(plotter.XYs, len(c.values))
			for k, v := range c.values {
				points[k] = plotter.XY{X: float64(k), Y: v}
			}
			line, err := plotter.NewLine(points)
			if err != nil {
				return fmt.Errorf("plot: %w", err)
			}
			line.Color, line.Width = hues()[i%len(hues())], vg.Points(1.8)
			c.on.Add(line)
			if c.on == top {
				top.Legend.Add(string(r.Placement), line)
			}
		}
	}
	top.Y.Max = 104
	panels := draw.Crop(dc, vg.Points(8), -vg.Points(16), vg.Points(8), -vg.Points(8))
	rows := plot.Align([][]*plot.Plot{{top}, {bottom}}, draw.Tiles{Rows: 2, Cols: 1, PadY: vg.Points(10)}, panels)
	top.Draw(rows[0][0])
	bottom.Draw(rows[1][0])
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(w); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}
