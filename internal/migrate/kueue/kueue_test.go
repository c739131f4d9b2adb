package kueue

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

var update = flag.Bool("update", false, "write what the cases and the page say")

// show is a plan as the cases have it.
func show(p *Plan) string {
	var b strings.Builder
	if len(p.Refusals) > 0 {
		for _, n := range p.Refusals {
			fmt.Fprintf(&b, "refused %s\n", n)
			if n.Instead != "" {
				fmt.Fprintf(&b, "  instead: %s\n", n.Instead)
			}
		}
		return b.String()
	}
	for i := range p.Queues {
		q := &p.Queues[i]
		fmt.Fprintf(&b, "queue %s", q.Name)
		if q.Spec.ParentQueue != "" {
			fmt.Fprintf(&b, " below %s", q.Spec.ParentQueue)
		}
		if q.Spec.Priority != nil {
			fmt.Fprintf(&b, " priority %d", *q.Spec.Priority)
		}
		if q.Spec.PreemptMinRuntime != nil {
			fmt.Fprintf(&b, " preemptMinRuntime %s", q.Spec.PreemptMinRuntime.Duration)
		}
		if q.Spec.ReclaimMinRuntime != nil {
			fmt.Fprintf(&b, " reclaimMinRuntime %s", q.Spec.ReclaimMinRuntime.Duration)
		}
		b.WriteString("\n")
		res := map[string]queuev2.QueueResource{"cpu": q.Spec.Resources.CPU, "memory": q.Spec.Resources.Memory, "gpu": q.Spec.Resources.GPU}
		maps.Copy(res, q.Spec.Resources.Extended)
		for _, name := range slices.Sorted(maps.Keys(res)) {
			r := res[name]
			if r.Quota != 0 || r.Limit != 0 {
				fmt.Fprintf(&b, "  %s quota %v limit %v weight %v\n", name, r.Quota, r.Limit, r.OverQuotaWeight)
			}
		}
	}
	for i := range p.PriorityClasses {
		fmt.Fprintf(&b, "class %s %d %q\n", p.PriorityClasses[i].Name, p.PriorityClasses[i].Value, p.PriorityClasses[i].Description)
	}
	for _, l := range p.Labels {
		fmt.Fprintf(&b, "label in %q: %s -> %s\n", l.Namespace, l.Kueue, l.Muster)
	}
	for _, n := range p.Losses {
		fmt.Fprintf(&b, "lost %s\n", n)
		if n.Instead != "" {
			fmt.Fprintf(&b, "  instead: %s\n", n.Instead)
		}
	}
	return b.String()
}

func translated(t testing.TB, text string) *Plan {
	t.Helper()
	var in Objects
	if err := in.Read("in.yaml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	return Translate(&in, Options{})
}

func cases(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	return files
}

// TestCases: what each kind of field becomes, by cases: in.yaml is read, plan is what comes of it.
func TestCases(t *testing.T) {
	t.Parallel()
	for _, file := range cases(t) {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Files) == 0 || a.Files[0].Name != "in.yaml" {
			t.Fatalf("%s: its first file is not in.yaml", file)
		}
		have := show(translated(t, string(a.Files[0].Data)))
		if *update {
			a.Files = []txtar.File{a.Files[0], {Name: "plan", Data: []byte(have)}}
			if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if len(a.Files) != 2 {
			t.Fatalf("%s: it has not two files", file)
		}
		if d := cmp.Diff(string(a.Files[1].Data), have); d != "" {
			t.Errorf("%s (-want +have):\n%s", file, d)
		}
	}
}

// leaves are the paths of the fields of a type that have no fields of ours below them.
func leaves(t reflect.Type, path string) []string {
	switch {
	case t.Kind() == reflect.Pointer:
		return leaves(t.Elem(), path)
	case t.Kind() == reflect.Slice:
		return leaves(t.Elem(), path+"[]")
	case t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[Note]().PkgPath():
		return []string{path}
	}
	var out []string
	for i := range t.NumField() {
		if name := tag(t.Field(i)); name != "-" {
			out = append(out, leaves(t.Field(i).Type, strings.TrimPrefix(path+"."+name, "."))...)
		}
	}
	return out
}

// set are the paths of what an object has, with [] for lists.
func set(value any, path string, into map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		into[path] = true
		for k, inner := range v { // order: a set
			set(inner, strings.TrimPrefix(path+"."+k, "."), into)
		}
	case []any:
		for _, inner := range v {
			set(inner, path+"[]", into)
		}
	default:
		into[path] = true
	}
}

// TestFields: each field of the types that are read is in the table once, and in a case; and the table has no others.
func TestFields(t *testing.T) {
	t.Parallel()
	var want, have []string
	for kind, of := range map[string]reflect.Type{
		"ClusterQueue": reflect.TypeFor[ClusterQueue](), "Cohort": reflect.TypeFor[Cohort](), "LocalQueue": reflect.TypeFor[LocalQueue](),
		"ResourceFlavor": reflect.TypeFor[ResourceFlavor](), "WorkloadPriorityClass": reflect.TypeFor[WorkloadPriorityClass](),
	} {
		for _, path := range leaves(of, "") {
			want = append(want, kind+" "+path)
		}
	}
	used := map[string]bool{}
	var losses strings.Builder
	for _, file := range cases(t) {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(a.Files[0].Data, []byte("\n---\n")) {
			var o map[string]any
			if err := yaml.Unmarshal(document, &o); err != nil {
				t.Fatal(file, err)
			}
			paths := map[string]bool{}
			set(o, "", paths)
			for path := range paths { // order: a set
				used[fmt.Sprint(o["kind"], " ", path)] = true
			}
		}
		losses.WriteString(show(translated(t, string(a.Files[0].Data))))
	}
	index := strings.NewReplacer("[0]", "[]", "[1]", "[]")
	told := index.Replace(losses.String())
	for _, f := range Fields() {
		have = append(have, f.Kind+" "+f.Path)
		if !used[f.Kind+" "+f.Path] {
			t.Errorf("no case sets %s %s", f.Kind, f.Path)
		}
		if short := strings.TrimSuffix(f.Path, "[]"); f.Lost != "" && !strings.Contains(told, short) {
			t.Errorf("%s %s: something is lost, and no case tells of it", f.Kind, f.Path)
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("the table is not what the types have (-types +table):\n%s", d)
	}
}

// TestPage: the page of docs has the table.
func TestPage(t *testing.T) {
	t.Parallel()
	const page, begin, end = "../../../docs/operations/kueue.md", "<!-- fields: written by TestPage of internal/migrate/kueue -->\n", "<!-- end of fields -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	have, after, ends := strings.Cut(rest, end)
	if !ok || !ends {
		t.Fatalf("%s has no table", page)
	}
	var want strings.Builder
	want.WriteString("| Kueue | field | Muster | is lost |\n|---|---|---|---|\n")
	for _, f := range Fields() {
		fmt.Fprintf(&want, "| %s | `%s` | %s | %s |\n", f.Kind, f.Path, f.Becomes, f.Lost)
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want.String(), have); d != "" {
		t.Errorf("%s (-want +have):\n%s", page, d)
	}
}

// draw makes a tree of cohorts and ClusterQueues at random, with so many flavors, in small numbers.
func draw(r *rand.Rand, flavors int) *Objects {
	var o Objects
	quota := func(below bool) []ResourceGroup {
		g := ResourceGroup{CoveredResources: []string{"nvidia.com/gpu"}}
		for f := range flavors {
			q := ResourceQuota{Name: "nvidia.com/gpu", NominalQuota: Amount(fmt.Sprint(r.IntN(6)))}
			if below && r.IntN(2) == 0 {
				a := Amount(fmt.Sprint(r.IntN(5)))
				q.BorrowingLimit = &a
			}
			if below && r.IntN(2) == 0 {
				a := Amount(fmt.Sprint(r.IntN(5)))
				q.LendingLimit = &a
			}
			g.Flavors = append(g.Flavors, FlavorQuotas{Name: fmt.Sprint("f", f), Resources: []ResourceQuota{q}})
		}
		return []ResourceGroup{g}
	}
	cohorts := r.IntN(4)
	for i := range cohorts {
		c := Cohort{Name: fmt.Sprintf("c%d", i)}
		if i > 0 && r.IntN(3) > 0 {
			c.Spec.ParentName = fmt.Sprintf("c%d", r.IntN(i))
		}
		if r.IntN(2) == 0 {
			c.Spec.ResourceGroups = quota(c.Spec.ParentName != "")
		}
		o.Cohorts = append(o.Cohorts, c)
	}
	for i := range 1 + r.IntN(4) {
		q := ClusterQueue{Name: fmt.Sprintf("q%d", i)}
		if cohorts > 0 && r.IntN(4) > 0 {
			q.Spec.CohortName = fmt.Sprintf("c%d", r.IntN(cohorts))
		}
		q.Spec.ResourceGroups = quota(q.Spec.CohortName != "")
		o.ClusterQueues = append(o.ClusterQueues, q)
	}
	return &o
}

// account is KEP-79's T by its text, over what each ClusterQueue holds: whether no cohort and no queue owes more than it may.
type account struct {
	parent               map[string]string
	quota, borrow, lends map[string]int
	isQueue              map[string]bool
}

func newAccount(o *Objects, flavor int) account {
	a := account{map[string]string{}, map[string]int{}, map[string]int{}, map[string]int{}, map[string]bool{}}
	put := func(name, parent string, groups []ResourceGroup) {
		a.parent[name], a.borrow[name], a.lends[name] = parent, math.MaxInt32, math.MaxInt32
		if parent == "" {
			a.borrow[name] = 0
		}
		for _, g := range groups {
			q := g.Flavors[flavor].Resources[0]
			number := func(x Amount) (n int) { _, _ = fmt.Sscan(string(x), &n); return n }
			a.quota[name] = number(q.NominalQuota)
			if q.BorrowingLimit != nil {
				a.borrow[name] = number(*q.BorrowingLimit)
			}
			if q.LendingLimit != nil {
				a.lends[name] = number(*q.LendingLimit)
			}
		}
	}
	for _, c := range o.Cohorts {
		put(c.Name, c.Spec.ParentName, c.Spec.ResourceGroups)
	}
	for _, q := range o.ClusterQueues {
		put(q.Name, q.Spec.CohortName, q.Spec.ResourceGroups)
		a.isQueue[q.Name] = true
	}
	return a
}

func (a account) t(x string, holds map[string]int) int {
	if a.isQueue[x] {
		return a.quota[x] - holds[x]
	}
	sum := a.quota[x]
	for c, parent := range a.parent { // order: a sum
		if parent == x {
			sum += min(a.lends[c], a.t(c, holds))
		}
	}
	return sum
}

func (a account) admits(holds map[string]int) bool {
	for x := range a.parent { // order: all of them
		if a.t(x, holds) < -a.borrow[x] {
			return false
		}
	}
	return true
}

// allows says what Queues allow to be held: whether no limit is exceeded on the way up from any of them.
func allows(queues map[string]queuev2.Queue, holds map[string]int) bool {
	sums := map[string]float64{}
	for name, x := range holds {
		for at := name; at != ""; at = queues[at].Spec.ParentQueue {
			sums[at] += float64(x)
		}
	}
	for name, x := range sums { // order: all of them
		if l := queues[name].Spec.Resources.GPU.Limit; l != queuev2.Unlimited && x > l {
			return false
		}
	}
	return true
}

// TestLimits: the sum of nominal quotas is kept, and with one flavor a ClusterQueue alone may hold in its Queue exactly what Kueue would admit.
// Whatever Kueue would admit of several together, in several flavors, the Queues allow.
func TestLimits(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		flavors := 1 + i%2
		o := draw(r, flavors)
		p := Translate(o, Options{})
		if len(p.Refusals) > 0 {
			t.Fatal(p.Refusals)
		}
		nominal, tops := 0, 0.0
		queues := map[string]queuev2.Queue{}
		for _, q := range p.Queues {
			if _, problem := kai.Queue(&q); problem != "" {
				t.Fatal(problem)
			}
			queues[q.Name] = q
			if q.Spec.ParentQueue == "" {
				tops += q.Spec.Resources.GPU.Quota
			}
		}
		admitted, together := true, map[string]int{}
		for f := range flavors {
			a := newAccount(o, f)
			for _, q := range a.quota { // order: a sum
				nominal += q
			}
			holds := map[string]int{}
			for _, q := range o.ClusterQueues {
				for x := range 40 {
					if alone := map[string]int{q.Name: x}; flavors == 1 && a.admits(alone) != allows(queues, alone) {
						t.Fatalf("%s alone with %d: Kueue %v, Queues %v\n%s", q.Name, x, a.admits(alone), allows(queues, alone), show(p))
					}
				}
				holds[q.Name] = r.IntN(8)
				together[q.Name] += holds[q.Name]
			}
			admitted = admitted && a.admits(holds)
		}
		if float64(nominal) != tops {
			t.Fatalf("the quotas are %v, and were %d: %+v", tops, nominal, p.Queues)
		}
		if admitted && !allows(queues, together) {
			t.Fatalf("%v: Kueue admits it, the Queues do not\n%s", together, show(p))
		}
	}
}

// TestSums: over all resources and flavors the nominal quotas are kept, by the units that the scheduler counts in.
func TestSums(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	names := []string{"cpu", "memory", "nvidia.com/gpu", "rdma/hca", "ephemeral-storage"}
	for range 300 {
		o := draw(r, 1)
		want := map[string]resource.Quantity{}
		for i := range o.ClusterQueues {
			var g []ResourceGroup
			for _, name := range names {
				if r.IntN(3) == 0 {
					continue
				}
				var flavors []FlavorQuotas
				for f := range 1 + r.IntN(3) {
					text := fmt.Sprintf("%d%s", r.IntN(1000), map[string]string{"cpu": "m", "memory": "Mi"}[name])
					flavors = append(flavors, FlavorQuotas{fmt.Sprint(name, f), []ResourceQuota{{Name: name, NominalQuota: Amount(text)}}})
					want[name] = plus(want[name], resource.MustParse(text))
				}
				g = append(g, ResourceGroup{[]string{name}, flavors})
			}
			o.ClusterQueues[i].Spec.ResourceGroups = g
		}
		for i := range o.Cohorts {
			o.Cohorts[i].Spec.ResourceGroups = nil
		}
		have := map[string]int64{}
		for _, q := range Translate(o, Options{}).Queues {
			st, problem := kai.Queue(&q)
			if problem != "" {
				t.Fatal(problem)
			}
			if q.Spec.ParentQueue == "" {
				for _, x := range st.Quota {
					have[x.Name] += x.Value
				}
			}
		}
		for name, q := range want {
			dim, x := name, q.Value()
			switch name {
			case "cpu":
				x = q.MilliValue()
			case "nvidia.com/gpu":
				dim, x = "gpu", q.MilliValue()
			}
			if have[dim] != x {
				t.Fatalf("%s: quotas of %d, were %d", name, have[dim], x)
			}
		}
	}
}

// FuzzTranslate: whatever is read, nothing crashes, each note names its object and its rule on one line, and what is not refused are Queues
// that the scheduler takes without complaint.
func FuzzTranslate(f *testing.F) {
	for _, file := range cases(f) {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(a.Files[0].Data)
	}
	f.Fuzz(judge)
}

func judge(t *testing.T, text []byte) {
	t.Helper()
	var in Objects
	if in.Read("f", text) != nil {
		return
	}
	p := Translate(&in, Options{CohortPrefix: "c-"})
	for _, n := range slices.Concat(p.Losses, p.Refusals) {
		if n.Object == "" || n.Rule == "" || strings.ContainsAny(n.String(), "\n\r") || len(n.String()) > 4000 {
			t.Fatalf("%q", n)
		}
	}
	if len(p.Refusals) > 0 {
		return
	}
	for _, l := range p.Labels {
		if strings.ContainsAny(l.Namespace+l.Kueue+l.Muster, "\n\r") {
			t.Fatalf("%q", l)
		}
	}
	known := map[string]bool{"": true}
	for i := range p.Queues {
		q := &p.Queues[i]
		if _, problem := kai.Queue(q); problem != "" {
			t.Fatal(problem)
		}
		if known[q.Name] || !known[q.Spec.ParentQueue] {
			t.Fatalf("%s is there twice, or comes before its parent", q.Name)
		}
		known[q.Name] = true
	}
}

// TestBroken: cases with bytes changed, cut out and put in from others, as FuzzTranslate judges them.
func TestBroken(t *testing.T) {
	t.Parallel()
	var texts [][]byte
	for _, file := range cases(t) {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, bytes.Split(a.Files[0].Data, []byte("\n---\n"))...)
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		text := slices.Clone(texts[r.IntN(len(texts))])
		for range 1 + r.IntN(3) {
			at := r.IntN(len(text) + 1)
			switch other := texts[r.IntN(len(texts))]; r.IntN(3) {
			case 0:
				text = append(text[:at:at], append([]byte{byte(r.IntN(128))}, text[min(len(text), at+1):]...)...)
			case 1:
				text = append(text[:at:at], text[min(len(text), at+r.IntN(30)):]...)
			default:
				from := r.IntN(len(other))
				text = append(text[:at:at], append(slices.Clone(other[from:min(len(other), from+r.IntN(40))]), text[at:]...)...)
			}
		}
		judge(t, text)
	}
}
