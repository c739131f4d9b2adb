package monitoringtest

import (
	"bytes"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/monitoring"
)

// TestDraw draws every page from made-up answers, some of them empty: whatever the answers, there is a picture. With MUSTER_SKETCHES
// they are kept in that folder.
func TestDraw(t *testing.T) {
	t.Parallel()
	from := time.Unix(1_000_000, 0)
	span := Span{From: from, To: from.Add(2 * time.Minute), Step: time.Second}
	for _, d := range monitoring.Dashboards() {
		var answers [][][]Series
		for i := range d.Panels {
			var panel [][]Series
			for q, query := range d.Panels[i].Queries {
				var all []Series
				for n := range (i + q) % 10 { // none at all, one, too many for a legend
					s := Series{Name: legend(query.Legend, map[string]string{"queue_name": string(rune('a' + n)), "action": "allocate", "reason": "TooLittleRoom"}), Labels: map[string]string{"queue_name": string(rune('a' + n))}}
					for k := range 120 {
						if k%50 < 40 { // with gaps
							s.At, s.Values = append(s.At, from.Add(time.Duration(k)*time.Second)), append(s.Values, math.Pow(10, float64(i%8-3))*(float64(n)+math.Abs(math.Sin(float64(k)/9))))
						}
					}
					all = append(all, s)
				}
				panel = append(panel, all)
			}
			answers = append(answers, panel)
		}
		var out bytes.Buffer
		if err := Draw(&out, &d, answers, span); err != nil {
			t.Fatal(err)
		}
		if folder := os.Getenv("MUSTER_SKETCHES"); folder != "" {
			if err := os.WriteFile(filepath.Join(folder, d.Name+".png"), out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		picture, err := png.Decode(&out)
		if err != nil {
			t.Fatal(err)
		}
		if size := picture.Bounds().Size(); size.X < 1200 || size.X > 2400 || size.Y < 600 {
			t.Errorf("%s is %v pixels large", d.Name, size)
		}
	}
}

// TestLacking: a panel without an answer lacks one, and so does one that only ever says zero, unless that is what it should say.
func TestLacking(t *testing.T) {
	t.Parallel()
	p := &monitoring.Panel{Title: "p", Queries: []monitoring.Query{{Expr: "e"}}}
	zero, some := []Series{{Values: []float64{0, 0}}}, []Series{{Values: []float64{0}}, {Values: []float64{0, 2}}}
	for _, c := range []struct {
		calm    bool
		answers []Series
		want    string
	}{
		{false, nil, `panel "p" is empty: no answer to e`},
		{true, nil, `panel "p" is empty: no answer to e`},
		{false, zero, `panel "p" shows nothing but zero: e`},
		{true, zero, ""},
		{false, some, ""},
	} {
		if p.Calm = c.calm; Lacking(p, [][]Series{c.answers}) != c.want {
			t.Errorf("%v, calm %v: %q, want %q", c.answers, c.calm, Lacking(p, [][]Series{c.answers}), c.want)
		}
	}
	if got := format(monitoring.Milliseconds, 1234) + format(monitoring.Bytes, 3<<29) + format(monitoring.Ratio, 0.125) + format(monitoring.Number, 12345) + format(monitoring.Seconds, 0.00042); got != "1.23 s1.50 GiB12.5 %12.3 k420 µs" {
		t.Error(got)
	}
}
