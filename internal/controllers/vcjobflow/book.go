package vcjobflow

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
)

// key names a JobFlow, a JobTemplate or a Job.
type key = types.NamespacedName

// book is what the controller knows.
type book struct {
	check     func(*flow.JobFlow) field.ErrorList
	flows     map[key]*flow.JobFlow
	templates map[key]*flow.JobTemplate
	jobs      map[types.UID]map[string]*batch.Job // by the JobFlow that controls them, by name
	of        map[key]types.UID                   // a Job's JobFlow
	answered  map[types.UID]map[string]bool       // parts of a JobFlow whose probes held
}

func newBook(check func(*flow.JobFlow) field.ErrorList) *book {
	return &book{
		check: check, flows: map[key]*flow.JobFlow{}, templates: map[key]*flow.JobTemplate{}, jobs: map[types.UID]map[string]*batch.Job{}, of: map[key]types.UID{},
		answered: map[types.UID]map[string]bool{},
	}
}

// flowSeen takes in a JobFlow.
func (b *book) flowSeen(f *flow.JobFlow, gone bool) []key {
	k := client.ObjectKeyFromObject(f)
	if b.flows[k] = f; gone {
		delete(b.flows, k)
		delete(b.answered, f.UID)
		for name, j := range b.jobs[f.UID] { // order: each on its own
			if j.Status.State.Phase == batch.Completed { // it may have gone before: jobSeen
				b.drop(key{Namespace: f.Namespace, Name: name})
			}
		}
	}
	return []key{k}
}

// templateSeen takes in a JobTemplate, and returns the JobFlows to look at: those that wait for it.
func (b *book) templateSeen(t *flow.JobTemplate, gone bool) (due []key) {
	k := client.ObjectKeyFromObject(t)
	_, had := b.templates[k]
	if b.templates[k] = t; gone {
		delete(b.templates, k)
		return nil
	}
	if had {
		return nil // what is made is made
	}
	for name, f := range b.flows { // order: the queue has one
		if name.Namespace != k.Namespace {
			continue
		}
		for i := range f.Spec.Flows {
			if f.Spec.Flows[i].Name == k.Name {
				due = append(due, name)
				break
			}
		}
	}
	return due
}

// jobSeen takes in a Job, and returns the JobFlow to look at. One that goes when it was completed is kept in mind.
func (b *book) jobSeen(j *batch.Job, gone bool) []key {
	k := client.ObjectKeyFromObject(j)
	owner := metav1.GetControllerOf(j)
	ours := owner != nil && owner.Kind == "JobFlow" && owner.APIVersion == flow.GroupVersion.String()
	if _, had := b.of[k]; !had && !ours {
		return nil
	}
	b.drop(k)
	if !ours {
		return nil
	}
	up := key{Namespace: j.Namespace, Name: owner.Name}
	if f := b.flows[up]; gone && (j.Status.State.Phase != batch.Completed || f == nil || f.UID != owner.UID) {
		return []key{up}
	}
	b.of[k] = owner.UID
	if b.jobs[owner.UID] == nil {
		b.jobs[owner.UID] = map[string]*batch.Job{}
	}
	if gone {
		j = j.DeepCopy()
		j.DeletionTimestamp = &metav1.Time{}
	}
	b.jobs[owner.UID][j.Name] = j
	return []key{up}
}

func (b *book) drop(k key) {
	was, had := b.of[k]
	if !had {
		return
	}
	delete(b.of, k)
	if delete(b.jobs[was], k.Name); len(b.jobs[was]) == 0 {
		delete(b.jobs, was)
	}
}
