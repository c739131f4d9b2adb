package admission

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	topology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
)

// Paths that the role serves where Volcano's face is on, as Volcano's program does. What that does at /pods/validate, a policy does; see volcanoPods.
const (
	MutateJobPath         = "/jobs/mutate"
	ValidateJobPath       = "/jobs/validate"
	MutateVCQueuePath     = "/queues/mutate"
	ValidateVCQueuePath   = "/queues/validate"
	MutateVCGroupPath     = "/podgroups/mutate"
	ValidateVCGroupPath   = "/podgroups/validate"
	ValidateHyperNodePath = "/hypernodes/validate"
	ValidateJobFlowPath   = "/jobflows/validate"
	ValidateCronJobPath   = "/cronjobs/validate"
)

// VolcanoSources are what reviews of Volcano's kinds look at besides the object.
type VolcanoSources struct {
	// Queues are all queues that there are.
	Queues func(context.Context) (volcano.Forest, error)
	// Heard are all queues without a list, as they were a moment ago: their names, parents and states; known is false where there is no telling. By them a review says yes, and never no; nil: there never is.
	Heard func() (queues volcano.Forest, known bool)
	// Busy says whether pods run in a queue, or did a moment ago.
	Busy func(ctx context.Context, queue string) (bool, error)
	// Template judges the pod templates of Jobs; nil takes them all.
	Template volcano.TemplateCheck
	// Notes are a namespace's annotations.
	Notes func(ctx context.Context, namespace string) (map[string]string, error)
}

// readVolcano reads past any cache, but for what may be said by what was heard: a no, and what queues are to each other, must be so.
func readVolcano(c client.Client, h *heard, template volcano.TemplateCheck) VolcanoSources {
	const page = 500
	runs := func(ctx context.Context, queue string, among ...client.ListOption) (bool, error) {
		var list v1beta1.PodGroupList
		for {
			if err := c.List(ctx, &list, append(among, client.Limit(page), client.Continue(list.Continue))...); err != nil {
				return false, fmt.Errorf("list PodGroups of Volcano's: %w", err)
			}
			for i := range list.Items {
				if runsIn(&list.Items[i]) == queue {
					return true, nil
				}
			}
			if list.Continue == "" {
				return false, nil
			}
		}
	}
	return VolcanoSources{
		Template: template,
		Heard:    h.forest,
		Queues: func(ctx context.Context) (volcano.Forest, error) {
			var list v1beta1.QueueList
			if err := c.List(ctx, &list); err != nil {
				return volcano.Forest{}, fmt.Errorf("list Queues of Volcano's: %w", err)
			}
			all := make([]*v1beta1.Queue, len(list.Items))
			for i := range list.Items {
				all[i] = &list.Items[i]
			}
			return volcano.NewForest(all...), nil
		},
		Busy: func(ctx context.Context, queue string) (bool, error) {
			one, known := h.runs(queue)
			if known && one.Name == "" {
				return false, nil
			}
			if known { // most often it still does, and the others need not be read
				if still, err := runs(ctx, queue, client.InNamespace(one.Namespace), client.MatchingFields{"metadata.name": one.Name}); still || err != nil {
					return still, err
				}
			}
			return runs(ctx, queue)
		},
		Notes: func(ctx context.Context, namespace string) (map[string]string, error) {
			var ns corev1.Namespace
			if err := c.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil && !apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("read Namespace %s: %w", namespace, err)
			}
			return ns.Annotations, nil
		},
	}
}

// serveVolcano serves the paths about Volcano's kinds.
func (h *Handler) serveVolcano() {
	h.serve(MutateJobPath, h.fill(func(_ context.Context, req *admissionv1.AdmissionRequest) ([]volcano.Fill, error) {
		j, _, err := decode[batch.Job](req)
		if err != nil {
			return nil, err
		}
		return volcano.DefaultJob(j, h.rules.Volcano[0]), nil
	}))
	h.serve(ValidateJobPath, h.validateJob)
	h.serve(MutateVCQueuePath, h.fill(func(_ context.Context, req *admissionv1.AdmissionRequest) ([]volcano.Fill, error) {
		q, _, err := decode[v1beta1.Queue](req)
		if err != nil {
			return nil, err
		}
		return volcano.DefaultQueue(q), nil
	}))
	h.serve(ValidateVCQueuePath, h.validateVCQueue)
	h.serve(MutateVCGroupPath, h.fill(func(ctx context.Context, req *admissionv1.AdmissionRequest) ([]volcano.Fill, error) {
		g, _, err := decode[v1beta1.PodGroup](req)
		if err != nil {
			return nil, err
		}
		notes, err := h.sources.Volcano.Notes(ctx, req.Namespace)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errSource, err)
		}
		return volcano.DefaultPodGroup(g, notes), nil
	}))
	h.serve(ValidateVCGroupPath, h.validateVCGroup)
	h.serve(ValidateHyperNodePath, alone(topology.GroupVersion.WithKind("HyperNode"), volcano.ValidateHyperNode))
	h.serve(ValidateJobFlowPath, alone(flow.GroupVersion.WithKind("JobFlow"), volcano.ValidateJobFlow))
	h.serve(ValidateCronJobPath, alone(batch.GroupVersion.WithKind("CronJob"), volcano.ValidateCronJob))
}

// fill is a review of an object that is to be created, of which what is missing is filled in.
func (h *Handler) fill(missing func(context.Context, *admissionv1.AdmissionRequest) ([]volcano.Fill, error)) review {
	return func(ctx context.Context, req *admissionv1.AdmissionRequest) (a answer, err error) {
		if req.Operation != admissionv1.Create {
			return answer{}, nil
		}
		fills, err := missing(ctx, req)
		for _, f := range fills {
			a.patch = append(a.patch, Operation{Op: "add", Path: f.Path, Value: f.Value})
		}
		return a, err
	}
}

// alone is a review of a kind of which one object tells all.
func alone[T any](kind schema.GroupVersionKind, judge func(*T) field.ErrorList) review {
	return func(_ context.Context, req *admissionv1.AdmissionRequest) (answer, error) {
		if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
			return answer{}, nil
		}
		object, _, err := decode[T](req)
		if err != nil {
			return answer{}, err
		}
		return refuse(kind.GroupKind(), req.Name, "", judge(object)), nil
	}
}

func (h *Handler) validateJob(ctx context.Context, req *admissionv1.AdmissionRequest) (answer, error) {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return answer{}, nil
	}
	j, old, err := decode[batch.Job](req)
	if err != nil {
		return answer{}, err
	}
	kind := batch.GroupVersion.WithKind("Job").GroupKind()
	if old != nil {
		if j.DeletionTimestamp != nil {
			return answer{}, nil
		}
		return refuse(kind, j.Name, j.GenerateName, volcano.ValidateJobUpdate(j, old)), nil
	}
	wrong, err := h.queued(ctx, func(queues volcano.Forest) field.ErrorList {
		return volcano.ValidateJob(j, queues, h.sources.Volcano.Template)
	})
	return refuse(kind, j.Name, j.GenerateName, wrong), err
}

// queued judges what comes into a queue: by what was heard of queues, and by what they are now before it is refused.
func (h *Handler) queued(ctx context.Context, judge func(volcano.Forest) field.ErrorList) (field.ErrorList, error) {
	if h.sources.Volcano.Heard != nil {
		if queues, known := h.sources.Volcano.Heard(); known && len(judge(queues)) == 0 {
			return nil, nil
		}
	}
	queues, err := h.sources.Volcano.Queues(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSource, err)
	}
	return judge(queues), nil
}

func (h *Handler) validateVCQueue(ctx context.Context, req *admissionv1.AdmissionRequest) (answer, error) {
	var q, old *v1beta1.Queue
	var err error
	switch req.Operation {
	case admissionv1.Create, admissionv1.Update:
		if q, old, err = decode[v1beta1.Queue](req); err != nil {
			return answer{}, err
		}
		if q.DeletionTimestamp != nil {
			return answer{}, nil
		}
	case admissionv1.Delete:
		old = &v1beta1.Queue{}
		if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
			return answer{}, fmt.Errorf("read the old object: %w", err)
		}
	default:
		return answer{}, nil
	}
	all, err := h.sources.Volcano.Queues(ctx)
	if err != nil {
		return answer{}, fmt.Errorf("%w: %w", errSource, err)
	}
	busy := func(queue string) (bool, error) {
		runs, err := h.sources.Volcano.Busy(ctx, queue)
		if err != nil {
			return false, fmt.Errorf("%w: %w", errSource, err)
		}
		return runs, nil
	}
	kind := v1beta1.GroupVersion.WithKind("Queue").GroupKind()
	if q == nil {
		wrong, err := h.rules.VolcanoQueues.ValidateQueueDeletion(old.Name, all, busy)
		return refuse(kind, old.Name, "", wrong), err
	}
	wrong, err := h.rules.VolcanoQueues.ValidateQueue(q, old, all, busy)
	return refuse(kind, q.Name, q.GenerateName, wrong), err
}

func (h *Handler) validateVCGroup(ctx context.Context, req *admissionv1.AdmissionRequest) (answer, error) {
	if req.Operation != admissionv1.Create {
		return answer{}, nil
	}
	g, _, err := decode[v1beta1.PodGroup](req)
	if err != nil {
		return answer{}, err
	}
	wrong, err := h.queued(ctx, func(queues volcano.Forest) field.ErrorList { return volcano.ValidatePodGroup(g, queues) })
	return refuse(v1beta1.GroupVersion.WithKind("PodGroup").GroupKind(), g.Name, g.GenerateName, wrong), err
}
