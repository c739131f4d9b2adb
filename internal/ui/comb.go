package ui

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-scheduler/muster/internal/see"
)

const (
	// combNodes is how many nodes are drawn on a page, combRow how many stand in a row, hexRow how many GPUs of one.
	combNodes, combRow, hexRow = 500, 6, 8
	// hexSize is the radius of a hexagon, in the drawing's units; colours is how many there are.
	hexSize, colours = 10, 8
)

// hexagon is the outline of a GPU, as SVG's points.
var hexagon = func() string {
	var points []string
	for i := range 6 {
		angle := math.Pi/6 + float64(i)*math.Pi/3
		points = append(points, fmt.Sprintf("%.1f,%.1f", hexSize*math.Cos(angle), hexSize*math.Sin(angle)))
	}
	return strings.Join(points, " ")
}()

// comb is the GPUs of a shard, drawn.
type comb struct {
	List                  *see.NodeList
	Used, Total, Unusable int
	Legend                []legend
	Cells                 []cell
	Width, Height, More   int
}

type legend struct{ Class, Mark, Text string }

type cell struct {
	X, Y        int
	Name, Title string
	Hexes       []hex
}

type hex struct {
	X, Y, Class, Mark string
}

// draw draws one page of nodes.
func draw(l *see.NodeList, page int) *comb {
	c := &comb{List: l}
	queues := map[string]int{}
	for i := range l.Items {
		for _, d := range l.Items[i].Devices {
			c.Total++
			switch {
			case d.UsedMilli > 0:
				c.Used++
			case l.Items[i].Problem != "":
				c.Unusable++
			}
			if d.Queue != "" {
				queues[d.Queue] = 0
			}
		}
	}
	for i, q := range slices.Sorted(maps.Keys(queues)) {
		queues[q] = i
		c.Legend = append(c.Legend, legend{class(i), mark(i), q})
	}
	c.Legend = append(c.Legend, legend{"free", "", "free"}, legend{"unusable", "", "free on a node that takes no pods"}, legend{"foreign", "", "held by others"})
	from := min(page*combNodes, len(l.Items))
	to := min(from+combNodes, len(l.Items))
	if to < len(l.Items) {
		c.More = page + 1
	}
	most := 1
	for i := from; i < to; i++ {
		most = max(most, len(l.Items[i].Devices))
	}
	wide := int(math.Ceil(float64(min(most, hexRow))*hexSize*math.Sqrt(3))) + 3*hexSize
	high := (most+hexRow-1)/hexRow*2*hexSize + 3*hexSize
	for i := from; i < to; i++ {
		n, k := &l.Items[i], i-from
		one := cell{X: hexSize + k%combRow*wide, Y: 3*hexSize + k/combRow*high, Name: n.Name}
		count := map[string]int{}
		for j, d := range n.Devices {
			h := hex{
				X: strconv.FormatFloat(float64(hexSize)+(float64(j%hexRow)+float64(j/hexRow%2)/2)*hexSize*math.Sqrt(3), 'f', 1, 64),
				Y: strconv.Itoa(j / hexRow * 3 * hexSize / 2),
			}
			what := "free"
			switch {
			case d.Foreign:
				h.Class, what = "foreign", "held by others"
			case d.UsedMilli == 0 && n.Problem != "":
				h.Class = "unusable"
			case d.UsedMilli == 0:
				h.Class = "free"
			default:
				h.Class, h.Mark, what = class(queues[d.Queue]), mark(queues[d.Queue]), "of queue "+d.Queue
				if d.Queue == "" {
					h.Class, h.Mark, what = "foreign", "", "of no queue"
				}
				if d.Shared {
					h.Class += " part"
					what = fmt.Sprintf("shared, %d%% taken, %s", d.UsedMilli/10, what)
				}
			}
			count[what]++
			one.Hexes = append(one.Hexes, h)
		}
		var parts []string
		for _, what := range slices.Sorted(maps.Keys(count)) {
			parts = append(parts, fmt.Sprintf("%d %s", count[what], what))
		}
		if one.Title = n.Name + ": " + strings.Join(parts, "; "); n.Problem != "" {
			one.Title += "; takes no pods: " + n.Problem
		}
		c.Cells = append(c.Cells, one)
	}
	rows := (to - from + combRow - 1) / combRow
	c.Width, c.Height = 2*hexSize+min(combRow, max(1, to-from))*wide, 2*hexSize+rows*high
	return c
}

// class is the colour of a queue, mark its letters: they tell apart those of one colour.
func class(i int) string { return "q" + strconv.Itoa(i%colours) }

func mark(i int) string {
	letter := string(rune('A' + i%26))
	if i < 26 {
		return letter
	}
	return letter + strconv.Itoa(i/26)
}

// nodes lists the nodes with GPUs, to those who may list nodes.
func (a *Answerer) nodes(q *question) (any, error) {
	if err := q.viewer.list("", "nodes"); err != nil {
		return nil, reviewed(err)
	}
	return a.each(q, func(c *see.Cycle, complete func(*see.Origin)) (any, error) {
		l, err := see.Nodes(q.Context(), c)
		if err == nil {
			complete(&l.Cycle)
		}
		return l, err
	})
}

// pageOf is which page is asked for; 0 for what is no number.
func pageOf(q *question) int {
	n, err := strconv.Atoi(cmp.Or(q.FormValue("page"), "0"))
	if err != nil {
		return 0
	}
	return min(max(n, 0), math.MaxInt/combNodes-1)
}
