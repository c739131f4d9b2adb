//go:build lab

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// The pool of TestClaims: nodes without a device plugin.
const (
	claimDriver = "gpu.example.com"
	claimClass  = "gpu.example.com"
	claimNodes  = 5
	perNode     = 4
)

// TestClaims gives devices by resource claim, through every role, to running pods, and takes them back.
func TestClaims(t *testing.T) {
	w := newFixture(t, 1, lab.Options{})
	pool := lab.Pool{Name: "d", Count: claimNodes, Devices: []lab.Devices{{Driver: claimDriver, Class: claimClass, Count: perNode, Attributes: map[string]string{"model": "GB200"}}}}
	if err := w.lab.AddNodes(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	p := newProcess(t, "all", w.lab.Kubeconfig())
	p.start()
	p.awaitReady(t)

	t.Run("a gang of 16 with claims from a template", func(t *testing.T) {
		w.namespace(t, "gang")
		w.create(t, claimTemplate("gang"))
		w.create(t, claimants("gang", 16))
		took := w.must(t, 30*time.Second, w.allRunning("gang", 16))
		t.Logf("16 pods with a device each run %v after they were submitted", took.Round(time.Millisecond))
		if got := w.tenants(t, "gang"); len(got) != 16 {
			t.Errorf("16 claims have %d devices: %v", len(got), got)
		}

		w.namespace(t, "late")
		w.create(t, claimTemplate("late"))
		w.create(t, claimants("late", 5))
		reason := ""
		w.must(t, 20*time.Second, func() string {
			if reason = w.why("late"); strings.Contains(reason, "insufficient free devices for its claims") {
				return ""
			}
			return "nobody says that devices are lacking, but: " + reason
		})
		if n := w.boundNow(t, "late"); n != 0 {
			t.Errorf("%d of 5 pods are bound with 4 devices free", n)
		}
		w.erase(t, "gang")
		w.must(t, 30*time.Second, w.allRunning("late", 5))
		w.tenants(t, "late")
		w.erase(t, "late")
		w.free(t)
	})

	t.Run("an update that fails is rolled back, and tried elsewhere", func(t *testing.T) {
		w.namespace(t, "fault")
		w.create(t, claimTemplate("fault"))
		first := "d-0"
		lift := w.refuse(t, first)
		w.create(t, claimants("fault", perNode))
		w.must(t, 30*time.Second, func() string {
			for _, p := range w.pods("fault") {
				for _, c := range p.Status.Conditions {
					if string(c.Type) == keys.PodBoundCondition && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "devices of this node are refused") {
						return ""
					}
				}
			}
			return "no pod says that its claim could not be written"
		})
		if n := w.boundNow(t, "fault"); n != 0 {
			t.Errorf("%d pods of a gang are bound whose claims could not all be written", n)
		}
		w.cordon(t, first, true)
		w.must(t, time.Minute, w.allRunning("fault", perNode))
		for device := range w.tenants(t, "fault") {
			if strings.HasPrefix(device, first+"/") {
				t.Errorf("device %s is taken", device)
			}
		}
		lift()
		w.cordon(t, first, false)
		w.erase(t, "fault")
		w.free(t)
	})

	t.Run("extended resources that are devices", func(t *testing.T) {
		const name = "example.com/gpu"
		var class resourcev1.DeviceClass
		if err := w.client.Get(t.Context(), types.NamespacedName{Name: claimClass}, &class); err != nil {
			t.Fatal(err)
		}
		class.Spec.ExtendedResourceName = ptr.To(name)
		if err := w.client.Update(t.Context(), &class); err != nil {
			t.Fatal(err)
		}
		if class.Spec.ExtendedResourceName == nil {
			t.Log("the API server does not know extended resources by claim: nothing to show")
			return
		}
		w.namespace(t, "extended")
		job := claimants("extended", 2)
		job.Spec.Template.Spec.ResourceClaims = nil
		job.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{name: resource.MustParse("2")}}
		w.create(t, job)
		w.must(t, 30*time.Second, func() string {
			if what := w.allRunning("extended", 2)(); what != "" {
				return what + ": " + w.why("extended")
			}
			return ""
		})
		if got := w.tenants(t, "extended"); len(got) != 4 {
			t.Errorf("2 pods with 2 devices each have %d: %v", len(got), got)
		}
		for _, p := range w.pods("extended") {
			s := p.Status.ExtendedResourceClaimStatus
			if s == nil || len(s.RequestMappings) != 1 || s.RequestMappings[0].ResourceName != name {
				t.Errorf("pod %s does not say which claim has its devices: %v", p.Name, s)
			}
		}
		w.erase(t, "extended")
		w.free(t)
	})

	t.Run("KAI's example of a ComputeDomain", func(t *testing.T) {
		text := domainExample(t)
		if text == nil {
			return
		}
		const driver, class, channel = "compute-domain.nvidia.com", "compute-domain-default-channel.nvidia.com", "imex-channel-0"
		imex := lab.Pool{Name: "imex", Count: 1, GPUs: 1, Devices: []lab.Devices{{Driver: driver, Class: class, Count: 4}}}
		if err := w.lab.AddNodes(t.Context(), imex); err != nil {
			t.Fatal(err)
		}
		if err := lab.InstallCRDs(t.Context(), w.lab.Config(), [][]byte{[]byte(computeDomains)}); err != nil {
			t.Fatal(err)
		}
		w.create(t, queue("default-queue", "root"))
		for r := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
			o := &unstructured.Unstructured{}
			if err := r.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if len(o.Object) == 0 {
				continue
			}
			o.SetNamespace(metav1.NamespaceDefault)
			w.create(t, o)
		}
		reason := ""
		w.must(t, 20*time.Second, func() string {
			if reason = w.why(metav1.NamespaceDefault); strings.Contains(reason, "(template)") {
				return ""
			}
			return "the pod does not say that it waits for its claim's template, but: " + reason
		})
		// What the driver's controller does when it sees the ComputeDomain.
		made := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: channel}}
		made.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "channel", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
		}}}
		w.create(t, made)
		w.must(t, time.Minute, w.allRunning(metav1.NamespaceDefault, 1))
		for device, claim := range w.tenants(t, metav1.NamespaceDefault) {
			t.Logf("docs/dra/gpu-imex-pod.yaml: the pod runs with a GPU and channel %s by claim %s", device, claim)
		}
	})
}

// computeDomains defines the kind of the example, as far as it matters here.
const computeDomains = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: computedomains.resource.nvidia.com}
spec:
  group: resource.nvidia.com
  scope: Namespaced
  names: {kind: ComputeDomain, plural: computedomains, singular: computedomain}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// domainExample reads KAI's example of devices by claim; nil when it does not lie beside the checkout.
func domainExample(t *testing.T) []byte {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		text, err := os.ReadFile(filepath.Join(dir, "shared/compat/kai/examples/docs/dra/gpu-imex-pod.yaml"))
		if err == nil {
			return text
		}
		dir = filepath.Dir(dir)
	}
	t.Log("shared/compat does not lie beside this checkout: no example to apply")
	return nil
}

func claimTemplate(namespace string) *resourcev1.ResourceClaimTemplate {
	t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "single"}}
	t.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: claimClass, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["` + claimDriver + `"].model == "GB200"`}}},
	}}}
	return t
}

// claimants is a Job of so many pods, each with a claim from the template, that run together or not at all.
func claimants(namespace string, size int) *batchv1.Job {
	job := gang(namespace, "job", size, "")
	spec := &job.Spec.Template.Spec
	spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("single")}}
	spec.Containers[0].Resources = corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}
	return job
}

// tenants returns who has which device in a namespace, and fails when one has two claims, or is not on the node of its pod.
func (w *fixture) tenants(t *testing.T, namespace string) map[string]string {
	t.Helper()
	nodes := map[types.UID]string{}
	for _, p := range w.pods(namespace) {
		nodes[p.UID] = p.Spec.NodeName
	}
	var claims resourcev1.ResourceClaimList
	if err := w.client.List(t.Context(), &claims, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, c := range claims.Items {
		if c.Status.Allocation == nil || len(c.Status.ReservedFor) != 1 {
			t.Errorf("claim %s: allocation %v, users %v", c.Name, c.Status.Allocation, c.Status.ReservedFor)
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			device := r.Pool + "/" + r.Device
			if other, taken := out[device]; taken {
				t.Errorf("device %s has claims %s and %s", device, other, c.Name)
			}
			if on := nodes[c.Status.ReservedFor[0].UID]; on != r.Pool {
				t.Errorf("claim %s has a device of %s, and its pod is on %q", c.Name, r.Pool, on)
			}
			out[device] = c.Name
		}
	}
	return out
}

// free waits until no claim has a device.
func (w *fixture) free(t *testing.T) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		var claims resourcev1.ResourceClaimList
		if err := w.client.List(ctx, &claims); err != nil {
			return false, err
		}
		for _, c := range claims.Items {
			if c.Status.Allocation != nil {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		t.Error("claims keep devices after their pods are gone: ", err)
	}
}

// why is what the pods of a namespace say about why they wait.
func (w *fixture) why(namespace string) string {
	for _, p := range w.pods(namespace) {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return c.Message
			}
		}
	}
	return ""
}

func (w *fixture) cordon(t *testing.T, node string, on bool) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, on))
	if err := w.client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch); err != nil {
		t.Fatal(err)
	}
}

// refuse has the API server refuse to give any claim devices of a node, and returns when it does.
func (w *fixture) refuse(t *testing.T, node string) (lift func()) {
	t.Helper()
	fail := admissionv1.Fail
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "refuse-devices"}}
	policy.Spec.FailurePolicy = &fail
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{"resource.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"resourceclaims/status"}},
		},
	}}}
	policy.Spec.Validations = []admissionv1.Validation{{
		Expression: `!has(object.status) || !has(object.status.allocation) || !has(object.status.allocation.devices.results) || object.status.allocation.devices.results.all(r, r.pool != "` + node + `")`,
		Message:    "devices of this node are refused",
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "refuse-devices"}}
	binding.Spec = admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}
	w.create(t, policy)
	w.create(t, binding)
	probe := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "probe"}, Spec: claimTemplate("").Spec.Spec}
	w.create(t, probe)
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"allocation":{"devices":{"results":[{"request":"gpu","driver":%q,"pool":%q,"device":"gpu-0"}]}}}}`, claimDriver, node))
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		err := w.client.Status().Patch(ctx, probe.DeepCopy(), patch, client.DryRunAll)
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err), nil
	})
	if err != nil {
		t.Fatal("the policy does not come into force: ", err)
	}
	if err := w.client.Delete(t.Context(), probe); err != nil {
		t.Fatal(err)
	}
	return func() {
		defer w.permitted(t, probe, patch)
		for _, o := range []client.Object{binding, policy} {
			if err := w.client.Delete(t.Context(), o); err != nil {
				t.Error(err)
			}
		}
	}
}

// permitted waits until the API server allows again what it refused.
func (w *fixture) permitted(t *testing.T, probe *resourcev1.ResourceClaim, patch client.Patch) {
	t.Helper()
	again := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: probe.Namespace, Name: probe.Name}, Spec: probe.Spec}
	w.create(t, again)
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		return w.client.Status().Patch(ctx, again.DeepCopy(), patch, client.DryRunAll) == nil, nil
	})
	if err != nil {
		t.Error("the policy stays in force: ", err)
	}
	if err := w.client.Delete(t.Context(), again); err != nil {
		t.Error(err)
	}
}
