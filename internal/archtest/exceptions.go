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

// Exceptions of this repository.
func Exceptions() []Exception {
	return nil
}
