package volcano

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/docs/ledgers"
	"github.com/muster-scheduler/muster/internal/migrate"
)

// Bounds of what is told of a difference: names of each kind, texts of one finding, and findings.
const (
	mostNames = 3
	mostTexts = 8
)

// difference is one that can be seen from objects.
type difference struct {
	// row is the key that its row of the ledger has as told.
	row string
	// next is what to do; "" for nothing, and then it only differs.
	next string
	find func(*Objects, *found)
}

// found gathers where a difference is felt. Objects of one text are told together; the text "" stands for the row's own.
type found struct {
	texts []string
	at    map[string][]object
}

// object is who feels it.
type object struct{ kind, name string }

func (f *found) add(text, kind, namespace, name string) {
	if namespace != "" {
		name = namespace + "/" + name
	}
	if f.at == nil {
		f.at = map[string][]object{}
	}
	if _, there := f.at[text]; !there {
		f.texts = append(f.texts, text)
	}
	f.at[text] = append(f.at[text], object{kind, name})
}

// called names objects: of each kind the first few by name, and how many more.
func called(all []object) string {
	names, kinds := map[string][]string{}, []string(nil)
	for _, o := range all {
		if names[o.kind] == nil {
			kinds = append(kinds, o.kind)
		}
		names[o.kind] = append(names[o.kind], o.name)
	}
	var out []string
	for _, kind := range kinds {
		of := names[kind]
		slices.Sort(of)
		of = slices.Compact(of)
		few := make([]string, 0, mostNames)
		for _, name := range of[:min(len(of), mostNames)] {
			few = append(few, brief(name))
		}
		text := kind + " " + strings.Join(few, ", ")
		if len(of) > mostNames {
			text += fmt.Sprintf(" and %d more", len(of)-mostNames)
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// differences tells what the ledger says about what this cluster has.
func (c *checker) differences() error {
	all, err := ledgers.Volcano()
	if err != nil {
		return err
	}
	rows := map[string]ledgers.VolcanoRow{}
	for _, part := range all { // order: by key
		for _, row := range part {
			if row.Told != "" {
				rows[row.Told] = row
			}
		}
	}
	for _, d := range slices.Concat(ofPrograms(), ofQueues(), ofWork(), ofTopology()) {
		var f found
		d.find(c.in, &f)
		row, known := rows[d.row]
		if !known && len(f.texts) > 0 {
			return fmt.Errorf("ledger of Volcano: no row is told as %s", d.row)
		}
		level := migrate.Differs
		if d.next != "" {
			level = migrate.See
		}
		var abouts []string
		said := map[string][]string{} // by whom it is about
		for _, text := range f.texts {
			about := called(f.at[text])
			if said[about] == nil {
				abouts = append(abouts, about)
			}
			said[about] = append(said[about], cmp.Or(text, row.What))
		}
		for i, about := range abouts {
			texts := said[about]
			text := strings.Join(texts[:min(len(texts), mostTexts)], "; ")
			if len(texts) > mostTexts {
				text += fmt.Sprintf("; and %d more", len(texts)-mostTexts)
			}
			if i == mostTexts {
				about, text = fmt.Sprintf("%d more", len(abouts)-mostTexts), "the like of the one before"
			}
			c.add(level, about, text+". Why: "+row.Why, d.next)
			c.report.Findings[len(c.report.Findings)-1].Row = d.row
			if i == mostTexts {
				break
			}
		}
	}
	for kind, err := range c.in.Unread { // order: one is told, and all of them are the same to do
		if !slices.Contains([]string{kindDeployments, kindPods, kindLeases, kindWebhooks}, kind) {
			return err
		}
	}
	return c.unread(kindPods)
}
