package admission

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// lines are the errors, one a line, without the quoted value where it is long.
func lines(list field.ErrorList) (out []string) {
	for _, e := range list {
		out = append(out, e.Error())
	}
	return out
}

// share is a manifest with these annotations, written as YAML pairs.
func share(pairs ...string) string {
	return "metadata: {annotations: {" + strings.Join(pairs, ", ") + "}}"
}

func TestValidate(t *testing.T) {
	t.Parallel()
	const wholeRule = "a pod asks for whole devices or for parts of them"
	for name, c := range map[string]struct {
		rules *Rules
		pod   string
		want  []string // parts of the errors, in order
	}{
		"nothing asked":               {pod: `{}`},
		"a fraction":                  {pod: share(`gpu-fraction: "0.5"`)},
		"as a power of ten":           {pod: share(`gpu-fraction: "1e-1"`)},
		"memory":                      {pod: share(`gpu-memory: "2000"`)},
		"of several devices":          {pod: share(`gpu-memory: "2000"`, `gpu-fraction-num-devices: "8"`)},
		"MPS":                         {pod: share(`gpu-fraction: "0.5"`, `mps: "true"`)},
		"MPS, not asked for":          {pod: share(`mps: "false"`)},
		"a pod of others":             {pod: share(`gpu-fraction: "x"`) + "\nspec: {schedulerName: default-scheduler}"},
		"switched off":                {rules: &Rules{SchedulerNames: []string{"kai-scheduler"}}, pod: share(`gpu-fraction: "0.5"`), want: []string{"metadata.annotations[gpu-fraction]: Forbidden: sharing of GPUs is switched off"}},
		"memory switched off":         {rules: &Rules{SchedulerNames: []string{"kai-scheduler"}}, pod: share(`gpu-memory: "1"`), want: []string{"metadata.annotations[gpu-memory]: Forbidden: sharing of GPUs is switched off"}},
		"MPS alone":                   {pod: share(`mps: "true"`), want: []string{"metadata.annotations[mps]: Forbidden: is only for pods with annotation gpu-fraction or gpu-memory"}},
		"devices alone":               {pod: share(`gpu-fraction-num-devices: "2"`), want: []string{"metadata.annotations[gpu-fraction-num-devices]: Forbidden: is only for"}},
		"both":                        {pod: share(`gpu-fraction: "0.5"`, `gpu-memory: "5"`), want: []string{"metadata.annotations[gpu-memory]: Forbidden: must not be set together with annotation gpu-fraction"}},
		"fraction and whole":          {pod: share(`gpu-fraction: "0.5"`) + `` + "\nspec: {containers: [{name: a}, {name: b, resources: {limits: {nvidia.com/gpu: 1}}}]}", want: []string{"spec.containers[1].resources.limits[nvidia.com/gpu]: Forbidden: must not be set together with annotation gpu-fraction: " + wholeRule}},
		"fraction and a limit of 0":   {pod: share(`gpu-fraction: "0.5"`) + "\nspec: {initContainers: [{name: a, resources: {limits: {nvidia.com/gpu: 0}}}]}", want: []string{"spec.initContainers[0].resources.limits[nvidia.com/gpu]: Forbidden"}},
		"memory and whole":            {pod: share(`gpu-memory: "5"`) + "\nspec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: 1}}}]}", want: []string{"with annotation gpu-memory: " + wholeRule}},
		"memory with a unit":          {pod: share(`gpu-memory: 2Gi`), want: []string{`metadata.annotations[gpu-memory]: Invalid value: "2Gi": must be a whole number of MiB above 0, without a unit`}},
		"memory 0":                    {pod: share(`gpu-memory: "0"`), want: []string{"must be a whole number of MiB above 0"}},
		"memory below 0":              {pod: share(`gpu-memory: "-5"`), want: []string{"must be a whole number of MiB above 0"}},
		"memory, much":                {pod: share(`gpu-memory: "1073741825"`), want: []string{"must be at most 1073741824 MiB"}},
		"memory, beyond all":          {pod: share(`gpu-memory: "99999999999999999999999"`), want: []string{"must be at most 1073741824 MiB"}},
		"fraction 0":                  {pod: share(`gpu-fraction: "0"`), want: []string{`metadata.annotations[gpu-fraction]: Invalid value: "0": must be a decimal number above 0 and below 1`}},
		"fraction 1":                  {pod: share(`gpu-fraction: "1"`), want: []string{"below 1"}},
		"fraction below 0":            {pod: share(`gpu-fraction: "-0.5"`), want: []string{"above 0"}},
		"fraction NaN":                {pod: share(`gpu-fraction: "NaN"`), want: []string{"above 0"}},
		"fraction inf":                {pod: share(`gpu-fraction: "+Inf"`), want: []string{"below 1"}},
		"fraction empty":              {pod: share(`gpu-fraction: ""`), want: []string{"above 0"}},
		"fraction in hexadecimal":     {pod: share(`gpu-fraction: "0x1p-2"`), want: []string{"such as 0.5"}},
		"fraction as quantity":        {pod: share(`gpu-fraction: 500m`), want: []string{"above 0"}},
		"fraction all but 0":          {pod: share(`gpu-fraction: "1e-400"`), want: []string{"above 0"}},
		"fraction of next to nothing": {pod: share(`gpu-fraction: "0.0000001"`), want: []string{"must be at least one part in 1000000"}},
		"fraction without end":        {pod: share(`gpu-fraction: "0.` + strings.Repeat("5", 100_000) + `"`), want: []string{`55…": must be a decimal number`}},
		"devices 0":                   {pod: share(`gpu-fraction: "0.5"`, `gpu-fraction-num-devices: "0"`), want: []string{`metadata.annotations[gpu-fraction-num-devices]: Invalid value: "0": must be a whole number from 1 to 1024`}},
		"devices, half a one":         {pod: share(`gpu-fraction: "0.5"`, `gpu-fraction-num-devices: "1.5"`), want: []string{"from 1 to 1024"}},
		"devices, beyond all":         {pod: share(`gpu-fraction: "0.5"`, `gpu-fraction-num-devices: "18446744073709551616"`), want: []string{"from 1 to 1024"}},
		"an unknown container":        {pod: share(`gpu-fraction: "0.5"`, `gpu-fraction-container-name: other`), want: []string{`metadata.annotations[gpu-fraction-container-name]: Invalid value: "other": must name one of the pod's containers`}},
		"an init container":           {pod: share(`gpu-fraction: "0.5"`, `gpu-fraction-container-name: first`) + "\nspec: {initContainers: [{name: first}]}"},
		"no containers":               {pod: share(`gpu-fraction: "0.5"`) + "\nspec: {containers: []}"},
		"a ConfigMap of one's own":    {pod: share(`gpu-fraction: "0.5"`, `runai/shared-gpu-configmap: a.b`)},
		"and a bad name":              {pod: share(`gpu-fraction: "0.5"`, `runai/shared-gpu-configmap: A_B`), want: []string{`metadata.annotations[runai/shared-gpu-configmap]: Invalid value: "A_B": must be the beginning of a ConfigMap's name`}},
		"and a long name":             {pod: share(`gpu-fraction: "0.5"`, `runai/shared-gpu-configmap: `+strings.Repeat("a", 250)), want: []string{"at most 241"}},
		"everything at once": {
			pod:  share(`gpu-fraction: "2"`, `gpu-memory: "-1"`, `gpu-fraction-num-devices: none`, `gpu-fraction-container-name: x`),
			want: []string{"gpu-memory]: Forbidden", "gpu-fraction]: Invalid", "gpu-memory]: Invalid", "num-devices]: Invalid", "container-name]: Invalid"},
		},
		"devices named": {rules: all(), pod: `spec: {containers: [{name: a, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}]}`, want: []string{
			`spec.containers[0].env[0].value: Invalid value: "all": NVIDIA_VISIBLE_DEVICES must be void or none: which devices a container sees is decided by the cluster`,
		}},
		"devices named elsewhere": {rules: all(), pod: `spec: {initContainers: [{name: a, env: [{name: NVIDIA_VISIBLE_DEVICES, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]}`, want: []string{
			`spec.initContainers[0].env[0].valueFrom: Forbidden: NVIDIA_VISIBLE_DEVICES must not be taken from elsewhere`,
		}},
		"devices named while debugging": {rules: all(), pod: `spec: {ephemeralContainers: [{name: a, env: [{name: NVIDIA_VISIBLE_DEVICES, value: "0"}]}]}`, want: []string{`spec.ephemeralContainers[0].env[0].value`}},
		"no devices":                    {rules: all(), pod: `spec: {containers: [{name: a, env: [{name: NVIDIA_VISIBLE_DEVICES, value: void}, {name: NVIDIA_VISIBLE_DEVICES, value: none}, {name: NVIDIA_VISIBLE_DEVICES}]}]}`},
		"devices named by who shares": {rules: all(), pod: share(`gpu-fraction: "0.5"`) + "\nspec: {containers: [{name: a, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}, {name: b, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}]}", want: []string{
			`spec.containers[1].env[0].value`,
		}},
		"devices named, unguarded": {pod: `spec: {containers: [{name: a, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := c.rules
			if r == nil {
				r = sharing()
			}
			got := lines(r.Validate(pod(t, c.pod)))
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.Contains(got[i], c.want[i]) || len(got[i]) > 500 {
					t.Errorf("got %q, want %q", got[i], c.want[i])
				}
			}
		})
	}
}

// TestValidateUpdate: what was wrong before may stay wrong; what a bound pod holds may not change.
func TestValidateUpdate(t *testing.T) {
	t.Parallel()
	bound := "\nspec: {nodeName: n1}"
	for name, c := range map[string]struct {
		old, now string
		want     []string
	}{
		"a label":                 {share(`gpu-fraction: "0.5"`) + bound, share(`gpu-fraction: "0.5"`, `other: x`) + bound, nil},
		"wrong before":            {share(`gpu-fraction: x`), share(`gpu-fraction: x`, `other: x`), nil},
		"wrong in another way":    {share(`gpu-fraction: x`), share(`gpu-fraction: z`), []string{`metadata.annotations[gpu-fraction]: Invalid value: "z": must be a decimal number above 0 and below 1`}},
		"changed in time":         {share(`gpu-fraction: "0.5"`), share(`gpu-fraction: "0.25"`), nil},
		"changed after the start": {share(`gpu-fraction: "0.5"`) + bound, share(`gpu-fraction: "0.25"`) + bound, []string{"metadata.annotations[gpu-fraction]: Forbidden: must not change once the pod has a node"}},
		"taken off":               {share(`gpu-memory: "5"`) + bound, `{}` + "\n", []string{"metadata.annotations[gpu-memory]: Forbidden: must not change once the pod has a node"}},
		"put on":                  {"metadata: {name: a}" + bound, share(`gpu-fraction: "0.5"`) + bound, []string{"metadata.annotations[gpu-fraction]: Forbidden: must not change once the pod has a node"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(c.want, lines(sharing().ValidateUpdate(pod(t, c.old), pod(t, c.now)))); d != "" {
				t.Error(d)
			}
		})
	}
}
