//go:build lab

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/crds"
	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/lab"
)

const (
	home = "kai-scheduler"
	// deployments are those of the operator, and of scheduler, binder, podgrouper, podgroup, queue and admission.
	deployments = 7
)

// reader is the user whom the release lets read Queues.
const reader = "reader"

// place is a lab with a release of the chart in it.
type place struct {
	*testing.T
	lab    *lab.Lab
	client client.Client
	helm   *action.Configuration
	// limit is how long a step may take; 0 for 90 s.
	limit time.Duration
}

// program is the muster to run: the one given, or one built from the tree around us.
func program(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("MUSTER_BINARY"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "muster")
	build := exec.Command("go", "build", "-o", path, "./cmd/muster")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build muster: %v\n%s", err, out)
	}
	return path
}

func newPlace(t *testing.T, o lab.Options) *place {
	t.Helper()
	if os.Getenv(lab.BinaryEnv) == "" {
		t.Fatalf("%s has to name a muster-lab (run: make test-lab)", lab.BinaryEnv)
	}
	l, err := lab.Start(context.WithoutCancel(t.Context()), o) // its end is a clean-up's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kaiv1.AddToScheme, queuev2.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	p := &place{T: t, lab: l, helm: new(action.Configuration)}
	if p.client, err = client.New(l.Config(), client.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = ptr.To(l.Kubeconfig()), ptr.To(home)
	if err := p.helm.Init(flags, home, "secret", func(string, ...any) {}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for name, text := range p.logs() {
				lines := strings.Split(text, "\n")
				t.Logf("the end of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-25):], "\n"))
			}
		}
	})
	return p
}

// logs are what all processes said, by container.
func (p *place) logs() map[string]string {
	out := map[string]string{}
	files, err := filepath.Glob(filepath.Join(p.lab.Dir(), "pods", "*", "*.log"))
	if err != nil {
		p.Error(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			p.Error(err)
		}
		out[filepath.Base(filepath.Dir(file))] = string(text)
	}
	return out
}

// step does something, waits until nothing is wrong any more, and prints how long that took.
func (p *place) step(what string, do func() error, wrong func() string) {
	p.Helper()
	begun := time.Now()
	if do != nil {
		if err := do(); err != nil {
			p.Fatalf("%s: %v", what, err)
		}
	}
	most := cmp.Or(p.limit, 90*time.Second)
	limit := time.After(most)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for why := wrong(); why != ""; why = wrong() {
		select {
		case <-tick.C:
		case <-limit:
			p.Fatalf("%s: after %v: %s", what, most, why)
		}
	}
	p.Logf("%-66s %6.1f s", what, time.Since(begun).Seconds())
}

func (p *place) get(o client.Object, namespace, name string) error {
	return p.client.Get(p.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
}

// available says what is missing until all Deployments of the installation run an image, all their pods are the newest, and the
// Config says that it is available.
func (p *place) available(image string, deployments int) func() string {
	return func() string {
		var list appsv1.DeploymentList
		if err := p.client.List(p.Context(), &list, client.InNamespace(home)); err != nil {
			return err.Error()
		}
		if len(list.Items) != deployments {
			return fmt.Sprintf("%d Deployments, want %d", len(list.Items), deployments)
		}
		for i := range list.Items {
			d := &list.Items[i]
			want, s := ptr.Deref(d.Spec.Replicas, 1), d.Status
			if got := d.Spec.Template.Spec.Containers[0].Image; got != image {
				return fmt.Sprintf("%s has image %s", d.Name, got)
			}
			if s.ObservedGeneration < d.Generation || s.Replicas != want || s.UpdatedReplicas != want || s.AvailableReplicas != want {
				return fmt.Sprintf("%s: of %d replicas %d exist, %d are of the newest template, %d available", d.Name, want, s.Replicas, s.UpdatedReplicas, s.AvailableReplicas)
			}
		}
		var c kaiv1.Config
		if err := p.get(&c, "", kaiv1.ConfigName); err != nil {
			return err.Error()
		}
		for _, kind := range []string{"Deployed", "Available", "Ready"} {
			if !meta.IsStatusConditionTrue(c.Status.Conditions, kind) {
				return fmt.Sprintf("the Config is not %s: %+v", kind, c.Status.Conditions)
			}
		}
		return ""
	}
}

// gang submits a Job of so many pods of one GPU each, which run together or not at all.
func (p *place) gang(name string, size int32) func() error {
	return func() error {
		labels := map[string]string{keys.QueueLabel: "default-queue"}
		return p.client.Create(p.Context(), &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels, Annotations: map[string]string{keys.BatchMinMemberAnnotation: fmt.Sprint(size)}},
			Spec: batchv1.JobSpec{Parallelism: &size, Completions: &size, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{SchedulerName: keys.SchedulerName, RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
					Name: "main", Image: "registry.example/train", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{lab.GPUResource: resource.MustParse("1")}},
				}}},
			}},
		})
	}
}

// reviews submits pods that admission refuses (the chart does not switch the sharing of GPUs on), fifty a second, until what it
// returns is called, which says how many there were and what became of those that admission did not refuse.
func (p *place) reviews() (stop func() (asked int, missed []string)) {
	p.Helper()
	ctx, cancel := context.WithCancel(p.Context())
	var asked int
	var missed []string
	var ended sync.WaitGroup
	ended.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "sharing", Labels: map[string]string{keys.QueueLabel: "default-queue"}, Annotations: map[string]string{keys.GPUFractionAnnotation: "0.5"}},
				Spec:       corev1.PodSpec{SchedulerName: keys.SchedulerName, Containers: []corev1.Container{{Name: "main", Image: "registry.example/notebook"}}},
			}
			err := p.client.Create(ctx, pod, client.DryRunAll)
			if ctx.Err() != nil {
				return
			}
			asked++
			if err == nil || !strings.Contains(err.Error(), "denied the request") {
				missed = append(missed, fmt.Sprint(err))
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	p.Cleanup(func() { cancel(); ended.Wait() })
	return func() (int, []string) {
		cancel()
		ended.Wait()
		return asked, missed
	}
}

// members are the running pods of a gang.
func (p *place) members(name string) map[types.UID]string {
	var pods corev1.PodList
	if err := p.client.List(p.Context(), &pods, client.InNamespace("default"), client.MatchingLabels{"batch.kubernetes.io/job-name": name}); err != nil {
		p.Fatal(err)
	}
	out := map[types.UID]string{}
	for i := range pods.Items {
		if o := &pods.Items[i]; o.Status.Phase == corev1.PodRunning && o.DeletionTimestamp == nil {
			out[o.UID] = o.Spec.NodeName
		}
	}
	return out
}

func (p *place) runs(name string, size int) func() string {
	return func() string {
		if n := len(p.members(name)); n != size {
			return fmt.Sprintf("%d of %d pods of %s run", n, size, name)
		}
		return ""
	}
}

// aged is the CRD that lags behind in this test, and was the description of a CRD of old.
const aged, was = "queues.scheduling.run.ai", "Of an older version."

// description is the place of a CRD that tells one version from another.
func description(crd *unstructured.Unstructured) map[string]any {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	schema, _, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema")
	return schema
}

// old makes one of our CRDs one of an older version, which Helm leaves as it is.
func (p *place) old() {
	p.Helper()
	text, err := crds.YAML("scheduling.run.ai", "queues")
	if err != nil {
		p.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "      openAPIV3Schema:\n", "      openAPIV3Schema:\n        title: "+was+"\n", 1))
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &crd.Object); err != nil {
		p.Fatal(err)
	}
	if description(crd)["title"] != was {
		p.Fatalf("%v", description(crd))
	}
	err = p.client.Create(p.Context(), crd)
	if apierrors.IsAlreadyExists(err) {
		there := crd.DeepCopy()
		if err = p.get(there, "", aged); err == nil {
			crd.SetResourceVersion(there.GetResourceVersion())
			err = p.client.Update(p.Context(), crd)
		}
	}
	if err != nil {
		p.Fatal(err)
	}
}

// lagging says whether that CRD is still the old one.
func (p *place) lagging() string {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	if err := p.get(crd, "", aged); err != nil {
		return err.Error()
	}
	if description(crd)["title"] == was {
		return "the CRD " + aged + " is as it was"
	}
	return ""
}

// tenant is a user who may edit the namespace default.
func (p *place) tenant() error {
	return p.client.Create(p.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tenant"}, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "tenant"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
	})
}

// rights says which right differs from what it should be.
func (p *place) rights() string {
	for _, c := range []struct {
		user, verb, resource, namespace string
		may                             bool
	}{
		{"tenant", "list", "podgroups", "default", true},
		{"tenant", "list", "bindrequests", "default", true},
		{"tenant", "create", "podgroups", "default", false},
		{"tenant", "list", "podgroups", home, false},
		{"tenant", "list", "queues", "", false},
		{reader, "list", "queues", "", true},
		{reader, "update", "queues", "", false},
	} {
		r := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: c.user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: "scheduling.run.ai", Resource: c.resource, Verb: c.verb, Namespace: c.namespace,
		}}}
		if err := p.client.Create(p.Context(), r); err != nil {
			return err.Error()
		}
		if r.Status.Allowed != c.may {
			return fmt.Sprintf("%+v: %t", c, r.Status.Allowed)
		}
	}
	return ""
}

// paced says what is wrong with how the API server sorted our requests: of both kinds there are some, and none was turned away.
func (p *place) paced() string {
	config, err := kubernetes.NewForConfig(p.lab.Config())
	if err != nil {
		return err.Error()
	}
	text, err := config.RESTClient().Get().AbsPath("/metrics").DoRaw(p.Context())
	if err != nil {
		return err.Error()
	}
	for schema, level := range map[string]string{"muster": "muster", "muster-leases": "leader-election"} {
		if !regexp.MustCompile(`(?m)^apiserver_flowcontrol_dispatched_requests_total\{flow_schema="` + schema + `",priority_level="` + level + `"\} [1-9]`).Match(text) {
			return "no request was sorted as " + schema
		}
	}
	if line := regexp.MustCompile(`(?m)^apiserver_flowcontrol_rejected_requests_total\{flow_schema="muster.*`).Find(text); line != nil {
		return "some were turned away: " + string(line)
	}
	return ""
}

// TestInstall is the life of an installation: `helm install` starts the operator, whose objects become processes with a token each;
// a gang runs; a drift is repaired; an upgrade rolls every role (which then works in FIPS mode), and an uninstall ends them, with the
// running gang untouched; a CRD that lags behind is brought up each time; and nobody ever asked for what RBAC forbids him.
func TestInstall(t *testing.T) {
	muster := program(t)
	p := newPlace(t, lab.Options{
		Fleet:         lab.Fleet{Pools: []lab.Pool{{Name: "n", Count: 4, GPUs: 8, CPU: "32"}}},
		KubeScheduler: true,
		APIServerArgs: []string{"--enable-priority-and-fairness=true"},
		Programs:      map[string]string{"registry.example/muster:1": muster, "registry.example/muster:2": muster},
	})
	chart := load(t)
	values := func(tag string) map[string]any {
		return map[string]any{
			"global": map[string]any{"registry": "registry.example", "tag": tag, "fipsMode": map[string]string{"1": "off", "2": "on"}[tag]},
			"queues": map[string]any{"readers": []any{map[string]any{"kind": "User", "apiGroup": rbacv1.GroupName, "name": reader}}},
		}
	}
	p.step("helm install: every role is an available process", func() error {
		i := action.NewInstall(p.helm)
		i.ReleaseName, i.Namespace, i.CreateNamespace = "muster", home, true
		release, err := i.RunWithContext(p.Context(), chart, values("1"))
		if err == nil && strings.Contains(release.Info.Notes, "without effect") {
			return fmt.Errorf("the notes say: %s", release.Info.Notes)
		}
		return err
	}, p.available("registry.example/muster:1", deployments))
	p.step("a gang of 16 runs", p.gang("first", 16), p.runs("first", 16))
	before := p.members("first")
	if why := p.lagging(); why != "" {
		t.Errorf("after the install %s", why)
	}
	p.step("everybody has the rights that are meant for him", p.tenant, p.rights)
	p.step("what roles ask is paced as theirs, and Leases apart", nil, p.paced)

	grouper := install.Name(install.PodGrouper)
	p.step("drift: a Deployment changed, a Service and a binding deleted: repaired", func() error {
		var d appsv1.Deployment
		if err := p.get(&d, home, grouper); err != nil {
			return err
		}
		d.Spec.Template.Spec.Containers[0].Image = "registry.example/other"
		if err := p.client.Update(p.Context(), &d); err != nil {
			return err
		}
		if err := p.client.Delete(p.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: install.AdmissionService}}); err != nil {
			return err
		}
		return p.client.Delete(p.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: install.Name(install.Queue)}})
	}, func() string {
		if err := p.get(&corev1.Service{}, home, install.AdmissionService); err != nil {
			return err.Error()
		}
		if err := p.get(&rbacv1.ClusterRoleBinding{}, "", install.Name(install.Queue)); err != nil {
			return err.Error()
		}
		return p.available("registry.example/muster:1", deployments)()
	})
	forbiddenByDrift := p.forbidden() // the queue role may have asked while its binding was away

	p.old()
	reviews := p.reviews()
	p.step("helm upgrade: every role runs the new image", func() error {
		u := action.NewUpgrade(p.helm)
		u.Namespace = home
		_, err := u.RunWithContext(p.Context(), "muster", chart, values("2"))
		return err
	}, p.available("registry.example/muster:2", deployments))
	p.step("the last process of the old image ends", nil, func() string {
		var pods corev1.PodList
		if err := p.client.List(p.Context(), &pods, client.InNamespace(home)); err != nil {
			return err.Error()
		}
		if len(pods.Items) != deployments+1 { // admission is two
			return fmt.Sprintf("%d pods, want %d", len(pods.Items), deployments+1)
		}
		return ""
	})
	if why := p.lagging(); why != "" {
		t.Errorf("after the upgrade %s", why)
	}
	asked, missed := reviews()
	if len(missed) > 0 {
		t.Errorf("of %d pods that were submitted during the upgrade, admission did not judge %d: %q", asked, len(missed), missed[:min(5, len(missed))])
	}
	t.Logf("%d pods were submitted during the upgrade, and admission judged %d", asked, asked-len(missed))
	p.step("a gang of 8 runs", p.gang("second", 8), p.runs("second", 8))
	if after := p.members("first"); !maps.Equal(before, after) {
		t.Errorf("the upgrade touched the running gang: before %v, after %v", before, after)
	}
	second := p.members("second")
	// From now on a process may lose its rights before it is told to end.
	lines := slices.DeleteFunc(p.forbidden(), func(line string) bool { return slices.Contains(forbiddenByDrift, line) })
	if len(lines) > 0 {
		t.Errorf("%d lines of logs tell of something forbidden:\n%s", len(lines), strings.Join(lines[:min(20, len(lines))], "\n"))
	}
	t.Logf("%d processes logged; forbidden: %d, and %d while a binding was deleted", len(p.logs()), len(lines), len(forbiddenByDrift))

	p.step("helm uninstall: nothing of it is left", func() error {
		_, err := action.NewUninstall(p.helm).Run("muster")
		return err
	}, func() string {
		var all []string
		for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.PodList{}, &corev1.ServiceList{}} {
			if err := p.client.List(p.Context(), list, client.InNamespace(home)); err != nil {
				return err.Error()
			}
			if n := meta.LenList(list); n > 0 {
				all = append(all, fmt.Sprintf("%d of %T", n, list))
			}
		}
		for _, list := range []client.ObjectList{&rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &admissionregv1.MutatingWebhookConfigurationList{}, &admissionregv1.ValidatingWebhookConfigurationList{}} {
			if err := p.client.List(p.Context(), list); err != nil {
				return err.Error()
			}
			_ = meta.EachListItem(list, func(o runtime.Object) error {
				if name := o.(client.Object).GetName(); strings.HasPrefix(name, "muster-") || strings.Contains(name, "kai-") {
					all = append(all, name)
				}
				return nil
			})
		}
		if err := p.get(&kaiv1.Config{}, "", kaiv1.ConfigName); !apierrors.IsNotFound(err) {
			all = append(all, "the Config")
		}
		return strings.Join(all, ", ")
	})
	for name, members := range map[string]map[types.UID]string{"first": before, "second": second} {
		if after := p.members(name); !maps.Equal(members, after) {
			t.Errorf("the uninstall touched the running gang %s: before %v, after %v", name, members, after)
		}
	}
	for _, kept := range []client.Object{&queuev2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "default-queue"}}, &kaiv1.SchedulingShard{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.ReservationNamespace}}} {
		if err := p.get(kept, "", kept.GetName()); err != nil {
			t.Errorf("it is to stay: %v", err)
		}
	}
}

// forbidden are the lines of the logs that tell of something forbidden.
func (p *place) forbidden() (out []string) {
	for name, text := range p.logs() {
		for line := range strings.Lines(text) {
			if strings.Contains(strings.ToLower(line), "forbidden") {
				out = append(out, name+": "+strings.TrimSpace(line))
			}
		}
	}
	return out
}
