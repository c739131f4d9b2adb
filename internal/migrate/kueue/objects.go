package kueue

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Group is the API group of Kueue's objects.
const Group = "kueue.x-k8s.io"

// Amount is a quantity as it is written, a string or a number. It is parsed where it is used, so that what is wrong with it can be told
// with its object and field.
type Amount string

// UnmarshalJSON takes what JSON has for a quantity.
func (a *Amount) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*a = Amount(text)
		return nil
	}
	var number json.Number
	if err := json.Unmarshal(data, &number); err != nil {
		return fmt.Errorf("a quantity must be a string or a number")
	}
	*a = Amount(number)
	return nil
}

// ClusterQueue is what is read of a ClusterQueue.
type ClusterQueue struct {
	Name string           `json:"-"`
	Spec ClusterQueueSpec `json:"spec"`
}

// ClusterQueueSpec has the fields of both versions.
type ClusterQueueSpec struct {
	// Cohort is v1beta1's name of CohortName.
	Cohort                    string                   `json:"cohort"`
	CohortName                string                   `json:"cohortName"`
	ResourceGroups            []ResourceGroup          `json:"resourceGroups"`
	QueueingStrategy          string                   `json:"queueingStrategy"`
	NamespaceSelector         *metav1.LabelSelector    `json:"namespaceSelector"`
	FlavorFungibility         *FlavorFungibility       `json:"flavorFungibility"`
	Preemption                *Preemption              `json:"preemption"`
	AdmissionChecks           []string                 `json:"admissionChecks"`
	AdmissionChecksStrategy   *AdmissionChecksStrategy `json:"admissionChecksStrategy"`
	StopPolicy                string                   `json:"stopPolicy"`
	FairSharing               *FairSharing             `json:"fairSharing"`
	AdmissionScope            *AdmissionScope          `json:"admissionScope"`
	ConcurrentAdmissionPolicy map[string]any           `json:"concurrentAdmissionPolicy"`
	ExcludeResourcePrefixes   []string                 `json:"excludeResourcePrefixes"`
}

// ResourceGroup is resources with the flavors that they come in.
type ResourceGroup struct {
	CoveredResources []string       `json:"coveredResources"`
	Flavors          []FlavorQuotas `json:"flavors"`
}

// FlavorQuotas are the quotas of one flavor.
type FlavorQuotas struct {
	Name      string          `json:"name"`
	Resources []ResourceQuota `json:"resources"`
}

// ResourceQuota is the quota of one resource in one flavor.
type ResourceQuota struct {
	Name           string  `json:"name"`
	NominalQuota   Amount  `json:"nominalQuota"`
	BorrowingLimit *Amount `json:"borrowingLimit"`
	LendingLimit   *Amount `json:"lendingLimit"`
}

// FlavorFungibility says when the next flavor is tried.
type FlavorFungibility struct {
	WhenCanBorrow  string `json:"whenCanBorrow"`
	WhenCanPreempt string `json:"whenCanPreempt"`
	Preference     string `json:"preference"`
}

// Preemption says whom work of a ClusterQueue may preempt.
type Preemption struct {
	ReclaimWithinCohort string              `json:"reclaimWithinCohort"`
	BorrowWithinCohort  *BorrowWithinCohort `json:"borrowWithinCohort"`
	WithinClusterQueue  string              `json:"withinClusterQueue"`
}

// BorrowWithinCohort says whom work may preempt that borrows.
type BorrowWithinCohort struct {
	Policy               string `json:"policy"`
	MaxPriorityThreshold *int32 `json:"maxPriorityThreshold"`
}

// AdmissionChecksStrategy lists admission checks with the flavors that they are for.
type AdmissionChecksStrategy struct {
	AdmissionChecks []AdmissionCheckRule `json:"admissionChecks"`
}

// AdmissionCheckRule is one admission check.
type AdmissionCheckRule struct {
	Name      string   `json:"name"`
	OnFlavors []string `json:"onFlavors"`
}

// FairSharing has the weight of a ClusterQueue, Cohort or LocalQueue.
type FairSharing struct {
	Weight *Amount `json:"weight"`
}

// AdmissionScope says whether past usage orders what waits.
type AdmissionScope struct {
	AdmissionMode string `json:"admissionMode"`
}

// Cohort is what is read of a Cohort.
type Cohort struct {
	Name string     `json:"-"`
	Spec CohortSpec `json:"spec"`
}

// CohortSpec has the fields of both versions.
type CohortSpec struct {
	// Parent is v1beta1's name of ParentName.
	Parent         string          `json:"parent"`
	ParentName     string          `json:"parentName"`
	ResourceGroups []ResourceGroup `json:"resourceGroups"`
	FairSharing    *FairSharing    `json:"fairSharing"`
}

// LocalQueue is what is read of a LocalQueue.
type LocalQueue struct {
	Namespace string         `json:"-"`
	Name      string         `json:"-"`
	Spec      LocalQueueSpec `json:"spec"`
}

// LocalQueueSpec has the fields of both versions.
type LocalQueueSpec struct {
	ClusterQueue   string         `json:"clusterQueue"`
	StopPolicy     string         `json:"stopPolicy"`
	FairSharing    *FairSharing   `json:"fairSharing"`
	WallTimePolicy map[string]any `json:"wallTimePolicy"`
}

// ResourceFlavor is what is read of a ResourceFlavor.
type ResourceFlavor struct {
	Name string             `json:"-"`
	Spec ResourceFlavorSpec `json:"spec"`
}

// ResourceFlavorSpec has the fields of both versions. Taints and tolerations are told, not understood.
type ResourceFlavorSpec struct {
	NodeLabels      map[string]string `json:"nodeLabels"`
	NodeTaints      []map[string]any  `json:"nodeTaints"`
	Tolerations     []map[string]any  `json:"tolerations"`
	TopologyName    string            `json:"topologyName"`
	ResourceWeights map[string]Amount `json:"resourceWeights"`
}

// WorkloadPriorityClass is what is read of a WorkloadPriorityClass.
type WorkloadPriorityClass struct {
	Name        string `json:"-"`
	Value       int32  `json:"value"`
	Description string `json:"description"`
}

// Configuration is what is read of Kueue's own configuration, config.kueue.x-k8s.io.
type Configuration struct {
	Resources struct {
		ExcludeResourcePrefixes []string         `json:"excludeResourcePrefixes"`
		QuotaCheckStrategy      string           `json:"quotaCheckStrategy"`
		Transformations         []map[string]any `json:"transformations"`
		DeviceClassMappings     []map[string]any `json:"deviceClassMappings"`
	} `json:"resources"`
	Integrations struct {
		Frameworks         []string `json:"frameworks"`
		ExternalFrameworks []string `json:"externalFrameworks"`
	} `json:"integrations"`
	FairSharing                map[string]any `json:"fairSharing"`
	AdmissionFairSharing       map[string]any `json:"admissionFairSharing"`
	WaitForPodsReady           map[string]any `json:"waitForPodsReady"`
	ManageJobsWithoutQueueName bool           `json:"manageJobsWithoutQueueName"`
}

// Objects are what was read, in the order in which it was found.
type Objects struct {
	ClusterQueues   []ClusterQueue
	Cohorts         []Cohort
	LocalQueues     []LocalQueue
	ResourceFlavors []ResourceFlavor
	Priorities      []WorkloadPriorityClass
	// Taken are the values of PriorityClasses that are there already, by name.
	Taken map[string]int32
	// Config is nil where none was found.
	Config *Configuration
	// Losses are fields and kinds that were read and are not known; Refusals what could not be read.
	Losses, Refusals []Note
}

// Empty says that nothing of Kueue's was found.
func (o *Objects) Empty() bool {
	return len(o.ClusterQueues)+len(o.Cohorts)+len(o.LocalQueues)+len(o.ResourceFlavors)+len(o.Priorities)+len(o.Losses)+len(o.Refusals) == 0
}

// Note is one thing that gets lost, or that stands in the way.
type Note struct {
	// Object is kind and name, with the namespace if it has one.
	Object string `json:"object"`
	// Field is the path of the field that says it; "" for the object as a whole.
	Field string `json:"field,omitempty"`
	// Rule is what holds.
	Rule string `json:"rule"`
	// Instead is what to do; "" for nothing.
	Instead string `json:"instead,omitempty"`
}

// String is the note on one line, without what to do.
func (n Note) String() string {
	if n.Field == "" {
		return n.Object + ": " + n.Rule
	}
	return n.Object + ": " + n.Field + ": " + n.Rule
}
