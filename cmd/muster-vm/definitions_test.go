package main

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/vm/config"
	"github.com/muster-scheduler/muster/internal/vm/image"
)

// TestDefinitions: the chart's definitions of Virtlet's kinds have the fields that muster-vm reads, and no other: an API server would drop one that they lack.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/chart/muster/files/virtlet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	specs := map[string]apiextensionsv1.JSONSchemaProps{}
	for one := range strings.SplitSeq(string(text), "\n---\n") {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict([]byte(one), &crd); err != nil {
			t.Fatal(err)
		}
		if crd.Name != crd.Spec.Names.Plural+"."+crd.Spec.Group || len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0].Name != "v1" || crd.Spec.Group != "virtlet.k8s" {
			t.Errorf("%+v", crd.Spec)
		}
		specs[crd.Spec.Names.Kind] = crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	}
	fields(t, "VirtletImageMapping", specs["VirtletImageMapping"], reflect.TypeFor[image.Mapping]())
	settings := specs["VirtletConfigMapping"]
	var want []string
	for _, k := range config.Keys() {
		want = append(want, k.Field)
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(settings.Properties["config"].Properties)); !slices.Equal(got, want) {
		t.Errorf("VirtletConfigMapping has the settings %q, want %q", got, want)
	}
	if got := slices.Sorted(maps.Keys(settings.Properties)); !slices.Equal(got, []string{"config", "nodeName", "nodeSelector", "priority"}) {
		t.Errorf("VirtletConfigMapping has the fields %q", got)
	}
}

// fields compares a schema with a struct, all the way down.
func fields(t *testing.T, at string, s apiextensionsv1.JSONSchemaProps, of reflect.Type) {
	t.Helper()
	switch of.Kind() {
	case reflect.Pointer:
		fields(t, at, s, of.Elem())
	case reflect.Slice:
		if s.Type != "array" || s.Items == nil || s.Items.Schema == nil {
			t.Errorf("%s: must be an array, is %q", at, s.Type)
			return
		}
		fields(t, at, *s.Items.Schema, of.Elem())
	case reflect.Map:
		if s.Type != "object" || s.AdditionalProperties == nil || s.AdditionalProperties.Schema == nil {
			t.Errorf("%s: must be a map", at)
			return
		}
		fields(t, at, *s.AdditionalProperties.Schema, of.Elem())
	case reflect.Struct:
		var names []string
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			names = append(names, name)
			fields(t, at+"."+name, s.Properties[name], of.Field(i).Type)
		}
		slices.Sort(names)
		if got := slices.Sorted(maps.Keys(s.Properties)); s.Type != "object" || !slices.Equal(got, names) {
			t.Errorf("%s: has the fields %q, want %q", at, got, names)
		}
	default:
		want := map[reflect.Kind]string{reflect.String: "string", reflect.Int: "integer", reflect.Bool: "boolean"}[of.Kind()]
		if s.Type != want {
			t.Errorf("%s: is of type %q, want %q", at, s.Type, want)
		}
	}
}
