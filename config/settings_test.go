package config

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kelseyhightower/envconfig"
	"github.com/stretchr/testify/require"
)

// The table must have the fields of Config, and the variables that envconfig reads.
func TestSettingsAreTheFieldsOfConfig(t *testing.T) {
	var fields, variables []string
	for field := range reflect.TypeFor[Config]().Fields() {
		if field.IsExported() {
			fields = append(fields, field.Name)
		}
	}
	var keys bytes.Buffer
	require.NoError(t, envconfig.Usagef(variablesPrefix, new(Config), &keys, `{{range .}}{{usage_key .}} {{end}}`))
	for i, s := range settings {
		require.Equal(t, fields[i], s.field)
		require.NotEmpty(t, s.means)
		require.NotEmpty(t, s.allowed)
		require.NotEmpty(t, s.example)
		variables = append(variables, s.variable)
	}
	require.Len(t, settings, len(fields))
	require.Equal(t, variables, strings.Fields(keys.String()))
}

// The examples in error messages must be valid.
func TestExamplesAreValid(t *testing.T) {
	for _, s := range settings {
		if slices.Contains([]string{"KeySecretFile", "RedisPasswordFile", "TLSCa"}, s.field) {
			continue // names a file on the user's machine
		}
		t.Run(s.variable, func(t *testing.T) {
			c := Default()
			c.SystemName, c.Backend = "order", NewURL("memory://")
			switch {
			case strings.HasPrefix(s.field, "Redis"):
				c.Backend = NewURL("redis://redis")
			case strings.HasPrefix(s.field, "TLS"):
				c.Backend = NewURL("rediss://redis")
			}
			t.Setenv(s.variable, s.example)
			require.NoError(t, s.read(&c))
			require.NoError(t, c.Validate())
		})
	}
}

func TestEdits(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"TLT", "TTL", 2}, {"flaw", "lawn", 2}} {
		require.Equal(t, test.want, edits(test.a, test.b), "%q %q", test.a, test.b)
		require.Equal(t, test.want, edits(test.b, test.a), "%q %q", test.b, test.a)
	}
}
