package install

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// uses says of each place that writes to the API server, as FILE FUNCTION CALL, which rights it needs: ROLE SCOPE VERB RESOURCE, without
// the names that a rule may have. Applying needs create and patch.
func uses() map[string][]string {
	by := func(roles []string, rights ...string) (out []string) {
		for _, role := range roles {
			for _, r := range rights {
				out = append(out, role+" "+r)
			}
		}
		return out
	}
	vc := func(rights ...string) (out []string) {
		for _, r := range rights {
			out = append(out, VolcanoControllers+" cluster "+r+".volcano.sh")
		}
		return out
	}
	const kai, hooks, dra = ".scheduling.run.ai", ".admissionregistration.k8s.io", ".resource.k8s.io"
	claims := []string{"binder cluster patch resourceclaims/status" + dra, "binder cluster patch resourceclaims/binding" + dra, "binder cluster update resourceclaims/binding" + dra}
	electing := []string{Scheduler, Binder, PodGrouper, PodGroup, Queue, Admission, NodeScale, Operator, VolcanoControllers}
	telling := slices.DeleteFunc(slices.Clone(electing), func(r string) bool { return r == Admission }) // which answers instead
	return map[string][]string{
		"app/election.go take leases.Create":  by(electing, "home create leases.coordination.k8s.io"),
		"app/election.go take leases.Update":  by(electing, "home update leases.coordination.k8s.io"),
		"app/election.go write Leases.Update": by(electing, "home update leases.coordination.k8s.io"),
		// The scheduler asks too where it serves its cycles: the chart gives its account the ClusterRole system:auth-delegator then.
		"app/review/review.go Caller Client.Create":              {UI + " cluster create tokenreviews.authentication.k8s.io"},
		"app/review/review.go may Client.Create":                 {UI + " cluster create subjectaccessreviews.authorization.k8s.io"},
		"roles/events.go try writer.Create":                      append(by(telling, "cluster create events"), VolcanoAdmission+" home create events"),
		"kube/apply/binds.go request client.Create":              {"scheduler cluster create bindrequests" + kai},
		"kube/apply/alone.go bind SubResource.Create":            {"scheduler cluster create pods/binding"},
		"kube/apply/gangrecords.go record client.Create":         {"scheduler home create configmaps"},
		"kube/apply/gangrecords.go erase client.Delete":          {"scheduler home delete configmaps"},
		"kube/apply/binds.go remove client.Delete":               {"scheduler cluster delete bindrequests" + kai},
		"kube/apply/evictions.go write kit.Evict":                {"scheduler cluster create pods/eviction"},
		"kube/apply/evictions.go write kit.Delete":               {"scheduler cluster delete pods"}, // --eviction-mode=delete
		"kube/apply/evictions.go mark kit.StrategicStatus":       {"scheduler cluster patch pods/status"},
		"kube/apply/nominations.go serve kit.StrategicStatus":    {"scheduler cluster patch pods/status"},
		"kube/apply/statuses.go unscheduled kit.StrategicStatus": {"scheduler cluster patch pods/status"},
		"kube/apply/strays.go takeBack kit.StrategicStatus":      {"scheduler cluster patch pods/status"},
		"kube/apply/statuses.go writeGang kit.MergeStatus":       {"scheduler cluster patch podgroups/status" + kai},
		"kube/apply/gates.go serve kit.Strategic":                {VolcanoQueueGates + " cluster patch pods"},
		"kube/apply/kubebatchgroups.go putKubeBatch kit.MergeStatus": {
			KubeBatchScheduler + " cluster patch podgroups/status.scheduling.incubator.k8s.io", KubeBatchScheduler + " cluster patch podgroups/status.scheduling.sigs.dev",
		},
		"kube/apply/groups.go putVolcano kit.Merge":                        {VolcanoScheduler + " cluster patch podgroups.scheduling.volcano.sh"},
		"kube/apply/upstreams.go serve kit.MergeStatus":                    {"scheduler cluster patch podgroups/status.scheduling.k8s.io"},
		"kube/apply/answers.go serve kit.Merge":                            {"scheduler cluster patch podgroups" + kai},
		"kube/apply/annotations.go write kit.Merge":                        {"scheduler cluster patch podgroups" + kai},
		"kube/apply/annotations.go write kit.MergeStatus":                  {"scheduler cluster patch podgroups/status" + kai},
		"controllers/binder/apiclient.go bind SubResource.Create":          {"binder cluster create pods/binding"},
		"controllers/binder/apiclient.go setCondition kit.StrategicStatus": {"binder cluster patch pods/status"},
		"controllers/binder/apiclient.go setStatus kit.JSONStatus":         {"binder cluster patch bindrequests/status" + kai},
		"controllers/binder/apiclient.go deleteRequest client.Delete":      {"binder cluster delete bindrequests" + kai},
		"controllers/binder/apiclient.go merge kit.Merge": { // of claims of volumes, and volumes
			"binder cluster patch persistentvolumeclaims", "binder cluster patch persistentvolumes",
		},
		"controllers/binder/claimclient.go writeClaim kit.JSON":       {"binder cluster patch resourceclaims" + dra}, // finalizers
		"controllers/binder/claimclient.go writeClaim kit.JSONStatus": claims,
		"controllers/binder/claimclient.go createClaim client.Create": { // its owner, a pod, is not to go before it
			"binder cluster create resourceclaims" + dra, "binder cluster update pods/finalizers",
		},
		"controllers/binder/claimclient.go deleteClaim client.Delete":    {"binder cluster delete resourceclaims" + dra},
		"controllers/binder/claimclient.go setExtended kit.MergeStatus":  {"binder cluster patch pods/status"},
		"controllers/reservation/apiclient.go createPod client.Create":   {"binder reserved create pods"},
		"controllers/reservation/apiclient.go deletePod client.Delete":   {"binder reserved delete pods"},
		"controllers/reservation/apiclient.go patchMeta kit.Merge":       {"binder cluster patch pods"},
		"controllers/reservation/apiclient.go createMap client.Create":   {"binder cluster create configmaps"},
		"controllers/reservation/apiclient.go updateMap client.Update":   {"binder cluster update configmaps"},
		"controllers/reservation/apiclient.go deleteMap kit.Delete":      {"binder cluster delete configmaps"},
		"controllers/reservation/apiclient.go evict kit.Evict":           {"binder cluster create pods/eviction"},
		"controllers/podgrouper/reconcile.go apply writer.Create":        {"podgrouper cluster create podgroups" + kai},
		"controllers/podgrouper/reconcile.go patch kit.Merge":            {"podgrouper cluster patch podgroups" + kai, "podgrouper cluster patch pods"},
		"controllers/podgroup/controller.go write kit.MergeStatus":       {"podgroup cluster patch podgroups/status" + kai},
		"controllers/podgroup/controller.go write kit.Merge":             {"podgroup cluster patch queues" + kai},
		"controllers/queue/controller.go write kit.MergeStatus":          {"queue cluster patch queues/status" + kai},
		"controllers/queue/controller.go write kit.Merge":                {"queue cluster patch queues" + kai},
		"controllers/nodescale/controller.go remove Client.Delete":       {"nodescale scaling delete pods"},
		"controllers/nodescale/controller.go create Client.Create":       {"nodescale scaling create pods"},
		"controllers/nodescale/controller.go create kit.StrategicStatus": {"nodescale scaling patch pods/status"},
		"controllers/nodedevice/nodedevice.go Report kit.Merge":          {"reservation reserved patch pods"},
		"controllers/nodezones/exporter.go annotate kit.Merge":           {"numa-exporter cluster patch pods"},
		"controllers/admission/lead.go keep Client.Create":               {"admission home create secrets"},
		"controllers/admission/lead.go keep Client.Update":               {"admission home update secrets"},
		"controllers/admission/lead.go register kit.JSON": { // whom to trust
			"admission cluster patch mutatingwebhookconfigurations" + hooks, "admission cluster patch validatingwebhookconfigurations" + hooks,
			VolcanoAdmission + " cluster patch mutatingwebhookconfigurations" + hooks, VolcanoAdmission + " cluster patch validatingwebhookconfigurations" + hooks,
		},
		"controllers/admission/resourcegroups.go keep kit.Delete":    {VolcanoAdmission + " home delete podtemplates"},
		"controllers/admission/resourcegroups.go keep Client.Create": {VolcanoAdmission + " home create podtemplates"},
		// Where no operator installs it: the account is then whose the cluster is.
		"controllers/admission/lead.go register Client.Create":    nil,
		"controllers/admission/lead.go register kit.Merge":        nil,
		"controllers/admission/lead.go whole Client.Create":       nil,
		"controllers/admission/lead.go whole kit.Merge":           nil,
		"controllers/admission/lead.go forgetOlder Client.Delete": nil,
		"controllers/admission/lead.go trusting Client.Create":    nil, // who am I: everybody may ask that
		"controllers/vcgc/controller.go remove Client.Delete":     vc("delete jobs.batch"),
		"controllers/vcqueue/held.go write kit.MergeStatus":       vc("patch queues/status.scheduling"),
		"controllers/vcjob/controller.go write kit.Delete":        vc("delete commands.bus"),
		"controllers/vcjob/controller.go carryOut kit.JSON":       vc("patch jobs.batch"),
		"controllers/vcjob/controller.go status kit.JSONStatus":   vc("patch jobs/status.batch"),
		// What is made has an owner that waits for it to be gone.
		"controllers/vcjob/controller.go create Client.Create": append(vc("create podgroups.scheduling", "update jobs/finalizers.batch"),
			VolcanoControllers+" cluster create pods", VolcanoControllers+" cluster create persistentvolumeclaims"),
		"controllers/vcjob/controller.go object Client.Create": by([]string{VolcanoControllers},
			"cluster create configmaps", "cluster create services", "cluster create secrets", "cluster create networkpolicies.networking.k8s.io"),
		"controllers/vcjob/controller.go object kit.JSON":              by([]string{VolcanoControllers}, "cluster patch configmaps"),
		"controllers/vcjob/controller.go group kit.Delete":             vc("delete podgroups.scheduling"),
		"controllers/vcjob/controller.go group kit.Merge":              vc("patch podgroups.scheduling"),
		"controllers/vcjob/controller.go kill kit.Merge":               by([]string{VolcanoControllers}, "cluster patch pods"),
		"controllers/vcjob/controller.go kill kit.Delete":              by([]string{VolcanoControllers}, "cluster delete pods"),
		"controllers/vccron/controller.go create Client.Create":        vc("create jobs.batch"),
		"controllers/vccron/controller.go status kit.JSONStatus":       vc("patch cronjobs/status.batch"),
		"controllers/vccron/controller.go remove kit.Delete":           vc("delete jobs.batch"),
		"controllers/vcjobflow/controller.go create Client.Create":     vc("create jobs.batch"),
		"controllers/vcjobflow/controller.go status kit.JSONStatus":    vc("patch jobflows/status.flow"),
		"controllers/vcjobflow/controller.go write kit.Delete":         vc("delete jobs.batch"),
		"controllers/vcjobtemplate/controller.go write kit.JSONStatus": vc("patch jobtemplates/status.flow"),
		"controllers/vchypernode/controller.go write Client.Create":    vc("create hypernodes.topology"),
		"controllers/vchypernode/controller.go write kit.Merge":        vc("patch hypernodes.topology"),
		"controllers/vchypernode/controller.go write kit.Delete":       vc("delete hypernodes.topology"),
		"controllers/vchypernode/controller.go count kit.MergeStatus":  vc("patch hypernodes/status.topology"),
		"controllers/vcpodgroup/controller.go create Client.Create":    vc("create podgroups.scheduling"),
		"controllers/vcpodgroup/controller.go write kit.Delete":        vc("delete podgroups.scheduling"),
		"controllers/vcpodgroup/controller.go write kit.Merge":         vc("patch podgroups.scheduling"),
		"controllers/vcpodgroup/controller.go mark kit.Merge":          by([]string{VolcanoControllers}, "cluster patch pods"),
		"controllers/vcqueue/controller.go make Client.Create":         vc("create queues.scheduling"),
		"controllers/vcqueue/controller.go take kit.Delete":            vc("delete commands.bus"),
		"controllers/vcqueue/controller.go patch kit.Merge":            vc("patch queues.scheduling"),
		"controllers/vcqueue/controller.go state kit.MergeStatus":      vc("patch queues/status.scheduling"),
		// NodeShards: those of whom the controller divides nodes between, and what the scheduler says in its own.
		"controllers/vcsharding/controller.go write kit.Delete":         vc("delete nodeshards.shard"),
		"controllers/vcsharding/controller.go write kit.Merge":          vc("patch nodeshards.shard"),
		"controllers/vcsharding/controller.go write Client.Create":      vc("create nodeshards.shard"),
		"controllers/vcshardstatus/controller.go write kit.MergeStatus": {"scheduler-volcano cluster patch nodeshards/status.shard.volcano.sh"},
		// What the operator applies and removes, whatever it is: TestRenderedObjects and the lab's TestInstallation speak of that.
		"controllers/operator/apiclient.go apply kit.Apply":               nil,
		"controllers/operator/apiclient.go remove kit.Delete":             nil,
		"controllers/operator/apiclient.go annotate kit.Merge":            nil,
		"controllers/operator/apiclient.go setConditions kit.MergeStatus": {"operator cluster patch configs/status.kai.scheduler", "operator cluster patch schedulingshards/status.kai.scheduler"},
	}
}

// writers are the ends of expressions that write to an API server.
var writers = regexp.MustCompile(`^(kit|client|Client|writer|leases|Leases|SubResource)\.(Create|Update|Patch|Delete|DeleteAllOf|Merge|MergeStatus|JSON|JSONStatus|Strategic|StrategicStatus|Evict|Apply)$`)

// TestEveryWriteHasItsRight: each place of the roles' code that writes to the API server has a row in uses, and there is none for what is
// not there; all rows of a role together need what the role may write, and no more. (Of the operator, which applies whatever there
// is, only what it does besides.)
func TestEveryWriteHasItsRight(t *testing.T) {
	t.Parallel()
	rows, seen := uses(), map[string]bool{}
	for _, dir := range []string{"app", "controllers", "kube/apply", "kube/feed", "roles", "scheduler", "usage"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, place := range writes(t, path) {
				seen[place] = true
				if _, ok := rows[place]; !ok {
					t.Errorf("no row says which right %s needs", place)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// What is no resource is asked of the schedulers, and not of the API server: cycles.TestTold and TestWhoMayFollow.
	needed := map[string]bool{UI + " cluster post " + OutlookPath: true}
	for place, rights := range rows { // order: each on its own
		if !seen[place] {
			t.Errorf("nothing is written in %s", place)
		}
		for _, r := range rights {
			needed[r] = true
		}
	}
	may := map[string]bool{}
	for _, role := range append(Roles(), VolcanoScheduler, KubeBatchScheduler, VolcanoQueueGates, VolcanoAdmission) {
		for _, line := range permitted(role) {
			words := strings.SplitN(line, " ", 4)
			resource := strings.Split(words[3], "/")
			if last := len(resource) - 1; last > 0 && named(role, words) {
				resource = resource[:last]
			}
			right := strings.Join([]string{role, words[1], words[2], strings.Join(resource, "/")}, " ")
			if !slices.Contains(watch, words[2]) {
				may[right] = true
			}
		}
	}
	for r := range needed { // order: each on its own
		if !may[r] {
			t.Errorf("the code needs what the role may not: %s", r)
		}
	}
	for r := range may { // order: each on its own
		if !needed[r] && !strings.HasPrefix(r, Operator+" ") {
			t.Errorf("a role may what its code never does: %s", r)
		}
	}
}

// named says whether the resource of a line ends with the name of an object, and not of a part.
func named(role string, words []string) bool {
	p := Rules(role)
	for _, rules := range [][]rbacv1.PolicyRule{p.Cluster, p.Home, p.Reserved, p.Scaling} {
		for _, r := range rules {
			for _, name := range r.ResourceNames {
				if strings.HasSuffix(words[3], "/"+name) {
					return true
				}
			}
		}
	}
	return false
}

// writes lists the places of a file that write: FILE FUNCTION CALL, the call by its last two names.
func writes(t *testing.T, path string) (out []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			on := s.X
			if call, ok := on.(*ast.CallExpr); ok {
				on = call.Fun
			}
			name := ""
			switch on := on.(type) {
			case *ast.SelectorExpr:
				name = on.Sel.Name
			case *ast.Ident:
				name = on.Name
			}
			if call := name + "." + s.Sel.Name; writers.MatchString(call) {
				file := strings.TrimPrefix(filepath.ToSlash(path), "../")
				if place := fmt.Sprint(file, " ", fn.Name.Name, " ", call); !slices.Contains(out, place) {
					out = append(out, place)
				}
			}
			return true
		})
	}
	return out
}
