package command

import (
	"io"
	"maps"
	"regexp"
	"strings"

	"github.com/urfave/cli/v3"
)

// wrapped prints a help text as wide as the terminal.
func wrapped(w io.Writer, template string, data any, more map[string]any) {
	width := terminalWidth(80)
	funcs := map[string]any{"wrap": func(text string, indent int) string { return wrap(text, indent, width) }}
	maps.Copy(funcs, more)
	cli.DefaultPrintHelpCustom(w, template, data, funcs)
}

// flagColumn is the widest name of a flag, with what is before and behind it.
const flagColumn = 39

// wrap breaks the lines of a text that begins in a column; what is behind a tab stays in a column of its own.
func wrap(text string, indent, width int) string {
	if name, usage, isFlag := strings.Cut(text, "\t"); isFlag {
		return name + "\t" + strings.Join(broken(usage, width-flagColumn), "\n   \t")
	}
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, broken(line, width-indent)...)
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"+strings.Repeat(" ", indent)), "\n"+strings.Repeat(" ", indent)+"\n", "\n\n")
}

// broken breaks a line between words.
func broken(line string, width int) (lines []string) {
	for word := range strings.FieldsSeq(line) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	if len(lines) == 0 {
		return []string{""}
	}
	return lines
}

// lineBreak is one within a paragraph of a description, which wrapped breaks anew.
var lineBreak = regexp.MustCompile(`([^\n])\n([^\n])`)
