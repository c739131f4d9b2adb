package write

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Apply makes the object's fields as they are here by server-side apply, as the named manager of fields, which takes them
// from whoever had them. Fields that the manager set before and does not name any more go, unless somebody else has set them
// too. On Written, obj holds the API server's answer.
func (k *Kit) Apply(ctx context.Context, obj *unstructured.Unstructured, manager string) (Result, error) {
	err := k.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner(manager), client.ForceOwnership)
	result, err := judge(err, "")
	return k.count("apply", obj, result, err)
}
