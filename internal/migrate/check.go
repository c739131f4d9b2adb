package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/crds"
	"github.com/muster-scheduler/muster/api/kai/keys"
)

// Level is how much a finding matters.
type Level string

// The levels.
const (
	// Stop: do not start Muster before this is done.
	Stop Level = "stop"
	// See: to be seen to, before or after.
	See Level = "see"
	// Differs: what will be different; nothing to be done.
	Differs Level = "differs"
)

// Finding is one answer of the check.
type Finding struct {
	Level Level `json:"level"`
	// About names the object, or the kind of objects.
	About string `json:"about"`
	Text  string `json:"text"`
	// Next is what to do; "" for nothing.
	Next string `json:"next,omitempty"`
	// Row is the key of the ledger's row that it is of; "" for none.
	Row string `json:"row,omitempty"`
}

// Report is what a check found, the most important first.
type Report struct {
	Findings []Finding `json:"findings"`
	// Clear are the checks that found nothing, in words.
	Clear []string `json:"clear"`
}

// NewReport returns one that has found nothing yet.
func NewReport() *Report { return &Report{Findings: []Finding{}, Clear: []string{}} }

// Stops says whether something stands in the way.
func (r *Report) Stops() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Level == Stop })
}

// checker gathers.
type checker struct {
	ctx    context.Context
	reader client.Reader
	now    time.Time
	report *Report
}

// Check looks at a cluster as of now. What may not be read is a finding, for then nobody knows.
func Check(ctx context.Context, reader client.Reader, now time.Time) (*Report, error) {
	c := &checker{ctx: ctx, reader: reader, now: now, report: NewReport()}
	return c.report, c.report.Run([]Step{
		{"no Deployment of KAI's runs", c.deployments},
		{"nobody holds a Lease of KAI's", c.leases},
		{"the CustomResourceDefinitions are those that Muster was built with", c.definitions},
		{"no webhook of KAI's is left behind", c.webhooks},
		{"the usual priority classes are there", c.priorities},
		{"every queue is complete", c.queues},
		{"nothing that this cluster uses is known to differ", c.differences},
	})
}

// Step is one look of a check.
type Step struct {
	// Clear is what is so if it finds nothing, in words.
	Clear string
	Look  func() error
}

// Run takes the steps, and orders the findings. What may not be read is a finding; any other error ends the check.
func (r *Report) Run(steps []Step) error {
	for _, step := range steps {
		before := len(r.Findings)
		if err := step.Look(); apierrors.IsForbidden(err) {
			r.Add(See, "this check", "it may not read all it has to: "+err.Error(), "run it with the rights of an administrator")
		} else if err != nil {
			return err
		}
		if len(r.Findings) == before {
			r.Clear = append(r.Clear, step.Clear)
		}
	}
	order := []Level{Stop, See, Differs}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(order, a.Level), slices.Index(order, b.Level))
	})
	return nil
}

// Add adds a finding.
func (r *Report) Add(l Level, about, text, next string) {
	r.Findings = append(r.Findings, Finding{Level: l, About: about, Text: text, Next: next})
}

func (c *checker) add(l Level, about, text, next string) {
	c.report.Add(l, about, text, next)
}

func (c *checker) list(into client.ObjectList, what string) error {
	if err := c.reader.List(c.ctx, into); err != nil {
		return fmt.Errorf("list %s: %w", what, err)
	}
	return nil
}

// deployments looks for what of KAI's runs. The operator comes first: it would bring the others back.
func (c *checker) deployments() error {
	var all appsv1.DeploymentList
	if err := c.list(&all, "Deployments"); err != nil {
		return err
	}
	operator := ""
	for i := range all.Items {
		if component(&all.Items[i]) == "operator" {
			operator = fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=0", all.Items[i].Namespace, all.Items[i].Name)
		}
	}
	for i := range all.Items {
		d := &all.Items[i]
		what := component(d)
		if what == "" {
			continue
		}
		about := fmt.Sprintf("Deployment %s/%s", d.Namespace, d.Name)
		next := fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=0", d.Namespace, d.Name)
		if operator != "" && what != "operator" {
			next = operator + " && " + next
		}
		switch wanted := d.Spec.Replicas == nil || *d.Spec.Replicas > 0; {
		case d.Status.ReadyReplicas > 0:
			c.add(Stop, about, fmt.Sprintf("KAI's %s runs: %d of its pods are ready", what, d.Status.ReadyReplicas), next)
		case d.Status.Replicas > 0 || wanted:
			c.add(See, about, fmt.Sprintf("KAI's %s is to run, and none of its pods is ready: it may come back", what), next)
		}
	}
	return nil
}

// leases looks for whoever leads a role under KAI's name. KAI's Leases last 15 s.
func (c *checker) leases() error {
	var all coordinationv1.LeaseList
	if err := c.list(&all, "Leases"); err != nil {
		return err
	}
	known := leaseNames()
	for i := range all.Items {
		l := &all.Items[i]
		what := known[l.Name]
		if l.Name == keys.SchedulerName || strings.HasPrefix(l.Name, keys.SchedulerName+"-") {
			what = "scheduler"
		}
		s := &l.Spec
		if what == "" || s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil {
			continue
		}
		lasts := 15 * time.Second
		if s.LeaseDurationSeconds != nil {
			lasts = time.Duration(*s.LeaseDurationSeconds) * time.Second
		}
		if c.now.Sub(s.RenewTime.Time) < lasts {
			c.add(Stop, fmt.Sprintf("Lease %s/%s", l.Namespace, l.Name), fmt.Sprintf("%s leads as %s: KAI's, or a Muster that runs already", *s.HolderIdentity, what),
				"stop it, or let the Lease run out")
		}
	}
	return nil
}

// definitions compares the definitions that are installed with ours.
func (c *checker) definitions() error {
	for _, text := range crds.Documents() {
		var want unstructured.Unstructured
		if err := yaml.Unmarshal(text, &want.Object); err != nil {
			return fmt.Errorf("our own definition: %w", err)
		}
		name := want.GetName()
		about := "CustomResourceDefinition " + name
		const next = "muster crds apply (the chart does so before an install and an upgrade): existing objects stay as they are"
		var have unstructured.Unstructured
		have.SetGroupVersionKind(want.GroupVersionKind())
		err := c.reader.Get(c.ctx, client.ObjectKey{Name: name}, &have)
		if apierrors.IsNotFound(err) {
			c.add(See, about, "it is not installed", next)
			continue
		} else if err != nil {
			return fmt.Errorf("get %s: %w", about, err)
		}
		theirs, mine := versions(&have), versions(&want)
		for _, v := range sortedKeys(mine) {
			fields, served := theirs[v]
			if !served {
				c.add(Stop, about, fmt.Sprintf("version %s is not served, which Muster reads", v), next)
				continue
			}
			if missing := lacks(fields, mine[v], ""); len(missing) > 0 {
				c.add(See, about, fmt.Sprintf("version %s does not know %s, which Muster adds or another version of KAI left out: what is set there is dropped", v, some(missing)), next)
			}
			if more := lacks(mine[v], fields, ""); len(more) > 0 {
				c.add(See, about, fmt.Sprintf("version %s knows %s, which Muster does not: another version of KAI than v0.17", v, some(more)), "see whether you use them")
			}
		}
	}
	return nil
}

// versions are the served versions of a definition, with the schemas of spec.
func versions(crd *unstructured.Unstructured) map[string]map[string]any {
	out := map[string]map[string]any{}
	list, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, item := range list {
		v, _ := item.(map[string]any)
		if name, _ := v["name"].(string); name != "" && v["served"] == true {
			spec, _, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema", "properties", "spec")
			out[name] = spec
		}
	}
	return out
}

// lacks are the properties of want that have does not have, by path, the topmost of each branch.
func lacks(have, want map[string]any, path string) (out []string) {
	if have["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	properties, _ := want["properties"].(map[string]any)
	known, _ := have["properties"].(map[string]any)
	for _, name := range sortedKeys(properties) {
		w, _ := properties[name].(map[string]any)
		h, there := known[name].(map[string]any)
		if !there {
			out = append(out, path+name)
			continue
		}
		out = append(out, lacks(h, w, path+name+".")...)
	}
	for _, inner := range []string{"items", "additionalProperties"} {
		w, _ := want[inner].(map[string]any)
		h, _ := have[inner].(map[string]any)
		if w != nil && h != nil {
			out = append(out, lacks(h, w, path+"[].")...)
		}
	}
	return out
}

// webhooks looks for configurations of KAI's that call a service nobody answers at: then no pod can be created.
func (c *checker) webhooks() error {
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	if err := errors.Join(c.list(&validating, "ValidatingWebhookConfigurations"), c.list(&mutating, "MutatingWebhookConfigurations")); err != nil {
		return err
	}
	look := func(kind, name string, to *admissionregistrationv1.ServiceReference) error {
		if !slices.Contains(webhookNames(), name) || to == nil {
			return nil
		}
		about := kind + " " + name
		var s corev1.Service
		err := c.reader.Get(c.ctx, client.ObjectKey{Namespace: to.Namespace, Name: to.Name}, &s)
		switch {
		case apierrors.IsNotFound(err):
			c.add(Stop, about, fmt.Sprintf("it calls Service %s/%s, which is gone: pods of KAI's scheduler cannot be created", to.Namespace, to.Name), "kubectl delete "+strings.ToLower(kind)+" "+name)
		case err != nil:
			return fmt.Errorf("get Service %s/%s: %w", to.Namespace, to.Name, err)
		case s.Spec.Selector["app"] != "" && !strings.HasPrefix(s.Spec.Selector["app"], "muster"):
			c.add(See, about, fmt.Sprintf("it calls KAI's Service %s/%s: as soon as KAI's pods are gone, pods of its scheduler cannot be created until Muster's role admission has taken it over", to.Namespace, to.Name),
				"let Muster's operator, or its role admission, take it over at once, or delete it")
		}
		return nil
	}
	for i := range validating.Items {
		for _, w := range validating.Items[i].Webhooks {
			if err := look("ValidatingWebhookConfiguration", validating.Items[i].Name, w.ClientConfig.Service); err != nil {
				return err
			}
		}
	}
	for i := range mutating.Items {
		for _, w := range mutating.Items[i].Webhooks {
			if err := look("MutatingWebhookConfiguration", mutating.Items[i].Name, w.ClientConfig.Service); err != nil {
				return err
			}
		}
	}
	return nil
}

// priorities looks for the classes that KAI's chart installs: without them work has KAI's fallback, 50.
func (c *checker) priorities() error {
	var all schedulingv1.PriorityClassList
	if err := c.list(&all, "PriorityClasses"); err != nil {
		return err
	}
	var missing []string
	for _, name := range []string{"train", "build-preemptible", "build", "inference"} {
		if !slices.ContainsFunc(all.Items, func(p schedulingv1.PriorityClass) bool { return p.Name == name }) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		c.add(See, "PriorityClasses", some(missing)+" are missing: work that names none of its own gets priority 50", "install the chart with defaultPriorityClasses.enabled")
	}
	return nil
}

// some are the first few of many.
func some(of []string) string {
	const few = 5
	if len(of) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(of[:few], ", "), len(of)-few)
	}
	return strings.Join(of, ", ")
}
