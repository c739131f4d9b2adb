package enginetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// Several shards of one cluster: a scheduler for each, with a profile and a node pool of its own. All of them are told of
// every object. A statement in which {shard} stands is made once for each shard, and a command is asked of each.

// placeholder is what stands for a shard's name.
const placeholder = "{shard}"

// newShards returns the backend of the first of a scenario's shards, which knows the others.
func newShards(o Options, m Mutation, extend Extension) (*Engine, error) {
	var all []*Engine
	for i := range o.Shards {
		s := &o.Shards[i]
		name := s.name()
		if s.fault != nil {
			return nil, s.fault
		}
		if s.verb != "shard" || len(s.words) > 1 || len(s.attrs) > 0 {
			return nil, s.errorf("want shard NAME, and its settings indented below it")
		}
		if slices.ContainsFunc(all, func(e *Engine) bool { return e.pool == name }) {
			return nil, s.errorf("there is a shard %s already", name)
		}
		one := o
		one.Shards, one.Shard = nil, s.parts
		for k := range one.Shard {
			one.Shard[k].anew()
		}
		m.Options = nil // has been applied
		e, err := NewEngine(&one, m, extend)
		if err != nil {
			return nil, fmt.Errorf("shard %s: %w", name, err)
		}
		e.pool, e.reads.Partition = name, kai.Partition{Key: kai.DefaultNodePoolKey, Value: name}
		e.tell = dialect.NewTranslator(e.reads)
		e.past = slices.ContainsFunc(s.parts, func(p statement) bool { return p.verb == "usage" })
		all = append(all, e)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the section shards names none")
	}
	for _, e := range all {
		e.shards = all
	}
	return all[0], nil
}

// cluster is every scheduler that is told what happens.
func (b *Engine) cluster() []*Engine {
	if b.shards == nil {
		return []*Engine{b}
	}
	return b.shards
}

// join puts an object into a node pool, if it is of a kind that can be.
func join(o Object, pool string) {
	if k, ok := dialect.KindOf(o); !ok || !k.Row().Pooled {
		return
	}
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[kai.DefaultNodePoolKey] = pool
	o.SetLabels(labels)
}

// each makes a statement for every shard that it is about, and asks each shard a command. What a shard answers is printed
// below its name; what all answer alike, once.
func (in *interpreter) each(s *statement) error {
	do, command := in.commands[s.verb]
	before, said := in.backend, in.out.String()
	defer func() { in.backend = before }()
	var answers []string
	for _, shard := range in.shards {
		one := s.of(shard.pool)
		in.backend = shard
		if !command {
			if err := one.carriedOut(in.make); err != nil {
				return err
			}
			if !s.names(placeholder) {
				break // it is about all of them
			}
			continue
		}
		in.out.Reset()
		if err := one.carriedOut(do); err != nil {
			return fmt.Errorf("shard %s: %w", shard.pool, err)
		}
		answers = append(answers, in.out.String())
	}
	in.out.Reset()
	in.out.WriteString(said)
	if len(slices.Compact(slices.Clone(answers))) == 1 {
		in.out.WriteString(answers[0])
		return nil
	}
	for i, answer := range answers {
		if answer != "" {
			in.printf("%s:\n  %s\n", in.shards[i].pool, strings.ReplaceAll(strings.TrimSuffix(answer, "\n"), "\n", "\n  "))
		}
	}
	return nil
}

// names says whether a word of the statement has text in it.
func (s *statement) names(text string) bool {
	return slices.ContainsFunc(s.words, func(w string) bool { return strings.Contains(w, text) }) ||
		slices.ContainsFunc(s.attrs, func(a attr) bool { return strings.Contains(a.value, text) })
}

// of is the statement for one shard.
func (s *statement) of(pool string) statement {
	out := *s
	out.read, out.words, out.attrs, out.parts = map[string]bool{}, slices.Clone(s.words), slices.Clone(s.attrs), slices.Clone(s.parts)
	for i := range out.words {
		out.words[i] = strings.ReplaceAll(out.words[i], placeholder, pool)
	}
	for i := range out.attrs {
		out.attrs[i].value = strings.ReplaceAll(out.attrs[i].value, placeholder, pool)
	}
	for i := range out.parts {
		out.parts[i] = s.parts[i].of(pool)
	}
	return out
}
