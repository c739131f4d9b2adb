package client_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	kaiv1alpha1 "github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/client/clientset/versioned/fake"
	"github.com/muster-scheduler/muster/client/informers/externalversions"
)

// TestClient: each kind is written through the clientset, and read from the store of its informer through its lister.
func TestClient(t *testing.T) {
	t.Parallel()
	named := metav1.ObjectMeta{Name: "x"}
	placed := metav1.ObjectMeta{Namespace: "ns", Name: "x"}
	c := fake.NewSimpleClientset(&queuev2.Queue{ObjectMeta: named}, &v2alpha2.PodGroup{ObjectMeta: placed}, &v1alpha2.BindRequest{ObjectMeta: placed})
	ctx := t.Context()
	for _, err := range []error{
		second(c.KaiV1alpha1().Topologies().Create(ctx, &kaiv1alpha1.Topology{ObjectMeta: named}, metav1.CreateOptions{})),
		second(c.KaiV1().SchedulingShards().Create(ctx, &kaiv1.SchedulingShard{ObjectMeta: named}, metav1.CreateOptions{})),
		second(c.KaiV1().Configs().Create(ctx, &kaiv1.Config{ObjectMeta: named}, metav1.CreateOptions{})),
		second(c.SchedulingV2().Queues().UpdateStatus(ctx, &queuev2.Queue{ObjectMeta: named}, metav1.UpdateOptions{})),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	f := externalversions.NewSharedInformerFactory(c, time.Hour)
	queues, groups, requests := f.Scheduling().V2().Queues(), f.Scheduling().V2alpha2().PodGroups(), f.Scheduling().V1alpha2().BindRequests()
	topologies, shards, configs := f.Kai().V1alpha1().Topologies(), f.Kai().V1().SchedulingShards(), f.Kai().V1().Configs()
	informers := []interface{ HasSynced() bool }{ // that they are asked for is what has the factory start them
		queues.Informer(), groups.Informer(), requests.Informer(), topologies.Informer(), shards.Informer(), configs.Informer(),
	}
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	for i, informer := range informers {
		if !informer.HasSynced() {
			t.Errorf("informer %d did not sync", i)
		}
	}
	for kind, err := range map[string]error{
		"queue": second(queues.Lister().Get("x")), "podgroup": second(groups.Lister().PodGroups("ns").Get("x")),
		"bindrequest": second(requests.Lister().BindRequests("ns").Get("x")), "topology": second(topologies.Lister().Get("x")),
		"shard": second(shards.Lister().Get("x")), "config": second(configs.Lister().Get("x")),
	} {
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if all, err := groups.Lister().List(labels.Everything()); err != nil || len(all) != 1 || all[0].Namespace != "ns" {
		t.Errorf("podgroups: %v, %v", all, err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestEveryKind: for each CustomResourceDefinition there is a client, an informer and a lister.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	definitions, err := filepath.Glob("../api/crds/*.yaml")
	if err != nil || len(definitions) != 6 {
		t.Fatalf("%d definitions, %v", len(definitions), err)
	}
	for _, file := range definitions {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		singular := regexp.MustCompile(`\n    singular: (\w+)\n`).FindSubmatch(text)
		if singular == nil {
			t.Fatalf("%s names no singular", file)
		}
		for _, place := range []string{"clientset/versioned/typed/*/*/%s.go", "informers/externalversions/*/*/%s.go", "listers/*/*/%s.go"} {
			if found, err := filepath.Glob(fmt.Sprintf(place, singular[1])); err != nil || len(found) != 1 {
				t.Errorf("%s: %q, %v", file, found, err)
			}
		}
	}
}
