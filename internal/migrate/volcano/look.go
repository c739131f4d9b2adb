package volcano

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	config "github.com/muster-scheduler/muster/api/volcano/config/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	shard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	topology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
)

// The kinds that are asked for, as messages call them.
const (
	kindDeployments = "Deployments"
	kindLeases      = "Leases"
	kindPods        = "Pods"
	kindWebhooks    = "webhook configurations"
	kindConfigMaps  = "ConfigMaps"
)

// schedulerConfig is the ConfigMap that Volcano's chart has its scheduler file in.
const schedulerConfig = "volcano-scheduler-configmap"

// foreign are kinds that Volcano's other programs read, and no type of this module is of.
func foreign() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: "training.volcano.sh", Version: "v1alpha1", Kind: "HyperJob"},
		{Group: "datadependency.volcano.sh", Version: "v1alpha1", Kind: "DataSource"},
		{Group: "datadependency.volcano.sh", Version: "v1alpha1", Kind: "DataSourceClaim"},
	}
}

// Look reads a cluster's objects. What may not be read, and kinds that are not served, are noted; any other error ends it. Of ConfigMaps it reads those that Volcano's programs mount, and those
// of Volcano's names beside them.
func Look(ctx context.Context, reader client.Reader) (*Objects, error) {
	in := &Objects{Unread: map[string]error{}}
	for _, one := range []struct {
		kind     string
		volcanos bool
		into     client.ObjectList
	}{
		{kindDeployments, false, &appsv1.DeploymentList{}},
		{kindPods, false, &corev1.PodList{}},
		{kindLeases, false, &coordinationv1.LeaseList{}},
		{kindWebhooks, false, &admissionregistrationv1.ValidatingWebhookConfigurationList{}},
		{kindWebhooks, false, &admissionregistrationv1.MutatingWebhookConfigurationList{}},
		{"Queues", true, &scheduling.QueueList{}},
		{"PodGroups", true, &scheduling.PodGroupList{}},
		{"Jobs", true, &batch.JobList{}},
		{"Commands", true, &bus.CommandList{}},
		{"CronJobs", true, &batch.CronJobList{}},
		{"JobFlows", true, &flow.JobFlowList{}},
		{"JobTemplates", true, &flow.JobTemplateList{}},
		{"HyperNodes", true, &topology.HyperNodeList{}},
		{"NodeShards", true, &shard.NodeShardList{}},
		{"ColocationConfigurations", true, &config.ColocationConfigurationList{}},
	} {
		served, err := in.list(ctx, reader, one.into, one.kind)
		if err != nil {
			return nil, err
		}
		if !served && one.volcanos {
			in.Absent = append(in.Absent, one.kind)
		}
	}
	for _, gvk := range foreign() {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if _, err := in.list(ctx, reader, l, gvk.Kind+"s"); err != nil {
			return nil, err
		}
	}
	for _, ref := range in.maps() {
		var m corev1.ConfigMap
		switch err := reader.Get(ctx, ref, &m); {
		case err == nil:
			in.Add(&m)
		case apierrors.IsForbidden(err):
			in.Unread[kindConfigMaps] = fmt.Errorf("get ConfigMap %s: %w", ref, err)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("get ConfigMap %s: %w", ref, err)
		}
	}
	return in, nil
}

// list reads a kind; served is false where the API server does not have it.
func (o *Objects) list(ctx context.Context, reader client.Reader, into client.ObjectList, kind string) (served bool, err error) {
	switch err := reader.List(ctx, into); {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		o.Unread[kind] = fmt.Errorf("list %s: %w", kind, err)
		return true, nil
	case err != nil:
		return false, fmt.Errorf("list %s: %w", kind, err)
	}
	return true, meta.EachListItem(into, func(item runtime.Object) error {
		if object, ok := item.(client.Object); ok {
			o.Add(object)
		}
		return nil
	})
}

// maps are the ConfigMaps that may say what Volcano's programs do, each once, in order.
func (o *Objects) maps() (out []client.ObjectKey) {
	for _, namespace := range o.namespaces() {
		names := []string{schedulerConfig, keys.ControllerConfig, keys.AdmissionConfig, keys.ShardingConfig}
		for i := range o.Programs {
			if o.Programs[i].Namespace == namespace {
				names = append(names, o.Programs[i].Maps...)
			}
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			out = append(out, client.ObjectKey{Namespace: namespace, Name: name})
		}
	}
	return out
}
