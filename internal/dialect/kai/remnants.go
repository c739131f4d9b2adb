package kai

import (
	"encoding/json"

	"github.com/muster-scheduler/muster/api/kai/keys"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// ReadRemnants returns what is charged to a queue and is in the status of no PodGroup, by keys.RemnantsAnnotation; nothing for none,
// and for a text that is none.
func ReadRemnants(q *v2.Queue) (out v2alpha2.PodGroupResourcesStatus) {
	if text := q.Annotations[keys.RemnantsAnnotation]; text != "" && json.Unmarshal([]byte(text), &out) != nil {
		return v2alpha2.PodGroupResourcesStatus{}
	}
	return out
}

// WriteRemnants is the inverse of ReadRemnants, always the same for the same amounts; "" for nothing. There are no more resources
// in it than nodes offer, because pods hold them.
func WriteRemnants(s v2alpha2.PodGroupResourcesStatus) string {
	if len(s.Requested)+len(s.Allocated)+len(s.AllocatedNonPreemptible) == 0 {
		return ""
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // amounts always have a JSON form
	}
	return string(text)
}
