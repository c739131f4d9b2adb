package admission

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
	"github.com/muster-scheduler/muster/internal/kube/textfile"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// groupRef is where the groups are in these tests.
func groupRef() textfile.Ref {
	return textfile.Ref{NamespacedName: types.NamespacedName{Namespace: "volcano-system", Name: "volcano-admission-configmap"}, Key: "volcano-admission.conf"}
}

// groupMap is the ConfigMap that says groups, each called as its node label.
func groupMap(groups ...string) *corev1.ConfigMap {
	text := "resourceGroups:\n"
	for _, name := range groups {
		text += "- resourceGroup: " + name + "\n  labels: {type: " + name + "}\n"
	}
	ref := groupRef()
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}, Data: map[string]string{ref.Key: text}}
}

// said are events, in one order.
type said struct {
	mu   sync.Mutex
	told []string
}

func (s *said) tell(_ client.Object, kind, reason, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, kind+" "+reason+": "+message)
}

// all is what was said since it was asked last.
func (s *said) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.told = nil }()
	return strings.Join(s.told, "; ")
}

func runGroups(t *testing.T, p *kubetest.Process, s *said) func() {
	return p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		g, err := NewGroups(GroupDeps{Cache: objects, Client: c, Tell: s.tell, Log: logr.Discard()}, groupRef())
		if err != nil {
			return nil, err
		}
		return g.Run, nil
	})
}

// TestResourceGroups: the ConfigMap is followed; a bad one is told, and the one before it rules on, also after a restart; a template that somebody changes or takes away is put right; without
// groups there are none; at rest nothing is written.
func TestResourceGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, events := kubetest.New(kubetest.Options{}), &said{}
		other := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "volcano-system", Name: "somebody-elses"}}
		s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "volcano-system"}}, other)
		stop := runGroups(t, s.Process("admission"), events)
		settle := func() {
			t.Helper()
			<-time.After(time.Minute)
			synctest.Wait()
		}
		step := func(what, want, told string) {
			t.Helper()
			settle()
			if got := groupsOf(s); got != want {
				t.Errorf("%s: groups %q, want %q", what, got, want)
			}
			if got := events.all(); !strings.Contains(got, told) || told == "" && got != "" {
				t.Errorf("%s: told %q, want %q", what, got, told)
			}
		}
		step("without a ConfigMap", "", "")
		s.Put(groupMap("a", "b"))
		step("two groups", "a b", "Normal ResourceGroupsTaken: pods of 2 resource groups are changed by this file from now on")
		s.Writes()
		settle()
		if w := s.Writes(); len(w) > 0 {
			t.Errorf("at rest: %v", w)
		}
		s.Put(groupMap("b", "a"))
		step("the other way round", "a b", "ResourceGroupsTaken")
		made := false
		for _, w := range s.Writes() {
			if text := w.String(); strings.HasPrefix(text, "delete") && made {
				t.Errorf("%s after others were made: a pod may be in two groups", text)
			} else if strings.HasPrefix(text, "create") {
				made = true
			}
		}
		s.Put(groupMap("a", "b"))
		step("and back", "a b", "ResourceGroupsTaken")
		bad := groupMap("c")
		bad.Data["volcano-admission.conf"] += "- labels: {a: b}\n"
		s.Put(bad)
		step("a bad one", "a b", "Warning ResourceGroupsRefused: the resource groups are refused, and those before them rule on: line 4: resourceGroups[1] has neither a name (resourceGroup) nor an object")
		stop()
		stop = runGroups(t, s.Process("the next"), events)
		step("a bad one from the start", "a b", "ResourceGroupsRefused")
		s.Put(groupMap("a"))
		step("one group less", "a", "ResourceGroupsTaken")
		for _, p := range groupTemplates(s) {
			p.Template.Spec.NodeSelector["type"] = "mine"
			s.Put(p)
		}
		step("a template is changed", "a", "")
		if p := groupTemplates(s); len(p) != 1 || p[0].Template.Spec.NodeSelector["type"] != "a" {
			t.Errorf("the template is not put right: %v", p)
		}
		for _, p := range groupTemplates(s) {
			s.Remove(p)
		}
		step("a template is gone", "a", "")
		s.Remove(groupMap())
		step("the ConfigMap is gone", "", "")
		if !s.Get(other) {
			t.Error("somebody else's template is gone")
		}
		s.Serve("MutatingAdmissionPolicy", false)
		stop()
		runGroups(t, s.Process("on an older server"), events)
		s.Put(groupMap("a"))
		step("on an older server", "", "Warning ResourceGroupsUnserved: the resource groups have no effect: the API server serves no MutatingAdmissionPolicy")
		s.Serve("MutatingAdmissionPolicy", true)
		step("after an upgrade", "a", "")
	})
}

// groupTemplates are those that stand for groups.
func groupTemplates(s *kubetest.Server) (out []*corev1.PodTemplate) {
	for _, groups := range [][]string{{"a"}, {"a", "b"}, {"b"}, {"b", "a"}, {"c"}} {
		ref := groupRef()
		all, _, err := volcano.ParseGroups([]byte(groupMap(groups...).Data[ref.Key]), ref.Namespace, nil)
		if err != nil {
			panic(err)
		}
		for _, p := range all {
			if s.Get(p) && !slices.ContainsFunc(out, func(o *corev1.PodTemplate) bool { return o.Name == p.Name }) {
				out = append(out, p)
			}
		}
	}
	return out
}

// groupsOf are the names of the groups that there are.
func groupsOf(s *kubetest.Server) string {
	var names []string
	for _, p := range groupTemplates(s) {
		names = append(names, p.Annotations[volcano.GroupNameAnnotation])
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestResourceGroupCrashes: wherever who writes them dies, the next one goes on.
func TestResourceGroupCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{
		Set: func(s *kubetest.Server) {
			ref := groupRef()
			s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ref.Namespace}})
			old, _, err := volcano.ParseGroups([]byte(groupMap("a", "b").Data[ref.Key]), ref.Namespace, nil)
			if err != nil {
				panic(err)
			}
			for _, p := range old {
				s.Put(p)
			}
			s.Put(groupMap("b", "a"))
		},
		Run:    func(t *testing.T, p *kubetest.Process) func() { return runGroups(t, p, &said{}) },
		Settle: time.Minute,
		Check: func(t *testing.T, s *kubetest.Server) {
			if got := groupsOf(s); got != "a b" {
				t.Errorf("in the end: %q", got)
			}
			for _, p := range groupTemplates(s) {
				if first := p.Annotations[volcano.GroupNameAnnotation] == "b"; first != (len(p.Template.Spec.Containers[1].Env) == 0) {
					t.Errorf("%s is of the file before", p.Annotations[volcano.GroupNameAnnotation])
				}
			}
		},
	}.Crashes(t)
}
