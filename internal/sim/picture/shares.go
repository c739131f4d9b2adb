package picture

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/muster-scheduler/muster/internal/sim"
)

// The plot's size and measures.
const (
	plotWidth  = 10 * vg.Inch
	plotHeight = 6.5 * vg.Inch
	plotDPI    = 120
	legendLine = 0.26 * vg.Inch
	fontSize   = vg.Length(11)
)

// maxSteps is how many changes a panel draws one by one; of more, it draws means.
const maxSteps = 3000

// hues returns colours that people with any kind of colour vision tell apart (Okabe and Ito's).
func hues() []color.RGBA {
	return []color.RGBA{
		{0x00, 0x72, 0xb2, 0xff},
		{0xe6, 0x9f, 0x00, 0xff},
		{0x00, 0x9e, 0x73, 0xff},
		{0xcc, 0x79, 0xa7, 0xff},
		{0x56, 0xb4, 0xe9, 0xff},
		{0xd5, 0x5e, 0x00, 0xff},
		{0x99, 0x99, 0x99, 0xff},
		{0x33, 0x33, 0x33, 0xff},
	}
}

// sharesPlot is a series as it is drawn.
type sharesPlot struct{ *sim.Series }

// Shares draws the leaf queues over time, as "png" or "svg": above, who has how many GPUs, stacked; below, who is entitled to how
// many.
func Shares(w io.Writer, s *sim.Series, format, title string) error {
	var canvas vg.CanvasSizer
	var out io.WriterTo
	switch format {
	case "png":
		c := vgimg.NewWith(vgimg.UseWH(plotWidth, plotHeight), vgimg.UseDPI(plotDPI))
		canvas, out = c, vgimg.PngCanvas{Canvas: c}
	case "svg":
		c := vgsvg.New(plotWidth, plotHeight)
		canvas, out = c, c
	default:
		return fmt.Errorf("a plot can be png or svg, not %q", format)
	}
	if err := (sharesPlot{s}).draw(draw.New(canvas), title); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	if _, err := out.WriteTo(w); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}

// curve is a step function: values[i] holds from times[i] to times[i+1].
type curve struct {
	times  []float64
	values []float64 // GPUs
}

// leaves are the trails that are drawn.
func (s sharesPlot) leaves() []*sim.Trail {
	var out []*sim.Trail
	for i := range s.Queues {
		if s.Queues[i].Leaf {
			out = append(out, &s.Queues[i])
		}
	}
	return out
}

// axis returns the unit of the time axis, and how many cycles it is.
func (s sharesPlot) axis() (name string, cycles float64) {
	if !s.Timed {
		return "cycle", 1
	}
	whole := time.Duration(s.Cycles()) * s.Step
	unit := time.Minute
	name = "minutes"
	switch {
	case whole >= 72*time.Hour:
		unit, name = 24*time.Hour, "days"
	case whole >= 3*time.Hour:
		unit, name = time.Hour, "hours"
	}
	return name, float64(unit) / float64(s.Step)
}

// curves turns trails into step functions that share their times, and says of how many cycles each value is the mean.
func (s sharesPlot) curves(values func(*sim.Trail) []int64) (out []curve, mean int) {
	leaves := s.leaves()
	_, unit := s.axis()
	var at []int
	for k := range s.Cycles() {
		if k == 0 || slices.ContainsFunc(leaves, func(q *sim.Trail) bool { return values(q)[k] != values(q)[k-1] }) {
			at = append(at, k)
		}
	}
	mean = 1
	if len(at) > maxSteps {
		mean = (s.Cycles() + maxSteps/3 - 1) / (maxSteps / 3)
		at = at[:0]
		for k := 0; k < s.Cycles(); k += mean {
			at = append(at, k)
		}
	}
	for _, q := range leaves {
		c := curve{}
		for _, k := range at {
			sum, n := int64(0), 0
			for ; n < mean && k+n < s.Cycles(); n++ {
				sum += values(q)[k+n]
			}
			c.times = append(c.times, float64(k)/unit)
			c.values = append(c.values, float64(sum)/float64(n)/1000)
		}
		c.times = append(c.times, float64(s.Cycles())/unit)
		out = append(out, c)
	}
	return out, mean
}

// outline is the curve as points: along the top of every step.
func (c curve) outline() plotter.XYs {
	var out plotter.XYs
	for i, v := range c.values {
		out = append(out, plotter.XY{X: c.times[i], Y: v}, plotter.XY{X: c.times[i+1], Y: v})
	}
	return out
}

func (s sharesPlot) draw(dc draw.Canvas, title string) error {
	unit, _ := s.axis()
	top, bottom := plot.New(), plot.New()
	for _, p := range []*plot.Plot{top, bottom} {
		for _, text := range []*draw.TextStyle{&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label} {
			text.Font.Size, text.Font.Variant = fontSize, "Sans"
		}
		p.X.Min, p.Y.Min = 0, 0
		p.X.Tick.Marker, p.Y.Tick.Marker = ticks(10), ticks(5)
		p.Add(plotter.NewGrid())
	}
	bottom.X.Label.Text = unit
	top.Y.Label.Text = "allocated GPUs, stacked"
	bottom.Y.Label.Text = "fair share, GPUs"
	leaves, colours := s.leaves(), hues()
	hue := func(i int) color.RGBA { return colours[i%len(colours)] }

	held, mean := s.curves(func(q *sim.Trail) []int64 { return q.Allocation })
	var floor plotter.XYs
	for i, c := range held {
		edge := c.outline()
		for k := range edge {
			if floor != nil {
				edge[k].Y += floor[k].Y
			}
		}
		ring := slices.Clone(edge)
		for k := len(edge) - 1; k >= 0; k-- {
			under := 0.0
			if floor != nil {
				under = floor[k].Y
			}
			ring = append(ring, plotter.XY{X: edge[k].X, Y: under})
		}
		if len(ring) > 0 {
			area, err := plotter.NewPolygon(ring)
			if err != nil {
				return err
			}
			area.Color, area.LineStyle.Width = hue(i), 0
			top.Add(area)
		}
		floor = edge
	}
	shares, more := s.curves(func(q *sim.Trail) []int64 { return q.FairShare })
	for i, c := range shares {
		line, err := plotter.NewLine(c.outline())
		if err != nil {
			return err
		}
		line.Color, line.Width = hue(i), vg.Points(1.6)
		if i > 0 { // equal shares lie on each other: the gaps show the one below
			line.Dashes = []vg.Length{vg.Points(float64(4 + 2*(i%4))), vg.Points(float64(2 + 2*(i%4)))}
		}
		bottom.Add(line)
	}
	gpus := max(1, float64(s.GPUs)/1000)
	for _, p := range []*plot.Plot{top, bottom} {
		p.X.Max = 1
		if len(held) > 0 {
			p.X.Max = held[0].times[len(held[0].times)-1]
		}
		p.Y.Max = max(p.Y.Max, gpus) * 1.04
	}
	if n := max(mean, more); n > 1 {
		title += fmt.Sprintf(" (means of %d cycles)", n)
	}

	dc.FillPolygon(color.White, []vg.Point{dc.Min, {X: dc.Max.X, Y: dc.Min.Y}, dc.Max, {X: dc.Min.X, Y: dc.Max.Y}})
	below := legend(dc, title, leaves, hue)
	panels := draw.Crop(dc, vg.Points(8), -vg.Points(16), vg.Points(8), -below)
	rows := plot.Align([][]*plot.Plot{{top}, {bottom}}, draw.Tiles{Rows: 2, Cols: 1, PadY: vg.Points(10)}, panels)
	top.Draw(rows[0][0])
	bottom.Draw(rows[1][0])
	return nil
}

// legend writes the title and the names of the queues along the upper edge, and returns how much room that takes.
func legend(dc draw.Canvas, title string, leaves []*sim.Trail, hue func(int) color.RGBA) vg.Length {
	style := plot.New().Legend.TextStyle
	style.Font.Size, style.Font.Variant = fontSize, "Sans"
	style.YAlign = draw.YCenter
	left, box, y := vg.Points(48), vg.Points(10), dc.Max.Y-legendLine
	heading := style
	heading.Font.Size = fontSize + 2
	dc.FillText(heading, vg.Point{X: left, Y: y + box/2}, title)
	y -= legendLine
	x := left
	for i, q := range leaves {
		width := box + vg.Points(5) + style.Width(q.Name) + vg.Points(18)
		if x+width > dc.Max.X-vg.Points(16) && x > left {
			y, x = y-legendLine, left
		}
		dc.FillPolygon(hue(i), []vg.Point{{X: x, Y: y}, {X: x + box, Y: y}, {X: x + box, Y: y + box}, {X: x, Y: y + box}})
		dc.FillText(style, vg.Point{X: x + box + vg.Points(5), Y: y + box/2}, q.Name)
		x += width
	}
	return dc.Max.Y - y + vg.Points(6)
}

// ticks marks an axis at about so many round numbers.
func ticks(about int) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) []plot.Tick {
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
			out = append(out, plot.Tick{Value: k * step, Label: strconv.FormatFloat(k*step, 'g', 6, 64)})
		}
		return out
	})
}
