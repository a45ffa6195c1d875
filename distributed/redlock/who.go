package redlock

import (
	"strings"
)

// A token names the process that it is of, so that everybody whose question is answered with it learns who has the lock. It is
// made of letters and digits alone, because that is what scripts take, those of older versions, too: so what a name has
// beside them, and the Z, is escaped by a Z.
var (
	escaping   = strings.NewReplacer("Z", "ZZ", "-", "Zm", ".", "Zd", "_", "Zu")
	unescaping = map[byte]byte{'Z': 'Z', 'm': '-', 'd': '.', 'u': '_'}
)

// nameEnd is between the name of a process and its letters.
const nameEnd = "Zp"

// processOf is how tokens name a process: by its name, and by letters that no other backend has.
func processOf(name, letters string) string { return escaping.Replace(name) + nameEnd + letters }

// nameOf is the name of the process that a token is of; "" if an older version has written it.
func nameOf(token string) string {
	_, process, ok := age(token)
	if !ok {
		return ""
	}
	var name []byte
	for i := 0; i < len(process); i++ {
		c := process[i]
		if c != 'Z' {
			name = append(name, c)
			continue
		}
		if i++; i == len(process) {
			return ""
		}
		if process[i] == nameEnd[1] {
			return string(name)
		}
		if c, ok = unescaping[process[i]]; !ok {
			return ""
		}
		name = append(name, c)
	}
	return ""
}

// holder names the process that has the votes of a majority, as far as the answers to this attempt tell; "" for readers, whose
// token is that of the first, who may have gone. The caller holds mu.
func (a *bid) holder() string {
	seen := map[string]int{}
	for i := range a.seats {
		s := a.seats[i].standing
		if (s.kind == 'w' || s.kind == 'h') && s.mode == "x" {
			if seen[s.owner]++; seen[s.owner] >= a.b.quorum {
				return nameOf(s.owner)
			}
		}
	}
	return ""
}
