package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/controllers/nodezones"
)

// TestExporterFlags: KAI's flags have KAI's defaults, and say what the exporter does.
func TestExporterFlags(t *testing.T) {
	t.Parallel()
	cmd := numaExporter()
	for flag, want := range map[string]string{
		"node-name": "", "podresources-socket": "/var/lib/kubelet/pod-resources/kubelet.sock", "sysfs-root": "/sys",
		"poll-interval": "1s", "drift-resync-interval": "1m0s", "qps": "50", "burst": "100",
	} {
		if f := cmd.Flags().Lookup(flag); f == nil || f.DefValue != want {
			t.Errorf("--%s: %+v, want the default %q", flag, f, want)
		}
	}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o := exporterDefaults()
	exporterFlags(fs, &o)
	if err := fs.Parse([]string{"--node-name=n", "--podresources-socket=/s", "--sysfs-root=/host/sys", "--poll-interval=5s", "--drift-resync-interval=0"}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(nodezones.Options{Node: "n", Socket: "/s", Sysfs: "/host/sys", Poll: 5 * time.Second}, o); d != "" {
		t.Error(d)
	}
}

// TestExporterProbe: /healthz says that the exporter hangs, and that it does not; without an address nothing is opened.
func TestExporterProbe(t *testing.T) {
	t.Parallel()
	if f := numaExporter().Flags().Lookup(probeFlag); f == nil || f.DefValue != "" {
		t.Errorf("--%s: %+v", probeFlag, f)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	dog := app.NewWatchdog(time.Nanosecond)
	var g, none app.Group
	if err := serve(&none, "", dog); err != nil {
		t.Error(err)
	}
	if err := serve(&g, address, dog); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	says := func(want int) {
		t.Helper()
		resp, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("/healthz says %s, want %d", resp.Status, want)
		}
	}
	says(http.StatusOK)
	_, end := dog.During(ctx, "a look")
	says(http.StatusInternalServerError)
	end()
	says(http.StatusOK)
	if err := serve(&none, address, dog); err == nil || !strings.Contains(err.Error(), "--"+probeFlag) {
		t.Errorf("a taken port: %v", err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestReservationFlags: a simulated device can be given by flag.
func TestReservationFlags(t *testing.T) {
	t.Parallel()
	if f := reservation().Flags().Lookup("simulated-device"); f == nil || f.DefValue != "" {
		t.Errorf("--simulated-device: %+v", f)
	}
	if _, err := (driver{}).UUIDs(); err == nil {
		t.Log("this machine has a GPU driver")
	}
}

// TestReservation runs the command against an API server: it reports, stays, and ends when told to.
func TestReservation(t *testing.T) {
	patched := make(chan string, 1)
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text))
	}
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"ns","name":"gpu-reservation-1","uid":"u"}}`
	mux.HandleFunc("GET /api/v1/namespaces/ns/pods/gpu-reservation-1", func(w http.ResponseWriter, _ *http.Request) { answer(w, pod) })
	mux.HandleFunc("PATCH /api/v1/namespaces/ns/pods/gpu-reservation-1", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Metadata struct {
				UID         string            `json:"uid"`
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		answer(w, pod)
		patched <- fmt.Sprint(r.Header.Get("Content-Type"), body.Metadata.UID, body.Metadata.Annotations)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	config := filepath.Join(t.TempDir(), "config")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":"` + server.URL + `"}}]}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("POD_NAMESPACE", "ns")
	t.Setenv("POD_NAME", "gpu-reservation-1")
	t.Setenv(envSimulated, "GPU-1")
	ctx, stop := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() {
		c := root()
		c.SetArgs([]string{"reservation", "--kubeconfig", config})
		end <- c.ExecuteContext(ctx)
	}()
	select {
	case got := <-patched:
		if want := "application/merge-patch+jsonumap[run.ai/reserve_for_gpu_index:GPU-1]"; got != want {
			t.Errorf("patched %s, want %s", got, want)
		}
	case err := <-end:
		t.Fatalf("it ended: %v", err)
	}
	stop() // perhaps before it has read the answer
	if err := <-end; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}

	t.Setenv("POD_NAME", "")
	c := root()
	c.SetArgs([]string{"reservation", "--kubeconfig", config})
	if err := c.ExecuteContext(context.Background()); err == nil || !strings.Contains(err.Error(), "POD_NAME") {
		t.Errorf("error %v, want one that names the variable", err)
	}
}
