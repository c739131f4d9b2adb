package served

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Discovery is what is asked of an API server; discovery.DiscoveryInterface has it. Neither call takes a context: whoever makes the
// client bounds its requests.
type Discovery interface {
	ServerVersion() (*version.Info, error)
	// ServerResourcesForGroupVersion fails with a NotFound if the group and version, such as "resource.k8s.io/v1", are not served.
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// Server is what an API server has, as of one look. It is not changed. The zero Server has everything.
type Server struct {
	// Version is what the server is, such as v1.37.2.
	Version string
	// Minor is the minor version of Kubernetes 1 that it behaves like: the one that it emulates, if it does. 0 says that it is not known.
	Minor int
	// Missing are the names of the needs that it does not have.
	Missing []Name
}

// Look asks an API server what it has: its version, and once for each group among the needs. A group that does not answer for any other
// reason than that it is not served is an error.
func Look(d Discovery) (Server, error) {
	info, err := d.ServerVersion()
	if err != nil {
		return Server{}, fmt.Errorf("ask the API server for its version: %w", err)
	}
	s := Server{Version: info.GitVersion, Minor: minorOf(info)}
	kinds := map[schema.GroupVersion][]string{}
	for _, n := range Needs() {
		missing := n.Gate() && s.Minor > 0 && !n.Has(s.Minor)
		for _, gvk := range n.Kinds {
			gv := gvk.GroupVersion()
			if _, asked := kinds[gv]; !asked {
				if kinds[gv], err = kindsOf(d, gv); err != nil {
					return Server{}, err
				}
			}
			missing = missing || !slices.Contains(kinds[gv], gvk.Kind)
		}
		if missing {
			s.Missing = append(s.Missing, n.Name)
		}
	}
	return s, nil
}

// kindsOf returns the kinds of a group and version, none if it is not served.
func kindsOf(d Discovery, gv schema.GroupVersion) ([]string, error) {
	list, err := d.ServerResourcesForGroupVersion(gv.String())
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("ask the API server for the kinds of %s: %w", gv, err)
	}
	var kinds []string
	for i := range list.APIResources {
		kinds = append(kinds, list.APIResources[i].Kind)
	}
	return kinds, nil
}

// minorOf is the minor version that a server behaves like; 0 for one that cannot be understood, or is not Kubernetes 1. Clouds write
// "34+".
func minorOf(info *version.Info) int {
	major, minor := info.Major, info.Minor
	if info.EmulationMinor != "" {
		major, minor = info.EmulationMajor, info.EmulationMinor
	}
	n, err := strconv.Atoi(strings.TrimRight(minor, "+"))
	if err != nil || n < 0 || major != "1" {
		return 0
	}
	return n
}

// Has says whether the server has what is called so. A name that is no need's is had.
func (s *Server) Has(name Name) bool { return !slices.Contains(s.Missing, name) }

// Lacking returns what a process with these roles misses. uses says which plugins its scheduler has; nil: all. A feature of a kind that
// is itself missing goes without saying.
func (s *Server) Lacking(roles []string, uses func(plugin string) bool) []Need {
	return slices.DeleteFunc(Needs(), func(n Need) bool {
		return s.Has(n.Name) || !n.concerns(roles, uses) || n.Gate() && !s.Has(ResourceClaims)
	})
}

// String is the server in words: its version, and the one that it emulates.
func (s *Server) String() string {
	if s.Minor > 0 && !strings.HasPrefix(s.Version, "v"+Minor(s.Minor)+".") {
		return fmt.Sprintf("%s, which behaves like %s", s.Version, Minor(s.Minor))
	}
	return s.Version
}
