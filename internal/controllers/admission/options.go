package admission

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"slices"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
)

// Rules are the settings by which objects are judged and completed.
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
	// StampQueue is a label that pods get with the name of the default queue, if they have neither the label nor an owner nor name
	// a PodGroup; "" for none. A controller that adopts such a pod later does not move it into its own queue then.
	StampQueue string
	// Volcano are the values of spec.schedulerName that make a pod Volcano's, the first of which Jobs get that name none; without any, nothing is said of what is Volcano's.
	Volcano []string
	// VolcanoQueues are what may be done with Volcano's queues.
	VolcanoQueues volcano.QueueRules
	// Quotas warns of queues whose quotas are more than their parent's, alone or together.
	Quotas bool
}

// Mode is what becomes of a request that breaks a rule.
type Mode string

// The modes.
const (
	// Off does not look.
	Off Mode = "off"
	// Warn lets the request pass, warns its author, and leaves a note in the audit log.
	Warn Mode = "warn"
	// Enforce refuses it.
	Enforce Mode = "enforce"
)

// Annotations of a Config: settings of ours that KAI's Config has no field for. A field of our own would be lost when KAI's CRD
// is applied over ours.
const (
	// AnnotationIdentity is the Mode of Identity: off, warn or enforce (the default).
	AnnotationIdentity = "muster.dev/identity"
	// AnnotationAuthorizeQueues is whether queues are authorized: true or false (the default).
	AnnotationAuthorizeQueues = "muster.dev/authorize-queues"
	// AnnotationTrustedUsers are names of users that may say what only Muster may say, separated by commas.
	AnnotationTrustedUsers = "muster.dev/trusted-users"
	// AnnotationClientCA is the name of a ConfigMap in the control plane's namespace, whose key ca.crt says who signs the client
	// certificates of API servers: nobody else is answered then.
	AnnotationClientCA = "muster.dev/webhook-client-ca"
)

// Names of what the role keeps in the cluster, unless the flags say otherwise.
const (
	// DefaultMutating, DefaultValidating, DefaultQueueWebhook and DefaultPodGroupWebhook are the webhook configurations.
	DefaultMutating        = "mutating-kai-admission"
	DefaultValidating      = "validating-kai-admission"
	DefaultQueueWebhook    = "kai-queue-validation-v2"
	DefaultPodGroupWebhook = "kai-podgroup-validation-v2alpha2"
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
	// ClientCA is a file with certificates (PEM) of who signs the API server's client certificate; "" lets anybody ask. It is read
	// once, at the start.
	ClientCA string
	// URL is how the API server reaches the role where there is no Service: https://host:port. With it the role creates the
	// webhook configurations and the policies and keeps them whole. Without it an installer creates them (Objects), and the
	// role keeps only the CA bundle of those that are there.
	URL string
	// Mutating, Validating, QueueWebhook, PodGroupWebhook and Secret name the objects that the role owns. Without a
	// QueueWebhook or PodGroupWebhook there is none.
	Mutating, Validating, QueueWebhook, PodGroupWebhook, Secret string

	// NamespaceSelector and PodSelector are labels that a pod's namespace, and the pod, must have for the role to be asked
	// about it; nil for any.
	NamespaceSelector, PodSelector map[string]string
	// QueueLabelSelector asks only about pods of namespaces that have the queue label, as KAI's setting of that name does.
	QueueLabelSelector bool
	// QueueLabel is the label that names the queue of a workload.
	QueueLabel string
	// ReservationApp is the value of the label app by which pods that hold shared devices are known.
	ReservationApp string

	// Identity guards what only Muster may say: which device a pod has, when a gang started, where a pod goes. Warn is for
	// changing over.
	Identity Mode
	// Trusted are names of users that may say it, besides the service accounts of TrustedNamespaces and those of Namespace.
	Trusted, TrustedNamespaces []string
	// KAINames says that our accounts are called as KAI's are; see KAIAccount.
	KAINames bool
	// ForbidForeignGPUs refuses pods of other schedulers that ask for GPUs: no queue is charged for them.
	ForbidForeignGPUs bool
	// OwnNamespaces are the namespaces that the operator makes; none where there is no operator.
	OwnNamespaces []string
	// AuthorizeQueues demands the right to use a queue (verb use, resource queues.scheduling.run.ai) of whoever submits work
	// to it.
	AuthorizeQueues bool
	// VolcanoGates has the API server put the scheduling gate of queues on pods of Volcano's that ask for it: the scheduler takes it off, where it is told to.
	VolcanoGates bool
	// VolcanoGroupsIn is the namespace of the PodTemplates that stand for Volcano's resource groups, which is that of the ConfigMap that says them; "" for none.
	VolcanoGroupsIn string
}

// DefaultOptions are KAI's, with identity guarded.
func DefaultOptions() Options {
	return Options{
		Rules:     Rules{SchedulerNames: []string{keys.SchedulerName}, RuntimeClass: keys.RuntimeClass, VolcanoQueues: volcano.DefaultQueueRules()},
		Namespace: keys.Namespace, Port: 9443, Secret: DefaultSecret,
		Mutating: DefaultMutating, Validating: DefaultValidating, QueueWebhook: DefaultQueueWebhook, PodGroupWebhook: DefaultPodGroupWebhook,
		QueueLabel: keys.QueueLabel, ReservationApp: keys.ReservationNamespace,
		Identity: Enforce, TrustedNamespaces: []string{keys.ReservationNamespace},
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
	for _, f := range []struct{ flag, value string }{
		{"namespace", o.Namespace},
		{"webhook-secret", o.Secret},
		{"mutating-webhook-configuration", o.Mutating},
		{"validating-webhook-configuration", o.Validating},
		{"queue-label-key", o.QueueLabel},
	} {
		if f.value == "" {
			return fmt.Errorf("admission role: --%s must not be empty", f.flag)
		}
	}
	if o.VolcanoQueues.MaxDepth < 1 && len(o.Volcano) > 0 {
		return fmt.Errorf("admission role: --max-queue-depth is %d: it must be at least 1", o.VolcanoQueues.MaxDepth)
	}
	if modes := []Mode{Off, Warn, Enforce}; !slices.Contains(modes, o.Identity) {
		return fmt.Errorf("admission role: --identity is %q: it must be one of %v", o.Identity, modes)
	}
	return nil
}

// clients are whose certificates clients must show; nil for none.
func (o *Options) clients() (*x509.CertPool, error) {
	if o.ClientCA == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("admission role: --webhook-client-ca-file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("admission role: --webhook-client-ca-file: %s has no certificate in it", o.ClientCA)
	}
	return pool, nil
}
