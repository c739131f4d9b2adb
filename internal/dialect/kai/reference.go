package kai

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// PodGroup names the object that a gang of that key and UID is, and says nothing else of it: for patches and events. For a
// remnant it is the PodGroup that its pods were of, of whatever UID: there may be none of that name any more.
func PodGroup(key cluster.Key, uid string) *v2alpha2.PodGroup {
	if key.Remnant() {
		former := key.Former()
		return &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: former.Namespace, Name: former.Name}}
	}
	return &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: types.UID(uid)}}
}
