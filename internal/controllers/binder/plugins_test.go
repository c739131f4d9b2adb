package binder

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

// TestPlugins: what flag --plugins says, and the order of work that comes of it.
func TestPlugins(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text, order, err string
	}{
		{text: "", order: "devices volumes claims"},
		{text: `{"volumebinding":{"priority":150}}`, order: "devices claims volumes"},
		{text: `{"volumebinding":{"enabled":false}}`, order: "devices claims"},
		{text: `{"dynamicresources":{"enabled":false},"gpusharing":{"enabled":false}}`, order: "devices volumes"},
		{text: `{"hamicore":{"enabled":true}}`, order: "devices volumes claims"},
		{text: `{"hamicore":{"enabled":true,"priority":100}}`, err: "gpusharing has priority 100, hamicore needs it to be higher than its own, 100"},
		{text: `{"hamicore":{"enabled":true},"gpusharing":{"enabled":false}}`, err: "hamicore needs gpusharing, which is disabled"},
		{text: `{"other":{}}`, err: "no plugin is called other; there are volumebinding, dynamicresources, gpusharing, hamicore"},
		{text: `{"gpusharing":{"arguments":{"cdiEnabled":"perhaps"}}}`, err: `argument cdiEnabled is "perhaps", must be true or false`},
		{text: `{"volumebinding":{"arguments":{"bindTimeoutSeconds":"0"}}}`, err: `argument bindTimeoutSeconds is "0", must be a whole number of seconds above 0`},
		{text: `[]`, err: "plugins: json"},
	} {
		list, err := ParsePlugins(tc.text)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %q", tc.text, err, tc.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.text, err)
			continue
		}
		var order []string
		for _, p := range arrange([]Preparer{&other{name: "claims"}, &other{name: "volumes"}, &other{name: "devices"}}, list) {
			order = append(order, p.Name())
		}
		if d := cmp.Diff(tc.order, strings.Join(order, " ")); d != "" {
			t.Errorf("%s: %s", tc.text, d)
		}
	}
	list, err := ParsePlugins(`{"gpusharing":{"arguments":{"cdiEnabled":"true"}},"volumebinding":{"arguments":{}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if on, err := Find(list, PluginGPUSharing).CDI(); err != nil || !on {
		t.Error(on, err)
	}
	if d, err := Find(list, PluginVolumeBinding).Timeout(time.Minute); err != nil || d != time.Minute {
		t.Error(d, err)
	}
}

// other is a preparer from outside, for requests of type Fraction, that waits until it is woken.
type other struct {
	name   string
	ready  bool
	err    error
	undone int
}

func (o *other) Name() string { return o.name }
func (o *other) Relevant(r *schedulingv1alpha2.BindRequest, _ *corev1.Pod) bool {
	return r.Spec.ReceivedResourceType == schedulingv1alpha2.ResourceTypeFraction
}

func (o *other) Check(r *schedulingv1alpha2.BindRequest) (bool, string) {
	if o.Relevant(r, nil) && len(r.Spec.SelectedGPUGroups) == 0 {
		return true, "no groups"
	}
	return o.Relevant(r, nil), ""
}

func (o *other) Prepare(context.Context, *schedulingv1alpha2.BindRequest, *corev1.Pod) (bool, error) {
	return o.ready, o.err
}

func (o *other) Undo(context.Context, *schedulingv1alpha2.BindRequest, *corev1.Pod) error {
	o.undone++
	return nil
}

func (o *other) Note(*schedulingv1alpha2.BindRequest, *corev1.Pod) string { return "It shares." }

// with makes the process prepare with p, too.
func (p *process) with(o Preparer) {
	ps := []Preparer{o, volumes{p}}
	p.book.preparers, p.exec.preparers = ps, ps
}

func fraction(groups ...string) func(*schedulingv1alpha2.BindRequest) {
	return func(r *schedulingv1alpha2.BindRequest) {
		r.Spec.ReceivedResourceType, r.Spec.SelectedGPUGroups = schedulingv1alpha2.ResourceTypeFraction, groups
	}
}

// TestPreparerFromOutside: it is asked, waited for, woken, undone, and tells the pod's user its note.
func TestPreparerFromOutside(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, "n1")
	p, o := w.start(), &other{name: "devices"}
	p.with(o)
	w.addPod("a")
	w.request("a", "n1", "", 0, fraction("g"))
	p.settle()
	if got := w.boundPods(); len(got) > 0 {
		t.Fatalf("%v are bound before they are prepared", got)
	}
	o.ready = true
	p.settle()
	if got := w.boundPods(); len(got) > 0 {
		t.Fatalf("%v are bound though nobody was woken", got)
	}
	p.look(p.book.touchRequest(types.NamespacedName{Namespace: ns, Name: "a"}))
	p.settle()
	if d := cmp.Diff([]string{"a"}, w.boundPods()); d != "" {
		t.Fatal(d)
	}
	i := slices.IndexFunc(w.pods["a"].Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == keys.PodBoundCondition })
	if i < 0 || w.pods["a"].Status.Conditions[i].Message != "It shares." {
		t.Errorf("conditions %+v", w.pods["a"].Status.Conditions)
	}

	w.addPod("b")
	w.request("b", "n1", "", 0, fraction())
	p.settle()
	if got := w.requests["b"].Status; got.Phase != schedulingv1alpha2.BindRequestFailed || got.Reason != "no groups" {
		t.Errorf("%+v", got)
	}
	o.err = verdictf("no device")
	w.addPod("c")
	w.request("c", "n1", "", 0, fraction("g"))
	p.settle()
	if got := w.requests["c"].Status; got.Phase != schedulingv1alpha2.BindRequestFailed || got.Reason != "preparing devices: no device" || o.undone == 0 {
		t.Errorf("%+v, undone %d times", got, o.undone)
	}
	o.err = errors.New("connection lost")
	w.addPod("d")
	w.request("d", "n1", "", 0, fraction("g"))
	p.settle()
	if got := w.requests["d"].Status; got.Phase != "" {
		t.Errorf("%+v", got)
	}
}
