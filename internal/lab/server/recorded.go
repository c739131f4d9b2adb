package server

import (
	"context"
	"encoding/json"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// put writes a key into etcd, before anybody else has looked at it.
type put func(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error)

// store writes recorded objects where the API server will find them when it starts: as they are, with their UIDs, times and
// statuses, which no request could set. Controllers see them all at once, so that none is taken for an orphan.
func store(ctx context.Context, objects []*unstructured.Unstructured, write put) error {
	for _, o := range objects {
		key, err := keyOf(o)
		if err != nil {
			return fmt.Errorf("store recorded objects: %w", err)
		}
		o = o.DeepCopy()
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
		text, err := json.Marshal(o)
		if err != nil {
			return fmt.Errorf("store %s: %w", key, err)
		}
		if _, err := write(ctx, &pb.PutRequest{Key: []byte(key), Value: text}); err != nil {
			return fmt.Errorf("store %s: %w", key, err)
		}
	}
	return nil
}

// keyOf is where the API server keeps an object.
func keyOf(o *unstructured.Unstructured) (string, error) {
	kind := o.GroupVersionKind().GroupKind()
	folder, known := map[schema.GroupKind]string{
		{Kind: "Namespace"}:           "namespaces",
		{Kind: "Node"}:                "minions",
		{Kind: "Pod"}:                 "pods",
		{Kind: "ConfigMap"}:           "configmaps",
		{Kind: "ServiceAccount"}:      "serviceaccounts",
		{Kind: "Secret"}:              "secrets",
		{Kind: "Service"}:             "services/specs",
		{Group: "batch", Kind: "Job"}: "jobs",
		{Group: "scheduling.k8s.io", Kind: "PriorityClass"}: "priorityclasses",
		{Group: "coordination.k8s.io", Kind: "Lease"}:       "leases",
		{Group: "scheduling.run.ai", Kind: "Queue"}:         "scheduling.run.ai/queues",
		{Group: "scheduling.run.ai", Kind: "PodGroup"}:      "scheduling.run.ai/podgroups",
		{Group: "scheduling.run.ai", Kind: "BindRequest"}:   "scheduling.run.ai/bindrequests",
		{Group: "batch.volcano.sh", Kind: "Job"}:            "batch.volcano.sh/jobs",
		{Group: "scheduling.volcano.sh", Kind: "Queue"}:     "scheduling.volcano.sh/queues",
		{Group: "scheduling.volcano.sh", Kind: "PodGroup"}:  "scheduling.volcano.sh/podgroups",
		{Group: "kai.scheduler", Kind: "Topology"}:          "kai.scheduler/topologies",
		{Group: "kai.scheduler", Kind: "Config"}:            "kai.scheduler/configs",
		{Group: "kai.scheduler", Kind: "SchedulingShard"}:   "kai.scheduler/schedulingshards",
	}[kind]
	if !known {
		return "", fmt.Errorf("%s %s/%s: objects of this kind cannot be recorded ones", kind, o.GetNamespace(), o.GetName())
	}
	if o.GetName() == "" || o.GetUID() == "" {
		return "", fmt.Errorf("%s %s/%s: a recorded object has a name and a UID", kind, o.GetNamespace(), o.GetName())
	}
	key := "/registry/" + folder + "/"
	if ns := o.GetNamespace(); ns != "" {
		key += ns + "/"
	}
	return key + o.GetName(), nil
}
