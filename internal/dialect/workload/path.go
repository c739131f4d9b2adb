package workload

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// lookup follows a dotted path of field names through decoded JSON. found is false when a step is absent or null; ok is
// false when a step leads through something that is not an object.
func lookup(content map[string]any, path string) (value any, found, ok bool) {
	value = content
	for path != "" {
		step, rest, _ := strings.Cut(path, ".")
		path = rest
		m, isMap := value.(map[string]any)
		if !isMap {
			return nil, false, false
		}
		if value = m[step]; value == nil {
			return nil, false, true
		}
	}
	return value, true, true
}

// integer reads a whole number in the form in which JSON and YAML decoders give them.
func integer(value any) (int64, bool) {
	switch v := value.(type) {
	case int64:
		return v, true
	case int32:
		return int64(v), true
	case int:
		return int64(v), true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v), true
		}
	case json.Number:
		n, err := v.Int64()
		return n, err == nil
	}
	return 0, false
}

// integerAt reads the integer, 0 or more, at a path of the object. found is false when the field is absent.
// text lets it be a string of digits.
func integerAt(o *Object, path string, text bool) (n int32, found bool, err error) {
	value, found, ok := lookup(o.Content, path)
	if !ok {
		return 0, false, invalidField(o, path, "a step of this path is not an object")
	}
	if !found {
		return 0, false, nil
	}
	if digits, isText := value.(string); isText && text {
		if parsed, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64); err == nil {
			value = parsed
		}
	}
	n, err = inRange(o, path, value, 0)
	return n, true, err
}

func inRange(o *Object, path string, value any, low int64) (int32, error) {
	n, ok := integer(value)
	if !ok || n < low || n > math.MaxInt32 {
		return 0, invalidField(o, path, "must be an integer from %d to %d, is %s", low, math.MaxInt32, shown(value))
	}
	return int32(n), nil
}

// sumAt adds up the integers at a path with one "*", which stands for every key of an object. One that is absent counts 1.
func sumAt(o *Object, path string) (sum int32, found bool, err error) {
	before, after, _ := strings.Cut(path, "*")
	before, after = strings.TrimSuffix(before, "."), strings.TrimPrefix(after, ".")
	value, found, ok := lookup(o.Content, before)
	if !ok || !found {
		return 0, false, invalidField(o, before, "must be an object, is absent")
	}
	entries, isMap := value.(map[string]any)
	if !isMap || len(entries) == 0 {
		return 0, false, invalidField(o, before, "must be an object with at least one entry, is %s", shown(value))
	}
	total := int64(0)
	for _, name := range sortedKeys(entries) {
		at := before + "." + name + "." + after
		entry, _ := entries[name].(map[string]any)
		value, found, ok := lookup(entry, after)
		if ok && !found || entry == nil {
			total++ // what the operators take an absent number for
			continue
		}
		n, err := inRange(o, at, value, 1)
		if err != nil {
			return 0, false, err
		}
		total += int64(n)
	}
	if total > math.MaxInt32 {
		return 0, false, invalidField(o, path, "must add up to at most %d, adds up to %d", math.MaxInt32, total)
	}
	return int32(total), true, nil
}

// stringsAt reads the string-valued entries of the object at a path; what is not a string is left out.
func stringsAt(content map[string]any, path string) map[string]string {
	value, found, _ := lookup(content, path)
	entries, isMap := value.(map[string]any)
	if !found || !isMap {
		return nil
	}
	out := make(map[string]string, len(entries))
	for k, v := range entries {
		if s, ok := v.(string); ok {
			out[k] = s
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// shown renders a value for a message, briefly: users write what they like into their fields.
func shown(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return "no JSON value"
	}
	const most = 60
	if len(raw) > most {
		return strings.ToValidUTF8(string(raw[:most]), "") + "…"
	}
	return string(raw)
}
