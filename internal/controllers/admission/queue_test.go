package admission

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// queue reads a Queue.
func queue(t testing.TB, text string) *v2.Queue {
	t.Helper()
	q := &v2.Queue{}
	if err := yaml.UnmarshalStrict([]byte(text), q); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return q
}

// forest reads queues.
func forest(t testing.TB, texts ...string) Forest {
	t.Helper()
	f := Forest{}
	for _, text := range texts {
		q := queue(t, text)
		f[q.Name] = q
	}
	return f
}

const gpus = "{gpu: {quota: 4, limit: -1}, cpu: {quota: -1}, memory: {quota: -1}}"

func TestValidateQueue(t *testing.T) {
	t.Parallel()
	others := forest(
		t,
		`{metadata: {name: root}, spec: {resources: `+gpus+`}}`,
		`{metadata: {name: a}, spec: {parentQueue: root, resources: {gpu: {quota: 3}}}}`,
		`{metadata: {name: b}, spec: {parentQueue: a, resources: {gpu: {quota: 3}}}}`,
		`{metadata: {name: x}, spec: {parentQueue: y, resources: {}}}`, // a loop that is there already
		`{metadata: {name: y}, spec: {parentQueue: x, resources: {}}}`,
		`{metadata: {name: bare}, spec: {}}`,
	)
	for name, c := range map[string]struct {
		queue, old string
		quotas     bool
		want, warn string
	}{
		"below another":         {queue: `{metadata: {name: c}, spec: {parentQueue: root, resources: {}}}`},
		"at the top":            {queue: `{metadata: {name: c}, spec: {resources: {}}}`},
		"unknown parent":        {queue: `{metadata: {name: c}, spec: {parentQueue: gone, resources: {}}}`, warn: `spec.parentQueue: there is no Queue "gone" yet`},
		"a loop of two":         {queue: `{metadata: {name: root}, spec: {parentQueue: a, resources: {}}}`, old: `{metadata: {name: root}}`, want: `spec.parentQueue: Invalid value: "a": makes a loop: root -> a -> root`},
		"a loop of three":       {queue: `{metadata: {name: root}, spec: {parentQueue: b, resources: {}}}`, want: `root -> b -> a -> root`},
		"a loop of others":      {queue: `{metadata: {name: c}, spec: {parentQueue: x, resources: {}}}`},
		"a loop that was there": {queue: `{metadata: {name: x}, spec: {parentQueue: y, resources: {}, priority: 5}}`, old: `{metadata: {name: x}, spec: {parentQueue: y, resources: {}}}`},
		"itself":                {queue: `{metadata: {name: c}, spec: {parentQueue: c, resources: {}}}`, want: `c -> c`},
		"a negative quota":      {queue: `{metadata: {name: c}, spec: {resources: {gpu: {quota: -5}}}}`, warn: `Queue c: spec.resources.gpu.quota is -5; it must be -1 (unlimited) or not negative`},
		"odd budgets":           {queue: `{metadata: {name: c, annotations: {muster.dev/disruption-budgets: never}}, spec: {resources: {}}}`, warn: `must be order or block`},
		"quotas not looked at":  {queue: `{metadata: {name: c}, spec: {parentQueue: root, resources: {gpu: {quota: 100}}}}`},
		"more than the parent":  {quotas: true, queue: `{metadata: {name: c}, spec: {parentQueue: root, resources: {gpu: {quota: 2}, cpu: {quota: 9}}}}`, warn: `spec.resources.gpu.quota: the queues below "root" have 5 together, it has 4`},
		"as much":               {quotas: true, queue: `{metadata: {name: c}, spec: {parentQueue: root, resources: {gpu: {quota: 1}}}}`},
		"without bound":         {quotas: true, queue: `{metadata: {name: c}, spec: {parentQueue: root, resources: {gpu: {quota: -1}}}}`, warn: `Queue "c" is without bound, its parent "root" has 4`},
		"less than the child":   {quotas: true, queue: `{metadata: {name: a}, spec: {parentQueue: root, resources: {gpu: {quota: 2}}}}`, warn: `the queues below "a" have 3 together, it has 2`},
		"parent without any":    {quotas: true, queue: `{metadata: {name: c}, spec: {parentQueue: bare, resources: {}}}`, warn: `Queue "bare" has no resources`},
	} {
		rules := &Rules{Quotas: c.quotas}
		var old *v2.Queue
		if c.old != "" {
			old = queue(t, c.old)
		}
		wrong, warnings := rules.ValidateQueue(queue(t, c.queue), old, others)
		got, warned := strings.Join(lines(wrong), "; "), strings.Join(warnings, "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: refused with %q, want %q", name, got, c.want)
		}
		if (warned == "") != (c.warn == "") || !strings.Contains(warned, c.warn) {
			t.Errorf("%s: warns %q, want %q", name, warned, c.warn)
		}
	}
}

// TestLongLoop: a loop through very many queues is told in one line.
func TestLongLoop(t *testing.T) {
	t.Parallel()
	f := Forest{}
	name := func(i int) string { return "q" + strings.Repeat("x", i) }
	for i := range 300 {
		f[name(i)] = queue(t, `{metadata: {name: `+name(i)+`}, spec: {parentQueue: `+name(i+1)+`, resources: {}}}`)
	}
	last := queue(t, `{metadata: {name: `+name(300)+`}, spec: {parentQueue: `+name(0)+`, resources: {}}}`)
	wrong, _ := (&Rules{}).ValidateQueue(last, nil, f)
	if len(wrong) != 1 || strings.Count(wrong[0].Detail, "->") != 8 {
		t.Errorf("%v", wrong)
	}
}

// TestMissed: a queue goes whatever is in it, and who deletes it is told what will wait.
func TestMissed(t *testing.T) {
	t.Parallel()
	f := forest(t, `{metadata: {name: p}}`, `{metadata: {name: a}, spec: {parentQueue: p}}`, `{metadata: {name: b}, spec: {parentQueue: p}}`, `{metadata: {name: s}, spec: {parentQueue: s}}`)
	for _, c := range []struct {
		name   string
		groups []string
		more   bool
		want   string
	}{
		{name: "a"},
		{name: "s"}, // its own parent: nothing is lost
		{name: "gone"},
		{name: "p", want: "the queues below p until it is back, or they have another parent: a, b"},
		{name: "a", groups: []string{"n/g"}, want: "PodGroups name queue a; what of them waits, waits until it is back, what runs can be reclaimed: n/g"},
		{name: "a", groups: []string{"n/g", "n/h", "n/i"}, more: true, want: "n/g, n/h, n/i and others"},
	} {
		if got := strings.Join(Missed(c.name, f, c.groups, c.more), "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// podGroup reads a PodGroup's spec.
func podGroup(t testing.TB, spec string) *v2alpha2.PodGroup {
	t.Helper()
	pg := &v2alpha2.PodGroup{}
	if err := yaml.UnmarshalStrict([]byte(spec), &pg.Spec); err != nil {
		t.Fatalf("%v in %s", err, spec)
	}
	return pg
}

// TestValidatePodGroup is KAI's table, and what an update does not ask again.
func TestValidatePodGroup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec, old  string
		want, warn string
	}{
		"a gang":                     {spec: `{minMember: 4}`},
		"nothing":                    {spec: `{}`},
		"both minimums":              {spec: `{minMember: 4, minSubGroup: 0}`, want: "spec.minSubGroup: Forbidden: must not be set together with minMember"},
		"both minimums, on update":   {spec: `{minMember: 4, minSubGroup: 0}`, old: `{minMember: 4}`, want: "spec.minSubGroup: Forbidden"},
		"both minimums, as before":   {spec: `{minMember: 4, minSubGroup: 0, queue: b}`, old: `{minMember: 4, minSubGroup: 0}`},
		"both, in a subgroup":        {spec: `{subGroups: [{name: a, minSubGroup: 1, minMember: 1}, {name: b, parent: a, minMember: 1}]}`, want: "spec.subGroups[0].minSubGroup: Forbidden: must not be set together"},
		"a member and subgroups":     {spec: `{minMember: 4, subGroups: [{name: a, minMember: 1}]}`},
		"a tree":                     {spec: `{minSubGroup: 1, subGroups: [{name: a, minSubGroup: 2}, {name: b, parent: a, minMember: 1}, {name: c, parent: a, minMember: 0}]}`},
		"a doubled name":             {spec: `{subGroups: [{name: a, minMember: 1}, {name: a, minMember: 1}]}`, want: `spec.subGroups[1].name: Duplicate value: "a"`},
		"structure alone":            {spec: `{minMember: 1, minSubGroup: 5, subGroups: [{name: a, minMember: 1}, {name: a}]}`, want: `Duplicate value: "a"`},
		"no parent":                  {spec: `{subGroups: [{name: a, parent: b, minMember: 1}]}`, want: `spec.subGroups[0].parent: Not found: "b"`},
		"its own parent":             {spec: `{subGroups: [{name: a, parent: a}]}`, want: `spec.subGroups[0].parent: Invalid value: "a": makes a loop`},
		"a loop":                     {spec: `{subGroups: [{name: x, minMember: 1}, {name: a, parent: c}, {name: b, parent: a}, {name: c, parent: b}, {name: d, parent: c}]}`, want: `spec.subGroups[1].parent: Invalid value: "c": makes a loop`},
		"a leaf of subgroups":        {spec: `{subGroups: [{name: a, minSubGroup: 1, minMember: null}]}`, want: "spec.subGroups[0].minSubGroup: Forbidden: is for subgroups that others name"},
		"a leaf without minimum":     {spec: `{subGroups: [{name: a}]}`, want: "spec.subGroups[0].minMember: Required value"},
		"an inner minimum":           {spec: `{subGroups: [{name: a, minMember: 1}, {name: b, parent: a, minMember: 1}]}`, want: "spec.subGroups[0].minMember: Forbidden: is for subgroups with pods"},
		"an inner minimum, update":   {spec: `{subGroups: [{name: a, minMember: 1}, {name: b, parent: a, minMember: 1}]}`, old: `{}`, warn: "spec.subGroups[0].minMember: has no effect"},
		"too many wanted":            {spec: `{minSubGroup: 2, subGroups: [{name: a, minMember: 1}]}`, warn: "spec.minSubGroup: 2 exceeds the number of subgroups right below, 1;"},
		"too many wanted, update":    {spec: `{minSubGroup: 2, subGroups: [{name: a, minMember: 1}]}`, old: `{}`, warn: "spec.minSubGroup: 2 exceeds"},
		"too many wanted inside":     {spec: `{subGroups: [{name: a, minSubGroup: 3}, {name: b, parent: a, minMember: 1}]}`, warn: "spec.subGroups[0].minSubGroup: 3 exceeds the number of subgroups right below, 1"},
		"subgroups wanted, none":     {spec: `{minSubGroup: 1}`, warn: "spec.minSubGroup: 1 exceeds the number of subgroups right below, 0"},
		"warnings beside refusals":   {spec: `{minSubGroup: 9, subGroups: [{name: a}]}`, want: "Required value", warn: "spec.minSubGroup: 9 exceeds"},
		"a new fault beside old":     {spec: `{subGroups: [{name: a}, {name: b}]}`, old: `{subGroups: [{name: a}, {name: b, minMember: 1}]}`, want: "spec.subGroups[1].minMember: Required"},
		"as many subgroups as go":    {spec: many(4096)},
		"more subgroups than can go": {spec: many(4097), want: "spec.subGroups: Too many: 4097: must have at most 4096 items"},
	} {
		var old *v2alpha2.PodGroup
		if c.old != "" {
			old = podGroup(t, c.old)
		}
		wrong, warnings := ValidatePodGroup(podGroup(t, c.spec), old)
		got, warned := strings.Join(lines(wrong), "; "), strings.Join(warnings, "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: refused with %.300q, want %q", name, got, c.want)
		}
		if (warned == "") != (c.warn == "") || !strings.Contains(warned, c.warn) {
			t.Errorf("%s: warns %.300q, want %q", name, warned, c.warn)
		}
	}
	wrong, warnings := ValidatePodGroup(podGroup(t, `{subGroups: [`+strings.Repeat(`{name: z, minMember: 1},`, 3)+`]}`), nil)
	if len(wrong) != 2 || warnings != nil {
		t.Errorf("a name three times: %v %v", wrong, warnings)
	}
}

// many is a PodGroup's spec with so many subgroups, each the parent of the next, the last with pods.
func many(n int) string {
	name := func(i int) string {
		return "s" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
	}
	var b strings.Builder
	b.WriteString("subGroups:\n")
	for i := range n {
		b.WriteString("- {name: " + name(i))
		if i > 0 {
			b.WriteString(", parent: " + name(i-1))
		}
		if i == n-1 {
			b.WriteString(", minMember: 1")
		}
		b.WriteString("}\n")
	}
	return b.String()
}
