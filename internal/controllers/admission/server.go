package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kaiv1alpha1 "github.com/muster-scheduler/muster/api/kai/v1alpha1"
)

// Paths that the role serves, as KAI's does.
const (
	MutatePodPath        = "/mutate--v1-pod"
	ValidatePodPath      = "/validate--v1-pod"
	ValidateTopologyPath = "/validate-kai-scheduler-v1alpha1-topology"
)

const (
	// maxReview bounds a request. An API server takes objects of 3 MiB at most, and an update carries two.
	maxReview = 8 << 20
	// reviewsAtOnce bounds the memory that requests can take together; more wait their turn.
	reviewsAtOnce = 32
)

// Handler answers admission reviews of version v1. It keeps nothing between requests and is safe for concurrent use.
type Handler struct {
	rules   Rules
	mux     *http.ServeMux
	slots   chan struct{}
	reviews *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// NewHandler returns the handler of all paths. It registers the counter muster_admission_reviews_total{path,result} and the
// histogram muster_admission_review_seconds{path}; a nil registry counts for nobody.
func NewHandler(rules Rules, registry prometheus.Registerer) (*Handler, error) {
	h := &Handler{
		rules: rules, mux: http.NewServeMux(), slots: make(chan struct{}, reviewsAtOnce),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_admission_reviews_total", Help: "Admission reviews answered: allowed, patched, denied, or malformed.",
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
	return h, nil
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// answer is what a review comes to: a patch, or a refusal.
type answer struct {
	patch []Operation
	deny  *metav1.Status
}

// serve puts a review behind HTTP. An error of review is the API server's fault, not the user's.
func (h *Handler) serve(path string, review func(*admissionv1.AdmissionRequest) (answer, error)) {
	h.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		since := time.Now()
		defer func() { h.seconds.WithLabelValues(path).Observe(time.Since(since).Seconds()) }()
		select {
		case h.slots <- struct{}{}:
			defer func() { <-h.slots }()
		case <-r.Context().Done():
			return
		}
		out, result, err := respond(http.MaxBytesReader(w, r.Body, maxReview), review)
		h.reviews.WithLabelValues(path, result).Inc()
		if err != nil {
			code := http.StatusBadRequest
			if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
				code = http.StatusRequestEntityTooLarge
			}
			http.Error(w, err.Error(), code)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out) // an API server that has hung up asks again
	})
}

// respond reads a review and writes the answer to it.
func respond(body io.Reader, review func(*admissionv1.AdmissionRequest) (answer, error)) (out []byte, result string, err error) {
	const malformed = "malformed"
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, malformed, fmt.Errorf("read the review: %w", err)
	}
	var in admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, malformed, fmt.Errorf("read the review: %w", err)
	}
	if in.Kind != "AdmissionReview" || in.APIVersion != admissionv1.SchemeGroupVersion.String() || in.Request == nil {
		return nil, malformed, fmt.Errorf("the request must be an AdmissionReview of %s with a request in it", admissionv1.SchemeGroupVersion)
	}
	a, err := review(in.Request)
	if err != nil {
		return nil, malformed, err
	}
	reply := admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: a.deny == nil, Result: a.deny}}
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

func (h *Handler) mutatePod(req *admissionv1.AdmissionRequest) (answer, error) {
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

func (h *Handler) validatePod(req *admissionv1.AdmissionRequest) (answer, error) {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return answer{}, nil
	}
	p, deny, err := readPod(req.Object.Raw, req)
	if err != nil || deny != nil {
		return answer{deny: deny}, err
	}
	var wrong field.ErrorList
	if req.Operation == admissionv1.Create {
		wrong = h.rules.Validate(p)
	} else {
		old, deny, err := readPod(req.OldObject.Raw, req)
		if err != nil || deny != nil {
			return answer{deny: deny}, err
		}
		wrong = h.rules.ValidateUpdate(old, p)
	}
	return refuse(schema.GroupKind{Kind: "Pod"}, p.Name, p.GenerateName, wrong), nil
}

func (h *Handler) validateTopology(req *admissionv1.AdmissionRequest) (answer, error) {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return answer{}, nil
	}
	t := &kaiv1alpha1.Topology{}
	if err := json.Unmarshal(req.Object.Raw, t); err != nil {
		return answer{}, fmt.Errorf("read the Topology: %w", err)
	}
	return refuse(schema.GroupKind{Group: kaiv1alpha1.GroupVersion.Group, Kind: "Topology"}, t.Name, t.GenerateName, ValidateTopology(t)), nil
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
