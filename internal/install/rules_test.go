package install

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
)

var update = flag.Bool("update", false, "write the golden files anew; rbac.golden is only ever shortened")

// permitted lists, one line each, everything that a role may do.
func permitted(role string) []string {
	p := Rules(role)
	var out []string
	for _, scope := range []struct {
		name  string
		rules []rbacv1.PolicyRule
	}{{"cluster", p.Cluster}, {"home", p.Home}, {"reserved", p.Reserved}, {"scaling", p.Scaling}} {
		for _, r := range merged(scope.rules) {
			resource := strings.Join(slices.Concat(r.NonResourceURLs, r.Resources), " ")
			if len(r.APIGroups) > 0 && r.APIGroups[0] != "" {
				resource += "." + r.APIGroups[0]
			}
			names := []string{""}
			if len(r.ResourceNames) > 0 {
				names = nil
				for _, name := range r.ResourceNames {
					names = append(names, "/"+name)
				}
			}
			for _, name := range names {
				for _, verb := range r.Verbs {
					out = append(out, fmt.Sprintf("%s %s %s %s", role, scope.name, verb, resource+name))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestRulesOnlyShrink compares what roles may do with testdata/rbac.golden. A permission that is not needed any more is
// taken out of the file by -update. A new one is not put in: whoever needs it writes the line by hand, for the eyes of those
// who review it.
func TestRulesOnlyShrink(t *testing.T) {
	t.Parallel()
	const file = "testdata/rbac.golden"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	var kept []string // with comments
	now := map[string]bool{}
	var want []string
	for _, role := range Roles() {
		if role == Operator { // the union, and its own: see TestOperatorHoldsWhatItGrants
			continue
		}
		for _, line := range permitted(role) {
			want = append(want, line)
			now[line] = true
		}
	}
	for _, line := range operatorsOwn() {
		want = append(want, line)
		now[line] = true
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") || line == "" {
			kept = append(kept, line)
			continue
		}
		have = append(have, line)
		if now[line] {
			kept = append(kept, line)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(kept, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		have = slices.DeleteFunc(have, func(line string) bool { return !now[line] })
	}
	slices.Sort(have)
	slices.Sort(want)
	if diff := cmp.Diff(have, want); diff != "" {
		t.Errorf("what roles may do differs from %s (-golden +now); lines that are gone: run with -update; new ones: write them by hand\n%s", file, diff)
	}
}

// operatorsOwn is what the operator may do that it grants to nobody.
func operatorsOwn() []string {
	granted := map[string]bool{}
	for _, role := range Roles() {
		if !ByChart(role) {
			for _, line := range permitted(role) {
				granted[strings.TrimPrefix(line, role)] = true
			}
		}
	}
	return slices.DeleteFunc(permitted(Operator), func(line string) bool { return granted[strings.TrimPrefix(line, Operator)] })
}

// TestOperatorHoldsWhatItGrants: an API server lets nobody grant what he does not have.
func TestOperatorHoldsWhatItGrants(t *testing.T) {
	t.Parallel()
	has := map[string]bool{}
	for _, line := range permitted(Operator) {
		has[strings.TrimPrefix(line, Operator)] = true
	}
	for _, role := range Roles() {
		if ByChart(role) {
			continue
		}
		for _, line := range permitted(role) {
			if !has[strings.TrimPrefix(line, role)] {
				t.Errorf("the operator cannot grant %q: it does not have it", line)
			}
		}
	}
}

// TestRulesAreLeast: nothing that would make a role more than it is.
func TestRulesAreLeast(t *testing.T) {
	t.Parallel()
	roles := 0
	for _, role := range Roles() {
		p := Rules(role)
		if len(p.Cluster)+len(p.Home)+len(p.Reserved)+len(p.Scaling) == 0 {
			t.Errorf("role %s may do nothing", role)
		}
		for scope, rules := range map[string][]rbacv1.PolicyRule{"cluster": p.Cluster, "home": p.Home, "reserved": p.Reserved, "scaling": p.Scaling} {
			for _, r := range rules {
				roles++
				as := scope
				if role == VolcanoControllers && slices.Equal(r.Verbs, []string{"create"}) {
					as = "home" // a policy says which Secrets it may create: TestVolcanoRights of the chart
				}
				for _, fault := range faults(as, r) {
					t.Errorf("role %s, %s, %v: %s", role, scope, r, fault)
				}
			}
		}
	}
	if roles < 50 {
		t.Errorf("only %d rules were looked at", roles)
	}
	for _, bad := range []rbacv1.PolicyRule{
		rule("*", watch, "pods"), rule("", []string{"*"}, "pods"), rule("", watch, "*"), rule("", watch, "secrets"),
		rule(groupRBAC, []string{"escalate"}, "roles"), rule("", []string{"impersonate"}, "users"),
		{NonResourceURLs: []string{"/"}, Verbs: []string{"get"}},
	} {
		if len(faults("cluster", bad)) == 0 {
			t.Errorf("%v passes", bad)
		}
	}
}

// faults says why a rule is too wide.
func faults(scope string, r rbacv1.PolicyRule) (out []string) {
	for _, list := range [][]string{r.APIGroups, r.Resources, r.Verbs, r.ResourceNames} {
		for _, s := range list {
			if strings.Contains(s, "*") {
				out = append(out, "a wildcard")
			}
		}
	}
	if len(r.NonResourceURLs) > 0 && !slices.Equal(r.NonResourceURLs, []string{CyclePath}) && !slices.Equal(r.NonResourceURLs, []string{OutlookPath}) {
		out = append(out, "paths instead of resources")
	}
	for _, verb := range []string{"escalate", "bind", "impersonate", "deletecollection"} {
		if slices.Contains(r.Verbs, verb) {
			out = append(out, verb)
		}
	}
	if slices.Contains(r.Resources, "secrets") {
		if scope != "home" {
			out = append(out, "Secrets outside the control plane's namespace")
		}
		if len(r.ResourceNames) == 0 && !slices.Equal(r.Verbs, []string{"create"}) {
			out = append(out, "Secrets that it does not name")
		}
	}
	return out
}

func TestSchedulerNameFitsAService(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 200)
	seen := map[string]string{}
	for shard, want := range map[string]string{
		"default": "muster-scheduler-default", "a.b": "", "a-b": "muster-scheduler-a-b", long: "", long + "b": "",
	} {
		got := SchedulerName(shard)
		if want != "" && got != want {
			t.Errorf("shard %s: %s, want %s", shard, got, want)
		}
		if len(got) > 63 || strings.Contains(got, ".") {
			t.Errorf("shard %s: %s cannot name a Service", shard, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("shards %s and %s share the name %s", shard, other, got)
		}
		seen[got] = shard
	}
}
