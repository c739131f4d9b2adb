package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/docs/operations"
)

// TestMetricsPage: up, its three processes without libvirt or a network configuration, shows the metrics that docs/operations/vm-metrics.md lists, with their types and labels, no
// more and no less; a pod that cannot be made is an operation of each with an error; and a process that is gone is shown as down while the others are as they were.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "met") // short: there are sockets below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cri := filepath.Join(dir, "cri.sock")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	up := exec.CommandContext(ctx, os.Args[0], "up", "--dir", filepath.Join(dir, "d"), "--cri", cri, "--domain-type=qemu", fmt.Sprintf("--qemu-user=%d:%d", os.Getuid(), os.Getgid()),
		"--libvirt-uri=qemu+unix:///system?socket="+filepath.Join(dir, "libvirt"), "--cni-conf-dir="+filepath.Join(dir, "cni"), "--metrics-bind-address=127.0.0.1:0")
	up.Env = append(os.Environ(), asItself+"=1")
	up.Cancel = func() error { return up.Process.Signal(syscall.SIGTERM) }
	out, err := up.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := up.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = up.Process.Signal(syscall.SIGTERM)
		_ = up.Wait() // it was told to end
	})
	address := make(chan string, 1)
	go func() {
		shown := regexp.MustCompile(`"Metrics are shown" address=(127\.0\.0\.1:[0-9]+)`)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			if found := shown.FindStringSubmatch(lines.Text()); found != nil {
				address <- found[1]
			}
			t.Log(lines.Text())
		}
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready ") {
		t.Fatalf("up says %q: %v", line, err)
	}
	var url string
	select {
	case at := <-address:
		url = "http://" + at + "/metrics"
	case <-ctx.Done():
		t.Fatal("up does not say where its metrics are")
	}
	conn, err := grpc.NewClient("unix://"+cri, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = runtimeapi.NewRuntimeServiceClient(conn).RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}, Linux: &runtimeapi.LinuxPodSandboxConfig{},
	}})
	if err == nil {
		t.Fatal("a pod was made without a network configuration")
	}

	served := scrape(ctx, t, url)
	rows, err := operations.VMMetrics()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]operations.Metric{}
	for _, m := range rows {
		listed[m.Name] = m
	}
	for name, f := range served {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		m, ok := listed[name]
		if !ok {
			t.Errorf("%s is served and not in vm-metrics.md", name)
			continue
		}
		delete(listed, name)
		if kind := strings.ToLower(f.GetType().String()); kind != m.Type {
			t.Errorf("%s is a %s, and a %s in vm-metrics.md", name, kind, m.Type)
		}
		for _, one := range f.GetMetric() {
			if labels := slices.Sorted(maps.Keys(labelsOf(one))); !slices.Equal(labels, slices.Sorted(slices.Values(m.Labels))) {
				t.Errorf("%s has the labels %q, and %q in vm-metrics.md", name, labels, m.Labels)
			}
		}
	}
	for name := range listed {
		t.Errorf("%s is in vm-metrics.md and not served", name)
	}
	for _, want := range []struct {
		name   string
		labels map[string]string
		value  float64
	}{
		{"muster_vm_operations_total", map[string]string{"process": "proxy", "operation_type": "RunPodSandbox"}, 1},
		{"muster_vm_operations_total", map[string]string{"process": "runtime", "operation_type": "RunPodSandbox"}, 1},
		{"muster_vm_operations_errors_total", map[string]string{"process": "runtime", "operation_type": "RunPodSandbox", "code": "Unavailable"}, 1},
		{"muster_vm_operations_total", map[string]string{"process": "net", "operation_type": "add"}, 1},
		{"muster_vm_operations_errors_total", map[string]string{"process": "net", "operation_type": "add", "code": "Unavailable"}, 1},
		{"muster_vm_operations_duration_seconds", map[string]string{"process": "runtime", "operation_type": "RunPodSandbox"}, 1},
		{"muster_vm_hypervisor_up", map[string]string{"process": "runtime"}, 0},
		{"muster_vm_backend_up", map[string]string{"process": "proxy", "backend": "primary"}, 1},
		{"muster_vm_sandboxes", map[string]string{"process": "runtime", "state": "ready"}, 0},
		{"muster_vm_volumes", map[string]string{"process": "runtime", "kind": "root"}, 0},
		{"muster_vm_networks", map[string]string{"process": "net"}, 0},
		{"muster_vm_process_up", map[string]string{"process": "net"}, 1},
		{"muster_vm_process_starts_total", map[string]string{"process": "up", "started": "proxy"}, 1},
	} {
		if got, ok := valueOf(served[want.name], want.labels); !ok || got != want.value {
			t.Errorf("%s%v is %v, %v, want %v", want.name, want.labels, got, ok, want.value)
		}
	}

	// The network process goes; whatever comes in its place does not have its count of calls.
	kill := func() {
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, p := range all {
			line, _ := os.ReadFile(p)
			var pid int
			if _, err := fmt.Sscanf(p, "/proc/%d/", &pid); err == nil && strings.Contains(string(line), "\x00net\x00--socket="+dir+"/") {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				return
			}
		}
		t.Fatal("the network process is not there")
	}
	kill()
	for {
		served = scrape(ctx, t, url)
		if n, _ := valueOf(served["muster_vm_process_starts_total"], map[string]string{"process": "up", "started": "net"}); n == 2 {
			break
		}
		if v, ok := valueOf(served["muster_vm_operations_total"], map[string]string{"process": "runtime", "operation_type": "RunPodSandbox"}); !ok || v != 1 {
			t.Fatalf("while net is away the runtime's calls are %v, %v", v, ok)
		}
	}
}

// scrape asks for the page, as Prometheus does.
func scrape(ctx context.Context, t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(r.Body)
		t.Fatalf("%s: %s", r.Status, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func labelsOf(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.GetLabel() {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

// valueOf is of the series with exactly these labels; a histogram's is its count.
func valueOf(f *dto.MetricFamily, labels map[string]string) (float64, bool) {
	for _, m := range f.GetMetric() {
		if maps.Equal(labelsOf(m), labels) {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()), true
		}
	}
	return 0, false
}
