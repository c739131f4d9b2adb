package volcano

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// loopIn is a way along a graph's edges that ends where it began; nil if there is none. It takes time in proportion to the graph, and no recursion.
func loopIn(graph map[string][]string) []string {
	const (
		under = 1 // way
		done  = 2
	)
	state := map[string]int{}
	for _, start := range slices.Sorted(maps.Keys(graph)) {
		if state[start] != 0 {
			continue
		}
		path, next := []string{start}, []int{0}
		state[start] = under
		for len(path) > 0 {
			at, n := path[len(path)-1], next[len(next)-1]
			if n == len(graph[at]) {
				state[at] = done
				path, next = path[:len(path)-1], next[:len(next)-1]
				continue
			}
			next[len(next)-1]++
			switch to := graph[at][n]; state[to] {
			case under:
				return append(path[slices.Index(path, to):], to)
			case 0:
				state[to] = under
				path, next = append(path, to), append(next, 0)
			}
		}
	}
	return nil
}

// chain writes a way, leaving out the middle of a long one.
func chain(path []string) string {
	const most = 8
	out := make([]string, len(path))
	for i := range path {
		out[i] = brief(path[i])
	}
	if len(out) > most {
		out = slices.Concat(out[:most/2], []string{"…"}, out[len(out)-most/2:])
	}
	return strings.Join(out, " -> ")
}

// fieldsOf are the values of each field of two structs of one type, by the field's name in JSON.
func fieldsOf[T any](a, b *T) map[string][2]any {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	out := map[string][2]any{}
	for i := range x.NumField() {
		name, _, _ := strings.Cut(x.Type().Field(i).Tag.Get("json"), ",")
		out[name] = [2]any{x.Field(i).Interface(), y.Field(i).Interface()}
	}
	return out
}
