package install

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/profile"
)

// Environment is what a rendering has to know besides the Config: where images come from, and what the cluster is like. Its
// zero value is a cluster without any foreign kind, and images without a registry.
type Environment struct {
	// Repository and Tag are those of images that Config does not say them of: MS_REPOSITORY and MS_TAG of the operator.
	Repository, Tag string
	// Digests are those of these images, such as sha256:…, by Program and NodeProgram; the others are named by their tags alone.
	Digests map[string]string
	// PullSecrets are names of pull secrets beside those of Config.
	PullSecrets []string
	// Kinds are the foreign kinds that the API server serves, of ForeignKinds. Objects of others are not rendered, which is
	// a Warning.
	Kinds map[schema.GroupKind]bool
	// CDI says that nodes hand devices to containers through the Container Device Interface, for a Config that does not say.
	CDI bool
	// SimulatedGPUs says that a node plays at having GPUs (label run.ai/fake.gpu).
	SimulatedGPUs bool
	// Leaders are the pods that hold Leases, by the Lease's name: of those of Leases that are held, by a pod that has an address.
	Leaders map[string]Leader
	// Check is asked whether a scheduler can run a shard's profile, and which names in it mean nothing to the scheduler. Nil: only its form is
	// looked at.
	Check func(profile.Shard, engine.Profile) ([]profile.Unknown, error)
	// SchedulerFlags are the names of the scheduler's flags. A shard's argument that is not among them is left out, with a
	// Warning. Nil: all are taken.
	SchedulerFlags []string
}

// Foreign kinds of which objects are rendered when there are such kinds.
var (
	// KindPrometheus is a server of the Prometheus operator.
	KindPrometheus = schema.GroupKind{Group: groupMonitors, Kind: "Prometheus"}
	// KindServiceMonitor says what such a server collects.
	KindServiceMonitor = schema.GroupKind{Group: groupMonitors, Kind: "ServiceMonitor"}
	// KindVPA is a vertical autoscaler.
	KindVPA = schema.GroupKind{Group: groupVPA, Kind: "VerticalPodAutoscaler"}
)

// ForeignKinds are the kinds that an Environment tells of, with the version that is rendered.
func ForeignKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{KindPrometheus.WithVersion("v1"), KindServiceMonitor.WithVersion("v1"), KindVPA.WithVersion("v1")}
}

// Warning is something in a Config or SchedulingShard that has no effect, or another one than its author may think. It hinders
// nothing.
type Warning struct {
	// Object is what says so, such as "SchedulingShard training".
	Object string
	// Field is the field's path, such as spec.args.v.
	Field string
	// Rule says what is wrong with it, in words that follow the field's name.
	Rule string
	// Missing says that something foreign has to be installed for the field to have its effect.
	Missing bool
	// Forgets says that what queues used is lost with a pod.
	Forgets bool
	// Unknown says that nothing has a name in the field, which is left out: a policy may have been meant.
	Unknown bool
}

// String is the warning in one line.
func (w Warning) String() string { return fmt.Sprintf("%s: %s %s", w.Object, w.Field, w.Rule) }
