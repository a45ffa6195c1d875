package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// dbFlags defines the flags of the comparison on a database.
func (s *settings) dbFlags(flags *flag.FlagSet) {
	flags.StringVar(&s.DB, "db", "", "`URL` of a database to compare the modes on: "+sqlshop.Allowed)
	flags.Var(modesFlag{&s.Modes}, "mode", "with -db: `modes` to compare, of "+modesAllowed)
	flags.Var(poolsFlag{&s.Pools}, "pool", "with -db: `numbers` of connections per process to try, as in 4,16; the best is shown")
	flags.Var(numberFlag{&s.Rounds, 1, 100}, "rounds", "with -db: `number` of rounds of each mode and pool; the median is shown")
	flags.Var(durationFlag{&s.Think, 0, time.Second}, "think", "with -db: `duration` of an order's work between reading and writing")
}

// onlyWithDB refuses flags that have no effect without -db, and forgets their defaults.
func (s *settings) onlyWithDB(flags *flag.FlagSet) (err error) {
	if s.DB != "" {
		return nil
	}
	flags.Visit(func(f *flag.Flag) {
		if slices.Contains([]string{"mode", "pool", "rounds", "think"}, f.Name) {
			err = errors.Join(err, fmt.Errorf("-%s needs -db: allowed: %s", f.Name, sqlshop.Allowed))
		}
	})
	s.Modes, s.Pools, s.Rounds, s.Think = nil, nil, 0, 0
	return err
}

// temporary is the -db that is a file for this run only.
const temporary = "sqlite"

// withScheme makes a URL of the path of a file. A word without a dot or a slash is more likely a mistake than a file.
func withScheme(db string) string {
	if strings.ContainsAny(db, "./\\") && !strings.Contains(db, ":") {
		return "sqlite:" + db
	}
	return db
}

// modesFlag is a list of modes. They are compared in the order of the table.
type modesFlag struct{ to *[]string }

func (f modesFlag) String() string {
	if f.to == nil {
		return ""
	}
	return strings.Join(*f.to, ",")
}

func (f modesFlag) Set(text string) error {
	chosen := strings.Split(text, ",")
	for _, name := range chosen {
		if modeIndex(name) < 0 {
			return fmt.Errorf("no mode %q; allowed: %s, several with commas", name, modesAllowed)
		}
	}
	slices.SortFunc(chosen, func(a, b string) int { return modeIndex(a) - modeIndex(b) })
	*f.to = slices.Compact(chosen)
	return nil
}

// poolsFlag is a list of pool sizes.
type poolsFlag struct{ to *[]int }

func (f poolsFlag) String() string {
	if f.to == nil {
		return ""
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*f.to), " ", ","), "[]")
}

// mostConnections is more than most databases allow.
const mostConnections = 1000

func (f poolsFlag) Set(text string) error {
	var sizes []int
	for size := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(size)
		if err != nil || n < 1 || n > mostConnections {
			return fmt.Errorf("allowed: whole numbers from 1 to %d, several with commas", mostConnections)
		}
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	*f.to = slices.Compact(sizes)
	return nil
}
