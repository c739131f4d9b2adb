package vm

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestKindOf(t *testing.T) {
	t.Parallel()
	missing := Errorf(NotFound, "container %q: %w", "a", io.EOF)
	for _, test := range []struct {
		err  error
		want Kind
	}{
		{io.EOF, Internal},
		{missing, NotFound},
		{fmt.Errorf("stop: %w", missing), NotFound},
		{Errorf(Unavailable, "libvirt: %w", missing), Unavailable},
		{errors.Join(io.EOF, missing), NotFound},
	} {
		if got := KindOf(test.err); got != test.want {
			t.Errorf("KindOf(%v) = %d, want %d", test.err, got, test.want)
		}
	}
	if !errors.Is(missing, io.EOF) {
		t.Error("an error of a kind hides what it wraps")
	}
	if got, want := missing.Error(), `container "a": EOF`; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}
