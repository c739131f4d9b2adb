package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
)

// smallCluster is a snapshot with a gang of two that has room and one of nine that has none.
func smallCluster() *cluster.Snapshot {
	s := cluster.NewStore(cluster.Options{})
	unlimited := []cluster.Quantity{{Name: "cpu", Value: -1}, {Name: "memory", Value: -1}, {Name: "gpu", Value: -1}}
	s.Apply(
		cluster.NodeState{Name: "n", UID: "n", Allocatable: []cluster.Quantity{{Name: "gpu", Value: 8000}, {Name: "pods", Value: 100}}},
		cluster.QueueState{Name: "q", UID: "q", Quota: unlimited, Limit: unlimited},
		cluster.ObjectState{Kind: cluster.Namespaces, Key: "kube-system", Object: &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "town"}}},
	)
	for name, pods := range map[string]int{"small": 2, "large": 9} {
		gang := cluster.Key{Face: "kai", Namespace: "ns", Name: name}
		s.Apply(cluster.GangState{Key: gang, UID: name, Queue: "q", Sets: cluster.FlatTree(int32(pods))})
		for i := range pods {
			uid := name + "-" + string(rune('a'+i))
			s.Apply(cluster.PodState{UID: uid, Namespace: "ns", Name: uid, Gang: gang, Ours: true, Requests: []cluster.Quantity{{Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}}})
		}
	}
	return s.Snapshot(cluster.UnixNano(1_700_000_000_000_000_000))
}

// run runs one of the commands.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "muster", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(NewReplay(Deps{Version: "v1", Registry: func(bool) engine.Registry { return builtin.Registry() }})...)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// recorder is a scheduler that has had three cycles, of which the first two decided something.
func recorder(t *testing.T) (address string, plans []engine.Plan) {
	t.Helper()
	e, err := engine.New(profile.BuiltIn(), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	snap := smallCluster()
	e.Run(t.Context(), snap, func(p engine.Plan) { plans = append(plans, p) })
	r, err := replay.NewRecorder("v1", e.Profile(), false, 1)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /snapshot", r)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	address = strings.TrimPrefix(server.URL, "http://")
	if _, err := run(t, "snapshot", "save", filepath.Join(t.TempDir(), "f"), "--server", address); err == nil || !strings.Contains(err.Error(), "no cycle yet") {
		t.Errorf("before the first cycle: %v", err)
	}
	r.Decided(snap, plans)
	r.Decided(snap, plans)
	r.Decided(snap, nil) // not what is decided on it: to be found out
	return address, plans
}

// TestSaveAndReplay: what a scheduler keeps is listed, saved and decided again; another decision than the one on record is told.
func TestSaveAndReplay(t *testing.T) {
	t.Parallel()
	address, plans := recorder(t)
	out, err := run(t, "snapshot", "list", "--server", address, "-o", "json")
	var cycles []replay.Cycle
	if err != nil || json.Unmarshal([]byte(out), &cycles) != nil || len(cycles) != 2 || cycles[0].Cycle != 2 || cycles[0].Binds != 2 || cycles[1].Cycle != 3 {
		t.Fatalf("of three cycles the second and the last are kept: %s, %v", out, err)
	}
	file := filepath.Join(t.TempDir(), "f")
	if out, err = run(t, "snapshot", "save", file, "--server", address, "--cycle", "2"); err != nil || !strings.Contains(out, "cycle 2 is in "+file) {
		t.Fatalf("%s, %v", out, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a snapshot is for its owner's eyes: %v, %v", info.Mode(), err)
	}
	out, err = run(t, "replay", file)
	if err != nil || !strings.Contains(out, "allocate for ns/small\n  bind     ns/small-a  n") || !strings.Contains(out, "ns/large waits: ") || !strings.HasSuffix(out, "the one on record, byte for byte\n") {
		t.Errorf("%s, %v", out, err)
	}
	out, err = run(t, "replay", file, "-o", "json")
	var told struct {
		Plans json.RawMessage `json:"plans"`
		Same  bool            `json:"same"`
	}
	if err != nil || json.Unmarshal([]byte(out), &told) != nil {
		t.Fatalf("%s, %v", out, err)
	}
	want, err := replay.Bytes(plans)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Compact(&got, told.Plans); err != nil || !told.Same || got.String() != string(want) {
		t.Errorf("same %v\n%s\n%s", told.Same, got.String(), want)
	}
	if _, err = run(t, "snapshot", "save", file, "--server", address); err != nil {
		t.Fatal(err)
	}
	if out, err = run(t, "replay", file); !errors.Is(err, errOther) || !strings.Contains(out, "NOT the one on record") {
		t.Errorf("%s, %v", out, err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"snapshot", "save", file, "--server", address, "--cycle", "1"}, "cycle 1 is not kept"},
		{[]string{"snapshot", "save", file, "--server", "127.0.0.1:1"}, "port-forward"},
		{[]string{"snapshot", "save", filepath.Join(file, "x"), "--server", address}, "write "},
		{[]string{"replay", file + "-none"}, "no such file"},
		{[]string{"replay", file, "-o", "table"}, "text, json or yaml"},
	} {
		if _, err := run(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.args, err)
		}
	}
}

// TestSnapshotTool: the output is KAI's, and the profiles are written.
func TestSnapshotTool(t *testing.T) {
	t.Parallel()
	address, _ := recorder(t)
	dir := t.TempDir()
	file, cpu, memory := filepath.Join(dir, "f"), filepath.Join(dir, "cpu"), filepath.Join(dir, "memory")
	if _, err := run(t, "snapshot", "save", file, "--server", address); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, "snapshot-tool", "--filename", file, "--verbosity", "4", "--cpuprofile", cpu, "--memprofile", memory)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	actions, _ := got["action_durations_ms"].(map[string]any)
	if total, _ := got["total_duration_ms"].(float64); total <= 0 || len(got) != 2 || len(actions) != 5 || actions["stalegangeviction"] == nil {
		t.Errorf("%s", out)
	}
	for _, f := range []string{cpu, memory} {
		if info, err := os.Stat(f); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, %v", f, info, err)
		}
	}
	if _, err := run(t, "snapshot-tool"); err == nil || !strings.Contains(err.Error(), "--filename") {
		t.Errorf("no file: %v", err)
	}
}
