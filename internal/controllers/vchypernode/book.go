package vchypernode

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/hypernodes"
	"github.com/muster-scheduler/muster/internal/kube/control"
)

// book is what the controller knows.
type book struct {
	*hypernodes.Tree
	namespace string // of the configuration
	config    *corev1.ConfigMap
	types     []topology // of the last configuration that can be read
	on        bool
	bad       *control.Note // what is wrong with the configuration
}

func newBook(namespace string) *book {
	return &book{Tree: hypernodes.New(), namespace: namespace}
}

// configSeen takes in a ConfigMap. A bad one is refused whole, while that before it rules on.
func (b *book) configSeen(m *corev1.ConfigMap, gone bool) bool {
	if m.Name != keys.ControllerConfig || m.Namespace != b.namespace {
		return false
	}
	b.config, b.bad = m, nil
	if gone {
		b.config, b.types, b.on = nil, nil, false
		return true
	}
	types, on, err := readConfig(m.Data[keys.ControllerConfigKey])
	if err != nil {
		b.bad = &control.Note{Warning: true, Reason: "InvalidConfiguration", Message: keys.ControllerConfigKey + ": " + err.Error()}
		return true
	}
	b.types, b.on = types, on
	return true
}
