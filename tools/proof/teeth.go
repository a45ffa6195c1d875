package main

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// teeth says what finds the mistakes that were made on purpose.
func (w *writer) teeth(r results) {
	w.say("%s", teethHead)
	w.say("### Lines broken one by one\n")
	if r.mutants == nil {
		w.say("**Missing:** no result of `make mutants`.\n")
	} else {
		w.mutants(r.mutants)
	}
	w.say(plantedHead)
	for _, p := range plantedIn {
		w.say("- %s: %s", p.what, w.links(p.tests))
	}
	w.say("")
}

// mutants has a row for each room and language.
func (w *writer) mutants(m *mutants) {
	type key struct{ room, language string }
	of := map[key][]mutant{}
	var keys []key
	found := 0
	for _, one := range m.Mutants {
		k := key{strings.TrimSuffix(path.Dir(one.File), "/lua"), one.Language}
		if k.room == "." {
			k.room = "wllock"
		}
		if of[k] == nil {
			keys = append(keys, k)
		}
		if of[k] = append(of[k], one); one.FoundBy != "" {
			found++
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(strings.Compare(a.room, b.room), strings.Compare(a.language, b.language))
	})
	w.say("%d lines of %s, `%s`: %d are found.\n", len(m.Mutants), day(m.Began), short(m.Commit), found)
	w.header("Room", "Language", "Broken", "Found", "By")
	for _, k := range keys {
		by, n := finders(of[k])
		w.row("`"+k.room+"`", k.language, len(of[k]), n, by)
	}
	w.say("")
	for _, one := range m.Mutants {
		if one.FoundBy == "" {
			w.say("- **Not found:** %s (`%s`): %s", escape(one.Rule), one.File, one.Why)
		}
	}
	w.say("")
}

// finders are the tests that have found some of these, with how many they have.
func finders(all []mutant) (by string, found int) {
	of, names := map[string]int{}, []string{}
	for _, one := range all {
		_, test, _ := strings.Cut(one.FoundBy, " ")
		if test, _, _ = strings.Cut(test, "/"); one.FoundBy == "" {
			continue
		}
		if found++; of[test] == 0 {
			names = append(names, test)
		}
		of[test]++
	}
	for i, name := range names {
		if names[i] = "`" + name + "`"; of[name] > 1 {
			names[i] += fmt.Sprint(" ", of[name])
		}
	}
	return strings.Join(names, ", "), found
}

// plantedIn are tests that have their own mistakes, and find them in each run.
var plantedIn = []struct {
	what  string
	tests []string
}{
	{"the engine below the backends", []string{"distributed/driver TestMutantsAreFound"}},
	{"registers, as of memcached", []string{"distributed/driver/register TestMutantsAreFound"}},
	{"the scripts of Redis", []string{"distributed/redislock TestBrokenScriptsAreFound", "distributed/redislock TestABrokenCrowdIsFound"}},
	{"the backend in memory, by the suite of all backends", []string{"distributed/memlock TestFlawsAreFound"}},
	{"the checks of histories", []string{"test/history TestRulesAreChecked", "test/history TestBlindStoreLosesUpdates"}},
	{"whole Lockers in simulated time", []string{"test/simulated TestFlawsAreFound"}},
}
