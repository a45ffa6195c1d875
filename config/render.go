package config

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"text/tabwriter"
)

// String returns the settings in the form of an env file, without secrets.
func (c Config) String() string {
	var b strings.Builder
	for i, s := range settings {
		if i > 0 {
			b.WriteByte(' ')
		}
		text := s.show(c)
		if strings.ContainsAny(text, " \t\n\"'") {
			text = strconv.Quote(text)
		}
		b.WriteString(s.variable + "=" + text)
	}
	return b.String()
}

// GoString returns what String returns, for %#v.
func (c Config) GoString() string { return c.String() }

// MarshalJSON returns an object of variables and their values, without secrets.
func (c Config) MarshalJSON() ([]byte, error) {
	object := make(map[string]string, len(settings))
	for _, s := range settings {
		object[s.variable] = s.show(c)
	}
	return json.Marshal(object)
}

// LogValue returns a group of variables and their values, without secrets.
func (c Config) LogValue() slog.Value {
	attrs := make([]slog.Attr, len(settings))
	for i, s := range settings {
		attrs[i] = slog.String(s.variable, s.show(c))
	}
	return slog.GroupValue(attrs...)
}

// Usage writes a table of all variables, for the help text of a program.
func Usage(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defaults := Default()
	fmt.Fprintln(table, "VARIABLE\tDEFAULT\tEXAMPLE\tMEANING")
	for _, s := range settings {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.variable, s.show(defaults), s.example, s.means)
	}
	return table.Flush()
}
