package enginetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine/plugins/taskorder"
)

// otherScheduler is the schedulerName of pods that are not ours.
const otherScheduler = "default-scheduler"

// heldFinalizer keeps a pod that leaves until the scenario frees it.
const heldFinalizer = "example.com/stay"

// Owner is the controller of scenario pods: an object of a kind that makes no pods by itself, and that a backend with a
// garbage collector must let exist in the pod's namespace.
func Owner() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "scenario-owner", UID: "scenario-owner", Controller: new(true)}
}

// gang makes a PodGroup and its pods. Parts below it: "set [PARENT/]NAME …" and "pod [SET/]INDEX …".
func (c *compiler) gang(s *statement) []Object {
	pg := &v2alpha2.PodGroup{}
	pg.Namespace, pg.Name = splitName(s.name())
	pg.CreationTimestamp = c.created(s)
	out := append(c.podGroupSpec(s, pg), pg)
	out = append(out, c.members(s, pg)...)
	switch {
	case s.flag("volcano"):
		return inVolcanos(s, out)
	case s.flag("kubebatch"):
		return inKubeBatchs(s, out)
	case s.flag("upstream"):
		return inUpstreams(s, out)
	}
	return out
}

// podGroupSpec fills everything but minimums, and returns the PriorityClass it refers to when that is a number.
func (c *compiler) podGroupSpec(s *statement, pg *v2alpha2.PodGroup) (out []Object) {
	pg.Spec.Queue = s.text("queue", "")
	if p := s.text("priority", ""); p != "" {
		if value, err := strconv.ParseInt(p, 10, 32); err == nil {
			class := &schedulingv1.PriorityClass{Value: int32(value)}
			class.Name = "priority-" + p
			out, p = append(out, class), class.Name
		}
		pg.Spec.PriorityClassName = p
	}
	switch {
	case s.flag("nonpreemptible"):
		pg.Spec.Preemptibility = v2alpha2.NonPreemptible
	case s.flag("preemptible"):
		pg.Spec.Preemptibility = v2alpha2.Preemptible
	}
	if s.flag("backoff") {
		pg.Spec.SchedulingBackoff = new(v2alpha2.SingleSchedulingBackoff)
	}
	if s.flag("gaveup") {
		pg.Status.SchedulingConditions = []v2alpha2.SchedulingCondition{{Type: v2alpha2.UnschedulableOnNodePool, NodePool: kai.DefaultPool, Status: v1.ConditionTrue}}
	}
	if s.flag("unmarked") {
		pg.Spec.MarkUnschedulable = new(false)
	}
	for _, at := range []struct{ key, annotation string }{
		{"started", kai.LastStartAnnotation}, {"evicted", kai.LastEvictionAnnotation}, {"stale", kai.StaleSinceAnnotation},
	} {
		if ago, stated := s.duration(at.key); stated {
			if pg.Annotations == nil {
				pg.Annotations = map[string]string{}
			}
			pg.Annotations[at.annotation] = c.now.Add(-ago).UTC().Format(time.RFC3339)
		}
	}
	pg.Spec.TopologyConstraint = c.constraint(s)
	pg.Spec.PreemptionDelay, pg.Spec.StalenessGracePeriod = span(s, "delay"), span(s, "grace")
	return out
}

// members fills the minimums and makes the pods.
func (c *compiler) members(s *statement, pg *v2alpha2.PodGroup) (out []Object) {
	var sets, single []*statement
	for i := range s.parts {
		p := &s.parts[i]
		switch p.verb {
		case "set":
			sets = append(sets, p)
		case "pod":
			single = append(single, p)
		default:
			s.note(p.errorf("a gang's parts are set and pod"))
		}
	}
	if len(sets) == 0 {
		n := s.int("pods", -1)
		least := s.int("min", max(n, 0))
		if n < 0 {
			n = max(1, least)
			least = max(1, least)
		}
		pg.Spec.MinMember = new(int32(least))
		out = c.pods(pg, "", n, layers{s}, single)
	} else if s.has("min") {
		pg.Spec.MinSubGroup = s.int32("min", 0)
	}
	for _, set := range sets {
		out = append(out, c.set(s, set, pg, single)...)
	}
	for _, p := range append(sets, single...) {
		s.note(p.done())
	}
	return out
}

// set adds one subgroup to pg and makes its pods. A set without pods= and min= of which another is a child is an inner
// one; there, min= is the number of children that must be complete.
func (c *compiler) set(gang, s *statement, pg *v2alpha2.PodGroup, single []*statement) (out []Object) {
	sg := v2alpha2.SubGroup{Name: s.name()}
	if parent, name, ok := strings.Cut(sg.Name, "/"); ok {
		sg.Name, sg.Parent = name, &parent
	}
	if together := c.constraint(s); together != (v2alpha2.TopologyConstraint{}) {
		sg.TopologyConstraint = &together
	}
	inner := slices.ContainsFunc(gang.parts, func(p statement) bool {
		return p.verb == "set" && len(p.words) > 0 && strings.HasPrefix(p.words[0], sg.Name+"/")
	})
	switch {
	case !inner:
		n := s.int("pods", 1)
		sg.MinMember = s.int32("min", n)
		out = c.pods(pg, sg.Name, n, layers{s, gang}, single)
	case s.has("min"):
		sg.MinSubGroup = s.int32("min", 0)
	}
	pg.Spec.SubGroups = append(pg.Spec.SubGroups, sg)
	return out
}

// layers are statements of which the first that has a key or word decides.
type layers []*statement

func (l layers) text(key, missing string) string {
	found, value := false, missing
	for _, s := range l {
		if vs := s.all(key); len(vs) > 0 && !found {
			found, value = true, vs[len(vs)-1]
		}
	}
	return value
}

func (l layers) all(key string) []string {
	var out []string
	for _, s := range l {
		out = append(out, s.all(key)...)
	}
	return out
}

func (l layers) flag(word string) bool {
	found := false
	for _, s := range l {
		found = s.flag(word) || found
	}
	return found
}

// merged is one statement that has everything the layers have. Resource names count as read; other keys
// have to be asked for.
func (l layers) merged() *statement {
	out := &statement{line: l[0].line, verb: l[0].verb, read: map[string]bool{}}
	for i := len(l) - 1; i >= 0; i-- {
		out.attrs = append(out.attrs, l[i].attrs...)
		for _, a := range l[i].attrs {
			if isResource(a.key) {
				l[i].read[a.key] = true
			}
		}
	}
	return out
}

// places says where the pods of one set are: "running=n1:3,n2 releasing=n3".
type place struct {
	how  string
	node string
}

// places reads, in this order, bound, running, releasing, stuck, ended, failed and gated; the pods after those wait.
func places(l layers, n int) (out []place) {
	for _, how := range []string{"bound", "running", "releasing", "stuck"} {
		text := l.text(how, "")
		if text == "" {
			continue
		}
		for _, part := range strings.Split(text, ",") {
			node, count, stated := strings.Cut(part, ":")
			k := n - len(out)
			if stated {
				var err error
				if k, err = strconv.Atoi(count); err != nil {
					l[0].bad("%s=%s: want NODE or NODE:COUNT, by commas", how, text)
				}
			}
			for range k {
				out = append(out, place{how, node})
			}
		}
	}
	for _, how := range []string{"ended", "failed", "gated"} {
		text := l.text(how, "")
		k := 0
		if text != "" {
			var err error
			if k, err = strconv.Atoi(text); err != nil {
				l[0].bad("%s=%s: want a number of pods", how, text)
			}
		}
		if l.flag(how) {
			k = n - len(out)
		}
		for range k {
			out = append(out, place{how: how})
		}
	}
	if len(out) > n {
		l[0].bad("says where %d pods are, but has %d", len(out), n)
	}
	for len(out) < n {
		out = append(out, place{how: "pending"})
	}
	return out
}

// pods makes the n pods of one set.
func (c *compiler) pods(pg *v2alpha2.PodGroup, set string, n int, l layers, single []*statement) []Object {
	if n < 0 || n > 100000 {
		l[0].bad("pods=%d: want 0 to 100000", n)
		return nil
	}
	l.flag("pending")
	where := places(l, n)
	if n == 0 { // what its pods would ask for is still read, for those a scenario adds later
		c.fill(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}}}, l, place{})
		return nil
	}
	out := make([]Object, 0, n)
	for i := range n {
		mine := l
		for _, s := range single {
			ofSet, index := "", s.name()
			if cut := strings.LastIndex(index, "/"); cut >= 0 {
				ofSet, index = index[:cut], index[cut+1:]
			}
			if index == strconv.Itoa(i) && ofSet == set {
				mine = append(layers{s}, mine...)
			}
		}
		p := &v1.Pod{}
		p.Namespace, p.Name = pg.Namespace, pg.Name
		if set != "" {
			p.Name += "-" + set
		}
		p.Name += "-" + strconv.Itoa(i)
		p.CreationTimestamp = pg.CreationTimestamp
		p.Annotations = map[string]string{kai.PodGroupAnnotation: pg.Name}
		p.Labels = map[string]string{}
		if set != "" {
			p.Labels[kai.SubGroupLabel] = set
		}
		c.fill(p, mine, where[i])
		out = append(out, p)
	}
	return out
}

// pod makes one pod: of a gang (gang=), of none, or of another scheduler (foreign).
func (c *compiler) pod(s *statement) []Object {
	p := &v1.Pod{}
	p.Namespace, p.Name = splitName(s.name())
	p.CreationTimestamp = c.created(s)
	p.Labels, p.Annotations = map[string]string{}, map[string]string{}
	if g := s.text("gang", ""); g != "" {
		p.Annotations[kai.PodGroupAnnotation] = g
	}
	if set := s.text("set", ""); set != "" {
		p.Labels[kai.SubGroupLabel] = set
	}
	s.flag("pending")
	c.fill(p, layers{s}, places(layers{s}, 1)[0])
	if s.flag("upstream") {
		intoUpstream(p, s.text("gang", ""), s.text("queue", ""))
	}
	return []Object{p}
}

// fill gives a pod what it asks for and where it is.
func (c *compiler) fill(p *v1.Pod, l layers, at place) {
	m := l.merged()
	c.share(p, l, m, at)
	request := amounts(m, nil)
	for _, key := range []string{"gpu", "cpu", "memory", "mig"} {
		l.all(key)
	}
	p.Spec.Containers = []v1.Container{{Name: "main", Image: "example.com/main", Resources: v1.ResourceRequirements{Requests: request, Limits: whole(request)}}}
	align(p, l)
	p.Spec.SchedulerName = c.scheduler
	if l.flag("foreign") {
		p.Spec.SchedulerName = otherScheduler
	}
	if name := l.text("scheduler", ""); name != "" {
		p.Spec.SchedulerName = name
	}
	for _, kv := range []struct {
		key  string
		into map[string]string
	}{{"label", p.Labels}, {"annotation", p.Annotations}} {
		l.all(kv.key)
		pairs(m, kv.key, kv.into)
	}
	if order := l.text("order", ""); order != "" {
		p.Labels[taskorder.PriorityLabel] = order
	}
	wishes(p, l, m)
	l[0].note(m.fault)
	p.Status.NominatedNodeName = l.text("nominated", "")
	if !l.flag("alone") {
		p.OwnerReferences = []metav1.OwnerReference{Owner()}
	}
	if l.flag("finalizer") {
		p.Finalizers = append(p.Finalizers, heldFinalizer)
	}
	c.locate(p, at)
	for _, name := range l.all("gate") {
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, v1.PodSchedulingGate{Name: name})
	}
	if text := l.text("scheduled", ""); text != "" {
		age, err := time.ParseDuration(text)
		if err != nil {
			l[0].bad("scheduled=%s: want how long ago, as a duration", text)
		}
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.now.Add(-age))})
	}
}

// whole returns the extended resources and huge pages, which must be limited to what is asked for.
func whole(request v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range request { // order: a map
		if strings.Contains(string(name), "/") || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			out[name] = q
		}
	}
	return out
}

// locate puts the pod where it is at the start.
func (c *compiler) locate(p *v1.Pod, at place) {
	p.Spec.NodeName = at.node
	p.Status.Phase = v1.PodPending
	switch at.how {
	case "running", "releasing", "stuck":
		p.Status.Phase = v1.PodRunning
	case "ended":
		p.Status.Phase = v1.PodSucceeded
	case "failed":
		p.Status.Phase = v1.PodFailed
	case "gated":
		p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/wait"}}
	}
	switch at.how {
	case "releasing":
		t := metav1.NewTime(c.now.Add(30 * time.Second))
		p.DeletionTimestamp = &t
	case "stuck":
		p.DeletionTimestamp, p.Finalizers = new(metav1.NewTime(c.now.Add(-time.Hour))), []string{"example.com/stuck"}
	}
}

// wishes fills where the pod may run.
func wishes(p *v1.Pod, l layers, m *statement) {
	l.all("selector")
	selector := map[string]string{}
	if pairs(m, "selector", selector); len(selector) > 0 {
		p.Spec.NodeSelector = selector
	}
	if nodes := l.text("nodes", ""); nodes != "" {
		require(p, v1.NodeSelectorRequirement{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: strings.Split(nodes, ",")})
	}
	for _, text := range l.all("expression") { // KEY:OPERATOR[:VALUE,VALUE]
		parts := strings.SplitN(text, ":", 3)
		if len(parts) < 2 {
			l[0].bad("expression=%s: want KEY:OPERATOR[:VALUES]", text)
			return
		}
		r := v1.NodeSelectorRequirement{Key: parts[0], Operator: v1.NodeSelectorOperator(parts[1])}
		if len(parts) == 3 {
			r.Values = strings.Split(parts[2], ",")
		}
		require(p, r)
	}
	for _, text := range l.all("toleration") { // KEY[=VALUE][:EFFECT], or * for all
		p.Spec.Tolerations = append(p.Spec.Tolerations, parseToleration(text))
	}
	for _, text := range l.all("port") { // [IP:]PORT[/PROTOCOL]
		port, err := parsePort(text)
		if err != nil {
			l[0].bad("%v", err)
		}
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, port)
	}
	for _, name := range l.all("configmap") {
		v := v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}}
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v})
	}
	for _, name := range l.all("claim") {
		v := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v})
	}
	claimDevices(p, l)
	social(p, l)
}

// social reads affinity=KEY=VALUE@TOPOLOGYKEY, antiaffinity=…, prefer=WEIGHT:KEY=VALUE@TOPOLOGYKEY and spread=MAXSKEW@TOPOLOGYKEY (over the pod's own labels).
func social(p *v1.Pod, l layers) {
	term := func(key, text string) []v1.PodAffinityTerm {
		kv, topology, ok := strings.Cut(text, "@")
		k, v, ok2 := strings.Cut(kv, "=")
		if !ok || !ok2 {
			l[0].bad("%s=%s: want KEY=VALUE@TOPOLOGYKEY", key, text)
		}
		return []v1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}, TopologyKey: topology}}
	}
	if text := l.text("affinity", ""); text != "" {
		affinity(p).PodAffinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term("affinity", text)}
	}
	if text := l.text("antiaffinity", ""); text != "" {
		affinity(p).PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term("antiaffinity", text)}
	}
	for _, text := range l.all("prefer") {
		number, rest, _ := strings.Cut(text, ":")
		weight, err := strconv.ParseInt(number, 10, 32)
		if err != nil || weight == 0 {
			l[0].bad("prefer=%s: want WEIGHT:KEY=VALUE@TOPOLOGYKEY, the weight negative for what is avoided", text)
		}
		t := term("prefer", rest)
		if a := affinity(p); weight > 0 {
			if a.PodAffinity == nil {
				a.PodAffinity = &v1.PodAffinity{}
			}
			ts := &a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution
			*ts = append(*ts, v1.WeightedPodAffinityTerm{Weight: int32(weight), PodAffinityTerm: t[0]})
		} else {
			if a.PodAntiAffinity == nil {
				a.PodAntiAffinity = &v1.PodAntiAffinity{}
			}
			ts := &a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
			*ts = append(*ts, v1.WeightedPodAffinityTerm{Weight: int32(-weight), PodAffinityTerm: t[0]})
		}
	}
	if text := l.text("spread", ""); text != "" {
		skew, topology, ok := strings.Cut(text, "@")
		n, err := strconv.ParseInt(skew, 10, 32)
		if !ok || err != nil {
			l[0].bad("spread=%s: want MAXSKEW@TOPOLOGYKEY", text)
		}
		own := map[string]string{}
		for k, v := range p.Labels { // order: a set
			if !slices.Contains([]string{kai.SubGroupLabel, taskorder.PriorityLabel}, k) {
				own[k] = v
			}
		}
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			MaxSkew: int32(n), TopologyKey: topology, WhenUnsatisfiable: v1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: own},
		}}
	}
}

func affinity(p *v1.Pod) *v1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &v1.Affinity{}
	}
	return p.Spec.Affinity
}

// require adds an expression to the one term of the pod's required node affinity.
func require(p *v1.Pod, r v1.NodeSelectorRequirement) {
	a := affinity(p)
	if a.NodeAffinity == nil {
		a.NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{}}}}
	}
	t := &a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
	t.MatchExpressions = append(t.MatchExpressions, r)
}

func parseToleration(text string) v1.Toleration {
	if text == "*" {
		return v1.Toleration{Operator: v1.TolerationOpExists}
	}
	kv, effect, _ := strings.Cut(text, ":")
	t := v1.Toleration{Key: kv, Operator: v1.TolerationOpExists, Effect: v1.TaintEffect(effect)}
	if k, v, ok := strings.Cut(kv, "="); ok {
		t.Key, t.Value, t.Operator = k, v, v1.TolerationOpEqual
	}
	return t
}

func parsePort(text string) (v1.ContainerPort, error) {
	out := v1.ContainerPort{Protocol: v1.ProtocolTCP}
	rest, protocol, ok := strings.Cut(text, "/")
	if ok {
		out.Protocol = v1.Protocol(protocol)
	}
	if cut := strings.LastIndex(rest, ":"); cut >= 0 {
		out.HostIP, rest = rest[:cut], rest[cut+1:]
	}
	n, err := strconv.ParseInt(rest, 10, 32)
	if err != nil {
		return out, fmt.Errorf("port=%s: want [IP:]PORT[/PROTOCOL]", text)
	}
	out.HostPort, out.ContainerPort = int32(n), int32(n)
	return out, nil
}
