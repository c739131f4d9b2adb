//go:build lab

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vcflow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	vctopology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
)

// judged is a question to the API server: an object in the namespace of the spec, and what its answer says of it.
type judged struct {
	name string
	make func(ns string) client.Object
	// want is a part of the refusal; "" where the object is taken.
	want string
	// is says what is wrong with the object as the API server made it; nil: nothing.
	is func(client.Object) string
	// first changes what there is before.
	first func(*stage)
	// change, of an object that was taken, is the question instead of its creation; of its status, if status.
	change func(client.Object)
	status bool
}

// ask asks it. The object stays for the spec's end, unless it is a pod.
func (q *judged) ask(s *stage) {
	s.t.Helper()
	s.admissionInForce()
	if q.first != nil {
		q.first(s)
	}
	o := q.make(s.ns)
	if _, queue := o.(*vcscheduling.Queue); queue {
		s.queues = append(s.queues, o.GetName())
	}
	err := s.answered(func() error { return s.client.Create(s.t.Context(), o) })
	if q.change != nil {
		if err != nil {
			s.t.Fatal(err)
		}
		was := o.DeepCopyObject().(client.Object)
		q.change(o)
		err = s.answered(func() error {
			if q.status {
				return s.client.Status().Patch(s.t.Context(), o, client.MergeFrom(was))
			}
			return s.client.Patch(s.t.Context(), o, client.MergeFrom(was))
		})
	}
	if _, pod := o.(*corev1.Pod); pod && err == nil {
		defer s.remove(o) // it may be in a namespace that stays, and is gone sooner than with one
	}
	switch {
	case err == nil && q.want != "":
		s.t.Errorf("it is taken, want a refusal that says %q", q.want)
	case err != nil && (q.want == "" || !strings.Contains(err.Error(), q.want)):
		s.t.Errorf("it is answered with %v, want %q", err, q.want)
	case err == nil && q.is != nil:
		if wrong := q.is(o); wrong != "" {
			s.t.Error(wrong)
		}
	}
}

// answered is what the API server says; not that it had no answer of admission in time.
func (s *stage) answered(asked func() error) (err error) {
	s.t.Helper()
	s.must(s.t, guard, func() string {
		if err = asked(); err != nil && strings.Contains(err.Error(), "failed calling webhook") {
			return err.Error()
		}
		return ""
	})
	return err
}

// admissionInForce returns when the API server asks admission of every kind, and has the policies: of that no object tells.
func (s *stage) admissionInForce() {
	s.t.Helper()
	if s.admits {
		return
	}
	try := func(o client.Object) (string, client.Object) {
		if err := s.client.Create(s.t.Context(), o, client.DryRunAll); err != nil {
			return err.Error(), o
		}
		return "", o
	}
	budget := plainPod(s.ns, "probe", map[string]string{vckeys.JDBMinAvailable: "none"})
	nowhere := bareJob(s.ns, "probe", "gone")
	lost := &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: vcscheduling.QueueSpec{Parent: "gone"}}
	group := &vcscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "probe"}, Spec: vcscheduling.PodGroupSpec{Queue: "gone"}}
	s.must(s.t, guard, func() string {
		for _, o := range []client.Object{
			budget, nowhere, lost, group, hyperNode("probe", vctopology.MemberSelector{RegexMatch: &vctopology.RegexMatch{Pattern: "("}}), flowOf("a:a")(s.ns),
		} {
			if said, _ := try(o.DeepCopyObject().(client.Object)); said == "" || strings.Contains(said, "failed calling webhook") {
				return fmt.Sprintf("%T is not judged yet: %s", o, said)
			}
		}
		for _, kind := range []string{"cpu", "gpu"} {
			if said, o := try(plainPod(s.ns, "probe", map[string]string{vckeys.ResourceGroup: kind})); said != "" || o.(*corev1.Pod).Spec.NodeSelector["volcano.sh/nodetype"] != kind {
				return "pods of the resource group " + kind + " are not changed yet: " + said
			}
		}
		return ""
	})
	s.admits = true
}

// plainPod is a pod of Volcano's.
func plainPod(ns, name string, notes map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: notes},
		Spec: corev1.PodSpec{
			SchedulerName: vckeys.SchedulerName, Containers: []corev1.Container{{Name: "main", Image: "nginx"}}, TerminationGracePeriodSeconds: ptr.To[int64](1),
		},
	}
}

func hyperNode(name string, of ...vctopology.MemberSelector) *vctopology.HyperNode {
	n := &vctopology.HyperNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: vctopology.HyperNodeSpec{Tier: 1, Members: []vctopology.MemberSpec{}}}
	for _, selector := range of {
		n.Spec.Members = append(n.Spec.Members, vctopology.MemberSpec{Type: vctopology.MemberTypeNode, Selector: selector})
	}
	return n
}

// flowOf is a JobFlow of parts, each a name, and after a colon those it waits for, with commas between.
func flowOf(parts ...string) func(string) client.Object {
	return func(ns string) client.Object {
		f := &vcflow.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "flow"}, Spec: vcflow.JobFlowSpec{Flows: []vcflow.Flow{}, JobRetainPolicy: vcflow.Retain}}
		for _, text := range parts {
			name, after, waits := strings.Cut(text, ":")
			one := vcflow.Flow{Name: name}
			if waits {
				one.DependsOn = &vcflow.DependsOn{Targets: strings.Split(after, ",")}
			}
			f.Spec.Flows = append(f.Spec.Flows, one)
		}
		return f
	}
}

// admissionSpecs are those of the suite that asks the API server alone.
func admissionSpecs() []volcanoSpec {
	const suite = "admission"
	var specs []volcanoSpec
	of := func(kind string, all []judged) {
		for _, q := range all {
			specs = append(specs, volcanoSpec{suite: suite, name: kind + " E2E Test " + q.name, quick: true, run: q.ask})
		}
	}
	of("HyperNode Validating", hyperNodeQuestions())
	of("Job Mutating", jobCompletions())
	of("Job Validating", jobQuestions())
	of("JobFlow Validating", jobFlowQuestions())
	of("Pod Mutating", podCompletions())
	of("Pod Validating", podQuestions())
	of("PodGroup Mutating", podGroupCompletions())
	of("PodGroup Validating", podGroupQuestions())
	of("Queue Mutating", queueCompletions())
	of("Queue Validating", queueQuestions())
	return specs
}

func hyperNodeQuestions() []judged {
	exact := func(name string) vctopology.MemberSelector {
		return vctopology.MemberSelector{ExactMatch: &vctopology.ExactMatch{Name: name}}
	}
	regex := func(pattern string) vctopology.MemberSelector {
		return vctopology.MemberSelector{RegexMatch: &vctopology.RegexMatch{Pattern: pattern}}
	}
	with := func(of ...vctopology.MemberSelector) func(string) client.Object {
		return func(string) client.Object { return hyperNode("asked", of...) }
	}
	return []judged{
		{name: "Should allow HyperNode creation with valid exactMatch selector", make: with(exact("node-1"))},
		{name: "Should allow HyperNode creation with valid labelMatch selector", make: with(vctopology.MemberSelector{LabelMatch: &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "one"}}})},
		{name: "Should allow HyperNode creation with valid regexMatch selector", make: with(regex("node-[0-9]+"))},
		{name: "Should reject HyperNode creation with empty exactMatch name", make: with(exact("")), want: "spec.members[0].selector"},
		{name: "Should reject HyperNode creation with empty regexMatch pattern", make: with(regex("")), want: "spec.members[0].selector"},
		{name: "Should reject HyperNode creation with invalid exactMatch name (invalid DNS name)", make: with(exact("Node_1!")), want: "spec.members[0].selector"},
		{name: "Should reject HyperNode creation with invalid regex pattern", make: with(regex("node-[")), want: "spec.members[0].selector.regexMatch.pattern"},
		{name: "Should reject HyperNode creation with no members", make: with(), want: "spec.members"},
		{name: "Should reject HyperNode creation with more than one selector", make: with(vctopology.MemberSelector{ExactMatch: exact("a").ExactMatch, RegexMatch: regex("a").RegexMatch}), want: "spec.members[0].selector"},
		{name: "Should reject HyperNode update with invalid changes", make: with(exact("node-1")), want: "spec.members[0].selector.regexMatch.pattern", change: func(o client.Object) {
			o.(*vctopology.HyperNode).Spec.Members[0].Selector = regex("node-[")
		}},
	}
}

// twoTasks is a Job that says all it needs to, changed.
func twoTasks(change func(*vcbatch.JobSpec)) func(string) client.Object {
	return func(ns string) client.Object {
		j := bareJob(ns, "asked", vckeys.DefaultQueue)
		j.Spec.SchedulerName, j.Spec.MinAvailable = vckeys.SchedulerName, 2
		second := j.Spec.Tasks[0].DeepCopy()
		j.Spec.Tasks[0].Name, second.Name = "first", "second"
		j.Spec.Tasks = append(j.Spec.Tasks, *second)
		if change != nil {
			change(&j.Spec)
		}
		return j
	}
}

func jobCompletions() []judged {
	job := func(is func(*vcbatch.JobSpec) bool) func(client.Object) string {
		return func(o client.Object) string {
			if s := &o.(*vcbatch.Job).Spec; !is(s) {
				return fmt.Sprintf("the Job is completed to %+v", *s)
			}
			return ""
		}
	}
	has := func(names ...string) func(*vcbatch.JobSpec) bool {
		return func(s *vcbatch.JobSpec) bool { return slices.Equal(slices.Sorted(maps.Keys(s.Plugins)), names) }
	}
	mpi := func(s *vcbatch.JobSpec) {
		s.Tasks[0].Name, s.Tasks[1].Name, s.Plugins = "master", "worker", map[string][]string{"mpi": {}}
	}
	return []judged{
		{name: "Should add default queue when not specified", make: twoTasks(func(s *vcbatch.JobSpec) { s.Queue = "" }), is: job(func(s *vcbatch.JobSpec) bool { return s.Queue == "default" })},
		{name: "Should add default scheduler when not specified", make: twoTasks(func(s *vcbatch.JobSpec) { s.SchedulerName = "" }), is: job(func(s *vcbatch.JobSpec) bool { return s.SchedulerName == "volcano" })},
		{name: "Should add default maxRetry when not specified", make: twoTasks(nil), is: job(func(s *vcbatch.JobSpec) bool {
			return s.MaxRetry == 3 && s.Tasks[0].MaxRetry == 3 && s.Tasks[1].MaxRetry == 3
		})},
		{name: "Should add default task names when not specified", make: twoTasks(func(s *vcbatch.JobSpec) { s.Tasks[0].Name, s.Tasks[1].Name = "", "" }), is: job(func(s *vcbatch.JobSpec) bool {
			return s.Tasks[0].Name == "default0" && s.Tasks[1].Name == "default1"
		})},
		{name: "Should set the dnsPolicy of a task of the host's network", make: twoTasks(func(s *vcbatch.JobSpec) { s.Tasks[1].Template.Spec.HostNetwork = true }), is: job(func(s *vcbatch.JobSpec) bool {
			return s.Tasks[0].Template.Spec.DNSPolicy == "" && s.Tasks[1].Template.Spec.DNSPolicy == corev1.DNSClusterFirstWithHostNet
		})},
		{name: "Should add ssh plugin for mpi plugin", make: twoTasks(mpi), is: job(has("mpi", "ssh", "svc"))},
		{name: "Should add svc plugin for mpi plugin", make: twoTasks(mpi), is: job(has("mpi", "ssh", "svc"))},
		{name: "Should add svc plugin for pytorch plugin", make: twoTasks(func(s *vcbatch.JobSpec) { s.Plugins = map[string][]string{"pytorch": {}} }), is: job(has("pytorch", "svc"))},
		{name: "Should add svc plugin for tensorflow plugin", make: twoTasks(func(s *vcbatch.JobSpec) { s.Plugins = map[string][]string{"tensorflow": {}} }), is: job(has("svc", "tensorflow"))},
		{name: "Should calculate and set default minAvailable when not specified", make: twoTasks(func(s *vcbatch.JobSpec) {
			s.MinAvailable, s.Tasks[0].Replicas, s.Tasks[1].Replicas, s.Tasks[1].MinAvailable = 0, 2, 3, ptr.To[int32](1)
		}), is: job(func(s *vcbatch.JobSpec) bool {
			return s.MinAvailable == 3 && ptr.Deref(s.Tasks[0].MinAvailable, 0) == 2 && ptr.Deref(s.Tasks[1].MinAvailable, 0) == 1
		})},
		{name: "Should not override existing plugins", make: twoTasks(func(s *vcbatch.JobSpec) {
			mpi(s)
			s.Plugins["svc"], s.Plugins["ssh"], s.Plugins["env"] = []string{"--publish-not-ready-addresses=true"}, []string{"--ssh-port=2222"}, []string{}
		}), is: job(func(s *vcbatch.JobSpec) bool {
			return has("env", "mpi", "ssh", "svc")(s) && slices.Equal(s.Plugins["svc"], []string{"--publish-not-ready-addresses=true"}) && slices.Equal(s.Plugins["ssh"], []string{"--ssh-port=2222"})
		})},
	}
}

func jobQuestions() []judged {
	refused := func(name, want string, change func(*vcbatch.JobSpec)) judged {
		return judged{name: "Should reject job creation with " + name, make: twoTasks(change), want: want}
	}
	policies := func(all ...vcbatch.LifecyclePolicy) func(*vcbatch.JobSpec) {
		return func(s *vcbatch.JobSpec) { s.Policies = all }
	}
	on := func(action, event string) vcbatch.LifecyclePolicy {
		return vcbatch.LifecyclePolicy{Action: vcAction(action), Event: vcEvent(event)}
	}
	claims := func(paths ...string) func(*vcbatch.JobSpec) {
		return func(s *vcbatch.JobSpec) {
			for i, path := range paths {
				s.Volumes = append(s.Volumes, vcbatch.VolumeSpec{MountPath: path, VolumeClaimName: fmt.Sprintf("claim-%d", i)})
			}
		}
	}
	return []judged{
		{name: "Should allow job creation with valid configuration", make: twoTasks(policies(on("RestartJob", "PodEvicted"), on("AbortJob", "PodFailed")))},
		{name: "Should allow job creation with valid task dependencies (DAG)", make: twoTasks(func(s *vcbatch.JobSpec) { s.Tasks[1].DependsOn = &vcbatch.DependsOn{Name: []string{"first"}} })},
		refused("AnyEvent policy and other event policies", "spec.policies", policies(on("AbortJob", "*"), on("RestartJob", "PodFailed"))),
		refused("duplicate policy events", "spec.policies[1].event", policies(on("AbortJob", "PodFailed"), on("RestartJob", "PodFailed"))),
		refused("duplicate task names", "spec.tasks[1].name", func(s *vcbatch.JobSpec) { s.Tasks[1].Name = "first" }),
		refused("duplicate volume mount paths", "spec.volumes[1].mountPath", claims("/data", "/data")),
		refused("invalid TTLSecondsAfterFinished less than zero", "spec.ttlSecondsAfterFinished", func(s *vcbatch.JobSpec) { s.TTLSecondsAfterFinished = ptr.To[int32](-1) }),
		refused("invalid maxRetry less than zero", "spec.maxRetry", func(s *vcbatch.JobSpec) { s.MaxRetry = -1 }),
		refused("invalid minAvailable less than zero", "spec.minAvailable", func(s *vcbatch.JobSpec) { s.MinAvailable = -1 }),
		refused("minAvailable greater than total replicas", "spec.minAvailable", func(s *vcbatch.JobSpec) { s.MinAvailable = 5 }),
		refused("invalid policy action", "spec.policies[0].action", policies(on("Explode", "PodFailed"))),
		refused("invalid policy event", "spec.policies[0].event", policies(on("AbortJob", "Explosion"))),
		refused("an event that is not for users", "spec.policies[0].event", policies(on("AbortJob", "OutOfSync"))),
		refused("no tasks specified", "spec.tasks", func(s *vcbatch.JobSpec) { s.Tasks, s.MinAvailable = []vcbatch.TaskSpec{}, 0 }),
		refused("policy event and exit code specified simultaneously", "spec.policies[0]", policies(vcbatch.LifecyclePolicy{Action: vcAction("AbortJob"), Event: vcEvent("PodFailed"), ExitCode: ptr.To[int32](3)})),
		refused("policy exit code zero", "spec.policies[0].exitCode", policies(vcbatch.LifecyclePolicy{Action: vcAction("AbortJob"), ExitCode: ptr.To[int32](0)})),
		refused("policy having neither event nor exit code", "spec.policies[0]", policies(vcbatch.LifecyclePolicy{Action: vcAction("AbortJob")})),
		refused("task minAvailable greater than replicas", "spec.tasks[0].minAvailable", func(s *vcbatch.JobSpec) { s.Tasks[0].MinAvailable = ptr.To[int32](3) }),
		refused("task minAvailable less than zero", "spec.tasks[0].minAvailable", func(s *vcbatch.JobSpec) { s.Tasks[0].MinAvailable = ptr.To[int32](-1) }),
		refused("tasks that wait for each other", "spec.tasks", func(s *vcbatch.JobSpec) {
			s.Tasks[0].DependsOn, s.Tasks[1].DependsOn = &vcbatch.DependsOn{Name: []string{"second"}}, &vcbatch.DependsOn{Name: []string{"first"}}
		}),
		refused("a queue that is not there", "spec.queue", func(s *vcbatch.JobSpec) { s.Queue = "not-there" }),
		refused("a plugin that is not known", "spec.plugins", func(s *vcbatch.JobSpec) { s.Plugins = map[string][]string{"magic": {}} }),
		{name: "Should reject job update attempting to add new tasks", make: twoTasks(nil), want: "spec.tasks", change: func(o client.Object) {
			s := &o.(*vcbatch.Job).Spec
			more := s.Tasks[0].DeepCopy()
			more.Name = "third"
			s.Tasks = append(s.Tasks, *more)
		}},
		{name: "Should reject job update with invalid minAvailable greater than total replicas", make: twoTasks(nil), want: "spec.minAvailable", change: func(o client.Object) {
			o.(*vcbatch.Job).Spec.MinAvailable = 5
		}},
		{name: "Should allow job update of replicas", make: twoTasks(nil), change: func(o client.Object) { o.(*vcbatch.Job).Spec.Tasks[0].Replicas = 3 }},
	}
}

func jobFlowQuestions() []judged {
	return []judged{
		{name: "Should allow jobflow creation with complex valid DAG structure", make: flowOf("a", "b:a", "c:a", "d:b,c", "e:d", "f:a,e")},
		{name: "Should allow jobflow creation with duplicate flow names", make: flowOf("a", "a")},
		{name: "Should allow jobflow creation with empty flows list", make: flowOf()},
		{name: "Should allow jobflow creation with simple linear dependency chain", make: flowOf("a", "b:a", "c:b")},
		{name: "Should allow jobflow creation with valid DAG structure", make: flowOf("a", "b:a", "c:a", "d:b,c")},
		{name: "Should allow jobflow update with valid DAG structure", make: flowOf("a", "b:a"), change: func(o client.Object) {
			f := o.(*vcflow.JobFlow)
			f.Spec.Flows = append(f.Spec.Flows, vcflow.Flow{Name: "c", DependsOn: &vcflow.DependsOn{Targets: []string{"a", "b"}}})
		}},
		{name: "Should reject jobflow creation with missing flow definition", make: flowOf("a", "b:elsewhere"), want: "spec.flows[1].dependsOn.targets[0]"},
		{name: "Should reject jobflow creation with self-dependency", make: flowOf("a:a"), want: "spec.flows"},
		{name: "Should reject jobflow creation with a cycle", make: flowOf("a:c", "b:a", "c:b"), want: "spec.flows"},
		{name: "Should reject jobflow update that makes a cycle", make: flowOf("a", "b:a"), want: "spec.flows", change: func(o client.Object) {
			o.(*vcflow.JobFlow).Spec.Flows[0].DependsOn = &vcflow.DependsOn{Targets: []string{"b"}}
		}},
	}
}

func podCompletions() []judged {
	group := func(name string) func(string) client.Object {
		return func(ns string) client.Object {
			p := plainPod(ns, "asked", nil)
			if name != "" {
				p.Annotations = map[string]string{vckeys.ResourceGroup: name}
			}
			return p
		}
	}
	goesTo := func(scheduler, kind string) func(client.Object) string {
		return func(o client.Object) string {
			if s := &o.(*corev1.Pod).Spec; s.SchedulerName != scheduler || s.NodeSelector["volcano.sh/nodetype"] != kind || (len(s.NodeSelector) > 0) != (kind != "") {
				return fmt.Sprintf("the pod is of %s, and goes to nodes of %v", s.SchedulerName, s.NodeSelector)
			}
			return ""
		}
	}
	own := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
		{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "own"}}},
	}}}
	return []judged{
		{name: "Should add nodeSelector for management namespace pods", first: func(s *stage) { s.namespaceOnce("management") }, make: func(ns string) client.Object { return plainPod("management", ns, nil) }, is: func(o client.Object) string {
			if !slices.ContainsFunc(o.(*corev1.Pod).Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == "taint" }) {
				return "the pod lacks the toleration of its group"
			}
			return goesTo("default-scheduler", "management")(o)
		}},
		{name: "Should add nodeSelector for pods with cpu resource-group annotation", make: group("cpu"), is: goesTo(vckeys.SchedulerName, "cpu")},
		{name: "Should add nodeSelector for pods with gpu resource-group annotation", make: group("gpu"), is: goesTo(vckeys.SchedulerName, "gpu")},
		{name: "Should not mutate pods that don't match any resource group", make: group("tpu"), is: goesTo(vckeys.SchedulerName, "")},
		{name: "Should not mutate pods without annotations", make: group(""), is: goesTo(vckeys.SchedulerName, "")},
		{name: "Should not override existing affinity", make: func(ns string) client.Object {
			p := group("gpu")(ns).(*corev1.Pod)
			p.Spec.Affinity = own
			return p
		}, is: func(o client.Object) string {
			if a := o.(*corev1.Pod).Spec.Affinity; a == nil || a.NodeAffinity != nil || a.PodAntiAffinity == nil || len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) != 1 {
				return fmt.Sprintf("the affinity is %+v", a)
			}
			return goesTo(vckeys.SchedulerName, "gpu")(o)
		}},
	}
}

func podQuestions() []judged {
	pod := func(scheduler string, notes ...string) func(string) client.Object {
		return func(ns string) client.Object {
			p := plainPod(ns, "asked", map[string]string{})
			p.Spec.SchedulerName = scheduler
			for i := 0; i < len(notes); i += 2 {
				p.Annotations[notes[i]] = notes[i+1]
			}
			return p
		}
	}
	const ours, least, most = vckeys.SchedulerName, vckeys.JDBMinAvailable, vckeys.JDBMaxUnavailable
	return []judged{
		{name: "Should allow pod creation with non-volcano scheduler (bypass validation)", make: pod("default-scheduler", least, "-1")},
		{name: "Should allow pod creation with valid annotations", make: pod(ours, least, "3")},
		{name: "Should allow pod creation with valid percentage annotation", make: pod(ours, most, "50%")},
		{name: "Should allow pod creation without annotations when using volcano scheduler", make: pod(ours)},
		{name: "Should reject pod creation with invalid negative annotation value", make: pod(ours, least, "-1"), want: least},
		{name: "Should reject pod creation with invalid percentage annotation (0%)", make: pod(ours, least, "0%"), want: least},
		{name: "Should reject pod creation with invalid percentage annotation (100%)", make: pod(ours, most, "100%"), want: most},
		{name: "Should reject pod creation with invalid string annotation", make: pod(ours, most, "many"), want: most},
		{name: "Should reject pod creation with invalid zero annotation value", make: pod(ours, least, "0"), want: least},
		{name: "Should reject pod creation with both annotations", make: pod(ours, least, "1", most, "1"), want: most},
	}
}

func podGroupIn(name, queue string) func(string) client.Object {
	return func(ns string) client.Object {
		return &vcscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: vcscheduling.PodGroupSpec{MinMember: 1, Queue: queue}}
	}
}

func podGroupCompletions() []judged {
	in := func(queue string) func(client.Object) string {
		return func(o client.Object) string {
			if have := o.(*vcscheduling.PodGroup).Spec.Queue; have != queue && (queue != above || have != above+o.GetNamespace()) {
				return fmt.Sprintf("the PodGroup is in queue %q, want %s", have, queue)
			}
			return ""
		}
	}
	named := func(s *stage) {
		s.queue(above+s.ns, weight(1))
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
		if err := s.client.Patch(s.t.Context(), space, client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"annotations": {"`+vckeys.QueueName+`": "`+above+s.ns+`"}}}`))); err != nil {
			s.t.Fatal(err)
		}
	}
	return []judged{
		{name: "Should handle multiple podgroups in same namespace", first: func(s *stage) {
			named(s)
			for _, queue := range []string{"", vckeys.DefaultQueue} {
				o := podGroupIn("other-"+queue+"x", queue)(s.ns)
				s.create(s.t, o)
				if wrong := in(above)(o); wrong != "" {
					s.t.Error(wrong)
				}
			}
		}, make: podGroupIn("asked", ""), is: in(above)},
		{name: "Should keep default queue when namespace has no queue annotation", make: podGroupIn("asked", ""), is: in(vckeys.DefaultQueue)},
		{name: "Should set queue from namespace annotation when podgroup uses default queue", first: named, make: podGroupIn("asked", vckeys.DefaultQueue), is: in(above)},
		{name: "Should keep a queue that is named", first: func(s *stage) { named(s); s.queue("own-"+s.ns, weight(1)) }, make: func(ns string) client.Object { return podGroupIn("asked", "own-"+ns)(ns) }, is: func(o client.Object) string {
			return in("own-" + o.GetNamespace())(o)
		}},
	}
}

func podGroupQuestions() []judged {
	return []judged{
		{name: "Should allow PodGroup creation with valid open queue", first: func(s *stage) { s.queue(above+s.ns, weight(1)) }, make: func(ns string) client.Object { return podGroupIn("asked", above+ns)(ns) }},
		{name: "Should allow PodGroup creation without queue specified", make: podGroupIn("asked", "")},
		{name: "Should reject PodGroup creation with a queue that is not there", make: podGroupIn("asked", "not-there"), want: "spec.queue"},
	}
}

// above is what the names of queues begin with that are made before the one that is asked about: queues are of no namespace, and may still be on their way out.
const above = "above-"

func queueAsked(spec vcscheduling.QueueSpec) func(string) client.Object {
	return func(ns string) client.Object {
		if spec.Parent == above {
			spec.Parent += ns
		}
		return &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "asked-" + ns}, Spec: spec}
	}
}

func queueCompletions() []judged {
	queue := func(is func(*vcscheduling.QueueSpec) bool) func(client.Object) string {
		return func(o client.Object) string {
			if s := &o.(*vcscheduling.Queue).Spec; !is(s) {
				return fmt.Sprintf("the queue is completed to %+v", *s)
			}
			return ""
		}
	}
	return []judged{
		{name: "Should preserve existing field values when specified", make: queueAsked(vcscheduling.QueueSpec{Weight: 5, Reclaimable: ptr.To(false)}), is: queue(func(s *vcscheduling.QueueSpec) bool {
			return s.Weight == 5 && s.Reclaimable != nil && !*s.Reclaimable
		})},
		{name: "Should set default reclaimable to true when not specified", make: queueAsked(weight(1)), is: queue(func(s *vcscheduling.QueueSpec) bool { return ptr.Deref(s.Reclaimable, false) })},
		{name: "Should set default weight to 1 when not specified", make: queueAsked(vcscheduling.QueueSpec{}), is: queue(func(s *vcscheduling.QueueSpec) bool { return s.Weight == 1 })},
		{name: "Should begin a path and its weights at the root", make: func(ns string) client.Object {
			return &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "asked-" + ns, Annotations: map[string]string{vckeys.Hierarchy: "a/b", vckeys.HierarchyWeights: "2/3"}}, Spec: weight(1)}
		}, is: func(o client.Object) string {
			if notes := o.GetAnnotations(); notes[vckeys.Hierarchy] != "root/a/b" || notes[vckeys.HierarchyWeights] != "1/2/3" {
				return fmt.Sprintf("the annotations are %v", notes)
			}
			return ""
		}},
	}
}

func queueQuestions() []judged {
	ten, five := amounts("cpu", "10"), amounts("cpu", "5")
	least := func(all corev1.ResourceList) vcscheduling.Guarantee { return vcscheduling.Guarantee{Resource: all} }
	in := func(state vcscheduling.QueueState) func(string) client.Object {
		return func(ns string) client.Object {
			return &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "asked-" + ns}, Spec: weight(1), Status: vcscheduling.QueueStatus{State: state, Allocated: corev1.ResourceList{}}}
		}
	}
	return []judged{
		{name: "Should allow hierarchical queue creation with valid parent", first: func(s *stage) { s.queue(above+s.ns, weight(1)) }, make: queueAsked(vcscheduling.QueueSpec{Weight: 1, Parent: above})},
		{name: "Should allow queue creation with deserved resource type not in capability", make: queueAsked(vcscheduling.QueueSpec{Weight: 1, Capability: ten, Deserved: amounts("cpu", "5", "memory", "1Gi")})},
		{name: "Should allow queue creation with guarantee resource type not in capability", make: queueAsked(vcscheduling.QueueSpec{
			Weight: 1, Capability: ten, Deserved: amounts("cpu", "5", "memory", "1Gi"), Guarantee: least(amounts("cpu", "2", "memory", "1Gi")),
		})},
		{name: "Should allow queue creation with only deserved resource", make: queueAsked(vcscheduling.QueueSpec{Weight: 1, Deserved: five})},
		{name: "Should allow queue creation with valid state (Open)", make: in(vcscheduling.QueueStateOpen)},
		{name: "Should allow queue creation without state set", make: in("")},
		{name: "Should allow queue creation without weight specified (uses default)", make: queueAsked(vcscheduling.QueueSpec{})},
		{name: "Should allow queue state update from Open to Closed", make: in(vcscheduling.QueueStateOpen), status: true, change: func(o client.Object) {
			o.(*vcscheduling.Queue).Status.State = vcscheduling.QueueStateClosed
		}},
		{name: "Should reject queue creation with capability less than deserved", make: queueAsked(vcscheduling.QueueSpec{Weight: 1, Capability: five, Deserved: ten}), want: "spec.deserved"},
		{name: "Should reject queue creation with capability less than guarantee", make: queueAsked(vcscheduling.QueueSpec{Weight: 1, Capability: five, Deserved: ten, Guarantee: least(ten)}), want: "spec.deserved"},
		{name: "Should reject queue creation with deserved less than guarantee", make: queueAsked(vcscheduling.QueueSpec{Weight: 1, Deserved: five, Guarantee: least(ten)}), want: "spec.guarantee"},
		{name: "Should reject queue creation with guarantee resource type not in deserved", make: queueAsked(vcscheduling.QueueSpec{
			Weight: 1, Deserved: five, Guarantee: least(amounts("cpu", "2", "memory", "1Gi")),
		}), want: "spec.guarantee"},
		{name: "Should reject queue creation with negative weight", make: queueAsked(vcscheduling.QueueSpec{Weight: -1}), want: "spec.weight"},
		{name: "Should reject queue creation with only guarantee resource (deserved required)", make: queueAsked(vcscheduling.QueueSpec{Weight: 1, Guarantee: least(five)}), want: "spec.guarantee"},
		{name: "Should reject queue creation with only hierarchy annotation but no weights", make: func(ns string) client.Object {
			return &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "asked-" + ns, Annotations: map[string]string{vckeys.Hierarchy: "root/a"}}, Spec: weight(1)}
		}, want: vckeys.HierarchyWeights},
		{name: "Should reject queue creation with a parent that is not there", make: queueAsked(vcscheduling.QueueSpec{Weight: 1, Parent: "not-there"}), want: "spec.parent"},
		{name: "Should reject queue update with negative weight", make: queueAsked(weight(1)), want: "spec.weight", change: func(o client.Object) { o.(*vcscheduling.Queue).Spec.Weight = -1 }},
	}
}

// namespaceOnce makes a namespace that stays.
func (s *stage) namespaceOnce(name string) {
	s.t.Helper()
	if slices.ContainsFunc(list(s.fixture, &corev1.NamespaceList{}).Items, func(n corev1.Namespace) bool { return n.Name == name }) {
		return
	}
	s.namespace(s.t, name)
}
