package keys

// Labels and annotations of Muster's own by which a gang's BindRequests are bound all or not at all. KAI's components
// neither write nor read them.
const (
	// BundleLabel, on a BindRequest, is the identifier of the bundle it belongs to: the requests of one decision, of
	// which none is executed before all are there and prepared. Identifiers are never reused within a namespace.
	// Written by the scheduler. The binder repeats it as an annotation of each pod that it binds for the bundle.
	BundleLabel = "muster.dev/bundle"

	// BundleSizeLabel, on a BindRequest with a BundleLabel, is the number of requests in the bundle, a decimal number
	// of at least 1.
	BundleSizeLabel = "muster.dev/bundle-size"

	// SelectedForAnnotation, on a PersistentVolumeClaim, is the UID of the BindRequest for which a node was selected
	// to make its volume. It stays when a provisioner takes the selected node off because there is no room, so that
	// the binder does not select the same node for the same request for ever. Written by the binder.
	SelectedForAnnotation = "muster.dev/selected-for"
)
