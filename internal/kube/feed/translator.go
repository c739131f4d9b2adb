package feed

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/kube/links"
)

// translator is where objects become events. Besides what the translator knows it remembers what it was told, for the Inspector. One
// goroutine works at it.
type translator struct {
	*dialect.Translator
	told    [dialect.Kinds]map[types.NamespacedName]client.Object // the latest of every object
	links   *links.Links
	says    map[types.NamespacedName]string // what pods were last read to carry besides what they carry
	doubted map[doubt]bool                  // objects of which there is a suspicion; true: something was told of it since
}

// translator says the same to the translator.
func (o *Options) translator() dialect.Options {
	r := kai.Roles{SchedulerNames: o.SchedulerNames, ReservationApp: o.ReservationApp, ReservationSpace: o.ReservationSpace, ScalingSpace: o.ScalingSpace, MIGWorker: o.MIGWorkerLabel, Zones: o.Zones}
	if o.RestrictNodes {
		r.RestrictGPU, r.RestrictCPU = o.GPUWorkerLabel, o.CPUWorkerLabel
	}
	hear := o.Broken
	return dialect.Options{
		Roles: r, Volcano: o.Volcano, KubeBatch: o.KubeBatch, Sharding: o.Sharding, Partition: o.Partition, FlatQueues: o.FlatQueues, QueueLabel: o.QueueLabel, Extended: o.Extended,
		Broken: func(v any, k dialect.Kind, key types.NamespacedName, stack []byte) {
			if hear == nil {
				return
			}
			object := k.Watched()
			object.SetNamespace(key.Namespace)
			object.SetName(key.Name)
			hear(v, object, stack)
		},
	}
}

func newTranslator(o Options) *translator {
	return &translator{Translator: dialect.NewTranslator(o.translator()), links: o.Links, says: map[types.NamespacedName]string{}}
}

// work turns one drain's objects into events, and the pods that are to be looked at again, applies them, and returns how many changed the
// store.
func (d *translator) work(in *[dialect.Kinds]box, again map[types.NamespacedName]struct{}, store *cluster.Store) (n int) {
	d.Translate(func(k dialect.Kind, take func(types.NamespacedName, dialect.Object)) {
		in[k].each(func(key types.NamespacedName, object client.Object) {
			d.note(k, key, object)
			take(key, d.read(k, key, object))
		})
		if k != dialect.Pods {
			return
		}
		for key := range again { // order: each pod on its own
			if p, known := d.told[k][key].(*v1.Pod); known {
				if text := d.links.Text(p); text != "" && text != d.says[key] {
					take(key, d.read(k, key, p))
				}
			}
		}
	}, func(e cluster.Event) {
		if store.Apply(e) {
			n++
		}
	})
	return n
}

// read is an object as it is read now: a pod as if it carried what is told of it.
func (d *translator) read(k dialect.Kind, key types.NamespacedName, object client.Object) client.Object {
	if k != dialect.Pods {
		return object
	}
	delete(d.says, key)
	if p, ok := object.(*v1.Pod); ok {
		if text := d.links.Text(p); text != "" {
			d.says[key] = text
		}
	}
	return d.again(key, object)
}

// again is an object as it was read last.
func (d *translator) again(key types.NamespacedName, object client.Object) client.Object {
	if p, ok := object.(*v1.Pod); ok {
		return links.Carrying(p, d.says[key])
	}
	return object
}

// note remembers what the translator is told; nil is no such object.
func (d *translator) note(k dialect.Kind, key types.NamespacedName, object client.Object) {
	if _, doubted := d.doubted[doubt{k, key}]; doubted {
		d.doubted[doubt{k, key}] = true
	}
	if object == nil {
		delete(d.told[k], key)
		return
	}
	if d.told[k] == nil {
		d.told[k] = map[types.NamespacedName]client.Object{}
	}
	d.told[k][key] = object
}

// Package dialect finds them.
type (
	// StaleBindRequest is a BindRequest that ought to be deleted.
	StaleBindRequest = dialect.StaleBindRequest
	// StaleReason says why.
	StaleReason = dialect.StaleReason
)

// The reasons, by precedence.
const (
	Failed    = dialect.StaleFailed
	NodeGone  = dialect.StaleNodeGone
	Ownerless = dialect.StaleOwnerless
	OtherPod  = dialect.StaleOtherPod
)
