package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// syncTimeout is how long watches may take to begin.
const syncTimeout = 30 * time.Second

// fresh is how long what is asked of the API server about the cluster itself counts: looks can follow each other closely.
const fresh = 10 * time.Second

// apiClient is a real cluster. But for wake it is used by one goroutine.
type apiClient struct {
	*Controller
	asked   time.Time // when the answers were forgotten last
	kinds   map[schema.GroupVersionKind]bool
	allowed map[string]bool // namespaces in which the operator may look
	env     *install.Environment
	wake    func()
	running context.Context // the role's, for what it starts
	specs   *watching       // Configs and SchedulingShards
	own     *watching       // what was applied
	leads   *watching       // who leads, if anybody wants to know
	prober  *prober
}

// watching is a cache of its own that can be ended.
type watching struct {
	cache.Cache
	key   string // what it watches
	kinds []schema.GroupVersionKind
	end   context.CancelFunc
	ended chan struct{}
}

func newAPIClient(c *Controller, wake func()) *apiClient {
	return &apiClient{Controller: c, wake: wake, prober: newProber(wake, c.deps.Guard)}
}

// api is the client as the reconciler sees it.
func (w *apiClient) api() api {
	return api{
		config: w.config, shards: w.shards, environment: w.environment, leaders: w.leaders, owned: w.owned, apply: w.apply, remove: w.remove,
		annotate: w.annotate, setConditions: w.setConditions, tell: w.deps.Event, now: time.Now,
		probed: func(p *kaiv1.Prometheus) *connection { return w.prober.ask(w.running, p) },
	}
}

// open begins to watch what users write.
func (w *apiClient) open(ctx context.Context) (err error) {
	w.running = ctx
	w.specs, err = w.watch(ctx, cache.Options{Scheme: w.deps.Scheme}, []client.Object{&kaiv1.Config{}, &kaiv1.SchedulingShard{}}, func(old, now client.Object) bool {
		return old == nil || now == nil || old.GetGeneration() != now.GetGeneration() || !maps.Equal(old.GetAnnotations(), now.GetAnnotations()) ||
			(old.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil)
	})
	return err
}

func (w *apiClient) close() {
	w.prober.end()
	for _, c := range []*watching{w.specs, w.own, w.leads} {
		c.close()
	}
}

func (c *watching) close() {
	if c != nil {
		c.end()
		<-c.ended
	}
}

// watch starts a cache and returns when it has seen all. Changes that matter wake the role.
func (w *apiClient) watch(ctx context.Context, o cache.Options, kinds []client.Object, matters func(old, now client.Object) bool) (*watching, error) {
	o.Mapper, o.DefaultTransform = w.deps.Client.RESTMapper(), cache.TransformStripManagedFields()
	w.deps.Guard.Transforms(&o)
	c, err := cache.New(w.deps.Config, o)
	if err != nil {
		return nil, fmt.Errorf("build a cache: %w", err)
	}
	c = w.deps.Guard.Cache(c)
	running, end := context.WithCancel(w.running)
	out := &watching{Cache: c, end: end, ended: make(chan struct{})}
	seen := func(old, now any) {
		before, _ := old.(client.Object)
		after, _ := now.(client.Object)
		if matters(before, after) {
			w.wake()
		}
	}
	for _, kind := range kinds {
		informer, err := c.GetInformer(running, kind, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc: func(o any) { seen(nil, o) }, UpdateFunc: seen, DeleteFunc: func(o any) { seen(o, nil) },
			})
		}
		if err != nil {
			end()
			return nil, fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	go func() {
		defer close(out.ended)
		if err := c.Start(running); err != nil && running.Err() == nil {
			w.deps.Log.Error(err, "a cache ended")
		}
	}()
	syncing, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !c.WaitForCacheSync(syncing) {
		out.close()
		return nil, fmt.Errorf("watches did not begin within %s: are there the CustomResourceDefinitions, and may the operator list what it installs?", syncTimeout)
	}
	return out, nil
}

func (w *apiClient) config(ctx context.Context) (*kaiv1.Config, error) {
	c := &kaiv1.Config{}
	err := w.specs.Get(ctx, client.ObjectKey{Name: kaiv1.ConfigName}, c)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Config %s: %w", kaiv1.ConfigName, err)
	}
	return c, nil
}

func (w *apiClient) shards(ctx context.Context) ([]kaiv1.SchedulingShard, error) {
	var list kaiv1.SchedulingShardList
	if err := w.specs.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("read SchedulingShards: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b kaiv1.SchedulingShard) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// clusterPolicy is the GPU operator's configuration.
var clusterPolicy = schema.GroupVersionKind{Group: "nvidia.com", Version: "v1", Kind: "ClusterPolicy"}

// forget forgets answers that are not fresh any more.
func (w *apiClient) forget() {
	if now := time.Now(); now.Sub(w.asked) > fresh {
		w.asked, w.kinds, w.allowed, w.env = now, map[schema.GroupVersionKind]bool{}, map[string]bool{}, nil
	}
}

// environment is what the API server says it is like.
func (w *apiClient) environment(ctx context.Context) (install.Environment, error) {
	w.forget()
	if w.env == nil {
		env, err := w.ask(ctx)
		if err != nil {
			return env, err
		}
		w.env = &env
	}
	return *w.env, nil
}

func (w *apiClient) ask(ctx context.Context) (install.Environment, error) {
	env := install.Environment{
		Repository: w.options.Repository, Tag: w.options.Tag, Digests: w.options.Digests, PullSecrets: []string{w.options.PullSecret}, Check: w.options.Check,
		SchedulerFlags: w.options.SchedulerFlags, Kinds: map[schema.GroupKind]bool{},
	}
	for _, gvk := range install.ForeignKinds() {
		known, err := w.known(gvk)
		if err != nil {
			return env, err
		}
		env.Kinds[gvk.GroupKind()] = known
	}
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := w.deps.Client.List(ctx, nodes, client.MatchingLabels{keys.FakeGPUNodeLabel: "true"}, client.Limit(1)); err != nil {
		return env, fmt.Errorf("look for nodes with simulated GPUs: %w", err)
	}
	env.SimulatedGPUs = len(nodes.Items) > 0
	if known, err := w.known(clusterPolicy); err != nil || !known {
		return env, err
	}
	policies := &unstructured.UnstructuredList{}
	policies.SetGroupVersionKind(clusterPolicy.GroupVersion().WithKind("ClusterPolicyList"))
	if err := w.deps.Client.List(ctx, policies); err != nil {
		return env, fmt.Errorf("read the GPU operator's ClusterPolicy: %w", err)
	}
	env.CDI = len(policies.Items) > 0 && usesCDI(&policies.Items[0])
	return env, nil
}

// known says whether the API server serves a kind.
func (w *apiClient) known(gvk schema.GroupVersionKind) (bool, error) {
	if known, asked := w.kinds[gvk]; asked {
		return known, nil
	}
	_, err := w.deps.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("ask whether there are objects of kind %s: %w", gvk.Kind, err)
	}
	w.kinds[gvk] = err == nil
	return err == nil, nil
}

// usesCDI says whether a GPU operator of this policy has devices handed out by the Container Device Interface: it is
// enabled, and is the default, as it is since version 25.10.
func usesCDI(policy object) bool {
	enabled, _, _ := unstructured.NestedBool(policy.Object, "spec", "cdi", "enabled")
	if !enabled {
		return false
	}
	if v, err := version.ParseSemantic(policy.GetLabels()["app.kubernetes.io/version"]); err == nil && v.AtLeast(version.MustParseSemantic("v25.10.0")) {
		return true
	}
	usual, _, _ := unstructured.NestedBool(policy.Object, "spec", "cdi", "default")
	return usual
}

// inHome, accounts and everywhere are the kinds that are rendered: in the control plane's namespace, in other namespaces too,
// and in none.
func inHome() []schema.GroupVersionKind {
	return append([]schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "apps", Version: "v1", Kind: "DaemonSet"},
		{Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "ConfigMap"},
		{Version: "v1", Kind: "PersistentVolumeClaim"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
	}, install.ForeignKinds()...)
}

func accounts() []schema.GroupVersionKind {
	const rbac = "rbac.authorization.k8s.io"
	return []schema.GroupVersionKind{
		{Version: "v1", Kind: "ServiceAccount"}, {Group: rbac, Version: "v1", Kind: "Role"}, {Group: rbac, Version: "v1", Kind: "RoleBinding"},
	}
}

func everywhere() []schema.GroupVersionKind {
	const rbac, hooks = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
	return []schema.GroupVersionKind{
		{Version: "v1", Kind: "Namespace"},
		{Group: rbac, Version: "v1", Kind: "ClusterRole"},
		{Group: rbac, Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: hooks, Version: "v1", Kind: "MutatingWebhookConfiguration"},
		{Group: hooks, Version: "v1", Kind: "ValidatingWebhookConfiguration"},
		{Group: hooks, Version: "v1", Kind: "ValidatingAdmissionPolicy"},
		{Group: hooks, Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
	}
}

// owned lists what has our label, from watches that follow the namespaces in use and the kinds that there are.
func (w *apiClient) owned(ctx context.Context, homes, others []string) ([]object, error) {
	ours := labels.SelectorFromSet(labels.Set{install.LabelPartOf: install.PartOf})
	o := cache.Options{Scheme: w.deps.Scheme, ByObject: map[client.Object]cache.ByObject{}}
	var kinds []schema.GroupVersionKind
	var examples []client.Object
	add := func(gvk schema.GroupVersionKind, namespaces []string) error {
		if known, err := w.known(gvk); err != nil || !known {
			return err
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		by := cache.ByObject{Label: ours}
		if namespaces != nil {
			by.Namespaces = map[string]cache.Config{}
			for _, ns := range namespaces {
				by.Namespaces[ns] = cache.Config{}
			}
		}
		o.ByObject[u] = by
		kinds, examples = append(kinds, gvk), append(examples, u)
		return nil
	}
	others = w.permitted(ctx, others)
	for _, group := range []struct {
		kinds      []schema.GroupVersionKind
		namespaces []string
	}{{inHome(), homes}, {accounts(), slices.Concat(homes, others)}, {everywhere(), nil}} {
		for _, gvk := range group.kinds {
			if err := add(gvk, group.namespaces); err != nil {
				return nil, err
			}
		}
	}
	if key := fmt.Sprint(homes, others, kinds); w.own == nil || w.own.key != key {
		w.own.close()
		w.own = nil
		own, err := w.watch(ctx, o, examples, func(client.Object, client.Object) bool { return true })
		if err != nil {
			return nil, err
		}
		own.key, own.kinds, w.own = key, kinds, own
	}
	var out []object
	for _, gvk := range w.own.kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := w.own.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %s: %w", gvk.Kind, err)
		}
		for i := range list.Items {
			out = append(out, &list.Items[i])
		}
	}
	return out, nil
}

// permitted leaves out namespaces in which the operator may not look for what it installs: watching them would never begin.
// What cannot be applied there is reported when it is tried.
func (w *apiClient) permitted(ctx context.Context, namespaces []string) []string {
	var out []string
	for _, ns := range namespaces {
		allowed, asked := w.allowed[ns]
		if !asked {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleList"})
			allowed = !apierrors.IsForbidden(w.deps.Client.List(ctx, list, client.InNamespace(ns), client.Limit(1)))
			w.allowed[ns] = allowed
		}
		if allowed {
			out = append(out, ns)
		}
	}
	return out
}

func (w *apiClient) apply(ctx context.Context, o object) error {
	result, err := w.kit.Apply(ctx, o, install.Manager)
	if err == nil && result == write.Changed {
		return fmt.Errorf("apply %s: it is being changed by somebody else", name(o))
	}
	if err == nil && result == write.Gone {
		return fmt.Errorf("apply %s: its namespace does not exist", name(o))
	}
	return err
}

func (w *apiClient) remove(ctx context.Context, o object) error {
	target := &metav1.PartialObjectMetadata{}
	target.SetGroupVersionKind(o.GroupVersionKind())
	target.SetNamespace(o.GetNamespace())
	target.SetName(o.GetName())
	target.SetUID(o.GetUID())
	_, err := w.kit.Delete(ctx, target)
	return err
}

func (w *apiClient) annotate(ctx context.Context, o object, key, value string) error {
	body := write.Body(map[string]any{"metadata": map[string]any{"uid": o.GetUID(), "annotations": map[string]any{key: value}}})
	target := &metav1.PartialObjectMetadata{}
	target.SetGroupVersionKind(o.GroupVersionKind())
	target.SetNamespace(o.GetNamespace())
	target.SetName(o.GetName())
	_, err := w.kit.Merge(ctx, target, body)
	return err
}

func (w *apiClient) setConditions(ctx context.Context, o client.Object, conditions []metav1.Condition) error {
	body := write.Body(map[string]any{"metadata": map[string]any{"uid": o.GetUID()}, "status": map[string]any{"conditions": conditions}})
	var target client.Object
	switch o.(type) {
	case *kaiv1.Config:
		target = &kaiv1.Config{}
	default:
		target = &kaiv1.SchedulingShard{}
	}
	target.SetName(o.GetName())
	_, err := w.kit.MergeStatus(ctx, target, body)
	return err
}
