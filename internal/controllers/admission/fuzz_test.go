package admission

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
)

// FuzzReview: whatever arrives at whatever path, there is an answer, it is JSON if it says that it is well, and the process lives.
func FuzzReview(f *testing.F) {
	paths := []string{
		MutatePodPath, ValidatePodPath, ValidateTopologyPath, ValidateQueuePath, ValidatePodGroupPath, ValidateShardPath,
		MutateJobPath, ValidateJobPath, MutateVCQueuePath, ValidateVCQueuePath, MutateVCGroupPath, ValidateVCGroupPath, ValidateHyperNodePath, ValidateJobFlowPath, ValidateCronJobPath,
	}
	for i := range paths {
		for _, object := range []string{
			`{}`, `null`, `{"metadata":{"name":"x"},"spec":{"schedulerName":"kai-scheduler","containers":null}}`, `{"spec":{"levels":[null],"subGroups":[null],"parentQueue":"x"}}`,
			`{"spec":{"tasks":[{"dependsOn":{"name":["b"]},"policies":[{}],"template":{"spec":{"containers":[{}]}}}],"plugins":{"mpi":["-x"]},"volumes":[{}],"parent":"x","members":[{"selector":{"regexMatch":{"pattern":"["}}}],"flows":[{"dependsOn":{"targets":["b"]}}],"schedule":"*/0 * * * *","timeZone":"../x"}}`,
		} {
			f.Add(uint8(i), []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"UPDATE","object":`+object+`,"oldObject":`+object+`}}`))
		}
	}
	f.Add(uint8(0), []byte(`{`))
	rules := *all()
	rules.Volcano = []string{"volcano"}
	h, err := NewHandler(rules, Sources{
		Volcano: VolcanoSources{
			Queues: func(context.Context) (volcano.Forest, error) { return volcano.Forest{}, nil },
			Busy:   func(context.Context, string) (bool, error) { return false, nil },
			Notes:  func(context.Context, string) (map[string]string, error) { return nil, nil },
		},
		Queues: func(context.Context) (Forest, error) { return Forest{}, nil },
		Groups: func(context.Context, string) ([]string, bool, error) { return nil, false, nil },
	}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, at uint8, body []byte) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, paths[int(at)%len(paths)], strings.NewReader(string(body))))
		if w.Code == http.StatusOK && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if w.Code == http.StatusInternalServerError {
			t.Fatalf("%s", w.Body)
		}
	})
}

// FuzzMutate: a pod that passes is completed by a patch that applies, and nothing is left to complete then. What is refused is told
// in few words.
func FuzzMutate(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"p","annotations":{"gpu-fraction":"0.5","runai/shared-gpu-configmap":"x"},"labels":{"runai-gpu-group/a~b":"c"}},"spec":{"schedulerName":"kai-scheduler","containers":[{"name":"a","env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"},{"name":"NVIDIA_VISIBLE_DEVICES"}]}],"initContainers":[{"name":"b"}]}}`,
		`{"metadata":{"generateName":"./","annotations":{"gpu-memory":"5","gpu-fraction-container-name":"b","gpu-fraction-num-devices":"3"}},"spec":{"schedulerName":"muster","containers":[{"name":"b","envFrom":[{}]}],"volumes":[{"name":"v"}]}}`,
	} {
		f.Add([]byte(seed))
	}
	rules := all()
	f.Fuzz(func(t *testing.T, text []byte) {
		p := &corev1.Pod{}
		if json.Unmarshal(text, p) != nil {
			return
		}
		if wrong := rules.Validate(p); len(wrong) > 0 {
			for _, e := range wrong {
				if len(e.Detail) > 400 {
					t.Fatalf("%d bytes about %s", len(e.Detail), e.Field)
				}
			}
			return
		}
		ops, err := rules.Mutate(p, "token")
		if err != nil {
			return
		}
		again, err := rules.Mutate(patched(t, p, ops), "token")
		if err != nil || len(again) > 0 {
			t.Fatalf("a completed pod is completed again: %v %v", again, err)
		}
	})
}

// FuzzTrees: Queues and PodGroups are judged without end, loop or crash, and the judge and the reader agree about trees.
func FuzzTrees(f *testing.F) {
	f.Add([]byte(`{"spec":{"subGroups":[{"name":"a","parent":"b"},{"name":"b","parent":"a"},{"name":"c","minMember":1}]}}`), []byte(`{"metadata":{"name":"a"},"spec":{"parentQueue":"b"}}`), []byte(`{"metadata":{"name":"b"},"spec":{"parentQueue":"a"}}`))
	f.Add([]byte(`{"spec":{"minSubGroup":3,"subGroups":[{"name":"a","parent":""}]}}`), []byte(`{}`), []byte(`{"spec":{"resources":{"gpu":{"quota":-1}}}}`))
	f.Fuzz(func(t *testing.T, groupText, queueText, otherText []byte) {
		pg, q, other := &v2alpha2.PodGroup{}, &v2.Queue{}, &v2.Queue{}
		if json.Unmarshal(groupText, pg) != nil || json.Unmarshal(queueText, q) != nil || json.Unmarshal(otherText, other) != nil {
			return
		}
		ValidatePodGroup(pg, nil)
		if wrong, _ := ValidatePodGroup(pg, pg.DeepCopy()); len(wrong) > 0 {
			t.Fatalf("an update that changes nothing is refused: %v", wrong)
		}
		_, warnings := (&Rules{Quotas: true}).ValidateQueue(q, nil, Forest{other.Name: other, q.Name: q})
		for _, w := range warnings {
			if len(w) > maxWarning+len("…") {
				t.Fatalf("a warning of %d bytes", len(w))
			}
		}
	})
}
