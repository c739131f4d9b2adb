//go:build lab

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/lab"
)

// The audit log of the lab's API server has every request that may have written, with its answer.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  verbs: [get, list, watch]
- level: RequestResponse
`

// audited is a line of the audit log.
type audited struct {
	Stage     string
	Verb      string
	UserAgent string
	User      struct{ Username string }
	ObjectRef struct{ Resource, Subresource string }

	ResponseStatus struct{ Code int }
	ResponseObject struct {
		Metadata struct{ ResourceVersion string }
	}
}

// auditLog reads an audit log, from where it stopped last.
type auditLog struct {
	path string
	read int64
}

// auditing are the flags for an API server with an audit log, and what reads it.
func auditing(t *testing.T) (args []string, l *auditLog) {
	t.Helper()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	l = &auditLog{path: filepath.Join(dir, "audit.log")}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + l.path, "--audit-log-maxsize=2048"}, l
}

// since returns the revisions of etcd that requests made since the last call, by who, verb and resource, from a revision on. The
// resourceVersion in an answer is the revision of the last change: one that was there before tells of a request that changed nothing. An
// answer without it, as a Binding and a delete have, counts as one.
func (l *auditLog) since(t *testing.T, from uint64) map[string]int {
	t.Helper()
	f, err := os.Open(l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(l.read, 0); err != nil {
		t.Fatal(err)
	}
	out, seen := map[string]int{}, map[uint64]bool{}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // the end, or half a line
			return out
		}
		l.read += int64(len(line))
		var a audited
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if a.Stage != "ResponseComplete" || a.ResponseStatus.Code >= 300 {
			continue
		}
		if v, err := strconv.ParseUint(a.ResponseObject.Metadata.ResourceVersion, 10, 64); err == nil && a.Verb != "delete" {
			if v <= from || seen[v] {
				continue
			}
			seen[v] = true
		}
		what := a.ObjectRef.Resource
		if a.ObjectRef.Subresource != "" {
			what += "/" + a.ObjectRef.Subresource
		}
		out[a.who()+" "+a.Verb+" "+what]++
	}
}

// who made a request: muster, the garbage collector, or another.
func (a *audited) who() string {
	agent, _, _ := strings.Cut(a.UserAgent, "/")
	account := strings.TrimPrefix(a.User.Username, "system:serviceaccount:kube-system:")
	if account != a.User.Username {
		return account
	}
	return agent
}

// ours says whether a row of since is Muster's doing: its own writes, but Leases, and what the garbage collector deletes of what it made.
func ours(row string) bool {
	words := strings.Fields(row)
	switch words[0] {
	case "muster":
		return words[2] != "leases"
	case "generic-garbage-collector":
		return words[2] == "bindrequests" || words[2] == "podgroups"
	}
	return false
}

// revision is etcd's, now.
func (w *fixture) revision(t *testing.T) uint64 {
	t.Helper()
	var list corev1.NamespaceList
	if err := w.client.List(t.Context(), &list, client.Limit(1)); err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// sum adds up the rows that count.
func sum(rows map[string]int, counts func(string) bool) (n int) {
	for row, k := range rows { // order: a sum
		if counts(row) {
			n += k
		}
	}
	return n
}

// TestWriteBudget counts the revisions of etcd that a placed pod costs, everything that trails included, until it is gone: for pods that
// stand alone, and for members of gangs of 16. What kubelets, the Job controller and whoever submits write is not ours. The API server's
// audit log says who wrote what; that it tells of all, etcd's own count says.
func TestWriteBudget(t *testing.T) {
	args, audit := auditing(t)
	w := newFixture(t, 16, lab.Options{APIServerArgs: args})
	muster := newProcess(t, "all", w.lab.Kubeconfig())
	muster.start()
	muster.awaitReady(t)
	for _, c := range []struct {
		name       string
		jobs, size int
		reach      float64 // what is to be reached
		most       float64 // what is reached
		flag       string  // that Muster is started anew with
	}{
		{"alone", 96, 1, 3.2, budgetAlone, ""},
		{"gang16", 6, 16, 2.3, budgetGang, ""},
		{"grouped", 96, 1, 3.2, budgetGrouped, "--podgroups=all"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.flag != "" {
				muster.kill()
				muster.args = append(muster.args, c.flag)
				muster.start()
				muster.awaitReady(t)
			}
			pods := c.jobs * c.size
			w.namespace(t, c.name)
			w.sinceThen(t, w.writes(t), 6*time.Second)
			from := w.revision(t)
			audit.since(t, 0)
			then := w.writes(t)
			for i := range c.jobs {
				w.create(t, gang(c.name, fmt.Sprintf("j%02d", i), c.size, ""))
			}
			w.must(t, 2*time.Minute, w.allRunning(c.name, pods))
			w.sinceThen(t, then, 6*time.Second)
			slow := 0 // pods of which more may have been written because they waited, on a machine that is busy (ADR 18)
			for _, p := range w.pods(c.name) {
				if waitedFor(&p) > 10*time.Second {
					slow++
				}
			}
			to := w.revision(t)
			placed := audit.since(t, from)
			all := sum(placed, func(string) bool { return true })
			if off := all - int(to-from); off > int(to-from)/50+20 || -off > int(to-from)/50+20 {
				t.Errorf("the audit log tells of %d writes, etcd has %d", all, to-from)
			}
			then = w.writes(t)
			w.erase(t, c.name)
			w.sinceThen(t, then, 6*time.Second)
			gone := audit.since(t, to)
			var b strings.Builder
			out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
			fmt.Fprintf(out, "who, what\tuntil it runs\tuntil it is gone\tper pod\n")
			rows := maps.Clone(placed)
			maps.Copy(rows, gone)
			for _, row := range slices.Sorted(maps.Keys(rows)) {
				mark := "(not ours) "
				if ours(row) {
					mark = ""
				}
				fmt.Fprintf(out, "%s%s\t%d\t%d\t%.2f\n", mark, row, placed[row], gone[row], float64(placed[row]+gone[row])/float64(pods))
			}
			if err := out.Flush(); err != nil {
				t.Fatal(err)
			}
			until, in := float64(sum(placed, ours))/float64(pods), float64(sum(placed, ours)+sum(gone, ours))/float64(pods)
			t.Logf("%d pods, %d writes of all until they run, of which etcd has %d:\n%sours: %.2f a pod until it runs, %.2f in all; to be reached: %.1f", pods, all, to-from, b.String(), until, in, c.reach)
			const grouped = 6.0 // what one costs besides that gets its annotation, and then its PodGroup
			if in > c.most+grouped*float64(slow)/float64(pods) {
				t.Errorf("a pod costs %.2f writes, more than %.1f; %d of %d waited for long", in, c.most, slow, pods)
			}
		})
	}
}

// What a pod costs now, in revisions of etcd, with room for the events and statuses that come or not by chance. It only ever falls.
const (
	budgetAlone   = 2.5
	budgetGang    = 2.0
	budgetGrouped = 7.6
)
