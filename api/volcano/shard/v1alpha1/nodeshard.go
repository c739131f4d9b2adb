package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeShard is the nodes that one of several schedulers takes care of. Its name is the scheduler's.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nsh
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeShard struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what the scheduler should have.
	Spec NodeShardSpec `json:"spec"`
	// Status is what it says it has.
	// +optional
	Status NodeShardStatus `json:"status,omitempty"`
}

// NodeShardSpec is what a scheduler should have.
type NodeShardSpec struct {
	// NodesDesired are names of nodes.
	NodesDesired []string `json:"nodesDesired"`
}

// NodeShardStatus is what a scheduler says it has.
type NodeShardStatus struct {
	// LastUpdateTime is when it last said so.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty"`
	// NodesInUse are the nodes that it places pods on.
	// +optional
	NodesInUse []string `json:"nodesInUse,omitempty"`
	// NodesToRemove are nodes that it is giving up.
	// +optional
	NodesToRemove []string `json:"nodesToRemove,omitempty"`
	// NodesToAdd are nodes that others have not given up yet.
	// +optional
	NodesToAdd []string `json:"nodesToAdd,omitempty"`
}

// NodeShardList is a list of NodeShards.
//
// +kubebuilder:object:root=true
type NodeShardList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeShard `json:"items"`
}
