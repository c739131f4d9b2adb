package kubelet

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

func TestEnvironment(t *testing.T) {
	t.Parallel()
	maps := map[string]map[string]string{"m": {"A": "map", "B": "map", "bad name": "map"}, "other": {"B": "later"}, "empty": nil}
	secrets := map[string]map[string][]byte{"s": {"A": []byte("secret"), "S": []byte("secret")}}
	notFound := func(kind, name string) error {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
	}
	from := Sources{
		ConfigMap: func(name string) (*corev1.ConfigMap, error) {
			if data, ok := maps[name]; ok {
				return &corev1.ConfigMap{Data: data}, nil
			}
			return nil, notFound("configmaps", name)
		},
		Secret: func(name string) (*corev1.Secret, error) {
			if data, ok := secrets[name]; ok {
				return &corev1.Secret{Data: data}, nil
			}
			return nil, notFound("secrets", name)
		},
	}
	for name, c := range map[string]struct {
		container string
		want      map[string]string
		fails     string
	}{
		"nothing":              {container: `{}`, want: map[string]string{}},
		"plain":                {container: `{env: [{name: A, value: a}, {name: B}]}`, want: map[string]string{"A": "a", "B": ""}},
		"the last one counts":  {container: `{env: [{name: A, value: a}, {name: A, value: b}]}`, want: map[string]string{"A": "b"}},
		"what was before":      {container: `{env: [{name: A, value: a}, {name: B, value: "$(A)-$(C)-$$(A)"}, {name: C, value: c}]}`, want: map[string]string{"A": "a", "B": "a-$(C)-$(A)", "C": "c"}},
		"itself":               {container: `{envFrom: [{configMapRef: {name: m}}], env: [{name: A, value: "$(A)+"}]}`, want: map[string]string{"A": "map+", "B": "map", "bad name": "map"}},
		"all of a map":         {container: `{envFrom: [{configMapRef: {name: m}}, {configMapRef: {name: other}}]}`, want: map[string]string{"A": "map", "B": "later", "bad name": "map"}},
		"with a prefix":        {container: `{envFrom: [{prefix: X_, configMapRef: {name: other}}]}`, want: map[string]string{"X_B": "later"}},
		"a secret over a map":  {container: `{envFrom: [{configMapRef: {name: other}}, {secretRef: {name: s}}]}`, want: map[string]string{"A": "secret", "B": "later", "S": "secret"}},
		"env over envFrom":     {container: `{envFrom: [{configMapRef: {name: m}}], env: [{name: B, valueFrom: {configMapKeyRef: {name: other, key: B}}}]}`, want: map[string]string{"A": "map", "B": "later", "bad name": "map"}},
		"optional, no key":     {container: `{envFrom: [{configMapRef: {name: other}}], env: [{name: B, valueFrom: {configMapKeyRef: {name: m, key: X, optional: true}}}]}`, want: map[string]string{"B": "later"}},
		"optional, no map":     {container: `{env: [{name: B, valueFrom: {configMapKeyRef: {name: x, key: X, optional: true}}}]}`, want: map[string]string{}},
		"optional, no map all": {container: `{envFrom: [{configMapRef: {name: x, optional: true}}, {secretRef: {name: x, optional: true}}]}`, want: map[string]string{}},
		"no key":               {container: `{name: c, env: [{name: B, valueFrom: {configMapKeyRef: {name: m, key: X}}}]}`, fails: "container c: env B: ConfigMap m has no key X"},
		"no map":               {container: `{name: c, env: [{name: B, valueFrom: {configMapKeyRef: {name: x, key: X}}}]}`, fails: `container c: env B: configmaps "x" not found`},
		"no map all":           {container: `{name: c, envFrom: [{configMapRef: {name: x, optional: false}}]}`, fails: `container c: envFrom[0]: configmaps "x" not found`},
		"a secret's key":       {container: `{env: [{name: B, valueFrom: {secretKeyRef: {name: s, key: S}}}]}`, want: map[string]string{"B": "secret"}},
		"no secret's key":      {container: `{env: [{name: B, valueFrom: {secretKeyRef: {name: s, key: X}}}]}`, fails: "Secret s has no key X"},
		"fields": {
			container: `{env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: L, valueFrom: {fieldRef: {fieldPath: "metadata.labels['a/b']"}}}, {name: H, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}`,
			want:      map[string]string{"NAME": "p", "L": "l", "H": "n1"},
		},
		"an unknown field": {container: `{env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: spec.x}}}]}`, fails: "unsupported fieldPath"},
		"resources": {
			container: `{resources: {limits: {cpu: 1500m, memory: 64Mi}}, env: [{name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}, {name: MEM, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}]}`,
			want:      map[string]string{"CPU": "2", "MEM": "64"},
		},
		"an unknown resource": {container: `{env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.x}}}]}`, fails: "unsupported container resource"},
		"resources of nobody": {container: `{name: c, env: [{name: A, valueFrom: {resourceFieldRef: {containerName: x, resource: limits.cpu}}}]}`, fails: "container x not found"},
		"a file":              {container: `{env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}]}`, fails: "not played"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			container := &corev1.Container{}
			if err := yaml.UnmarshalStrict([]byte(c.container), container); err != nil {
				t.Fatal(err)
			}
			p := &corev1.Pod{}
			p.Name, p.Spec.NodeName, p.Labels = "p", "n1", map[string]string{"a/b": "l"}
			got, err := Environment(p, container, from)
			if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Fatalf("got %v, want %q", err, c.fails)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
