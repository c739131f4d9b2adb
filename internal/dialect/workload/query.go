package workload

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of a query, so that no definition costs more than a glance: its length, how deep it nests, and how many values it may
// have at any point.
const (
	maxQuery       = 1024
	maxQueryDepth  = 32
	maxQueryValues = 4096
)

// query is an expression in the part of jq that definitions use: paths (.a.b, ["k"], [0], []), pipes, parentheses, the
// alternative //, arithmetic, numbers and strings, and the functions to_entries, keys, length, tonumber, tostring, first, last
// and add. It gives a list of values.
type query struct {
	text string
	eval step
}

// step turns one value into some.
type step func(any) ([]any, error)

var errTooMany = fmt.Errorf("gives more than %d values", maxQueryValues)

// parseQuery compiles an expression. Its errors say what is not understood, and where.
func parseQuery(text string) (*query, error) {
	if len(text) > maxQuery {
		return nil, fmt.Errorf("must have at most %d characters, has %d", maxQuery, len(text))
	}
	p := &queryParser{text: text}
	s, err := p.pipe()
	if err == nil && p.peek() != 0 {
		err = p.fail("an operator or the end")
	}
	if err != nil {
		return nil, err
	}
	return &query{text: text, eval: s}, nil
}

// values evaluates the query; nulls are left out.
func (q *query) values(content any) ([]any, error) {
	if q == nil {
		return nil, nil
	}
	out, err := q.eval(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q.text, err)
	}
	kept := make([]any, 0, len(out))
	for _, v := range out {
		if v != nil {
			kept = append(kept, v)
		}
	}
	return kept, nil
}

type queryParser struct {
	text  string
	at    int
	depth int
}

func (p *queryParser) peek() byte {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

func (p *queryParser) take(token string) bool {
	if p.peek() == 0 || !strings.HasPrefix(p.text[p.at:], token) {
		return false
	}
	p.at += len(token)
	return true
}

func (p *queryParser) fail(want string) error {
	return fmt.Errorf("%q, character %d: must be %s", p.text, p.at+1, want)
}

func (p *queryParser) pipe() (step, error) {
	if p.depth++; p.depth > maxQueryDepth {
		return nil, fmt.Errorf("must nest at most %d deep", maxQueryDepth)
	}
	defer func() { p.depth-- }()
	left, err := p.otherwise()
	for err == nil && p.take("|") {
		var right step
		if right, err = p.otherwise(); err == nil {
			left = chained(left, right)
		}
	}
	return left, err
}

func chained(left, right step) step {
	return func(v any) ([]any, error) {
		in, err := left(v)
		if err != nil {
			return nil, err
		}
		var out []any
		for _, v := range in {
			more, err := right(v)
			if err != nil {
				return nil, err
			}
			if out = append(out, more...); len(out) > maxQueryValues {
				return nil, errTooMany
			}
		}
		return out, nil
	}
}

func (p *queryParser) otherwise() (step, error) {
	left, err := p.sum()
	if err != nil || !p.take("//") {
		return left, err
	}
	if p.depth++; p.depth > maxQueryDepth {
		return nil, fmt.Errorf("must nest at most %d deep", maxQueryDepth)
	}
	defer func() { p.depth-- }()
	right, err := p.otherwise()
	if err != nil {
		return nil, err
	}
	return func(v any) ([]any, error) {
		in, err := left(v)
		var out []any
		for _, o := range in {
			if o != nil && o != false {
				out = append(out, o)
			}
		}
		if len(out) > 0 && err == nil {
			return out, nil
		}
		return right(v)
	}, nil
}

func (p *queryParser) sum() (step, error) {
	left, err := p.product()
	for err == nil {
		op := p.peek()
		if op != '+' && op != '-' {
			break
		}
		p.at++
		var right step
		if right, err = p.product(); err == nil {
			left = arithmetic(op, left, right)
		}
	}
	return left, err
}

func (p *queryParser) product() (step, error) {
	left, err := p.term()
	for err == nil {
		op := p.peek()
		if op != '*' && (op != '/' || strings.HasPrefix(p.text[p.at:], "//")) {
			break
		}
		p.at++
		var right step
		if right, err = p.term(); err == nil {
			left = arithmetic(op, left, right)
		}
	}
	return left, err
}

func arithmetic(op byte, left, right step) step {
	return func(v any) ([]any, error) {
		as, err := left(v)
		if err != nil {
			return nil, err
		}
		bs, err := right(v)
		if err != nil {
			return nil, err
		}
		if len(as)*len(bs) > maxQueryValues {
			return nil, errTooMany
		}
		var out []any
		for _, b := range bs {
			for _, a := range as {
				x, err := calculate(op, a, b)
				if err != nil {
					return nil, err
				}
				out = append(out, x)
			}
		}
		return out, nil
	}
}

func calculate(op byte, a, b any) (any, error) {
	if op == '+' && (a == nil || b == nil) { // null is the zero of addition
		if a == nil {
			return b, nil
		}
		return a, nil
	}
	x, xOK := integer(a)
	y, yOK := integer(b)
	const most = 1 << 31
	if !xOK || !yOK || x < -most || x > most || y < -most || y > most {
		return nil, fmt.Errorf("%s %c %s: both must be whole numbers of at most %d", shown(a), op, shown(b), most)
	}
	switch op {
	case '+':
		return x + y, nil
	case '-':
		return x - y, nil
	case '*':
		return x * y, nil
	}
	if y == 0 {
		return nil, errors.New("division by zero")
	}
	return x / y, nil
}

func (p *queryParser) term() (step, error) {
	var s step
	switch c := p.peek(); {
	case c == '(':
		p.at++
		inside, err := p.pipe()
		if err != nil {
			return nil, err
		}
		if !p.take(")") {
			return nil, p.fail(`")"`)
		}
		s = inside
	case c == '.':
		s = func(v any) ([]any, error) { return []any{v}, nil }
		if next := p.text[p.at+1:]; next == "" || !startsName(next[0]) && next[0] != '"' {
			p.at++ // the identity; what follows applies to it
		}
	case c == '"':
		text, err := p.quoted()
		if err != nil {
			return nil, err
		}
		return constant(text), nil
	case c >= '0' && c <= '9':
		from := p.at
		for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
			p.at++
		}
		n, err := strconv.ParseInt(p.text[from:p.at], 10, 64)
		if err != nil {
			return nil, p.fail("a smaller number")
		}
		return constant(n), nil
	case startsName(c):
		f := functions(p.name())
		if f == nil {
			return nil, p.fail("after a function that is known here")
		}
		s = f
	default:
		return nil, p.fail("a path, a number, a string or a function")
	}
	return p.suffixes(s)
}

func constant(v any) step { return func(any) ([]any, error) { return []any{v}, nil } }

func (p *queryParser) suffixes(s step) (step, error) {
	for {
		switch {
		case p.at < len(p.text) && p.text[p.at] == '?':
			p.at++
			inner := s
			s = func(v any) ([]any, error) {
				if out, err := inner(v); err == nil {
					return out, nil
				}
				return nil, nil
			}
		case p.peek() == '[':
			p.at++
			next, err := p.index()
			if err != nil {
				return nil, err
			}
			s = chained(s, next)
		case p.peek() == '.' && p.at+1 < len(p.text) && p.text[p.at+1] == '[':
			p.at++
		case p.peek() == '.' && p.at+1 < len(p.text) && (startsName(p.text[p.at+1]) || p.text[p.at+1] == '"'):
			p.at++
			name := ""
			if p.text[p.at] == '"' {
				var err error
				if name, err = p.quoted(); err != nil {
					return nil, err
				}
			} else {
				name = p.name()
			}
			s = chained(s, field(name))
		default:
			return s, nil
		}
	}
}

// index is what stands between brackets.
func (p *queryParser) index() (step, error) {
	var s step
	switch c := p.peek(); {
	case c == ']':
		s = each
	case c == '"':
		name, err := p.quoted()
		if err != nil {
			return nil, err
		}
		s = field(name)
	case c >= '0' && c <= '9':
		from := p.at
		for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
			p.at++
		}
		i, err := strconv.Atoi(p.text[from:p.at])
		if err != nil {
			return nil, p.fail("a smaller number")
		}
		s = func(v any) ([]any, error) {
			list, isList := v.([]any)
			switch {
			case v == nil || isList && i >= len(list):
				return []any{nil}, nil
			case !isList:
				return nil, fmt.Errorf("[%d]: %s is no list", i, shown(v))
			}
			return []any{list[i]}, nil
		}
	default:
		return nil, p.fail("an index, a key or nothing")
	}
	if !p.take("]") {
		return nil, p.fail(`"]"`)
	}
	return s, nil
}

func (p *queryParser) quoted() (string, error) {
	end := strings.IndexByte(p.text[p.at+1:], '"')
	if end < 0 {
		return "", p.fail("a string that ends")
	}
	text := p.text[p.at+1 : p.at+1+end]
	if strings.Contains(text, `\`) {
		return "", p.fail("a string without escapes")
	}
	p.at += end + 2
	return text, nil
}

func startsName(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

func (p *queryParser) name() string {
	from := p.at
	for p.at < len(p.text) && (startsName(p.text[p.at]) || p.at > from && p.text[p.at] >= '0' && p.text[p.at] <= '9') {
		p.at++
	}
	return p.text[from:p.at]
}

func field(name string) step {
	return func(v any) ([]any, error) {
		m, isMap := v.(map[string]any)
		if v != nil && !isMap {
			return nil, fmt.Errorf(".%s: %s is no object", name, shown(v))
		}
		return []any{m[name]}, nil
	}
}

func each(v any) ([]any, error) {
	var out []any
	switch v := v.(type) {
	case nil: // jq fails here; a list that is not there has no elements
	case []any:
		out = v
	case map[string]any:
		for _, k := range sortedKeys(v) {
			out = append(out, v[k])
		}
	default:
		return nil, fmt.Errorf("[]: %s has no elements", shown(v))
	}
	if len(out) > maxQueryValues {
		return nil, errTooMany
	}
	return out, nil
}

// functions finds a function without arguments.
func functions(name string) step {
	one := func(v any, err error) ([]any, error) { return []any{v}, err }
	switch name {
	case "to_entries":
		return func(v any) ([]any, error) {
			m, _ := v.(map[string]any)
			out := make([]any, 0, len(m))
			for _, k := range sortedKeys(m) {
				out = append(out, map[string]any{"key": k, "value": m[k]})
			}
			return one(out, nil)
		}
	case "keys":
		return func(v any) ([]any, error) {
			m, _ := v.(map[string]any)
			out := make([]any, 0, len(m))
			for _, k := range sortedKeys(m) {
				out = append(out, k)
			}
			return one(out, nil)
		}
	case "length":
		return func(v any) ([]any, error) {
			switch v := v.(type) {
			case nil:
				return one(int64(0), nil)
			case []any:
				return one(int64(len(v)), nil)
			case map[string]any:
				return one(int64(len(v)), nil)
			case string:
				return one(int64(len(v)), nil)
			}
			return nil, fmt.Errorf("length: %s has none", shown(v))
		}
	case "tonumber":
		return func(v any) ([]any, error) {
			if s, ok := v.(string); ok {
				n, err := strconv.ParseInt(s, 10, 64)
				if err != nil {
					return nil, fmt.Errorf("tonumber: %s is no whole number", shown(v))
				}
				return one(n, nil)
			}
			return one(v, nil)
		}
	case "tostring":
		return func(v any) ([]any, error) {
			if s, ok := v.(string); ok {
				return one(s, nil)
			}
			return one(shown(v), nil)
		}
	case "first", "last":
		return func(v any) ([]any, error) {
			list, _ := v.([]any)
			switch {
			case len(list) == 0:
				return one(nil, nil)
			case name == "first":
				return one(list[0], nil)
			}
			return one(list[len(list)-1], nil)
		}
	case "add":
		return func(v any) ([]any, error) {
			list, err := each(v)
			var total any
			for _, n := range list {
				if err == nil {
					total, err = calculate('+', total, n)
				}
			}
			return one(total, err)
		}
	}
	return nil
}
