package climb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/muster-scheduler/muster/internal/climb/genome"
)

// kept is a case as a file has it.
type kept struct {
	// Found is what it was when it was found, for people.
	Found  string          `json:"found"`
	Genome json.RawMessage `json:"genome"`
}

// ReadCase reads a file that WriteCase wrote; its name is the file's. The error names the file, the field and the rule.
func ReadCase(file string) (Found, error) {
	base := filepath.Base(file)
	f := Found{Name: base[:len(base)-len(filepath.Ext(base))]}
	text, err := os.ReadFile(file)
	if err != nil {
		return f, fmt.Errorf("reading a case: %w", err)
	}
	var k kept
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&k); err != nil {
		return f, fmt.Errorf("%s: %w", file, err)
	}
	if f.Genome, err = genome.Parse(k.Genome); err != nil {
		return f, fmt.Errorf("%s: %w", file, err)
	}
	return f, nil
}

// WriteCase writes a case into a folder, by its name.
func WriteCase(folder string, f *Found) error {
	g, err := json.Marshal(&f.Genome)
	if err != nil {
		return fmt.Errorf("writing a case: %w", err)
	}
	k := kept{Found: fmt.Sprintf("%s of processor time, mostly %s; %s", brief(f.Measured.CPU), f.Measured.Stage, shape(&f.Genome)), Genome: g}
	text, err := json.MarshalIndent(&k, "", "  ")
	if err != nil {
		return fmt.Errorf("writing a case: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("writing a case: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, f.Name+".json"), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing a case: %w", err)
	}
	return nil
}
