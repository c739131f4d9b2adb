// Package entry is what a map has under a key, made where there is nothing yet. Maps are not nil.
package entry

// Of is the entry under a key: a new one if there is none.
func Of[K comparable, T any](m map[K]*T, k K) *T {
	v := m[k]
	if v == nil {
		v = new(T)
		m[k] = v
	}
	return v
}

// Or is the entry under a key: what made returns if there is none.
func Or[K comparable, V any](m map[K]V, k K, made func() V) V {
	v, ok := m[k]
	if !ok {
		v = made()
		m[k] = v
	}
	return v
}

// Put puts a value under two keys, the first of the map of maps.
func Put[K, L comparable, V any](m map[K]map[L]V, k K, l L, v V) {
	if m[k] == nil {
		m[k] = map[L]V{}
	}
	m[k][l] = v
}
