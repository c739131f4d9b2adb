package submit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/workload"
)

// Bounds of what may be submitted.
const (
	MaxBytes     = 10 << 20
	MaxDocuments = 100
	MaxPods      = 10000
	MaxGangs     = 32
)

// Refusal is a manifest of which no answer can be made. It names the object, the field and the rule.
type Refusal struct{ Object, Field, Rule string }

// Error implements error.
func (r *Refusal) Error() string {
	return strings.TrimPrefix(r.Object+": "+strings.TrimSpace(r.Field+" "+r.Rule), ": ")
}

// Options say into which cluster is submitted, and how. The zero value is KAI's defaults without shards.
type Options struct {
	// Namespace is that of objects that name none; "": such objects are refused.
	Namespace string
	// SchedulerNames are the values of spec.schedulerName by which pods are Muster's; none: kai.DefaultSchedulerName.
	SchedulerNames []string
	// Partition is the shard whose scheduler is asked.
	Partition kai.Partition
	// QueueLabel is the key of the label that names a queue; "" is KAI's.
	QueueLabel string
	// Allow says whether something may be submitted into a namespace, before anything of the cluster is told of it; its error is Read's. Nil allows all.
	Allow func(namespace string) error
}

// Submission is what manifests come to.
type Submission struct {
	// Events are what a store is told, gangs first.
	Events []cluster.Event
	// Gangs are the new gangs in the order of the manifests, Namespaces those that objects are in, sorted, and Pods how many pods there are.
	Gangs      []cluster.Key
	Namespaces []string
	Pods       int
	// Warnings tell, one sentence each, what was written that has no effect.
	Warnings []string
}

// reader makes a Submission.
type reader struct {
	o      Options
	snap   *cluster.Snapshot
	table  *workload.Table
	at     metav1.Time
	made   int // UIDs
	groups []*v2alpha2.PodGroup
	known  map[types.NamespacedName]bool
	pods   []*v1.Pod
	names  map[string]bool // of pods
	tally  []string        // warnings
}

// Read reads manifests as they would be applied to the cluster of a snapshot. The error is a *Refusal, or Allow's. Cost: the text, and the pods that it makes.
func Read(text []byte, snap *cluster.Snapshot, o Options) (*Submission, error) {
	if len(text) > MaxBytes {
		return nil, &Refusal{Object: "manifests", Rule: fmt.Sprintf("are of more than %d bytes", MaxBytes)}
	}
	table, err := workload.NewTable(workload.Kinds())
	if err != nil {
		return nil, fmt.Errorf("build the table of kinds: %w", err)
	}
	if len(o.SchedulerNames) == 0 {
		o.SchedulerNames = []string{kai.DefaultSchedulerName}
	}
	if o.QueueLabel == "" {
		o.QueueLabel = keys.QueueLabel
	}
	r := &reader{o: o, snap: snap, table: table, at: metav1.NewTime(snap.Now.Time().UTC()), known: map[types.NamespacedName]bool{}, names: map[string]bool{}}
	docs, err := documents(text)
	if err != nil {
		return nil, err
	}
	var rest []*unstructured.Unstructured
	for _, u := range docs { // gangs that are named come before who names them, wherever they stand
		if u.GroupVersionKind().GroupKind() != v2alpha2.GroupVersion.WithKind("PodGroup").GroupKind() {
			rest = append(rest, u)
		} else if err := r.group(u); err != nil {
			return nil, err
		}
	}
	for _, u := range rest {
		if err := r.object(u); err != nil {
			return nil, err
		}
	}
	return r.translate()
}

// documents are the objects of a text of YAML or JSON.
func documents(text []byte) (out []*unstructured.Unstructured, err error) {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	for _, doc := range bytes.Split(append([]byte("\n"), text...), []byte("\n---")) {
		if blank(doc) {
			continue
		}
		who := fmt.Sprintf("document %d", len(out)+1)
		if len(out) == MaxDocuments {
			return nil, &Refusal{Object: "manifests", Rule: fmt.Sprintf("are of more than %d documents", MaxDocuments)}
		}
		raw, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			return nil, &Refusal{Object: who, Rule: fmt.Sprintf("is no YAML: %.200s", err)}
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			return nil, &Refusal{Object: who, Rule: "is no object: it needs apiVersion and kind, and a kind that is not a list"}
		}
		out = append(out, u)
	}
	if len(out) == 0 {
		return nil, &Refusal{Object: "manifests", Rule: "have no object in them"}
	}
	return out, nil
}

// blank says that there are only comments.
func blank(doc []byte) bool {
	for line := range bytes.SplitSeq(doc, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// named completes an object's metadata, as an API server would.
func (r *reader) named(u *unstructured.Unstructured) error {
	if u.GetNamespace() == "" {
		u.SetNamespace(r.o.Namespace)
	}
	if u.GetName() == "" && u.GetGenerateName() != "" {
		u.SetName(u.GetGenerateName() + "00000")
	}
	switch {
	case len(validation.IsDNS1123Subdomain(u.GetName())) > 0:
		return refuse(u, "metadata.name", fmt.Sprintf("must be a name of lower-case letters, digits and dashes, is %.80q", u.GetName()))
	case u.GetNamespace() == "":
		return refuse(u, "metadata.namespace", "must be there: nobody said for which namespace this is")
	case len(validation.IsDNS1123Label(u.GetNamespace())) > 0:
		return refuse(u, "metadata.namespace", fmt.Sprintf("is no namespace's name: %.80q", u.GetNamespace()))
	}
	if r.o.Allow != nil {
		if err := r.o.Allow(u.GetNamespace()); err != nil {
			return err
		}
	}
	u.SetUID(r.uid())
	u.SetCreationTimestamp(r.at)
	u.SetResourceVersion("")
	u.SetDeletionTimestamp(nil)
	u.SetOwnerReferences(nil)
	delete(u.Object, "status")
	return nil
}

// uid is one that no object has.
func (r *reader) uid() types.UID {
	r.made++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", r.made))
}

func nameOf(u *unstructured.Unstructured) string {
	return fmt.Sprintf("%.60s %.300s", u.GetKind(), strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/"))
}

func refuse(u *unstructured.Unstructured, field, rule string) error {
	return &Refusal{Object: nameOf(u), Field: field, Rule: rule}
}

// into reads an object into its type; fields that the type does not have are refused, as `kubectl apply` does.
func into(u *unstructured.Unstructured, o any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, o, true); err != nil {
		return refuse(u, "", fmt.Sprintf("cannot be read: %.200s", err))
	}
	return nil
}

// group takes a PodGroup that was written by hand.
func (r *reader) group(u *unstructured.Unstructured) error {
	if u.GroupVersionKind().Version != v2alpha2.GroupVersion.Version {
		return r.unknown(u)
	}
	if err := r.named(u); err != nil {
		return err
	}
	g := &v2alpha2.PodGroup{}
	if err := into(u, g); err != nil {
		return err
	}
	return r.add(g)
}

// add adds a gang.
func (r *reader) add(g *v2alpha2.PodGroup) error {
	who := "PodGroup " + g.Namespace + "/" + g.Name
	key := types.NamespacedName{Namespace: g.Namespace, Name: g.Name}
	switch {
	case r.known[key]:
		return &Refusal{Object: who, Rule: "is there twice"}
	case r.snap.GangByKey(kai.GangKey(g.Namespace, g.Name)) != nil:
		return &Refusal{Object: who, Rule: "is there already"}
	case len(r.groups) == MaxGangs:
		return &Refusal{Object: "manifests", Rule: fmt.Sprintf("make more than %d gangs", MaxGangs)}
	}
	r.known[key] = true
	r.groups = append(r.groups, g)
	return nil
}

// member adds a pod with its owners, nearest first.
func (r *reader) member(pod *v1.Pod, owners []workload.Object) error {
	self := "Pod " + pod.Namespace + "/" + pod.Name
	no := func(field, rule string) error { return &Refusal{Object: self, Field: field, Rule: rule} }
	if len(owners) > 0 {
		o := &owners[0]
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: o.GVK.GroupVersion().String(), Kind: o.GVK.Kind, Name: o.Name, UID: o.UID, Controller: new(true)}}
	}
	switch {
	case len(r.pods) == MaxPods:
		return &Refusal{Object: "manifests", Rule: fmt.Sprintf("make more than %d pods", MaxPods)}
	case r.names[pod.Namespace+"/"+pod.Name]:
		return no("", "is there twice")
	case pod.Spec.NodeName != "":
		return no("spec.nodeName", "must not be there: the pod would not be scheduled")
	case !slices.Contains(r.o.SchedulerNames, pod.Spec.SchedulerName):
		return no("spec.schedulerName", fmt.Sprintf("must be %s for Muster to schedule the pod, is %.80q", strings.Join(r.o.SchedulerNames, " or "), pod.Spec.SchedulerName))
	case len(pod.Spec.ResourceClaims) > 0:
		return no("spec.resourceClaims", "are not simulated: which devices they would get is not known")
	case len(pod.Spec.Containers) == 0:
		return no("spec.containers", "must be there")
	}
	defaulted(&pod.Spec)
	r.names[pod.Namespace+"/"+pod.Name] = true
	pod.UID, pod.CreationTimestamp, pod.Status = r.uid(), r.at, v1.PodStatus{Phase: v1.PodPending}
	name := pod.Annotations[keys.PodGroupAnnotation]
	if !workload.External(pod) {
		settings := workload.Settings{QueueLabel: r.o.QueueLabel, NodePoolLabel: cmp.Or(r.o.Partition.Key, keys.NodePoolLabel), PriorityClassExists: func(name string) bool {
			return r.snap.Object(cluster.PriorityClasses, name) != nil
		}, KnativePerPod: true}
		g, err := r.table.Group(pod, owners, &settings)
		if err != nil {
			return invalid(err)
		}
		set, err := g.Members.SubGroup(pod)
		if err != nil {
			return invalid(err)
		}
		if name = g.PodGroup.Name; !r.known[types.NamespacedName{Namespace: pod.Namespace, Name: name}] {
			g.PodGroup.UID, g.PodGroup.CreationTimestamp = r.uid(), r.at
			if err := r.add(g.PodGroup); err != nil {
				return err
			}
			r.tally = append(r.tally, g.Warnings...)
		}
		pod.Annotations = with(pod.Annotations, keys.PodGroupAnnotation, name)
		if set != "" {
			pod.Labels = with(pod.Labels, keys.SubGroupLabel, set)
		}
	} else if !r.known[types.NamespacedName{Namespace: pod.Namespace, Name: name}] {
		return no("annotation "+keys.PodGroupAnnotation, fmt.Sprintf("must name a PodGroup of the manifests, names %.80q", name))
	}
	r.pods = append(r.pods, pod)
	return nil
}

// defaulted has containers request what they are limited to where they do not say otherwise, as the API server does.
func defaulted(spec *v1.PodSpec) {
	for _, list := range []*[]v1.Container{&spec.Containers, &spec.InitContainers} {
		*list = slices.Clone(*list) // a template's is shared
		for i := range *list {
			c := &(*list)[i]
			requests := v1.ResourceList{}
			maps.Copy(requests, c.Resources.Limits)
			maps.Copy(requests, c.Resources.Requests)
			c.Resources.Requests = requests
		}
	}
}

// with is a map with one entry more.
func with(m map[string]string, key, value string) map[string]string {
	out := make(map[string]string, len(m)+1)
	maps.Copy(out, m)
	out[key] = value
	return out
}

// invalid is the refusal of what the podgrouper would refuse.
func invalid(err error) error {
	var no *workload.Invalid
	if errors.As(err, &no) {
		return &Refusal{Object: no.Object, Field: no.Field, Rule: no.Rule}
	}
	return err
}

// translate has the scheduler's translator read all of it.
func (r *reader) translate() (*Submission, error) {
	t := dialect.NewTranslator(dialect.Options{Roles: kai.Roles{SchedulerNames: r.o.SchedulerNames}, Partition: r.o.Partition, QueueLabel: r.o.QueueLabel})
	gangs, pods := map[cluster.Key]cluster.GangState{}, map[string]cluster.PodState{}
	t.Translate(func(k dialect.Kind, take func(types.NamespacedName, dialect.Object)) {
		switch k {
		case dialect.PriorityClasses:
			for _, o := range r.snap.Objects(cluster.PriorityClasses) { // order: each on its own
				if c, ok := o.(*schedulingv1.PriorityClass); ok {
					take(types.NamespacedName{Name: c.Name}, c)
				}
			}
		case dialect.PodGroups:
			for _, g := range r.groups {
				take(dialect.KeyOf(g), g)
			}
		case dialect.Pods:
			for _, p := range r.pods {
				take(dialect.KeyOf(p), p)
			}
		}
	}, func(e cluster.Event) {
		switch e := e.(type) {
		case cluster.GangState:
			gangs[e.Key] = e
		case cluster.PodState:
			pods[e.UID] = e
		}
	})
	out := &Submission{Pods: len(r.pods), Warnings: r.tally}
	has := map[cluster.Key]int{}
	var members []cluster.Event
	for _, p := range r.pods {
		st, ok := pods[string(p.UID)]
		if !ok {
			return nil, &Refusal{Object: "Pod " + p.Namespace + "/" + p.Name, Rule: "is not for this shard's scheduler" + r.shard()}
		}
		has[st.Gang]++
		members = append(members, st)
	}
	for _, g := range r.groups {
		key, who := kai.GangKey(g.Namespace, g.Name), "PodGroup "+g.Namespace+"/"+g.Name
		st, ok := gangs[key]
		switch {
		case !ok:
			return nil, &Refusal{Object: who, Rule: "is not for this shard's scheduler" + r.shard()}
		case has[key] == 0:
			return nil, &Refusal{Object: who, Rule: "has no pods among the manifests"}
		case st.Invalid != "":
			return nil, &Refusal{Object: who, Rule: "could not be scheduled as it is written: " + st.Invalid}
		}
		out.Events = append(out.Events, st)
		out.Gangs = append(out.Gangs, key)
		if !slices.Contains(out.Namespaces, key.Namespace) {
			out.Namespaces = append(out.Namespaces, key.Namespace)
		}
	}
	slices.Sort(out.Namespaces)
	if len(out.Gangs) == 0 {
		return nil, &Refusal{Object: "manifests", Rule: "make no pods"}
	}
	out.Events = append(out.Events, members...)
	return out, nil
}

func (r *reader) shard() string {
	if r.o.Partition.Key == "" {
		return ""
	}
	return fmt.Sprintf(": label %s must be %q", r.o.Partition.Key, r.o.Partition.Value)
}
