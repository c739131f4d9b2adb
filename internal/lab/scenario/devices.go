package scenario

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// admit does with a pod that is about to be made what the admission webhook would, as far as the binder wants it: it names
// the ConfigMaps of pods that share devices.
func admit(p *v1.Pod) {
	_, fraction := p.Annotations[keys.GPUFractionAnnotation]
	_, memory := p.Annotations[keys.GPUMemoryAnnotation]
	if _, named := p.Annotations[keys.SharedGPUConfigMapAnnotation]; (fraction || memory) && !named {
		p.Annotations[keys.SharedGPUConfigMapAnnotation] = p.Name + "-shared-gpu"
	}
}

// reservable makes what reservation pods need: their namespace, which may be there already for pods that a scenario begins with, and their
// account.
func (c *Cluster) reservable(ctx context.Context) error {
	if c.account {
		return nil
	}
	if err := c.space(ctx, keys.ReservationNamespace); err != nil {
		return err
	}
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: keys.ReservationNamespace, Name: keys.ReservationNamespace}}
	if err := ignoreExists(c.client.Create(ctx, account)); err != nil {
		return fmt.Errorf("make the account of reservation pods: %w", err)
	}
	c.account = true
	return nil
}

// report has a reservation pod say which device it got: one that no other has.
func (b *Backend) report(ctx context.Context, p *v1.Pod) error {
	if p.Namespace != keys.ReservationNamespace || p.Annotations[keys.ReservedGPUAnnotation] != "" {
		return nil
	}
	body := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:"GPU-%s"}}}`, p.UID, keys.ReservedGPUAnnotation, p.UID)
	if err := b.client.Patch(ctx, p.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(body))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("report the device of pod %s: %w", p.Name, err)
	}
	return nil
}
