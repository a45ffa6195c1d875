package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// page is the text of docs/proof.md.
func page(top string) (string, error) {
	r, err := read(filepath.Join(top, "test", "results"))
	if err != nil {
		return "", err
	}
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	if err != nil {
		return "", err
	}
	w := &writer{tests: newTests(top)}
	w.say("%s", head)
	w.claim()
	w.runs(r.chaos)
	w.recoveries(r.chaos)
	w.schedules(r.schedules)
	w.model(r.model)
	w.teeth(r)
	w.defects()
	w.others()
	w.faults()
	w.again(r.chaos, strings.Contains(string(makefile), "\nchaos:"))
	w.say("%s", unchecked)
	return blanks.ReplaceAllString(strings.TrimSpace(w.String()), "\n\n") + "\n", errors.Join(w.errs...)
}

// blanks are more empty lines than one, where a part had nothing to say.
var blanks = regexp.MustCompile(`\n{3,}`)

// writer gathers the page, and what is wrong with its lists.
type writer struct {
	strings.Builder
	tests *tests
	errs  []error
}

func (w *writer) say(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// row is one of a table.
func (w *writer) row(cells ...any) {
	for _, cell := range cells {
		fmt.Fprintf(w, "| %v ", cell)
	}
	w.say("|")
}

func (w *writer) header(titles ...any) {
	w.row(titles...)
	w.say("%s|", strings.Repeat("|---", len(titles)))
}

// links are those of tests, in a cell.
func (w *writer) links(tests []string) string {
	var all []string
	for _, test := range tests {
		link, err := w.tests.link(test)
		if err != nil {
			w.errs = append(w.errs, err)
		}
		all = append(all, link)
	}
	return strings.Join(all, ", ")
}

func (w *writer) claim() { w.say(claim, w.links([]string{lockAndFence})) }

// backends are those whose runs are missed when there are none.
var backends = []string{"redis", "redlock", "etcd", "zookeeper", "postgres", "mariadb", "sqlite", "nats", "kubernetes", "s3", "dynamodb", "memcached"}

func (w *writer) runs(all []chaos) {
	w.say("%s", runsHead)
	for _, store := range []string{compares, none} {
		w.say("### %s\n", map[string]string{compares: "With a store that compares fences", none: "With a store that compares none"}[store])
		missing, shown := slices.Clone(backends), 0
		if store == compares { // memcached has no fences
			missing = slices.DeleteFunc(missing, func(b string) bool { return b == "memcached" })
		}
		for _, c := range all {
			if c.Store != store {
				continue
			}
			if shown++; shown == 1 {
				w.header("Backend", "Shape", "Processes", "Operations", "Entries", "Contended", "Faults", "Seconds", "Seed", "Commit", "Date", "Violations")
			}
			missing = slices.DeleteFunc(missing, func(b string) bool { return b == c.Backend })
			w.row(c.Backend, c.Shape, c.Processes, number(c.Operations), number(c.Entries), number(c.Contended), total(c.Faults),
				strconv.FormatFloat(c.Seconds, 'f', 0, 64), c.Seed, "`"+short(c.Commit)+"`", day(c.Began), violations(c.Violations))
		}
		if len(missing) > 0 {
			w.say("\n**Missing:** no result of %s.", strings.Join(missing, ", "))
		}
		w.say("")
	}
	w.faultsOf(all)
	for _, c := range all {
		for _, v := range c.Violations {
			if c.Store == compares {
				w.say("- **%s, %s:** `%s`", c.cell(), v.Rule, strings.Join(strings.Fields(strings.ReplaceAll(v.Text, "`", "'")), " "))
			}
		}
	}
	w.say("")
}

// faultsOf says how often each fault came in the runs of each backend.
func (w *writer) faultsOf(all []chaos) {
	of, names := map[string]map[string]int{}, map[string]bool{}
	for _, c := range all {
		if of[c.Backend] == nil {
			of[c.Backend] = map[string]int{}
		}
		for name, n := range c.Faults {
			of[c.Backend][name] += n
			names[name] = true
		}
	}
	if len(of) == 0 {
		return
	}
	w.say("### How often each fault came\n")
	shown, titles := slices.DeleteFunc(slices.Clone(backends), func(b string) bool { return of[b] == nil }), []any{"Fault"}
	for _, b := range shown {
		titles = append(titles, b)
	}
	w.header(titles...)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		cells := []any{escape(name)}
		for _, b := range shown {
			n := ""
			if of[b][name] > 0 {
				n = number(of[b][name])
			}
			cells = append(cells, n)
		}
		w.row(cells...)
	}
	w.say("")
}

func total(of map[string]int) (n int) {
	for _, one := range of {
		n += one
	}
	return n
}

// counts are the rules that were broken, the most frequent first.
func counts(of map[string]int) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		if of[a] != of[b] {
			return of[b] - of[a]
		}
		return strings.Compare(a, b)
	})
	var all []string
	for _, name := range names {
		all = append(all, escape(fmt.Sprint(name, " ", of[name])))
	}
	return strings.Join(all, ", ")
}

// violations says how many of each rule.
func violations(all []violation) string {
	of := map[string]int{}
	for _, v := range all {
		of[v.Rule]++
	}
	if len(all) == 0 {
		return "0"
	}
	return counts(of)
}

// short is the beginning of a commit's hash, and "-dirty" if that is behind it.
func short(commit string) string {
	hash, behind, dirty := strings.Cut(commit, "-")
	hash = hash[:min(len(hash), 8)]
	if dirty {
		hash += "-" + behind
	}
	return hash
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// number has a comma before each three digits.
func number(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func (w *writer) recoveries(all []chaos) {
	w.say("%s", recoveriesHead)
	if len(all) == 0 {
		w.say("**Missing:** no result.\n")
		return
	}
	w.header("Backend", "Shape", "Store", "What came back", "Times", "Median, ms", "Longest, ms")
	for _, c := range all {
		for _, name := range slices.Sorted(maps.Keys(c.Recoveries)) {
			r := c.Recoveries[name]
			w.row(c.Backend, c.Shape, c.Store, escape(name), r.N, strconv.FormatFloat(r.Median, 'f', 0, 64), strconv.FormatFloat(r.Max, 'f', 0, 64))
		}
	}
	w.say("")
}

// schedules adds up what was played of each package, and names the last run.
func (w *writer) schedules(all []schedules) {
	if len(all) == 0 {
		return
	}
	w.say("%s", schedulesHead)
	w.header("Schedules of", "Held", "Seconds", "Last seed", "Commit", "Date")
	sum := map[string]schedules{}
	for _, s := range all {
		s.Plays, s.Seconds = s.Plays+sum[s.Package].Plays, s.Seconds+sum[s.Package].Seconds
		sum[s.Package] = s
	}
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		s := sum[name]
		w.row(fmt.Sprintf("[%s](../%[1]s)", name), number(s.Plays), strconv.FormatFloat(s.Seconds, 'f', 0, 64), s.Seed, "`"+short(s.Commit)+"`", day(s.Began))
	}
	w.say("")
}

func (w *writer) defects() {
	n := 0
	for _, group := range defects {
		n += len(group.all)
	}
	w.say(defectsHead, n)
	for _, group := range defects {
		w.say("### %s\n", group.did)
		w.header("What was wrong", "Found by", "Fixed", "Asked by")
		for _, d := range group.all {
			w.row(escape(d.what), d.found, "`"+d.fixed+"`", w.links(d.tests))
		}
		w.say("")
	}
}

func (w *writer) others() {
	n := 0
	for _, group := range others {
		n += len(group.all)
	}
	w.say(othersHead, n)
	for _, group := range others {
		w.say("### %s\n", group.kind)
		w.header("Report", "What it says", "Asked here by")
		for _, k := range group.all {
			repository, n, _ := strings.Cut(k.where, "#")
			w.row(fmt.Sprintf("[%s](https://github.com/%s/issues/%s)", k.where, repository, n), escape(k.what), w.links(k.tests))
		}
		w.say("")
	}
}

func (w *writer) faults() {
	n, unasked := 0, 0
	for _, group := range faults {
		for _, f := range group.all {
			if n++; len(f.tests) == 0 {
				unasked++
			}
		}
	}
	w.say(faultsHead, n, n-unasked)
	n = 0
	for _, group := range faults {
		w.say("### Faults: %s\n", strings.ToLower(group.to[:1])+group.to[1:])
		w.header("#", "What happens", "What must hold", "Asked by", "Left out")
		for _, f := range group.all {
			n++
			w.row(n, escape(f.what), escape(f.must), w.links(f.tests), escape(f.note))
		}
		w.say("")
	}
}

// again says how to repeat a cell, if there is what repeats it.
func (w *writer) again(all []chaos, target bool) {
	w.say("%s", againHead)
	w.say("```sh")
	if target {
		cell := "redis"
		if len(all) > 0 {
			cell = all[0].cell()
		}
		w.say("make chaos CHAOS='%s'", cell)
	}
	w.say("%s\n```\n", againTest)
}
