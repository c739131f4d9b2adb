//go:build lab

package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/lab"
	"github.com/muster-scheduler/muster/internal/see"
	"github.com/muster-scheduler/muster/internal/ui"
)

// site is the role ui as people reach it.
type site struct {
	url    string
	client *http.Client
	tokens map[string]string
}

// get asks as somebody; 0 for no answer.
func (s *site) get(t *testing.T, who, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if who != "" {
		r.Header.Set("Authorization", "Bearer "+s.tokens[who])
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// post asks with a body of JSON.
func (s *site) post(t *testing.T, who, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if who != "" {
		r.Header.Set("Authorization", "Bearer "+s.tokens[who])
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// poll asks until an answer is as it should be.
func poll(t *testing.T, limit time.Duration, lacking func() string) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(limit); ; {
		what := lacking()
		if what == "" {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("after %v: %s", limit, what)
		}
	}
}

// person makes a service account that stands for a person, with these rights in a namespace ("": everywhere), and returns its token.
func (w *fixture) person(t *testing.T, namespace, name string, everywhere bool, rules ...rbacv1.PolicyRule) string {
	t.Helper()
	w.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	who := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
	switch {
	case len(rules) == 0:
	case everywhere:
		w.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
		w.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: who, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}})
	default:
		w.create(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules})
		w.create(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Subjects: who, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}})
	}
	token, err := w.lab.Client().CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// TestWhoSeesWhat runs the role ui with its own account's rights beside a scheduler: two tenants, an admin and one without rights ask everything. The answers are of the scheduler's own
// cycles, at most a few seconds old; no tenant finds a name of the other's; a right that is taken away is gone after ten seconds; another leader is found again.
func TestWhoSeesWhat(t *testing.T) {
	w := newFixture(t, 2, lab.Options{})
	muster := newProcess(t, "all", w.lab.Kubeconfig(), "--leader-elect", "--plugin-server-port=0", "--cycle-listen-address="+freeAddress(t))
	muster.start()
	address := freeAddress(t)
	role := newProcess(t, install.UI, w.roleAccount(t, install.UI), "--ui-listen-address="+address, "--journal-folder="+t.TempDir())
	role.start()
	muster.awaitReady(t)
	role.awaitReady(t)

	get := func(verb, resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"scheduling.run.ai"}, Resources: []string{resource}, Verbs: []string{verb}}
	}
	for _, ns := range []string{"red", "blue"} {
		w.namespace(t, ns)
	}
	s := &site{url: "https://" + address, tokens: map[string]string{
		"ruth": w.person(t, "red", "ruth", false, get("get", "podgroups")), "bill": w.person(t, "blue", "bill", false, get("get", "podgroups")),
		"ada": w.person(t, "default", "ada", true, get("get", "podgroups"), get("list", "queues"), get("simulate", "queues")), "eve": w.person(t, "default", "eve", false), "liar": "not-a-token",
	}, client: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}}

	const api = "/apis/" + see.APIVersion
	poll(t, 2*time.Minute, func() string { // before it is there, the role follows: what was decided earlier is not in its journal
		if code, text := s.get(t, "ada", api+"/queues"); code != http.StatusOK {
			return fmt.Sprintf("%d %.300s", code, text)
		}
		return ""
	})
	w.create(t, gang("blue", "bluefirst", 16, ""))
	w.must(t, 30*time.Second, w.allRunning("blue", 16))
	w.create(t, gang("blue", "bluelater", 8, ""))
	w.create(t, gang("red", "redtrain", 8, ""))
	w.create(t, gang("red", "redhuge", 40, ""))
	poll(t, 60*time.Second, func() string {
		code, text := s.get(t, "ada", api+"/gangs")
		for _, name := range []string{`"Job bluefirst"`, `"Job bluelater"`, `"Job redtrain"`, `"Job redhuge"`, `"scheduler":true`} {
			if code != http.StatusOK || !strings.Contains(text, name) {
				return fmt.Sprintf("%s is not in %d %s", name, code, text)
			}
		}
		return ""
	})

	// The journal has the cycle that bound bluefirst, and why the others wait.
	var kept string
	poll(t, 2*time.Minute, func() string {
		code, text := s.get(t, "ada", api+"/decisions")
		var l ui.DecisionList
		if err := json.Unmarshal([]byte(text), &l); err != nil || code != http.StatusOK {
			return fmt.Sprintf("%d %.300s", code, text)
		}
		waits := map[string]bool{}
		for _, e := range l.Items {
			for _, d := range e.Decisions {
				if d.Binds > 0 && strings.HasPrefix(d.Gang.Name, "pg-bluefirst-") {
					kept = fmt.Sprint(e.Number)
				}
			}
			for _, r := range e.Reasons {
				for _, name := range []string{"bluelater", "redtrain", "redhuge"} {
					waits[name] = waits[name] || r.Reason != "" && strings.HasPrefix(r.Gang.Name, "pg-"+name+"-")
				}
			}
		}
		if kept == "" || !waits["bluelater"] || !waits["redtrain"] || !waits["redhuge"] {
			return fmt.Sprintf("the journal has cycle %q, and reasons of %v: %.2000s", kept, waits, text)
		}
		return ""
	})

	names := []string{"bluefirst", "bluelater", "redtrain", "redhuge"}
	matrix := []struct {
		path string
		// What each is answered: the status, and which of the names are told. Of what takes its room red's answer names nobody to ruth, and bluefirst to ada.
		ruth, bill, ada, eve string
	}{
		{api + "/gangs", "403", "403", "200 bluefirst bluelater redtrain redhuge", "403"},
		{api + "/gangs?namespace=red", "200 redtrain redhuge", "403", "200 redtrain redhuge", "403"},
		{api + "/gangs?namespace=blue", "403", "200 bluefirst bluelater", "200 bluefirst bluelater", "403"},
		{api + "/namespaces/red/gangs/redhuge", "200 redhuge", "403", "200 bluefirst redhuge", "403"},
		{api + "/namespaces/red/gangs/Job%20redtrain", "200 redtrain", "403", "200 bluefirst redtrain", "403"},
		{api + "/namespaces/red/gangs/redtrain?inLine=true", "200 redtrain", "403", "200 bluefirst redtrain", "403"},
		{api + "/namespaces/blue/gangs/job/bluelater", "403", "200 bluefirst bluelater", "200 bluefirst bluelater", "403"},
		{api + "/namespaces/blue/gangs/nothing", "403", "404", "404", "403"},
		{api + "/namespaces/red/gangs/bluefirst", "404", "403", "404", "403"},
		{api + "/queues", "403", "403", "200", "403"},
		{api + "/queues?namespace=red", "200", "403", "200", "403"},
		{"/?namespace=red", "200 redtrain redhuge", "403", "200 redtrain redhuge", "403"},
		{"/job/red/redhuge", "200 redhuge", "403", "200 redhuge", "403"},
		{"/queues?namespace=blue", "403", "200", "200", "403"},
		{api + "/nodes", "403", "403", "403", "403"}, // takes the right to list nodes
		{"/gpus", "403", "403", "403", "403"},
		{api + "/decisions", "403", "403", "200 bluefirst bluelater redtrain redhuge", "403"},
		{api + "/decisions?namespace=red", "200 redtrain redhuge", "403", "200 redtrain redhuge", "403"},
		{api + "/decisions?namespace=blue&gang=bluefirst", "403", "200 bluefirst", "200 bluefirst", "403"},
		{api + "/cycles/" + kept, "403", "403", "200 bluefirst", "403"},
		{api + "/cycles/" + kept + "?namespace=red", "200", "403", "200 bluefirst", "403"},
		{api + "/ledger", "403", "403", "200", "403"},
		{api + "/ledger?namespace=red", "200", "403", "200", "403"},
		{"/decisions?namespace=blue", "403", "200 bluefirst bluelater", "200 bluefirst bluelater", "403"},
		{"/cycle/" + kept + "?namespace=blue", "403", "200 bluefirst", "200 bluefirst", "403"},
		{"/ledger?namespace=blue", "403", "200", "200", "403"},
		{"/what-if", "403", "403", "200", "403"},
	}
	for _, row := range matrix {
		for who, want := range map[string]string{"ruth": row.ruth, "bill": row.bill, "ada": row.ada, "eve": row.eve, "": "401", "liar": "401"} {
			code, text := s.get(t, who, row.path)
			got := fmt.Sprint(code)
			for _, n := range names {
				if strings.Contains(text, n) && (code == 200 || !strings.Contains(row.path, n)) { // a refusal may repeat the question
					got += " " + n
				}
			}
			if got != want {
				t.Errorf("%q asks %s: %s, want %s\n%s", who, row.path, got, want, text)
			}
		}
	}

	var e see.Explanation
	_, text := s.get(t, "ruth", api+"/namespaces/red/gangs/redhuge")
	if err := json.Unmarshal([]byte(text), &e); err != nil || e.Word != "never" || !e.Cycle.Scheduler || e.Cycle.Note != "" || e.Cycle.AgeSeconds > 10 || e.Cycle.Cluster == "" || e.Workload != "Job redhuge" || len(e.Remedies) == 0 {
		t.Errorf("%v %s", err, text)
	}
	t.Logf("the cycle was %.1f s old", e.Cycle.AgeSeconds)

	// The command line asks the role as ruth, who may not look at the cluster herself.
	print := regexp.MustCompile(`answering people"? .*certificate=(\w+)`).FindStringSubmatch(role.tail(4000))
	if print == nil {
		t.Fatalf("the role does not say its certificate:\n%s", role.tail(20))
	}
	config, file := w.lab.Config(), clientcmdapi.NewConfig()
	file.Clusters["lab"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthority: config.CAFile, CertificateAuthorityData: config.CAData}
	file.AuthInfos["ruth"] = &clientcmdapi.AuthInfo{Token: s.tokens["ruth"]}
	file.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "ruth", Namespace: "red"}
	file.CurrentContext = "lab"
	kubeconfig := filepath.Join(t.TempDir(), "ruth.kubeconfig")
	if err := clientcmd.WriteToFile(*file, kubeconfig); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), os.Getenv(binaryEnv), "explain", "Job redhuge", "--kubeconfig", kubeconfig, "--ui", s.url, "--ui-certificate-fingerprint", print[1]).CombinedOutput()
	if said := string(out); err != nil || !strings.HasPrefix(said, "Job redhuge (gang red/pg-redhuge-") || !strings.Contains(said, ": never; ") || !strings.Contains(said, "as the scheduler saw it, ") || strings.Contains(said, "blue") {
		t.Errorf("%v\n%s", err, said)
	}

	for _, args := range [][]string{{"decisions", "--since", "1h", "-n", "red"}, {"replay", "--cycle", kept, "-n", "red"}} {
		out, err := exec.CommandContext(t.Context(), os.Getenv(binaryEnv), append(args, "--kubeconfig", kubeconfig, "--ui", s.url, "--ui-certificate-fingerprint", print[1])...).CombinedOutput()
		if said := string(out); err != nil || strings.Contains(said, "blue") || args[0] == "decisions" && !strings.Contains(said, "redhuge") || args[0] == "replay" && !strings.Contains(said, "byte for byte") {
			t.Errorf("%v: %v\n%s", args, err, said)
		}
	}

	// A what-if takes the right to simulate queues.
	for who, want := range map[string]int{"ruth": http.StatusForbidden, "ada": http.StatusOK, "eve": http.StatusForbidden, "": http.StatusUnauthorized} {
		if code, text := s.post(t, who, api+"/what-if", `{"delete":["blue/bluelater"]}`); code != want || code == http.StatusOK && !strings.Contains(text, `"kind":"Consequences"`) || code != http.StatusOK && strings.Contains(text, "blue") {
			t.Errorf("%q asks what if: %d %.500s", who, code, text)
		}
	}

	// Whoever is the scheduler's peer must have the right to read cycles: a tenant has not.
	place := regexp.MustCompile(`url=(https://\S+)`).FindStringSubmatch(muster.tail(4000))
	if place == nil {
		t.Fatal("the scheduler does not say where it serves its cycles")
	}
	if code, said := (&site{url: place[1], client: s.client, tokens: s.tokens}).get(t, "ruth", install.CyclePath); code != http.StatusForbidden {
		t.Errorf("a tenant reads cycles: %d %.200s", code, said)
	}

	// A right that is taken away.
	if err := w.client.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "ruth"}}); err != nil {
		t.Fatal(err)
	}
	poll(t, 20*time.Second, func() string {
		if code, text := s.get(t, "ruth", api+"/gangs?namespace=red"); code != http.StatusForbidden {
			return fmt.Sprintf("%d %.200s", code, text)
		}
		return ""
	})

	// Another leader.
	cycle := func() (at time.Time, note string) {
		code, text := s.get(t, "ada", api+"/queues")
		var l struct{ Items []see.QueueList }
		if err := json.Unmarshal([]byte(text), &l); err != nil || code != http.StatusOK || len(l.Items) != 1 {
			return time.Time{}, fmt.Sprintf("%d %.300s", code, text)
		}
		return l.Items[0].Cycle.At, l.Items[0].Cycle.Note
	}
	before, _ := cycle()
	muster.kill()
	poll(t, 20*time.Second, func() string {
		if _, note := cycle(); !strings.HasPrefix(note, "no news comes from the scheduler since ") {
			return "the scheduler is gone, and the answer says " + note
		}
		return ""
	})
	muster.start()
	poll(t, 40*time.Second, func() string {
		if at, note := cycle(); !at.After(before.Add(time.Second)) || note != "" {
			return fmt.Sprintf("of %v: %s", at, note)
		}
		return ""
	})
	metrics := string(fetch(t, "http://"+role.address+"/metrics"))
	counts := regexp.MustCompile(`muster_ui_cycles_total\{outcome="(\w+)"\} (\d+)`).FindAllStringSubmatch(metrics, -1)
	t.Log(counts)
	if !slices.ContainsFunc(counts, func(c []string) bool { return c[1] == "same" && c[2] != "0" }) || slices.ContainsFunc(counts, func(c []string) bool { return c[1] != "same" && c[2] != "0" }) {
		t.Errorf("cycles: %v", counts)
	}
	role.stop(t)
}
