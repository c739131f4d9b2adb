package archtest

import (
	"fmt"
	"go/token"
	"sort"
	"strings"
)

// Rule is one sentence of the architecture with the check that keeps it true.
type Rule struct {
	// ID is the rule's name in docs/architecture.md ("D1" … "D12", or a word).
	ID string
	// Says is the rule in one sentence.
	Says string
	// Instead tells someone who broke the rule what to do.
	Instead string
	// Check returns the places that break the rule. Its error means that the rule could not be judged.
	Check func(*Tree) ([]Violation, error)
}

// Violation is one place that breaks a rule.
type Violation struct {
	// Where is the position, its file name relative to the tree's root.
	Where token.Position
	// What was found there, as the end of a sentence that starts with the place.
	What string
}

// Text is the whole message: place, rule, finding, and what to do instead.
func (r Rule) Text(v Violation) string {
	return fmt.Sprintf("%s:%d: %s: %s\n    rule:    %s\n    instead: %s", v.Where.Filename, v.Where.Line, r.ID, v.What, r.Says, r.Instead)
}

// Rules are all rules of the architecture, in the order of docs/architecture.md.
func Rules() []Rule {
	return []Rule{
		{
			ID:      "D1",
			Says:    "internal/cluster, internal/fairshare, internal/engine/... and internal/see are pure: no Kubernetes client, network, file, clock, randomness or logger",
			Instead: "pass what is needed in as plain data (time is Snapshot.Now, seeds and files belong to the caller) and return findings in the Plan or the Trace; code with a socket goes to internal/kube",
			Check:   checkPurity,
		},
		{
			ID:      "D2",
			Says:    "the parts of the engine know those before them: ledger, policy, recorder, rules, placer, engine; plugins know policy and the ledger's words, and not each other; actions and the solver know no plugin; filters read only the View",
			Instead: "ask a part below by a method that contract.go names; what takes several parts is the Session's; what a plugin should decide is an extension point (an interface) in internal/engine/policy; only internal/engine/builtin names the pure actions and plugins",
			Check:   checkEngineLayers,
		},
		{
			ID:      "D3",
			Says:    "api/... imports only k8s.io/apimachinery and k8s.io/api (and the standard library)",
			Instead: "keep API packages to types and their scheme registration (runtime.NewSchemeBuilder); behaviour goes to internal/dialect or to a controller",
			Check:   checkAPI,
		},
		{
			ID:      "D4",
			Says:    "only internal/dialect/... translates between API objects and the model, and it has no client",
			Instead: "put the function into the dialect of that API family; the model (cluster, fairshare, engine) must not know our CRDs at all",
			Check:   checkDialect,
		},
		{
			ID:      "D5",
			Says:    "of the product's roles only internal/kube/apply and internal/controllers/... write to the API server, through the kit internal/kube/write",
			Instead: "return the wish as data (a Plan, a status) and let internal/kube/apply or a controller write it",
			Check:   checkWrites,
		},
		{
			ID:      "D6",
			Says:    "k8s.io/kubernetes is imported only by the lab and internal/kube/filters; libvirt only by the VM runtime",
			Instead: "use k8s.io/api, apimachinery, client-go or component-helpers; if a piece of upstream code is truly needed, wrap it in internal/kube/filters",
			Check:   checkHeavy,
		},
		{
			ID:      "D7",
			Says:    "controllers do not import each other",
			Instead: "move what they share down into internal/cluster (facts) or internal/dialect (translation)",
			Check:   checkControllers,
		},
		{
			ID:      "D8",
			Says:    "a package is named by what it is: never util, common, helpers, types, misc, base or manager, and without underscore",
			Instead: "name the package by the noun its users think of, or move its parts to where they are used",
			Check:   checkNames,
		},
		{
			ID:      "D9",
			Says:    "no init() outside cmd and generated code, and no package variable that changes",
			Instead: "make it a field of a value that the caller builds and passes on; tables that never change may be variables",
			Check:   checkState,
		},
		{
			ID:      "D10",
			Says:    "in internal/engine/... no range over a map, unless the line says why order cannot matter",
			Instead: "range over a sorted slice (slices.Sorted(maps.Keys(m))), or, if order truly cannot matter, say why on the line or the one above: // order: <why>",
			Check:   checkOrder,
		},
		{
			ID:      "D11",
			Says:    "no cgo outside cmd/muster-node, cmd/muster-vm and internal/vm: cmd/muster is one static binary",
			Instead: "use a pure Go library, or move what needs the host to muster-node",
			Check:   checkCgo,
		},
		{
			ID:      "D12",
			Says:    "what a role does about an object goes through internal/kube/aside, so that a defect which one object brings out ends nobody else's work",
			Instead: "make reconcilers with aside.Reconciler and caches with Guard.Cache, and have each piece of a goroutine's work done by Guard.Do or Guard.Catch",
			Check:   checkAside,
		},
		{
			ID:      "layers",
			Says:    "imports point down: api, cluster and spelling know nobody; fairshare knows cluster; dialect knows api and cluster; kube knows those and the engine; app knows no role; vm knows app alone, and its parts not each other; see knows explain, sim, replay and the engine, and not what it is proven on; explain knows the engine",
			Instead: "move the shared part down, or pass it in as a function or a small interface",
			Check:   checkLayers,
		},
		{
			ID:      "ships",
			Says:    "cmd/muster, cmd/muster-node and cmd/muster-vm reach no package that is for tests, no conformance suite, no plotting library, and no kit of a cloud",
			Instead: "give the command that needs it to cmd/muster-lab (internal/trial), or move what the product needs of it into a package without it",
			Check:   checkShips,
		},
		{
			ID:      "comment",
			Says:    "every package says what it is for: a package comment, best in doc.go",
			Instead: "add a doc.go: what the package answers, what it refuses, who calls it, its invariants",
			Check:   checkPackageComments,
		},
		{
			ID:      "sleep",
			Says:    "tests do not sleep in real time",
			Instead: "wait on an event or a channel, use testing/synctest (whose time is fake), or poll a condition with a deadline",
			Check:   checkSleep,
		},
		{
			ID:      "lab",
			Says:    "a test that needs a running lab lives in lab_test.go or *_lab_test.go behind //go:build lab, so that `make test` stays fast and `make test-lab` finds it",
			Instead: "rename the file to *_lab_test.go and begin it with //go:build lab, or do without the lab",
			Check:   checkLabTag,
		},
		{
			ID:      "size",
			Says:    fmt.Sprintf("a hand-written Go file has at most %d lines (aim at 150 to 500)", maxLines),
			Instead: "split the file by content",
			Check:   checkSize,
		},
		{
			ID:      "words",
			Says:    "each exported type of cluster, fairshare and the engine stands in the last column of docs/glossary.md, which names no other; no two names of a package differ by case only",
			Instead: "name the type by a word of the glossary and put it into that word's row (a new word needs a row); rename one of the two so that both say what they are",
			Check:   checkWords,
		},
		{
			ID:      "units",
			Says:    "in the model and the engine a moment is a cluster.Instant, and a part of a device a cluster.Portion, MiB or DeviceUnits",
			Instead: "give it that type (what lies between two moments is a time.Duration), or, if it is none of them, the name of what it counts",
			Check:   checkUnits,
		},
		{
			ID:      "places",
			Says:    "tracked files name no path of one machine and no package proxy",
			Instead: "use paths relative to the repository or to a folder that the user names",
			Check:   checkPlaces,
		},
		{
			ID:      "docs",
			Says:    "the pages tell the truth: paths, links and make targets that they name exist, unless the line says planned",
			Instead: "correct the page, or mark what does not exist yet: planned (<capability>)",
			Check:   checkDocs,
		},
		{
			ID:      "named",
			Says:    "what pages name is there: each part of a pattern of go test finds a test of the packages named; tests, scenarios, Go files, flags and variables exist",
			Instead: "correct the page: look for the test by what it shows (grep '^func Test'), for a flag in the program's --help",
			Check:   checkNamed,
		},
	}
}

// Run applies a rule to a tree and returns its violations in order of place, exceptions taken out. The second result names the
// exceptions of this rule that were used.
func Run(r Rule, t *Tree, exceptions []Exception) (violations []Violation, used map[int]bool, err error) {
	all, err := r.Check(t)
	if err != nil {
		return nil, nil, fmt.Errorf("rule %s cannot be judged: %w", r.ID, err)
	}
	used = map[int]bool{}
	for _, v := range all {
		excused := false
		for i, e := range exceptions {
			if e.Rule == r.ID && e.File == v.Where.Filename && strings.Contains(v.What, e.What) {
				used[i], excused = true, true
			}
		}
		if !excused {
			violations = append(violations, v)
		}
	}
	sort.SliceStable(violations, func(i, j int) bool {
		a, b := violations[i].Where, violations[j].Where
		if a.Filename != b.Filename {
			return a.Filename < b.Filename
		}
		return a.Line < b.Line
	})
	return violations, used, nil
}
