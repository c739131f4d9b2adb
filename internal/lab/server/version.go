package server

import (
	"fmt"
	"runtime/debug"
	_ "unsafe" // for go:linkname

	"k8s.io/component-base/version"
)

// kubeVersion is the variable that a release build of Kubernetes sets with `-ldflags -X`. Its placeholder is no
// semantic version and kubectl refuses it, and the setter of that package allows only what agrees with it; so we
// set the variable itself, and every way to build the lab serves the right version.
//
//go:linkname kubeVersion k8s.io/component-base/version.gitVersion
var kubeVersion string

// stampVersion makes the servers report the version of the k8s.io/kubernetes module that they were built from,
// and returns it.
func stampVersion() (string, error) {
	v, err := builtVersion()
	if err != nil {
		return "", err
	}
	kubeVersion = v
	if err := version.SetDynamicVersion(v); err != nil {
		return "", fmt.Errorf("set the version of Kubernetes to %s: %w", v, err)
	}
	return v, nil
}

func builtVersion() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", fmt.Errorf("this binary carries no build information, so its version of Kubernetes is unknown")
	}
	for _, m := range info.Deps {
		if m.Path == "k8s.io/kubernetes" {
			return m.Version, nil
		}
	}
	return "", fmt.Errorf("this binary was built without the module k8s.io/kubernetes")
}
