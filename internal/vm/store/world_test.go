package store

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// world is a node as a test plays it: records, and what there is.
type world struct {
	sandboxes  map[string]Sandbox
	containers map[string]Container
	intents    map[string]Intent
	domains    map[string]Domain
	networks   map[string]Network
	files      map[string]bool
	adopted    map[string]bool
	exitCodes  map[string]int32
	now        time.Time
	// The sources that cannot be asked.
	noDomains, noNetworks, noFiles bool
}

var testTime = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func newWorld() *world {
	return &world{
		sandboxes: map[string]Sandbox{}, containers: map[string]Container{}, intents: map[string]Intent{}, domains: map[string]Domain{},
		networks: map[string]Network{}, files: map[string]bool{}, adopted: map[string]bool{}, exitCodes: map[string]int32{}, now: testTime,
	}
}

func (w *world) clone() *world {
	c := *w
	c.sandboxes, c.containers, c.intents = maps.Clone(w.sandboxes), maps.Clone(w.containers), maps.Clone(w.intents)
	c.domains, c.networks, c.files = maps.Clone(w.domains), maps.Clone(w.networks), maps.Clone(w.files)
	c.adopted, c.exitCodes = maps.Clone(w.adopted), maps.Clone(w.exitCodes)
	return &c
}

func (w *world) facts() Facts {
	f := Facts{
		Now:       w.now,
		Sandboxes: slices.Collect(maps.Values(w.sandboxes)), Containers: slices.Collect(maps.Values(w.containers)), Intents: slices.Collect(maps.Values(w.intents)),
		DomainsKnown: !w.noDomains, NetworksKnown: !w.noNetworks, FilesKnown: !w.noFiles, ExitCodes: w.exitCodes, Adopted: maps.Clone(w.adopted),
	}
	if !w.noDomains {
		f.Domains = slices.Collect(maps.Values(w.domains))
	}
	if !w.noNetworks {
		f.Networks = slices.Collect(maps.Values(w.networks))
	}
	if !w.noFiles {
		f.Files = slices.Collect(maps.Keys(w.files))
	}
	return f
}

// do carries out one action. What is not there is an error: Reconcile asks for nothing that is done already.
func (w *world) do(a Action) error {
	switch a.Op {
	case OpServe:
		if w.adopted[a.ID] {
			return fmt.Errorf("%s is served already", a.ID)
		}
		w.adopted[a.ID] = true
	case OpStop:
		c := w.containers[a.ID]
		d, ok := w.domains[c.Domain]
		if !ok || d.State == Off {
			return fmt.Errorf("container %s does not run", a.ID)
		}
		d.State, d.Reason = Off, ShutDown
		w.domains[c.Domain] = d
		c.State, c.FinishedAt, c.Reason = Exited, w.now, ReasonCompleted
		w.containers[a.ID] = c
		delete(w.intents, "container/"+a.ID)
	case OpEnd:
		d, ok := w.domains[a.ID]
		if !ok || d.State == Off {
			return fmt.Errorf("domain %s does not run", a.ID)
		}
		d.State, d.Reason = Off, Destroyed
		w.domains[a.ID] = d
	case OpUndefine:
		if _, ok := w.domains[a.ID]; !ok {
			return fmt.Errorf("domain %s is not there", a.ID)
		}
		delete(w.domains, a.ID)
	case OpRelease:
		if _, ok := w.networks[a.ID]; !ok {
			return fmt.Errorf("network %s is not there", a.ID)
		}
		delete(w.networks, a.ID)
	case OpUnlink:
		if !w.files[a.ID] {
			return fmt.Errorf("file %s is not there", a.ID)
		}
		delete(w.files, a.ID)
	case OpWrite:
		delete(w.intents, string(a.Kind)+"/"+a.ID)
		switch {
		case a.Gone && a.Kind == KindSandbox:
			for _, c := range w.containers {
				if c.SandboxID == a.ID {
					return fmt.Errorf("sandbox %s has container %s", a.ID, c.ID)
				}
			}
			delete(w.sandboxes, a.ID)
		case a.Gone:
			delete(w.containers, a.ID)
		case a.Sandbox != nil:
			w.sandboxes[a.ID] = *a.Sandbox
		case a.Container != nil:
			w.containers[a.ID] = *a.Container
		}
	default:
		return fmt.Errorf("op %q", a.Op)
	}
	return nil
}

func testUUID(n string) string { return fmt.Sprintf("00000000-0000-5000-8000-%012s", n) }

// readWorld reads the lines of a scenario:
//
//	sandbox ID ready|notready [files PATH,…]
//	container ID of SANDBOX created|running|exited domain N [files PATH,…]
//	intent ACT sandbox|container ID [of SANDBOX] [domain N] [files PATH,…] [by 12:00:30]
//	domain N of CONTAINER|foreign live|paused|off REASON [files PATH,…]
//	network SANDBOX whole|broken
//	file PATH
//	exit CONTAINER CODE
//	adopted ID
//	unknown domains|networks|files
func readWorld(t *testing.T, text string) *world {
	t.Helper()
	w := newWorld()
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		opt := func(name string) string {
			if i := slices.Index(words, name); i >= 0 && i+1 < len(words) {
				return words[i+1]
			}
			return ""
		}
		var files []string
		if f := opt("files"); f != "" {
			files = strings.Split(f, ",")
		}
		switch words[0] {
		case "sandbox":
			w.sandboxes[words[1]] = testSandbox(words[1], SandboxState(words[2]), files...)
		case "container":
			w.containers[words[1]] = testContainer(words[1], words[3], ContainerState(words[4]), opt("domain"), files...)
		case "intent":
			i := Intent{Act: Act(words[1]), Kind: Kind(words[2]), ID: words[3], At: testTime.Add(-time.Second), SandboxID: opt("of"), Files: files}
			if d := opt("domain"); d != "" {
				i.Domain = testUUID(d)
			}
			if by := opt("by"); by != "" {
				at, err := time.Parse(time.TimeOnly, by)
				if err != nil {
					t.Fatal(err)
				}
				i.Deadline = time.Date(2026, 11, 23, at.Hour(), at.Minute(), at.Second(), 0, time.UTC)
			}
			w.intents[i.key()] = i
		case "domain":
			d := Domain{UUID: testUUID(words[1]), Files: files}
			rest := words[3:]
			if words[2] == "of" {
				d.Container, rest = words[3], words[4:]
			}
			d.State = DomainState(rest[0])
			if d.State == Off {
				d.Reason = OffReason(strings.ReplaceAll(rest[1], "-", " "))
			}
			w.domains[d.UUID] = d
		case "network":
			w.networks[words[1]] = Network{ID: words[1], Whole: words[2] == "whole"}
		case "file":
			w.files[words[1]] = true
		case "exit":
			code, err := strconv.Atoi(words[2])
			if err != nil {
				t.Fatal(err)
			}
			w.exitCodes[words[1]] = int32(code)
		case "adopted":
			w.adopted[words[1]] = true
		case "unknown":
			switch words[1] {
			case "domains":
				w.noDomains = true
			case "networks":
				w.noNetworks = true
			case "files":
				w.noFiles = true
			}
		default:
			t.Fatalf("what is %q?", line)
		}
	}
	return w
}

func testSandbox(id string, state SandboxState, files ...string) Sandbox {
	return Sandbox{ID: id, Name: "web-" + id, Namespace: "team", UID: "uid-" + id, State: state, Files: files, CreatedAt: testTime.Add(-time.Minute)}
}

func testContainer(id, sandbox string, state ContainerState, domain string, files ...string) Container {
	c := Container{
		ID: id, SandboxID: sandbox, Name: "vm-" + id, Image: "tiny", Digest: "sha256:00", Domain: testUUID(domain), Files: files, State: state,
		CreatedAt: testTime.Add(-time.Minute),
	}
	if state != Created {
		c.StartedAt = testTime.Add(-30 * time.Second)
	}
	if state == Exited {
		c.FinishedAt = testTime.Add(-10 * time.Second)
	}
	return c
}
