package crds_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestColumns: what kubectl shows of a gang, by the API server's own code: nothing waits, it waits, and it waits in two pools, of which the newest counts.
func TestColumns(t *testing.T) {
	t.Parallel()
	columns := ownDefinitions(t)["podgroups.scheduling.run.ai"].typed.Spec.Versions[0].AdditionalPrinterColumns
	table, err := tableconvertor.New(columns)
	if err != nil {
		t.Fatal(err)
	}
	condition := func(reason string) any {
		return map[string]any{"type": "UnschedulableOnNodePool", "reasons": []any{map[string]any{"reason": reason, "message": "because"}}}
	}
	for name, c := range map[string]struct {
		status map[string]any
		want   string
	}{
		"runs":      {nil, "g|q|<nil>|<nil>"},
		"ended":     {map[string]any{"schedulingConditions": []any{}}, "g|q|<nil>|<nil>"},
		"waits":     {map[string]any{"schedulingConditions": []any{condition("OverLimit")}}, "g|q|UnschedulableOnNodePool|OverLimit"},
		"two pools": {map[string]any{"schedulingConditions": []any{condition("OverLimit"), condition("NoNode")}}, "g|q|UnschedulableOnNodePool|NoNode"},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "g"}, "spec": map[string]any{"queue": "q"}}}
		if c.status != nil {
			o.Object["status"] = c.status
		}
		got, err := table.ConvertToTable(t.Context(), o, &metav1.TableOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var cells []string
		for _, cell := range got.Rows[0].Cells[:4] {
			cells = append(cells, fmt.Sprint(cell))
		}
		if text := strings.Join(cells, "|"); text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}
