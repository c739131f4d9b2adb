package roles

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/muster-scheduler/muster/internal/install"
)

// TestRolesMayDoWhatTheyAreFor: each role of the table has an account of an installation, may watch what it watches and take its turn by its
// Lease, which no other role has.
func TestRolesMayDoWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	leases := map[string]string{}
	for _, r := range table() {
		may := install.Rules(r.name)
		allowed := func(rules []rbacv1.PolicyRule, verb, group, resource, name string) bool {
			return slices.ContainsFunc(rules, func(p rbacv1.PolicyRule) bool {
				return slices.Contains(p.APIGroups, group) && slices.Contains(p.Resources, resource) && slices.Contains(p.Verbs, verb) &&
					(len(p.ResourceNames) == 0 || slices.Contains(p.ResourceNames, name))
			})
		}
		for _, kind := range r.watched {
			gvk, err := apiutil.GVKForObject(kind, scheme)
			if err != nil {
				t.Errorf("%s: %v", r.name, err)
				continue
			}
			resource, _ := meta.UnsafeGuessKindToResource(gvk)
			for _, verb := range []string{"list", "watch"} {
				if !allowed(may.Cluster, verb, gvk.Group, resource.Resource, "") {
					t.Errorf("%s watches %s and may not %s them", r.name, resource.Resource, verb)
				}
			}
		}
		if r.unled {
			if r.lease != "" || allowed(may.Home, "create", "coordination.k8s.io", "leases", "") {
				t.Errorf("%s takes no turn and has a Lease", r.name)
			}
			continue
		}
		for _, verb := range []string{"get", "create", "update"} {
			if !allowed(may.Home, verb, "coordination.k8s.io", "leases", r.lease) {
				t.Errorf("%s may not %s its Lease %q", r.name, verb, r.lease)
			}
		}
		if other, twice := leases[r.lease]; twice {
			t.Errorf("%s and %s have one Lease", r.name, other)
		}
		leases[r.lease] = r.name
		if (r.lease == "") != (r.name == Scheduler) {
			t.Errorf("%s has the Lease %q", r.name, r.lease)
		}
	}
}
