//go:build lab

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/api/crds"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/lab"
	"github.com/muster-scheduler/muster/internal/see"
)

// TestLab runs every command against a real API server: first without our kinds, then with a gang that waits.
func TestLab(t *testing.T) {
	bare := start(t, nil)
	kinds, err := dynamic.NewForConfig(bare.Config())
	if err != nil {
		t.Fatal(err)
	}
	queues := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if err := kinds.Resource(queues).Delete(t.Context(), "queues.scheduling.run.ai", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var said error
	_ = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		_, said = call(t, bare, "status") // the API server takes a moment to stop serving the kind
		return said != nil && strings.Contains(said.Error(), "kubectl apply -f api/crds"), nil
	})
	if said == nil || !strings.Contains(said.Error(), "kubectl apply -f api/crds") {
		t.Errorf("without the CRDs: %v", said)
	}
	var definitions [][]byte
	for _, file := range crds.All() {
		definitions = append(definitions, file.YAML)
	}
	l := start(t, definitions)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, queuev2.AddToScheme, v2alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(l.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	least := int32(2)
	pod := func(name, scheduler string, annotations map[string]string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: annotations},
			Spec: v1.PodSpec{SchedulerName: scheduler, Containers: []v1.Container{{
				Name: "c", Image: "i",
				Resources: v1.ResourceRequirements{Limits: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}},
			}}},
		}
	}
	for _, o := range []client.Object{
		&queuev2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}},
		&v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train"}, Spec: v2alpha2.PodGroupSpec{MinMember: &least, Queue: "q"}},
		pod("a", "kai-scheduler", map[string]string{"pod-group-name": "train"}), pod("b", "kai-scheduler", map[string]string{"pod-group-name": "train"}),
		pod("stranger", "default-scheduler", nil), pod("lone", "kai-scheduler", nil), pod("lost", "kai-scheduler", map[string]string{"pod-group-name": "away"}),
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []struct {
		args []string
		text string // in the output, or in the error
	}{
		{[]string{"status"}, "1 of 1 take pods"},
		{[]string{"queue", "list"}, "QUEUE (gpu)"},
		{[]string{"queue", "list", "--resource", "gold"}, `--resource is "gold"; this cluster has cpu, memory`},
		{[]string{"gang", "list"}, "train"},
		{[]string{"gang", "list", "-n", "kube-system"}, "No gangs in namespace kube-system"},
		{[]string{"gang", "list", "--queue", "p"}, `queue "p" does not exist; did you mean q?`},
		{[]string{"gang", "list", "-o", "wide"}, `--output is "wide"; it must be table, json or yaml`},
		{[]string{"explain", "gang", "train"}, "what would change it"},
		{[]string{"explain", "train"}, "what would change it"},
		{[]string{"explain", "a"}, "pod default/a: pending\ngang default/train: "},
		{[]string{"explain", "gang", "trian"}, "did you mean train?"},
		{[]string{"explain", "gang", "train", "-n", "kube-system"}, "but one in namespace default: add -n default"},
		{[]string{"explain", "pod", "a"}, "pod default/a: pending\ngang default/train: "},
		{[]string{"explain", "pod", "stranger"}, `its spec.schedulerName is "default-scheduler"`},
		{[]string{"explain", "pod", "lone"}, "The podgrouper writes one"},
		{[]string{"explain", "pod", "lost"}, "PodGroup default/away"},
	} {
		out, err := call(t, l, want.args...)
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, want.text) {
			t.Errorf("muster %s: %q is not in\n%s", strings.Join(want.args, " "), want.text, out)
		}
	}
	var e see.Explanation
	out, err := call(t, l, "explain", "gang", "train", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), &e); err != nil || e.Gang != "train" || len(e.Remedies) == 0 || e.Kind != "Explanation" {
		t.Errorf("as JSON: %v\n%s", err, out)
	}
}

func start(t *testing.T, definitions [][]byte) *lab.Lab {
	t.Helper()
	l, err := lab.Start(t.Context(), lab.Options{
		CRDs: definitions, Logf: t.Logf,
		Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "gpu", Prefix: "n", Count: 1, GPUs: 8, CPU: "16"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// call runs one command as a user would.
func call(t *testing.T, l *lab.Lab, args ...string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "muster", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(New(Deps{Version: "test", Registry: func(bool) engine.Registry { return builtin.Registry() }})...)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(append(args, "--kubeconfig", l.Kubeconfig()))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}
