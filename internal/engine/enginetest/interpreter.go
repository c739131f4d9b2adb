package enginetest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kbv1alpha1 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	kbv1alpha2 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// postponement is how long a rejected bind keeps a pod back unless the command says otherwise.
const postponement = 30 * time.Second

// interpreter carries out a scenario's statements on a backend.
type interpreter struct {
	backend  Backend
	compile  compiler
	written  map[string]statement // by "verb name": what made an object, for edit
	out      strings.Builder
	commands map[string]func(*statement) error
	used     map[string][]cluster.Quantity // by queue name
	shards   []*Engine                     // when there are several
}

func newInterpreter(b Backend, o *Options) *interpreter {
	in := &interpreter{
		backend: b, written: map[string]statement{},
		compile: compiler{last: b.Now().Add(-time.Hour).Truncate(time.Second), scheduler: o.Names()[0], groups: map[string]bool{}},
	}
	if e, ok := b.(*Engine); ok {
		in.shards = e.shards
	}
	in.commands = map[string]func(*statement) error{
		"cycle": in.cycle, "settle": in.settle, "explain": in.explain, "show": in.show, "edit": in.edit, "delete": in.delete,
		"release": in.release, "end": in.end, "cordon": in.cordon, "uncordon": in.uncordon, "fail": in.fail, "restore": in.restore,
		"advance": in.advance, "bindfail": in.bindfail, "ungate": in.ungate, "move": in.move,
		"promise": in.promise, "free": in.free, "usage": in.usage, "use": in.use, "freeze": in.freeze, "restart": in.restart,
	}
	return in
}

// run carries out statements and returns what they printed.
func (in *interpreter) run(ss []statement) (string, error) {
	in.out.Reset()
	for i := range ss {
		if in.shards != nil {
			if err := in.each(&ss[i]); err != nil {
				return in.out.String(), err
			}
			continue
		}
		s := ss[i]
		s.anew()
		do, ok := in.commands[s.verb]
		if !ok {
			do = in.make
		}
		if err := s.carriedOut(do); err != nil {
			return in.out.String(), err
		}
	}
	return in.out.String(), nil
}

// carriedOut does what the statement says, and returns what is wrong with it before what came of it.
func (s *statement) carriedOut(do func(*statement) error) error {
	if err := do(s); s.fault == nil {
		return err
	}
	return s.fault
}

// make applies the objects of a statement.
func (in *interpreter) make(s *statement) error {
	in.compile.now = in.backend.Now()
	objects, known, err := in.compile.objects(s)
	if err != nil {
		return err
	}
	if !known {
		return s.errorf("no statement or command has this name")
	}
	if len(s.words) > 0 {
		in.written[s.verb+" "+s.words[0]] = *s
	}
	return in.apply(objects)
}

func (in *interpreter) apply(objects []Object) error {
	for _, o := range objects {
		if err := in.backend.Apply(o); err != nil {
			return fmt.Errorf("applying %s: %w", key(o), err)
		}
	}
	return nil
}

// manifests applies raw YAML. Objects that do not say when they were created are as old as the next statement's.
func (in *interpreter) manifests(text string) error {
	in.compile.now = in.backend.Now()
	objects, err := parseManifests(text)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if t := o.GetCreationTimestamp(); t.IsZero() {
			in.compile.last = in.compile.last.Add(time.Second)
			o.SetCreationTimestamp(metav1.NewTime(in.compile.last))
		}
	}
	return in.apply(objects)
}

func (in *interpreter) printf(format string, args ...any) { fmt.Fprintf(&in.out, format, args...) }

func (in *interpreter) cycle(*statement) error {
	plans, err := in.backend.Cycle()
	if err != nil {
		return err
	}
	called, err := in.deviceNames()
	if err != nil {
		return err
	}
	in.out.WriteString(drawPlans(plans, called))
	return nil
}

func (in *interpreter) settle(*statement) error { return in.backend.Settle() }

// edit repeats an object's statement with other values: edit queue team limit=4. A word no-X takes X back.
func (in *interpreter) edit(s *statement) error {
	if len(s.words) < 2 {
		return s.errorf("want edit KIND NAME KEY=VALUE…")
	}
	old, ok := in.written[s.words[0]+" "+s.words[1]]
	if !ok {
		return s.errorf("no statement made %s %s", s.words[0], s.words[1])
	}
	next := old.with(s)
	in.compile.now = in.backend.Now()
	next.anew()
	objects, _, err := in.compile.objects(&next)
	if err != nil {
		return err
	}
	in.written[s.words[0]+" "+s.words[1]] = next
	for _, o := range objects {
		if p, ok := o.(*v1.Pod); ok && s.words[0] == "gang" { // a gang is edited, its pods go on
			if pods, err := in.pods(fullName(p.Namespace, p.Name)); err != nil || len(pods) > 0 {
				continue
			}
		}
		o.SetCreationTimestamp(metav1.Time{}) // keep the age it has
		if err := in.apply([]Object{o}); err != nil {
			return err
		}
	}
	return nil
}

// delete removes objects at once: delete gang|composite|pod|node|queue|priorityclass|configmap|budget|topology|deviceclass|slice|resourceclaim|claimtemplate NAME. A gang goes with its pods.
func (in *interpreter) delete(s *statement) error {
	if len(s.words) != 2 {
		return s.errorf("want delete KIND NAME")
	}
	kind := map[string]string{"gang": "PodGroup", "composite": "CompositePodGroup.scheduling.k8s.io", "pod": "Pod", "node": "Node", "queue": "Queue", "priorityclass": "PriorityClass", "configmap": "ConfigMap", "podgroup": "PodGroup", "budget": "PodDisruptionBudget", "topology": "Topology", "deviceclass": "DeviceClass", "slice": "ResourceSlice", "resourceclaim": "ResourceClaim", "claimtemplate": "ResourceClaimTemplate"}[s.words[0]]
	o := newObject(metav1.TypeMeta{Kind: kind})
	if o == nil {
		return s.errorf("%q is no kind of object", s.words[0])
	}
	if made := in.written["gang "+s.words[1]]; s.words[0] == "gang" || s.words[0] == "podgroup" {
		switch {
		case slices.Contains(made.words, "volcano"):
			o = &v1beta1.PodGroup{}
		case slices.Contains(made.words, "kubebatch") && slices.Contains(made.words, "sigs"):
			o = &kbv1alpha2.PodGroup{}
		case slices.Contains(made.words, "kubebatch"):
			o = &kbv1alpha1.PodGroup{}
		case slices.Contains(made.words, "upstream"):
			o = &schedulingv1beta1.PodGroup{}
		}
	}
	o.SetName(s.words[1])
	if namespaced(o) {
		ns, name := splitName(s.words[1])
		o.SetNamespace(ns)
		o.SetName(name)
	}
	if s.words[0] == "gang" {
		pods, err := in.pods(s.words[1])
		if err != nil {
			return err
		}
		for _, p := range pods {
			if err := in.backend.Delete(p); err != nil {
				return fmt.Errorf("deleting %s: %w", key(p), err)
			}
		}
	}
	return in.backend.Delete(o)
}

// pods finds pods by what a scenario calls them: a pod's name, one of a gang as GANG[I] or GANG-SET[I], or a gang's name
// for all of its pods.
func (in *interpreter) pods(word string) ([]*v1.Pod, error) {
	all, err := in.backend.Pods()
	if err != nil {
		return nil, err
	}
	word = strings.TrimSuffix(strings.ReplaceAll(word, "[", "-"), "]")
	ns, name := splitName(word)
	var out []*v1.Pod
	for _, p := range all {
		if p.Namespace == ns && p.Name == name {
			return []*v1.Pod{p}, nil
		}
		if p.Namespace == ns && groupOf(p) == name {
			out = append(out, p)
		}
	}
	return out, nil
}

// eachPod changes every pod that the statement's words name, and applies it.
func (in *interpreter) eachPod(s *statement, change func(*v1.Pod)) error {
	words := s.words
	if len(words) > 1 && (words[0] == "pod" || words[0] == "gang") {
		words = words[1:]
	}
	return in.visit(s, words, func(p *v1.Pod) error {
		change(p)
		return in.apply([]Object{p})
	})
}

// visit does something to every pod that words name.
func (in *interpreter) visit(s *statement, words []string, do func(*v1.Pod) error) error {
	for _, w := range words {
		pods, err := in.pods(w)
		if err != nil {
			return err
		}
		if len(pods) == 0 {
			return s.errorf("there is no pod or gang %s", w)
		}
		for _, p := range pods {
			if err := do(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// release deletes pods with a grace, 30 s unless given: their room is being given back until the next settle.
func (in *interpreter) release(s *statement) error {
	grace, stated := s.duration("grace")
	if !stated {
		grace = 30 * time.Second
	}
	t := metav1.NewTime(in.backend.Now().Add(grace))
	return in.eachPod(s, func(p *v1.Pod) { p.DeletionTimestamp = &t })
}

func (in *interpreter) end(s *statement) error {
	return in.eachPod(s, func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })
}

// free takes off what holds leaving pods.
func (in *interpreter) free(s *statement) error {
	return in.eachPod(s, func(p *v1.Pod) { p.Finalizers = nil })
}

// freeze forbids for an hour that one gang has another evicted, as a monitor does that saw them go round in circles:
// freeze TAKER GIVER.
func (in *interpreter) freeze(s *statement) error {
	b, ok := in.backend.(interface {
		Freeze(taker, giver cluster.Key)
	})
	if !ok || len(s.words) != 2 {
		return s.errorf("want freeze TAKER GIVER, on the engine")
	}
	key := func(word string) cluster.Key {
		ns, name := splitName(word)
		return kai.GangKey(ns, name)
	}
	b.Freeze(key(s.words[0]), key(s.words[1]))
	return nil
}

func (in *interpreter) restart(s *statement) error {
	b, ok := in.backend.(interface{ Restart() })
	if !ok || len(s.words) != 0 {
		return s.errorf("want restart, on the engine")
	}
	b.Restart()
	return nil
}

// usage says what queues used of the cluster lately: usage QUEUE gpu=0.5 cpu=0.1, as shares of it. What was said of a queue
// before is replaced; usage none takes all history away.
func (in *interpreter) usage(s *statement) error {
	b, ok := in.backend.(interface{ Usage(u cluster.UsageState) })
	if !ok {
		return s.errorf("this backend measures usage itself: the scenario needs the engine")
	}
	name := s.name()
	if name == "none" {
		in.used = nil
		b.Usage(cluster.UsageState{})
		return nil
	}
	var qs []cluster.Quantity
	for _, a := range s.attrs {
		x, err := strconv.ParseFloat(a.value, 64)
		if err != nil || x < 0 || x > 1000 {
			return s.errorf("%s=%s: want a share of the cluster, such as 0.5", a.key, a.value)
		}
		qs = append(qs, cluster.Quantity{Name: a.key, Value: int64(math.Round(x * 1e6))})
	}
	next := map[string][]cluster.Quantity{}
	maps.Copy(next, in.used)
	next[name] = qs
	in.used = next
	b.Usage(cluster.UsageState{Queues: next})
	return nil
}

// use says what of a node is measured to be in use now, in percent: use NODE cpu=90 memory=20; use NODE none for what is measured no more.
func (in *interpreter) use(s *statement) error {
	b, ok := in.backend.(*Engine)
	if !ok {
		return s.errorf("this backend measures nothing: the scenario needs the engine")
	}
	name := s.name()
	if len(s.words) > 1 && s.words[1] == "none" {
		b.Use(name, nil)
		return nil
	}
	u := cluster.NodeUse{At: cluster.InstantOf(b.Now())}
	for _, part := range []struct {
		key  string
		into *int64
	}{{"cpu", &u.CPU}, {"memory", &u.Memory}} {
		x, err := strconv.ParseInt(s.text(part.key, "0"), 10, 64)
		if err != nil || x < 0 || x > 100 {
			return s.errorf("%s: want whole percents", part.key)
		}
		*part.into = x
	}
	b.Use(name, &u)
	return nil
}

func (in *interpreter) ungate(s *statement) error {
	name := s.text("gate", "")
	return in.eachPod(s, func(p *v1.Pod) {
		if dropGate(p, name); name == "" {
			p.Spec.SchedulingGates = nil
		}
	})
}

// move binds pods to a node behind the scheduler's back: move pod x to=n1.
func (in *interpreter) move(s *statement) error {
	node := s.text("to", "")
	return in.eachPod(s, func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = node, v1.PodRunning })
}

// promise lets a decision about pods be on its way, its bind not done yet: promise pod x to=n1.
func (in *interpreter) promise(s *statement) error {
	b, ok := in.backend.(interface {
		Promise(p *v1.Pod, node string) error
	})
	if !ok {
		return s.errorf("this backend keeps its own promises")
	}
	node := s.text("to", "")
	return in.visit(s, s.words, func(p *v1.Pod) error { return b.Promise(p, node) })
}

func (in *interpreter) bindfail(s *statement) error {
	d, stated := s.duration("for")
	if !stated {
		d = postponement
	}
	return in.visit(s, []string{s.name()}, func(p *v1.Pod) error { return in.backend.RejectBind(p, d) })
}

func (in *interpreter) advance(s *statement) error {
	d, err := time.ParseDuration(s.name())
	if err != nil {
		return s.errorf("%q: want a duration such as 30s", s.name())
	}
	return in.backend.Advance(d)
}

// eachNode changes the node that the statement names: cordon [node] n1.
func (in *interpreter) eachNode(s *statement, change func(*v1.Node)) error {
	nodes, err := in.backend.Nodes()
	if err != nil {
		return err
	}
	words := s.words
	if len(words) > 1 && words[0] == "node" {
		words = words[1:]
	}
	for _, w := range words {
		i := slices.IndexFunc(nodes, func(n *v1.Node) bool { return n.Name == w })
		if i < 0 {
			return s.errorf("there is no node %s", w)
		}
		change(nodes[i])
		if err := in.apply([]Object{nodes[i]}); err != nil {
			return err
		}
	}
	return nil
}

func (in *interpreter) cordon(s *statement) error {
	return in.eachNode(s, func(n *v1.Node) { n.Spec.Unschedulable = true })
}

func (in *interpreter) uncordon(s *statement) error {
	return in.eachNode(s, func(n *v1.Node) { n.Spec.Unschedulable = false })
}

func ready(n *v1.Node, status v1.ConditionStatus) {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == v1.NodeReady {
			n.Status.Conditions[i].Status = status
		}
	}
}

func (in *interpreter) fail(s *statement) error {
	return in.eachNode(s, func(n *v1.Node) { ready(n, v1.ConditionUnknown) })
}

func (in *interpreter) restore(s *statement) error {
	return in.eachNode(s, func(n *v1.Node) { ready(n, v1.ConditionTrue) })
}

// explain prints why a gang, or the gang of a pod, is not whole: explain gang NAME, explain pod NAME. With the word tried,
// also what came of attempts to make room for it.
func (in *interpreter) explain(s *statement) error {
	tried := s.flag("tried")
	if len(s.words) != 2 && !(tried && len(s.words) == 3) || s.words[0] != "gang" && s.words[0] != "pod" {
		return s.errorf("want explain gang NAME or explain pod NAME")
	}
	name := s.words[1]
	var pods []*v1.Pod
	if s.words[0] == "pod" {
		var err error
		if pods, err = in.pods(name); err != nil {
			return err
		}
		if len(pods) != 1 {
			return s.errorf("there is no pod %s", name)
		}
		group := groupOf(pods[0])
		if group == "" {
			in.printf("%s: belongs to no gang\n", name)
			return nil
		}
		name = fullName(pods[0].Namespace, group)
	}
	trace, err := in.backend.Trace()
	if err != nil {
		return err
	}
	said := find(trace, name)
	if said == nil && s.words[0] == "pod" && core.PodPhase(pods[0]) == cluster.Pending {
		in.printf("%s: its gang %s does not exist\n", s.words[1], name)
		return nil
	}
	in.out.WriteString(drawReason(name, said, tried))
	return nil
}

// find returns what the trace says of a gang; nil for nothing.
func find(t *recorder.Trace, name string) *recorder.GangTrace {
	ns, n := splitName(name)
	for i := range t.Gangs {
		if k := t.Gangs[i].Gang; k.Namespace == ns && k.Name == n {
			return &t.Gangs[i]
		}
	}
	return nil
}
