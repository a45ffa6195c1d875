package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Write puts the tables as JSON and Markdown, named after the report, and a plot per scenario into a folder.
func Write(dir string, r Report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	errs := []error{
		save(filepath.Join(dir, r.Name+".json"), func(w io.Writer) error { return writeJSON(w, r) }),
		save(filepath.Join(dir, r.Name+".md"), func(w io.Writer) error { return WriteMarkdown(w, r) }),
	}
	for name, tables := range byScenario(r.Tables) {
		path := filepath.Join(dir, name+".svg")
		errs = append(errs, save(path, func(w io.Writer) error { return WriteSVG(w, tables) }))
	}
	return errors.Join(errs...)
}

func save(path string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

func writeJSON(w io.Writer, r Report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

func byScenario(tables []Table) map[string][]Table {
	groups := make(map[string][]Table)
	for _, t := range tables {
		groups[t.Scenario] = append(groups[t.Scenario], t)
	}
	return groups
}
