package main

import (
	"bytes"
	"errors"
	"flag"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot/plotter"
)

var update = flag.Bool("update", false, "write the tables of results.yaml into docs/operations/scale.md")

// TestScalePage: docs/operations/scale.md has the tables that results.yaml gives.
func TestScalePage(t *testing.T) {
	const name, begin, end = "../docs/operations/scale.md", "<!-- bench: results.yaml -->\n", "<!-- end -->"
	cases, err := readCases(casesYAML)
	if err != nil {
		t.Fatal(err)
	}
	results, err := readResults("results.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if _, err := choose(cases, r.Case); err != nil {
			t.Error(err)
		}
	}
	have, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(have), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s: no tables between %q and %q", name, begin, end)
	}
	want := before + begin + "\n" + page(cases, results) + end + after
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if d := cmp.Diff(want, string(have)); d != "" {
		t.Errorf("%s is not as bench/results.yaml has it; run go test ./bench -update: %s", name, d)
	}
	curve(t, cases, results)
}

// curve compares the picture by its pixels: all of them on the kind of processor on which it was drawn; another kind rounds some differently.
func curve(t *testing.T, cases []benchCase, results []result) {
	const name = "../docs/operations/scale-curve.png"
	var b bytes.Buffer
	if err := drawCurve(&b, cases, results); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	most := 0.0
	if runtime.GOARCH != "amd64" {
		most = 0.002
	}
	if part := differ(t, b.Bytes(), have); part > most {
		t.Errorf("%s is not as bench/results.yaml has it, in %.3f%% of its pixels; run go test ./bench -update", name, 100*part)
	}
}

// TestCurve: a picture is another if one figure is.
func TestCurve(t *testing.T) {
	small, big := madeResult(), madeResult()
	big.Case = "d"
	cases := []benchCase{{Name: "c", Load: "large", Nodes: 500}, {Name: "d", Load: "large", Nodes: 1000}}
	var of [2]bytes.Buffer
	for i := range of {
		if err := drawCurve(&of[i], cases, []result{big, small}); err != nil {
			t.Fatal(err)
		}
		big.Sides[sideMuster]["rss_mib"] = spread{Median: 102}
	}
	if differ(t, of[0].Bytes(), of[1].Bytes()) == 0 {
		t.Error("a picture with 2 % more memory is the same")
	}
	at := curveOf(cases, []result{big, small}, sideMuster, "rss_mib")
	if d := cmp.Diff(plotter.XYs{{X: 500, Y: 100}, {X: 1000, Y: 102}}, at); d != "" {
		t.Error(d)
	}
	if got := curveOf(cases, []result{small}, sideBare, "rss_mib"); len(got) != 0 {
		t.Errorf("a side that was not measured is drawn at %v", got)
	}
}

// differ is in which part of their pixels two pictures are not the same.
func differ(t *testing.T, a, b []byte) float64 {
	var of [2]image.Image
	for i, text := range [][]byte{a, b} {
		var err error
		if of[i], err = png.Decode(bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	size := of[0].Bounds()
	if size != of[1].Bounds() {
		return 1
	}
	n := 0
	for y := range size.Dy() {
		for x := range size.Dx() {
			if of[0].At(x, y) != of[1].At(x, y) {
				n++
			}
		}
	}
	return float64(n) / float64(size.Dx()*size.Dy())
}

func TestCases(t *testing.T) {
	cases, err := readCases(casesYAML)
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]int{
		"fill": 4000, "seen": 4000, "prepared": 4000, "gang": 500, "reclaim": 2000, "reclaim-kubelet": 2000, "topology": 512, "churn": 4000, "large": 39936, "large-500": 3936, "large-1000": 7936, "large-2000": 15936, "ceiling-500": 3936, "ceiling-1000": 7936, "ceiling-2000": 15936, "ceiling-5000": 39936, "ceiling-racks": 5000, "racks": 5000, "installed": 4000,
		"groups-small": 3000, "groups-big": 3000, "groups-basic": 3000, "groups-racks": 3000, "groups-preempt": 100, "groups-preempt-ten": 100,
		"volcano-fill": 4000, "volcano-gang": 500, "vcjobs-10x100": 1000, "vcjobs-20x100": 2000, "vcjobs-500x4": 2000, "vcjobs-made": 8000,
	}
	for i := range cases {
		c := &cases[i]
		if got := c.pods(); got != pods[c.Name] {
			t.Errorf("%s has %d pods, want %d", c.Name, got, pods[c.Name])
		}
		if d := cmp.Diff(*c, c.scaled(1)); d != "" {
			t.Errorf("%s at its full size is another: %s", c.Name, d)
		}
		small := c.scaled(0.001)
		if small.pods() < 1 || small.pods() > small.Nodes*gpusPerNode || small.Nodes < small.Racks || small.Load == "churn" && small.Nodes < small.Gang {
			t.Errorf("%s scaled down: %d pods on %d nodes", c.Name, small.pods(), small.Nodes)
		}
	}
	for text, want := range map[string]string{
		"{name: a, nodes: 1}":                                                           "one of scenario and load",
		"{name: a, nodes: 1, scenario: fill, gang: 3}":                                  "gang is for loads",
		"{name: a, nodes: 1, load: racks, prepared: true}":                              "gang is for loads, and they need it",
		"{name: a, nodes: 1, load: racks, gang: 4}":                                     "prepared: of the loads, racks is",
		"{name: a, scenario: fill}":                                                     "nodes",
		"{name: a, nodes: 1, load: flood, gang: 1}":                                     "load is",
		"{name: a, nodes: 1, scenario: fill, reach: {speed: {max: 1}}}":                 "speed is no figure",
		"{name: a, nodes: 1, scenario: fill, reach: {all_bound_s: {max: 1, min: 1}}}":   "does not say one",
		"{name: a, nodes: 1, scenario: fill, sides: [muster, another]}":                 "another is neither",
		"{name: a, nodes: 1, scenario: fill, sides: [muster, muster alone]}":            "muster alone is neither",
		"{name: a, nodes: 1, scenario: fill, sides: [muster, bare]}":                    "bare is neither",
		"{name: a, nodes: 1, scenario: fill, reach: {all_bound_s: {atMost: 1}}, run: 1": "cases.yaml",
	} {
		if _, err := readCases([]byte("cases:\n- " + text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q in it", text, err, want)
		}
	}
}

func TestDriverArgs(t *testing.T) {
	c := benchCase{Scenario: "gang", Nodes: 5, Size: 4, GPUs: 8}
	if got, want := strings.Join(c.driverArgs(sideKube), " "), "-scenario gang -nodes 5 -gpu-per-pod 8 -size 4 -api kube -scheduler default-scheduler"; got != want {
		t.Errorf("arguments %s, want %s", got, want)
	}
	c = benchCase{Scenario: "reclaim", Nodes: 5}
	if got, want := strings.Join(c.driverArgs(sideMuster), " "), "-scenario reclaim -nodes 5 -gpu-per-pod 1"; got != want {
		t.Errorf("arguments %s, want %s", got, want)
	}
}

func TestChoose(t *testing.T) {
	cases := []benchCase{{Name: "a"}, {Name: "b", Long: true}, {Name: "c", Installed: true}, {Name: "d"}}
	for only, want := range map[string]string{"": "a d", "b": "b", "d,c": "c d"} {
		got, err := choose(cases, only)
		var names []string
		for _, c := range got {
			names = append(names, c.Name)
		}
		if err != nil || strings.Join(names, " ") != want {
			t.Errorf("%q chooses %v, %v, want %s", only, names, err, want)
		}
	}
	if _, err := choose(cases, "a,x"); err == nil || !strings.Contains(err.Error(), "no case x") {
		t.Errorf("the error is %v", err)
	}
}

func TestWish(t *testing.T) {
	for name, w := range map[string]wish{
		"negative rounds":   {rounds: -1, scale: 1},
		"no size":           {},
		"more than all":     {scale: 2},
		"a side of neither": {scale: 1, side: "another"},
		"results of a part": {scale: 0.5, results: "f"},
		"results of a side": {scale: 1, results: "f", side: sideKube},
	} {
		if w.check(&bench{}) == nil {
			t.Errorf("%s: not refused", name)
		}
	}
	good := wish{scale: 1, results: "f", rounds: 2}
	if err := good.check(&bench{}); err != nil {
		t.Error(err)
	}
	if good.check(&bench{profile: "d"}) == nil || good.check(&bench{load: []string{"-nodes", "3"}}) == nil {
		t.Error("results with profiles, or of another load, are not refused")
	}
}

// numbers that are made up: what is said of them is tested.
func madeResult() result {
	return result{
		Case: "c", Commit: "0123456789", Date: "2020-01-02", Machine: "2 cores", Command: "go run ./bench -case c", Rounds: 3,
		Sides: map[string]map[string]spread{
			sideMuster: {"all_bound_s": {30, 40}, "middle_per_s": {90, 80}, "rss_mib": {100, 120}, "gang_s": {0.5, 0.6}, "revisions_per_pod": {2.4, 2.5}, "made_per_s": {90, 85}},
			sideKube:   {"all_bound_s": {20, 25}, "made_per_s": {100, 90}, "middle_per_s": {100, 90}, "rss_mib": {0, 0}, "revisions_per_pod": {2, 2}},
		},
	}
}

func TestResultTable(t *testing.T) {
	most := 120.0
	c := benchCase{Name: "c", About: "a case", Reach: map[string]reach{"all_bound_s": {MaxRatio: 1.25}, "middle_per_s": {MinRatio: 0.8}, "rss_mib": {Max: &most}, "gang_s": {MaxRatio: 2}, "revisions_per_pod": {MaxMore: 0.5}, "restart_s": {Min: 3}, "made_per_s": {Min: 300, MinRatio: 0.9}}}
	r := madeResult()
	const table = `| figure | Muster | kube-scheduler | ratio | reach | |
|---|---|---|---|---|---|
| all bound since the start, s | 30.00 (40.00) | 20.00 (25.00) | 1.50 | ≤ 1.25 × | **not reached** |
| pods made a second | 90 (85) | 100 (90) | 0.90 | ≥ 300, or ≥ 0.9 × | reached |
| pods a second in the middle | 90 (80) | 100 (90) | 0.90 | ≥ 0.8 × | reached |
| revisions of etcd per pod, kubelets' not counted | 2.40 (2.50) | 2.00 (2.00) | 1.20 | ≤ + 0.5 | reached |
| the scheduler's largest memory, MiB | 100 (120) | 0 (0) |  | ≤ 120 | reached |
| 64 pods submitted to all bound, s | 0.50 (0.60) |  |  | ≤ 2 × |  |
`
	if d := cmp.Diff(table, r.table(&c)); d != "" {
		t.Error(d)
	}
	want := "### c\n\na case. `go run ./bench -case c`, median (worst) of 3; commit `0123456789`, 2020-01-02, 2 cores.\n\n" + table + "\n"
	if d := cmp.Diff(want, page([]benchCase{{Name: "none"}, c}, []result{r})); d != "" {
		t.Error(d)
	}
	if got := page([]benchCase{c}, nil); got != "No result is kept.\n\n" {
		t.Errorf("a page without results says %q", got)
	}
}

func TestSpread(t *testing.T) {
	for _, test := range []struct {
		key    string
		values []float64
		want   spread
	}{
		{"all_bound_s", []float64{3, 1, 2}, spread{2, 3}},
		{"all_bound_s", []float64{1, 2}, spread{2, 2}},
		{"middle_per_s", []float64{3, 1, 2, 4}, spread{2, 1}},
	} {
		if got := spreadOf(test.key, test.values); got != test.want {
			t.Errorf("%s of %v: %v, want %v", test.key, test.values, got, test.want)
		}
	}
}

func TestResultsFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results.yaml")
	if all, err := readResults(name); err != nil || len(all) != 0 {
		t.Errorf("no file has the results %v, %v", all, err)
	}
	a, b := madeResult(), madeResult()
	b.Case = "b"
	newer := a
	newer.Rounds = 5
	if err := errors.Join(writeResults(name, replaced([]result{a, b}, newer))); err != nil {
		t.Fatal(err)
	}
	got, err := readResults(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]result{b, newer}, got); d != "" {
		t.Error(d)
	}
	if err := os.WriteFile(name, []byte("- {case: a, speed: 1}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readResults(name); err == nil {
		t.Error("a field that nobody knows is no error")
	}
}

func TestRequests(t *testing.T) {
	got := requestsOf(`# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="binding",verb="POST",version="v1"} 7
apiserver_request_total{code="409",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="binding",verb="POST",version="v1"} 1
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="nodes",scope="cluster",subresource="",verb="WATCH",version="v1"} 1e+03
apiserver_other_total{resource="pods"} 3
`)
	if d := cmp.Diff(map[string]float64{"POST pods/binding": 8, "WATCH nodes": 1000}, got); d != "" {
		t.Error(d)
	}
}

// TestOwnCosts: this process's own costs are read as they are.
func TestOwnCosts(t *testing.T) {
	if now, most := memoryOf(os.Getpid(), "VmRSS"), memoryOf(os.Getpid(), "VmHWM"); now <= 0 || most <= 0 {
		t.Errorf("memory %v MiB, at most %v", now, most)
	}
	if memoryOf(-1, "VmRSS") != 0 || cpuOf(-1) != 0 {
		t.Error("a process that is not there has costs")
	}
}
