//go:build lab

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/kube/filters"
	"github.com/muster-scheduler/muster/internal/lab"
	"github.com/muster-scheduler/muster/internal/replay"
)

// fetch reads what a URL answers.
func fetch(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", url, resp.Status, text, err)
	}
	return text
}

// TestReplayUnderLoad records what a live scheduler decided under load, and decides each of it again from its file: the same
// plans, byte for byte. KAI's archive and order are served beside, and the command line saves and replays.
func TestReplayUnderLoad(t *testing.T) {
	const wanted = 100
	w := newFixture(t, 6, lab.Options{})
	greedy, poor := queue("greedy", "root"), queue("poor", "root")
	poor.Spec.Resources.GPU.Quota, greedy.Spec.Resources.GPU.Quota = 24, 0
	for _, q := range []*queuev2.Queue{greedy, poor} {
		w.create(t, q)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	conf := filepath.Join(t.TempDir(), "conf.yaml")
	if err := os.WriteFile(conf, []byte("tiers:\n- plugins: [{name: predicates}, {name: proportion}, {name: priority}, {name: nodeplacement}, {name: minruntime}, {name: snapshot}, {name: reflectjoborder}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(address, ":")
	muster := newProcess(t, "all", w.lab.Kubeconfig(), "--plugin-server-port="+port, "--record-decisions=400", "--scheduler-conf="+conf)
	muster.start()
	muster.awaitReady(t)
	w.namespace(t, "load")
	// Work that comes and ends all the time, of two queues of which one lives on the other's share, so that there are binds,
	// evictions and promises in what is recorded.
	tick := time.NewTicker(60 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(80 * time.Second)
	var cycles []replay.Cycle
	for i := 0; len(cycles) <= wanted; i++ { // the latest cycle is listed too, and kept only if it decided something
		name, size := "greedy", 4
		if i%3 == 2 {
			name, size = "poor", 8
		}
		j := gang("load", fmt.Sprintf("%s-%d", name, i), size, "")
		for _, m := range []map[string]string{j.Labels, j.Spec.Template.Labels} {
			m["kai.scheduler/queue"] = name
		}
		j.Spec.Template.Annotations = map[string]string{lab.AnnotationRunFor: fmt.Sprintf("%dms", 1500+i%7*300)}
		w.create(t, j)
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("only %d cycles decided something within 80 s", len(cycles))
		}
		if i%10 == 9 {
			if err := json.Unmarshal(fetch(t, "http://"+address+"/snapshot?list"), &cycles); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := filters.Register(builtin.Registry(), filters.Options{})
	same, binds, evictions, size := 0, 0, 0, 0
	for _, c := range cycles[:wanted] {
		text := fetch(t, fmt.Sprintf("http://%s/snapshot?cycle=%d", address, c.Cycle))
		size += len(text)
		k, err := replay.Read(bytes.NewReader(text), replay.DefaultLimits())
		if err != nil {
			t.Fatalf("cycle %d: %v", c.Cycle, err)
		}
		out, err := k.Run(t.Context(), r)
		if err != nil {
			t.Fatalf("cycle %d: %v", c.Cycle, err)
		}
		if !out.Same {
			was, now := plansText(t, k.Plans), plansText(t, out.Plans)
			t.Errorf("cycle %d decided\n%s\nand replays as\n%s", c.Cycle, was, now)
			continue
		}
		same++
		binds += c.Binds
		evictions += c.Evictions
	}
	t.Logf("%d of %d snapshots taken under load replay to byte-equal plans: %d binds, %d evictions; %d KB a file on average", same, wanted, binds, evictions, size/wanted/1024)
	if binds == 0 || evictions == 0 {
		t.Error("there was no load worth the name")
	}
	archive := filepath.Join(t.TempDir(), "kai.zip")
	if err := os.WriteFile(archive, fetch(t, "http://"+address+"/get-snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}
	var order struct {
		Global []map[string]any            `json:"global_order"`
		Queues map[string][]map[string]any `json:"queue_order"`
	}
	if err := json.Unmarshal(fetch(t, "http://"+address+"/get-job-order"), &order); err != nil || order.Global == nil || order.Queues == nil {
		t.Errorf("order %+v, %v", order, err)
	}
	saved := filepath.Join(t.TempDir(), "saved")
	for _, args := range [][]string{
		{"snapshot", "save", saved, "--server", address}, {"replay", saved}, {"replay", archive}, {"snapshot-tool", "--filename", archive},
	} {
		out, err := exec.Command(os.Getenv(binaryEnv), args...).CombinedOutput()
		if err != nil {
			t.Errorf("muster %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	muster.stop(t)
}

func plansText(t *testing.T, plans []engine.Plan) []byte {
	t.Helper()
	text, err := replay.Bytes(plans)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
