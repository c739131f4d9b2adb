package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	stdlog "log"
	"slices"
	"time"

	"github.com/go-logr/logr"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Lead keeps the Secret and the webhook configurations as they must be until ctx ends, which is no error. It looks at them when
// one of them changes, and every 15 seconds.
func (c *Controller) Lead(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	for _, kind := range []client.Object{&corev1.Secret{}, &admissionregv1.MutatingWebhookConfiguration{}, &admissionregv1.ValidatingWebhookConfiguration{}} {
		stop, err := c.watch(ctx, kind, func(any) {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
		if err != nil {
			return err
		}
		defer stop()
	}
	retry := retryMin
	for {
		wait := check
		if err := c.deps.Guard.Do(ctx, "a look", "certificates and webhooks", c.keep); err == nil {
			retry = retryMin
		} else if ctx.Err() == nil {
			c.deps.Log.Info("certificates or webhook configurations could not be kept; trying again", "error", err.Error(), "after", retry.String())
			wait, retry = retry, min(2*retry, retryMax)
		}
		timer := c.deps.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		case <-wake:
			timer.Stop()
		}
	}
}

// keep makes the objects as they must be, once: first the Secret, then who is told to trust it.
func (c *Controller) keep(ctx context.Context) error {
	secret := &corev1.Secret{}
	err := c.deps.Client.Get(ctx, client.ObjectKey{Namespace: c.options.Namespace, Name: c.options.Secret}, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("read Secret %s/%s: %w", c.options.Namespace, c.options.Secret, err)
	}
	data, changed, err := renew(secret.Data, c.hosts, c.deps.Clock.Now())
	if err != nil {
		return err
	}
	if missing {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.options.Namespace, Name: c.options.Secret, Labels: map[string]string{"app": service}},
			Type:       corev1.SecretTypeTLS, Data: data,
		}
		if err := c.deps.Client.Create(ctx, secret); err != nil { // another replica's, or no such namespace
			return fmt.Errorf("create Secret %s/%s: %w", c.options.Namespace, c.options.Secret, err)
		}
	} else if changed {
		secret.Data = data
		if err := c.deps.Client.Update(ctx, secret); err != nil { // a conflict: somebody was faster, look again
			return fmt.Errorf("update Secret %s/%s: %w", c.options.Namespace, c.options.Secret, err)
		}
	}
	if missing || changed {
		c.deps.Log.Info("certificates written", "secret", c.options.Namespace+"/"+c.options.Secret, "hosts", c.hosts)
	}
	c.load(data)
	o := &c.options
	if o.URL != "" {
		o = c.trusting(ctx)
	}
	mutating, validating := o.Webhooks(data[keyTrusted])
	wrong := []error{c.register(ctx, mutating, &admissionregv1.MutatingWebhookConfiguration{})}
	for _, v := range validating {
		wrong = append(wrong, c.register(ctx, v, &admissionregv1.ValidatingWebhookConfiguration{}))
	}
	if m, v := o.volcanoWebhooks(data[keyTrusted]); m != nil {
		wrong = append(wrong, c.register(ctx, m, &admissionregv1.MutatingWebhookConfiguration{}), c.register(ctx, v, &admissionregv1.ValidatingWebhookConfiguration{}))
	}
	if c.options.URL != "" { // else policies are an installer's: there is nothing in them that only we know
		for _, p := range append(o.Policies(), o.VolcanoPolicies()...) {
			made, err := c.whole(ctx, p)
			if wrong = append(wrong, err); made || err != nil {
				c.guarded = c.deps.Clock.Now()
			}
		}
		for _, p := range o.VolcanoMutations() {
			if _, err := c.whole(ctx, p); !meta.IsNoMatchError(err) { // an API server without the kind: see Groups, which tells
				wrong = append(wrong, err)
			}
		}
		if !c.alone && c.deps.Clock.Since(c.guarded) >= overlapping {
			err := c.forgetOlder(ctx)
			c.alone, wrong = err == nil, append(wrong, err)
		}
	}
	return errors.Join(wrong...)
}

// overlapping is how long the policies of older versions stay beside those that came or changed last. An API server takes policies over once
// a second, and hears of them and of their bindings apart from each other.
const overlapping = 10 * time.Second

// forgetOlder takes away the policies that older versions installed of what is now parts of others.
func (c *Controller) forgetOlder(ctx context.Context) error {
	o := c.options
	var wanted []string
	for _, p := range o.Policies() {
		wanted = append(wanted, p.GetName())
	}
	o.Identity = Enforce
	var wrong []error
	for _, p := range o.parts() {
		if !p.joined || slices.Contains(wanted, p.name) {
			continue
		}
		for _, object := range p.objects() {
			if err := c.deps.Client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
				wrong = append(wrong, fmt.Errorf("delete %T %s: %w", object, p.name, err))
			}
		}
	}
	return errors.Join(wrong...)
}

// trusting is the options with the user trusted that this process is: where it runs as itself and not as a service account, so do
// the others that are Muster.
func (c *Controller) trusting(ctx context.Context) *Options {
	if c.self == "" {
		me := &authenticationv1.SelfSubjectReview{}
		if err := c.deps.Client.Create(ctx, me); err != nil {
			c.deps.Log.V(1).Info("it cannot be told which user this is", "error", err.Error())
			return &c.options
		}
		c.self = me.Status.UserInfo.Username
	}
	o := c.options
	if c.self != "" && !slices.Contains(o.Trusted, c.self) {
		o.Trusted = append(slices.Clone(o.Trusted), c.self)
	}
	return &o
}

// whole makes a policy or its binding as wanted, and says whether it was not.
func (c *Controller) whole(ctx context.Context, want client.Object) (made bool, err error) {
	have, ok := want.DeepCopyObject().(client.Object)
	if !ok {
		return false, nil // it is one: its copy is, too
	}
	err = c.deps.Client.Get(ctx, client.ObjectKeyFromObject(want), have)
	if apierrors.IsNotFound(err) {
		if err = c.deps.Client.Create(ctx, want); err != nil {
			return false, fmt.Errorf("create %T %s: %w", want, want.GetName(), err)
		}
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %T %s: %w", want, want.GetName(), err)
	}
	if equality.Semantic.DeepEqual(specOf(want), specOf(have)) {
		return false, nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": have.GetResourceVersion()}, "spec": specOf(want)})
	if err != nil {
		return false, fmt.Errorf("write %T %s: %w", want, want.GetName(), err)
	}
	_, err = c.kit.Merge(ctx, have, body)
	return true, err
}

// specOf is what a policy or its binding says.
func specOf(o client.Object) any {
	switch o := o.(type) {
	case *admissionregv1.ValidatingAdmissionPolicy:
		return o.Spec
	case *admissionregv1.ValidatingAdmissionPolicyBinding:
		return o.Spec
	case *admissionregv1.MutatingAdmissionPolicy:
		return o.Spec
	case *admissionregv1.MutatingAdmissionPolicyBinding:
		return o.Spec
	}
	return nil
}

// register makes one configuration as wanted. Where an installer owns it, only what to trust is ours to say.
func (c *Controller) register(ctx context.Context, want, have client.Object) error {
	err := c.deps.Client.Get(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case apierrors.IsNotFound(err) && c.options.URL == "":
		c.deps.Log.V(1).Info("there is no webhook configuration; it has to be installed", "name", want.GetName(), "kind", fmt.Sprintf("%T", want))
		return nil
	case apierrors.IsNotFound(err):
		if err = c.deps.Client.Create(ctx, want); err != nil {
			return fmt.Errorf("create %T %s: %w", want, want.GetName(), err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("read %T %s: %w", want, want.GetName(), err)
	}
	wanted, found := hooks(want), hooks(have)
	if c.options.URL == "" {
		_, err = c.kit.JSON(ctx, have, trust(found, wanted[0].config.CABundle))
		return err
	}
	if equality.Semantic.DeepEqual(hookList(want), hookList(have)) {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": have.GetResourceVersion()}, "webhooks": hookList(want)})
	if err != nil {
		return fmt.Errorf("write %T %s: %w", want, want.GetName(), err)
	}
	_, err = c.kit.Merge(ctx, have, body)
	return err
}

// hook is what a webhook has whichever its kind.
type hook struct {
	name   string
	config *admissionregv1.WebhookClientConfig
}

// hookList is the list of webhooks of a configuration.
func hookList(o client.Object) any {
	switch o := o.(type) {
	case *admissionregv1.MutatingWebhookConfiguration:
		return o.Webhooks
	case *admissionregv1.ValidatingWebhookConfiguration:
		return o.Webhooks
	}
	return nil
}

func hooks(o client.Object) (out []hook) {
	switch o := o.(type) {
	case *admissionregv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			out = append(out, hook{o.Webhooks[i].Name, &o.Webhooks[i].ClientConfig})
		}
	case *admissionregv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			out = append(out, hook{o.Webhooks[i].Name, &o.Webhooks[i].ClientConfig})
		}
	}
	return out
}

// trust is the JSON patch that makes every webhook trust the bundle; nil when they do.
func trust(have []hook, bundle []byte) []byte {
	var ops []Operation
	for i, h := range have {
		if !bytes.Equal(h.config.CABundle, bundle) {
			at := fmt.Sprintf("/webhooks/%d/", i)
			ops = append(ops,
				Operation{Op: "test", Path: at + "name", Value: h.name},
				Operation{Op: "add", Path: at + "clientConfig/caBundle", Value: bundle})
		}
	}
	if ops == nil {
		return nil
	}
	body, err := json.Marshal(ops)
	if err != nil {
		panic(err) // strings and bytes
	}
	return body
}

// discarded is the server's own log: handshakes that clients break off, at a level that nobody reads unless asked to.
func discarded(log logr.Logger) *stdlog.Logger {
	return stdlog.New(logWriter{log.V(2)}, "", 0)
}

type logWriter struct{ log logr.Logger }

// Write makes a line of the standard library one of ours.
func (w logWriter) Write(line []byte) (int, error) {
	w.log.Info("webhook server", "line", string(bytes.TrimSpace(line)))
	return len(line), nil
}
