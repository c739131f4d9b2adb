package kai

import (
	"encoding/json"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
)

// maxExtendedCopy is the longest copy that is kept in an annotation. An object's annotations may have 256 KiB together.
const maxExtendedCopy = 128 << 10

// Extended returns what q says about further resources, the field that says it, and what is wrong with that field as a
// whole ("" for nothing): spec.resources.extended, or, where that is absent, the copy in the annotation
// keys.ExtendedResourcesAnnotation.
func Extended(q *v2.Queue) (resources map[string]v2.QueueResource, field, problem string) {
	if r := q.Spec.Resources; r != nil && r.Extended != nil {
		return r.Extended, "spec.resources.extended", ""
	}
	text, ok := q.Annotations[keys.ExtendedResourcesAnnotation]
	if !ok {
		return nil, "", ""
	}
	field = "annotation " + keys.ExtendedResourcesAnnotation
	if err := json.Unmarshal([]byte(text), &resources); err != nil {
		return nil, field, `must be a JSON object of the form {"RESOURCE":{"quota":1,"overQuotaWeight":1,"limit":-1}}; it is ignored`
	}
	return resources, field, ""
}

// ExtendedCopy returns what the annotation keys.ExtendedResourcesAnnotation of a queue with this spec has to be, "" for
// none. It is false where the spec leaves that to what is there: it does not have the field, or has too much in it to be
// repeated.
func ExtendedCopy(spec *v2.QueueSpec) (string, bool) {
	if spec.Resources == nil || spec.Resources.Extended == nil {
		return "", false
	}
	if len(spec.Resources.Extended) == 0 {
		return "", true
	}
	text, err := json.Marshal(spec.Resources.Extended) // sorted by name
	if err != nil || len(text) > maxExtendedCopy {
		return "", false // infinities, which no API server hands out
	}
	return string(text), true
}
