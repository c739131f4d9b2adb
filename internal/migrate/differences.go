package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-scheduler/muster/api/kai/keys"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/docs/ledgers"
)

// queues looks for queues that nobody can use, and gangs that name none.
func (c *checker) queues() error {
	var all queuev2.QueueList
	var gangs v2alpha2.PodGroupList
	for _, l := range []struct {
		what string
		err  error
	}{{"Queues", c.list(&all, "Queues")}, {"PodGroups", c.list(&gangs, "PodGroups")}} {
		if meta.IsNoMatchError(l.err) {
			return nil // the definitions have been told of
		} else if l.err != nil {
			return l.err
		}
	}
	known := map[string]bool{}
	for i := range all.Items {
		known[all.Items[i].Name] = true
	}
	if len(known) == 0 {
		c.add(See, "Queues", "there is none: all work waits", "install the chart with defaultQueue.createDefaultQueue, or create queues")
		return nil
	}
	for i := range all.Items {
		q := &all.Items[i]
		if q.Spec.Resources == nil {
			c.add(See, "Queue "+q.Name, "spec.resources is not set: it has no quota and may hold nothing", "set spec.resources")
		}
		if p := q.Spec.ParentQueue; p != "" && !known[p] {
			c.add(See, "Queue "+q.Name, fmt.Sprintf("its parent %s does not exist: its work waits", p), "create the parent, or change spec.parentQueue")
		}
	}
	lost := map[string]int{}
	for i := range gangs.Items {
		if name := gangs.Items[i].Spec.Queue; !known[name] {
			lost[name]++
		}
	}
	for _, name := range sortedKeys(lost) {
		c.add(See, "PodGroups", fmt.Sprintf("%d are in queue %q, which does not exist: they wait, as they do under KAI", lost[name], name), "create the queue")
	}
	return nil
}

// resources are the custom resources whose objects are looked at.
func resources() map[string]schema.GroupVersionKind {
	return map[string]schema.GroupVersionKind{
		"configs.kai.scheduler":          {Group: "kai.scheduler", Version: "v1", Kind: "Config"},
		"schedulingshards.kai.scheduler": {Group: "kai.scheduler", Version: "v1", Kind: "SchedulingShard"},
		"topologies.kai.scheduler":       {Group: "kai.scheduler", Version: "v1alpha1", Kind: "Topology"},
		"queues.scheduling.run.ai":       {Group: "scheduling.run.ai", Version: "v2", Kind: "Queue"},
		"podgroups.scheduling.run.ai":    {Group: "scheduling.run.ai", Version: "v2alpha2", Kind: "PodGroup"},
	}
}

// use is where a property is set that has no effect.
type use struct {
	count int
	first string
	why   string
}

// differences tells what the ledgers say about what this cluster uses: properties that are set and have no effect, what is known to
// differ, and cases that are decided otherwise.
func (c *checker) differences() error {
	used := map[string]bool{}
	for _, resource := range sortedKeys(resources()) {
		rows, err := ledgers.Properties(resource)
		if err != nil {
			return err
		}
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(resources()[resource].GroupVersion().WithKind(resources()[resource].Kind + "List"))
		if err := c.list(l, resource); meta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			return err
		}
		uses := map[string]*use{}
		for i := range l.Items {
			c.walk(rows, l.Items[i].Object["spec"], "spec", &l.Items[i], uses)
		}
		kind := resources()[resource].Kind
		used[kind] = len(l.Items) > 0
		for _, path := range sortedKeys(uses) {
			u := uses[path]
			c.add(Differs, fmt.Sprintf("%s %s", kind, path), fmt.Sprintf("set in %d of %d, first in %s: it has no effect: %s", u.count, len(l.Items), u.first, u.why), "")
		}
		for i := range l.Items {
			if groups, _, _ := unstructured.NestedSlice(l.Items[i].Object, "spec", "subGroups"); len(groups) > 0 {
				used["subgroups"] = true
			}
		}
	}
	if err := c.pods(used); err != nil {
		return err
	}
	if err := c.known(used); err != nil {
		return err
	}
	return c.cases(used)
}

// known tells the rows of the list of differences that are about something this cluster uses, and how many concern everybody.
func (c *checker) known(used map[string]bool) error {
	all, err := ledgers.Differences()
	if err != nil {
		return err
	}
	everybody := 0
	for _, area := range sortedKeys(all) {
		for _, d := range all[area] {
			switch {
			case len(d.Concerns) == 0:
				everybody++
			case slices.ContainsFunc(d.Concerns, func(word string) bool { return used[word] }):
				c.add(Differs, area, d.What+": "+d.Why, "")
			}
		}
	}
	c.add(Differs, "KAI", fmt.Sprintf("%d differences may concern every cluster: they are listed, each with its reason, in docs/operations/differences.md", everybody), "")
	return nil
}

// walk notes the leaves of a value whose rows say that they have no effect.
func (c *checker) walk(rows map[string]ledgers.Property, value any, path string, o *unstructured.Unstructured, uses map[string]*use) {
	row, known := rows[path]
	if !known {
		for _, stars := range []string{path + ".**", parent(path) + ".**", parent(path) + ".*"} {
			if row, known = rows[stars]; known {
				break
			}
		}
	}
	if why := row.Accepted + row.Planned; known && why != "" && value != nil {
		if row.Planned != "" {
			why = "planned (" + row.Planned + ")"
		}
		u := uses[path]
		if u == nil {
			u = &use{first: strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"), why: why}
			uses[path] = u
		}
		u.count++
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			next := path + "." + name
			if _, exact := rows[next]; !exact && !below(rows, next) && below(rows, path+"{}") {
				next = path + "{}"
			}
			c.walk(rows, v[name], next, o, uses)
		}
	case []any:
		for _, item := range v {
			c.walk(rows, item, path+"[]", o, uses)
		}
	}
}

func parent(path string) string {
	if i := strings.LastIndex(path, "."); i >= 0 {
		return path[:i]
	}
	return ""
}

// below says whether a row lies at or below a path.
func below(rows map[string]ledgers.Property, path string) bool {
	for row := range rows { // order: any will do
		if row == path || strings.HasPrefix(row, path+".") || strings.HasPrefix(row, path+"[]") || strings.HasPrefix(row, path+"{}") {
			return true
		}
	}
	return false
}

// pods notes what pods use.
func (c *checker) pods(used map[string]bool) error {
	var all corev1.PodList
	if err := c.list(&all, "Pods"); err != nil {
		return err
	}
	for i := range all.Items {
		a := all.Items[i].Annotations
		used["fractional-gpu"] = used["fractional-gpu"] || a[keys.GPUFractionAnnotation] != ""
		used["gpu-memory"] = used["gpu-memory"] || a[keys.GPUMemoryAnnotation] != ""
	}
	return nil
}

// cases tells the rows of the ledger of cases that are about something this cluster uses.
func (c *checker) cases(used map[string]bool) error {
	rows, err := ledgers.Cases()
	if err != nil {
		return err
	}
	for _, row := range rows {
		if concerns(row.ID, used) {
			c.add(Differs, "decisions ("+row.ID+")", row.Why, "")
		}
	}
	return nil
}

// concerns says whether a case is about something that is used: by the words in its name, and all others concern everybody.
func concerns(id string, used map[string]bool) bool {
	for _, word := range []string{"fractional-gpu", "gpu-memory", "subgroups"} {
		if strings.Contains(id, word) && !used[word] {
			return false
		}
	}
	if strings.Contains(id, "topology") && !used["Topology"] {
		return false
	}
	return true
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
