package vcjobflow

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/strategicpatch"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
)

// defaultRetry is what the API server puts into a patch that says nothing of maxRetry.
const defaultRetry = 3

// patched is a template's spec with a patch merged into it: fields that the patch gives replace the template's, tasks are merged by name as pod templates are
// (containers by name), and a task that the template has not is added. What the API server fills into every patch, queue default and maxRetry 3, is taken for not given.
func patched(spec *batch.JobSpec, patch *flow.Patch) (*batch.JobSpec, error) {
	out := spec.DeepCopy()
	if patch == nil {
		return out, nil
	}
	change := patch.Spec.DeepCopy()
	if change.Queue == keys.DefaultQueue {
		change.Queue = ""
	}
	if change.MaxRetry == defaultRetry {
		change.MaxRetry = 0
	}
	tasks := change.Tasks
	change.Tasks = nil
	if err := merge(out, change); err != nil {
		return nil, err
	}
	for i := range tasks {
		at := slices.IndexFunc(out.Tasks, func(t batch.TaskSpec) bool { return t.Name == tasks[i].Name })
		if at < 0 {
			out.Tasks = append(out.Tasks, *tasks[i].DeepCopy())
			continue
		}
		if err := merge(&out.Tasks[at], &tasks[i]); err != nil {
			return nil, fmt.Errorf("task %s: %w", tasks[i].Name, err)
		}
	}
	return out, nil
}

// merge merges what change says into a value of its type. What it does not say is not changed: encoders write some of that as null, which would delete it.
func merge[T any](into, change *T) error {
	base, err := json.Marshal(into)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	text, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return fmt.Errorf("read the patch: %w", err)
	}
	if text, err = json.Marshal(said(fields)); err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	var result T
	merged, err := strategicpatch.StrategicMergePatch(base, text, result)
	if err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	if err := json.Unmarshal(merged, &result); err != nil {
		return fmt.Errorf("read what is merged: %w", err)
	}
	*into = result
	return nil
}

// said is a JSON value without the nulls in it.
func said(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, of := range v { // order: each on its own
			if v[name] = said(of); of == nil {
				delete(v, name)
			}
		}
	case []any:
		for i := range v {
			v[i] = said(v[i])
		}
	}
	return v
}
