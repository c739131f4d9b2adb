package trial

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const twoQueues = `{"totalResource":{"GPU":10,"CPU":64000,"Memory":1000},"queues":[
	{"uid":"d","name":"dept","resourceShare":{"gpu":{"request":9}}},
	{"uid":"a","name":"team","parentQueue":"d","priority":2,"resourceShare":{"gpu":{"deserved":2.5,"maxAllowed":8,"request":9}}}]}`

// simulate runs `muster-lab sim` with arguments and standard input.
func simulate(stdin string, args ...string) (stdout, stderr string, err error) {
	var out, more bytes.Buffer
	c := NewSim()
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(args)
	c.SetIn(strings.NewReader(stdin))
	c.SetOut(&out)
	c.SetErr(&more)
	err = c.Execute()
	return out.String(), more.String(), err
}

func TestSimFairShare(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "queues.json")
	if err := os.WriteFile(file, []byte(twoQueues), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, stdin, out, err string
		args                  []string
	}{
		{"table", "", "QUEUE  PRIORITY  GPU QUOTA  LIMIT  WEIGHT  WANTS  FAIR SHARE: GPU  CPU (m)  MEMORY (B)\n" +
			"dept          0          0      -       1      9                2    64000        1000\n" +
			"team          2        2.5      8       1      9                8    64000        1000\n", "", []string{file}},
		{"tree", twoQueues, "\n  team  ", "", []string{"-", "--hierarchy"}},
		{"csv", twoQueues, "UID,Name,GPU,CPU,Memory\nd,dept,2,64000,1000\na,team,8,64000,1000\n", "", []string{"-", "-o", "csv"}},
		{"json", twoQueues, "{\n  \"a\": {\n    \"gpu\": 8,\n    \"cpu\": 64000,\n", "", []string{"-", "-o", "json"}},
		{"yaml", twoQueues, "a:\n  cpu: 64000\n  gpu: 8\n  memory: 1000\n", "", []string{"-", "-o", "yaml"}},
		{"empty", "{}", "There are no queues.\n", "", []string{"-"}},
		{"format", "", "", "--output is \"xml\"; it must be table, json, yaml or csv", []string{"-", "-o", "xml"}},
		{"no file", "", "", "absent.json", []string{filepath.Join(t.TempDir(), "absent.json")}},
		{"bad file", "{", "", "standard input: unexpected EOF", []string{"-"}},
		{"bad key", `{"quues":[]}`, "", `standard input: json: unknown field "quues"`, []string{"-"}},
		{"bad queue", `{"queues":[{}]}`, "", "standard input: queues[0]: uid is missing", []string{"-"}},
		{"nothing to do", "", "", "name a FILE", nil},
		{"both", "", "", "leave one of them out", []string{"-", "--listen", ":0"}},
		{"both addresses", "", "", "leave one of them out", []string{"--listen", ":0", "--port", "1"}},
		{"port and file", "", "", "leave one of them out", []string{"-", "--port", "1"}},
		{"cors alone", "", "", "--enable-cors is for --listen", []string{"-", "--enable-cors"}},
		{"bad address", "", "", "--listen nowhere:x: ", []string{"--listen", "nowhere:x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, _, err := simulate(c.stdin, append([]string{"fairshare"}, c.args...)...)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if !strings.Contains(out, c.out) {
				t.Errorf("printed\n%s\nwant\n%s", out, c.out)
			}
		})
	}
}

// TestSimListen: it says where it listens, answers, and ends with its context.
func TestSimListen(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		c := NewSim()
		c.SetArgs([]string{"fairshare", "--listen", "127.0.0.1:0", "--enable-cors"})
		c.SetErr(w)
		ended <- c.ExecuteContext(ctx)
	}()
	said := make([]byte, 200)
	n, err := r.Read(said)
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(strings.TrimPrefix(string(said[:n]), "serving POST "))
	answer, err := http.Post(url, "application/json", strings.NewReader(twoQueues))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if want := `{"a":{"gpu":8,"cpu":64000,"memory":1000},"d":{"gpu":2,"cpu":64000,"memory":1000}}` + "\n"; err != nil || string(body) != want {
		t.Errorf("answered %q (%v), want %q", body, err, want)
	}
	if answer.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Error("--enable-cors does nothing")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

const twoTeams = `
Cycles: 300
WindowSize: 60
Nodes: [{GPUs: 8}]
Queues: [{Name: a}, {Name: b}]
Jobs: {a: {GPUs: 8, NumJobs: 9}, b: {GPUs: 8, NumJobs: 9}}
`

func TestSimTimeShare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(file("teams.yaml"), []byte(twoTeams), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, stdin, out, log, err string
		args                       []string
	}{
		{"csv", twoTeams, "Time,QueueID,Allocation,FairShare\n0,a,8.000000,4.000000\n0,b,0.000000,4.000000\n1,a,", "300 cycles of 1m0s, ", "", []string{"-i", "-", "-o", "-"}},
		{"json", twoTeams, `{"time":0,"queueID":"a","allocation":8,"fairShare":4,"usage":0}`, "MEAN FAIR SHARE", "", []string{"-i", "-", "-o", "-", "--format", "json"}},
		{"files", "", "", "QUEUE  GPU-TIME", "", []string{"-i", file("teams.yaml"), "-o", file("out.json"), "--plot", file("out.PNG")}},
		{"drawing", twoTeams, "", "", "", []string{"-i", "-", "-o", file("out.csv"), "--plot", file("out.svg")}},
		{"KAI's flag", twoTeams, "Time,", "", "", []string{"-i", "-", "-o", "-", "--enable-controller-logs"}},
		{"no input", "", "", "", "name a file with --input", nil},
		{"no output", "", "", "", "--output is empty", []string{"-i", "-", "-o", ""}},
		{"format", "", "", "", "--format is \"xml\"; it must be csv or json", []string{"-i", "-", "--format", "xml"}},
		{"plot", "", "", "", "must end in .png or .svg", []string{"-i", "-", "--plot", "x.gif"}},
		{"absent", "", "", "", "absent.yaml", []string{"-i", file("absent.yaml")}},
		{"bad key", "cycels: 1", "", "", `standard input: json: unknown field "cycels"`, []string{"-i", "-"}},
		{"bad rule", "queues: [{name: a, weight: -1}]", "", "", `standard input: queue "a": weight is -1`, []string{"-i", "-"}},
		{"bad place", twoTeams, "", "", "--output " + file("absent/x.csv"), []string{"-i", "-", "-o", file("absent/x.csv")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, log, err := simulate(c.stdin, append([]string{"timeshare"}, c.args...)...)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if !strings.Contains(out, c.out) || !strings.Contains(log, c.log) || strings.Contains(log, "\r") {
				t.Errorf("printed\n%.300s\nand\n%s\nwant\n%s\nand\n%s", out, log, c.out, c.log)
			}
			for _, arg := range c.args {
				if magic := map[string]string{"out.json": "[\n{\"time\":0", "out.PNG": "\x89PNG", "out.svg": "<?xml", "out.csv": "Time,"}[filepath.Base(arg)]; magic != "" {
					if text, err := os.ReadFile(arg); err != nil || !strings.HasPrefix(string(text), magic) {
						t.Errorf("%s: %v, begins %.20q", arg, err, text)
					}
				}
			}
		})
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"[........................................] 0 of 100 cycles":           progress(0, 100, 0),
		"[##########..............................] 25 of 100 cycles, 9s left": progress(25, 100, 3*time.Second),
		"[########################################] 100 of 100 cycles":         progress(100, 100, time.Minute),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestSimFragmentation: the placements are compared, and the curves drawn; what makes no sense is refused by name.
func TestSimFragmentation(t *testing.T) {
	t.Parallel()
	picture := filepath.Join(t.TempDir(), "x.png")
	out, _, err := simulate("", "fragmentation", "--nodes", "4", "--seeds", "1", "--plot", picture)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"binpack", "spread", "fragmentation", "GPUS ALLOCATED"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if b, err := os.ReadFile(picture); err != nil || !bytes.HasPrefix(b, []byte("\x89PNG")) {
		t.Errorf("the plot is no PNG: %v", err)
	}
	for args, want := range map[string]string{
		"--mix other": "--mix is", "--nodes 0": "--nodes is 0", "--seeds 0": "--seeds is 0", "--until 10": "--until is 10", "--output x": "x",
	} {
		if _, _, err := simulate("", append([]string{"fragmentation"}, strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", args, err, want)
		}
	}
}
