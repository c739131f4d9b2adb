package ledgers_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/muster-scheduler/muster/docs/ledgers"
)

// TestUpstream: every field of Kubernetes' own groups has one row, there is no row without a field, and what rows name exists.
func TestUpstream(t *testing.T) {
	t.Parallel()
	all, err := ledgers.Upstream()
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string][]string{
		"Pod":               jsonFields(reflect.TypeFor[corev1.PodSchedulingGroup](), "spec.schedulingGroup"),
		"PodGroup":          append(jsonFields(reflect.TypeFor[schedulingv1beta1.PodGroupSpec](), "spec"), jsonFields(reflect.TypeFor[schedulingv1beta1.PodGroupStatus](), "status")...),
		"Workload":          jsonFields(reflect.TypeFor[schedulingv1beta1.WorkloadSpec](), "spec"),
		"CompositePodGroup": append(jsonFields(reflect.TypeFor[schedulingv1alpha3.CompositePodGroupSpec](), "spec"), jsonFields(reflect.TypeFor[schedulingv1alpha3.CompositePodGroupStatus](), "status")...),
	}
	tests := testFunctions(t, repositoryRoot(t))
	for kind := range all { // order: each by itself
		if fields[kind] == nil {
			t.Errorf("there is no kind %s", kind)
		}
	}
	for kind, paths := range fields { // order: each by itself
		used := map[string]bool{}
		for _, path := range paths {
			var rows []string
			for row := range all[kind] { // order: the rows are counted
				if path == row || strings.HasPrefix(path, row+".") {
					rows = append(rows, row)
					used[row] = true
				}
			}
			if len(rows) != 1 {
				t.Errorf("%s %s has the rows %v; want one", kind, path, rows)
			}
		}
		for _, path := range slices.Sorted(maps.Keys(all[kind])) {
			r := all[kind][path]
			if !used[path] {
				t.Errorf("%s has no field %s", kind, path)
			}
			if said := (len(r.Honoured) > 0) != (r.Accepted != "") != (r.Planned != ""); !said || len(r.Honoured) > 0 && r.Accepted+r.Planned != "" {
				t.Errorf("%s %s: want one of honoured, accepted and planned", kind, path)
			}
			for _, name := range r.Honoured {
				_, err := os.Stat(filepath.Join(repositoryRoot(t), "scenarios", name+".txtar"))
				if !tests[name] && err != nil {
					t.Errorf("%s %s: there is no Go test and no scenario %s", kind, path, name)
				}
			}
		}
	}
}

// jsonFields are the paths of the fields of a struct that have none below them, by their JSON names.
func jsonFields(of reflect.Type, path string) (out []string) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of.NumField() == 0 || of.PkgPath() == "k8s.io/apimachinery/pkg/apis/meta/v1" || strings.Count(path, ".") > 6 {
		return []string{path}
	}
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		out = append(out, jsonFields(of.Field(i).Type, path+"."+name)...)
	}
	return out
}
