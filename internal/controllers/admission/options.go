package admission

import (
	"fmt"
	"net/url"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// Rules are the settings by which pods are judged and completed.
type Rules struct {
	// SchedulerNames are the values of spec.schedulerName that make a pod ours; others pass unchanged.
	SchedulerNames []string
	// GPUSharing allows pods to ask for parts of GPUs. Without it such a pod is refused.
	GPUSharing bool
	// MemoryLimits hands containers that share a GPU the limit that HAMi-core enforces.
	MemoryLimits bool
	// GuardDevices refuses containers that name their devices themselves, and hides all devices from those that asked for
	// none.
	GuardDevices bool
	// RuntimeClass is given to pods that share a GPU and name none; "" leaves them as they are.
	RuntimeClass string
}

// Names of what the role keeps in the cluster, unless the flags say otherwise.
const (
	// DefaultMutating and DefaultValidating are the webhook configurations.
	DefaultMutating   = "mutating-kai-admission"
	DefaultValidating = "validating-kai-admission"
	// DefaultSecret holds certificates and keys.
	DefaultSecret = "admission-webhook-tls-secret"
	// service is how the API server finds the role inside a cluster, and the first part of the webhooks' names.
	service = "admission"
)

// Options are the settings of the role.
type Options struct {
	Rules
	// Namespace is where the Secret lies and where the Service admission is. Pods of it are never asked about.
	Namespace string
	// Port is where the webhooks are served; 0 is any free port.
	Port int
	// Host is the address at which they are served; empty is every address of the machine.
	Host string
	// URL is how the API server reaches the role where there is no Service: https://host:port. With it the role creates the
	// webhook configurations and keeps them whole. Without it an installer creates them, and the role keeps only the CA
	// bundle of those that are there.
	URL string
	// Mutating, Validating and Secret name the objects that the role owns.
	Mutating, Validating, Secret string
}

// DefaultOptions are KAI's.
func DefaultOptions() Options {
	return Options{
		Rules:     Rules{SchedulerNames: []string{keys.SchedulerName}, RuntimeClass: keys.RuntimeClass},
		Namespace: keys.Namespace, Port: 9443, Mutating: DefaultMutating, Validating: DefaultValidating, Secret: DefaultSecret,
	}
}

// check says what is wrong with the options.
func (o *Options) check() error {
	if o.Port < 0 || o.Port > 65535 {
		return fmt.Errorf("admission role: --webhook-addr is %d: it must be a port, 0 to 65535", o.Port)
	}
	if o.URL != "" {
		u, err := url.Parse(o.URL)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return fmt.Errorf("admission role: --webhook-url is %q: it must have the form https://HOST:PORT", o.URL)
		}
	}
	for flag, name := range map[string]string{"namespace": o.Namespace, "webhook-secret": o.Secret, "mutating-webhook-configuration": o.Mutating, "validating-webhook-configuration": o.Validating} {
		if name == "" {
			return fmt.Errorf("admission role: --%s must not be empty", flag)
		}
	}
	return nil
}
