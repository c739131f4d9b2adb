package reservation

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// Options are the settings of the controller. The flags named are those of KAI's binder.
type Options struct {
	// Namespace is where reservation pods live. Flag --resource-reservation-namespace.
	Namespace string

	// ServiceAccount is theirs; in their namespace. Flag --resource-reservation-service-account.
	ServiceAccount string

	// App is the value of their label app. Flag --resource-reservation-app-label.
	App string

	// Image is the program that reports the device: Muster's for nodes, which is given the argument reservation. An image with the name
	// of KAI's (resource-reservation, resourcereservation, and these with -fips) is given none. Flag --resource-reservation-pod-image.
	Image string

	// Timeout is how long a request waits for its reservation pods to report their devices, and for leave to make
	// them. Flag --resource-reservation-allocation-timeout, in seconds.
	Timeout time.Duration

	// Resources are what reservation pods ask for besides the device; a request or limit for devices in it is
	// ignored. Nil: nothing. Flag --resource-reservation-pod-resources, JSON.
	Resources *corev1.ResourceRequirements

	// PodSecurity and ContainerSecurity are their security contexts. Nil: none. Flags
	// --resource-reservation-pod-security-context and --resource-reservation-container-security-context, JSON.
	PodSecurity       *corev1.PodSecurityContext
	ContainerSecurity *corev1.SecurityContext

	// RuntimeClass is theirs; empty for the cluster's default. Flag --runtime-class-name.
	RuntimeClass string

	// Simulated says that the GPUs are simulated and somebody else reports their UUIDs: reservation pods then run an
	// image that only sleeps. Flag --fake-gpu-nodes.
	Simulated bool

	// ScalingNamespace is where pods run that show demand to a cluster autoscaler. While one of them is not scheduled,
	// no device is newly reserved for pods of the namespace it stands for: the autoscaler would be told that the demand is met before
	// the node is there. Flag --scale-adjust-namespace.
	ScalingNamespace string

	// Maps says whether containers are told their devices through ConfigMaps: plugin gpusharing.
	Maps bool

	// CDI says that devices are named as the Container Device Interface names them: its argument cdiEnabled.
	CDI bool

	// MemoryLimits says that containers are also told how much device memory they may use, which HAMi-core enforces in
	// the container: plugin hamicore.
	MemoryLimits bool
}

// DefaultOptions are KAI's defaults.
func DefaultOptions() Options {
	return Options{
		Namespace: keys.ReservationNamespace, ServiceAccount: keys.ReservationNamespace, App: keys.ReservationNamespace,
		Image:   "registry/local/kai-scheduler/resource-reservation",
		Timeout: 40 * time.Second, ScalingNamespace: keys.ScaleAdjustNamespace, Maps: true,
	}
}

// Validate returns an error that names the first setting that makes no sense.
func (o Options) Validate() error {
	switch {
	case o.Namespace == "":
		return errors.New("resource-reservation-namespace is empty")
	case o.App == "":
		return errors.New("resource-reservation-app-label is empty")
	case o.Image == "":
		return errors.New("resource-reservation-pod-image is empty")
	case strings.TrimSpace(o.Image) != o.Image:
		return fmt.Errorf("resource-reservation-pod-image is %q, must not begin or end with a space", o.Image)
	case o.Timeout <= 0:
		return fmt.Errorf("resource-reservation-allocation-timeout is %v, must be positive", o.Timeout)
	case o.MemoryLimits && !o.Maps:
		return errors.New("plugins: hamicore needs gpusharing, which is disabled")
	}
	return nil
}
