package operator

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/install"
)

// object is anything that is applied or looked at.
type object = *unstructured.Unstructured

// plan is what has to be done.
type plan struct {
	// Apply are desired objects that are missing or differ, in the order of desired.
	Apply []object
	// Remove are owned objects that nobody asks for any more.
	Remove []object
}

// decide compares what is desired with what there is. Objects of shards that are in error stay as they are.
func decide(desired, live []object, keepShards map[string]bool) plan {
	have := map[string]object{}
	for _, o := range live {
		have[install.Key(o)] = o
	}
	var p plan
	wanted := map[string]bool{}
	for _, o := range desired {
		key := install.Key(o)
		wanted[key] = true
		was, exists := have[key]
		if exists {
			o = inherit(o, was)
		}
		if !exists || !covers(was.Object, o.Object) {
			p.Apply = append(p.Apply, o)
		}
	}
	for _, o := range live {
		if !wanted[install.Key(o)] && owned(o) && !install.Kept(o) && !keepShards[o.GetLabels()[install.LabelShard]] && o.GetDeletionTimestamp() == nil {
			p.Remove = append(p.Remove, o)
		}
	}
	return p
}

// name is an object as messages speak of it.
func name(o client.Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// owned says whether an object is the operator's to remove.
func owned(o client.Object) bool {
	ref := metav1.GetControllerOf(o)
	return o.GetLabels()[install.LabelPartOf] == install.PartOf && ref != nil && ref.Kind == "Config" && ref.Name == kaiv1.ConfigName &&
		strings.HasPrefix(ref.APIVersion, kaiv1.GroupVersion.Group+"/")
}

// desire turns rendered objects into what is applied: owned by the Config, but for those that outlive it.
func desire(rendered []client.Object, config *kaiv1.Config) ([]object, error) {
	out := make([]object, 0, len(rendered))
	for _, r := range rendered {
		content, err := install.Plain(r)
		if err != nil {
			return nil, err
		}
		o := &unstructured.Unstructured{Object: content}
		if !install.Kept(o) {
			o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(config, kaiv1.GroupVersion.WithKind("Config"))})
		}
		// Setting it wrote typed values among what JSON knows.
		if o.Object, err = normal(o.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", name(o), err)
		}
		out = append(out, o)
	}
	return out, nil
}

// normal is an object with the types that JSON's decoder makes, whole numbers as int64.
func normal(m map[string]any) (map[string]any, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	return u.Object, nil
}

// covers says whether everything that is wanted is there. What is there besides is somebody else's, or a default of the API
// server's. An empty value wanted is as good as none.
func covers(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		there, ok := have.(map[string]any)
		if !ok && !empty(have) {
			return false
		}
		for k, v := range want {
			if !covers(there[k], v) {
				return false
			}
		}
		return true
	case []any:
		have, ok := have.([]any)
		if !ok && len(want) > 0 {
			return false
		}
		return coversList(have, want)
	}
	return empty(want) && empty(have) || equal(have, want)
}

// coversList compares element by element. In a list whose elements have names, others may have put some of theirs.
func coversList(have, want []any) bool {
	if !slices.ContainsFunc(want, func(e any) bool { return nameOf(e) == "" }) && len(want) > 0 {
		for _, w := range want {
			i := slices.IndexFunc(have, func(h any) bool { return nameOf(h) == nameOf(w) })
			if i < 0 || !covers(have[i], w) {
				return false
			}
		}
		return true
	}
	if len(have) != len(want) {
		return false
	}
	for i := range want {
		if !covers(have[i], want[i]) {
			return false
		}
	}
	return true
}

// nameOf is the name, or the UID, of a list's element that has one.
func nameOf(e any) string {
	m, ok := e.(map[string]any)
	if !ok {
		return ""
	}
	for _, key := range []string{"uid", "name"} {
		if s, ok := m[key].(string); ok {
			return s
		}
	}
	return ""
}

func equal(a, b any) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	return reflect.DeepEqual(a, b)
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func empty(v any) bool { return v == nil || reflect.ValueOf(v).IsZero() }

// injected are the keys, or their beginnings, by which clouds take namespaces of their own out of webhooks. Who takes them
// away fights with the cloud's own controller for ever.
var injected = []string{"control-plane", "kubernetes.azure.com/", "eks.amazonaws.com/", "cloud.google.com/", "addonmanager.kubernetes.io/"}

// inherit is the desired object with what a cloud has put into the one that is there: rules of a webhook's namespaceSelector.
func inherit(want, have object) object {
	hooks, _, _ := unstructured.NestedSlice(want.Object, "webhooks")
	there, _, _ := unstructured.NestedSlice(have.Object, "webhooks")
	changed := false
	for i, h := range hooks {
		j := slices.IndexFunc(there, func(t any) bool { return nameOf(t) == nameOf(h) })
		hook, ok := h.(map[string]any)
		if j < 0 || !ok {
			continue
		}
		now, _ := there[j].(map[string]any)
		rules, _, _ := unstructured.NestedSlice(hook, "namespaceSelector", "matchExpressions")
		theirs, _, _ := unstructured.NestedSlice(now, "namespaceSelector", "matchExpressions")
		for at, rule := range theirs {
			m, _ := rule.(map[string]any)
			key, _ := m["key"].(string)
			if slices.ContainsFunc(injected, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
				rules, changed = slices.Insert(rules, min(at, len(rules)), rule), true
			}
		}
		if err := unstructured.SetNestedSlice(hook, rules, "namespaceSelector", "matchExpressions"); err != nil {
			return want
		}
		hooks[i] = hook
	}
	if !changed {
		return want
	}
	out := want.DeepCopy()
	if err := unstructured.SetNestedSlice(out.Object, hooks, "webhooks"); err != nil {
		return want
	}
	return out
}
