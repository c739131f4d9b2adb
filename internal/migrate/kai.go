package migrate

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// images are the names of KAI's images, and what runs in them.
func images() map[string]string {
	return map[string]string{
		"scheduler": "scheduler", "binder": "binder", "podgrouper": "podgrouper", "podgroupcontroller": "podgroup controller", "queuecontroller": "queue controller",
		"admission": "admission", "operator": "operator", "nodescaleadjuster": "node scale adjuster",
	}
}

// names are what KAI's Deployments are called, and what they are.
func names() map[string]string {
	return map[string]string{
		"kai-operator": "operator", "binder": "binder", "pod-grouper": "podgrouper", "podgrouper": "podgrouper", "podgroup-controller": "podgroup controller",
		"queue-controller": "queue controller", "admission": "admission", "node-scale-adjuster": "node scale adjuster",
	}
}

// component says which part of KAI a Deployment is; "" if it is none. By precedence:
//
//   - one that runs `muster run`, or whose image is called muster, is ours;
//   - an image called …/kai-scheduler/<component>;
//   - one that KAI's operator manages (label app.kubernetes.io/managed-by=kai-operator), by its name;
//   - a scheduler by its flags: --scheduler-conf and --scheduler-name beside a name that begins with KAI's scheduler's;
//   - one of KAI's names in KAI's namespace.
func component(d *appsv1.Deployment) string {
	containers := d.Spec.Template.Spec.Containers
	for i := range containers {
		if ours(containers[i].Image, containers[i].Args) {
			return ""
		}
	}
	for i := range containers {
		folder, image := split(containers[i].Image)
		if what := images()[image]; what != "" && (folder == "kai-scheduler" || strings.HasSuffix(folder, "/kai-scheduler")) {
			return what
		}
	}
	managed := d.Labels["app.kubernetes.io/managed-by"] == "kai-operator"
	if what := names()[d.Name]; what != "" && (managed || d.Namespace == keys.Namespace) {
		return what
	}
	for i := range containers {
		if hasFlag(containers[i].Args, "scheduler-conf") && hasFlag(containers[i].Args, "scheduler-name") && (managed || strings.HasPrefix(d.Name, keys.SchedulerName)) {
			return "scheduler"
		}
	}
	if managed && strings.HasPrefix(d.Name, keys.SchedulerName+"-") {
		return "scheduler"
	}
	return ""
}

// ours says that a container runs Muster.
func ours(image string, args []string) bool {
	_, name := split(image)
	return name == "muster" || len(args) > 0 && args[0] == "run"
}

// split takes an image apart: what is before its name, and its name without tag and digest.
func split(image string) (folder, name string) {
	image, _, _ = strings.Cut(image, "@")
	i := strings.LastIndex(image, "/")
	if i >= 0 {
		folder = image[:i]
	}
	name, _, _ = strings.Cut(image[i+1:], ":")
	return folder, name
}

func hasFlag(args []string, name string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		a, _, _ = strings.Cut(strings.TrimLeft(a, "-"), "=")
		return a == name
	})
}

// leaseNames are the Leases of KAI's controllers; the schedulers' are called after the scheduler.
func leaseNames() map[string]string {
	return map[string]string{
		"ojptxr84.kai.scheduler": "admission", "2ad35f9c.kai.scheduler": "binder", "54dff599.kai.scheduler": "podgrouper", "o1x22tjj.kai.scheduler": "podgroup controller",
		"ov3xj497.kai.scheduler": "queue controller", "7n7h49uc.kai.scheduler": "node scale adjuster", "41fce092.run.ai": "operator",
	}
}

// webhookNames are KAI's webhook configurations.
func webhookNames() []string {
	return []string{"validating-kai-admission", "mutating-kai-admission", "kai-podgroup-validation-v2alpha2", "kai-queue-validation-v2"}
}
