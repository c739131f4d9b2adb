package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/textfile"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// Reasons of events of the ConfigMap of resource groups.
const (
	eventGroupsTaken    = "ResourceGroupsTaken"
	eventGroupsRefused  = "ResourceGroupsRefused"
	eventGroupsUnserved = "ResourceGroupsUnserved"
)

// GroupDeps are what following Volcano's resource groups needs of the process around it.
type GroupDeps struct {
	// Cache watches the ConfigMap and the PodTemplates, and nothing else; see GroupsWatched. It is started by the process.
	Cache cache.Cache
	// Client lists, makes and deletes PodTemplates of the ConfigMap's namespace.
	Client client.Client
	// Template judges what groups give pods; nil takes it all.
	Template volcano.TemplateCheck
	// Tell writes an event about an object.
	Tell func(about client.Object, kind, reason, message string)
	// Log takes messages.
	Log logr.Logger
	// Guard sets aside what ends in a defect; nil: nobody is told.
	Guard *aside.Guard
	// Clock times tries; nil is the real one.
	Clock clock.WithTicker
}

// Groups has the API server give pods of Volcano's resource groups what a ConfigMap says: it keeps a PodTemplate for each group, which a policy reads. A ConfigMap is taken whole or refused whole; the
// one before a bad one rules on, also after a restart, since the templates are its memory. One that is not there has no groups.
//
// Templates that differ have different names. Of a change those that are wrong go first and those that are missing come then, so that at no moment a pod is in two groups, wherever who writes it
// dies; a pod that is made in between is in none.
type Groups struct {
	deps GroupDeps
	ref  textfile.Ref
	kit  *write.Kit
	wake chan struct{}

	mu    sync.Mutex
	known bool // what is wanted
	want  []*corev1.PodTemplate
	about client.Object // the ConfigMap; nil for none
	told  string        // the last complaint, "" for none
}

// GroupsWatched says what the cache of Groups has to watch.
func GroupsWatched(ref textfile.Ref) cache.Options {
	o := ref.Cache()
	o.ByObject[&corev1.PodTemplate{}] = cache.ByObject{Namespaces: map[string]cache.Config{ref.Namespace: {}}}
	return o
}

// NewGroups returns what follows the ConfigMap, not yet running.
func NewGroups(deps GroupDeps, ref textfile.Ref) (*Groups, error) {
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	kit, err := write.New(deps.Client, "admission", nil)
	if err != nil {
		return nil, fmt.Errorf("resource groups: %w", err)
	}
	return &Groups{deps: deps, ref: ref, kit: kit, wake: make(chan struct{}, 1)}, nil
}

// Run keeps the templates until ctx ends, which is no error. It must be called once.
func (g *Groups) Run(ctx context.Context) error {
	informer, err := g.deps.Cache.GetInformer(ctx, &corev1.PodTemplate{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch PodTemplates of %s: %w", g.ref.Namespace, err)
	}
	look := func(any) { g.look() }
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, _ any) { g.look() }, DeleteFunc: look})
	if err != nil {
		return fmt.Errorf("watch PodTemplates of %s: %w", g.ref.Namespace, err)
	}
	defer informer.RemoveEventHandler(handler) //nolint:errcheck // the cache ends with its process
	following, end := context.WithCancel(ctx)
	followed := make(chan error, 1)
	go func() { followed <- textfile.ConfigMap(following, g.deps.Cache, g.ref, g.found) }()
	defer func() {
		end()
		<-followed //nolint:errcheck // it has ended; its error, if it had one, was returned
	}()
	timer := g.deps.Clock.NewTimer(retryMax)
	defer func() { timer.Stop() }()
	retry := retryMin
	for {
		var again <-chan time.Time
		if err := g.deps.Guard.Do(ctx, "a look", "resource groups", g.keep); err != nil && ctx.Err() == nil {
			g.deps.Log.Info("the PodTemplates of Volcano's resource groups could not be kept; trying again", "error", err.Error(), "after", retry.String())
			timer.Stop()
			timer = g.deps.Clock.NewTimer(retry)
			again, retry = timer.C(), min(2*retry, retryMax)
		} else {
			retry = retryMin
		}
		select {
		case err := <-followed:
			followed <- err
			return err
		case <-ctx.Done():
			return nil
		case <-again:
		case <-g.wake:
		}
	}
}

// look has the templates looked at.
func (g *Groups) look() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// found takes in what there is of the ConfigMap.
func (g *Groups) found(t textfile.Found) {
	if err := g.deps.Guard.Catch("the resource groups", g.ref.String(), func() error { g.take(t); return nil }); err != nil {
		g.deps.Log.Error(err, "the resource groups could not be read: a defect", "configmap", g.ref.String())
	}
	g.look()
}

func (g *Groups) take(t textfile.Found) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.about = t.About
	why := t.Why
	if why != "" && t.About == nil { // there is none
		g.known, g.want, g.told = true, nil, ""
		g.deps.Log.Info("there are no resource groups of Volcano's", "configmap", g.ref.String(), "why", why)
		return
	}
	if why == "" {
		want, idle, err := volcano.ParseGroups(t.Text, g.ref.Namespace, g.deps.Template)
		if err == nil {
			g.known, g.want, g.told = true, want, ""
			g.deps.Log.Info("Volcano's resource groups rule", "configmap", g.ref.String(), "groups", len(want))
			for _, f := range idle {
				g.deps.Log.Info("Volcano's resource groups were understood in part", "configmap", g.ref.String(), "problem", f.Error())
			}
			g.deps.Tell(t.About, corev1.EventTypeNormal, eventGroupsTaken, fmt.Sprintf("pods of %d resource groups are changed by this file from now on", len(want)))
			return
		}
		why = err.Error()
	}
	g.complain(why, eventGroupsRefused, "the resource groups are refused, and those before them rule on: ")
}

// complain tells once what is wrong.
func (g *Groups) complain(why, reason, begin string) {
	if why == g.told {
		return
	}
	g.told = why
	g.deps.Log.Error(errors.New(why), "Volcano's resource groups do not rule as their ConfigMap says", "configmap", g.ref.String(), "effect", strings.TrimSuffix(begin, ": "))
	if g.about != nil {
		g.deps.Tell(g.about, corev1.EventTypeWarning, reason, begin+why)
	}
}

// keep makes the templates as they are to be.
func (g *Groups) keep(ctx context.Context) error {
	g.mu.Lock()
	known, want := g.known, g.want
	g.mu.Unlock()
	if !known {
		return nil
	}
	if len(want) > 0 {
		gvk := admissionregv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy")
		if _, err := g.deps.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); meta.IsNoMatchError(err) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.complain("the API server serves no MutatingAdmissionPolicy (Kubernetes does from 1.36 on)", eventGroupsUnserved, "the resource groups have no effect: ")
			return err // it is asked again: API servers are upgraded under running processes
		} else if err != nil {
			return fmt.Errorf("ask the API server whether it has %s: %w", gvk.Kind, err)
		}
	}
	var have corev1.PodTemplateList
	if err := g.deps.Client.List(ctx, &have, client.InNamespace(g.ref.Namespace), client.HasLabels{volcano.GroupLabel}); err != nil {
		return fmt.Errorf("list PodTemplates of %s: %w", g.ref.Namespace, err)
	}
	right := map[string]bool{}
	for i := range have.Items {
		t := &have.Items[i]
		if slices.ContainsFunc(want, func(w *corev1.PodTemplate) bool {
			return w.Name == t.Name && volcano.GroupFingerprint(w) == volcano.GroupFingerprint(t)
		}) {
			right[t.Name] = true
			continue
		}
		if _, err := g.kit.Delete(ctx, t); err != nil {
			return err
		}
	}
	for _, w := range want {
		if right[w.Name] {
			continue
		}
		if err := g.deps.Client.Create(ctx, w.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create PodTemplate %s/%s: %w", w.Namespace, w.Name, err)
		}
	}
	return nil
}
