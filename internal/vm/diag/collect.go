package diag

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Root is the name of the tree's first result.
const Root = "diagnostics"

// Result is a text with its place in the tree, or a folder of results.
type Result struct {
	// Name is 1 to 128 letters, digits, '_', '.', '-' and ':', and begins with none but the first two. No two results of a folder have the same.
	Name string `json:"name"`
	// Ext is what a file of it ends with, without the dot.
	Ext      string   `json:"ext,omitempty"`
	Data     string   `json:"data,omitempty"`
	IsDir    bool     `json:"isdir,omitempty"`
	Children []Result `json:"children,omitempty"`
	// Error says why there is no data, or no more.
	Error string `json:"error,omitempty"`
}

// Source is something to look at: exactly one of Read, List and Tree is set.
type Source struct {
	// Name and Ext are the result's.
	Name, Ext string
	// Read writes a text. What is over the bound is not kept, and a write after that fails.
	Read func(ctx context.Context, to io.Writer) error
	// List gives the sources of a folder; Read and List end with ctx.
	List func(ctx context.Context) ([]Source, error)
	// Tree gives a result that somebody else has made.
	Tree func(ctx context.Context) (Result, error)
}

// Bounds of a collection. The zero value of each means its default.
type Bounds struct {
	// Bytes bounds one text, Total all. Defaults 1 MiB, 64 MiB.
	Bytes, Total int
	// Time bounds one source. Default 10 s.
	Time time.Duration
	// Children bounds a folder, AtOnce what is looked at at the same time. Defaults 1200, 8.
	Children, AtOnce int
}

// maxDepth bounds folders in folders.
const maxDepth = 6

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}$`)

// Name makes a result's name of a text.
func Name(text string) string {
	out := strings.Map(func(r rune) rune {
		if r < 0x80 && nameForm.MatchString("x"+string(r)) {
			return r
		}
		return '_'
	}, text)
	if out = out[:min(len(out), 127)]; !nameForm.MatchString(out) {
		out = "_" + out
	}
	return out
}

// Collect reads all sources. None hinders another: one that fails, panics or takes too long has an error in its place. One that does not heed its context is
// left behind.
func Collect(ctx context.Context, sources []Source, b Bounds) Result {
	for _, d := range []struct {
		value *int
		is    int
	}{{&b.Bytes, 1 << 20}, {&b.Total, 64 << 20}, {&b.Children, 1200}, {&b.AtOnce, 8}} {
		if *d.value <= 0 {
			*d.value = d.is
		}
	}
	if b.Time <= 0 {
		b.Time = 10 * time.Second
	}
	c := &collection{bounds: b, left: b.Total, tokens: make(chan struct{}, b.AtOnce)}
	return c.folder(ctx, Result{Name: Root}, sources, 0)
}

type collection struct {
	bounds Bounds
	tokens chan struct{}

	mu   sync.Mutex
	left int
}

// take takes bytes of those that are left for all.
func (c *collection) take(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, c.left)
	c.left -= n
	return n
}

func (c *collection) folder(ctx context.Context, r Result, sources []Source, depth int) Result {
	r.IsDir = true
	if depth >= maxDepth {
		r.Error = fmt.Sprintf("folders are at most %d deep", maxDepth)
		return r
	}
	if len(sources) > c.bounds.Children {
		r.Error = fmt.Sprintf("%d of %d are left out", len(sources)-c.bounds.Children, len(sources))
		sources = sources[:c.bounds.Children]
	}
	r.Children = make([]Result, len(sources))
	var wait sync.WaitGroup
	for i, s := range sources {
		wait.Go(func() { r.Children[i] = c.one(ctx, s, depth+1) })
	}
	wait.Wait()
	r.Children = sorted(r.Children)
	return r
}

// sorted gives results their order, and names that differ.
func sorted(all []Result) []Result {
	slices.SortStableFunc(all, func(a, b Result) int { return strings.Compare(a.Name, b.Name) })
	for i := range all {
		if all[i].Name = Name(all[i].Name); i > 0 && all[i].Name <= all[i-1].Name {
			base := all[i].Name[:min(len(all[i].Name), 100)]
			for n := 2; slices.ContainsFunc(all[:i], func(r Result) bool { return r.Name == all[i].Name }); n++ {
				all[i].Name = fmt.Sprintf("%s-%d", base, n)
			}
		}
	}
	return all
}

func (c *collection) one(ctx context.Context, s Source, depth int) Result {
	r := Result{Name: Name(s.Name), Ext: s.Ext}
	var sources []Source
	err := c.bounded(ctx, func(ctx context.Context) (keep func(), err error) {
		switch {
		case s.Read != nil:
			text := &text{room: c.bounds.Bytes}
			err := s.Read(ctx, text)
			return func() { r.Data, r.Error = c.clean(text) }, err
		case s.List != nil:
			got, err := s.List(ctx)
			return func() { sources = got; r.IsDir = true }, err
		case s.Tree != nil:
			got, err := s.Tree(ctx)
			return func() {
				got.Name, got.Ext = r.Name, or(got.Ext, r.Ext)
				r = c.checked(got, depth)
			}, err
		}
		return nil, fmt.Errorf("source %q has nothing to look at", s.Name)
	})
	if err != nil {
		r.Error = Redact(strings.ToValidUTF8(joined(r.Error, err.Error()), "�"))
	}
	if r.IsDir && s.List != nil {
		why := r.Error
		r.Error = ""
		r = c.folder(ctx, r, sources, depth)
		r.Error = joined(why, r.Error)
	}
	return r
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// bounded does one look within its time. What it has found is kept by who waits, if it still waits.
func (c *collection) bounded(ctx context.Context, look func(context.Context) (keep func(), err error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.bounds.Time, fmt.Errorf("no end within %v", c.bounds.Time))
	defer cancel()
	select {
	case c.tokens <- struct{}{}:
		defer func() { <-c.tokens }()
	case <-ctx.Done():
		return fmt.Errorf("it was not this source's turn: %w", context.Cause(ctx))
	}
	type found struct {
		keep func()
		err  error
	}
	done := make(chan found, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- found{err: fmt.Errorf("a defect: %v\n%s", p, debug.Stack())}
			}
		}()
		keep, err := look(ctx)
		done <- found{keep, err}
	}()
	select {
	case f := <-done:
		if f.keep != nil {
			f.keep()
		}
		if f.err != nil && ctx.Err() != nil {
			return fmt.Errorf("%w (%w)", context.Cause(ctx), f.err)
		}
		return f.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// clean is what a source has written, without secrets, within what is left for all.
func (c *collection) clean(t *text) (data, problem string) {
	raw := t.kept.Bytes()
	most := c.take(len(raw))
	if cut := t.lost > 0 || most < len(raw); cut {
		problem = fmt.Sprintf("cut: %d bytes more were not kept", t.lost+len(raw)-most)
		raw = raw[:most]
		// Half a line could be half a secret, which would not be known for one.
		raw = raw[:bytes.LastIndexByte(raw, '\n')+1]
	}
	text := string(raw)
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "�")
	}
	return Redact(text), problem
}

// checked is what somebody else has made, within the bounds and without secrets.
func (c *collection) checked(r Result, depth int) Result {
	out := Result{Name: Name(r.Name), Ext: r.Ext, IsDir: r.IsDir, Error: Redact(r.Error)}
	if !nameForm.MatchString(out.Ext) {
		out.Ext = ""
	}
	if !r.IsDir {
		t := &text{room: c.bounds.Bytes}
		_, _ = t.Write([]byte(r.Data))
		var problem string
		out.Data, problem = c.clean(t)
		out.Error = joined(out.Error, problem)
		return out
	}
	if depth >= maxDepth {
		out.Error = joined(out.Error, fmt.Sprintf("folders are at most %d deep", maxDepth))
		return out
	}
	for i, child := range r.Children {
		if i == c.bounds.Children {
			out.Error = joined(out.Error, fmt.Sprintf("%d of %d are left out", len(r.Children)-i, len(r.Children)))
			break
		}
		out.Children = append(out.Children, c.checked(child, depth+1))
	}
	out.Children = sorted(out.Children)
	return out
}

// text keeps the beginning of what is written. It is one source's, which may have been left behind: then nobody reads it.
type text struct {
	kept bytes.Buffer
	room int
	lost int
}

// Write fails once nothing more is kept, so that who writes without end stops.
func (t *text) Write(p []byte) (int, error) {
	n := min(len(p), t.room)
	t.room -= n
	t.kept.Write(p[:n])
	t.lost += len(p) - n
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}
