package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MaxTopologyLevels is the largest number of levels that the API server admits in one Topology.
const MaxTopologyLevels = 16

// TopologySpec lists the levels of one physical layout.
type TopologySpec struct {
	// Levels name the node labels of the layout, from the widest domain (for instance a zone) to the narrowest
	// (often the host). At least 1, at most 16. The sequence of node labels is fixed once the object exists;
	// aliases may be changed at any time.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.map(l, l.nodeLabel) == oldSelf.map(l, l.nodeLabel)",message="the sequence of node labels cannot be changed, only aliases can"
	// +kubebuilder:validation:XValidation:rule="size(self.filter(i, size(self.filter(j, j.nodeLabel == i.nodeLabel)) > 1)) == 0",message="each node label may appear in one level only"
	// +kubebuilder:validation:XValidation:rule="self.all(i, !has(i.alias) || size(self.filter(j, has(j.alias) && j.alias == i.alias)) == 1)",message="each alias may be given to one level only"
	// +kubebuilder:validation:XValidation:rule="self.all(i, !has(i.alias) || !self.exists(j, j.nodeLabel == i.alias))",message="an alias must differ from every node label of the Topology"
	// +kubebuilder:validation:XValidation:rule="size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0 || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",message="kubernetes.io/hostname may only be the last, narrowest level"
	Levels []TopologyLevel `json:"levels"`
}

// TopologyLevel is one level of a Topology: nodes that carry the same value of NodeLabel, and agree on all wider
// levels, form one domain.
type TopologyLevel struct {
	// NodeLabel is the key of the node label whose value names the domain, for instance topology.kubernetes.io/zone.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`
	NodeLabel string `json:"nodeLabel"`

	// Alias is a short name that workloads may use for this level instead of NodeLabel. Aliases are unique within
	// a Topology and differ from all its node labels.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`
	Alias string `json:"alias,omitempty"`
}

// Topology describes how the nodes of the cluster nest. It has no status: domains follow from node labels alone.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
type Topology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// Spec lists the levels.
	//
	// +required
	Spec TopologySpec `json:"spec"`
}

// TopologyList is a list of Topologies, as the API server returns it.
//
// +kubebuilder:object:root=true
type TopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the Topologies.
	Items []Topology `json:"items"`
}
