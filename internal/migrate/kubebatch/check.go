package kubebatch

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kubebatch/keys"
	kbv1alpha1 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	kbv1alpha2 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/migrate"
	"github.com/muster-scheduler/muster/internal/profile/volcano"
)

// leaderNote is the annotation in which a program of old keeps who leads.
const leaderNote = "control-plane.alpha.kubernetes.io/leader"

// checker gathers.
type checker struct {
	ctx      context.Context
	reader   client.Reader
	now      time.Time
	report   *migrate.Report
	programs []program
	pods     int // that name kube-batch for their scheduler and have not ended
}

// program is a kube-batch, as a Deployment or a pod runs it.
type program struct {
	kind, namespace, name string
	ready                 int32
	words, maps           []string
}

// Check looks at a cluster as of now, and judges it. What may not be read is a finding.
func Check(ctx context.Context, reader client.Reader, now time.Time) (*migrate.Report, error) {
	c := &checker{ctx: ctx, reader: reader, now: now, report: migrate.NewReport()}
	return c.report, c.report.Run([]migrate.Step{
		{Clear: "no kube-batch runs", Look: c.running},
		{Clear: "nobody holds kube-batch's lock", Look: c.locks},
		{Clear: "kube-batch's kinds are served, and its default queue is there", Look: c.kinds},
		{Clear: "kube-batch's scheduler file says nothing that Muster does not do", Look: c.files},
	})
}

// told says whether a Deployment in a namespace is among the programs. Without, a pod of a ReplicaSet may have outlived it.
func (c *checker) told(namespace string) bool {
	return slices.ContainsFunc(c.programs, func(p program) bool { return p.kind == "Deployment" && p.namespace == namespace })
}

// running looks for programs, in Deployments and in pods.
func (c *checker) running() error {
	var deployments appsv1.DeploymentList
	if err := c.list(&deployments, "Deployments"); err != nil {
		return err
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		if wanted := d.Spec.Replicas == nil || *d.Spec.Replicas > 0 || d.Status.Replicas > 0; wanted {
			c.add(&d.Spec.Template.Spec, program{kind: "Deployment", namespace: d.Namespace, name: d.Name, ready: d.Status.ReadyReplicas})
		}
	}
	var pods corev1.PodList
	if err := c.list(&pods, "Pods"); err != nil {
		return err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		if p.Spec.SchedulerName == keys.SchedulerName {
			c.pods++
		}
		if slices.ContainsFunc(p.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "ReplicaSet" }) && c.told(p.Namespace) {
			continue // it is told of by its Deployment
		}
		is := program{kind: "Pod", namespace: p.Namespace, name: p.Name}
		if p.Status.Phase == corev1.PodRunning {
			is.ready = 1
		}
		c.add(&p.Spec, is)
	}
	return nil
}

// add adds what runs kube-batch, by the name of its image or of its file, and says so. What runs Muster does not.
func (c *checker) add(spec *corev1.PodSpec, p program) {
	for i := range spec.Containers {
		of := &spec.Containers[i]
		words := append(strings.Fields(strings.Join(of.Command, " ")), strings.Fields(strings.Join(of.Args, " "))...)
		named := base(of.Image) == keys.SchedulerName || slices.ContainsFunc(words[:min(len(words), 4)], func(w string) bool { return base(w) == keys.SchedulerName && !strings.HasPrefix(w, "-") })
		if base(of.Image) == "muster" || len(of.Args) > 0 && of.Args[0] == "run" || !named {
			continue
		}
		p.words = words
		for _, v := range spec.Volumes {
			if v.ConfigMap != nil {
				p.maps = append(p.maps, v.ConfigMap.Name)
			}
		}
		c.programs = append(c.programs, p)
		about, next := fmt.Sprintf("%s %s/%s", p.kind, p.namespace, p.name), fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=0", p.namespace, p.name)
		if p.kind == "Pod" {
			next = "stop what makes it, and wait until it is gone"
		}
		if p.ready > 0 {
			c.report.Add(migrate.Stop, about, fmt.Sprintf("kube-batch runs: %d of its pods are ready. Its lock does not keep Muster from placing the same pods", p.ready), next)
		} else {
			c.report.Add(migrate.See, about, "kube-batch is to run, and none of its pods is ready: it may come back", next)
		}
		return
	}
}

// locks looks for who leads as kube-batch, in the namespaces that its lock may be in.
func (c *checker) locks() error {
	spaces := []string{metav1.NamespaceDefault, metav1.NamespaceSystem, keys.SchedulerName}
	for i := range c.programs {
		p := &c.programs[i]
		spaces = append(spaces, p.namespace)
		if space := p.value("lock-object-namespace"); space != "" {
			spaces = append(spaces, space)
		}
	}
	slices.Sort(spaces)
	for _, space := range slices.Compact(spaces) {
		for _, kind := range []string{"ConfigMap", "Endpoints"} {
			o := &metav1.PartialObjectMetadata{}
			o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
			switch err := c.reader.Get(c.ctx, client.ObjectKey{Namespace: space, Name: keys.SchedulerName}, o); {
			case apierrors.IsNotFound(err):
			case err != nil:
				return fmt.Errorf("get %s %s/%s: %w", kind, space, keys.SchedulerName, err)
			default:
				c.lock(fmt.Sprintf("%s %s/%s", kind, space, keys.SchedulerName), o.Annotations[leaderNote])
			}
		}
	}
	return nil
}

// lock judges what an object says of who leads.
func (c *checker) lock(about, text string) {
	var record struct {
		Holder  string      `json:"holderIdentity"`
		Seconds int64       `json:"leaseDurationSeconds"`
		Renewed metav1.Time `json:"renewTime"`
	}
	if text == "" || json.Unmarshal([]byte(text), &record) != nil || record.Holder == "" {
		return
	}
	if lasts := time.Duration(min(max(record.Seconds, 0), 3600)) * time.Second; c.now.Sub(record.Renewed.Time) < lasts {
		c.report.Add(migrate.Stop, about, fmt.Sprintf("%.64q leads as kube-batch", record.Holder), "stop it, and wait until the lock has run out")
	}
}

// kinds looks for what is not served, and for the queue of gangs that name none.
func (c *checker) kinds() error {
	queue := keys.DefaultQueue
	for i := range c.programs {
		if said := c.programs[i].value("default-queue"); said != "" {
			queue = said
		}
	}
	var absent []string
	there := false
	var old kbv1alpha1.QueueList
	var young kbv1alpha2.QueueList
	for group, l := range map[string]client.ObjectList{kbv1alpha1.GroupVersion.Group: &old, kbv1alpha2.GroupVersion.Group: &young} { // order: sorted below
		switch err := c.list(l, "Queues of "+group); {
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			absent = append(absent, group)
		case err != nil:
			return err
		}
	}
	for i := range old.Items {
		there = there || old.Items[i].Name == queue
	}
	for i := range young.Items {
		there = there || young.Items[i].Name == queue
	}
	if slices.Sort(absent); len(absent) > 0 {
		c.report.Add(migrate.See, "CustomResourceDefinitions", "the API server does not serve "+strings.Join(absent, ", "), "muster crds apply --kube-batch (the chart does so before an install and an upgrade)")
	}
	if !there {
		c.report.Add(migrate.See, "Queue "+brief(queue), fmt.Sprintf("it is not there: gangs that name no queue wait, as with kube-batch. %d pods name its scheduler", c.pods), "create it")
	}
	return nil
}

// files reads the scheduler files that the programs mount, as the scheduler will.
func (c *checker) files() error {
	for i := range c.programs {
		p := &c.programs[i]
		file := p.value("scheduler-conf")
		if file == "" {
			continue
		}
		for _, name := range p.maps {
			var m corev1.ConfigMap
			if err := c.reader.Get(c.ctx, client.ObjectKey{Namespace: p.namespace, Name: name}, &m); apierrors.IsNotFound(err) {
				continue
			} else if err != nil {
				return fmt.Errorf("get ConfigMap %s/%s: %w", p.namespace, name, err)
			}
			text, has := m.Data[path.Base(file)]
			if !has {
				continue
			}
			about := fmt.Sprintf("ConfigMap %s/%s:%s", p.namespace, name, path.Base(file))
			read, err := volcano.ParseKubeBatch([]byte(text), builtin.Registry())
			if err != nil {
				c.report.Add(migrate.See, about, "the scheduler file is refused: "+brief(err.Error()), "mend it before it is given as kubeBatch.schedulerConf: the scheduler would not start")
			}
			for _, told := range read.Told {
				c.report.Add(migrate.Differs, about, brief(told.Error()), "")
			}
		}
	}
	return nil
}

// list reads a kind.
func (c *checker) list(into client.ObjectList, what string) error {
	if err := c.reader.List(c.ctx, into); err != nil {
		return fmt.Errorf("list %s: %w", what, err)
	}
	return nil
}

// value is what the program is given a flag with; "" for nothing.
func (p *program) value(flag string) (out string) {
	for i, word := range p.words {
		name, dashed := strings.CutPrefix(word, "-")
		name, said, equals := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if !dashed || name != flag {
			continue
		}
		if !equals && i+1 < len(p.words) {
			said = p.words[i+1]
		}
		out = said
	}
	return out
}

// base is the name of an image or file: without what is before it, without tag and digest.
func base(name string) string {
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	return name
}

// brief is a text of somebody else's, bounded and on one line.
func brief(text string) string {
	const most = 120
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
