package runtime

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm/network"
)

var update = flag.Bool("update", false, "write the scenarios anew with what happens now")

// TestScenarios plays the conversations in testdata. Each file of an archive is one: "> command" is a call or something that happens to the node;
// what follows is first the answer, and then, indented, what was done on the node for it. Time is virtual: what a call took is told when it
// is more than nothing. With -update the files are written anew.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			for i, f := range a.Files {
				t.Run(f.Name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						got := play(t, string(f.Data))
						if !*update && got != string(f.Data) {
							t.Errorf("%s: it went otherwise:\n%s\nwant\n%s", file, got, f.Data)
						}
						a.Files[i].Data = []byte(got)
					})
				})
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(a), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// player says the commands of a conversation.
type player struct {
	*fixture
	ids map[string]string // of pods and containers, by name
	out strings.Builder
}

func play(t *testing.T, script string) string {
	p := &player{fixture: open(t, newFakeNode(), 0, false), ids: map[string]string{}}
	p.w.told()
	for line := range strings.Lines(script) {
		switch {
		case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
			p.out.WriteString(line)
		case strings.HasPrefix(line, "> "):
			p.out.WriteString(line)
			begin := time.Now()
			said := p.say(strings.Fields(line[2:]))
			if took := time.Since(begin); took > 0 && !strings.HasPrefix(line, "> wait") {
				said = strings.TrimSpace(fmt.Sprintf("%s (after %v)", said, took))
			}
			synctest.Wait()
			if said != "" {
				p.out.WriteString(said + "\n")
			}
			news := p.w.told()
			if strings.HasPrefix(line, "> kill") || strings.HasPrefix(line, "> reboot") || strings.HasPrefix(line, "> wait") {
				slices.Sort(news) // pods are mended at once
			}
			for _, news := range news {
				p.out.WriteString("    " + uuidText.ReplaceAllString(news, "(its UUID)") + "\n")
			}
		}
	}
	p.end()
	return p.out.String()
}

// settings are the words of a command that have the form key=value.
func settings(words []string) map[string]string {
	out := map[string]string{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			out[k] = v
		}
	}
	return out
}

func (p *player) id(name string) string {
	if id, ok := p.ids[name]; ok {
		return id
	}
	return name
}

func number(text string, otherwise int) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	return otherwise
}

// answered is an error's code and text, or what was said.
func answered(said string, err error) string {
	if err != nil {
		st := status.Convert(err)
		return uuidText.ReplaceAllString(st.Code().String()+": "+st.Message(), "UUID")
	}
	return said
}

func (p *player) say(words []string) string {
	arg := func(i int) string {
		if i < len(words) && !strings.Contains(words[i], "=") {
			return words[i]
		}
		return ""
	}
	set := settings(words)
	switch words[0] {
	case "run":
		annotations := map[string]string{}
		for k, v := range set {
			if strings.Contains(k, "/") || strings.HasPrefix(k, "Virtlet") {
				annotations[k] = v
			}
		}
		config := podConfig(words[1], annotations)
		config.Metadata.Attempt = uint32(number(set["attempt"], 0))
		if set["hostNetwork"] == "true" {
			config.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}
		}
		r, err := call(p.fixture, p.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: set["handler"]})
		if err == nil {
			p.ids[words[1]] = r.GetPodSandboxId()
		}
		return answered(r.GetPodSandboxId(), err)
	case "create":
		config := containerConfig(words[2], "tiny", uint32(number(set["attempt"], 0)))
		if set["image"] != "" {
			config.Image.Image = set["image"]
		}
		r, err := call(p.fixture, p.CreateContainer, &runtimeapi.CreateContainerRequest{PodSandboxId: p.id(words[1]), Config: config})
		if err == nil {
			p.ids[words[2]] = r.GetContainerId()
		}
		return answered(r.GetContainerId(), err)
	case "start":
		_, err := call(p.fixture, p.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: p.id(words[1])})
		return answered("ok", err)
	case "stop":
		ctx := context.Background()
		if set["patience"] != "" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(number(set["patience"], 0))*time.Second)
			defer cancel()
		}
		_, err := callIn(ctx, p.fixture, p.StopContainer, &runtimeapi.StopContainerRequest{ContainerId: p.id(words[1]), Timeout: int64(number(arg(2), 0))})
		return answered("ok", err)
	case "remove":
		_, err := call(p.fixture, p.RemoveContainer, &runtimeapi.RemoveContainerRequest{ContainerId: p.id(words[1])})
		return answered("ok", err)
	case "stop-pod":
		_, err := call(p.fixture, p.StopPodSandbox, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id(words[1])})
		return answered("ok", err)
	case "remove-pod":
		_, err := call(p.fixture, p.RemovePodSandbox, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id(words[1])})
		return answered("ok", err)
	case "limit":
		_, err := call(p.fixture, p.UpdateContainerResources, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: p.id(words[1]), Linux: &runtimeapi.LinuxContainerResources{
			MemoryLimitInBytes: int64(number(set["memory"], 0)) << 20, CpuShares: int64(number(set["shares"], 0)), CpusetCpus: set["cpus"],
		}})
		return answered("ok", err)
	case "exec":
		r, err := call(p.fixture, p.ExecSync, &runtimeapi.ExecSyncRequest{ContainerId: p.id(words[1]), Timeout: int64(number(set["timeout"], 0)), Cmd: words[2 : len(words)-len(set)]})
		return answered(fmt.Sprintf("%d %q", r.GetExitCode(), r.GetStdout()), err)
	case "reopen":
		_, err := call(p.fixture, p.ReopenContainerLog, &runtimeapi.ReopenContainerLogRequest{ContainerId: p.id(words[1])})
		return answered("ok", err)
	case "status":
		r, err := call(p.fixture, p.ContainerStatus, &runtimeapi.ContainerStatusRequest{ContainerId: p.id(words[1])})
		st := r.GetStatus()
		said := strings.TrimPrefix(st.GetState().String(), "CONTAINER_")
		if st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			said += fmt.Sprintf(" %d %s after %v", st.GetExitCode(), st.GetReason(), time.Duration(st.GetFinishedAt()-st.GetStartedAt()))
			if st.GetMessage() != "" {
				said += ": " + st.GetMessage()
			}
		}
		return answered(said, err)
	case "status-pod":
		r, err := call(p.fixture, p.PodSandboxStatus, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id(words[1])})
		st := r.GetStatus()
		said := strings.TrimPrefix(st.GetState().String(), "SANDBOX_") + " " + st.GetNetwork().GetIp()
		for _, ip := range st.GetNetwork().GetAdditionalIps() {
			said += " " + ip.GetIp()
		}
		return answered(strings.TrimSpace(said), err)
	case "list":
		return p.list()
	case "stats":
		r, err := call(p.fixture, p.ListContainerStats, &runtimeapi.ListContainerStatsRequest{})
		var out []string
		for _, st := range r.GetStats() {
			out = append(out, fmt.Sprintf("%s: %v of CPU, %d Mi, disk %d Mi", st.GetAttributes().GetMetadata().GetName(),
				time.Duration(st.GetCpu().GetUsageCoreNanoSeconds().GetValue()), st.GetMemory().GetWorkingSetBytes().GetValue()>>20, st.GetWritableLayer().GetUsedBytes().GetValue()>>20))
		}
		return answered(strings.Join(out, "\n"), err)
	case "node":
		r, err := call(p.fixture, p.Status, &runtimeapi.StatusRequest{})
		var out []string
		for _, c := range r.GetStatus().GetConditions() {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s=%v %s", c.GetType(), c.GetStatus(), c.GetMessage())))
		}
		return answered(strings.Join(out, "\n"), err)
	}
	return p.happen(words)
}

// list is all pods with their containers.
func (p *player) list() string {
	var out []string
	pods, err := call(p.fixture, p.ListPodSandbox, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return answered("", err)
	}
	for _, b := range pods.GetItems() {
		line := fmt.Sprintf("%s %s %s", b.GetId(), b.GetMetadata().GetName(), strings.TrimPrefix(b.GetState().String(), "SANDBOX_"))
		cs, err := call(p.fixture, p.ListContainers, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: b.GetId()}})
		if err != nil {
			return answered("", err)
		}
		for _, c := range cs.GetContainers() {
			line += fmt.Sprintf(", %s %s %s", c.GetId(), c.GetMetadata().GetName(), strings.TrimPrefix(c.GetState().String(), "CONTAINER_"))
		}
		out = append(out, line)
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "\n")
}

// happen is what happens to a node besides calls.
func (p *player) happen(words []string) string {
	switch words[0] {
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			p.t.Fatal(err)
		}
		time.Sleep(d)
	case "guest": // guest NAME says TEXT | powers-off | crashes
		if !p.w.guest(p.id(words[1]), func(m *fakeMachine) {
			switch words[2] {
			case "says":
				p.w.folders[m.ContainerID] += strings.Join(words[3:], " ") + "\n"
			case "powers-off":
				p.w.turn(m, Off, PoweredOff)
			case "crashes":
				p.w.turn(m, Off, Crashed)
			case "is-deaf":
				p.w.deaf = true
			default:
				p.t.Fatalf("no guest does %q", words[2])
			}
		}) {
			return "there is no such guest"
		}
	case "boots": // how long a guest's agent takes
		p.w.boots = time.Duration(number(words[1], 0)) * time.Second
	case "away", "back":
		p.w.mu.Lock()
		p.w.away[words[1]] = words[0] == "away"
		if words[1] == "hypervisor" && words[0] == "away" {
			p.w.leave()
		}
		p.w.mu.Unlock()
	case "kill": // kill [at EFFECT of the next process]
		p.kill()
		p.fixture = open(p.t, p.w, 0, false)
	case "reboot": // machines and networks do not outlive a node
		p.kill()
		p.w.mu.Lock()
		for _, m := range p.w.machines {
			m.State, m.Why = Off, Unknown
		}
		clear(p.w.networks)
		p.w.mu.Unlock()
		p.fixture = open(p.t, p.w, 0, false)
	case "foreign": // a machine of ours that no record owns
		p.w.mu.Lock()
		p.w.machines["u"] = &fakeMachine{Machine: Machine{UUID: "u", ContainerID: "nobody", SandboxID: "nobody", State: Runs}}
		p.w.networks["nobody"], p.w.volumes["nobody"], p.w.folders["nobody"] = network.Pod{ID: "nobody"}, true, ""
		p.w.mu.Unlock()
	case "nothing-left":
		return p.w.left()
	default:
		p.t.Fatalf("no command %q", words[0])
	}
	return ""
}

// left says what is there.
func (w *fakeNode) left() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.machines) + len(w.networks) + len(w.volumes) + len(w.folders) + len(w.groups) + len(w.sandboxes) + len(w.containers) + len(w.logs); n > 0 {
		return fmt.Sprintf("left: machines %d, networks %d, volumes %d, folders %d, cgroups %d, consoles %d, records of %d sandboxes and %d containers",
			len(w.machines), len(w.networks), len(w.volumes), len(w.folders), len(w.groups), len(w.logs), len(w.sandboxes), len(w.containers))
	}
	return "true"
}
