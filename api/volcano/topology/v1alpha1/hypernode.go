package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HyperNode is a domain of the network: its members reach each other at the same cost.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=hn
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="Tier",type=string,JSONPath=`.spec.tier`
// +kubebuilder:printcolumn:name="TierName",type=string,JSONPath=`.spec.tierName`
// +kubebuilder:printcolumn:name="NodeCount",type=integer,JSONPath=`.status.nodeCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HyperNode struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec says what belongs to the domain.
	// +optional
	Spec HyperNodeSpec `json:"spec,omitempty"`
	// Status is what was found.
	// +optional
	Status HyperNodeStatus `json:"status,omitempty"`
}

// HyperNodeSpec says what belongs to a domain.
type HyperNodeSpec struct {
	// Tier is the domain's size: members of a lower tier are closer to each other.
	// +kubebuilder:validation:Minimum=0
	Tier int `json:"tier"`
	// TierName is a word for the tier.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TierName string `json:"tierName,omitempty"`
	// Members are nodes, or domains of lower tiers.
	// +optional
	// +kubebuilder:validation:MinItems=1
	Members []MemberSpec `json:"members,omitempty"`
}

// MemberType says what a member is.
//
// +kubebuilder:validation:Enum=Node;HyperNode
type MemberType string

const (
	// MemberTypeNode is a node.
	MemberTypeNode MemberType = "Node"
	// MemberTypeHyperNode is a domain.
	MemberTypeHyperNode MemberType = "HyperNode"
)

// MemberSpec is one member, or several alike.
type MemberSpec struct {
	// Type says what they are.
	Type MemberType `json:"type"`
	// Selector says which.
	// +optional
	Selector MemberSelector `json:"selector,omitempty"`
}

// MemberSelector says which nodes or domains are members. Exactly one of its fields is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.exactMatch) || has(self.regexMatch) || has(self.labelMatch)",message="one of exactMatch, regexMatch and labelMatch is needed"
// +kubebuilder:validation:XValidation:rule="(has(self.exactMatch) ? 1 : 0) + (has(self.regexMatch) ? 1 : 0) + (has(self.labelMatch) ? 1 : 0) <= 1",message="exactMatch, regexMatch and labelMatch exclude each other"
type MemberSelector struct {
	// ExactMatch is by name.
	// +optional
	ExactMatch *ExactMatch `json:"exactMatch,omitempty"`
	// RegexMatch is by a pattern of the name.
	// +optional
	RegexMatch *RegexMatch `json:"regexMatch,omitempty"`
	// LabelMatch is by labels; for nodes only.
	// +optional
	LabelMatch *metav1.LabelSelector `json:"labelMatch,omitempty"`
}

// ExactMatch is a name.
type ExactMatch struct {
	// Name is the member's.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
}

// RegexMatch is a pattern of names.
type RegexMatch struct {
	// Pattern is a regular expression that the name must match somewhere.
	// +kubebuilder:validation:MinLength=1
	Pattern string `json:"pattern"`
}

// HyperNodeStatus is what was found.
type HyperNodeStatus struct {
	// Conditions say what is the matter with it.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// NodeCount is how many nodes are in the domain.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeCount int64 `json:"nodeCount,omitempty"`
}

// HyperNodeList is a list of HyperNodes.
//
// +kubebuilder:object:root=true
type HyperNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HyperNode `json:"items"`
}
