package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	kaiv1alpha1 "github.com/muster-scheduler/muster/api/kai/v1alpha1"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/app/gate"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// Paths that the role serves, as KAI's does.
const (
	MutatePodPath        = "/mutate--v1-pod"
	ValidatePodPath      = "/validate--v1-pod"
	ValidateTopologyPath = "/validate-kai-scheduler-v1alpha1-topology"
	ValidateQueuePath    = "/validate-scheduling-run-ai-v2-queue"
	ValidatePodGroupPath = "/validate-scheduling-run-ai-v2alpha2-podgroup"
	// ValidateMemberPath is ours: whether a pod may be in the PodGroup that it names, where queues are authorized.
	ValidateMemberPath = "/validate--v1-pod-podgroup"
	// ValidateShardPath is ours: KAI does not judge shards before they exist.
	ValidateShardPath = "/validate-kai-scheduler-v1-schedulingshard"
)

const (
	// maxReview bounds a request. An API server takes objects of 3 MiB at most, and an update carries two.
	maxReview = 8 << 20
	// longGrace is the longest grace period, in seconds, that an evicted pod gets unless the scheduler is told otherwise.
	longGrace = int64(write.MaxGrace / time.Second)
	// answerWithin is a little less than the API server waits.
	answerWithin = (timeout - 1) * time.Second
)

// Sources are what reviews look at besides the object.
type Sources struct {
	// Queues are all queues that there are.
	Queues func(context.Context) (Forest, error)
	// Groups are the first few PodGroups that name a queue, as NAMESPACE/NAME, and whether there are more.
	Groups func(ctx context.Context, queue string) (names []string, more bool, err error)
	// Group is one PodGroup, nil where there is none.
	Group func(ctx context.Context, namespace, name string) (*v2alpha2.PodGroup, error)
	// Shard judges SchedulingShards; nil takes them all.
	Shard ShardCheck
	// Volcano is what reviews of Volcano's kinds look at; it is not asked where its face is off.
	Volcano VolcanoSources
	// QueueLabel is the label by which a pod names its queue.
	QueueLabel string
}

// Handler answers admission reviews of version v1. It keeps nothing between requests and is safe for concurrent use.
type Handler struct {
	rules   Rules
	sources Sources
	mux     *http.ServeMux
	crowd   *crowd
	guard   *aside.Guard // nil: nobody is told
	reviews *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// NewHandler returns the handler of all paths. It registers the counter muster_admission_reviews_total{path,result} and the
// histogram muster_admission_review_seconds{path}; a nil registry counts for nobody.
func NewHandler(rules Rules, sources Sources, registry prometheus.Registerer) (*Handler, error) {
	h := &Handler{
		rules: rules, sources: sources, mux: http.NewServeMux(), crowd: newCrowd(),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_admission_reviews_total", Help: "Admission reviews answered: allowed, patched, denied, failed, malformed, or crowded (too much was asked at once).",
		}, []string{"path", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_admission_review_seconds", Help: "Time to answer an admission review.", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8),
		}, []string{"path"}),
	}
	if registry != nil {
		for _, c := range []prometheus.Collector{h.reviews, h.seconds} {
			if err := registry.Register(c); err != nil {
				return nil, fmt.Errorf("admission role: register metrics: %w", err)
			}
		}
	}
	h.serve(MutatePodPath, h.mutatePod)
	h.serve(ValidatePodPath, h.validatePod)
	h.serve(ValidateTopologyPath, h.validateTopology)
	h.serve(ValidateQueuePath, h.validateQueue)
	h.serve(ValidatePodGroupPath, h.validatePodGroup)
	h.serve(ValidateMemberPath, h.validateMember)
	h.serve(ValidateShardPath, h.validateShard)
	if len(rules.Volcano) > 0 {
		h.serveVolcano()
	}
	return h, nil
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// answer is what a review comes to: a patch, or a refusal; with warnings to whoever asked.
type answer struct {
	patch    []Operation
	deny     *metav1.Status
	warnings []string
}

// review judges one request.
type review func(context.Context, *admissionv1.AdmissionRequest) (answer, error)

// serve puts a review behind HTTP. An error of review is the API server's fault, not the user's.
func (h *Handler) serve(path string, judge review) {
	h.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		since := time.Now()
		defer func() { h.seconds.WithLabelValues(path).Observe(time.Since(since).Seconds()) }()
		g := h.crowd.enter(gate.Peer(r.RemoteAddr))
		defer g.leave()
		out, result, err := h.answer(g, w, r, judge)
		h.reviews.WithLabelValues(path, result).Inc()
		if err != nil {
			code := http.StatusBadRequest
			if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
				code = http.StatusRequestEntityTooLarge
			} else if errors.Is(err, errSource) || errors.Is(err, aside.ErrDefect) {
				code = http.StatusInternalServerError
			} else if errors.Is(err, errCrowded) {
				code = http.StatusServiceUnavailable
			}
			http.Error(w, err.Error(), code)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out) // an API server that has hung up asks again
	})
}

// answer reads a request, waits for its turn, and judges it. The body comes first: who sends it slowly holds up nobody.
func (h *Handler) answer(g *guest, w http.ResponseWriter, r *http.Request, judge review) (out []byte, result string, err error) {
	in := http.NewResponseController(w)
	_ = in.SetReadDeadline(time.Now().Add(bodyWithin)) // what cannot is no network
	text, err := g.read(http.MaxBytesReader(w, r.Body, maxReview))
	if err == nil {
		err = g.weigh(text)
	}
	switch {
	case errors.Is(err, errCrowded):
		return nil, crowded, err
	case err != nil:
		return nil, malformed, err
	}
	gate.Proves(r)
	ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
	defer cancel()
	if err := g.wait(ctx); err != nil {
		return nil, crowded, err
	}
	// A defect that one object brings out is the answer to that object.
	if failed := h.guard.Do(ctx, "a review", r.URL.Path, func(ctx context.Context) error {
		out, result, err = respond(ctx, text, judge)
		return nil
	}); failed != nil {
		return nil, "failed", fmt.Errorf("this object cannot be judged: %w of the admission role, which its log tells of", aside.ErrDefect)
	}
	return out, result, err
}

// Results of reviews that were not judged, for the metric.
const (
	malformed = "malformed"
	crowded   = "crowded"
)

// respond judges a review and writes the answer to it.
func respond(ctx context.Context, text []byte, judge review) (out []byte, result string, err error) {
	var in admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, malformed, fmt.Errorf("read the review: %w", err)
	}
	if in.Kind != "AdmissionReview" || in.APIVersion != admissionv1.SchemeGroupVersion.String() || in.Request == nil {
		return nil, malformed, fmt.Errorf("the request must be an AdmissionReview of %s with a request in it", admissionv1.SchemeGroupVersion)
	}
	a, err := judge(ctx, in.Request)
	if errors.Is(err, errSource) {
		return nil, "failed", err
	}
	if err != nil {
		return nil, malformed, err
	}
	reply := admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: &admissionv1.AdmissionResponse{
		UID: in.Request.UID, Allowed: a.deny == nil, Result: a.deny, Warnings: a.warnings,
	}}
	result = "allowed"
	if a.deny != nil {
		result = "denied"
	} else if len(a.patch) > 0 {
		result = "patched"
		kind := admissionv1.PatchTypeJSONPatch
		if reply.Response.Patch, err = json.Marshal(a.patch); err != nil {
			return nil, malformed, fmt.Errorf("write the patch: %w", err)
		}
		reply.Response.PatchType = &kind
	}
	if out, err = json.Marshal(reply); err != nil {
		return nil, malformed, fmt.Errorf("write the review: %w", err)
	}
	return out, result, nil
}

// refuse makes a refusal of what is wrong with an object.
func refuse(gk schema.GroupKind, name, generateName string, wrong field.ErrorList) answer {
	if len(wrong) == 0 {
		return answer{}
	}
	if name == "" && generateName != "" {
		name = generateName + "*"
	}
	status := apierrors.NewInvalid(gk, name, wrong).Status()
	return answer{deny: &status}
}

// readPod reads the pod of a request. Its namespace is the request's, whatever it says itself.
func readPod(raw []byte, req *admissionv1.AdmissionRequest) (*corev1.Pod, *metav1.Status, error) {
	p := &corev1.Pod{}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, nil, fmt.Errorf("read the pod: %w", err)
	}
	if p.Namespace != "" && p.Namespace != req.Namespace {
		status := apierrors.NewBadRequest(fmt.Sprintf("metadata.namespace: is %q, but the pod is created in namespace %q", brief(p.Namespace), req.Namespace)).Status()
		return nil, &status, nil
	}
	p.Namespace = req.Namespace
	return p, nil, nil
}

func (h *Handler) mutatePod(_ context.Context, req *admissionv1.AdmissionRequest) (answer, error) {
	p, deny, err := readPod(req.Object.Raw, req)
	if err != nil || deny != nil {
		return answer{deny: deny}, err
	}
	if req.Operation != admissionv1.Create {
		return answer{}, nil
	}
	if a := refuse(schema.GroupKind{Kind: "Pod"}, p.Name, p.GenerateName, h.rules.Validate(p)); a.deny != nil {
		return a, nil
	}
	ops, err := h.rules.Mutate(p, token())
	return answer{patch: ops}, err
}

func (h *Handler) validatePod(_ context.Context, req *admissionv1.AdmissionRequest) (answer, error) {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return answer{}, nil
	}
	p, deny, err := readPod(req.Object.Raw, req)
	if err != nil || deny != nil {
		return answer{deny: deny}, err
	}
	var wrong field.ErrorList
	var warnings []string
	if req.Operation == admissionv1.Create {
		wrong = h.rules.Validate(p)
		if len(wrong) == 0 {
			wrong = h.rules.incomplete(p)
		}
		if s := p.Spec.TerminationGracePeriodSeconds; s != nil && *s > longGrace && h.rules.ours(p) {
			warnings = append(warnings, fmt.Sprintf("spec.terminationGracePeriodSeconds: is %d; when the pod is evicted, the scheduler gives it %d, unless the cluster is set up otherwise", *s, longGrace))
		}
		if mps := p.Annotations[keys.MPSAnnotation]; mps != "" && mps != "true" && mps != "false" && h.rules.ours(p) {
			warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s]: is %q; only true has an effect", keys.MPSAnnotation, brief(mps)))
		}
	} else {
		old, deny, err := readPod(req.OldObject.Raw, req)
		if err != nil || deny != nil {
			return answer{deny: deny}, err
		}
		wrong = h.rules.ValidateUpdate(old, p)
	}
	a := refuse(schema.GroupKind{Kind: "Pod"}, p.Name, p.GenerateName, wrong)
	a.warnings = warnings
	return a, nil
}

// validateMember judges a pod that names a PodGroup: it must name the PodGroup's queue, too, since that is what its author is
// judged by. A PodGroup that is not there may become anybody's.
func (h *Handler) validateMember(ctx context.Context, req *admissionv1.AdmissionRequest) (answer, error) {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return answer{}, nil
	}
	p, deny, err := readPod(req.Object.Raw, req)
	if err != nil || deny != nil {
		return answer{deny: deny}, err
	}
	name, own := p.Annotations[keys.PodGroupAnnotation], p.Labels[h.sources.QueueLabel]
	if name == "" || !h.rules.ours(p) {
		return answer{}, nil
	}
	group, err := h.sources.Group(ctx, p.Namespace, name)
	if err != nil {
		return answer{}, fmt.Errorf("%w: %w", errSource, err)
	}
	at, wrong := field.NewPath("metadata", "annotations").Key(keys.PodGroupAnnotation), field.ErrorList(nil)
	if group == nil {
		wrong = append(wrong, field.Forbidden(at, fmt.Sprintf("there is no PodGroup %q; where queues are authorized a pod can only name one that is there", brief(name))))
	} else if queue := cmp.Or(group.Spec.Queue, keys.DefaultQueue); cmp.Or(own, keys.DefaultQueue) != queue {
		wrong = append(wrong, field.Forbidden(at, fmt.Sprintf("PodGroup %s is of queue %s; where queues are authorized the pod must name that queue in its label %s", brief(name), brief(queue), h.sources.QueueLabel)))
	}
	return refuse(schema.GroupKind{Kind: "Pod"}, p.Name, p.GenerateName, wrong), nil
}

func (h *Handler) validateTopology(_ context.Context, req *admissionv1.AdmissionRequest) (answer, error) {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return answer{}, nil
	}
	t := &kaiv1alpha1.Topology{}
	if err := json.Unmarshal(req.Object.Raw, t); err != nil {
		return answer{}, fmt.Errorf("read the Topology: %w", err)
	}
	return refuse(schema.GroupKind{Group: kaiv1alpha1.GroupVersion.Group, Kind: "Topology"}, t.Name, t.GenerateName, ValidateTopology(t)), nil
}

// errSource is that something else than the request could not be read.
var errSource = errors.New("the cluster cannot be read")

// decode reads the objects of a request: the new one and, for an update, the old one.
func decode[T any](req *admissionv1.AdmissionRequest) (object, old *T, err error) {
	object = new(T)
	if err := json.Unmarshal(req.Object.Raw, object); err != nil {
		return nil, nil, fmt.Errorf("read the object: %w", err)
	}
	if req.Operation != admissionv1.Update {
		return object, nil, nil
	}
	old = new(T)
	if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
		return nil, nil, fmt.Errorf("read the old object: %w", err)
	}
	return object, old, nil
}

func (h *Handler) validateQueue(ctx context.Context, req *admissionv1.AdmissionRequest) (answer, error) {
	kind := schema.GroupKind{Group: v2.GroupVersion.Group, Kind: "Queue"}
	switch req.Operation {
	case admissionv1.Create, admissionv1.Update:
		q, old, err := decode[v2.Queue](req)
		if err != nil {
			return answer{}, err
		}
		if q.DeletionTimestamp != nil || old != nil && reflect.DeepEqual(old.Spec, q.Spec) {
			return answer{}, nil
		}
		others, err := h.sources.Queues(ctx)
		if err != nil {
			return answer{}, fmt.Errorf("%w: %w", errSource, err)
		}
		wrong, warnings := h.rules.ValidateQueue(q, old, others)
		a := refuse(kind, q.Name, q.GenerateName, wrong)
		a.warnings = warnings
		return a, nil
	case admissionv1.Delete:
		others, err := h.sources.Queues(ctx)
		if err != nil {
			return answer{}, fmt.Errorf("%w: %w", errSource, err)
		}
		groups, more, err := h.sources.Groups(ctx, req.Name)
		if err != nil {
			return answer{}, fmt.Errorf("%w: %w", errSource, err)
		}
		return answer{warnings: Missed(req.Name, others, groups, more)}, nil
	}
	return answer{}, nil
}

func (h *Handler) validatePodGroup(_ context.Context, req *admissionv1.AdmissionRequest) (answer, error) {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return answer{}, nil
	}
	pg, old, err := decode[v2alpha2.PodGroup](req)
	if err != nil {
		return answer{}, err
	}
	if old != nil && reflect.DeepEqual(old.Spec, pg.Spec) {
		return answer{}, nil
	}
	wrong, warnings := ValidatePodGroup(pg, old)
	a := refuse(schema.GroupKind{Group: v2alpha2.GroupVersion.Group, Kind: "PodGroup"}, pg.Name, pg.GenerateName, wrong)
	a.warnings = warnings
	return a, nil
}

func (h *Handler) validateShard(_ context.Context, req *admissionv1.AdmissionRequest) (answer, error) {
	if h.sources.Shard == nil || req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return answer{}, nil
	}
	shard, old, err := decode[kaiv1.SchedulingShard](req)
	if err != nil {
		return answer{}, err
	}
	if shard.DeletionTimestamp != nil || old != nil && reflect.DeepEqual(old.Spec, shard.Spec) {
		return answer{}, nil
	}
	warnings, err := h.sources.Shard(&shard.Spec)
	for i := range warnings {
		warnings[i] = short(warnings[i])
	}
	if err != nil && old != nil {
		if _, before := h.sources.Shard(&old.Spec); before != nil && before.Error() == err.Error() { // it was so already
			warnings, err = append(warnings, short(err.Error())), nil
		}
	}
	if err == nil {
		return answer{warnings: warnings}, nil
	}
	a := refuse(schema.GroupKind{Group: kaiv1.GroupVersion.Group, Kind: "SchedulingShard"}, shard.Name, shard.GenerateName,
		field.ErrorList{field.Forbidden(field.NewPath("spec"), err.Error())})
	a.warnings = warnings
	return a, nil
}

// token is what tells the ConfigMaps of one pod from those of others of one owner: seven random characters, as in KAI's names.
// It guards nothing and need not be a secret.
func token() string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	var out [7]byte
	for i := range out {
		out[i] = letters[rand.IntN(len(letters))]
	}
	return string(out[:])
}
