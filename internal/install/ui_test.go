package install

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// TestCyclesAreForTheUIAlone: where a Config says so, the schedulers of all shards serve their cycles, and pods of the role ui alone reach the port; otherwise there is no such port. What is neither true nor
// false is told, and is false.
func TestCyclesAreForTheUIAlone(t *testing.T) {
	t.Parallel()
	for said, serves := range map[string]bool{"true": true, "false": false, "": false, "yes": false} {
		shards := []kaiv1.SchedulingShard{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, {ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Spec: kaiv1.SchedulingShardSpec{PartitionLabelValue: "gold"}}}
		config := &kaiv1.Config{ObjectMeta: metav1.ObjectMeta{Name: kaiv1.ConfigName, Annotations: map[string]string{AnnotationUI: said}}}
		objects, warnings, err := Render(config, shards, testEnvironment())
		if err != nil {
			t.Fatal(err)
		}
		if told := slices.ContainsFunc(warnings, func(w Warning) bool { return strings.HasSuffix(w.Field, AnnotationUI) }); told != (said == "yes" || said == "") {
			t.Errorf("%q: told %v", said, warnings)
		}
		flags, rules := 0, 0
		for _, o := range objects {
			switch o := o.(type) {
			case *appsv1.Deployment:
				if slices.Contains(o.Spec.Template.Spec.Containers[0].Args, "--cycle-listen-address=:8443") {
					flags++
				}
			case *networkingv1.NetworkPolicy:
				for _, r := range o.Spec.Ingress {
					for _, p := range r.Ports {
						if p.Port.IntValue() != CyclesPort {
							continue
						}
						if rules++; len(r.From) != 1 || r.From[0].PodSelector.MatchLabels[LabelApp] != "muster-ui" || !strings.HasPrefix(o.Name, "muster-scheduler-") || len(r.Ports) != 1 {
							t.Errorf("%s lets %+v reach it", o.Name, r)
						}
					}
				}
			}
		}
		if want := map[bool]int{true: 2}[serves]; flags != want || rules != want {
			t.Errorf("%q: %d schedulers serve cycles, %d ports are open, want %d", said, flags, rules, want)
		}
	}
}
