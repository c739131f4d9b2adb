package enginetest

import (
	"bytes"
	"fmt"

	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// newObject returns an empty object of a kind, nil for a kind that scenarios do not know.
func newObject(kind string) Object {
	switch kind {
	case "Node":
		return &v1.Node{}
	case "Pod":
		return &v1.Pod{}
	case "Queue":
		return &v2.Queue{}
	case "PodGroup":
		return &v2alpha2.PodGroup{}
	case "PriorityClass":
		return &schedulingv1.PriorityClass{}
	case "ConfigMap":
		return &v1.ConfigMap{}
	case "Namespace":
		return &v1.Namespace{}
	case "PersistentVolume":
		return &v1.PersistentVolume{}
	case "PersistentVolumeClaim":
		return &v1.PersistentVolumeClaim{}
	case "StorageClass":
		return &storagev1.StorageClass{}
	case "CSINode":
		return &storagev1.CSINode{}
	case "CSIDriver":
		return &storagev1.CSIDriver{}
	case "CSIStorageCapacity":
		return &storagev1.CSIStorageCapacity{}
	case "PodDisruptionBudget":
		return &policyv1.PodDisruptionBudget{}
	case "Topology":
		return &v1alpha1.Topology{}
	case "NodeResourceTopology":
		return &topologyv1alpha2.NodeResourceTopology{}
	case "DeviceClass":
		return &resourcev1.DeviceClass{}
	case "ResourceSlice":
		return &resourcev1.ResourceSlice{}
	case "ResourceClaim":
		return &resourcev1.ResourceClaim{}
	case "ResourceClaimTemplate":
		return &resourcev1.ResourceClaimTemplate{}
	}
	return nil
}

// parseManifests reads YAML documents as they are, without any validation an API server would do.
func parseManifests(text string) ([]Object, error) {
	var out []Object
	for i, doc := range bytes.Split([]byte(text), []byte("\n---")) {
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		o := newObject(kind.Kind)
		if o == nil {
			return nil, fmt.Errorf("document %d: kind %q is unknown to scenarios", i+1, kind.Kind)
		}
		if err := yaml.UnmarshalStrict(doc, o); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		if o.GetNamespace() == "" && namespaced(o) {
			o.SetNamespace(defaultSpace)
		}
		out = append(out, o)
	}
	return out, nil
}

func namespaced(o Object) bool {
	switch o.(type) {
	case *v1.Pod, *v2alpha2.PodGroup, *v1.ConfigMap, *v1.PersistentVolumeClaim, *storagev1.CSIStorageCapacity, *policyv1.PodDisruptionBudget,
		*resourcev1.ResourceClaim, *resourcev1.ResourceClaimTemplate:
		return true
	}
	return false
}

// kindOf is the kind of an object that newObject made.
func kindOf(o Object) string {
	switch o.(type) {
	case *v1.Node:
		return "Node"
	case *v1.Pod:
		return "Pod"
	case *v2.Queue:
		return "Queue"
	case *v2alpha2.PodGroup:
		return "PodGroup"
	case *schedulingv1.PriorityClass:
		return "PriorityClass"
	case *v1.ConfigMap:
		return "ConfigMap"
	case *v1.Namespace:
		return "Namespace"
	case *v1.PersistentVolume:
		return "PersistentVolume"
	case *v1.PersistentVolumeClaim:
		return "PersistentVolumeClaim"
	case *storagev1.StorageClass:
		return "StorageClass"
	case *storagev1.CSINode:
		return "CSINode"
	case *storagev1.CSIDriver:
		return "CSIDriver"
	case *storagev1.CSIStorageCapacity:
		return "CSIStorageCapacity"
	case *policyv1.PodDisruptionBudget:
		return "PodDisruptionBudget"
	case *v1alpha1.Topology:
		return "Topology"
	case *topologyv1alpha2.NodeResourceTopology:
		return "NodeResourceTopology"
	case *resourcev1.DeviceClass:
		return "DeviceClass"
	case *resourcev1.ResourceSlice:
		return "ResourceSlice"
	case *resourcev1.ResourceClaim:
		return "ResourceClaim"
	case *resourcev1.ResourceClaimTemplate:
		return "ResourceClaimTemplate"
	}
	return ""
}
