package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/deploy/chart"
)

// tree writes files below a new folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCgroup(t *testing.T) {
	const below = "node/kubepods/burstable/pod1/"
	for name, files := range map[string]map[string]string{
		"version 1": {
			"memory/" + below + "c1/memory.max_usage_in_bytes": "1048576\n", "memory/" + below + "c1/memory.failcnt": "2\n", "memory/" + below + "c1/cgroup.procs": "42\n43\n",
			"memory/" + below + "c2/memory.max_usage_in_bytes": "7\n",
			"cpu/" + below + "c1/cpu.stat":                     "nr_periods 0\nnr_throttled 0\nthrottled_time 1500000000\n", "cpuacct/" + below + "c1/cpuacct.usage": "2000000000\n",
		},
		"version 2": {
			"cgroup.controllers": "cpu memory\n", below + "c1/memory.peak": "1048576\n", below + "c1/memory.events": "low 0\nhigh 9\nmax 2\noom 0\noom_kill 0\n",
			below + "c1/cpu.stat": "usage_usec 2000000\nuser_usec 1\nnr_throttled 3\nthrottled_usec 1500000\n", below + "c1/cgroup.procs": "42\n43\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, files)
			g, err := findCgroup(root, "node", "c1")
			if err != nil {
				t.Fatal(err)
			}
			want := figures{Peak: 1 << 20, LimitReached: 2, Throttled: 1.5, used: 2 * time.Second}
			if got, err := g.read(); err != nil || got != want {
				t.Errorf("read %+v, %v, want %+v", got, err, want)
			}
			if pid, err := g.process(); err != nil || pid != 42 {
				t.Errorf("process %d, %v", pid, err)
			}
			for _, id := range []string{"c3", ""} {
				if _, err := findCgroup(root, "node", id); err == nil {
					t.Errorf("container %q was found", id)
				}
			}
		})
	}
}

func TestChartImage(t *testing.T) {
	got, err := chartImage(chart.Files())
	if err != nil || !strings.HasPrefix(got, "docker.io/registry/local/muster/muster:") || strings.HasSuffix(got, ":") {
		t.Errorf("the image is %q, %v", got, err)
	}
}

// made up: what is said of them is tested, not they.
func made() *comparison {
	const mi = 1 << 20
	binder := process{Name: "muster-binder", Args: []string{"run", "binder", "--leader-elect"}, MemoryLimit: 512 * mi, CPU: 2, RSS: 60, Cgroup: &figures{Peak: 128 * mi}}
	hook := process{Name: "muster-admission", Args: append([]string{"run", "admission"}, strings.Fields(strings.Repeat("--a-flag=of-some-length ", 8))...), MemoryLimit: 512 * mi, CPU: 1, RSS: 50, Cgroup: &figures{Peak: 64 * mi}}
	busier := hook
	busier.CPU, busier.Cgroup = 3, &figures{Peak: 256 * mi, Throttled: 0.5}
	return &comparison{
		Kubernetes: "v1.37.2", Nodes: 2, Jobs: 16, Cores: 2, Ratio: 1.25, Reach: 1.5,
		Ways: [2]way{
			{Name: "as installed", Where: "containers on a real node", Webhooks: 4, Policies: 9, Runs: []run{
				{AllBound: 5, FirstBound: 1, LabCPU: 9, Processes: []process{hook, hook, binder}},
				{AllBound: 4, FirstBound: 2, LabCPU: 8, Processes: []process{hook, busier, binder}},
				{AllBound: 6, FirstBound: 3, LabCPU: 7, Processes: []process{hook, hook, binder}},
			}},
			{Name: "muster run all", Where: "beside the lab", Runs: []run{{AllBound: 4, FirstBound: 1, LabCPU: 6, Processes: []process{{Name: "muster", Args: []string{"run", "all"}, CPU: 2.5, RSS: 90}}}}},
		},
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	if err := made().print(&out); err != nil {
		t.Fatal(err)
	}
	const want = `16 one-GPU Jobs on 2 simulated nodes, Kubernetes v1.37.2; 2 cores for everything.
Median (least to most) of 3 runs of each way, by turns.

                          as installed                  muster run all
processes                 3, containers on a real node  1, beside the lab
limits of memory, MiB     512                           none
limits of CPU, cores      none                          none
webhooks, policies        4, 9                          0, 0
last pod bound after, s   5.0 (4.0 to 6.0)              4.0 (4.0 to 4.0)
first pod bound after, s  2.00 (1.00 to 3.00)           1.00 (1.00 to 1.00)
Muster, CPU-s             4.0 (4.0 to 6.0)              2.5 (2.5 to 2.5)
lab, CPU-s                8.0 (7.0 to 9.0)              6.0 (6.0 to 6.0)

ratio of the medians 1.25, reach 1.5: reached

The most of any run and replica:
process              CPU-s  RSS MiB  cgroup MiB  limit MiB  reached  throttled s  restarts
muster-admission ×2  3.0    50       256         512        0        0.5          0
muster-binder        2.0    60       128         512        0        0.0          0
muster               2.5    90       -           none       -        -            0
the limits of memory held: at most 50% of one was used (muster-admission)

flags:
muster-admission: run admission --a-flag=of-some-length --a-flag=of-some-length
    --a-flag=of-some-length --a-flag=of-some-length --a-flag=of-some-length --a-flag=of-some-length
    --a-flag=of-some-length --a-flag=of-some-length
muster-binder: run binder --leader-elect
muster: run all
`
	if got := out.String(); got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > width {
			t.Errorf("%d characters wide: %s", n, line)
		}
	}
}

func TestHold(t *testing.T) {
	reached := process{Name: "b", MemoryLimit: 10, Cgroup: &figures{Peak: 10, LimitReached: 3}}
	for want, all := range map[string][]process{
		"did NOT hold: killed at it: a":                {{Name: "a", MemoryLimit: 10, Restarts: 1, Ended: "OOMKilled"}, reached},
		"held, but were reached, so that cached files": {reached},
		"at most 90% of one was used (c)":              {{Name: "c", MemoryLimit: 10, Cgroup: &figures{Peak: 9}}, {Name: "d", MemoryLimit: 10, Cgroup: &figures{Peak: 5}}},
		"there was no limit":                           {{Name: "e", Cgroup: &figures{Peak: 9}}},
	} {
		if got := hold(all); !strings.Contains(got, want) {
			t.Errorf("%q, want %q in it", got, want)
		}
	}
}
