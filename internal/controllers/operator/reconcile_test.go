package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/controllers/admission"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/profile"
)

var errTest = errors.New("no answer")

// fakeAPI is a cluster that a test plays.
type fakeAPI struct {
	config  *kaiv1.Config
	shards  []kaiv1.SchedulingShard
	objects map[string]object
	leaders map[string]install.Leader
	refuse  string        // objects whose name has this in it cannot be applied
	after   time.Duration // how long after the first look it is
	writes  []string
	events  []string
	version int
}

func newFakeAPI(shards ...string) *fakeAPI {
	c := &fakeAPI{config: &kaiv1.Config{}, objects: map[string]object{}}
	c.config.Name, c.config.UID, c.config.Generation = kaiv1.ConfigName, "config", 1
	for i, name := range shards {
		s := kaiv1.SchedulingShard{}
		s.Name, s.Generation, s.UID = name, 1, "shard"
		if i > 0 {
			s.Spec.PartitionLabelValue = name
		}
		c.shards = append(c.shards, s)
	}
	return c
}

func (c *fakeAPI) reconciler() *reconciler {
	wrote := func(format string, args ...any) { c.writes = append(c.writes, fmt.Sprintf(format, args...)) }
	return &reconciler{warned: map[string]string{}, api: api{
		config: func(context.Context) (*kaiv1.Config, error) {
			if c.config == nil {
				return nil, nil
			}
			return c.config.DeepCopy(), nil
		},
		shards: func(context.Context) ([]kaiv1.SchedulingShard, error) {
			var out []kaiv1.SchedulingShard
			for i := range c.shards {
				out = append(out, *c.shards[i].DeepCopy())
			}
			return out, nil
		},
		environment: func(context.Context) (install.Environment, error) { return install.Environment{Tag: "v1"}, nil },
		leaders: func(_ context.Context, namespace string, leases []string) (map[string]install.Leader, error) {
			if namespace != "kai-scheduler" || len(leases) == 0 {
				return nil, nil
			}
			return c.leaders, nil
		},
		owned: func(context.Context, []string, []string) ([]object, error) {
			var out []object
			for _, key := range slices.Sorted(maps.Keys(c.objects)) {
				out = append(out, c.objects[key].DeepCopy())
			}
			return out, nil
		},
		apply: func(_ context.Context, o object) error {
			if c.refuse != "" && strings.Contains(o.GetName(), c.refuse) {
				return fmt.Errorf("apply %s: refused", name(o))
			}
			wrote("apply %s", name(o))
			c.version++
			o.SetResourceVersion(fmt.Sprint(c.version))
			if was := c.objects[install.Key(o)]; was != nil { // as the API server does
				o.SetGeneration(was.GetGeneration() + 1)
				if status, found := was.Object["status"]; found {
					o.Object["status"] = status
				}
			}
			c.objects[install.Key(o)] = o.DeepCopy()
			return nil
		},
		remove: func(_ context.Context, o object) error {
			wrote("remove %s", name(o))
			delete(c.objects, install.Key(o))
			return nil
		},
		annotate: func(_ context.Context, o object, key, _ string) error {
			wrote("annotate %s %s", name(o), key)
			return nil
		},
		setConditions: func(_ context.Context, o client.Object, conditions []metav1.Condition) error {
			wrote("conditions of %s", o.GetName())
			if o.GetName() == kaiv1.ConfigName {
				c.config.Status.Conditions = conditions
				return nil
			}
			for i := range c.shards {
				if c.shards[i].Name == o.GetName() {
					c.shards[i].Status.Conditions = conditions
				}
			}
			return nil
		},
		probed: func(*kaiv1.Prometheus) *connection { return nil },
		tell: func(o client.Object, kind, reason, message string) {
			c.events = append(c.events, fmt.Sprintf("%s %s %s: %s", o.GetName(), kind, reason, message))
		},
		now: func() time.Time { return time.Unix(5000, 0).Add(c.after) },
	}}
}

func (c *fakeAPI) schedulers() (out []string) {
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		if o := c.objects[key]; o.GetKind() == "Deployment" && strings.HasPrefix(o.GetName(), "muster-scheduler-") {
			out = append(out, o.GetName())
		}
	}
	return out
}

func condition(list []metav1.Condition, kind string) string {
	for _, c := range list {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason + ": " + c.Message
		}
	}
	return ""
}

func (c *fakeAPI) look(t *testing.T, r *reconciler) error {
	t.Helper()
	c.writes, c.events = nil, nil
	_, err := r.reconcile(t.Context())
	return err
}

// TestAtRestNothingIsWritten: the second look writes nothing, and so does one of a process that was started anew.
func TestAtRestNothingIsWritten(t *testing.T) {
	t.Parallel()
	c := newFakeAPI("default", "b")
	r := c.reconciler()
	if err := c.look(t, r); err != nil {
		t.Fatal(err)
	}
	if len(c.writes) < 40 || c.writes[0] != "conditions of kai-config" {
		t.Errorf("%d writes, first %v", len(c.writes), c.writes[:1])
	}
	for range 2 {
		if err := c.look(t, r); err != nil || len(c.writes) > 0 || len(c.events) > 0 {
			t.Errorf("at rest: %v %v %v", c.writes, c.events, err)
		}
		r = c.reconciler()
	}
	// Nothing is done without a Config, or to one that is being deleted.
	c.config.DeletionTimestamp = ptr.To(metav1.Now())
	if err := c.look(t, c.reconciler()); err != nil || len(c.writes) > 0 {
		t.Errorf("deleted: %v %v", c.writes, err)
	}
	c.config = nil
	if err := c.look(t, c.reconciler()); err != nil || len(c.writes) > 0 {
		t.Errorf("no Config: %v %v", c.writes, err)
	}
}

// TestShardsComeAndGo, and one that cannot run keeps what it has, says why, and hinders nobody.
func TestShardsComeAndGo(t *testing.T) {
	t.Parallel()
	c := newFakeAPI("default", "b")
	r := c.reconciler()
	if err := c.look(t, r); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"muster-scheduler-b", "muster-scheduler-default"}, c.schedulers()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.shards[1].Spec.PlacementStrategy, c.shards[1].Generation = &kaiv1.PlacementStrategy{GPU: ptr.To("pile")}, 2
	c.shards[0].Spec.KValue, c.shards[0].Generation = ptr.To(2.0), 2
	if err := c.look(t, r); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"muster-scheduler-b", "muster-scheduler-default"}, c.schedulers()); diff != "" {
		t.Errorf("a bad edit (-want +got):\n%s", diff)
	}
	if got := condition(c.shards[1].Status.Conditions, kaiv1.ConditionReady); !strings.HasPrefix(got, "False not_ready") || !strings.Contains(got, `placementStrategy.gpu is "pile"`) {
		t.Errorf("the bad shard is Ready=%s", got)
	}
	if got := condition(c.shards[0].Status.Conditions, kaiv1.ConditionDeployed); !strings.HasPrefix(got, "True") {
		t.Errorf("the good shard is Deployed=%s", got)
	}
	if !slices.Contains(c.writes, "apply ConfigMap kai-scheduler/muster-scheduler-default") {
		t.Errorf("the good shard's change was not applied: %v", c.writes)
	}
	if !slices.ContainsFunc(c.events, func(e string) bool { return strings.HasPrefix(e, "b Warning SettingIgnored") }) {
		t.Errorf("events %v", c.events)
	}
	c.shards = c.shards[:1]
	if err := c.look(t, r); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"muster-scheduler-default"}, c.schedulers()); diff != "" {
		t.Errorf("a shard is removed (-want +got):\n%s", diff)
	}
}

// TestOldPoliciesStay: the policies of an older version go some time after those of this one have come, and stay as long as one of these
// cannot be made.
func TestOldPoliciesStay(t *testing.T) {
	t.Parallel()
	c := newFakeAPI("default")
	r := c.reconciler()
	if err := c.look(t, r); err != nil {
		t.Fatal(err)
	}
	age := func() { // to an older version's, with a policy of another name
		for _, key := range slices.Sorted(maps.Keys(c.objects)) {
			o := c.objects[key]
			if o.GetName() != admission.PolicyPods || !guards(o) {
				continue
			}
			delete(c.objects, key)
			o = o.DeepCopy()
			o.SetName(admission.PolicyPodIdentity)
			c.objects[install.Key(o)] = o
		}
	}
	there := func() (out []string) {
		for _, key := range slices.Sorted(maps.Keys(c.objects)) {
			if o := c.objects[key]; guards(o) && (o.GetName() == admission.PolicyPods || o.GetName() == admission.PolicyPodIdentity) {
				out = append(out, o.GetName())
			}
		}
		slices.Sort(out)
		return out
	}
	old, now := admission.PolicyPodIdentity, admission.PolicyPods
	see := func(when string, wait time.Duration, want ...string) {
		t.Helper()
		c.writes, c.events = nil, nil
		again, err := r.reconcile(t.Context())
		if (err != nil) != (c.refuse != "") {
			t.Errorf("%s: %v", when, err)
		}
		if diff := cmp.Diff(want, there()); diff != "" || again != wait {
			t.Errorf("%s: again after %s, want %s; (-want +got):\n%s", when, again, wait, diff)
		}
	}
	age()
	r, c.refuse = c.reconciler(), now
	see("the new one cannot be made", overlapping, old, old)
	c.after += time.Hour
	see("still not", overlapping, old, old)
	c.refuse = ""
	see("it is made", overlapping, old, old, now, now)
	c.after += overlapping - time.Second
	see("not taken over yet", time.Second, old, old, now, now)
	c.after += time.Second
	see("taken over", 0, now, now)
	see("at rest", 0, now, now)
}

// TestPastIsKept: a shard whose history goes with a pod says so in a condition and by an event of its own, until it has a claim; the
// claim stays when nobody asks for it any more, as does what it holds.
func TestPastIsKept(t *testing.T) {
	t.Parallel()
	c := newFakeAPI("default")
	r := c.reconciler()
	see := func(want, event string) {
		t.Helper()
		c.shards[0].Generation++
		if err := c.look(t, r); err != nil {
			t.Fatal(err)
		}
		if got := condition(c.shards[0].Status.Conditions, "UsageHistoryKept"); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("UsageHistoryKept=%q, want %q", got, want)
		}
		if event != "" && !slices.ContainsFunc(c.events, func(e string) bool { return strings.HasPrefix(e, event) }) {
			t.Errorf("events %v, want %s", c.events, event)
		}
	}
	see("", "")
	u := &kaiv1.UsageDBConfig{ClientType: kaiv1.UsageClientEmbedded, UsageParams: &kaiv1.UsageParams{}}
	c.shards[0].Spec.UsageDBConfig = u
	see("False lost_with_pod", "default Warning UsageHistoryNotKept: spec.usageDBConfig keeps the history of usage in the scheduler's pod")
	u.UsageParams.ExtraParams = map[string]string{"persistentVolumeClaimSize": "5Gi"}
	see("True kept", "")
	claim := func() object {
		for _, o := range c.objects { // order: there is one at most
			if o.GetKind() == "PersistentVolumeClaim" {
				return o
			}
		}
		return nil
	}
	if o := claim(); o == nil || len(o.GetOwnerReferences()) > 0 {
		t.Fatalf("the claim: %v", o)
	}
	if got := condition(c.shards[0].Status.Conditions, kaiv1.ConditionReady); !strings.Contains(got, "muster-scheduler-default-usage has no volume yet") {
		t.Errorf("Ready=%s", got)
	}
	c.shards[0].Spec.UsageDBConfig = nil
	see("", "")
	c.shards = nil
	if err := c.look(t, r); err != nil {
		t.Fatal(err)
	}
	if claim() == nil {
		t.Error("the claim went")
	}
}

// TestUnknownNames: a shard that names what nothing has runs without that, and says so in a condition, by an event and in the log, with what
// was probably meant, until it is put right; who cannot run at all says nothing of names.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	c := newFakeAPI("default")
	r := c.reconciler()
	var lines []string
	r.log = funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	environment := r.environment
	r.environment = func(ctx context.Context) (install.Environment, error) {
		env, err := environment(ctx)
		env.SchedulerFlags = []string{"v", "detailed-fit-errors"}
		env.Check = func(s profile.Shard, p engine.Profile) ([]profile.Unknown, error) {
			if slices.Contains(p.Actions, "reclam") {
				return nil, errTest
			}
			return s.Unknown(engine.Registry{
				Actions: map[string]func() engine.Action{"allocate": nil, "consolidation": nil, "reclaim": nil}, Plugins: map[string][]policy.Factory{"minruntime": nil, "topology": nil},
			}), nil
		}
		return env, err
	}
	off := false
	for _, step := range []struct {
		what string
		spec kaiv1.SchedulingShardSpec
		want string // of the condition
		says []string
	}{
		{what: "all known", want: "True understood: "},
		{
			what: "a plugin, an action that is off, and a flag",
			spec: kaiv1.SchedulingShardSpec{
				Plugins: map[string]kaiv1.PluginConfig{"minruntim": {}}, Actions: map[string]kaiv1.ActionConfig{"consolidaton": {Enabled: &off}},
				Args: map[string]string{"detailed-fit-error": "true"},
			},
			want: "False unknown_names: ",
			says: []string{
				"spec.plugins.minruntim is the name of no plugin; the nearest that is known is minruntime",
				"spec.actions.consolidaton is the name of no action; the nearest that is known is consolidation",
				"spec.args.detailed-fit-error is left out: the scheduler has no such flag; the nearest that it has is detailed-fit-errors",
			},
		},
		{what: "put right", spec: kaiv1.SchedulingShardSpec{Plugins: map[string]kaiv1.PluginConfig{"minruntime": {}}}, want: "True understood: "},
		{what: "an action that is on, as with KAI", spec: kaiv1.SchedulingShardSpec{Actions: map[string]kaiv1.ActionConfig{"reclam": {}}}, want: ""},
	} {
		c.shards[0].Generation, c.shards[0].Spec, lines = c.shards[0].Generation+1, step.spec, nil
		if err := c.look(t, r); err != nil {
			t.Fatal(err)
		}
		got := condition(c.shards[0].Status.Conditions, "SettingsUnderstood")
		if !strings.HasPrefix(got, step.want) || step.want == "" && got != "" {
			t.Errorf("%s: SettingsUnderstood=%s, want %s", step.what, got, step.want)
		}
		for _, text := range step.says {
			if !strings.Contains(got, text) {
				t.Errorf("%s: the condition does not say %s: %s", step.what, text, got)
			}
			if !slices.Contains(c.events, "default Warning SettingIgnored: "+text) {
				t.Errorf("%s: no event says %s: %q", step.what, text, c.events)
			}
			if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, text) }) {
				t.Errorf("%s: no line says %s: %q", step.what, text, lines)
			}
		}
		if deployed := condition(c.shards[0].Status.Conditions, kaiv1.ConditionDeployed); strings.HasPrefix(deployed, "True") != (step.want != "") {
			t.Errorf("%s: Deployed=%s", step.what, deployed)
		}
	}
	if len(c.schedulers()) != 1 {
		t.Errorf("schedulers %v", c.schedulers())
	}
}

// TestWhoDecides: while a changed shard rolls out, its condition, one event and one line of the log say that the scheduler of before
// decides, and that shard is not Ready; then, once, that the change is in force. A restart of the operator tells nothing twice. A change that
// cannot be rolled out says that, too.
func TestWhoDecides(t *testing.T) {
	t.Parallel()
	c := newFakeAPI("default")
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	key := "apps/Deployment/kai-scheduler/muster-scheduler-default"
	for _, step := range []struct {
		what            string
		generation      int64  // of the shard, if it is changed
		status          string // of the Deployment, which has its generation seen
		condition, told string
		ready           string
	}{
		{what: "nothing runs", condition: "False starting: Deployment kai-scheduler/muster-scheduler-default has no pod that is ready: nobody decides", ready: "False"},
		{what: "it runs", status: "{replicas: 1, updatedReplicas: 1, readyReplicas: 1, conditions: [{type: Available, status: 'True'}]}", condition: "True in_force: the scheduler decides by what is asked for", ready: "True"},
		{what: "a change", generation: 2, condition: "False rolling_out: Deployment kai-scheduler/muster-scheduler-default has just been changed: the pod that was there decides by what was asked for before", told: "generation 2 is rolled out", ready: "False"},
		{
			what: "a new pod that is not ready", status: "{replicas: 2, updatedReplicas: 1, readyReplicas: 1, conditions: [{type: Available, status: 'True'}]}",
			condition: "False rolling_out: Deployment kai-scheduler/muster-scheduler-default has 1 of 1 new pods; until they are ready, the pod that was there decides by what was asked for before", ready: "False",
		},
		{
			what: "it does not get on", status: "{replicas: 2, updatedReplicas: 1, readyReplicas: 1, conditions: [{type: Available, status: 'True'}, {type: Progressing, status: 'False', message: no image}]}",
			condition: "False rolling_out: Deployment kai-scheduler/muster-scheduler-default has 1 of 1 new pods; until they are ready, the pod that was there decides by what was asked for before; it does not get on: no image", ready: "False",
		},
		{what: "another change meanwhile", generation: 3, condition: "False rolling_out: ", told: "generation 3 is rolled out", ready: "False"},
		{what: "the new one alone", status: "{replicas: 1, updatedReplicas: 1, readyReplicas: 1, conditions: [{type: Available, status: 'True'}]}", condition: "True in_force: ", told: "decides by generation 3", ready: "True"},
		{what: "a bad edit", generation: 4, condition: "False refused: its scheduler, if it has one, goes on with what it had: spec.minRuntime", ready: "False"},
	} {
		s := &c.shards[0]
		if step.generation > 0 {
			s.Generation = step.generation
			s.Spec.KValue = ptr.To(float64(step.generation))
		}
		if s.Generation == 4 {
			s.Spec.KValue, s.Spec.MinRuntime = nil, &kaiv1.MinRuntime{PreemptMinRuntime: ptr.To("soon")}
		}
		if o := c.objects[key]; o != nil && step.status != "" {
			status := parse(t, "apiVersion: v1\nkind: X\nstatus: "+step.status).Object["status"].(map[string]any)
			status["observedGeneration"] = o.GetGeneration()
			o.Object["status"] = status
		}
		for again := range 2 { // of which the second, of an operator that was started anew, tells nothing
			lines = nil
			r := c.reconciler()
			r.log = log
			if err := c.look(t, r); err != nil {
				t.Fatal(err)
			}
			var told []string
			for _, e := range c.events {
				if strings.HasPrefix(e, "default ") {
					told = append(told, e)
				}
			}
			if want := step.told != "" && again == 0; s.Generation < 4 && (want != (len(told) == 1) || want != (len(lines) == 1) || want && !strings.Contains(told[0], step.told)) {
				t.Errorf("%s, look %d: events %q, log %q, want one with %q", step.what, again, told, lines, step.told)
			}
			if got := condition(s.Status.Conditions, "SettingsInForce"); !strings.HasPrefix(got, step.condition) {
				t.Errorf("%s: SettingsInForce=%s, want %s", step.what, got, step.condition)
			}
			if got := condition(s.Status.Conditions, kaiv1.ConditionReady); !strings.HasPrefix(got, step.ready) {
				t.Errorf("%s: Ready=%s, want %s", step.what, got, step.ready)
			}
		}
	}
	c.config.Spec.Scheduler, c.config.Generation = &kaiv1.Scheduler{Service: &kaiv1.Service{Enabled: ptr.To(false)}}, 2
	if err := c.look(t, c.reconciler()); err != nil {
		t.Fatal(err)
	}
	if got := condition(c.shards[0].Status.Conditions, "SettingsInForce"); got != "" {
		t.Errorf("there is no scheduler: SettingsInForce=%s", got)
	}
}

// TestOneFailureHindersNobody: what cannot be applied is named, all else is applied.
func TestOneFailureHindersNobody(t *testing.T) {
	t.Parallel()
	c := newFakeAPI("default", "b")
	c.refuse = "binder"
	r := c.reconciler()
	err := c.look(t, r)
	if err == nil || !strings.Contains(err.Error(), "apply Deployment kai-scheduler/muster-binder: refused") {
		t.Errorf("error %v", err)
	}
	if len(c.schedulers()) != 2 {
		t.Errorf("schedulers %v", c.schedulers())
	}
	if got := condition(c.config.Status.Conditions, kaiv1.ConditionDeployed); !strings.HasPrefix(got, "False not_ready") || !strings.Contains(got, "muster-binder: refused") {
		t.Errorf("Deployed=%s", got)
	}
	if got := condition(c.config.Status.Conditions, kaiv1.ConditionReconciling); !strings.HasPrefix(got, "False reconciled") {
		t.Errorf("Reconciling=%s", got)
	}
	c.refuse = ""
	if err := c.look(t, r); err != nil {
		t.Fatal(err)
	}
	if got := condition(c.config.Status.Conditions, kaiv1.ConditionDeployed); !strings.HasPrefix(got, "True") {
		t.Errorf("then Deployed=%s", got)
	}
}

// TestServicesComeAndGo: a component that is switched off goes, and its accounts and webhooks with it.
func TestServicesComeAndGo(t *testing.T) {
	t.Parallel()
	c := newFakeAPI("default")
	r := c.reconciler()
	if err := c.look(t, r); err != nil {
		t.Fatal(err)
	}
	before := len(c.objects)
	c.config.Spec.Admission, c.config.Generation = &kaiv1.Admission{Service: &kaiv1.Service{Enabled: ptr.To(false)}}, 2
	if err := c.look(t, r); err != nil {
		t.Fatal(err)
	}
	for key, o := range c.objects {
		if o.GetLabels()[install.LabelComponent] == install.Admission {
			t.Errorf("%s is left", key)
		}
	}
	if len(c.objects) >= before || !slices.Contains(c.writes, "remove MutatingWebhookConfiguration mutating-kai-admission") {
		t.Errorf("writes %v", c.writes)
	}
}

// TestExternalPrometheusIsAsked: as often as Config says, and what it answers is known.
func TestExternalPrometheusIsAsked(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/status/config" || broken.Load() {
			http.Error(w, "no", http.StatusTeapot)
		}
	}))
	defer server.Close()
	spec := install.Defaulted(&kaiv1.Config{Spec: kaiv1.ConfigSpec{Prometheus: &kaiv1.Prometheus{
		ExternalPrometheusURL:         &server.URL,
		ExternalPrometheusHealthProbe: &kaiv1.ExternalPrometheusHealthProbe{Interval: ptr.To(7), MaxRetries: ptr.To(2)},
	}}}).Prometheus
	changed, waits := make(chan struct{}, 1), make(chan time.Duration)
	p := newProber(func() { changed <- struct{}{} }, nil)
	p.pause = func(ctx context.Context, d time.Duration) error {
		select {
		case waits <- d:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer p.end()
	p.ask(t.Context(), spec)
	<-changed
	if c := p.ask(t.Context(), spec); c == nil || c.Err != nil {
		t.Errorf("it answers, but %v", c)
	}
	broken.Store(true)
	for _, want := range []time.Duration{7 * time.Second, time.Second, 2 * time.Second} {
		if got := <-waits; got != want {
			t.Errorf("waits %v, want %v", got, want)
		}
	}
	<-changed
	if c := p.ask(t.Context(), spec); c == nil || c.Err == nil || !strings.Contains(c.Err.Error(), "418") {
		t.Errorf("it is broken, but %v", c)
	}
	spec.ExternalPrometheusURL = nil
	if c := p.ask(t.Context(), spec); c != nil {
		t.Errorf("there is none, but %v", c)
	}
}

// TestLeaderIsFollowed: with KAI's names and several replicas, the Service of a scheduler leads to the pod that leads, as KAI's does, as soon
// as there is one, and to another when that leads; with one replica, to all pods.
func TestLeaderIsFollowed(t *testing.T) {
	t.Parallel()
	c := newFakeAPI("default", "b")
	c.config.Annotations = map[string]string{install.AnnotationKAINames: "true"}
	c.config.Spec.Scheduler = &kaiv1.Scheduler{Replicas: ptr.To[int32](2)}
	r := c.reconciler()
	slice := func(shard string) object {
		return c.objects["discovery.k8s.io/EndpointSlice/kai-scheduler/kai-scheduler-"+shard+"-leader"]
	}
	follows := func(shard, want string) {
		t.Helper()
		if err := c.look(t, r); err != nil {
			t.Fatal(err)
		}
		o := slice(shard)
		if o == nil {
			t.Fatalf("no slice of shard %s", shard)
		}
		var got []string
		ends, _, _ := unstructured.NestedSlice(o.Object, "endpoints")
		for _, e := range ends {
			name, _, _ := unstructured.NestedString(e.(map[string]any), "targetRef", "name")
			got = append(got, name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("shard %s leads to %v, want %q", shard, got, want)
		}
		before := len(c.writes)
		if err := c.look(t, r); err != nil || len(c.writes) > 0 {
			t.Errorf("at rest after %d: %v %v", before, c.writes, err)
		}
	}
	follows("default", "")
	c.leaders = map[string]install.Leader{"kai-scheduler": {Name: "one", UID: "1", Address: "10.0.0.1", Node: "n"}, "kai-scheduler-b": {Name: "b", UID: "2", Address: "10.0.0.2", Node: "n"}}
	follows("default", "one")
	follows("b", "b")
	c.leaders["kai-scheduler"] = install.Leader{Name: "two", UID: "3", Address: "10.0.0.3", Node: "n"}
	follows("default", "two")
	c.leaders = nil
	follows("default", "")
	c.config.Spec.Scheduler.Replicas, c.config.Generation = ptr.To[int32](1), 2
	if err := c.look(t, r); err != nil || slice("default") != nil || slice("b") != nil {
		t.Errorf("one replica: %v, %v, %v", slice("default"), slice("b"), err)
	}
}

// TestWhoLeads: of a Lease and a pod, that counts which decides who leads, and a renewal is no news.
func TestWhoLeads(t *testing.T) {
	t.Parallel()
	lease := func(holder string, renewed int64) *coordinationv1.Lease {
		at := metav1.NewMicroTime(time.Unix(renewed, 0))
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at}}
	}
	pod := func(phase corev1.PodPhase, address string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: phase, PodIP: address}}
	}
	if got := podOf(lease("muster-scheduler-default-abc-x_6ad1", 1)); got != "muster-scheduler-default-abc-x" {
		t.Errorf("the holder is %q", got)
	}
	if leading(lease("a_1", 1)) != leading(lease("a_1", 2)) || leading(lease("a_1", 1)) == leading(lease("b_1", 1)) || leading(nil) != nil {
		t.Error("what is news of a Lease")
	}
	if leading(pod(corev1.PodRunning, "10.0.0.1")) == leading(pod(corev1.PodRunning, "")) || leading(pod(corev1.PodRunning, "10.0.0.1")) == leading(pod(corev1.PodFailed, "10.0.0.1")) {
		t.Error("what is news of a pod")
	}
	for _, c := range []struct {
		pod  *corev1.Pod
		want bool
	}{{pod(corev1.PodRunning, "10.0.0.1"), true}, {pod(corev1.PodRunning, ""), false}, {pod(corev1.PodFailed, "10.0.0.1"), false}} {
		if _, got := leaderOf(c.pod); got != c.want {
			t.Errorf("%+v: %v", c.pod.Status, got)
		}
	}
}

// TestPause: a wake ends a wait, after what comes with it; the end of the context ends it at once.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 1)
		begun := time.Now()
		if err := pause(t.Context(), time.Hour, wake); err != nil || time.Since(begun) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		wake <- struct{}{}
		begun = time.Now()
		if err := pause(t.Context(), time.Hour, wake); err != nil || time.Since(begun) != settle {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := pause(ended, time.Hour, wake); err == nil {
			t.Error("no error")
		}
	})
}
