package crds_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/volcano"
	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
)

// TestObjectsSurvive reads every object of Volcano's examples, and of a state that Volcano left behind, into our types and writes it
// again: nothing is lost.
func TestObjectsSurvive(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := volcano.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	check := func(file string, o unstructured.Unstructured) {
		kind := o.GroupVersionKind()
		if !scheme.Recognizes(kind) {
			return
		}
		seen[kind.Kind]++
		typed, err := scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, typed); err != nil {
			t.Errorf("%s: %s %s: %v", file, kind.Kind, o.GetName(), err)
			return
		}
		again, err := json.Marshal(typed)
		if err != nil {
			t.Fatal(err)
		}
		var out map[string]any
		if err := json.Unmarshal(again, &out); err != nil {
			t.Fatal(err)
		}
		for _, l := range lost("", o.Object, out) {
			t.Errorf("%s: %s %s: %s is lost", file, kind.Kind, o.GetName(), l)
		}
	}
	files := append(glob(t, "compat/volcano/examples/*.yaml"), glob(t, "compat/volcano/examples/*/*.yaml")...)
	files = append(append(files, glob(t, "compat/volcano/examples/*/*/*.yaml")...), glob(t, "compat/volcano/examples/*/*/*/*.yaml")...)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			var o unstructured.Unstructured
			if err := yaml.Unmarshal(document, &o.Object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			check(file, o)
		}
	}
	for _, file := range glob(t, "compat/volcano/takeover/*.sh.json") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Items []map[string]any }
		if err := json.Unmarshal(content, &list); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, item := range list.Items {
			check(file, unstructured.Unstructured{Object: item})
		}
	}
	for kind, least := range map[string]int{"Job": 25, "Queue": 5, "PodGroup": 4, "CronJob": 1, "JobFlow": 1, "JobTemplate": 5} {
		if seen[kind] < least {
			t.Errorf("%d of kind %s seen, want %d at least", seen[kind], kind, least)
		}
	}
}

// lost lists the paths that are in one tree and not in the other, or with another value. What says nothing (null, {}, [], 0, false, "") may go.
func lost(path string, in, out any) []string {
	var all []string
	switch in := in.(type) {
	case nil:
	case map[string]any:
		o, _ := out.(map[string]any)
		for name, value := range in { // order: tests compare no order
			all = append(all, lost(path+"."+name, value, o[name])...)
		}
	case []any:
		o, _ := out.([]any)
		if len(o) != len(in) {
			return []string{path}
		}
		for i := range in {
			all = append(all, lost(fmt.Sprintf("%s[%d]", path, i), in[i], o[i])...)
		}
	default:
		a, b := fmt.Sprint(in), fmt.Sprint(out)
		if a == b || out == nil && strings.Contains("|0|false||", "|"+a+"|") || strings.HasSuffix(path, ".template.spec.priorityClass") { // no field of pods
			return nil
		}
		if q, err := resource.ParseQuantity(a); err == nil { // 0.5 is written 500m
			if r, err := resource.ParseQuantity(b); err == nil && q.Cmp(r) == 0 {
				return nil
			}
		}
		return []string{path}
	}
	return all
}

// TestDurationIsKept: a text that is no duration is kept, and said to be none.
func TestDurationIsKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		ok   bool
	}{{"1h30m", true}, {"60m", true}, {"0s", true}, {"soon", false}, {"", false}, {"9999999999h", false}} {
		in := fmt.Sprintf(`{"spec":{"tasks":[{"template":{"spec":{"containers":null}}}],"policies":[{"timeout":%q}]},"status":{"state":{}}}`, c.text)
		var job batch.Job
		if err := json.Unmarshal([]byte(in), &job); err != nil {
			t.Fatalf("%q: %v", c.text, err)
		}
		if got := string(*job.Spec.Policies[0].Timeout); got != c.text {
			t.Errorf("%q became %q", c.text, got)
		}
		if _, err := job.Spec.Policies[0].Timeout.Value(); (err == nil) != c.ok {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}

// TestScheme: the kinds are known by their group, and no other.
func TestScheme(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := volcano.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for group, kinds := range map[string][]string{
		"batch.volcano.sh/v1alpha1":     {"Job", "CronJob"},
		"bus.volcano.sh/v1alpha1":       {"Command"},
		"scheduling.volcano.sh/v1beta1": {"PodGroup", "Queue"},
		"topology.volcano.sh/v1alpha1":  {"HyperNode"},
		"flow.volcano.sh/v1alpha1":      {"JobFlow", "JobTemplate"},
		"nodeinfo.volcano.sh/v1alpha1":  {"Numatopology"},
		"shard.volcano.sh/v1alpha1":     {"NodeShard"},
		"config.volcano.sh/v1alpha1":    {"ColocationConfiguration"},
	} {
		version, err := schema.ParseGroupVersion(group)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range kinds {
			if !scheme.Recognizes(version.WithKind(kind)) || !scheme.Recognizes(version.WithKind(kind+"List")) {
				t.Errorf("%s %s is not known", group, kind)
			}
		}
	}
}
