package enginetest

// Mutation switches something off, to prove that scenarios notice. The zero value switches nothing off.
type Mutation struct {
	// Name says what: "point queue-order", "plugin priority at gang-order", "field Pod.spec.nodeSelector".
	Name string
	// Neutralised is passed to the profile.
	Neutralised []string
	// Object, when not nil, takes a field off an object before the dialects see it.
	Object func(Object)
	// Options, when not nil, takes a setting back to its default.
	Options func(*Options)
}

func (m *Mutation) active() bool {
	return len(m.Neutralised) > 0 || m.Object != nil || m.Options != nil
}
