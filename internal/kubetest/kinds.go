package kubetest

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/crds"
	kubebatchcrds "github.com/muster-scheduler/muster/api/kubebatch/crds"
	volcanocrds "github.com/muster-scheduler/muster/api/volcano/crds"
)

// Kind is a kind of object that the server serves.
type Kind struct {
	schema.GroupVersionKind
	// Plural is the resource's name in paths: "pods".
	Plural string
	// Namespaced says that objects are in namespaces.
	Namespaced bool
	// Status says that the status is a subresource of its own.
	Status bool
	// Custom says that a CustomResourceDefinition brings the kind: it takes no strategic merge patches, and all of it but metadata
	// and status counts for its generation.
	Custom bool
	// Generation says that the server counts the changes of the spec. It does so for all custom kinds.
	Generation bool
}

// NewKind returns a custom kind with a status subresource, such as tests of foreign workloads make up.
func NewKind(gvk schema.GroupVersionKind, namespaced bool) Kind {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return Kind{GroupVersionKind: gvk, Plural: plural.Resource, Namespaced: namespaced, Status: true, Custom: true, Generation: true}
}

func (k *Kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Plural}
}

func (k *Kind) groupKind() schema.GroupKind { return k.GroupVersionKind.GroupKind() }

// builtinKinds is what Kubernetes itself serves: by group and version the kinds, each with the letters n (namespaced), s (status
// subresource) and g (generation).
var builtinKinds = map[string]string{
	"v1": "Pod:nsg Node:s Namespace:s ConfigMap:n Secret:n Service:ns ServiceAccount:n PersistentVolume:s PersistentVolumeClaim:ns ResourceQuota:ns " +
		"Event:n ReplicationController:nsg PodTemplate:ng",
	"apps/v1":                      "Deployment:nsg DaemonSet:nsg StatefulSet:nsg ReplicaSet:nsg",
	"batch/v1":                     "Job:nsg CronJob:nsg",
	"coordination.k8s.io/v1":       "Lease:n",
	"policy/v1":                    "PodDisruptionBudget:nsg",
	"scheduling.k8s.io/v1":         "PriorityClass:g",
	"storage.k8s.io/v1":            "StorageClass: CSINode: CSIDriver: VolumeAttachment:s CSIStorageCapacity:n",
	"resource.k8s.io/v1":           "DeviceClass:g ResourceSlice:g ResourceClaim:ns ResourceClaimTemplate:n",
	"rbac.authorization.k8s.io/v1": "Role:n RoleBinding:n ClusterRole: ClusterRoleBinding:",
	"admissionregistration.k8s.io/v1": "ValidatingWebhookConfiguration:g MutatingWebhookConfiguration:g ValidatingAdmissionPolicy:sg ValidatingAdmissionPolicyBinding:g " +
		"MutatingAdmissionPolicy:g MutatingAdmissionPolicyBinding:g",
	"apiextensions.k8s.io/v1": "CustomResourceDefinition:sg",
	"discovery.k8s.io/v1":     "EndpointSlice:ng",
	"networking.k8s.io/v1":    "NetworkPolicy:ng",
	"events.k8s.io/v1":        "Event:n",
}

// Builtin returns the kinds that Kubernetes serves by itself and Muster uses.
func Builtin() []Kind {
	var out []Kind
	for version, kinds := range builtinKinds { // order: sorted below
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			panic(err)
		}
		for _, word := range strings.Fields(kinds) {
			name, letters, _ := strings.Cut(word, ":")
			gvk := gv.WithKind(name)
			plural, _ := meta.UnsafeGuessKindToResource(gvk)
			has := func(letter string) bool { return strings.Contains(letters, letter) }
			out = append(out, Kind{GroupVersionKind: gvk, Plural: plural.Resource, Namespaced: has("n"), Status: has("s"), Generation: has("g")})
		}
	}
	sortKinds(out)
	return out
}

// Own returns the kinds of Muster's CustomResourceDefinitions.
func Own() (out []Kind) {
	for _, file := range crds.All() {
		out = append(out, defined(file.Name, file.YAML)...)
	}
	sortKinds(out)
	return out
}

// Volcano returns the kinds of Volcano's CustomResourceDefinitions. Some are called as kinds of Muster's, and one as one of Kubernetes': what
// names a kind by that word alone means each of them.
func Volcano() (out []Kind) {
	for _, file := range volcanocrds.All() {
		out = append(out, defined(file.Name, file.YAML)...)
	}
	sortKinds(out)
	return out
}

// KubeBatch returns the kinds of kube-batch's CustomResourceDefinitions, which are called as kinds of Muster's.
func KubeBatch() (out []Kind) {
	for _, file := range kubebatchcrds.All() {
		out = append(out, defined(file.Name, file.YAML)...)
	}
	sortKinds(out)
	return out
}

// defined are the kinds that a CustomResourceDefinition has served.
func defined(name string, definition []byte) (out []Kind) {
	var d struct {
		Spec struct {
			Group, Scope string
			Names        struct{ Kind, Plural string }
			Versions     []struct {
				Name         string
				Served       bool
				Subresources struct{ Status *struct{} }
			}
		}
	}
	if err := yaml.Unmarshal(definition, &d); err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	for _, v := range d.Spec.Versions {
		if v.Served {
			gvk := schema.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: d.Spec.Names.Kind}
			out = append(out, Kind{
				GroupVersionKind: gvk, Plural: d.Spec.Names.Plural, Namespaced: d.Spec.Scope == "Namespaced",
				Status: v.Subresources.Status != nil, Custom: true, Generation: true,
			})
		}
	}
	return out
}

func sortKinds(kinds []Kind) {
	slices.SortFunc(kinds, func(a, b Kind) int { return strings.Compare(a.String(), b.String()) })
}

// Serve says whether a kind is served, as each is at first. One that is not is unknown to discovery and mappers, and its paths are not found;
// its objects are kept, and watches of it go on until they are Cut.
func (s *Server) Serve(kind string, served bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden[kind] = !served
}

// served are the kinds that are served now.
func (s *Server) served() []Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.kinds), func(k Kind) bool { return s.hidden[k.Kind] })
}

// mapper is one that does not know what is hidden.
type mapper struct {
	meta.RESTMapper
	server *Server
}

// RESTMapping is where the server serves a kind.
func (m mapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	m.server.mu.Lock()
	hidden := m.server.hidden[strings.TrimSuffix(gk.Kind, "List")]
	m.server.mu.Unlock()
	if hidden {
		return nil, &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: versions}
	}
	return m.RESTMapper.RESTMapping(gk, versions...)
}

// Mapper knows the kinds that the server serves, without asking it.
func (s *Server) Mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, k := range s.kinds {
		scope := meta.RESTScopeRoot
		if k.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		plural := k.GroupVersion().WithResource(k.Plural)
		m.AddSpecific(k.GroupVersionKind, plural, k.GroupVersion().WithResource(strings.ToLower(k.Kind)), scope)
		m.Add(k.GroupVersion().WithKind(k.Kind+"List"), scope) // as client-go's mapper does
	}
	return mapper{m, s}
}

// resources answers discovery for one group and version; nil if it is not served.
func (s *Server) resources(gv schema.GroupVersion) *metav1.APIResourceList {
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, k := range s.served() {
		if k.GroupVersion() != gv {
			continue
		}
		verbs := metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.Plural, SingularName: strings.ToLower(k.Kind), Kind: k.Kind, Namespaced: k.Namespaced, Verbs: verbs})
		if k.Status {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.Plural + "/status", Kind: k.Kind, Namespaced: k.Namespaced, Verbs: metav1.Verbs{"get", "patch", "update"}})
		}
	}
	if len(list.APIResources) == 0 {
		return nil
	}
	return list
}

// groups answers discovery of the groups but the core one.
func (s *Server) groups() *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	at := map[string]int{}
	for _, k := range s.served() {
		if k.Group == "" {
			continue
		}
		i, known := at[k.Group]
		v := metav1.GroupVersionForDiscovery{GroupVersion: k.GroupVersion().String(), Version: k.Version}
		switch {
		case !known:
			at[k.Group] = len(list.Groups)
			list.Groups = append(list.Groups, metav1.APIGroup{Name: k.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		case !slices.Contains(list.Groups[i].Versions, v):
			list.Groups[i].Versions = append(list.Groups[i].Versions, v)
		}
	}
	return list
}
