package roles

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kubebatch"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/install"
)

// TestSchedulerMayReadEveryKind: the process knows every kind of the table, and the scheduler may watch each; those of a face that is switched on only where the rights
// of that face are added.
func TestSchedulerMayReadEveryKind(t *testing.T) {
	t.Parallel()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	plain := install.Rules(install.Scheduler).Cluster
	faces := map[string][]rbacv1.PolicyRule{volcano.Face: install.Rules(install.VolcanoScheduler).Cluster, kubebatch.Face: install.Rules(install.KubeBatchScheduler).Cluster}
	for k := range dialect.Kinds {
		row := k.Row()
		gvk, err := apiutil.GVKForObject(row.New(), scheme)
		if err != nil {
			t.Errorf("%s is not in the scheme: %v", k, err)
			continue
		}
		if _, err := apiutil.GVKForObject(row.List(), scheme); err != nil {
			t.Errorf("lists of %s are not in the scheme: %v", k, err)
		}
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		for _, verb := range []string{"get", "list", "watch"} {
			may := func(rules []rbacv1.PolicyRule) bool {
				return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
					return slices.Contains(r.APIGroups, gvk.Group) && slices.Contains(r.Resources, resource.Resource) && slices.Contains(r.Verbs, verb) && len(r.ResourceNames) == 0
				})
			}
			if may(plain) == (row.Unread || faces[row.Face] != nil) {
				t.Errorf("%s %s of group %q: may %v, nobody reads them %v, of face %q", verb, resource.Resource, gvk.Group, may(plain), row.Unread, row.Face)
			}
			for face, rules := range faces {
				if may(rules) != (row.Face == face) {
					t.Errorf("%s %s of group %q: may %v with the face %s, of face %q", verb, resource.Resource, gvk.Group, may(rules), face, row.Face)
				}
			}
		}
	}
}
