package admission

import (
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// TestChargeIsOurs: nobody but Muster says who is charged for a pod, whatever is done about other words.
func TestChargeIsOurs(t *testing.T) {
	t.Parallel()
	const pods, requests = "pods.v1.", "bindrequests.v1alpha2.scheduling.run.ai"
	object := func(value string) string {
		return `{metadata: {name: p, annotations: {note: x, muster.dev/charged-to: ` + value + `}}, spec: {schedulerName: kai-scheduler, nodeName: n}}`
	}
	const none = `{metadata: {name: p}, spec: {schedulerName: kai-scheduler, nodeName: n}}`
	for _, mode := range []Mode{Off, Warn, Enforce} {
		o := DefaultOptions()
		o.Identity = mode
		j := judges(t, o)[PolicyCharge]
		if got := j.binding.Spec.ValidationActions; len(got) != 1 || got[0] != "Deny" {
			t.Errorf("%s: it does %v", mode, got)
		}
		for _, c := range []struct{ name, resource, sub, object, old, want string }{
			{"a new pod", pods, "", object("q/g"), "", "may write muster.dev/charged-to"},
			{"a pod", pods, "", object("q/g"), none, "may write muster.dev/charged-to"},
			{"another value", pods, "", object("r/g"), object("q/g"), "may write muster.dev/charged-to"},
			{"taken off", pods, "", none, object("q/g"), "may write muster.dev/charged-to"},
			{"by way of the status", pods, "status", object("q/g"), none, "may write muster.dev/charged-to"},
			{"as it is", pods, "", object("q/g"), object("q/g"), ""},
			{"a Binding", pods, "binding", object("q/g"), "", "may write muster.dev/charged-to"},
			{"a Binding of old", "bindings.v1.", "", object("q/g"), "", "may write muster.dev/charged-to"},
			{"another's Binding", pods, "binding", none, "", ""},
			{"a BindRequest", requests, "", object("q/g"), "", "may write muster.dev/charged-to"},
			{"nothing", pods, "", none, "", ""},
		} {
			j.expect(t, string(mode)+" "+c.name, asked{resource: c.resource, subresource: c.sub, object: c.object, old: c.old, user: "eve"}, c.want)
			name, groups := serviceAccount(keys.Namespace, "binder")
			j.expect(t, string(mode)+" "+c.name+" by the binder", asked{resource: c.resource, subresource: c.sub, object: c.object, old: c.old, user: name, groups: groups}, "")
		}
	}
}

// TestRoomIsTheNodesWord: what a bound pod has, and when it has ended, nobody says but its node; and it takes no more by a resize.
func TestRoomIsTheNodesWord(t *testing.T) {
	t.Parallel()
	j := judges(t, strict())[PolicyRoomIdentity]
	bound := func(spec, status string) string {
		return `{metadata: {name: p}, spec: {schedulerName: kai-scheduler, nodeName: n, ` + spec + `}, status: {` + status + `}}`
	}
	const containers = "containers: [{name: a, resources: {requests: {cpu: '1', memory: 1Gi}}}, {name: b}]"
	was := bound(containers, "phase: Running, containerStatuses: [{name: a, allocatedResources: {cpu: '1'}}], conditions: [{type: Ready, status: 'True'}]")
	status := func(status string) string { return bound(containers, status) }
	resized := func(containers string) string {
		return strings.Replace(was, "containers: [{name: a, resources: {requests: {cpu: '1', memory: 1Gi}}}, {name: b}]", containers, 1)
	}
	const same = "containerStatuses: [{name: a, allocatedResources: {cpu: '1'}}]"
	for _, c := range []struct{ name, sub, object, old, want string }{
		{"it has ended", "status", status("phase: Succeeded, " + same), was, "only who reports for nodes may write phase"},
		{"it has failed", "status", status("phase: Failed, " + same), was, "may write phase"},
		{"nobody knows", "status", status("phase: Unknown, " + same), was, "may write phase"},
		{"it was given less", "status", status("phase: Running, containerStatuses: [{name: a, resources: {requests: {cpu: '0'}}}]"), was, "may write containerStatuses"},
		{"what it asks for cannot be", "status", status("phase: Running, " + same + ", conditions: [{type: Ready, status: 'True'}, {type: PodResizePending, status: 'True', reason: Infeasible}]"), was, "may write conditions"},
		{"another claim is its", "status", status("phase: Running, " + same + ", resourceClaimStatuses: [{name: c, resourceClaimName: other}]"), was, "may write resourceClaimStatuses"},
		{"a readiness gate", "status", status("phase: Running, " + same + ", conditions: [{type: Ready, status: 'True'}, {type: example.com/ready, status: 'True'}]"), was, ""},
		{"nothing", "status", was, was, ""},
		{"not bound", "status", strings.Replace(status("phase: Failed"), "nodeName: n, ", "", 1), strings.Replace(was, "nodeName: n, ", "", 1), ""},
		{"not ours", "status", strings.Replace(status("phase: Failed"), "kai-scheduler", "other", 1), strings.Replace(was, "kai-scheduler", "other", 1), ""},

		{"more CPU", "resize", resized("containers: [{name: a, resources: {requests: {cpu: 1001m, memory: 1Gi}}}, {name: b}]"), was, "more is asked for a; make a new pod"},
		{"more memory", "resize", resized("containers: [{name: a, resources: {requests: {cpu: '1', memory: 2Gi}}}, {name: b}]"), was, "more is asked for a"},
		{"something at all", "resize", resized("containers: [{name: a, resources: {requests: {cpu: '1', memory: 1Gi}}}, {name: b, resources: {requests: {cpu: 1m}}}]"), was, "more is asked for b"},
		{"of the pod", "resize", resized("resources: {requests: {cpu: '8'}}, " + containers), was, "more is asked for the pod"},
		{"of a sidecar", "resize", resized("initContainers: [{name: s, resources: {requests: {cpu: '8'}}}], " + containers), resized("initContainers: [{name: s, resources: {requests: {cpu: '7'}}}], " + containers), "more is asked for s"},
		{"less", "resize", resized("containers: [{name: a, resources: {requests: {cpu: 999m, memory: 1Gi}}}, {name: b}]"), was, ""},
		{"in other words", "resize", resized("containers: [{name: a, resources: {requests: {cpu: 1000m, memory: 1024Mi}}}, {name: b}]"), was, ""},
		{"not ours, more", "resize", strings.Replace(resized("containers: [{name: a, resources: {requests: {cpu: '8'}}}]"), "kai-scheduler", "other", 1), strings.Replace(was, "kai-scheduler", "other", 1), ""},
	} {
		a := asked{resource: "pods.v1.", subresource: c.sub, object: c.object, old: c.old, user: "eve"}
		j.expect(t, c.name, a, c.want)
		want := c.want
		if c.sub == "status" {
			want = ""
		}
		a.mayReport = true
		j.expect(t, c.name+", by who reports for nodes", a, want)
		a.mayReport = false
		a.user, a.groups = serviceAccount("kube-system", "pod-garbage-collector")
		j.expect(t, c.name+", by a controller", a, want)
		a.user, a.groups = "system:node:n", []string{"system:nodes"}
		j.expect(t, c.name+", by its node", a, "")
	}
}

// TestClaimsOfPodsStay: by a claim it is known what devices a pod has, and what its queue is charged for them. A tenant who takes the claim
// away from under a pod that runs, or says that its devices are nobody's, would run on uncharged, beside whom they are given to next.
func TestClaimsOfPodsStay(t *testing.T) {
	t.Parallel()
	j := judges(t, strict())[PolicyRoomIdentity]
	const (
		keep = "finalizers: [resource.kubernetes.io/delete-protection, mine]"
		has  = "allocation: {devices: {results: [{driver: d, pool: n, device: gpu-0}]}}, reservedFor: [{resource: pods, name: p, uid: u}]"
	)
	claim := func(meta, status string) string {
		return `{metadata: {name: c, ` + meta + `}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}, status: {` + status + `}}`
	}
	used := claim(keep, has)
	for _, c := range []struct{ name, sub, object, old, want string }{
		{"its protection", "", claim("finalizers: [mine]", has), used, "metadata.finalizers: a claim that has devices keeps resource.kubernetes.io/delete-protection"},
		{"all finalizers", "", claim("labels: {}", has), used, "keeps resource.kubernetes.io/delete-protection"},
		{"one's own finalizer", "", claim("finalizers: [resource.kubernetes.io/delete-protection]", has), used, ""},
		{"the protection of one without devices", "", claim("", ""), claim(keep, ""), ""},
		{"its queue's label", "", claim("labels: {kai.scheduler/queue: q}, "+keep, has), used, ""},
		{"its devices", "status", claim(keep, "reservedFor: [{resource: pods, name: p, uid: u}]"), used, "may write allocation"},
		{"its users", "status", claim(keep, "allocation: {devices: {results: [{driver: d, pool: n, device: gpu-0}]}}"), used, "may write reservedFor"},
		{"all", "status", claim(keep, ""), used, "may write allocation, reservedFor"},
		{"other devices", "status", claim(keep, strings.Replace(has, "gpu-0", "gpu-1", 1)), used, "may write allocation"},
		{"devices that nobody gave it", "status", used, claim(keep, ""), "may write allocation, reservedFor"},
		{"what a driver says", "status", claim(keep, has+", devices: [{driver: d, pool: n, device: gpu-0}]"), used, ""},
		{"nothing", "status", used, used, ""},
	} {
		a := asked{resource: "resourceclaims.v1.resource.k8s.io", subresource: c.sub, object: c.object, old: c.old, user: "eve"}
		j.expect(t, c.name, a, c.want)
		a.mayBind = true
		j.expect(t, c.name+", by a scheduler", a, "")
		a.mayBind = false
		a.user, a.groups = serviceAccount("kube-system", "resource-claim-controller")
		j.expect(t, c.name+", by the controller of claims", a, "")
		a.user, a.groups = serviceAccount(keys.Namespace, "binder")
		a.wantUnmatched = false
		j.expect(t, c.name+", by the binder", a, "")
	}
}

// TestBindRequestsAreNotTakenAway: a BindRequest says of a pod that shares a device that it was given it, for as long as the pod lives. A tenant
// who takes it away makes us lose sight of one who holds a device.
func TestBindRequestsAreNotTakenAway(t *testing.T) {
	t.Parallel()
	j := judges(t, strict())[PolicyRequestIdentity]
	a := asked{resource: "bindrequests.v1alpha2.scheduling.run.ai", object: "{metadata: {name: p}}", user: "eve", removes: true}
	j.expect(t, "a tenant", a, "only Muster itself may delete BindRequests")
	a.mayDelete = true
	j.expect(t, "an administrator, a controller", a, "")
	a.removes = false
	j.expect(t, "an administrator writes one", a, "only Muster itself may write BindRequests")
	a.mayDelete, a.removes = false, true
	a.user, a.groups = serviceAccount(keys.Namespace, "scheduler")
	j.expect(t, "the scheduler", a, "")
	a.user, a.groups = serviceAccount("kube-system", "generic-garbage-collector")
	j.expect(t, "the garbage collector", a, "")
}
