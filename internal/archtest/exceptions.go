package archtest

// Exception excuses one violation. Rows are rare, and an ADR stands behind each.
type Exception struct {
	// Rule is the ID of the rule that is broken.
	Rule string
	// File is the path relative to the root.
	File string
	// What is a part of the violation's text, so that a second violation in the same file is still found.
	What string
	// Why is for the reader: what makes this place special.
	Why string
}

// Exceptions of this repository. A row for a file that does not exist excuses nothing and harms nothing.
func Exceptions() []Exception {
	return []Exception{
		{
			Rule: "D5", File: "internal/roles/events.go", What: "client's Create",
			Why: "Events: they only repeat what conditions say, belong to the process and not to a role, and may be lost",
		},
		{
			Rule: "D9", File: "internal/lab/server/version.go", What: "kubeVersion",
			Why: "The variable belongs to k8s.io/component-base, which has no other way to be told the version; it is linked here and set once, when a server starts",
		},
		{
			Rule: "D9", File: "internal/kubetest/process.go", What: "ErrorHandlers",
			Why: "The variable belongs to k8s.io/apimachinery; its handler sleeps until a time that another test's bubble left, which there is no other way to prevent; it is set once, in tests alone",
		},
		{
			Rule: "D12", File: "internal/controllers/admission/controller.go", What: "starts a goroutine",
			Why: "The HTTP server's: it has a goroutine for each request, and the reviews are guarded where they are answered",
		},
		{
			Rule: "D12", File: "internal/controllers/operator/apiclient.go", What: "starts a goroutine",
			Why: "The cache's: its handlers and transforms are guarded",
		},
		{
			Rule: "D12", File: "internal/kube/feed/feed.go", What: "starts a goroutine",
			Why: "It waits until a kind exists and looks at no object; the store's reading of objects sets aside by itself what ends in a defect",
		},
	}
}
