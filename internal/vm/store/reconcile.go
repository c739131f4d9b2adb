package store

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// The reasons of a container that has exited, and what its code is if the guest says none.
const (
	ReasonCompleted = "Completed" // 0: the guest powered off
	ReasonError     = "Error"     // the guest said another code than 0
	ReasonKilled    = "Killed"    // 137
	ReasonCrashed   = "Crashed"   // 139
	ReasonSuspended = "Suspended" // 137: to whoever waits for it, it is as if killed
	ReasonLost      = "Lost"      // 255: the domain is gone, and nobody knows how
)

// Ended is how a machine has ended: the exit code that the CRI tells, and the reason. said is what the guest wrote to its exit port, nil for nothing; it
// counts for a guest that powered off.
func Ended(reason OffReason, said *int32) (code int32, why string) {
	switch reason {
	case ShutDown:
		if said == nil || *said == 0 {
			return 0, ReasonCompleted
		}
		return *said, ReasonError
	case Destroyed:
		return 137, ReasonKilled
	case Crashed:
		return 139, ReasonCrashed
	case Saved:
		return 137, ReasonSuspended
	}
	return 255, ReasonLost
}

// Reconcile says what to do so that the records and what is there agree: what lives and is owned is served, what was begun ends or is taken back,
// what nobody owns goes. It is a pure function. Carried out in order, whole or up to any point, and called again with what is there
// then, it comes to an end: carried out whole, the next call gives nothing, as long as nothing else changes and the sources are known.
//
// The order: domains that nobody owns; containers, each with its domain, files and record; sandboxes, after their containers; networks and files
// that nobody owns. It costs about n log n of all that there is.
func Reconcile(f Facts) []Action {
	r := &reconciler{
		f: f, intents: map[string]Intent{}, domains: map[string]Domain{}, networks: map[string]Network{}, files: map[string]bool{},
		kept: newPaths(), gone: map[string]bool{}, off: map[string]bool{}, sandboxes: map[string]Sandbox{},
		used: newPaths(), containers: map[string]Container{}, of: map[string][]Container{}, sorted: slices.Sorted(slices.Values(f.Files)),
	}
	for _, i := range f.Intents {
		r.intents[i.key()] = i
	}
	for _, d := range f.Domains {
		r.domains[d.UUID] = d
	}
	for _, n := range f.Networks {
		r.networks[n.ID] = n
	}
	for _, p := range f.Files {
		r.files[p] = true
	}
	for _, s := range f.Sandboxes {
		r.sandboxes[s.ID] = s
	}
	for _, c := range sortedBy(f.Containers, func(c Container) string { return c.ID }) {
		r.containers[c.ID] = c
		r.of[c.SandboxID] = append(r.of[c.SandboxID], c)
	}
	r.run()
	return r.out
}

type reconciler struct {
	f          Facts
	intents    map[string]Intent
	domains    map[string]Domain
	networks   map[string]Network
	files      map[string]bool // there, after the actions so far
	sorted     []string        // files
	sandboxes  map[string]Sandbox
	containers map[string]Container
	of         map[string][]Container // by sandbox
	kept       paths                  // what a record or an intent has
	gone       map[string]bool        // containers that the actions so far take away
	off        map[string]bool        // containers without a process when the actions so far are done
	used       paths                  // what the domains that stay use
	out        []Action
}

func sortedBy[T any](in []T, key func(T) string) []T {
	out := slices.Clone(in)
	slices.SortFunc(out, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	return out
}

func (r *reconciler) run() {
	for _, i := range r.f.Intents {
		r.kept.add(i.Files)
	}
	for _, s := range r.f.Sandboxes {
		r.kept.add(s.Files)
	}
	for _, c := range r.f.Containers {
		r.kept.add(c.Files)
	}
	r.nobodysDomains()
	for _, i := range sortedBy(r.f.Intents, Intent.key) {
		if i.Act == Create && i.Kind == KindContainer {
			r.undoContainer(i)
		}
	}
	for _, c := range sortedBy(r.f.Containers, func(c Container) string { return c.ID }) {
		r.container(c)
	}
	for _, i := range sortedBy(r.f.Intents, Intent.key) {
		if i.Act == Create && i.Kind == KindSandbox {
			r.undoSandbox(i)
		}
	}
	for _, s := range sortedBy(r.f.Sandboxes, func(s Sandbox) string { return s.ID }) {
		r.sandbox(s)
	}
	r.nobodys()
}

// do adds an action about what an owner has.
func (r *reconciler) do(verb Verb, op Op, kind Kind, id, owner, why string, args ...any) *Action {
	pod := ""
	if kind, id, ok := strings.Cut(owner, "/"); ok && kind == string(KindSandbox) {
		pod = id
	} else if ok {
		pod = r.podOf(id)
	}
	r.out = append(r.out, Action{Verb: verb, Op: op, Kind: kind, ID: id, Owner: owner, Pod: pod, Why: fmt.Sprintf(why, args...)})
	return &r.out[len(r.out)-1]
}

// podOf is the sandbox of a container, by its record or the intent that was to make it.
func (r *reconciler) podOf(container string) string {
	if c, ok := r.containers[container]; ok {
		return c.SandboxID
	}
	return r.intents[ownerOf(KindContainer, container)].SandboxID
}

func ownerOf(kind Kind, id string) string { return string(kind) + "/" + id }

// domainOf is the domain of a container's, if it is there and says that it is.
func (r *reconciler) domainOf(uuid, container string) (Domain, bool) {
	d, ok := r.domains[uuid]
	return d, ok && d.Container == container
}

// clear takes away what a container has: the domain first, because it holds the files.
func (r *reconciler) clear(verb Verb, owner, uuid, container string, files []string, why string) {
	if _, ok := r.domainOf(uuid, container); ok {
		r.do(verb, OpUndefine, KindDomain, uuid, owner, "%s", why)
	}
	r.unlink(verb, owner, files, why)
}

// unlink removes the files of an owner that are there.
func (r *reconciler) unlink(verb Verb, owner string, files []string, why string) {
	for _, own := range files {
		at, _ := slices.BinarySearch(r.sorted, own)
		for _, p := range r.sorted[at:] { // those that begin so stand together, and between them others that do
			if !strings.HasPrefix(p, own) {
				break
			}
			if (len(p) == len(own) || p[len(own)] == '/') && r.files[p] && !r.used.touch(p) {
				r.files[p] = false
				r.do(verb, OpUnlink, KindFile, p, owner, "%s", why)
			}
		}
	}
}

func (r *reconciler) undoContainer(i Intent) {
	if !r.f.DomainsKnown || !r.f.FilesKnown {
		return
	}
	owner := ownerOf(KindContainer, i.ID)
	why := "its creation was cut short, and the kubelet was never told of it"
	r.clear(Undo, owner, i.Domain, i.ID, i.Files, why)
	r.do(Undo, OpWrite, KindContainer, i.ID, owner, "%s", why).Gone = true
}

func (r *reconciler) undoSandbox(i Intent) {
	if !r.f.NetworksKnown || !r.f.FilesKnown {
		return
	}
	owner := ownerOf(KindSandbox, i.ID)
	why := "its creation was cut short, and the kubelet was never told of it"
	if _, ok := r.networks[i.ID]; ok {
		r.do(Undo, OpRelease, KindNetwork, i.ID, owner, "%s", why)
	}
	r.unlink(Undo, owner, i.Files, why)
	r.do(Undo, OpWrite, KindSandbox, i.ID, owner, "%s", why).Gone = true
}

// removal says that a container is to go, for its own intent or its sandbox's.
func (r *reconciler) removal(c Container) (string, bool) {
	if _, ok := r.sandboxes[c.SandboxID]; !ok {
		return "its sandbox is not there", true
	}
	if r.intents[ownerOf(KindContainer, c.ID)].Act == Remove {
		return "its removal was cut short", true
	}
	if r.intents[ownerOf(KindSandbox, c.SandboxID)].Act == Remove {
		return "the removal of its sandbox was cut short", true
	}
	return "", false
}

func (r *reconciler) container(c Container) {
	if !r.f.DomainsKnown {
		return
	}
	owner := ownerOf(KindContainer, c.ID)
	if why, ok := r.removal(c); ok {
		if !r.f.FilesKnown {
			return
		}
		r.clear(Finish, owner, c.Domain, c.ID, c.Files, why)
		r.do(Finish, OpWrite, KindContainer, c.ID, owner, "%s", why).Gone = true
		r.gone[c.ID], r.off[c.ID] = true, true
		return
	}
	d, there := r.domainOf(c.Domain, c.ID)
	intent, open := r.intents[owner]
	live := there && d.State != Off
	switch {
	case c.State == Exited:
		r.off[c.ID] = true
		if live {
			r.do(Finish, OpEnd, KindDomain, c.Domain, owner, "its container has exited and does not run again")
		}
		if open {
			r.do(Finish, OpWrite, KindContainer, c.ID, owner, "what was under way has been done")
		}
	case live && (open && intent.Act == Stop || r.stopping(c)):
		r.stop(c, intent, owner)
	case live && d.State == Paused && open && intent.Act == Start:
		r.do(Undo, OpEnd, KindDomain, c.Domain, owner, "its start was cut short before it was let go on")
		r.ended(Undo, c, Domain{Reason: Destroyed}, true, intent, owner)
	case live:
		r.lives(c, intent, open, owner)
	case there && d.Reason == NeverRan && c.State == Created:
		r.off[c.ID] = true
		if open {
			r.do(Undo, OpWrite, KindContainer, c.ID, owner, "what was under way had not begun: it never ran, and can be started")
		}
	default:
		r.ended(Finish, c, d, there, intent, owner)
	}
}

// stopping says that a container's sandbox is to stop, which ends its containers.
func (r *reconciler) stopping(c Container) bool {
	return r.intents[ownerOf(KindSandbox, c.SandboxID)].Act == Stop
}

func (r *reconciler) stop(c Container, intent Intent, owner string) {
	a := r.do(Finish, OpStop, KindContainer, c.ID, owner, "its stop was cut short")
	r.off[c.ID] = true
	if r.stopping(c) {
		a.Why = "the stop of its sandbox was cut short"
		return
	}
	a.Deadline = intent.Deadline
}

// lives is a container whose machine runs.
func (r *reconciler) lives(c Container, intent Intent, open bool, owner string) {
	if c.State == Created {
		ran := c.clone()
		ran.State, ran.StartedAt = Running, r.f.Now
		if open {
			ran.StartedAt = intent.At
		}
		r.do(Finish, OpWrite, KindContainer, c.ID, owner, "its machine was started, which nobody wrote down").Container = &ran
	} else if open {
		r.do(Finish, OpWrite, KindContainer, c.ID, owner, "what was under way has been done")
	}
	if !r.f.Adopted[c.ID] {
		r.do(Adopt, OpServe, KindContainer, c.ID, owner, "its machine lives")
	}
}

// ended is a container whose machine is off or gone.
func (r *reconciler) ended(verb Verb, c Container, d Domain, there bool, intent Intent, owner string) {
	over := c.clone()
	over.State, over.FinishedAt = Exited, latest(r.f.Now, c.CreatedAt, c.StartedAt)
	reason := d.Reason
	if !there {
		reason = ""
	}
	if reason == NeverRan {
		reason = "" // it is Running by the record, and libvirt has forgotten that
	}
	var said *int32
	if code, ok := r.f.ExitCodes[c.ID]; ok {
		said = &code
	}
	if over.StartedAt.IsZero() && reason != "" {
		over.StartedAt = c.CreatedAt
		if intent.Act == Start {
			over.StartedAt = intent.At
		}
	}
	over.ExitCode, over.Reason = Ended(reason, said)
	why := "its machine ended while nobody looked"
	switch {
	case verb == Undo:
		why = "what it was to run never did"
	case !there:
		why = "its machine is gone"
	}
	if over.Reason == ReasonLost {
		over.Message = "when muster-vm looked for the machine, it was not there any more, and nothing says how it ended"
	}
	r.off[c.ID] = true
	r.do(verb, OpWrite, KindContainer, c.ID, owner, "%s", why).Container = &over
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}

func (r *reconciler) sandbox(s Sandbox) {
	if !r.f.NetworksKnown {
		return
	}
	owner := ownerOf(KindSandbox, s.ID)
	n, there := r.networks[s.ID]
	intent, open := r.intents[owner]
	if open {
		for _, c := range r.of[s.ID] { // its machines first: they hold the taps
			if intent.Act == Remove && !r.gone[c.ID] || !r.off[c.ID] {
				return
			}
		}
	}
	if open && intent.Act == Remove {
		if !r.f.FilesKnown || r.creating(s.ID) && !r.f.DomainsKnown {
			return
		}
		why := "its removal was cut short"
		if there {
			r.do(Finish, OpRelease, KindNetwork, s.ID, owner, "%s", why)
		}
		r.unlink(Finish, owner, s.Files, why)
		r.do(Finish, OpWrite, KindSandbox, s.ID, owner, "%s", why).Gone = true
		return
	}
	why := ""
	switch {
	case open && intent.Act == Stop:
		why = "its stop was cut short"
	case s.State == NotReady && there:
		why = "it is stopped, and has no network"
	case s.State == Ready && !there:
		why = "its network is gone"
	case s.State == Ready && !n.Whole:
		why = "its network is not whole: the node was started anew, or its namespace was taken away"
	case s.State == Ready && !r.f.Adopted[s.ID]:
		r.do(Adopt, OpServe, KindSandbox, s.ID, owner, "its network lives")
		return
	default:
		return
	}
	if there {
		r.do(Finish, OpRelease, KindNetwork, s.ID, owner, "%s", why)
	}
	if s.State == Ready || open {
		stopped := s.clone()
		stopped.State = NotReady
		r.do(Finish, OpWrite, KindSandbox, s.ID, owner, "%s", why).Sandbox = &stopped
	}
}

// creating says that a container of the sandbox was being created.
func (r *reconciler) creating(sandbox string) bool {
	return slices.ContainsFunc(r.f.Intents, func(i Intent) bool { return i.Kind == KindContainer && i.Act == Create && i.SandboxID == sandbox })
}

// nobodysDomains go first: they may use anything. The files of those that stay are not touched, whoever's they are.
func (r *reconciler) nobodysDomains() {
	for _, d := range sortedBy(r.f.Domains, func(d Domain) string { return d.UUID }) {
		if d.Container != "" && !r.owned(d) {
			r.do(Delete, OpUndefine, KindDomain, d.UUID, "", "it is ours, and container %s has no record of it", short(d.Container))
			continue
		}
		goes := r.intents[ownerOf(KindContainer, d.Container)].Act == Create
		if c, ok := r.containers[d.Container]; ok {
			_, goes = r.removal(c)
		}
		if !goes {
			r.used.add(d.Files)
		}
	}
}

// nobodys are the networks and files that no record and no intent has.
func (r *reconciler) nobodys() {
	for _, n := range sortedBy(r.f.Networks, func(n Network) string { return n.ID }) {
		_, there := r.sandboxes[n.ID]
		if i, ok := r.intents[ownerOf(KindSandbox, n.ID)]; !there && (!ok || i.Act != Create) {
			r.do(Delete, OpRelease, KindNetwork, n.ID, "", "no sandbox has it")
		}
	}
	if !r.f.FilesKnown || !r.f.DomainsKnown { // a file may be in use
		return
	}
	for _, p := range r.sorted {
		if r.files[p] && !r.kept.touch(p) && !r.used.touch(p) {
			r.do(Delete, OpUnlink, KindFile, p, "", "no record has it")
		}
	}
}

// owned says that a domain is the one that its container's record means, or the intent that makes it.
func (r *reconciler) owned(d Domain) bool {
	if c, ok := r.containers[d.Container]; ok {
		return c.Domain == d.UUID
	}
	i, ok := r.intents[ownerOf(KindContainer, d.Container)]
	return ok && i.Act == Create && i.Domain == d.UUID
}

// paths are files and folders, and the folders that they lie in.
type paths struct{ own, above map[string]bool }

func newPaths() paths { return paths{map[string]bool{}, map[string]bool{}} }

func (p paths) add(files []string) {
	for _, f := range files {
		p.own[f] = true
		for at := path.Dir(f); at != "/" && at != "." && !p.above[at]; at = path.Dir(at) {
			p.above[at] = true
		}
	}
}

// touch reports whether a path is one of them, lies below one, or has one below it.
func (p paths) touch(file string) bool {
	for at := file; at != "/" && at != "."; at = path.Dir(at) {
		if p.own[at] {
			return true
		}
	}
	return p.above[file]
}
