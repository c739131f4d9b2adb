package kueue

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Where Kueue's manifests put its configuration.
const (
	configNamespace = "kueue-system"
	configName      = "kueue-manager-config"
)

// Kinds are the kinds of Kueue's that are read, in the order in which they are asked for.
func Kinds() []string {
	return []string{"ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass"}
}

// Look reads a cluster's objects, each kind in the newest version that is served, the PriorityClasses, and Kueue's configuration if it is
// where Kueue's manifests put it and may be read. absent are the kinds that the API server has in no version that is known here, and the
// configuration if it was not found.
func Look(ctx context.Context, reader client.Reader) (in *Objects, absent []string, err error) {
	in = &Objects{}
	for _, kind := range Kinds() {
		l, err := list(ctx, reader, kind, versions(kind))
		if err != nil {
			return nil, nil, err
		}
		if l == nil {
			absent = append(absent, kind)
			continue
		}
		for i := range l.Items {
			in.Add(l.Items[i].Object)
		}
	}
	classes := &unstructured.UnstructuredList{}
	classes.SetGroupVersionKind(schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClassList"})
	if err := reader.List(ctx, classes); err != nil {
		return nil, nil, fmt.Errorf("list PriorityClasses: %w", err)
	}
	for i := range classes.Items {
		in.Add(classes.Items[i].Object)
	}
	config := &unstructured.Unstructured{}
	config.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	if err := reader.Get(ctx, client.ObjectKey{Namespace: configNamespace, Name: configName}, config); err == nil {
		in.Add(config.Object)
	} else if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, nil, fmt.Errorf("get ConfigMap %s/%s: %w", configNamespace, configName, err)
	}
	if in.Config == nil {
		absent = append(absent, "configuration (ConfigMap "+configNamespace+"/"+configName+")")
	}
	return in, absent, nil
}

// list asks for a kind in the first of the versions that is served; nil if none is.
func list(ctx context.Context, reader client.Reader, kind string, versions []string) (*unstructured.UnstructuredList, error) {
	for _, version := range versions {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(schema.GroupVersionKind{Group: Group, Version: version, Kind: kind + "List"})
		switch err := reader.List(ctx, l); {
		case err == nil:
			for i := range l.Items {
				l.Items[i].SetGroupVersionKind(schema.GroupVersionKind{Group: Group, Version: version, Kind: kind})
			}
			return l, nil
		case !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("list %ss: %w", kind, err)
		}
	}
	return nil, nil
}
