package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/nametext"
)

// Thresholds say how many callers may wait per key in one process. wllock.Unlimited means no limit. The text form is
// "500,product=200,cart=unlimited".
type Thresholds struct {
	Default int            // for all names that are not in Names
	Names   map[string]int // by name
}

const unlimited = "unlimited"

// String returns the text that Decode reads, with sorted names.
func (t Thresholds) String() string {
	parts := []string{thresholdText(t.Default)}
	for _, name := range slices.Sorted(maps.Keys(t.Names)) {
		parts = append(parts, name+"="+thresholdText(t.Names[name]))
	}
	return strings.Join(parts, ",")
}

// MarshalText returns what String returns, for encoders.
func (t Thresholds) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Decode implements envconfig.Decoder.
func (t *Thresholds) Decode(text string) error {
	out := Thresholds{Default: wllock.DefaultThreshold} // for a text with names only
	hasDefault := false
	for part := range strings.SplitSeq(text, ",") {
		name, number, named := strings.Cut(part, "=")
		if !named {
			name, number = "", part
		}
		name = strings.TrimSpace(name)
		n, err := parseThreshold(strings.TrimSpace(number))
		if err != nil {
			return err
		}
		switch _, twice := out.Names[name]; {
		case !named && hasDefault:
			return fault("has two numbers without a name")
		case twice:
			return fault("names " + nametext.Quote(name) + " twice")
		case !named:
			out.Default, hasDefault = n, true
		default:
			if out.Names == nil {
				out.Names = make(map[string]int)
			}
			out.Names[name] = n
		}
	}
	if wrong := out.fault(); wrong != "" {
		return fault(wrong)
	}
	*t = out
	return nil
}

func parseThreshold(text string) (int, error) {
	if text == unlimited {
		return wllock.Unlimited, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || strconv.Itoa(n) != text {
		return 0, fault("has " + nametext.Quote(text) + " instead of a number from 0 or unlimited")
	}
	return n, nil
}

func thresholdText(n int) string {
	if n == wllock.Unlimited {
		return unlimited
	}
	return strconv.Itoa(n)
}

func (t Thresholds) fault() string {
	if wrong := thresholdFault(t.Default); wrong != "" {
		return wrong
	}
	for _, name := range slices.Sorted(maps.Keys(t.Names)) {
		if nametext.CheckName("", name) != nil {
			return "has " + nametext.Quote(name) + " instead of a name (" + nametext.Rule + ")"
		}
		if wrong := thresholdFault(t.Names[name]); wrong != "" {
			return wrong
		}
	}
	return ""
}

func thresholdFault(n int) string {
	if n < 0 && n != wllock.Unlimited {
		return fmt.Sprintf("has %d instead of a number from 0 or unlimited", n)
	}
	return ""
}
