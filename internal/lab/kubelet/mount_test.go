package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

func TestTranslate(t *testing.T) {
	t.Parallel()
	p := places{{"/etc/config/extra", "/x/extra"}, {"/etc/config", "/x/config"}, {"/tmp", "/x/tmp"}}
	for in, want := range map[string]string{
		"--scheduler-conf=/etc/config/config.yaml": "--scheduler-conf=/x/config/config.yaml",
		"/etc/config":                     "/x/config",
		"/etc/config/":                    "/x/config/",
		"/etc/config/extra/a":             "/x/extra/a",
		"/etc/configs/a":                  "/etc/configs/a",
		"/srv/etc/config/a":               "/srv/etc/config/a",
		"/etc/config/a:/tmp/b,/tmp":       "/x/config/a:/x/tmp/b,/x/tmp",
		`{"path": "/tmp/a"}`:              `{"path": "/x/tmp/a"}`,
		"":                                "",
		"https://example.test/tmp/a?x=/y": "https://example.test/tmp/a?x=/y",
	} {
		if got := p.translate(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	if got := p.temporary("/pod"); got != "/x/tmp" {
		t.Errorf("temporary files go to %s", got)
	}
	if got := p[:2].temporary("/pod"); got != "/pod" {
		t.Errorf("without /tmp, temporary files go to %s", got)
	}
}

func TestMount(t *testing.T) {
	t.Parallel()
	from := Sources{
		ConfigMap: func(name string) (*corev1.ConfigMap, error) {
			if name != "m" {
				return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
			}
			return &corev1.ConfigMap{Data: map[string]string{"a": "A", "b": "B"}, BinaryData: map[string][]byte{"c": []byte("C")}}, nil
		},
		Secret: func(string) (*corev1.Secret, error) {
			return &corev1.Secret{Data: map[string][]byte{"s": []byte("S")}}, nil
		},
	}
	for name, c := range map[string]struct {
		volume, subPath string
		want            map[string]string // by the path in the container
		fails           string
	}{
		"all of a map":       {volume: `{configMap: {name: m}}`, want: map[string]string{"/v/a": "A", "/v/b": "B", "/v/c": "C"}},
		"one key of a map":   {volume: `{configMap: {name: m, items: [{key: a, path: deep/x}]}}`, want: map[string]string{"/v/deep/x": "A", "/v/a": ""}},
		"one file of a map":  {volume: `{configMap: {name: m}}`, subPath: "a", want: map[string]string{"/v": "A"}},
		"a secret":           {volume: `{secret: {secretName: s}}`, want: map[string]string{"/v/s": "S"}},
		"empty":              {volume: `{emptyDir: {}}`, want: map[string]string{"/v/a": ""}},
		"fields":             {volume: `{downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}`, want: map[string]string{"/v/name": "p"}},
		"projected":          {volume: `{projected: {sources: [{configMap: {name: m, items: [{key: b, path: b}]}}, {secret: {name: s}}, {downwardAPI: {items: [{path: file, fieldRef: {fieldPath: metadata.name}}]}}]}}`, want: map[string]string{"/v/b": "B", "/v/s": "S", "/v/file": "p"}},
		"optional":           {volume: `{configMap: {name: x, optional: true}}`, want: map[string]string{"/v/a": ""}},
		"no map":             {volume: `{configMap: {name: x}}`, fails: `volume v: configmaps "x" not found`},
		"no key":             {volume: `{configMap: {name: m, items: [{key: x, path: x}]}}`, fails: "volume v: ConfigMap m has no key x"},
		"out of the volume":  {volume: `{configMap: {name: m, items: [{key: a, path: ../x}]}}`, fails: "leaves the volume"},
		"out of it, subPath": {volume: `{configMap: {name: m}}`, subPath: "../x", fails: "leaves it"},
		"a claim":            {volume: `{persistentVolumeClaim: {claimName: x}}`, fails: "not played"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{}
			pod.Name = "p"
			pod.Spec.Volumes = make([]corev1.Volume, 1)
			if err := yaml.UnmarshalStrict([]byte(c.volume), &pod.Spec.Volumes[0]); err != nil {
				t.Fatal(err)
			}
			pod.Spec.Volumes[0].Name = "v"
			container := &corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: c.subPath}, {Name: "token", MountPath: tokenMount}}}
			p, err := mount(pod, container, filepath.Join(t.TempDir(), "volumes"), from)
			if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Fatalf("got %v, want %q", err, c.fails)
			}
			for path, want := range c.want {
				got, _ := os.ReadFile(p.translate(path))
				if string(got) != want {
					t.Errorf("%s holds %q, want %q", path, got, want)
				}
			}
		})
	}
}
