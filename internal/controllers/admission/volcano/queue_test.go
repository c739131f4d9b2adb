package volcano

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	topology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
)

// filled is an object after a patch of what is filled in.
func filled[T any](t testing.TB, object *T, fills []Fill) *T {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	type step struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	steps := []step{}
	for _, f := range fills {
		steps = append(steps, step{"add", f.Path, f.Value})
	}
	patch, err := json.Marshal(steps)
	if err != nil {
		t.Fatal(err)
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = p.Apply(text); err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	out := new(T)
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestQueues is the table of Volcano's rules about Queues: the tree as it is, one that is made or, if it is in the tree, changed, and what is wrong with it.
func TestQueues(t *testing.T) {
	t.Parallel()
	const root, team = "root {}", "team {capability: {cpu: 10}, deserved: {cpu: 8}, guarantee: {resource: {cpu: 4}}}"
	deep := []string{root, "a {}", "b {parent: a}", "c {parent: b}", "d {parent: c}"}
	for _, c := range []struct {
		name  string
		tree  []string
		queue string
		wrong []string
	}{
		{"nothing", nil, "q {}", nil},
		{"all", []string{root}, "q {weight: 3, capability: {cpu: 4, nvidia.com/gpu: 2}, deserved: {cpu: 3, nvidia.com/gpu: 2}, guarantee: {resource: {cpu: 3}}, parent: root}", nil},
		{"a negative amount", nil, "q {capability: {cpu: -1}}", []string{"spec.capability[cpu]: Invalid value: \"-1\": must not be negative"}},
		{"more guaranteed than deserved", nil, "q {deserved: {cpu: 1}, guarantee: {resource: {cpu: 2}}}", []string{"spec.guarantee.resource[cpu]: Invalid value: \"2\": must be at most what is deserved, which is 1"}},
		{"guaranteed and not deserved", nil, "q {capability: {cpu: 9}, guarantee: {resource: {cpu: 2}}}", []string{"spec.guarantee.resource[cpu]: Invalid value: \"2\": must be at most what is deserved, which is 0"}},
		{"more deserved than may be had", nil, "q {capability: {cpu: 1}, deserved: {cpu: 2, memory: 1Gi}}", []string{"spec.deserved[cpu]: Invalid value: \"2\": must be at most the capability, which is 1"}},
		{"its own parent", nil, "q {parent: q}", []string{"spec.parent: Invalid value: \"q\": a queue cannot be its own parent"}},
		{"no parent", []string{root}, "q {parent: gone}", []string{"spec.parent: Not found: \"gone\""}},
		{"a parent in which pods run", []string{root, "busy {}"}, "q {parent: busy}", []string{"spec.parent: Invalid value: \"busy\": pods run in it"}},
		{"a parent with others below, in which pods run", []string{root, "busy {}", "a {parent: busy}"}, "q {parent: busy}", nil},
		{"the fifth", deep, "q {parent: d}", nil},
		{"the sixth", append(deep, "e {parent: d}"), "q {parent: e}", []string{"spec.parent: Invalid value: \"e\": makes 6 queues one below the other; at most 5"}},
		{"moved with what is below it", append(deep, "q {}", "r {parent: q}"), "q {parent: d}", []string{"makes 6 queues one below the other"}},
		{"a loop", []string{root, "q {}", "a {parent: q}"}, "q {parent: a}", []string{"spec.parent: Invalid value: \"a\": makes a loop"}},
		{"more than its parent may have", []string{root, team}, "q {parent: team, capability: {cpu: 11}}", []string{"spec.capability[cpu]: Invalid value: \"11\": must be at most that of Queue team above it, which is 10"}},
		{"more than the one above that", []string{root, team, "mid {parent: team}"}, "q {parent: mid, capability: {cpu: 11}}", []string{"must be at most that of Queue team above it"}},
		{"of what nobody bounds", []string{root, team}, "q {parent: team, capability: {memory: 11}}", nil},
		{"more than root may have", []string{"root {capability: {cpu: 1}}"}, "q {capability: {cpu: 11}, deserved: {cpu: 5}}", nil},
		{"deserved together", []string{root, team, "a {parent: team, deserved: {cpu: 5}}"}, "q {parent: team, deserved: {cpu: 4}}", []string{"spec.deserved[cpu]: Invalid value: \"4\": with those of the queues beside it is 9; Queue team above them has 8"}},
		{"guaranteed together", []string{root, team, "a {parent: team, deserved: {cpu: 3}, guarantee: {resource: {cpu: 3}}}"}, "q {parent: team, deserved: {cpu: 2}, guarantee: {resource: {cpu: 2}}}", []string{"spec.guarantee.resource[cpu]: Invalid value: \"2\": with those of the queues beside it is 5; Queue team above them has 4"}},
		{"deserved of what the parent has none", []string{root, team}, "q {parent: team, deserved: {memory: 1}}", []string{"spec.deserved[memory]: Invalid value: \"1\": with those of the queues beside it is 1; Queue team above them has 0"}},
		{"less than below it", []string{root, team, "a {parent: team, capability: {cpu: 9}}"}, "team {capability: {cpu: 8}, deserved: {cpu: 8}, guarantee: {resource: {cpu: 4}}}", []string{"spec.capability[cpu]: Invalid value: \"8\": must be at least that of Queue a below it, which is 9"}},
		{"less than below that", []string{root, team, "a {parent: team}", "b {parent: a, capability: {cpu: 9}}"}, "team {capability: {cpu: 8}, deserved: {cpu: 8}}", []string{"must be at least that of Queue b below it"}},
		{"deserves less than those below", []string{root, team, "a {parent: team, deserved: {cpu: 5}}"}, "team {deserved: {cpu: 4}}", []string{"spec.deserved[cpu]: Invalid value: \"4\": is below the sum of the queues below it, 5: it has 4"}},
		{"something else, where the sums were wrong", []string{root, "team {deserved: {cpu: 4}}", "a {parent: team, deserved: {cpu: 5}}"}, "team {weight: 3, deserved: {cpu: 4}}", nil},
		{"something else, where the amounts were wrong", []string{root, "q {guarantee: {resource: {cpu: 2}}} root/a 1"}, "q {weight: 3, parent: root, guarantee: {resource: {cpu: 2}}} root/a 1", nil},
		{"root's due", []string{"root {deserved: {cpu: 1}}"}, "root {deserved: {cpu: 2}}", []string{"spec.deserved: Forbidden: of root must not change"}},
		{"root's bound", []string{root}, "root {capability: {cpu: 2}}", []string{"spec.capability: Forbidden"}},
		{"root's guarantee", []string{root}, "root {deserved: {}, guarantee: {resource: {}}}", nil},
		{"root's weight", []string{root}, "root {weight: 2}", nil},
		{"a root that is made", nil, "root {reclaimable: false, weight: 1}", nil},
		{"a path", nil, "q {} root/a 1/2", nil},
		{"a path without weights", nil, "q {} root/a ", []string{"metadata.annotations[volcano.sh/hierarchy-weights]: Invalid value: \"\": has 1 weights, and the path in volcano.sh/hierarchy has 2 steps", "must be a number above 0"}},
		{"fewer weights", nil, "q {} root/a/b 1/2", []string{"has 2 weights"}},
		{"no number", nil, "q {} root/a 1/x", []string{"metadata.annotations[volcano.sh/hierarchy-weights]: Invalid value: \"x\": must be a number above 0"}},
		{"nothing of all", nil, "q {} root/a 1/0", []string{"Invalid value: \"0\": must be a number above 0"}},
		{"not a number", nil, "q {} root/a 1/NaN", []string{"Invalid value: \"NaN\""}},
		{"a path on which another is", []string{"r {} root/a/b 1/1/1"}, "q {} root/a 1/1", []string{"metadata.annotations[volcano.sh/hierarchy]: Invalid value: \"root/a\": leads on to Queue r"}},
		{"a path beside another", []string{"r {} root/ab 1/1"}, "q {} root/a 1/1", nil},
		{"closed", []string{"q {}"}, "q {} =Closed", nil},
		{"closing", []string{"q {}"}, "q {} =Closing", []string{"status.state: Unsupported value: \"Closing\""}},
		{"closing already", []string{"q {} =Closing"}, "q {weight: 2} =Closing", nil},
	} {
		var all []*v1beta1.Queue
		var old *v1beta1.Queue
		q := parseQueue(t, c.queue)
		for _, text := range c.tree {
			one := parseQueue(t, text)
			if one.Name == q.Name {
				old = one
			}
			all = append(all, one)
		}
		got, err := DefaultQueueRules().ValidateQueue(q, old, NewForest(all...), func(name string) (bool, error) { return name == "busy", nil })
		if err != nil {
			t.Error(err)
		}
		expect(t, c.name, got, c.wrong...)
	}
	broken := errors.New("away")
	if _, err := DefaultQueueRules().ValidateQueue(parseQueue(t, "q {parent: a}"), nil, NewForest(parseQueue(t, "a {}")), func(string) (bool, error) { return false, broken }); !errors.Is(err, broken) {
		t.Errorf("a cluster that cannot be read: %v", err)
	}
	loose := QueueRules{MaxDepth: 1}
	if got, _ := loose.ValidateQueue(parseQueue(t, "root {deserved: {cpu: 2}}"), parseQueue(t, root), NewForest(), nil); len(got) > 0 {
		t.Errorf("root is not protected: %v", got)
	}
}

// parseQueue reads NAME SPEC [PATH WEIGHTS] [=STATE].
func parseQueue(t testing.TB, text string) *v1beta1.Queue {
	t.Helper()
	text, state, _ := strings.Cut(text, " =")
	name, rest, _ := strings.Cut(text, " ")
	end := strings.LastIndex(rest, "}") + 1
	q := read[v1beta1.Queue](t, "{metadata: {name: "+name+"}, spec: "+rest[:end]+"}")
	if path, weights, found := strings.Cut(strings.TrimPrefix(rest[end:], " "), " "); found {
		q.Annotations = map[string]string{"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights}
	}
	q.Status.State = v1beta1.QueueState(state)
	return q
}

// TestQueueDeletion: which queues stay.
func TestQueueDeletion(t *testing.T) {
	t.Parallel()
	all := NewForest(parseQueue(t, "root {}"), parseQueue(t, "default {}"), parseQueue(t, "parent {}"), parseQueue(t, "child {parent: parent}"), parseQueue(t, "busy {}"))
	runs := func(name string) (bool, error) { return name == "busy", nil }
	for _, c := range []struct {
		name  string
		rules QueueRules
		wrong string
	}{
		{"root", QueueRules{}, "metadata.name: Forbidden: the queues root and default must not be deleted"},
		{"default", QueueRules{}, "must not be deleted"},
		{"parent", QueueRules{}, "metadata.name: Forbidden: has queues below it, such as child"},
		{"child", QueueRules{}, ""},
		{"busy", QueueRules{}, ""},
		{"busy", QueueRules{KeepBusy: true}, "metadata.name: Forbidden: pods run in it"},
		{"child", QueueRules{KeepBusy: true}, ""},
	} {
		got, err := c.rules.ValidateQueueDeletion(c.name, all, runs)
		if err != nil {
			t.Error(err)
		}
		expect(t, c.name, got, c.wrong)
	}
}

// TestQueueDefaults: what is filled in, and that it is filled in once.
func TestQueueDefaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ queue, want string }{
		{"q {weight: 2, reclaimable: false}", ""},
		{"q {}", `/spec={"reclaimable":true,"weight":1}`},
		{"q {weight: 2}", "/spec/reclaimable=true"},
		{"q {reclaimable: false}", "/spec/weight=1"},
		{"q {weight: 2, reclaimable: true} root/a 1/2", ""},
		{"q {weight: 2, reclaimable: true} a/b 1/2", `/metadata/annotations/volcano.sh~1hierarchy="root/a/b" /metadata/annotations/volcano.sh~1hierarchy-weights="1/1/2"`},
		{"q {weight: 2, reclaimable: true} a ", ""},
		{"q {weight: 2, reclaimable: true} root 1", ""},
	} {
		q := parseQueue(t, c.queue)
		fills := DefaultQueue(q)
		if got := say(t, fills); got != c.want {
			t.Errorf("%s: %s, want %s", c.queue, got, c.want)
		}
		if again := DefaultQueue(filled(t, q, fills)); len(again) > 0 {
			t.Errorf("%s: filled in again: %s", c.queue, say(t, again))
		}
	}
}

// TestPodGroups: the queue of a PodGroup.
func TestPodGroups(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ queue, note, want string }{
		{"default", "", ""}, {"default", "team", `/spec/queue="team"`}, {"mine", "team", ""}, {"default", "default", ""},
	} {
		g := &v1beta1.PodGroup{Spec: v1beta1.PodGroupSpec{Queue: c.queue}}
		if got := say(t, DefaultPodGroup(g, map[string]string{"scheduling.volcano.sh/queue-name": c.note})); got != c.want {
			t.Errorf("%v: %s", c, got)
		}
	}
	for queue, want := range map[string]string{
		"": "", "default": "", "new": "", "parent": "", "gone": "spec.queue: Not found: \"gone\"", "closed": "its state is Closed", "closing": "its state is Closing",
	} {
		expect(t, queue, ValidatePodGroup(&v1beta1.PodGroup{Spec: v1beta1.PodGroupSpec{Queue: queue}}, forest(t)), want)
	}
}

// TestOthers: HyperNodes, JobFlows and CronJobs.
func TestOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		members string
		wrong   []string
	}{
		{"[{type: Node, selector: {exactMatch: {name: n}}}]", nil},
		{"[{type: Node, selector: {regexMatch: {pattern: '^n-[0-9]+$'}}}]", nil},
		{"[]", []string{"spec.members: Required value"}},
		{"[{type: Node, selector: {exactMatch: {name: n}}}, {type: Node, selector: {regexMatch: {pattern: 'n-['}}}]", []string{"spec.members[1].selector.regexMatch.pattern: Invalid value: \"n-[\": must be a regular expression"}},
	} {
		expect(t, c.members, ValidateHyperNode(read[topology.HyperNode](t, "{metadata: {name: h}, spec: {tier: 1, members: "+c.members+"}}")), c.wrong...)
	}
	for _, c := range []struct {
		flows string
		wrong []string
	}{
		{"[]", nil},
		{"[{name: a}, {name: b, dependsOn: {targets: [a]}}]", nil},
		{"[{name: b, dependsOn: {targets: [a]}}, {name: a}]", nil},
		{"[{name: a, dependsOn: {targets: [c]}}]", []string{"spec.flows[0].dependsOn.targets[0]: Not found: \"c\""}},
		{"[{name: a, dependsOn: {targets: [b]}}, {name: b, dependsOn: {targets: [a]}}]", []string{"spec.flows: Invalid value: \"a -> b -> a\""}},
		{"[{name: a, dependsOn: {targets: [b]}}, {name: b, dependsOn: {targets: [a]}}, {name: a}]", nil}, // the later a counts
	} {
		expect(t, c.flows, ValidateJobFlow(read[flow.JobFlow](t, "{metadata: {name: f}, spec: {flows: "+c.flows+"}}")), c.wrong...)
	}
	for _, c := range []struct {
		spec  string
		wrong string
	}{
		{"schedule: '*/5 * * * *'", ""},
		{"schedule: '@hourly', timeZone: Europe/Paris", ""},
		{"schedule: ''", "spec.schedule: Required value"},
		{"schedule: 'TZ=Europe/Paris 0 1 * * *'", "spec.schedule: Invalid value: \"TZ=Europe/Paris 0 1 * * *\": must not name a time zone"},
		{"schedule: 'CRON_TZ=UTC 0 1 * * *'", "must not name a time zone"},
		{"schedule: 'TZ=UTC'", "must not name a time zone"},
		{"schedule: '61 * * * *'", "spec.schedule: Invalid value: \"61 * * * *\": must have the form of cron"},
		{"schedule: '* * *'", "must have the form of cron"},
		{"schedule: '@hourly', timeZone: ''", "spec.timeZone: Invalid value: \"\": must not be empty"},
		{"schedule: '@hourly', timeZone: Local", "spec.timeZone: Invalid value: \"Local\": must be a time zone of the IANA list"},
		{"schedule: '@hourly', timeZone: Mars/Olympus", "spec.timeZone: Invalid value: \"Mars/Olympus\""},
	} {
		expect(t, c.spec, ValidateCronJob(read[batch.CronJob](t, "{metadata: {name: c}, spec: {jobTemplate: {}, "+c.spec+"}}")), c.wrong)
	}
	long := &batch.CronJob{}
	long.Name, long.Spec.Schedule = strings.Repeat("c", 53), "@daily"
	expect(t, "a long name", ValidateCronJob(long), "metadata.name: Too long")
	long.Name = strings.Repeat("c", 52)
	expect(t, "not too long", ValidateCronJob(long))
}
