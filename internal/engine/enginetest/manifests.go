package enginetest

import (
	"bytes"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/dialect"
)

// newObject returns an empty object of a kind, nil for a kind that scenarios do not know.
func newObject(kind metav1.TypeMeta) Object {
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return nil
	}
	for _, name := range []string{kind.Kind + "." + gv.Group, kind.Kind} { // of another face, or of none
		if k, ok := dialect.Named(name); ok {
			return k.Row().New()
		}
	}
	return nil
}

// parseManifests reads YAML documents as they are, without any validation an API server would do.
func parseManifests(text string) ([]Object, error) {
	var out []Object
	for i, doc := range bytes.Split([]byte(text), []byte("\n---")) {
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		o := newObject(kind)
		if o == nil {
			return nil, fmt.Errorf("document %d: kind %q is unknown to scenarios", i+1, kind.Kind)
		}
		if err := yaml.UnmarshalStrict(doc, o); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		if o.GetNamespace() == "" && namespaced(o) {
			o.SetNamespace(defaultSpace)
		}
		out = append(out, o)
	}
	return out, nil
}

func namespaced(o Object) bool {
	k, ok := dialect.KindOf(o)
	return ok && k.Row().Namespaced
}
