package crds_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	definitionvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/crds"
)

// validator checks objects of one kind as the API server does: schema first, then CEL rules.
type validator struct {
	schema     validation.SchemaValidator
	structural *structuralschema.Structural
	rules      *cel.Validator
}

func newValidator(t *testing.T, group, plural string) *validator {
	t.Helper()
	content, err := crds.YAML(group, plural)
	if err != nil {
		t.Fatal(err)
	}
	internal := internalDefinition(t, plural, content)
	properties := internal.Spec.Validation.OpenAPIV3Schema
	structural, err := structuralschema.NewStructural(properties)
	if err != nil {
		t.Fatal(err)
	}
	schema, _, err := validation.NewSchemaValidator(properties)
	if err != nil {
		t.Fatal(err)
	}
	return &validator{schema: schema, structural: structural, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

func internalDefinition(t *testing.T, name string, content []byte) *apiextensions.CustomResourceDefinition {
	t.Helper()
	var versioned apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(content, &versioned); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&versioned)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&versioned.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&versioned, internal, nil); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return internal
}

// errors validates a creation (old nil) or an update.
func (v *validator) errors(object, old map[string]any) field.ErrorList {
	var found field.ErrorList
	if old == nil {
		found = validation.ValidateCustomResource(nil, object, v.schema)
	} else {
		found = validation.ValidateCustomResourceUpdate(nil, object, old, v.schema)
	}
	if v.rules != nil {
		var before any
		if old != nil {
			before = old
		}
		broken, _ := v.rules.Validate(context.Background(), nil, v.structural, object, before, celconfig.RuntimeCELCostBudget)
		found = append(found, broken...)
	}
	return found
}

// TestDefinitionsAreValid asks the API server's own validation whether it would take the CRDs; that includes whether
// the CEL rules compile and are cheap enough.
func TestDefinitionsAreValid(t *testing.T) {
	t.Parallel()
	for _, file := range crds.All() {
		internal := internalDefinition(t, file.Name, file.YAML)
		for _, version := range internal.Spec.Versions {
			if version.Storage {
				internal.Status.StoredVersions = append(internal.Status.StoredVersions, version.Name)
			}
		}
		for _, err := range definitionvalidation.ValidateCustomResourceDefinition(context.Background(), internal) {
			t.Errorf("%s: %v", file.Name, err)
		}
	}
}

// object parses a YAML object as the API server holds it.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(text), &parsed); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return integral(parsed).(map[string]any)
}

// integral turns whole float64 values into int64, as the API server's decoder does.
func integral(value any) any {
	switch typed := value.(type) {
	case map[string]any:
		for key := range typed {
			typed[key] = integral(typed[key])
		}
	case []any:
		for i := range typed {
			typed[i] = integral(typed[i])
		}
	case float64:
		if typed == math.Trunc(typed) && math.Abs(typed) < 1<<62 {
			return int64(typed)
		}
	}
	return value
}

// TestObjects gives good and bad objects to the schemas and rules, without a server.
func TestObjects(t *testing.T) {
	t.Parallel()
	validators := map[string]*validator{}
	for _, c := range objectCases() {
		if validators[c.kind] == nil {
			validators[c.kind] = newValidator(t, groupOf(c.kind), c.kind)
		}
		t.Run(c.kind+"/"+c.name, func(t *testing.T) {
			var old map[string]any
			if c.old != "" {
				old = object(t, c.old)
			}
			found := validators[c.kind].errors(object(t, c.object), old)
			switch {
			case c.want == "" && len(found) > 0:
				t.Errorf("refused: %v", found.ToAggregate())
			case c.want != "" && len(found) == 0:
				t.Errorf("taken, want %q", c.want)
			case c.want != "" && !strings.Contains(found.ToAggregate().Error(), c.want):
				t.Errorf("refused with %q, want %q", found.ToAggregate(), c.want)
			}
		})
	}
}
