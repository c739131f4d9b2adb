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
	// combRow is how many nodes stand in a row, stripRows how many rows are one drawing, hexRow how many GPUs of a node stand in a row.
	combRow, stripRows, hexRow = 6, 10, 8
	// combGPUs is for how many GPUs nodes are drawn on a page: at least fewNodes, whatever nodes say that they have, and at most combNodes.
	combGPUs, fewNodes, combNodes = 40_000, 500, 5000
	// hexSize is the radius of a hexagon, in the drawing's units; colours is how many there are.
	hexSize, colours = 10, 8
)

// around is the outline of a GPU from its lower right corner on, which is at cornerX and cornerY from its middle, as a relative path of SVG.
const (
	around           = "l-8.7 5-8.7-5v-10l8.7-5 8.7 5z"
	cornerX, cornerY = 8.7, 5
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
	Strips                []strip
	More                  int
}

// strip is some rows of nodes. A browser draws only those that are in sight (content-visibility in the style sheet): all of them at once would take it seconds.
type strip struct {
	First, Last   string
	Cells         []cell
	Width, Height int
}

type legend struct{ Class, Mark, Text string }

type cell struct {
	X, Y        int
	Name, Title string
	Groups      []hexes
}

// hexes are the GPUs of a node that look alike: one outline, and their letters, where there are any.
type hexes struct {
	Class, Path string
	Marks       []letter
}

// letter is a text, of which each character has a place of its own where there are several places.
type letter struct{ X, Y, Text string }

// mark adds the letters of a GPU. Where they are one character, as they are but for those who have more than 26 queues, all are one text.
func (h *hexes) mark(x, y, text string) {
	if len(h.Marks) > 0 && len(text) == 1 {
		m := &h.Marks[0]
		m.X, m.Y, m.Text = m.X+" "+x, m.Y+" "+y, m.Text+text
		return
	}
	h.Marks = append(h.Marks, letter{x, y, text})
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
	most := 1
	for i := range l.Items {
		most = max(most, len(l.Items[i].Devices))
	}
	each := min(max(combGPUs/most, fewNodes), combNodes)
	from := min(page*each, len(l.Items))
	to := min(from+each, len(l.Items))
	if to < len(l.Items) {
		c.More = page + 1
	}
	wide := int(math.Ceil(float64(min(most, hexRow))*hexSize*math.Sqrt(3))) + 3*hexSize
	high := (most+hexRow-1)/hexRow*2*hexSize + 3*hexSize
	for i := from; i < to; i++ {
		n, k := &l.Items[i], (i-from)%(combRow*stripRows)
		if k == 0 {
			here := min(combRow*stripRows, to-i)
			c.Strips = append(c.Strips, strip{First: n.Name, Last: l.Items[i+here-1].Name, Width: 2*hexSize + min(combRow, to-from)*wide, Height: (here + combRow - 1) / combRow * high})
		}
		one := cell{X: hexSize + k%combRow*wide, Y: 3*hexSize + k/combRow*high, Name: n.Name}
		count, groups := map[string]int{}, map[string]int{}
		for j, d := range n.Devices {
			look, letters, what := "free", "", "free"
			switch {
			case d.Foreign:
				look, what = "foreign", "held by others"
			case d.UsedMilli == 0 && n.Problem != "":
				look = "unusable"
			case d.UsedMilli == 0:
			default:
				look, letters, what = class(queues[d.Queue]), mark(queues[d.Queue]), "of queue "+d.Queue
				if d.Queue == "" {
					look, letters, what = "foreign", "", "of no queue"
				}
				if d.Shared {
					look += " part"
					what = fmt.Sprintf("shared, %d%% taken, %s", d.UsedMilli/10, what)
				}
			}
			count[what]++
			at, known := groups[look+letters]
			if !known {
				at = len(one.Groups)
				groups[look+letters] = at
				one.Groups = append(one.Groups, hexes{Class: look})
			}
			g := &one.Groups[at]
			x, y := hexSize+(float64(j%hexRow)+float64(j/hexRow%2)/2)*hexSize*math.Sqrt(3), float64(j/hexRow*3*hexSize/2)
			g.Path += "M" + tenths(x+cornerX) + " " + tenths(y+cornerY) + around
			if letters != "" {
				g.mark(tenths(x), tenths(y), letters)
			}
		}
		var parts []string
		for _, what := range slices.Sorted(maps.Keys(count)) {
			parts = append(parts, fmt.Sprintf("%d %s", count[what], what))
		}
		if one.Title = n.Name + ": " + strings.Join(parts, "; "); n.Problem != "" {
			one.Title += "; takes no pods: " + n.Problem
		}
		s := &c.Strips[len(c.Strips)-1]
		s.Cells = append(s.Cells, one)
	}
	return c
}

func tenths(x float64) string { return strconv.FormatFloat(math.Round(10*x)/10, 'f', -1, 64) }

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
