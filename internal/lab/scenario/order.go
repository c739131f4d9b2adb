package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine/enginetest"
)

const (
	// perSecond is how many objects whose order matters are made in one second. To put n in order costs n² creations.
	perSecond = 6
	// tries bounds how often one object is made again; the chance to need more is below 10⁻³⁰.
	tries = 400
	// writers is how many objects are written side by side.
	writers = 16
	// perPod is what making a pod may take, to see whether a batch still fits into the running second.
	perPod = 8 * time.Millisecond
)

// Apply implements enginetest.Backend. What statements describe is collected, and made all at once when something wants to
// see it; what was read from the cluster and changed is written at once.
func (b *Backend) Apply(o enginetest.Object) error {
	o, ok := o.DeepCopyObject().(enginetest.Object)
	if !ok {
		return fmt.Errorf("cannot apply a %T", o)
	}
	if o.GetUID() == "" {
		if g, ok := o.(*v2alpha2.PodGroup); ok && b.waits(g) { // pods on nodes are charged to what it was first
			if err := b.flush(); err != nil {
				return err
			}
		}
		b.waiting = append(b.waiting, o)
		return nil
	}
	if err := b.flush(); err != nil {
		return err
	}
	if p, ok := o.(*v1.Pod); ok {
		return b.change(p)
	}
	return b.put(o)
}

// waits says whether an earlier statement's PodGroup of that name is still to be made.
func (b *Backend) waits(g *v2alpha2.PodGroup) bool {
	return slices.ContainsFunc(b.waiting, func(o enginetest.Object) bool {
		_, ok := o.(*v2alpha2.PodGroup)
		return ok && o.GetNamespace() == g.Namespace && o.GetName() == g.Name
	})
}

// flush makes what waits, in the order of the ages that the scenario gives, and of names where it gives the same.
func (b *Backend) flush() error {
	objects := latest(b.waiting)
	b.waiting = nil
	slices.SortStableFunc(objects, func(x, y enginetest.Object) int {
		return cmp.Or(x.GetCreationTimestamp().Compare(y.GetCreationTimestamp().Time),
			cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
	var queues, gangs []enginetest.Object
	var pods []*v1.Pod
	var claims []*v1.PersistentVolumeClaim
	g, _ := errgroup.WithContext(b.ctx)
	g.SetLimit(writers)
	for _, o := range objects {
		if err := b.space(b.ctx, o.GetNamespace()); err != nil {
			return err
		}
		switch o := o.(type) {
		case *v2.Queue, *v1beta1.Queue:
			queues = append(queues, o)
		case *v2alpha2.PodGroup, *v1beta1.PodGroup:
			gangs = append(gangs, o)
		case *v1.Pod:
			pods = append(pods, o)
		case *v1.PersistentVolumeClaim: // after the volumes they name
			claims = append(claims, o)
		default:
			g.Go(func() error { return b.put(o) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, c := range claims {
		if err := b.put(c); err != nil {
			return err
		}
		if err := b.claimed(c); err != nil {
			return err
		}
	}
	for _, p := range pods {
		if err := b.own(p); err != nil {
			return err
		}
	}
	if err := b.ordered("queue", queues); err != nil {
		return err
	}
	if err := b.ordered("gang", gangs); err != nil {
		return err
	}
	if err := b.pods(pods); err != nil {
		return err
	}
	if slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.Spec.NodeName != "" }) {
		if err := b.charge(); err != nil {
			return err
		}
	}
	return b.counted()
}

// own makes the controller that a scenario's pod names exist, for the garbage collector takes pods whose owner does not.
func (b *Backend) own(p *v1.Pod) error {
	for i := range p.OwnerReferences {
		ref := &p.OwnerReferences[i]
		if ref.UID != enginetest.Owner().UID {
			continue
		}
		if b.owners[p.Namespace] == "" {
			owner := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: ref.Name}}
			if err := b.client.Create(b.ctx, owner); err != nil {
				return fmt.Errorf("make the owner of pods: %w", err)
			}
			b.owners[p.Namespace] = owner.UID
		}
		ref.UID = b.owners[p.Namespace]
	}
	return nil
}

// latest leaves out objects that a later one replaces.
func latest(objects []enginetest.Object) []enginetest.Object {
	type key struct {
		kind string
		name types.NamespacedName
	}
	seen := map[key]bool{}
	var out []enginetest.Object
	for _, o := range slices.Backward(objects) {
		k := key{fmt.Sprintf("%T", o), types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}}
		if !seen[k] {
			seen[k] = true
			out = append(out, o)
		}
	}
	slices.Reverse(out)
	return out
}

// ordered makes objects of one kind, oldest first, so that age and then UID put them into this order. Those that exist
// are changed and keep their place.
func (b *Backend) ordered(kind string, objects []enginetest.Object) error {
	var fresh []enginetest.Object
	for _, o := range objects {
		found, err := b.exists(o)
		if err != nil {
			return err
		}
		if !found {
			fresh = append(fresh, o)
			continue
		}
		if err := b.put(o); err != nil {
			return err
		}
	}
	for chunk := range slices.Chunk(fresh, perSecond) {
		b.pass(b.lastMade[kind])
		for i, o := range chunk {
			made, err := b.draw(o, i, len(chunk))
			if err != nil {
				return err
			}
			b.lastMade[kind] = made
		}
	}
	return nil
}

// draw makes o until its UID is in the i-th of n equal parts of all UIDs, and returns when it was made.
func (b *Backend) draw(o enginetest.Object, i, n int) (time.Time, error) {
	for range tries {
		made, err := b.create(o)
		if err != nil {
			return time.Time{}, err
		}
		x, err := strconv.ParseUint(string(made.GetUID()[:8]), 16, 32)
		if err != nil {
			return time.Time{}, fmt.Errorf("UID %q: %w", made.GetUID(), err)
		}
		if int(x*uint64(n)>>32) == i {
			return made.GetCreationTimestamp().Time, b.status(o, made)
		}
		if err := b.Cluster.remove(b.ctx, made); err != nil {
			return time.Time{}, err
		}
	}
	return time.Time{}, fmt.Errorf("%s: no UID in part %d of %d after %d tries", o.GetName(), i, n, tries)
}

// pass waits until the second of t is over.
func (b *Backend) pass(t time.Time) {
	d := time.Until(t.Add(time.Second))
	if t.IsZero() || d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.ctx.Done():
	}
}

// pods makes pods, or changes the labels of those that are there; it makes those of one age in one second. An older pod of a gang has an earlier second or an earlier name.
func (b *Backend) pods(pods []*v1.Pod) error {
	var fresh []*v1.Pod
	for _, p := range pods {
		if same, err := b.relabel(p); err != nil {
			return err
		} else if !same {
			fresh = append(fresh, p)
		}
	}
	for pods = fresh; len(pods) > 0; {
		first := pods[0]
		n := 1
		for n < len(pods) && pods[n].CreationTimestamp.Equal(&first.CreationTimestamp) && gangOf(pods[n]) == gangOf(first) {
			n++
		}
		batch := pods[:n]
		pods = pods[n:]
		names := func(x, y *v1.Pod) int { return cmp.Compare(x.Name, y.Name) }
		if last := b.lastPods[gangOf(first)]; gangOf(first).Name != "" && slices.MinFunc(batch, names).Name < last.name {
			b.pass(last.made)
		}
		made, err := b.batch(batch)
		if err != nil {
			return err
		}
		b.lastPods[gangOf(first)] = lastPod{made, slices.MaxFunc(batch, names).Name}
	}
	return nil
}

func gangOf(p *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Annotations[kai.PodGroupAnnotation]}
}

// batch makes pods within one second, and returns which.
func (b *Backend) batch(pods []*v1.Pod) (time.Time, error) {
	for range 5 {
		if now := time.Now(); len(pods) > 1 && now.Add(time.Duration(len(pods))*perPod).Second() != now.Second() {
			b.pass(now.Truncate(time.Second))
		}
		made := make([]enginetest.Object, len(pods))
		g, _ := errgroup.WithContext(b.ctx)
		g.SetLimit(writers)
		for i, p := range pods {
			g.Go(func() (err error) {
				if made[i], err = b.create(p); apierrors.IsAlreadyExists(err) { // a statement again: another pod
					if err = b.Delete(p); err == nil {
						made[i], err = b.create(p)
					}
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return time.Time{}, err
		}
		second := made[0].GetCreationTimestamp()
		if slices.ContainsFunc(made, func(o enginetest.Object) bool { t := o.GetCreationTimestamp(); return !t.Equal(&second) }) {
			for _, o := range made {
				if err := b.Delete(o); err != nil {
					return time.Time{}, err
				}
			}
			continue
		}
		for i, p := range pods {
			g.Go(func() error { return b.locate(p, made[i]) })
		}
		return second.Time, g.Wait()
	}
	return time.Time{}, fmt.Errorf("%d pods of one age could not be made within a second", len(pods))
}

// locate puts a pod that was just made where the scenario says it is: started, ended, leaving.
func (b *Backend) locate(want *v1.Pod, o enginetest.Object) error {
	have, ok := o.(*v1.Pod)
	if !ok {
		return fmt.Errorf("made a %T", o)
	}
	if want.Status.Phase != have.Status.Phase || want.Status.NominatedNodeName != "" {
		have.Status.Phase, have.Status.NominatedNodeName = want.Status.Phase, want.Status.NominatedNodeName
		if have.Status.Phase == v1.PodRunning { // or no budget would count it
			have.Status.Conditions = append(have.Status.Conditions, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue})
		}
		if err := b.client.Status().Update(b.ctx, have); err != nil {
			return fmt.Errorf("pod %s: %w", have.Name, err)
		}
	}
	if want.DeletionTimestamp == nil {
		return nil
	}
	return b.release(have, time.Until(want.DeletionTimestamp.Time))
}

// release deletes a pod with grace; nobody but settle takes it away.
func (b *Backend) release(p *v1.Pod, grace time.Duration) error {
	if grace < time.Second {
		return fmt.Errorf("pod %s was deleted in the past: the scenario needs the engine", p.Name)
	}
	if err := b.client.Delete(b.ctx, p, client.GracePeriodSeconds(int64(grace.Round(time.Second)/time.Second))); err != nil {
		return fmt.Errorf("release pod %s: %w", p.Name, err)
	}
	return nil
}

// create makes a copy of o and returns it as the API server has it.
func (b *Backend) create(o enginetest.Object) (enginetest.Object, error) {
	c, ok := o.DeepCopyObject().(enginetest.Object)
	if !ok {
		return nil, fmt.Errorf("copy of a %T", o)
	}
	c.SetUID("")
	c.SetResourceVersion("")
	c.SetCreationTimestamp(metav1.Time{})
	c.SetDeletionTimestamp(nil)
	if p, ok := c.(*v1.Pod); ok { // what manifests of scenarios leave out, for nobody here reads it
		admit(p)
		for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				list[i].Image = cmp.Or(list[i].Image, "example.com/main")
			}
		}
	}
	return c, b.client.Create(b.ctx, c)
}
