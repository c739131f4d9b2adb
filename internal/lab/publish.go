package lab

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// nodeObjects are what the programs on a node publish about it, a function a kind. The node is as Pool.Nodes made it.
var nodeObjects = [...]func(Pool, *corev1.Node) []runtime.Object{resourceSlices, resourceTopology}

// Published returns what the programs on the fleet's nodes, and the administrators of their drivers, make in a real cluster
// besides the nodes: DeviceClasses, ResourceSlices and NodeResourceTopologies. It fails as Nodes does.
func (f Fleet) Published() ([]runtime.Object, error) {
	var out []runtime.Object
	classes := map[string]bool{}
	for i, p := range f.Pools {
		nodes, err := p.Nodes()
		if err != nil {
			return nil, fmt.Errorf("pools[%d]: %w", i, err)
		}
		for _, d := range p.Devices {
			if name := d.class(); !classes[name] {
				classes[name] = true
				out = append(out, deviceClass(name, d.Driver))
			}
		}
		for _, n := range nodes {
			for _, make := range nodeObjects {
				out = append(out, make(p, n)...)
			}
		}
	}
	return out, nil
}

func (d Devices) class() string {
	if d.Class != "" {
		return d.Class
	}
	return d.Driver
}

func deviceClass(name, driver string) *resourcev1.DeviceClass {
	c := &resourcev1.DeviceClass{TypeMeta: metav1.TypeMeta{APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "DeviceClass"}}
	c.Name = name
	c.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: "device.driver == " + strconv.Quote(driver)}}}
	return c
}

// resourceSlices returns a slice per driver, each a pool of its own, called as the node is.
func resourceSlices(p Pool, n *corev1.Node) []runtime.Object {
	var out []runtime.Object
	for _, d := range p.Devices {
		s := &resourcev1.ResourceSlice{TypeMeta: metav1.TypeMeta{APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "ResourceSlice"}}
		s.Name = n.Name + "-" + d.Driver
		s.Spec = resourcev1.ResourceSliceSpec{
			Driver: d.Driver, NodeName: &n.Name, Pool: resourcev1.ResourcePool{Name: n.Name, Generation: 1, ResourceSliceCount: 1},
		}
		for i := range d.Count {
			s.Spec.Devices = append(s.Spec.Devices, d.device(i))
		}
		out = append(out, s)
	}
	return out
}

func (d Devices) device(i int) resourcev1.Device {
	out := resourcev1.Device{Name: "gpu-" + strconv.Itoa(i)}
	for _, k := range slices.Sorted(maps.Keys(d.Attributes)) {
		text := d.Attributes[k]
		value := resourcev1.DeviceAttribute{StringValue: &text}
		if x, err := strconv.ParseInt(text, 10, 64); err == nil {
			value = resourcev1.DeviceAttribute{IntValue: &x}
		}
		if out.Attributes == nil {
			out.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
		}
		out.Attributes[resourcev1.QualifiedName(k)] = value
	}
	for _, k := range slices.Sorted(maps.Keys(d.Capacity)) {
		if out.Capacity == nil {
			out.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}
		}
		out.Capacity[resourcev1.QualifiedName(k)] = resourcev1.DeviceCapacity{Value: resource.MustParse(d.Capacity[k])} // validate has parsed it
	}
	return out
}

// resourceTopology returns the NodeResourceTopology that an exporter on the node writes, as topology.node.k8s.io/v1alpha2 has
// it.
func resourceTopology(p Pool, n *corev1.Node) []runtime.Object {
	if p.NUMA == nil {
		return nil
	}
	policy, scope := p.NUMA.Policy, p.NUMA.Scope
	if policy == "" {
		policy = "single-numa-node"
	}
	if scope == "" {
		scope = "container"
	}
	var zones []any
	for z := range p.NUMA.Zones {
		var resources []any
		part := zoned(n.Status.Allocatable, p.NUMA.Zones, z)
		for _, name := range slices.Sorted(maps.Keys(part)) {
			q := part[name]
			resources = append(resources, map[string]any{"name": string(name), "capacity": q.String(), "allocatable": q.String(), "available": q.String()})
		}
		zones = append(zones, map[string]any{"name": "node-" + strconv.Itoa(z), "type": "Node", "resources": resources})
	}
	return []runtime.Object{&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
		"metadata": map[string]any{"name": n.Name},
		"attributes": []any{
			map[string]any{"name": "topologyManagerPolicy", "value": policy},
			map[string]any{"name": "topologyManagerScope", "value": scope},
		},
		"zones": zones,
	}}}
}

// Publish creates those of the objects that are missing. It waits up to half a minute for their kinds to be served, and
// names one that is not.
func Publish(ctx context.Context, cfg *rest.Config, objects []runtime.Object) error {
	if len(objects) == 0 {
		return nil
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("publish what nodes offer: %w", err)
	}
	var all []*unstructured.Unstructured
	for _, o := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return fmt.Errorf("publish what nodes offer: %w", err)
		}
		all = append(all, &unstructured.Unstructured{Object: content})
	}
	mapper, err := served(ctx, cfg, all)
	if err != nil {
		return err
	}
	return each(ctx, writers, all, func(ctx context.Context, o *unstructured.Unstructured) error {
		gvk := o.GroupVersionKind()
		m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return fmt.Errorf("publish %s %s: %w", gvk.Kind, o.GetName(), err)
		}
		_, err = client.Resource(m.Resource).Create(ctx, o, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("publish %s %s: %w", gvk.Kind, o.GetName(), err)
		}
		return nil
	})
}

// served returns the names under which the API server serves the kinds of the objects, when it serves them all.
func served(ctx context.Context, cfg *rest.Config, objects []*unstructured.Unstructured) (meta.RESTMapper, error) {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("publish what nodes offer: %w", err)
	}
	var mapper meta.RESTMapper
	missing := ""
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		groups, err := restmapper.GetAPIGroupResources(client)
		if err != nil {
			return false, nil // a group whose versions are on their way
		}
		mapper = restmapper.NewDiscoveryRESTMapper(groups)
		for _, o := range objects {
			gvk := o.GroupVersionKind()
			if _, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
				missing = gvk.String()
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("publish what nodes offer: %s is not served; its definition can be given by --crds: %w", missing, err)
	}
	return mapper, nil
}
