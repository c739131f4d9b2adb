package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/muster-scheduler/muster/internal/vm"
)

func imageMapping(namespace, name string, spec any) runtime.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "virtlet.k8s/v1", "kind": "VirtletImageMapping", "metadata": map[string]any{"namespace": namespace, "name": name}, "spec": spec,
	}}
}

func images(objects ...runtime.Object) *fake.FakeDynamicClient {
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{ImageMappings(): "VirtletImageMappingList"}, objects...)
}

// TestImages: objects of kube-system count, by name, from the next question on; while the cluster is away the last answer does.
func TestImages(t *testing.T) {
	t.Parallel()
	c := images(
		imageMapping(Namespace, "b", nil),
		imageMapping(Namespace, "a", map[string]any{"translations": []any{map[string]any{"name": "x", "url": "http://u"}}}),
		imageMapping("tenant", "forged", map[string]any{"prefix": "evil"}),
	)
	var away error
	c.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return away != nil, nil, away })
	i := &Images{From: c}
	list := func(wantStale bool) string {
		t.Helper()
		objects, stale, err := i.List(t.Context())
		if err != nil || (stale != nil) != wantStale {
			t.Fatal(stale, err)
		}
		out := ""
		for _, o := range objects {
			out += o.Name + string(o.Spec) + ";"
		}
		return out
	}

	away = errors.New("connection refused")
	if _, _, err := i.List(t.Context()); vm.KindOf(err) != vm.Unavailable || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
	away = nil
	first := `a{"translations":[{"name":"x","url":"http://u"}]};b{};`
	if diff := cmp.Diff(first, list(false)); diff != "" {
		t.Error(diff)
	}
	if err := c.Tracker().Create(ImageMappings(), imageMapping(Namespace, "c", map[string]any{"prefix": "p"}), Namespace); err != nil {
		t.Fatal(err)
	}
	away = errors.New("connection refused")
	if diff := cmp.Diff(first, list(true)); diff != "" {
		t.Error(diff)
	}
	away = nil
	if diff := cmp.Diff(first+`c{"prefix":"p"};`, list(false)); diff != "" {
		t.Error(diff)
	}
	away = apierrors.NewNotFound(ImageMappings().GroupResource(), "") // their definition is gone
	if got := list(false); got != "" {
		t.Error(got)
	}
}

// TestImagesBounds: more than is taken is an error that names the limit, and not a part of it.
func TestImagesBounds(t *testing.T) {
	t.Parallel()
	many := make([]runtime.Object, maxObjects+1)
	for i := range many {
		many[i] = imageMapping(Namespace, fmt.Sprint("m", i), nil)
	}
	large := imageMapping(Namespace, "large", map[string]any{"prefix": strings.Repeat("p", maxKept)})
	for _, c := range []*fake.FakeDynamicClient{images(many...), images(large)} {
		if got, _, err := (&Images{From: c}).List(t.Context()); vm.KindOf(err) != vm.Invalid || got != nil || !strings.Contains(err.Error(), "at most 1000") {
			t.Errorf("%d objects, %v", len(got), err)
		}
	}
}
