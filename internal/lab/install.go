package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// writers is how many objects are written side by side.
const writers = 32

// ReadCRDs returns the content of every .yaml, .yml and .json file right below dir, in order of their names.
func ReadCRDs(dir string) ([][]byte, error) {
	var docs [][]byte
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the CRDs: %w", err)
	}
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".yaml", ".yml", ".json":
		default:
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the CRDs: %w", err)
		}
		docs = append(docs, b)
	}
	return docs, nil
}

// InstallCRDs creates or replaces the CustomResourceDefinitions in docs (each one or more YAML documents) and
// returns when the API server has established them all. Of two of one name the later counts. A document of another
// kind is an error.
func InstallCRDs(ctx context.Context, cfg *rest.Config, docs [][]byte) error {
	crds, err := parseCRDs(docs)
	if err != nil || len(crds) == 0 {
		return err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("install CRDs: %w", err)
	}
	api := client.Resource(crdResource)
	err = each(ctx, 4, crds, func(ctx context.Context, crd *unstructured.Unstructured) error {
		_, err := api.Create(ctx, crd, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			var old *unstructured.Unstructured
			if old, err = api.Get(ctx, crd.GetName(), metav1.GetOptions{}); err == nil {
				crd.SetResourceVersion(old.GetResourceVersion())
				_, err = api.Update(ctx, crd, metav1.UpdateOptions{})
			}
		}
		if err != nil {
			return fmt.Errorf("install CRD %s: %w", crd.GetName(), err)
		}
		err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			o, err := api.Get(ctx, crd.GetName(), metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			return established(o), nil
		})
		if err != nil {
			return fmt.Errorf("install CRD %s: not established: %w", crd.GetName(), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return awaitDiscovery(ctx, cfg, crds)
}

// InstallObjects creates objects without a namespace. Those that exist already stay as they are.
func InstallObjects(ctx context.Context, cfg *rest.Config, objects []*unstructured.Unstructured) error {
	if len(objects) == 0 {
		return nil
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("install objects: %w", err)
	}
	return each(ctx, 4, objects, func(ctx context.Context, o *unstructured.Unstructured) error {
		resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		_, err := client.Resource(resource).Create(ctx, o, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("install %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		return nil
	})
}

// awaitDiscovery waits until discovery lists the kinds of the CRDs. A garbage collector that starts before that does not
// know them, and looks again only every thirty seconds.
func awaitDiscovery(ctx context.Context, cfg *rest.Config, crds []*unstructured.Unstructured) error {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("install CRDs: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		lists, err := client.ServerPreferredResources()
		if err != nil {
			return false, nil // a group whose versions are on their way
		}
		known := map[string]bool{}
		for _, list := range lists {
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil {
				continue
			}
			for i := range list.APIResources {
				known[list.APIResources[i].Name+"."+gv.Group] = true
			}
		}
		for _, crd := range crds {
			if !known[crd.GetName()] {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("install CRDs: discovery does not list them: %w", err)
	}
	return nil
}

func parseCRDs(docs [][]byte) ([]*unstructured.Unstructured, error) {
	var crds []*unstructured.Unstructured
	index := map[string]int{}
	for i, doc := range docs {
		r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(doc)))
		for {
			part, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("CRD document %d: %w", i, err)
			}
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(part, &o.Object); err != nil {
				return nil, fmt.Errorf("CRD document %d: %w", i, err)
			}
			if len(o.Object) == 0 {
				continue
			}
			if o.GetKind() != "CustomResourceDefinition" {
				return nil, fmt.Errorf("CRD document %d: %s %s is no CustomResourceDefinition", i, o.GetKind(), o.GetName())
			}
			if at, known := index[o.GetName()]; known {
				crds[at] = o
				continue
			}
			index[o.GetName()] = len(crds)
			crds = append(crds, o)
		}
	}
	return crds, nil
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
			return true
		}
	}
	return false
}

// InstallNodes creates the nodes that are missing and returns when all of them are ready and schedulable, that is
// when the node controller has taken its not-ready taint off them.
func InstallNodes(ctx context.Context, client kubernetes.Interface, nodes []*corev1.Node) error {
	err := each(ctx, writers, nodes, func(ctx context.Context, n *corev1.Node) error {
		_, err := client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create node %s: %w", n.Name, err)
		}
		return nil
	})
	if err != nil || len(nodes) == 0 {
		return err
	}
	want := map[string]bool{}
	for _, n := range nodes {
		want[n.Name] = true
	}
	err = wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		ready := 0
		for i := range list.Items {
			if n := &list.Items[i]; want[n.Name] && NodeReady(n) {
				ready++
			}
		}
		return ready == len(want), nil
	})
	if err != nil {
		return fmt.Errorf("wait for %d nodes to be ready: %w", len(nodes), err)
	}
	return nil
}

// NodeReady says whether n is ready and free of the node controller's not-ready and unreachable taints.
func NodeReady(n *corev1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable {
			return false
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// each calls f for every item, with at most n calls at a time, and returns the first error.
func each[T any](ctx context.Context, n int, items []T, f func(context.Context, T) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(n)
	for _, item := range items {
		g.Go(func() error { return f(ctx, item) })
	}
	return g.Wait()
}
