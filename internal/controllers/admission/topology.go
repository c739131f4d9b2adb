package admission

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	kaiv1alpha1 "github.com/muster-scheduler/muster/api/kai/v1alpha1"
)

// ValidateTopology returns what is wrong with the aliases of a Topology: each level is known by one name, and each name means
// one level. Muster's schema of the kind has the same rules; KAI's leaves them to its webhook.
func ValidateTopology(t *kaiv1alpha1.Topology) (out field.ErrorList) {
	levels := field.NewPath("spec", "levels")
	var labels, doubled []string
	for i := range t.Spec.Levels {
		labels = append(labels, t.Spec.Levels[i].NodeLabel)
	}
	seen := map[string]bool{}
	for i := range t.Spec.Levels {
		alias := t.Spec.Levels[i].Alias
		switch {
		case alias == "":
		case slices.Contains(labels, alias):
			out = append(out, field.Invalid(levels.Index(i).Child("alias"), brief(alias), "an alias must differ from every node label of the Topology"))
		case seen[alias]:
			if !slices.Contains(doubled, alias) { // once for each name
				doubled = append(doubled, alias)
				out = append(out, field.Duplicate(levels.Index(i).Child("alias"), brief(alias)))
			}
		}
		seen[alias] = true
	}
	slices.SortFunc(out, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return out
}
