//go:build linux

package conformity

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// word is how long one call of crictl may take, and each thing that is waited for.
const word = 2 * time.Minute

// crictl is the program with arguments for the node's socket.
func (n *node) crictl(ctx context.Context, args ...string) *exec.Cmd {
	n.t.Helper()
	return n.command(ctx, append([]string{needs(n.t, "MUSTER_CRICTL_BINARY"), "-c", n.path("crictl.yaml")}, args...)...)
}

// says gives what crictl prints, and how it ends.
func (n *node) says(args ...string) (string, error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), word)
	defer cancel()
	c := n.crictl(ctx, args...)
	var out, problem bytes.Buffer
	c.Stdout, c.Stderr = &out, &problem
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("crictl %s: %w: %s", strings.Join(args, " "), err, problem.String())
	}
	return out.String(), nil
}

// must gives what crictl prints, without spaces around it; it has to succeed.
func (n *node) must(args ...string) string {
	n.t.Helper()
	out, err := n.says(args...)
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// await asks again and again until it is so.
func (n *node) await(what string, so func() bool) {
	n.t.Helper()
	over := time.NewTimer(word)
	defer over.Stop()
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for !so() {
		select {
		case <-again.C:
		case <-over.C:
			n.t.Fatalf("not within %v: %s", word, what)
		}
	}
}

// get is a page that somebody on the node asks for.
func (n *node) get(address string) (string, error) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, to string) (conn net.Conn, err error) {
			err = n.inside(func() (err error) {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, to)
				return err
			})
			return conn, err
		},
	}}
	got, err := client.Get("http://" + address + "/")
	if err != nil {
		return "", err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	return strings.TrimSpace(string(text)), err
}

// object writes one of crictl's files, and gives its name.
func (n *node) object(name string, content map[string]any) string {
	n.t.Helper()
	text, err := json.Marshal(content)
	if err != nil {
		n.t.Fatal(err)
	}
	n.write(name, string(text))
	return n.path(name)
}

// field is a value in what crictl prints as JSON, by the names on the way to it.
func (n *node) field(text string, path ...string) string {
	n.t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		n.t.Fatalf("%v: %s", err, text)
	}
	for _, p := range path {
		if list, ok := v.([]any); ok && len(list) > 0 {
			v = list[0]
		}
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return fmt.Sprint(v)
}

// uuids are those of the machines that QEMU runs in this node.
func (n *node) uuids() (all []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, l := range lines {
		text, _ := os.ReadFile(l)
		words := strings.Split(string(text), "\x00")
		if i := slices.Index(words, "-uuid"); i >= 0 && i+1 < len(words) && strings.Contains(string(text), n.dir) {
			all = append(all, words[i+1])
		}
	}
	return all
}

// screen is what is written to it, for a reader beside the writer.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// guestCommand is what the machine runs: a page with its DMI UUID, and a shell on its console.
const guestCommand = `mkdir -p /www; cat /sys/class/dmi/id/product_uuid >/www/index.html; httpd -p 80 -h /www; echo "serving for $WHO in $PWD"; exec sh`

// TestCrictl: what an operator does by hand works through the proxy with a pod that is a machine, and a container of containerd's runs beside it.
func TestCrictl(t *testing.T) {
	needs(t, "MUSTER_CRICTL_BINARY")
	n := newNode(t, true)
	n.write("crictl.yaml", fmt.Sprintf("runtime-endpoint: unix://%[1]s\nimage-endpoint: unix://%[1]s\ntimeout: 100\n", n.path("cri.sock")))
	const machineImage, containerImage = "muster-vm/registry.k8s.io/vm/tiny:1", "registry.k8s.io/e2e-test-images/busybox:1.29-2"
	pod := func(name string, ports ...any) string {
		return n.object(name+".json", map[string]any{
			"metadata": map[string]any{"name": name, "namespace": "team", "uid": "uid-" + name, "attempt": 0}, "hostname": name, "log_directory": n.path("log"),
			"port_mappings": ports, "linux": map[string]any{"cgroup_parent": n.cgroup},
		})
	}
	container := func(name, image string, more map[string]any) string {
		c := map[string]any{"metadata": map[string]any{"name": name, "attempt": 0}, "image": map[string]any{"image": image}, "log_path": name + ".log", "linux": map[string]any{}}
		for k, v := range more { // order: different keys
			c[k] = v
		}
		return n.object(name+"-c.json", c)
	}

	n.must("pull", machineImage)
	n.must("pull", containerImage)
	if out := n.must("images"); !strings.Contains(out, "muster-vm/registry.k8s.io/vm/tiny") || !strings.Contains(out, "e2e-test-images/busybox") {
		t.Errorf("images: %s", out)
	}
	p, c := pod("machine", map[string]any{"container_port": 80, "host_port": 12080}), container("vm", machineImage, map[string]any{
		"command": []string{"sh", "-c"}, "args": []string{guestCommand}, "working_dir": "/run", "envs": []any{map[string]any{"key": "WHO", "value": "everybody"}},
		"stdin": true,
	})
	began := time.Now()
	box := n.must("runp", "--runtime", "muster-vm", p)
	ran := time.Since(began)
	vm := n.must("create", box, c, p)
	created := time.Since(began)
	n.must("start", vm)
	t.Logf("runp %v, create %v, start %v", ran, created-ran, time.Since(began)-created)

	// Beside it.
	q := pod("container")
	sandbox := n.must("runp", q)
	beside := n.must("create", sandbox, container("shell", containerImage, map[string]any{"command": []string{"sh", "-c", "echo beside; exec sleep 1000"}}), q)
	n.must("start", beside)
	if out := n.must("exec", "--sync", beside, "cat", "/proc/1/comm"); out != "sleep" {
		t.Errorf("the container says %q", out)
	}

	status := n.must("inspectp", box)
	ip := n.field(status, "status", "network", "ip")
	var page string
	n.await("the guest's page", func() (ok bool) {
		var err error
		page, err = n.get(ip)
		return err == nil && page != ""
	})
	t.Logf("HTTP answer after %v", time.Since(began))
	// The page is there before the line that follows it.
	n.await("the status's address, "+ip+", and what its command was given, in the guest's log", func() bool {
		log := n.must("logs", vm)
		return strings.Contains(log, "tiny: address "+ip+"/") && strings.Contains(log, "serving for everybody in /run\n")
	})
	if got := n.uuids(); len(got) != 1 || !strings.EqualFold(got[0], page) {
		t.Errorf("the page says %q, the machines are %v", page, got)
	}
	n.await("the host's port", func() bool { got, err := n.get("127.0.0.1:12080"); return err == nil && got == page })

	if out := n.must("exec", "--sync", vm, "hostname"); out != "machine" {
		t.Errorf("exec --sync: %q", out)
	}
	if out, err := n.says("exec", vm, "sh", "-c", "echo out; exit 3"); out != "out\n" || err == nil || !strings.Contains(err.Error(), "3") {
		t.Errorf("exec: %q, %v", out, err)
	}
	if _, err := n.says("exec", "--sync", "--timeout", "1", vm, "sleep", "4321"); err == nil || !strings.Contains(err.Error(), "did not end within 1s") {
		t.Errorf("exec with a timeout: %v", err)
	}
	n.await("the end of what was timed out", func() bool {
		out, err := n.says("exec", "--sync", vm, "sh", "-c", "ps | grep -c '[4]321'; true")
		return err == nil && strings.TrimSpace(out) == "0"
	})

	forwarding, stop := context.WithCancel(t.Context())
	forward := n.crictl(forwarding, "port-forward", box, "12081:80")
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	n.await("the forwarded port", func() bool { got, err := n.get("127.0.0.1:12081"); return err == nil && got == page })
	stop()
	_ = forward.Wait() // it says that it was killed

	stats := n.must("stats", "-o", "json")
	if !strings.Contains(stats, vm) || !strings.Contains(stats, beside) {
		t.Errorf("stats: %s", stats)
	}
	one := n.must("stats", "--id", vm, "-o", "json")
	for _, path := range [][]string{{"cpu", "usageCoreNanoSeconds", "value"}, {"memory", "workingSetBytes", "value"}} {
		if v := n.field(one, append([]string{"stats"}, path...)...); v == "0" || v == "<nil>" {
			t.Errorf("stats: %v is %s: %s", path, v, one)
		}
	}
	if out := n.must("statsp", "-o", "json"); !strings.Contains(out, box) || !strings.Contains(out, sandbox) {
		t.Errorf("statsp: %s", out)
	}
	for _, list := range [][]string{{"ps", "-q"}, {"pods", "-q"}} {
		if out := n.must(list...); len(strings.Fields(out)) != 2 {
			t.Errorf("%v: %s", list, out)
		}
	}

	// The shell on the console is left by whoever is attached to it: its exit code is the container's.
	attached, detach := context.WithTimeout(t.Context(), word)
	defer detach()
	attach := n.crictl(attached, "attach", "-i", vm)
	in, err := attach.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	console := &screen{}
	attach.Stdout, attach.Stderr = console, console
	if err := attach.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "echo the answer is $((6*7))\n"); err != nil {
		t.Fatal(err)
	}
	n.await("what was typed at the console", func() bool { return strings.Contains(console.String(), "the answer is 42") })
	if _, err := io.WriteString(in, "exit 5\n"); err != nil {
		t.Fatal(err)
	}
	n.await("the machine's end", func() bool {
		return n.field(n.must("inspect", vm), "status", "state") == "CONTAINER_EXITED"
	})
	_ = in.Close()
	if err := attach.Wait(); err != nil {
		t.Errorf("attach: %v: %s", err, console.String())
	}
	if s := n.must("inspect", vm); n.field(s, "status", "exitCode") != "5" || n.field(s, "status", "reason") != "Error" {
		t.Errorf("inspect: %s", s)
	}

	// A second machine in the same pod is stopped by its power button.
	n.must("rm", vm)
	vm = n.must("create", box, container("again", machineImage, nil), p)
	n.must("start", vm)
	n.await("the second machine's page", func() bool { got, err := n.get(ip); return err == nil && got != "" && got != page })
	n.must("stop", "--timeout", "90", vm)
	if s := n.must("inspect", vm); n.field(s, "status", "exitCode") != "0" || n.field(s, "status", "reason") != "Completed" {
		t.Errorf("inspect: %s", s)
	}
	n.must("rm", vm)
	n.must("stop", "--timeout", "1", beside)
	n.must("rm", beside)
	n.must("stopp", box, sandbox)
	n.must("rmp", box, sandbox)
	n.must("rmi", machineImage, containerImage)
	for _, list := range [][]string{{"ps", "-a", "-q"}, {"pods", "-q"}} {
		if out := n.must(list...); out != "" {
			t.Errorf("%v: %s is left", list, out)
		}
	}
	if out := n.must("images"); strings.Contains(out, "vm/tiny") || strings.Contains(out, "busybox") {
		t.Errorf("images are left: %s", out)
	}
	if got := n.uuids(); len(got) > 0 {
		t.Errorf("machines are left: %v", got)
	}
}
