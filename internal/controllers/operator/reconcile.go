package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/install"
)

// api is the cluster, as far as the role needs it. Its methods are fields, so that tests play the cluster.
type api struct {
	// config is the Config kai-config, nil if there is none.
	config func(context.Context) (*kaiv1.Config, error)
	// shards are all SchedulingShards.
	shards func(context.Context) ([]kaiv1.SchedulingShard, error)
	// environment says what the cluster is like.
	environment func(context.Context) (install.Environment, error)
	// leaders are the pods that hold Leases of a namespace, by Lease; none of no Leases.
	leaders func(ctx context.Context, namespace string, leases []string) (map[string]install.Leader, error)
	// owned are all objects with the operator's label: of all kinds in homes and in no namespace, accounts and roles in
	// others too.
	owned func(ctx context.Context, homes, others []string) ([]object, error)
	// apply makes an object as it is here, and leaves in it what the API server made of it.
	apply func(context.Context, object) error
	// remove deletes this very object.
	remove func(context.Context, object) error
	// annotate sets one annotation.
	annotate func(ctx context.Context, o object, key, value string) error
	// setConditions writes the conditions of a Config or shard.
	setConditions func(context.Context, client.Object, []metav1.Condition) error
	// probed is what is known of the external Prometheus at this address, which is asked from now on; "" for none.
	probed func(p *kaiv1.Prometheus) *connection
	// tell records an event.
	tell func(o client.Object, kind, reason, message string)
	now  func() time.Time
}

// Event reasons.
const (
	eventIgnored = "SettingIgnored"
	eventForgets = "UsageHistoryNotKept"
	eventApplied = "Applied"
	eventRemoved = "Removed"
)

// reconciler looks at the cluster once at a time.
type reconciler struct {
	api
	homes, others []string          // namespaces used so far: what is not asked for any more has to be found there
	warned        map[string]string // by object, what its last events said
	guarded       time.Time         // when a policy was last to be made or changed; in a process that may have followed another, when it started
	log           logr.Logger
}

// reconcile brings the cluster one look further. It returns after what time to look again although nothing happens, 0 for
// when it is convenient, and what could not be done.
func (r *reconciler) reconcile(ctx context.Context) (again time.Duration, err error) {
	config, err := r.config(ctx)
	if err != nil {
		return 0, err
	}
	if config == nil || config.DeletionTimestamp != nil {
		return 0, nil // what it asked for is the garbage collector's
	}
	all, err := r.shards(ctx)
	if err != nil {
		return 0, err
	}
	shards := slices.DeleteFunc(all, func(s kaiv1.SchedulingShard) bool { return s.DeletionTimestamp != nil })
	env, err := r.environment(ctx)
	if err != nil {
		return 0, err
	}
	namespace, leases := install.Leases(config, shards)
	if env.Leaders, err = r.leaders(ctx, namespace, leases); err != nil {
		return 0, err
	}
	if err := r.begin(ctx, config, shards); err != nil {
		return 0, err
	}
	rendered, warnings, renderErr := install.Render(config, shards, env)
	broken := install.ShardErrors(renderErr)
	desired, err := desire(rendered, config)
	if err != nil {
		return 0, err
	}
	spec := install.Defaulted(config)
	r.use(spec.Namespace, desired)
	have, err := r.owned(ctx, r.homes, r.others)
	if err != nil {
		return 0, err
	}
	kept := map[string]bool{}
	for shard := range broken { // order: the result is a map
		kept[install.ShardLabel(shard)] = true
	}
	p := decide(desired, have, kept)
	mark, due := retire(&p, r.now())
	if left := r.overlap(&p, desired); left > 0 {
		again = left
	}
	live, failed, errs := r.carryOut(ctx, config, &p, have)
	if mark != nil {
		errs = append(errs, r.annotate(ctx, mark, keys.DeprecationAnnotation, r.now().UTC().Format(time.RFC3339)))
	}
	names := make([]string, len(shards))
	for i := range shards {
		names[i] = shards[i].Name
	}
	whole, each := divide(names, desired, live, failed)
	for _, e := range errs {
		if e != nil && !mentioned(whole, each, e) {
			whole.Failed = append(whole.Failed, e.Error())
		}
	}
	for shard, problem := range broken { // order: each by itself
		each[shard].Failed = append(each[shard].Failed, problem.Error())
		each[shard].Force = &force{reasonRefused, "its scheduler, if it has one, goes on with what it had: " + problem.Error()}
	}
	for _, w := range warnings {
		if w.Missing {
			whole.Lacking = append(whole.Lacking, w.String())
			if again == 0 {
				again = time.Minute // kinds come without an event
			}
		}
	}
	for i := range shards {
		each[shards[i].Name].Past = past(&shards[i], warnings)
		if broken[shards[i].Name] == nil && *spec.Scheduler.Service.Enabled {
			each[shards[i].Name].Unknown = unknown(&shards[i], warnings)
		}
	}
	whole.Connection = r.probed(spec.Prometheus)
	r.report(config, shards, warnings, broken)
	errs = append(errs, r.say(ctx, config, config.Status.Conditions, whole.conditions()))
	for i := range shards {
		s, of := &shards[i], each[shards[i].Name]
		r.announce(s, of.decides())
		errs = append(errs, r.say(ctx, s, s.Status.Conditions, append(of.conditions(), of.remembers(), of.understands(), of.decides())))
	}
	if due > 0 && (again == 0 || due < again) {
		again = due
	}
	return again, errors.Join(errs...)
}

// past is what becomes of a shard's history of usage when its pod goes, nil if it has none, "" if nothing does.
func past(s *kaiv1.SchedulingShard, warnings []install.Warning) *string {
	if u := s.Spec.UsageDBConfig; u == nil || u.ClientType == kaiv1.UsageClientFake {
		return nil
	}
	for _, w := range warnings {
		if w.Forgets && w.Object == "SchedulingShard "+s.Name {
			return ptr.To(w.Field + " " + w.Rule)
		}
	}
	return new(string)
}

// unknown are the names in a shard that nothing has.
func unknown(s *kaiv1.SchedulingShard, warnings []install.Warning) *[]string {
	out := []string{}
	for _, w := range warnings {
		if w.Unknown && w.Object == "SchedulingShard "+s.Name {
			out = append(out, w.Field+" "+w.Rule)
		}
	}
	return &out
}

// begin says of every generation that is new that it is worked on.
func (r *reconciler) begin(ctx context.Context, config *kaiv1.Config, shards []kaiv1.SchedulingShard) error {
	set := func(o client.Object, have *[]metav1.Condition) error {
		conditions, changed := merge(*have, reconciling(*have, o.GetGeneration()), o.GetGeneration(), r.now())
		if !changed {
			return nil
		}
		*have = conditions
		return r.setConditions(ctx, o, conditions)
	}
	errs := []error{set(config, &config.Status.Conditions)}
	for i := range shards {
		errs = append(errs, set(&shards[i], &shards[i].Status.Conditions))
	}
	return errors.Join(errs...)
}

// use notes the namespaces of what is desired.
func (r *reconciler) use(home string, desired []object) {
	if !slices.Contains(r.homes, home) {
		r.homes = append(r.homes, home)
	}
	for _, o := range desired {
		if ns := o.GetNamespace(); ns != "" && !slices.Contains(r.homes, ns) && !slices.Contains(r.others, ns) {
			r.others = append(r.others, ns)
		}
	}
	slices.Sort(r.homes)
	slices.Sort(r.others)
}

// carryOut applies and removes. One object that cannot be does not keep the others from it.
func (r *reconciler) carryOut(ctx context.Context, config *kaiv1.Config, p *plan, have []object) (live map[string]object, failed map[string]string, errs []error) {
	live, failed = map[string]object{}, map[string]string{}
	for _, o := range have {
		live[install.Key(o)] = o
	}
	for _, o := range p.Apply {
		key, was := install.Key(o), live[install.Key(o)]
		if err := r.apply(ctx, o); err != nil {
			failed[key] = err.Error()
			errs = append(errs, err)
			continue
		}
		live[key] = o
		if was != nil && was.GetResourceVersion() != o.GetResourceVersion() {
			r.tell(config, corev1.EventTypeNormal, eventApplied, name(o)+" was not as it should be")
		}
	}
	for _, o := range p.Remove {
		if err := r.remove(ctx, o); err != nil {
			errs = append(errs, err)
			continue
		}
		r.tell(config, corev1.EventTypeNormal, eventRemoved, name(o)+" is not asked for any more")
	}
	return live, failed, errs
}

// mentioned says whether an error is in somebody's conditions already.
func mentioned(whole *seen, each map[string]*seen, err error) bool {
	if slices.Contains(whole.Failed, err.Error()) {
		return true
	}
	for _, s := range each { // order: any
		if slices.Contains(s.Failed, err.Error()) {
			return true
		}
	}
	return false
}

// report tells, once per generation and text, which settings have no effect and why a shard cannot run.
func (r *reconciler) report(config *kaiv1.Config, shards []kaiv1.SchedulingShard, warnings []install.Warning, broken map[string]error) {
	said := map[string]string{}
	about := func(o client.Object, kind string) {
		subject := kind
		if kind == "SchedulingShard" {
			subject += " " + o.GetName()
		}
		var texts []string
		reasons := map[string]string{}
		for _, w := range warnings {
			if w.Object == subject {
				texts = append(texts, w.Field+" "+w.Rule)
				if w.Forgets {
					reasons[w.Field+" "+w.Rule] = eventForgets
				}
			}
		}
		if err := broken[o.GetName()]; err != nil && kind == "SchedulingShard" {
			texts = append(texts, err.Error())
		}
		key := fmt.Sprintf("%s/%s", subject, o.GetUID())
		said[key] = fmt.Sprintf("%d %q", o.GetGeneration(), texts)
		if r.warned[key] == said[key] {
			return
		}
		for _, w := range warnings {
			if w.Unknown && w.Object == subject {
				r.log.Error(nil, "a shard names what its scheduler does not know", "object", subject, "problem", w.Field+" "+w.Rule)
			}
		}
		for _, t := range texts {
			r.tell(o, corev1.EventTypeWarning, cmp.Or(reasons[t], eventIgnored), t)
		}
	}
	about(config, "Config")
	for i := range shards {
		about(&shards[i], "SchedulingShard")
	}
	r.warned = said
}

// say writes conditions if they changed. Of an object that is gone by now there is nothing to say.
func (r *reconciler) say(ctx context.Context, o client.Object, have, set []metav1.Condition) error {
	conditions, changed := merge(have, set, o.GetGeneration(), r.now())
	if !changed {
		return nil
	}
	if err := r.setConditions(ctx, o, conditions); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
