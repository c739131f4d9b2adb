package starter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestStarter: every queue's parent is there, each manifest names a queue that is there and has none below it, one class is the default,
// and quotas add up.
func TestStarter(t *testing.T) {
	t.Parallel()
	s := Sizes{Nodes: 3, PerNode: 4, GPUs: 10}
	objects, err := Objects(s)
	if err != nil {
		t.Fatal(err)
	}
	parents := map[string]string{}
	classes, defaults := 0, 0
	for _, o := range objects {
		switch o.GetKind() {
		case "Queue":
			spec, _ := o.Object["spec"].(map[string]any)
			parents[o.GetName()], _ = spec["parentQueue"].(string)
		case "PriorityClass":
			classes++
			if o.Object["globalDefault"] == true {
				defaults++
			}
		case "Namespace":
			if o.GetName() != "kai-scheduler" {
				t.Errorf("there is namespace %s", o.GetName())
			}
		default:
			t.Errorf("there is a %s", o.GetKind())
		}
	}
	if classes != 4 || defaults != 1 {
		t.Errorf("%d priority classes, %d of them the default", classes, defaults)
	}
	above := map[string]bool{}
	for name, parent := range parents {
		if _, ok := parents[parent]; parent != "" && !ok {
			t.Errorf("queue %s is below %s, which is not there", name, parent)
		}
		above[parent] = true
	}
	dir := filepath.Join(t.TempDir(), "examples")
	if err := Write(dir, s); err != nil {
		t.Fatal(err)
	}
	for _, name := range Examples() {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var o struct {
			Metadata struct{ Labels map[string]string }
		}
		if err := yaml.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		queue := o.Metadata.Labels["kai.scheduler/queue"]
		if _, ok := parents[queue]; !ok || above[queue] {
			t.Errorf("%s goes to queue %q", name, queue)
		}
		if strings.Contains(string(text), "{{") || !strings.Contains(string(text), "nvidia.com/gpu: 4") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}
