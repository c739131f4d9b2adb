// Package cluster reads what a Kubernetes cluster has for a node: its labels, and the VirtletConfigMapping and VirtletImageMapping objects of kube-system, where
// Virtlet looked for them. It may read nothing else. How many objects there are, and how long the answers may take, is bounded.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/config"
)

// Namespace is where VirtletConfigMapping objects count.
const Namespace = "kube-system"

// Mappings is the resource of VirtletConfigMapping objects.
func Mappings() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "virtlet.k8s", Version: "v1", Resource: "virtletconfigmappings"}
}

// Bounds.
const (
	maxObjects = 1000
	page       = 100
	maxKept    = 16 << 20
	timeout    = 30 * time.Second
)

// Seen is what a cluster has for a node.
type Seen struct {
	Node     config.Node      `json:"node"`
	Mappings []config.Mapping `json:"mappings"`
}

// Read asks a cluster. Without the objects' definition there are none. An object whose spec has another shape than Virtlet's is an error of kind Invalid if
// it cannot be told whom it is for; a cluster that does not answer is Unavailable.
func Read(ctx context.Context, from dynamic.Interface, node string) (Seen, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	n, err := from.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return Seen{}, vm.Errorf(vm.Unavailable, "node %q: %w", node, err)
	}
	out := Seen{Node: config.Node{Name: node, Labels: n.GetLabels()}}
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := from.Resource(Mappings()).Namespace(Namespace).List(ctx, options)
		if apierrors.IsNotFound(err) {
			return out, nil
		}
		if err != nil {
			return Seen{}, vm.Errorf(vm.Unavailable, "VirtletConfigMapping objects: %w", err)
		}
		for i := range list.Items {
			m, err := mapping(&list.Items[i])
			if err != nil {
				return Seen{}, err
			}
			if out.Mappings = append(out.Mappings, m); len(out.Mappings) > maxObjects {
				return Seen{}, vm.Errorf(vm.Invalid, "VirtletConfigMapping objects: there are more than %d in %s", maxObjects, Namespace)
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return out, nil
		}
	}
}

func mapping(o *unstructured.Unstructured) (config.Mapping, error) {
	spec, err := json.Marshal(o.Object["spec"])
	if err != nil {
		return config.Mapping{}, fmt.Errorf("VirtletConfigMapping %s: %w", o.GetName(), err)
	}
	var m config.Mapping
	if err := json.Unmarshal(spec, &m); err != nil {
		return config.Mapping{}, vm.Errorf(vm.Invalid, "VirtletConfigMapping %s: spec: %w", o.GetName(), err)
	}
	m.Name = o.GetName()
	return m, nil
}

// Keep reads, and keeps the answer in a file. Where the cluster does not answer, the file's is given with the reason as stale: a node must be able to start its pods, the
// API server's among them, before there is an API server.
func Keep(ctx context.Context, from dynamic.Interface, node, file string) (seen Seen, stale, err error) {
	seen, err = Read(ctx, from, node)
	switch {
	case err == nil:
		return seen, nil, write(file, seen)
	case vm.KindOf(err) != vm.Unavailable:
		return Seen{}, nil, err
	}
	kept, bad := readFile(file)
	if errors.Is(bad, fs.ErrNotExist) {
		return Seen{}, nil, fmt.Errorf("%w (and there is no earlier answer in %s)", err, file)
	}
	if bad != nil || kept.Node.Name != node {
		return Seen{}, nil, fmt.Errorf("%w (and the earlier answer in %s cannot be used: %w)", err, file, errors.Join(bad, other(kept.Node.Name, node)))
	}
	return kept, err, nil
}

func other(have, want string) error {
	if have == want {
		return nil
	}
	return fmt.Errorf("it is node %q's", have)
}

func write(file string, seen Seen) error {
	text, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	if len(text) > maxKept {
		return vm.Errorf(vm.Invalid, "VirtletConfigMapping objects: they have %d bytes, and at most %d are taken", len(text), maxKept)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o711); err != nil { //nolint:gosec // QEMU's user gets through
		return err
	}
	part := file + ".part"
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return err
	}
	return os.Rename(part, file)
}

func readFile(file string) (out Seen, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return out, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxKept {
		return out, fmt.Errorf("it must be a file of at most %d bytes", maxKept)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(text, &out)
}
