package enginetest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// What statements leave out.
const (
	defaultSpace      = "default"
	defaultNodeCPU    = "64"
	defaultNodeMemory = "512Gi"
	defaultNodePods   = "110"
)

// compiler turns statements into objects. Objects are created one second apart, in the order of the file, unless they
// state an age.
type compiler struct {
	now       time.Time
	last      time.Time       // creation of the object made last
	scheduler string          // spec.schedulerName of pods that are ours
	layouts   []layout        // the topologies so far
	groups    map[string]bool // device groups that statements named
}

func (c *compiler) objects(s *statement) ([]Object, bool, error) {
	var make func(*statement) []Object
	switch s.verb {
	case "node":
		make = c.node
	case "nodes":
		make = c.nodes
	case "queue":
		make = c.queue
	case "gang":
		make = c.gang
	case "composite":
		make = c.composite
	case "pod":
		make = c.pod
	case "priorityclass":
		make = c.priorityClass
	case "configmap":
		make = c.configMap
	case "budget":
		make = c.budget
	case "topology":
		make = c.topology
	case "deviceclass":
		make = c.deviceClass
	case "slice":
		make = c.slice
	case "resourceclaim":
		make = c.resourceClaim
	case "claimtemplate":
		make = c.claimTemplate
	default:
		return nil, false, nil
	}
	out := make(s)
	if pool := s.text("pool", ""); pool != "" {
		for _, o := range out {
			join(o, pool)
		}
	}
	if err := s.done(); err != nil {
		return nil, true, err
	}
	return out, true, nil
}

func (c *compiler) created(s *statement) metav1.Time {
	if age, stated := s.duration("age"); stated {
		return metav1.NewTime(c.now.Add(-age))
	}
	c.last = c.last.Add(time.Second)
	return metav1.NewTime(c.last)
}

func (c *compiler) node(s *statement) []Object {
	n := &v1.Node{}
	n.Name, n.CreationTimestamp = s.name(), c.created(s)
	n.Labels = map[string]string{v1.LabelHostname: n.Name}
	pairs(s, "label", n.Labels)
	for _, t := range s.all("taint") {
		taint, err := parseTaint(t)
		if err != nil {
			s.bad("%v", err)
		}
		n.Spec.Taints = append(n.Spec.Taints, taint)
	}
	n.Spec.Unschedulable = s.flag("cordoned")
	devices(s, n.Labels)
	room := amounts(s, map[string]string{"cpu": defaultNodeCPU, "memory": defaultNodeMemory, "pods": defaultNodePods})
	n.Status.Allocatable, n.Status.Capacity = room, room
	status := func(problem bool) v1.ConditionStatus {
		if problem {
			return v1.ConditionTrue
		}
		return v1.ConditionFalse
	}
	n.Status.Conditions = []v1.NodeCondition{
		{Type: v1.NodeReady, Status: status(!s.flag("notready"))},
		{Type: v1.NodeMemoryPressure, Status: status(s.flag("memory-pressure"))},
		{Type: v1.NodeDiskPressure, Status: status(s.flag("disk-pressure"))},
		{Type: v1.NodePIDPressure, Status: status(s.flag("pid-pressure"))},
		{Type: v1.NodeNetworkUnavailable, Status: status(s.flag("network-unavailable"))},
	}
	if zones := zones(s, n); zones != nil {
		return []Object{n, zones}
	}
	return []Object{n}
}

// nodes makes many equal nodes: nodes 4 prefix=n gpu=8 tree=zone:2,rack:2.
func (c *compiler) nodes(s *statement) (out []Object) {
	word := s.name()
	count, err := strconv.Atoi(word)
	if err != nil || count < 1 || count > 10000 {
		s.bad("%q: want how many nodes, 1 to 10000", word)
		return nil
	}
	prefix := s.text("prefix", "n")
	domains := c.domains(s, count)
	for i := range count {
		one := *s
		one.attrs = slices.Concat(domains(i), s.attrs) // a label= of the statement wins
		one.words = append([]string{prefix + strconv.Itoa(i+1)}, s.words[1:]...)
		out = append(out, c.node(&one)...)
		s.note(one.fault)
	}
	return out
}

// isResource says whether a key is the name of a resource, other than gpu, cpu, memory and pods.
func isResource(key string) bool {
	return strings.Contains(key, "/") || strings.HasPrefix(key, "ephemeral") || strings.HasPrefix(key, "hugepages")
}

// amounts reads gpu, cpu, memory, pods, and every other resource name.
func amounts(s *statement, missing map[string]string) v1.ResourceList {
	out := v1.ResourceList{}
	set := func(name v1.ResourceName, text string) {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			s.bad("%s=%s: want a quantity", name, text)
		}
		if !q.IsZero() {
			out[name] = q
		}
	}
	for _, k := range []struct {
		key  string
		name v1.ResourceName
	}{{"gpu", "nvidia.com/gpu"}, {"cpu", v1.ResourceCPU}, {"memory", v1.ResourceMemory}, {"pods", v1.ResourcePods}} {
		if k.key == "pods" && missing["pods"] == "" { // in a gang, pods is a number of pods
			continue
		}
		if text := s.text(k.key, missing[k.key]); text != "" {
			set(k.name, text)
		}
	}
	if text := s.text("mig", ""); text != "" { // PROFILE or PROFILE:COUNT, by commas
		for _, part := range strings.Split(text, ",") {
			profile, n, counted := strings.Cut(part, ":")
			if !counted {
				n = "1"
			}
			set(v1.ResourceName(kai.MIGPrefix+profile), n)
		}
	}
	for _, a := range s.attrs {
		if isResource(a.key) {
			s.read[a.key] = true
			set(v1.ResourceName(a.key), a.value)
		}
	}
	return out
}

// pairs reads every key=NAME=VALUE into m.
func pairs(s *statement, key string, m map[string]string) {
	for _, p := range s.all(key) {
		k, v, _ := strings.Cut(p, "=")
		if k == "" {
			s.bad("%s=%s: want %s=KEY=VALUE", key, p, key)
		}
		m[k] = v
	}
}

// parseTaint reads KEY[=VALUE]:EFFECT.
func parseTaint(text string) (v1.Taint, error) {
	kv, effect, ok := strings.Cut(text, ":")
	k, v, _ := strings.Cut(kv, "=")
	if !ok || k == "" {
		return v1.Taint{}, fmt.Errorf("taint %q: want KEY=VALUE:EFFECT", text)
	}
	return v1.Taint{Key: k, Value: v, Effect: v1.TaintEffect(effect)}, nil
}

// queue makes a Queue. In queue a/b/c the parents a and b are only referred to.
func (c *compiler) queue(s *statement) []Object {
	q := &v2.Queue{}
	names := strings.Split(s.name(), "/")
	q.Name = names[len(names)-1]
	if len(names) > 1 {
		q.Spec.ParentQueue = names[len(names)-2]
	}
	q.Spec.DisplayName = s.text("display", "")
	q.CreationTimestamp = c.created(s)
	if s.has("priority") {
		q.Spec.Priority = new(s.int("priority", 0))
	}
	q.Spec.PreemptMinRuntime, q.Spec.ReclaimMinRuntime = span(s, "preempt-min-runtime"), span(s, "reclaim-min-runtime")
	if s.flag("budgets-block") {
		q.Annotations = map[string]string{kai.BudgetsAnnotation: kai.BudgetsBlock}
	}
	if s.flag("empty") { // no spec.resources at all
		return []Object{q}
	}
	q.Spec.Resources = &v2.QueueResources{}
	for _, d := range []struct {
		prefix string
		into   *v2.QueueResource
		quota  string
		unit   func(string) (float64, error)
	}{
		{"", &q.Spec.Resources.GPU, "0", plainNumber},
		{"cpu.", &q.Spec.Resources.CPU, "unlimited", milli},
		{"memory.", &q.Spec.Resources.Memory, "unlimited", megabytes},
	} {
		for _, f := range []struct {
			key, missing string
			into         *float64
			unit         func(string) (float64, error)
		}{
			{"quota", d.quota, &d.into.Quota, d.unit}, {"limit", "unlimited", &d.into.Limit, d.unit}, {"weight", "1", &d.into.OverQuotaWeight, plainNumber},
		} {
			text := s.text(d.prefix+f.key, f.missing)
			if *f.into = v2.Unlimited; text == "unlimited" {
				continue
			}
			var err error
			if *f.into, err = f.unit(text); err != nil {
				s.bad("%s%s=%s: %v", d.prefix, f.key, text, err)
			}
		}
	}
	extended(s, q)
	return []Object{q}
}

// extended reads NAME.quota, NAME.limit and NAME.weight for resource names with a slash.
func extended(s *statement, q *v2.Queue) {
	for _, a := range s.attrs {
		dot := strings.LastIndex(a.key, ".")
		if dot < 0 || !strings.Contains(a.key, "/") {
			continue
		}
		name, field := a.key[:dot], a.key[dot+1:]
		if q.Spec.Resources.Extended == nil {
			q.Spec.Resources.Extended = map[string]v2.QueueResource{}
		}
		r, known := q.Spec.Resources.Extended[name]
		if !known {
			r.Limit = v2.Unlimited
		}
		x := float64(v2.Unlimited)
		if a.value != "unlimited" {
			var err error
			if x, err = plainNumber(a.value); err != nil {
				s.bad("%s=%s: %v", a.key, a.value, err)
			}
		}
		switch field {
		case "quota":
			r.Quota = x
		case "limit":
			r.Limit = x
		case "weight":
			r.OverQuotaWeight = x
		default:
			s.bad("%s: want quota, limit or weight after the last dot", a.key)
		}
		q.Spec.Resources.Extended[name] = r
		s.read[a.key] = true
	}
}

func plainNumber(text string) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("want a number or unlimited")
	}
	return x, nil
}

func milli(text string) (float64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("want a quantity or unlimited")
	}
	return float64(q.MilliValue()), nil
}

func megabytes(text string) (float64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("want a quantity or unlimited")
	}
	return math.Ceil(float64(q.Value()) / 1e6), nil
}

// priorityClass makes a PriorityClass: priorityclass train 50 [default].
func (c *compiler) priorityClass(s *statement) []Object {
	if len(s.words) < 2 {
		s.bad("want priorityclass NAME VALUE [default]")
		return nil
	}
	value, err := strconv.ParseInt(s.words[1], 10, 32)
	if err != nil {
		s.bad("%q: want a whole number of 32 bits", s.words[1])
	}
	s.read[s.words[1]] = true
	p := &schedulingv1.PriorityClass{Value: int32(value), GlobalDefault: s.flag("default")}
	p.Name = s.words[0]
	return []Object{p}
}

// span reads a duration as objects write it, nil for none.
func span(s *statement, key string) *metav1.Duration {
	if d, stated := s.duration(key); stated {
		return &metav1.Duration{Duration: d}
	}
	return nil
}

// budget makes a PodDisruptionBudget: budget ns/name select=KEY=VALUE min=2, or allowed=1 for a number that stays.
func (c *compiler) budget(s *statement) []Object {
	b := &policyv1.PodDisruptionBudget{}
	b.Namespace, b.Name = splitName(s.name())
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{}}
	pairs(s, "select", b.Spec.Selector.MatchLabels)
	b.Status.DisruptionsAllowed = int32(s.int("allowed", 0))
	if s.has("min") {
		b.Spec.MinAvailable = new(intstr.FromInt32(int32(s.int("min", 0))))
	}
	if s.has("min") == s.has("allowed") {
		s.bad("want min=N, how many must stay, or allowed=N, how many may go")
	}
	return []Object{b}
}

// configMap makes a ConfigMap: configmap ns/name.
func (c *compiler) configMap(s *statement) []Object {
	m := &v1.ConfigMap{}
	m.Namespace, m.Name = splitName(s.name())
	return []Object{m}
}

// splitName reads [NAMESPACE/]NAME.
func splitName(text string) (namespace, name string) {
	if ns, n, ok := strings.Cut(text, "/"); ok {
		return ns, n
	}
	return defaultSpace, text
}

// fullName is the inverse of splitName.
func fullName(namespace, name string) string {
	if namespace == defaultSpace || namespace == "" {
		return name
	}
	return namespace + "/" + name
}
