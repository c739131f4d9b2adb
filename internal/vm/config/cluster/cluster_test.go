package cluster

import (
	"errors"
	"os"
	"path/filepath"
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
	"github.com/muster-scheduler/muster/internal/vm/config"
)

func object(namespace, name string, spec any) runtime.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "virtlet.k8s/v1", "kind": "VirtletConfigMapping", "metadata": map[string]any{"namespace": namespace, "name": name}, "spec": spec,
	}}
}

func client(objects ...runtime.Object) *fake.FakeDynamicClient {
	node := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n1", "labels": map[string]any{"disks": "nvme"}},
	}}
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{Mappings(): "VirtletConfigMappingList"},
		append(objects, node)...)
}

// TestRead: the node's labels and the objects of kube-system reach the settings, typed as an API server has them.
func TestRead(t *testing.T) {
	t.Parallel()
	seen, err := Read(t.Context(), client(
		object(Namespace, "nvme", map[string]any{"nodeSelector": map[string]any{"disks": "nvme"}, "priority": int64(10), "config": map[string]any{"streamPort": int64(10011), "disableKVM": true}}),
		object("tenant", "forged", map[string]any{"config": map[string]any{"libvirtURI": "evil"}}),
		object(Namespace, "empty", nil),
	), "n1")
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Resolve(config.Input{Mappings: seen.Mappings, Node: seen.Node})
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for _, v := range got {
		if !v.Default() {
			set[v.Key.Field] = v.Text + " by " + v.Source
		}
	}
	want := map[string]string{"streamPort": "10011 by VirtletConfigMapping nvme", "disableKVM": "true by VirtletConfigMapping nvme"}
	if diff := cmp.Diff(want, set); diff != "" {
		t.Error(diff)
	}
}

// TestReadBad: no definition is no object; a strange object is named; a cluster that does not answer, or has no such node, is Unavailable.
func TestReadBad(t *testing.T) {
	t.Parallel()
	none := client()
	none.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(Mappings().GroupResource(), "")
	})
	if seen, err := Read(t.Context(), none, "n1"); err != nil || len(seen.Mappings) > 0 || seen.Node.Labels["disks"] != "nvme" {
		t.Errorf("%+v, %v", seen, err)
	}
	if _, err := Read(t.Context(), client(object(Namespace, "odd", map[string]any{"nodeSelector": "x"})), "n1"); vm.KindOf(err) != vm.Invalid || !strings.Contains(err.Error(), "VirtletConfigMapping odd: spec") {
		t.Error(err)
	}
	if _, err := Read(t.Context(), client(), "n2"); vm.KindOf(err) != vm.Unavailable || !strings.Contains(err.Error(), `node "n2"`) {
		t.Error(err)
	}
}

// TestKeep: what a cluster said is used while it does not answer, for the same node, and not for longer than that.
func TestKeep(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "d", "mappings.json")
	c := client(object(Namespace, "m", map[string]any{"config": map[string]any{"logLevel": int64(3)}}))
	away := false
	c.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away, nil, errors.New("connection refused")
	})
	away = true
	if _, _, err := Keep(t.Context(), c, "n1", file); vm.KindOf(err) != vm.Unavailable || !strings.Contains(err.Error(), "no earlier answer") {
		t.Fatal(err)
	}
	away = false
	first, stale, err := Keep(t.Context(), c, "n1", file)
	if err != nil || stale != nil {
		t.Fatal(stale, err)
	}
	away = true
	again, stale, err := Keep(t.Context(), c, "n1", file)
	if err != nil || stale == nil || !strings.Contains(stale.Error(), "connection refused") {
		t.Fatal(stale, err)
	}
	for _, seen := range []Seen{first, again} {
		got, err := config.Resolve(config.Input{Mappings: seen.Mappings, Node: seen.Node})
		if err != nil || got[len(got)-1].Text != "3" {
			t.Errorf("%v, %v", got, err)
		}
	}
	if _, _, err := Keep(t.Context(), c, "n2", file); err == nil || !strings.Contains(err.Error(), `it is node "n1"'s`) {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Keep(t.Context(), c, "n1", file); err == nil || !strings.Contains(err.Error(), "cannot be used") {
		t.Error(err)
	}
}
