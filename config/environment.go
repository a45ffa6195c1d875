package config

import (
	"errors"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"

	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/passfile"
)

const (
	variablesPrefix = "WLLOCK"
	// noVariables is a prefix under which envconfig finds defaults only: no variable has an equals sign in its name.
	noVariables = "="
)

// read sets the field of s in c, from the environment or to its default.
func (s setting) read(c *Config) error {
	value, err := fromEnvironment(s.variable)
	if err != nil {
		return err
	}
	return s.parse(c, value)
}

// fromEnvironment returns a variable without what shells, editors and secret stores add. Set but empty is not set: that is what orchestrators and
// env files mean. What cannot be meant is refused, alike for all variables.
func fromEnvironment(variable string) (string, error) {
	value, err := passfile.Clean(os.Getenv(variable))
	switch {
	case err != nil:
		return "", fault(err.Error())
	case len(value) > 1 && strings.ContainsRune("\"'", rune(value[0])) && value[0] == value[len(value)-1]:
		return "", fault("is in quotation marks, which docker run --env-file, among others, does not take off")
	case strings.TrimSpace(value) == "":
		return "", nil
	}
	if openurl.CheckSeen(strings.ReplaceAll(value, "\t", "")) != nil {
		return "", fault("has a control character, or a byte order mark")
	}
	return value, nil
}

// parse sets the field of s in c to a value, or to its default if that is empty. envconfig stops at the first value it cannot parse, so it gets one
// field at a time, and the value as its default.
func (s setting) parse(c *Config, value string) error {
	field, _ := reflect.TypeFor[Config]().FieldByName(s.field)
	if value != "" {
		field.Tag = reflect.StructTag("default:" + strconv.Quote(value))
	}
	one := reflect.New(reflect.StructOf([]reflect.StructField{field}))
	if err := envconfig.Process(noVariables, one.Interface()); err != nil {
		return err
	}
	got := one.Elem().Field(0)
	if got.Kind() == reflect.Int && value != "" && strconv.FormatInt(got.Int(), 10) != value { // envconfig takes 010 for 8
		return fault(nametext.Quote(value) + " is not a whole number in the decimal system, without zeros in front")
	}
	reflect.ValueOf(c).Elem().FieldByName(s.field).Set(got)
	return nil
}

// unreadable returns the problem of a value that could not be parsed. The error itself must not be shown, because it
// contains the value.
func (s setting) unreadable(err error) Problem {
	if own, ok := errors.AsType[fault](err); ok {
		return s.problem(string(own))
	}
	var parse *envconfig.ParseError
	if !errors.As(err, &parse) {
		return s.problem("cannot be read")
	}
	if own, ok := errors.AsType[fault](parse.Err); ok { // of one of our Decode methods
		return s.problem(string(own))
	}
	kind := "a whole number"
	if parse.TypeName == reflect.TypeFor[time.Duration]().String() {
		kind = "a duration"
	}
	return s.problem(nametext.Quote(parse.Value) + " is not " + kind)
}

// othersVariables have our prefix but are not settings: those that `wllock run` sets for its child, and those of the
// project's own tests.
var othersVariables = []string{
	"WLLOCK_LOCK_KEY", "WLLOCK_LOCK_FENCE", "WLLOCK_LOCK_PID", "WLLOCK_REQUIRE_SERVERS", "WLLOCK_LONG", "WLLOCK_SEED", "WLLOCK_PLAYS",
}

// serviceLink matches the variables that Kubernetes and Docker set for services whose names begin with wllock.
var serviceLink = regexp.MustCompile(`^WLLOCK_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT|PORT)(_[A-Z0-9_]+)?$`)

// unknownVariables finds misspelled variables: those with our prefix that are no setting. Unlike envconfig.CheckDisallowed
// it returns all of them.
func unknownVariables() []Problem {
	var wrong []Problem
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		ours := slices.ContainsFunc(settings, func(s setting) bool { return s.variable == name })
		if ours || !strings.HasPrefix(name, variablesPrefix+"_") || slices.Contains(othersVariables, name) ||
			serviceLink.MatchString(name) {
			continue
		}
		wrong = append(wrong, unknown(name))
	}
	slices.SortFunc(wrong, func(a, b Problem) int { return strings.Compare(a.Variable, b.Variable) })
	return wrong
}

// unknown returns the problem of a variable that is no setting.
func unknown(name string) Problem {
	near, found := nearest(name)
	if !found {
		return Problem{Variable: name, Fault: "is not a setting", Allowed: strings.Join(variables(), ", ")}
	}
	return Problem{
		Variable: name,
		Fault:    "is not a setting; did you mean " + near.variable + "?",
		Allowed:  near.allowed,
		Example:  near.variable + "=" + near.example,
	}
}

func variables() []string {
	var all []string
	for _, s := range settings {
		all = append(all, s.variable)
	}
	return all
}

// nearest returns the setting that a name was meant for: of those that contain its words, or whose words it contains, the first; without
// such a setting the one that is the fewest edits away, if no more than a third of the name has to be edited.
func nearest(name string) (setting, bool) {
	distance := func(s setting) int { return edits(name, s.variable) }
	word := strings.TrimPrefix(name, variablesPrefix)
	alike := slices.DeleteFunc(slices.Clone(settings), func(s setting) bool {
		own := strings.TrimPrefix(s.variable, variablesPrefix)
		return !strings.Contains(own+"_", word+"_") && !strings.Contains(word+"_", own+"_")
	})
	if len(alike) > 0 {
		return alike[0], true // the most usual ones come first
	}
	near := slices.MinFunc(settings, func(a, b setting) int { return distance(a) - distance(b) })
	return near, distance(near) <= (len(word)+1)/3 // word begins with _; rounded up
}

// edits is the Levenshtein distance, computed one row at a time.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
