//go:build lab

package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/lab"
)

// The cluster of the matrix has exactly as many GPUs as the gang needs.
const (
	matrixNodes = 8
	gangSize    = 8 * matrixNodes
)

// kind is a kind of write at which a process is killed.
type kind struct {
	name    string
	match   lab.Match
	volumes bool // the write is only made for pods with volumes, whom the binder binds
	alone   bool // and this one for pods that stand alone: as many of them as a gang has
	once    bool // it is made once for a gang
}

func kinds() []kind {
	return []kind{
		{name: "BindRequest", match: lab.Match{Method: "POST", Group: v1alpha2.GroupVersion.Group, Resource: "bindrequests"}, volumes: true},
		{name: "prepare", match: lab.Match{Method: "PATCH", Resource: "persistentvolumeclaims"}, volumes: true},
		{name: "bind", match: lab.Match{Method: "POST", Resource: "pods", Subresource: "binding"}, volumes: true},
		{name: "status", match: lab.Match{Method: "PATCH", Group: v1alpha2.GroupVersion.Group, Resource: "bindrequests", Subresource: "status"}, volumes: true},
		{name: "record", match: lab.Match{Method: "POST", Resource: "configmaps", Namespace: keys.Namespace}, once: true},
		{name: "bind-gang", match: lab.Match{Method: "POST", Resource: "pods", Subresource: "binding"}},
		{name: "erase", match: lab.Match{Method: "DELETE", Resource: "configmaps", Namespace: keys.Namespace}, once: true},
		{name: "bind-alone", match: lab.Match{Method: "POST", Resource: "pods", Subresource: "binding"}, alone: true},
		{name: "own-gang", match: lab.Match{Method: "PATCH", Resource: "pods", Where: saysOwnGang}, alone: true},
	}
}

// saysOwnGang says whether a write makes a pod its gang by itself.
func saysOwnGang(r lab.Request) bool { return bytes.Contains(r.Body, []byte(keys.OwnGangAnnotation)) }

// point is the moment of a kill: the k-th write of a kind, before or after its response was sent.
type point struct {
	kind kind
	k    int
	when lab.When
}

func points() (all []point) {
	for _, kind := range kinds() {
		for _, k := range []int{1, gangSize / 2, gangSize - 1} {
			if kind.once && k > 1 {
				continue
			}
			all = append(all, point{kind, k, lab.BeforeForward}, point{kind, k, lab.AfterForward})
		}
	}
	return all
}

// row begins the point's row of the table.
func (p point) row() string {
	if p.when == lab.BeforeForward {
		return fmt.Sprintf("%s\t%d\tlost", p.kind.name, p.k)
	}
	return fmt.Sprintf("%s\t%d\tsent", p.kind.name, p.k)
}

// column is an arrangement of processes, and which of them is killed.
type column struct {
	victim string
	others []string
	writes []string // kinds of writes that the victim makes
}

func columns() []column {
	return []column{
		{"scheduler", []string{"binder", "podgrouper", "podgroup", "queue"}, []string{"BindRequest", "record", "bind-gang", "erase", "bind-alone"}},
		{"binder", []string{"scheduler", "podgrouper", "podgroup", "queue"}, []string{"prepare", "bind", "status"}},
		{"podgrouper", []string{"scheduler", "binder", "podgroup", "queue"}, []string{"own-gang"}},
		{"all", nil, []string{"BindRequest", "prepare", "bind", "status", "record", "bind-gang", "erase", "bind-alone"}}, // where what gang a lone pod is is told in memory, and comes with its Binding
	}
}

// TestKillMatrix kills a process at the k-th write of a kind, starts it again, and looks what becomes of the gang.
func TestKillMatrix(t *testing.T) {
	began := time.Now()
	w := newFixture(t, matrixNodes, lab.Options{})
	w.provision(t)
	results := map[string]string{} // by row and victim
	for _, c := range columns() {
		t.Run(c.victim, func(t *testing.T) {
			m := newMatrix(t, w, c)
			for _, at := range points() {
				results[at.row()+c.victim] = "n/a"
				if slices.Contains(c.writes, at.kind.name) {
					results[at.row()+c.victim] = m.cell(t, at)
				}
			}
		})
	}
	rejected, err := w.lab.Rejected(t.Context())
	if err != nil || len(rejected) > 0 {
		t.Errorf("kubelets turned pods away: %v, %v", rejected, err)
	}
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(out, "write\tk\tresponse")
	for _, c := range columns() {
		fmt.Fprint(out, "\t"+c.victim)
	}
	for _, at := range points() {
		fmt.Fprint(out, "\n"+at.row())
		for _, c := range columns() {
			fmt.Fprint(out, "\t"+results[at.row()+c.victim])
		}
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("the kill matrix, %d pods on %d GPUs, in %v (response lost: the API server had written, the process had not heard; clean: pods bound at the kill, time from the restart until 0 or all are bound, until all run):\n%s",
		gangSize, 8*matrixNodes, time.Since(began).Round(time.Second), b.String())
}

// matrix is one column at work.
type matrix struct {
	w      *fixture
	proxy  *lab.Proxy
	victim *process
	others []*process
}

func newMatrix(t *testing.T, w *fixture, c column) *matrix {
	t.Helper()
	proxy, err := w.lab.NewProxy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	m := &matrix{w: w, proxy: proxy}
	for _, role := range c.others {
		p := newProcess(t, role, w.lab.Kubeconfig())
		p.start()
		m.others = append(m.others, p)
	}
	m.victim = newProcess(t, c.victim, proxy.Kubeconfig())
	m.victim.start()
	for _, p := range append(m.others, m.victim) {
		p.awaitReady(t)
	}
	return m
}

// cell plays one cell of the matrix and returns what is printed in it.
func (m *matrix) cell(t *testing.T, at point) string {
	t.Helper()
	w := m.w
	ns := strings.ToLower(strings.ReplaceAll(m.victim.role+"-"+at.row(), "\t", "-"))
	fail := func(format string, args ...any) string {
		text := fmt.Sprintf(format, args...)
		t.Errorf("%s: %s", ns, text)
		return "FAILED: " + text
	}
	w.namespace(t, ns)
	m.proxy.Reset()
	match := at.kind.match
	match.Namespace = cmp.Or(match.Namespace, ns)
	fired := m.proxy.On(match, at.k, at.when, func(lab.Request) { m.victim.kill() })
	class := ""
	if at.kind.volumes {
		class = storageClass
	}
	if at.kind.alone {
		for i := range gangSize {
			w.create(t, gang(ns, fmt.Sprintf("alone-%02d", i), 1, class))
		}
	} else {
		w.create(t, gang(ns, "gang", gangSize, class))
	}
	select {
	case <-fired:
	case <-time.After(2 * time.Minute):
		_, what := w.await(0, w.allRunning(ns, gangSize))
		w.erase(t, ns)
		return fail("the write did not come within two minutes; %s", what)
	}
	left := w.boundNow(t, ns)
	m.victim.start()
	since := time.Now()
	verdict, problem := m.aftermath(ns, at.kind)
	if took := time.Since(since); took > 4*time.Second && problem == "" {
		t.Logf("%s took %v; the end of what %s said:\n%s", ns, took, m.victim.role, m.victim.tail(25))
	}
	w.erase(t, ns)
	m.victim.awaitReady(t)
	for _, p := range append(m.others, m.victim) {
		if !p.running() {
			return fail("process %s has ended: %v", p.role, p.exit())
		}
	}
	if problem != "" {
		return fail("%s", problem)
	}
	return fmt.Sprintf("clean (%d, %s)", left, verdict)
}

// aftermath watches the gang after the restart and returns how long things took, or what went wrong.
func (m *matrix) aftermath(ns string, kind kind) (verdict, problem string) {
	whole, what := m.w.await(time.Minute, func() string {
		if n := m.w.bound(ns); !kind.alone && n != 0 && n != gangSize {
			return fmt.Sprintf("a minute after the restart %d of %d pods are bound", n, gangSize)
		}
		return ""
	})
	if what != "" {
		return "", what
	}
	done, what := m.w.await(3*time.Minute, m.w.allRunning(ns, gangSize))
	if what != "" {
		return "", "three minutes later: " + what
	}
	if !kind.alone {
		if what := m.w.early(ns, gangSize, kind.volumes); what != "" {
			return "", what
		}
	}
	if n := m.w.asked(ns); n > 0 && !kind.volumes {
		return "", fmt.Sprintf("%d pods that need no preparing had a BindRequest", n)
	}
	if kind.alone {
		// Told by the podgrouper's write, or by its Binding: nobody runs of whom it is not known what gang he is.
		if _, what := m.w.await(time.Minute, func() string {
			for _, p := range m.w.pods(ns) {
				if kai.OwnGang(&p) == nil && p.Annotations[keys.PodGroupAnnotation] == "" {
					return fmt.Sprintf("pod %s runs, and does not say what gang it is", p.Name)
				}
			}
			return ""
		}); what != "" {
			return "", what
		}
		// Whoever comes before the scheduler has seen the last cell's pods go has no room for a moment, and gets one: only he, and who waits long.
		for _, g := range list(m.w, &v2alpha2.PodGroupList{}, client.InNamespace(ns)).Items {
			if !slices.ContainsFunc(m.w.pods(ns), func(p corev1.Pod) bool {
				gang, _ := kai.Membership(&p)
				return gang.Name == g.Name && (m.w.waited(ns, p.UID) || waitedFor(&p) > 50*time.Second)
			}) {
				return "", fmt.Sprintf("PodGroup %s is of a pod that is alone in its gang and had room", g.Name)
			}
		}
	}
	if _, what := m.w.await(time.Minute, func() string { return m.residue(ns) }); what != "" {
		return "", what
	}
	return fmt.Sprintf("%.1f s, %.1f s", whole.Seconds(), (whole + done).Seconds()), ""
}

// waitedFor is how long a pod waited for its node, in whole seconds, as the API server tells.
func waitedFor(p *corev1.Pod) time.Duration {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Sub(p.CreationTimestamp.Time)
		}
	}
	return time.Since(p.CreationTimestamp.Time)
}

// residue says what is held where it should not be, or not reported, when all run; "" for nothing.
func (m *matrix) residue(ns string) string {
	nodes := map[string]string{}
	for _, p := range m.w.pods(ns) {
		nodes[p.Name] = p.Spec.NodeName
	}
	for _, r := range list(m.w, &v1alpha2.BindRequestList{}, client.InNamespace(ns)).Items {
		if r.Spec.SelectedNode != nodes[r.Spec.PodName] {
			return fmt.Sprintf("BindRequest %s still holds room on %s, its pod is on %q", r.Name, r.Spec.SelectedNode, nodes[r.Spec.PodName])
		}
		if r.Status.Phase != v1alpha2.BindRequestSucceeded {
			return fmt.Sprintf("BindRequest %s is %q, its pod is bound", r.Name, r.Status.Phase)
		}
	}
	if n := m.w.recordsLeft(ns); n > 0 {
		return fmt.Sprintf("%d records of decisions about gangs are left", n)
	}
	return m.w.strayClaims(ns, nodes)
}
