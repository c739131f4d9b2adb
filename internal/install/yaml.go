package install

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// YAML is an object as `kubectl apply` takes it: without a status, and without what is empty.
func YAML(o client.Object) ([]byte, error) {
	object, err := Plain(o)
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", Key(o), err)
	}
	return text, nil
}

// Plain is an object as JSON's maps, without a status and without the fields that Go writes although nobody set them.
func Plain(o client.Object) (map[string]any, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", Key(o), err)
	}
	var out map[string]any
	if err := json.Unmarshal(body, &out); err != nil {
		return nil, fmt.Errorf("read %s again: %w", Key(o), err)
	}
	delete(out, "status")
	prune(out)
	return out, nil
}

// prune takes out nulls, which is how Go writes a time that is not set.
func prune(m map[string]any) {
	for k, v := range m { // order: each key by itself
		switch v := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			prune(v)
		case []any:
			for _, e := range v {
				if part, ok := e.(map[string]any); ok {
					prune(part)
				}
			}
		}
	}
	for _, empty := range []string{"resources"} { // structs that are always written
		if v, ok := m[empty].(map[string]any); ok && len(v) == 0 {
			delete(m, empty)
		}
	}
}
