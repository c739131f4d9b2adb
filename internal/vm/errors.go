package vm

import (
	"errors"
	"fmt"
)

// A Kind says what a caller can do about an error. The CRI server turns each into the gRPC code that the kubelet acts upon; an error of
// no kind is Internal.
type Kind uint8

const (
	// Internal is a defect or a failure of the machine: nobody outside can mend it.
	Internal Kind = iota
	// Invalid is a request that can never succeed as it is. Its text names the object, the field or annotation, and the rule.
	Invalid
	// NotFound is a request about something that is not there, or no longer.
	NotFound
	// Conflict is a request that what exists stands in the way of, such as a second live container of a pod.
	Conflict
	// Unavailable is a part that does not answer now and comes back by itself: the caller tries again.
	Unavailable
	// Exhausted is a limit of the node that was met: a disk's space, an image's size, a number of requests under way.
	Exhausted
)

// Errorf makes an error of a kind; the rest is as for fmt.Errorf, %w included.
func Errorf(kind Kind, format string, args ...any) error {
	return &kindError{kind: kind, err: fmt.Errorf(format, args...)}
}

// KindOf gives the kind of the outermost error in err's chain that has one, and Internal where none has. nil has none either:
// ask only about errors.
func KindOf(err error) Kind {
	var k *kindError
	if errors.As(err, &k) {
		return k.kind
	}
	return Internal
}

type kindError struct {
	kind Kind
	err  error
}

func (e *kindError) Error() string { return e.err.Error() }
func (e *kindError) Unwrap() error { return e.err }
