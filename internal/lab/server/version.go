package server

import (
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	_ "unsafe" // for go:linkname

	utilversion "k8s.io/apimachinery/pkg/util/version"
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

// oldestEmulated is how many minor versions back a Kubernetes can behave like an older one.
const oldestEmulated = 3

// emulate returns the flags that have each server behave like another minor version of Kubernetes, such as 1.34, than the one that it is,
// such as v1.37.2: none for "" or the same.
func emulate(is, like string) ([]string, error) {
	if like == "" {
		return nil, nil
	}
	own, err := utilversion.ParseSemantic(is)
	if err != nil {
		return nil, fmt.Errorf("read the version of Kubernetes %s: %w", is, err)
	}
	major, minor, ok := strings.Cut(like, ".")
	n, err := strconv.ParseUint(minor, 10, 16)
	if oldest := own.Minor() - oldestEmulated; !ok || err != nil || major != "1" || uint(n) < oldest || uint(n) > own.Minor() {
		return nil, fmt.Errorf("--kubernetes: this lab is Kubernetes %s, which can behave like 1.%d to 1.%d, and not like %q", is, oldest, own.Minor(), like)
	}
	if uint(n) == own.Minor() {
		return nil, nil
	}
	return []string{"--emulated-version=" + like}, nil
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
